"""Learn generators on shared rows, both ways: from tables that were released once, or step by step.

``release``: every holder sends the others its columns of shared rows once, behind noise, and learns by itself; with a
dual penalty two holders also exchange one number per row and step.

``interactive``: two holders send each other generated columns, and get back the gradient at them, added up under the
key of the party that generated them: from its parts the receiver could divide out more than from the whole.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PrivateKey, PublicKey, encrypt
from colonnade.data import batches
from colonnade.errors import ConfigError, SlotOverflow, WrongContent
from colonnade.exchanges.holdings import first_seeds
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_product import Opening, blurred
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.duality import Judge, dual_gradient
from colonnade.methods.mpdl.generators import Generator, Mean, Perceptron, Ridge, empty_generator
from colonnade.methods.mpdl.messages import ColumnGradient, ColumnNames, DualScalars, GeneratedColumns, ReleasedTable
from colonnade.methods.mpdl.rows import OwnTable
from colonnade.session import Channel, Session

__all__ = ["DualLearning", "Others", "exchange_tables"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

# Numbers under encryption: u is clipped, factors and gradients are checked before they are encrypted.
_SCALARS = Format(32, 12)
_FACTORS = Format(40, 16)
_GRADIENT_BITS = _SCALARS.fraction_bits + _FACTORS.fraction_bits
_GRADIENTS = Format(_GRADIENT_BITS, 20)


@dataclass(frozen=True)
class Others:
    """The columns of all other holders, in the agreed order of parties."""

    parties: tuple[str, ...]
    names: tuple[tuple[str, ...], ...]
    values: torch.Tensor | None
    """Their released columns of shared rows, side by side; None where nothing is released."""

    @property
    def width(self) -> int:
        """Return how many columns a generator gives."""
        return sum(len(names) for names in self.names)

    def part(self, party: str) -> slice:
        """Return where one party's columns are."""
        start = 0
        for other, names in zip(self.parties, self.names, strict=True):
            if other == party:
                return slice(start, start + len(names))
            start += len(names)
        raise ConfigError(f"'{party}' is no other holder of this run.")


def exchange_tables(session: Session, config: MPDL, table: OwnTable) -> Others:
    """Tell all other holders which columns there are and, where tables are released, their cells."""
    peers = _holders(session)
    names = table.space.names[: table.space.own_width]
    is_release = config.exchange == "release"
    for peer in peers:
        peer.send(ReleasedTable(names, table.released.numpy()) if is_release else ColumnNames(names))
    session.ledger.mark("released", **_marked(table))
    found_names, found = [], []
    for peer in peers:
        if is_release:
            answer = peer.receive(ReleasedTable, rows=len(table.shared))
            found.append(_checked_table(peer, answer, config))
            found_names.append(answer.names)
        else:
            found_names.append(peer.receive(ColumnNames).names)
    values = torch.cat(found, dim=1) if is_release else None
    return Others(tuple(peer.peer for peer in peers), tuple(found_names), values)


class DualLearning:
    """One holder and its generator."""

    def __init__(self, session: Session, config: MPDL, table: OwnTable, others: Others) -> None:
        self._session, self._config, self._table, self._others = session, config, table, others
        self._inputs = table.inputs(table.shared)
        self._seeds = first_seeds(session, config.secret_start)
        self._peers = _holders(session)
        self._keys = self._exchange_keys() if config.exchange == "interactive" else None
        self.generator = self._fresh(0)

    def learn(self, rows: Places, name: str, counter: int) -> Generator:
        """Learn from these shared rows; the generator goes on from where it was, unless folds are strict."""
        if self._config.strict_folds and counter:
            self.generator = self._fresh(counter)
        generator = self.generator
        if isinstance(generator, Perceptron):
            self._train(generator, torch.from_numpy(rows), name)
            return generator
        targets = self._targets()[torch.from_numpy(rows)]
        if isinstance(generator, Ridge):
            inputs = self._inputs[torch.from_numpy(rows)]
            generator.fit(inputs, targets, self._config.penalties, self._session.own_seed("ridge"))
        if isinstance(generator, Mean):
            generator.fit(targets)
        return generator

    def generate(self, units: torch.Tensor) -> torch.Tensor:
        """Return others' columns, in unit space, for rows in unit space."""
        return self.generator(self._table.scale.standardised(units))

    def _fresh(self, counter: int) -> Generator:
        seed = self._seeds("generator", counter)
        return empty_generator(self._config, self._inputs.shape[1], self._others.width, seed)

    def _targets(self) -> torch.Tensor:
        if self._others.values is None:
            raise ConfigError("config.exchange = 'interactive' releases no table to learn from. Use 'release'.")
        return self._others.values

    def _train(self, generator: Perceptron, rows: torch.Tensor, name: str) -> None:
        """Train step by step; all holders take the same batches."""
        config = self._config
        step = _Released(self, generator) if self._keys is None else _Interactive(self, generator, *self._keys)
        per_epoch = math.ceil(len(rows) / config.batch_size)
        done, total = 0, per_epoch * config.generator_epochs
        for epoch in self._session.passes("generator_epochs", config.generator_epochs):
            seed = self._session.seed(f"{name}/generator batches", epoch)
            for batch in batches(len(rows), config.batch_size, seed):
                with self._peers[0].openings.at(f"{name}, generator batch {done}"):
                    step(rows[torch.from_numpy(batch)])
                done += 1
                self._session.show("dual learning", done, total)

    def _exchange_keys(self) -> tuple[PrivateKey, PublicKey]:
        (peer,) = self._peers
        own = make_key(self._session, self._config.key_size)
        send_key(peer, own)
        return own, receive_key(self._session, peer, self._config.key_size)

    # What both ways of training need.

    def judge(self, targets: torch.Tensor, owner_role: str) -> Judge:
        """Return who judges generated columns of a party."""
        columns = self._table.space.own_width + self._others.width
        sign = 1.0 if owner_role == "label_holder" else -1.0
        return Judge(self._config, targets, sign, columns, self._session.seed("support"))

    def weight_of(self, party: str) -> float:
        """Return the weight of the dual penalty on a party's generator."""
        return self._config.dual_weights.get(party, self._config.dual_weight)


