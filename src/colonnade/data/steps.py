"""Columns for a linear model: numbers also as steps and slopes at their quantiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.columns import Kind
from colonnade.data.encoders import TableEncoder
from colonnade.data.table import PartyTable
from colonnade.errors import TableError

__all__ = ["StepEncoder"]

Numbers = npt.NDArray[np.float64]

_VERSION = 1
# A value that more than this share of rows has, such as no gain at all, is not one quantity among others.
_USUAL = 0.5
_SLOPES = (0.2, 0.4, 0.6, 0.8)
_STEPS = tuple(place / 9 for place in range(1, 9))


@dataclass(frozen=True)
class _Expanded:
    """What one numeric column gives beside itself."""

    column: str
    usual: float | None
    """The value most rows have, if there is one."""
    places: tuple[float, ...]
    """Where steps or slopes begin."""

    def outputs(self, values: Numbers) -> Numbers:
        if self.usual is None:
            return np.stack([np.maximum(values - place, 0.0) for place in self.places], axis=1)
        is_other = ~np.isnan(values) & (values != self.usual)
        return np.stack([is_other, *(values > place for place in self.places)], axis=1).astype(np.float64)

    @property
    def names(self) -> tuple[str, ...]:
        if self.usual is None:
            return tuple(f"{self.column} beyond {place:g}" for place in self.places)
        return (
            f"{self.column} is not {self.usual:g}",
            *(f"{self.column} above {place:g}" for place in self.places),
        )


@dataclass(frozen=True, repr=False)
class StepEncoder:
    """Encode a table as `TableEncoder` does and, if wanted, add steps of its numeric columns, all standardised.

    Fitted on training rows. ``column_of`` says which column of the table each output comes from.
    """

    plain: TableEncoder
    expanded: tuple[_Expanded, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]

    @classmethod
    def fit(cls, table: PartyTable, positions: npt.NDArray[np.int64], *, expands: bool = True) -> StepEncoder:
        """Learn means, categories and quantiles from the rows at ``positions``."""
        plain = TableEncoder.fit(table, positions)
        expanded = [
            one
            for column, kind in plain.types.items()
            if expands
            and kind != "categorical"
            and (one := _expand(column, table.values(column)[positions])) is not None
        ]
        added = _added(expanded, table, positions)
        scales = added.std(axis=0)
        return cls(plain, tuple(expanded), tuple(added.mean(axis=0).tolist()), tuple(scales.tolist()))

    @property
    def width(self) -> int:
        """Count the outputs."""
        return self.plain.width + len(self.means)

    @property
    def names(self) -> tuple[str, ...]:
        """Name the outputs."""
        return (*self.plain.names, *(name for one in self.expanded for name in one.names))

    @property
    def column_of(self) -> tuple[str, ...]:
        """Return the column of the table that each output comes from."""
        own = [part.column for part in self.plain.parts for _ in part.names]
        return (*own, *(one.column for one in self.expanded for _ in one.names))

    @property
    def types(self) -> dict[str, Kind]:
        """Return the kind of each column in use."""
        return self.plain.types

    def transform(self, table: PartyTable, positions: npt.NDArray[np.int64]) -> Numbers:
        """Return the rows at ``positions`` as numbers."""
        plain = self.plain.transform(table, positions, dtype=np.float64)
        scales = np.array(self.scales)
        added = (_added(self.expanded, table, positions) - np.array(self.means)) / np.where(scales > 0, scales, 1.0)
        return np.concatenate([plain, added], axis=1)

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "plain": self.plain.to_json(),
            "expanded": [[one.column, one.usual, list(one.places)] for one in self.expanded],
            "means": list(self.means),
            "scales": list(self.scales),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> StepEncoder:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        try:
            if saved["version"] != _VERSION:
                raise ValueError
            expanded = tuple(
                _Expanded(str(column), None if usual is None else float(usual), tuple(map(float, places)))
                for column, usual, places in saved["expanded"]
            )
            means, scales = (tuple(map(float, saved[name])) for name in ("means", "scales"))
            plain = saved["plain"]
            if not len(means) == len(scales) == sum(len(one.names) for one in expanded):
                raise ValueError
        except (KeyError, TypeError, ValueError):
            raise TableError(
                "The saved table encoder is incomplete or changed. Restore the file or train again."
            ) from None
        return cls(TableEncoder.from_json(plain), expanded, means, scales)

    def __repr__(self) -> str:  # quantiles stay out of logs and tracebacks
        return f"StepEncoder(width={self.width}, columns={len(self.types)})"


def _expand(column: str, values: Numbers) -> _Expanded | None:
    """Choose where steps or slopes of a column begin; None for a column of too few different values."""
    known = values[~np.isnan(values)]
    different, counts = np.unique(known, return_counts=True)
    if len(different) <= 2:
        return None
    usual = float(different[counts.argmax()]) if counts.max() > _USUAL * len(known) else None
    rest = known if usual is None else known[known != usual]
    places = np.unique(np.quantile(rest, _SLOPES if usual is None else _STEPS))
    inner = places[places < known.max()]
    return _Expanded(column, usual, tuple(inner.tolist())) if len(inner) else None


def _added(expanded: tuple[_Expanded, ...] | list[_Expanded], table: PartyTable, positions: Any) -> Numbers:
    parts = [np.empty((len(positions), 0))]
    for one in expanded:
        values = table.values(one.column)
        numbers = np.full(len(positions), np.nan) if values.dtype == object else values[positions]
        parts.append(np.nan_to_num(one.outputs(numbers)))
    return np.concatenate(parts, axis=1)
