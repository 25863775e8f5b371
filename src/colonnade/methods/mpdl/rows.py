"""A holder's rows as generators and the classifier take them, and which of them are for what."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import ConfigError, TableError
from colonnade.exchanges.holdings import without_columns
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.units import UnitSpace
from colonnade.privacy import CellBudget, CellRelease, SecretNoise
from colonnade.session import Holding, Session, derive_seed

__all__ = ["OwnTable", "Scale", "cell_release", "fold_parts", "own_table"]

Places = npt.NDArray[np.int64]

# Of columns from 0 to 1: a column that hardly varies would otherwise blow up noise a thousandfold.
_LEAST_SPREAD = 0.1


@dataclass(frozen=True)
class Scale:
    """Where columns lie and how far they spread; the spread has a floor."""

    mean: torch.Tensor
    spread: torch.Tensor

    @classmethod
    def of(cls, units: torch.Tensor) -> Scale:
        """Measure columns, leaving out what is missing."""
        mean = torch.nan_to_num(torch.nanmean(units, dim=0), nan=0.5)
        centred = torch.nan_to_num(units - mean, nan=0.0)
        spread = (centred**2).mean(dim=0).sqrt().clamp(min=_LEAST_SPREAD)
        return cls(mean, spread)

    def standardised(self, units: torch.Tensor) -> torch.Tensor:
        """Return columns about 0, with what is missing there."""
        return torch.nan_to_num((units - self.mean) / self.spread, nan=0.0)


@dataclass(frozen=True)
class OwnTable:
    """All rows of a holder in unit space."""

    space: UnitSpace
    units: torch.Tensor
    """All rows of the table, as this party's own networks take them; NaN where missing."""
    released: torch.Tensor
    """The party's own columns of shared rows to learn from, as others get them."""
    scale: Scale
    shared: Places
    """Places in the table of shared rows to learn from, in the agreed order."""
    validation: Places
    """Those of shared rows that are held out to compare models by, beside folds."""
    test: Places
    own: Places
    """Rows that no other party knows; at the label holder those with a label."""
    budget: CellBudget

    def inputs(self, rows: Places) -> torch.Tensor:
        """Return rows standardised."""
        return self.scale.standardised(self.units[torch.from_numpy(rows)])


def own_table(session: Session, holding: Holding, config: MPDL) -> OwnTable:
    """Encode a holder's table, and draw the noise of what it releases."""
    if config.dp_scope == "all" and session.stage == "central":
        raise ConfigError(
            "With dp_scope = 'all' a table's noise must be drawn once, so generators and classifier cannot be trained "
            "in two runs. Use the stage train."
        )
    holders = [party for party in session.plan.parties if session.plan.role_of(party) != COLLABORATOR]
    if len(holders) > 2 and (config.dual_is_on or config.exchange == "interactive"):
        # Before anything is released.
        raise ConfigError(
            "A dual penalty, and the interactive exchange, are between two holders of columns. Set dual_weight = 0 and "
            "exchange = 'release' for more."
        )
    positions, split = holding.aligned.positions, holding.split
    shared, own = positions[split.train], holding.aligned.rest
    if holding.table.has_label:
        own = own[holding.table.is_labelled[own]]
    if not len(shared):
        raise TableError(
            "No shared row is left to learn from. Lower evaluate.validation_fraction and evaluate.test_fraction, or "
            "check that ids match."
        )
    known = np.concatenate([shared, own])
    space = UnitSpace.fit(holding.table, known, config)
    if space.own_width == 0 and space.width:
        raise ConfigError(
            f"'{session.party}' has no columns beside those that all holders have (config.common_columns), so there is "
            "nothing for the others to generate. Give it columns of its own, or use splitnn."
        )
    if space.own_width == 0:
        raise without_columns(session)
    units = space.transform(holding.table, np.arange(holding.table.rows))
    noise = cell_release(session, space, config, with_common=config.dp_scope == "all")
    if config.dp_scope == "all":
        units = noise.perturb(units, "cells")
        released = units[shared][:, : space.own_width]
    else:
        released = noise.perturb(units[shared][:, : space.own_width], "cells")
    tensor = torch.from_numpy(units)
    return OwnTable(
        space,
        tensor,
        torch.from_numpy(np.ascontiguousarray(released)),
        Scale.of(tensor[torch.from_numpy(known)]),
        shared,
        positions[split.validation],
        positions[split.test],
        own,
        cell_release(session, space, config, with_common=False).budget(len(shared)),
    )


def cell_release(session: Session, space: UnitSpace, config: MPDL, *, with_common: bool) -> CellRelease:
    """Return what draws the noise of this party's cells, the same whenever the run is taken up again."""
    return CellRelease(
        space.cells(config, with_common=with_common),
        config.mechanism,
        noise=SecretNoise(session.secret("cells")),
        sigma=config.sigma,
        delta=config.delta,
    )


def fold_parts(rows: int, config: MPDL, order: int = 0) -> list[Places]:
    """Return the parts of shared rows by which models are compared, in the order they are tried: each at most once.

    Rows are shuffled by a seed that holders alone know; how many a part has, the collaborator knows too.
    """
    if config.folds == 0 or rows < 2:
        return []
    shuffled = np.random.default_rng(derive_seed(order, "folds")).permutation(rows)
    return [np.sort(part) for part in np.array_split(shuffled, min(config.folds, rows))[: config.fold_rounds]]
