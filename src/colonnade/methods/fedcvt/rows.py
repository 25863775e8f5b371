"""A party's rows as networks take them, and the batches of every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import TableEncoder
from colonnade.errors import TableError
from colonnade.exchanges.holdings import without_columns
from colonnade.methods.fedcvt.config import FedCVT
from colonnade.session import Holding, Session

__all__ = [
    "Batches",
    "OwnTable",
    "batch_rows",
    "own_table",
    "steps_of",
]

Places = npt.NDArray[np.int64]

_MOST_STEPS = 10**7


@dataclass(frozen=True)
class OwnTable:
    """All rows of a party's table, encoded, and which of them are for what."""

    encoder: TableEncoder
    features: torch.Tensor
    train: Places
    validation: Places
    test: Places
    own: Places
    """Rows that no other party knows; at the label holder those with a label."""
    anchors: Places
    """Shared training rows by which views are estimated after training, the same at all parties."""


def own_table(session: Session, holding: Holding, config: FedCVT) -> OwnTable:
    """Encode a party's table by what its training rows show, shared or not."""
    positions, split = holding.aligned.positions, holding.split
    own = holding.aligned.rest
    if holding.table.has_label:
        own = own[holding.table.is_labelled[own]] if holding.table.is_labelled is not None else own
    train = positions[split.train]
    if not len(train):
        raise TableError(
            "No shared row is left to learn from. Lower evaluate.validation_fraction and evaluate.test_fraction, or "
            "check that ids match."
        )
    if not holding.table.columns:
        raise without_columns(session)
    encoder = TableEncoder.fit(holding.table, np.concatenate([train, own]))
    if encoder.width == 0:
        raise without_columns(session)
    features = encoder.transform(holding.table, np.arange(holding.table.rows), dtype=np.dtype(config.precision).type)
    order = np.random.default_rng(session.seed("anchors")).permutation(len(train))[: config.anchors]
    return OwnTable(
        encoder,
        torch.from_numpy(features),
        train,
        positions[split.validation],
        positions[split.test],
        own,
        train[np.sort(order)],
    )


class Batches:
    """Rows in batches of nearly equal size, pass after pass: any step of any epoch can be asked for."""

    def __init__(self, rows: Places, size: int, seed: Callable[[int], int]) -> None:
        self._rows, self._seed = rows, seed
        self.per_pass = math.ceil(len(rows) / size)
        self._order = lru_cache(maxsize=2)(self._shuffled)

    def at(self, epoch: int, step: int) -> Places:
        """Return the rows of a step; nothing where there are none."""
        if not self.per_pass:
            return self._rows
        turn, place = divmod(step, self.per_pass)
        return self._order(epoch, turn)[place]

    @property
    def smallest(self) -> int:
        """Return how many rows the smallest batch has."""
        return len(self._rows) // self.per_pass if self.per_pass else 0

    @property
    def largest(self) -> int:
        """Return how many rows the largest batch has."""
        return math.ceil(len(self._rows) / self.per_pass) if self.per_pass else 0

    def _shuffled(self, epoch: int, turn: int) -> list[Places]:
        generator = np.random.default_rng([self._seed(epoch), turn])
        return np.array_split(generator.permutation(self._rows), self.per_pass)


def batch_rows(count: int, size: int, step: int) -> int:
    """Return how many rows a step's batch has, by arithmetic alone: a partner's count may be any number."""
    passes = math.ceil(count / size)
    return count // passes + (step % passes < count % passes) if passes else 0


def steps_of(config: FedCVT, shared: int, own: list[int]) -> int:
    """Return how many steps an epoch has: as many as the longest list of rows needs."""
    counts = [math.ceil(shared / config.batch_size), *(math.ceil(one / config.own_batch_size) for one in own)]
    return min(max(counts), _MOST_STEPS)