class _Released:
    """A step by oneself, from what was released."""

    def __init__(self, dual: DualLearning, generator: Perceptron) -> None:
        self._dual, self._generator = dual, generator
        self._peer = dual._peers[0]
        self._judge = dual.judge(dual._targets(), self._peer.peer_role)

    def __call__(self, rows: torch.Tensor) -> None:
        outputs = self._generator.outputs(self._dual._inputs[rows])
        generated = outputs.detach()
        gradient = self._judge.alignment(generated, rows)
        if self._dual._config.dual_is_on:
            own, slope = self._judge.penalty(generated, rows)
            self._peer.send(DualScalars(own.numpy()))
            # Rounding may carry the last bits beyond the clip.
            clip = self._dual._config.dual_clip * (1.0 + 1e-9)
            answer = self._peer.receive(DualScalars, rows=len(rows), column=(), least=-clip, most=clip).values
            other = torch.from_numpy(cast(Numbers, answer).astype(np.float64))
            gradient = gradient + dual_gradient(self._dual.weight_of(self._dual._session.party), own, other, slope)
        self._generator.learn(outputs, gradient)


class _Interactive:
    """A step with the other holder, which alone has the columns that are generated here."""

    def __init__(self, dual: DualLearning, generator: Perceptron, own_key: PrivateKey, their_key: PublicKey) -> None:
        self._dual, self._generator = dual, generator
        self._own_key, self._their_key = own_key, their_key
        self._peer = dual._peers[0]
        self._judge = dual.judge(dual._table.released, dual._session.role)

    def __call__(self, rows: torch.Tensor) -> None:
        peer, count = self._peer, len(rows)
        outputs = self._generator.outputs(self._dual._inputs[rows])
        peer.send(GeneratedColumns(outputs.detach().numpy()))
        answer = peer.receive(GeneratedColumns, rows=count, columns=self._dual._table.space.own_width).values
        peer.send(ColumnGradient(self._answer(torch.from_numpy(answer.astype(np.float64)), rows)))
        gradient = self._opened(count, outputs.shape[1])
        self._generator.learn(outputs, gradient)

    def _answer(self, generated: torch.Tensor, rows: torch.Tensor) -> CipherArray:
        """Return the gradient at the other's generated columns, under the other's key."""
        peer, count = self._peer, len(rows)
        plain = self._judge.alignment(generated, rows)
        if not self._dual._config.dual_is_on:
            return encrypt(self._their_key, FixedPoint.encode(plain.reshape(-1).numpy(), _GRADIENTS), packed_axis=0)
        own, slope = self._judge.penalty(generated, rows)
        factors = 2.0 * self._dual.weight_of(peer.peer) / count * slope
        peer.send(DualScalars(encrypt(self._own_key, own.numpy()[:, None], _SCALARS)))
        sealed = cast(CipherArray, peer.receive(DualScalars, rows=count, column=1).values)
        layout = Layout.plan(
            (count, 1),
            None,
            modulus_bits=self._their_key.bits,
            fraction_bits=_SCALARS.fraction_bits,
            bound=_SCALARS.bound,
        )
        sealed = sealed.under(self._their_key, layout)
        products = sealed.each_product(FixedPoint.encode(factors.numpy()[:, None, :], _FACTORS))
        line = products.gather(np.arange(math.prod(products.shape)))
        whole = plain + factors * own[:, None]
        line = line + FixedPoint.encode(whole.reshape(-1).numpy(), _GRADIENTS)
        return blurred(line.widened(_answer_bound()), _FACTORS).packed()

    def _opened(self, rows: int, columns: int) -> torch.Tensor:
        peer = self._peer
        opening = Opening(peer, ColumnGradient, self._own_key, cells=rows * columns)
        bound = _blurred_bound() if self._dual._config.dual_is_on else _GRADIENTS.bound
        layout = Layout.plan(
            (rows * columns,), 0, modulus_bits=self._own_key.bits, fraction_bits=_GRADIENT_BITS, bound=bound
        )
        try:
            values = opening.fixed(opening.received.values, layout).decode()
        except SlotOverflow:
            raise WrongContent(f"'{peer.peer}' sent gradients beyond their range.") from None
        return torch.from_numpy(values.reshape(rows, columns))


def _answer_bound() -> int:
    return _SCALARS.bound * _FACTORS.bound + _GRADIENTS.bound


def _blurred_bound() -> int:
    return _answer_bound() + (1 << _FACTORS.fraction_bits)


def _holders(session: Session) -> Sequence[Channel]:
    return [channel for channel in session.all_channels if channel.peer_role != COLLABORATOR]


def _marked(table: OwnTable) -> dict[str, Any]:
    about = table.budget.to_json()
    return {name: about[name] for name in ("mechanism", "row_basic", "row_zcdp", "paper_claim", "is_sound", "rows")}


def _checked_table(peer: Channel, answer: ReleasedTable, config: MPDL) -> torch.Tensor:
    values = answer.values.astype(np.float64)
    may_be_missing = config.mechanism == "none"
    if (
        values.shape[1] != len(answer.names)
        or np.isinf(values).any()
        or (np.isnan(values).any() and not may_be_missing)
    ):
        raise WrongContent(f"'{peer.peer}' released a table that is not numbers in as many columns as it names.")
    return torch.from_numpy(values)
