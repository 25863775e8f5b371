"""How differently a model's yes and no fall on groups of people, from counts alone.

The party with the decisions and the party with the groups can count together without showing each other a row; these
counts are all that the gaps need. A representation that hides the groups does not by itself make these gaps small.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import UsageError
from colonnade.metrics.gaps import Gap, Level, widest_difference

__all__ = ["GroupCounts", "demographic_parity_gap", "equal_opportunity_gap", "equalised_odds_gap"]


@dataclass(frozen=True)
class GroupCounts:
    """Counts by group: its rows, those decided positive, those truly positive, and those that are both."""

    rows: tuple[int, ...]
    decided: tuple[int, ...]
    positive: tuple[int, ...]
    both: tuple[int, ...]

    def __post_init__(self) -> None:
        columns = [np.asarray(getattr(self, one.name)) for one in fields(self)]
        rows, decided, positive, both = columns
        if rows.ndim != 1 or not len(rows) or any(column.shape != rows.shape for column in columns):
            raise UsageError("Group counts need four numbers for each group, and at least one group.")
        if any(column.dtype.kind not in "iu" for column in columns):
            raise UsageError("Group counts must be whole numbers. Take GroupCounts.from_noised for counts with noise.")
        if np.any(both < 0) or np.any(both > np.minimum(decided, positive)) or np.any(decided + positive - both > rows):
            raise UsageError(
                "These group counts contradict one another: a group has more decided or positive rows than rows. "
                "Take GroupCounts.from_noised for counts with noise."
            )
        for one, column in zip(fields(self), columns, strict=True):
            object.__setattr__(self, one.name, tuple(column.tolist()))

    @classmethod
    def from_rows(
        cls, truth: ArrayLike, decided: ArrayLike, groups: ArrayLike, number: int | None = None
    ) -> GroupCounts:
        """Count from one truth and decision (0 or 1) and one group (0, 1, …) per row.

        ``number`` is how many groups there are; without it, as many as the largest group says.
        """
        is_positive, is_decided, members = np.asarray(truth), np.asarray(decided), np.asarray(groups)
        if members.ndim != 1 or is_positive.shape != members.shape or is_decided.shape != members.shape:
            raise UsageError(
                f"{members.shape} groups, {is_positive.shape} labels and {is_decided.shape} decisions do not fit."
            )
        if not (np.isin(is_positive, (0, 1)).all() and np.isin(is_decided, (0, 1)).all()):
            raise UsageError("Labels and decisions must be 0 or 1 to be counted.")
        if members.dtype.kind not in "biu" or (len(members) and members.min() < 0):
            raise UsageError("Groups are whole numbers from 0 on, none missing. Leave out rows whose group is unknown.")
        wanted = int(members.max(initial=-1)) + 1 if number is None else number
        if len(members) and members.max() >= wanted:
            raise UsageError(f"There are groups beyond the {wanted} that were announced.")
        members = members.astype(np.int64)

        def count(chosen: NDArray[np.bool_]) -> tuple[int, ...]:
            return tuple(np.bincount(members[chosen], minlength=wanted).tolist())

        yes, hit = is_decided == 1, is_positive == 1
        return cls(count(np.ones(len(members), bool)), count(yes), count(hit), count(yes & hit))

    @classmethod
    def from_noised(cls, rows: ArrayLike, decided: ArrayLike, positive: ArrayLike, both: ArrayLike) -> GroupCounts:
        """Take counts with noise on them: whole, and moved no further than until they no longer contradict each other.

        The intervals of gaps do not know about the noise.
        """
        whole = [np.rint(np.asarray(column, np.float64)) for column in (rows, decided, positive, both)]
        if not all(np.all(np.isfinite(column)) for column in whole):
            raise UsageError("Group counts with noise must be finite.")
        number = np.maximum(whole[0], 0)
        yes, hit = np.clip(whole[1], 0, number), np.clip(whole[2], 0, number)
        common = np.clip(whole[3], np.maximum(yes + hit - number, 0), np.minimum(yes, hit))
        rows_, yes_, hit_, common_ = (tuple(column.astype(np.int64).tolist()) for column in (number, yes, hit, common))
        return cls(rows_, yes_, hit_, common_)

    def positive_rates(self) -> tuple[float | None, ...]:
        """Return which share of each group is decided positive; ``None`` for a group without rows."""
        return tuple(_rate(*cell) for cell in self._cells())

    def rates_given(self, label: int) -> tuple[float | None, ...]:
        """Return which share of each group's rows of this true label, 0 or 1, is decided positive."""
        return tuple(_rate(*cell) for cell in self._cells_given(label))

    def to_json(self) -> dict[str, Any]:
        """Return the counts as lists."""
        return {name: list(column) for name, column in asdict(self).items()}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> GroupCounts:
        """Build counts from what :meth:`to_json` returned."""
        try:
            columns = [tuple(content[one.name]) for one in fields(cls)]
        except (KeyError, TypeError) as problem:
            raise UsageError(
                "These are no group counts: they need 'rows', 'decided', 'positive' and 'both', lists of one length."
            ) from problem
        return cls(*columns)

    def _cells(self) -> list[tuple[int, int]]:
        return list(zip(self.decided, self.rows, strict=True))

    def _cells_given(self, label: int) -> list[tuple[int, int]]:
        if label == 1:
            return list(zip(self.both, self.positive, strict=True))
        negative = [rows - positive for rows, positive in zip(self.rows, self.positive, strict=True)]
        wrong = [decided - both for decided, both in zip(self.decided, self.both, strict=True)]
        return list(zip(wrong, negative, strict=True))


def demographic_parity_gap(counts: GroupCounts) -> Gap:
    """Return by how much the groups differ in the share that is decided positive."""
    return _gap(counts._cells())


def equal_opportunity_gap(counts: GroupCounts) -> Gap:
    """Return by how much the groups differ in the share of their truly positive rows that is decided positive."""
    return _gap(counts._cells_given(1))


def equalised_odds_gap(counts: GroupCounts) -> Gap:
    """Return the larger of two gaps: among truly positive rows, and among truly negative ones."""
    return _gap(counts._cells_given(1), counts._cells_given(0))


def _gap(*parts: list[tuple[int, int]]) -> Gap:
    empty = [group for cells in parts for group, (_, rows) in enumerate(cells) if not rows]
    return widest_difference([[Level.of_share(*cell) for cell in cells if cell[1]] for cells in parts], empty)


def _rate(hits: int, rows: int) -> float | None:
    return hits / rows if rows else None
