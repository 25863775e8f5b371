"""A holder's rows as its block of the first layer takes them: whole, or completed by generated columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, JOINT, MPDL
from colonnade.methods.mpdl.dual import Others
from colonnade.methods.mpdl.generators import Generator
from colonnade.methods.mpdl.messages import ShippedRows
from colonnade.methods.mpdl.networks import Arrangement
from colonnade.methods.mpdl.rows import Scale
from colonnade.methods.mpdl.units import UnitSpace
from colonnade.session import Channel, Session

__all__ = ["Completion", "RowsOf"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RowsOf:
    """Which rows a classifier learns from: places in the holder's table."""

    learned: Places
    """Shared rows."""
    own: Places
    """Rows that only the label holder knows; at other holders as many places that stand for nothing."""


class Completion:
    """One holder's columns, its generator, and how both enter the first layer."""

    def __init__(
        self,
        session: Session,
        config: MPDL,
        space: UnitSpace,
        units: torch.Tensor,
        scale: Scale,
        others: Others,
        generator: Generator,
    ) -> None:
        self._session, self._config, self._space, self.units = session, config, space, units
        self._others, self._scale, self.generator = others, scale, generator
        self._is_label_holder = session.role == "label_holder"
        # Columns that all holders have are fed by the label holder only.
        self.fed = space.width if self._is_label_holder else space.own_width
        common = () if self._is_label_holder else space.names[space.own_width :]
        self.names = (*(name for names in others.names for name in names), *common)
        self.arrange = Arrangement(config, space.names[: self.fed], self.names)
        self._fed_scale = Scale(scale.mean[: self.fed], scale.spread[: self.fed])
        self.generated_scale: Scale | None = None
        self._shipped: dict[str, torch.Tensor] = {}

    def generated(self, rows: Places) -> torch.Tensor:
        """Return all columns that this holder does not feed, as far as it knows or can generate them."""
        units = self.units[torch.from_numpy(rows)]
        columns = self.generator(self._scale.standardised(units))
        if self._is_label_holder:
            return columns
        # These are not generated: this party has them, and only the weights are elsewhere.
        return torch.cat([columns, torch.nan_to_num(units[:, self._space.own_width :], nan=0.5)], dim=1)

    def measure(self, rows: Places) -> None:
        """Measure generated columns on these rows, after the generator has learned."""
        self.generated_scale = Scale.of(self.generated(rows).double())

    def whole(self, rows: Places) -> torch.Tensor:
        """Return rows whose other columns the other holders bring, or nobody."""
        return self.arrange(self._own(rows), self._fed_scale, None, None)

    def completed(self, rows: Places) -> torch.Tensor:
        """Return rows with all other columns generated here."""
        return self.arrange(self._own(rows), self._fed_scale, self.generated(rows), self.generated_scale)

    def alone(self, rows: Places, model: str) -> torch.Tensor:
        """Return rows that nobody else knows, as far as a model's own weights here go."""
        is_completed = model != JOINT and self._config.completes_alone(self._session.role)
        return self.completed(rows) if is_completed else self._fitted(self.whole(rows), model)

    def owned(self, model: str, rows: RowsOf) -> dict[str, tuple[int, Places]]:
        """Return, by holder, where rows begin that stand for its own, and which of its rows they are."""
        if model == JOINT:
            return {}
        start = len(rows.learned)
        found = {self._label_holder: (start, rows.own)}
        start += len(rows.own)
        for party in self._session.plan.roles["feature_holder"] if self._config.augment else ():
            found[party] = (start, rows.learned)
            start += len(rows.learned)
        return found

    def inputs(self, model: str, rows: RowsOf) -> torch.Tensor:
        """Return all rows that a classifier learns from, in the order that all holders have."""
        shared = self._fitted(self.whole(rows.learned), model)
        if model == JOINT:
            return shared
        if self._config.completion == "ship":
            self._ship(rows)
        return torch.cat([shared, *(self._segment(party, own) for party, (_, own) in self.owned(model, rows).items())])

    def whole_with(self, rows: Places, model: str) -> torch.Tensor:
        """Return rows that all holders know, as a model's block takes them."""
        return self._fitted(self.whole(rows), model)

    def given(self, units: torch.Tensor, model: str) -> torch.Tensor:
        """Return rows whose columns of this holder another one generated."""
        return self._fitted(self.arrange(units, self._fed_scale, None, None), model)

    def in_unit_space(self, block: nn.Module) -> tuple[Numbers, Numbers]:
        """Return the weights of this holder's own columns for numbers that are not standardised yet, and an offset."""
        weights = next(block.parameters()).detach().double()[:, : self.fed].T / self._fed_scale.spread[:, None]
        return weights.numpy(), -(self._fed_scale.mean @ weights).numpy()

    def gradient_of(self, columns: torch.Tensor, deltas: torch.Tensor) -> torch.Tensor:
        """Return the gradient of this holder's weights from ``columns' deltas``, given as another holder knows it."""
        scale = self._fed_scale
        return ((columns - scale.mean[:, None] * deltas.sum(dim=0)) / scale.spread[:, None]).T

    @property
    def own_width(self) -> int:
        """Return how many columns only this holder brings."""
        return self._space.own_width

    @property
    def _label_holder(self) -> str:
        return self._session.plan.roles["label_holder"][0]

    def _own(self, rows: Places) -> torch.Tensor:
        return self.units[torch.from_numpy(rows)][:, : self.fed]

    def _has_room(self, model: str) -> bool:
        return model != JOINT and self._config.completion == "own_copy"

    def _fitted(self, arranged: torch.Tensor, model: str) -> torch.Tensor:
        return self.arrange.widened(arranged) if self._has_room(model) else arranged

    def _segment(self, owner: str, rows: Places) -> torch.Tensor:
        """Return rows that stand for those which only one holder knows."""
        if owner == self._session.party:
            is_completed = self._config.completes_alone(self._session.role)
            return self.completed(rows) if is_completed else self.whole(rows)
        if self._config.completion != "ship":
            return self.arrange.nothing(len(rows), with_generated=self._config.completion == "own_copy")
        return self.given(self._shipped[owner], COMPLETED)

    def _ship(self, rows: RowsOf) -> None:
        """Give the other holders what their weights take, and get theirs."""
        peers = [channel for channel in self._session.all_channels if channel.peer_role != COLLABORATOR]
        mine = rows.own if self._is_label_holder else rows.learned
        if self._is_label_holder or self._config.augment:
            generated = self.generated(mine).double()
            for peer in peers:
                peer.send(ShippedRows(self.meant_for(peer, generated).numpy()))
        for peer in peers:
            if peer.peer_role == "label_holder" or self._config.augment:
                count = len(rows.own) if peer.peer_role == "label_holder" else len(rows.learned)
                shipped = peer.receive(ShippedRows, rows=count, columns=self.fed).values
                self._shipped[peer.peer] = torch.from_numpy(shipped.astype(np.float64))

    def meant_for(self, peer: Channel, generated: torch.Tensor) -> torch.Tensor:
        """Return the columns that another holder feeds, of all that were generated here."""
        columns = generated[:, self._others.part(peer.peer)]
        if peer.peer_role != "label_holder":
            return columns
        return torch.cat([columns, generated[:, self._others.width :]], dim=1)
