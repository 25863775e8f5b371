"""The encoder that turns a party's columns into arrays, fitted on its own training rows only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.columns import Kind
from colonnade.data.parts import (
    Categories,
    check_fits,
    check_version,
    damaged,
    has_support,
    mean_and_scale,
    rows_of,
    typed,
)
from colonnade.data.table import PartyTable
from colonnade.errors import TableError

__all__ = ["TableEncoder"]

_VERSION = 1


@dataclass(frozen=True, repr=False)
class _NumericPart:
    """Standardise one numeric column; `scale` is 0 where the training rows had a single value beside missing ones."""

    column: str
    mean: float
    scale: float
    marks_missing: bool
    bounds: tuple[float, float] | None = None
    """Where values are cut off first."""
    kind: Kind = "numeric"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.column, *([f"{self.column} is missing"] if self.marks_missing else []))

    def write(self, values: npt.NDArray[Any], block: npt.NDArray[Any]) -> None:
        absent = np.isnan(values)
        if self.bounds is not None:
            values = np.clip(values, *self.bounds)
        if self.scale > 0:
            largest = np.finfo(block.dtype).max
            # A row far outside the training range must not become infinite when it is scaled or cast.
            with np.errstate(over="ignore"):
                standard = np.clip((values - self.mean) / self.scale, -largest, largest)
            block[:, 0] = np.where(absent, 0.0, standard)
        if self.marks_missing:
            block[:, 1] = absent


@dataclass(frozen=True, repr=False)
class TableEncoder:
    """Turn a PartyTable's feature columns into one array, with means, scales and categories from training rows.

    Numbers are standardised (missing becomes the mean), categories one-hot encoded; `names` says what each output
    column is and `dropped` which input columns carried nothing in training (constant, empty, or too rarely different).

    An encoder holds the party's own means and category names. It belongs to this party's part of the model and is never
    sent; keep its JSON as you keep the table.
    """

    parts: tuple[_NumericPart | Categories, ...]
    dropped: tuple[str, ...]

    @classmethod
    def fit(
        cls,
        table: PartyTable,
        positions: npt.NDArray[np.int64] | None = None,
        *,
        minimum_support: int = 0,
        columns: Collection[str] | None = None,
    ) -> TableEncoder:
        """Learn from the rows at `positions` (all by default); pass the training rows only.

        The most frequent categories of a column, as many as `table.most_categories`, get an output of their own, the
        others share one.
        No output tells fewer than `minimum_support` rows apart from the others: rarer categories share an output,
        numbers are cut off where so many rows lie beyond, and an output that would still do so is left out. `columns`
        are those to encode, by default all.
        """
        count = table.rows if positions is None else len(positions)
        if not count:
            raise TableError(f"{table.name} has no training rows to fit an encoder on. Use a smaller held-out part.")
        parts: list[_NumericPart | Categories] = []
        dropped = []
        for column in table.columns if columns is None else table.all_columns:
            if columns is not None and column.name not in columns:
                continue
            values = rows_of(table, column.name, positions)
            part: _NumericPart | Categories | None
            if column.kind == "categorical":
                part = Categories.fit(column.name, values, table.most_categories, minimum_support)
            else:
                part = _fit_numeric(column.name, column.kind, values, minimum_support)
            if part is None:
                dropped.append(column.name)
            else:
                parts.append(part)
        return cls(parts=tuple(parts), dropped=tuple(dropped))

    @property
    def names(self) -> tuple[str, ...]:
        """Name the output columns: `age`, `age is missing`, `job=clerk`, `job is other`, `job is missing`."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def width(self) -> int:
        """Count the output columns."""
        return sum(len(part.names) for part in self.parts)

    @property
    def types(self) -> dict[str, Kind]:
        """Return the kind of each column in use, to read later tables with the same `types`."""
        return {part.column: part.kind for part in self.parts}

    def transform(
        self,
        table: PartyTable,
        positions: npt.NDArray[np.int64] | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> npt.NDArray[Any]:
        """Return the rows at `positions` (all by default) as an array of shape (rows, width)."""
        check_fits(table, self.types)
        count = table.rows if positions is None else len(positions)
        encoded = np.zeros((count, self.width), dtype=dtype)
        start = 0
        for part in self.parts:
            width = len(part.names)
            values = rows_of(table, part.column, positions)
            if values.dtype != object and part.kind == "categorical":  # every cell missing, see check_fits
                values = np.full(count, None, dtype=object)
            elif values.dtype == object and part.kind != "categorical":
                values = np.full(count, np.nan)
            part.write(values, encoded[:, start : start + width])
            start += width
        return encoded

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "columns": [_part_to_json(part) for part in self.parts],
            "dropped": list(self.dropped),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> TableEncoder:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        check_version(saved, _VERSION, "table encoder")
        try:
            parts = tuple(_part_from_json(part) for part in saved["columns"])
            dropped = tuple(typed(name, str) for name in saved["dropped"])
        except (KeyError, TypeError, ValueError):
            raise damaged("table encoder") from None
        return cls(parts=parts, dropped=dropped)

    def __repr__(self) -> str:  # means and category names stay out of logs and tracebacks
        return f"TableEncoder(width={self.width}, columns={len(self.parts)}, dropped={len(self.dropped)})"


def _fit_numeric(column: str, kind: Kind, values: npt.NDArray[np.float64], support: int) -> _NumericPart | None:
    absent = np.isnan(values)
    present = values[~absent]
    if not len(present):
        return None
    bounds = None
    if support:
        in_order = np.sort(present)
        # Fewer than twice as many rows are not told apart at all.
        first, last = (support - 1, -support) if len(present) >= 2 * support else (0, 0)
        bounds = float(in_order[first]), float(in_order[last])
        present = np.clip(present, *bounds)
    mean, scale = mean_and_scale(present)
    marks_missing = has_support(int(absent.sum()), len(values), support)
    if scale == 0 and not marks_missing:
        return None
    return _NumericPart(column, mean, scale, marks_missing, bounds, kind)


def _part_to_json(part: _NumericPart | Categories) -> dict[str, Any]:
    if isinstance(part, Categories):
        return part.to_json()
    bounds = part.bounds and list(part.bounds)
    shared = {"column": part.column, "kind": part.kind, "marks_missing": part.marks_missing}
    return shared | {"mean": part.mean, "scale": part.scale, "bounds": bounds}


def _part_from_json(saved: Mapping[str, Any]) -> _NumericPart | Categories:
    if saved["kind"] == "categorical":
        return Categories.from_json(saved)
    if saved["kind"] not in ("numeric", "date", "boolean"):
        raise ValueError
    column, marks_missing = typed(saved["column"], str), typed(saved["marks_missing"], bool)
    mean, scale = typed(saved["mean"], float), typed(saved["scale"], float)
    bounds = None if saved["bounds"] is None else tuple(typed(one, float) for one in saved["bounds"])
    if bounds is not None and len(bounds) != 2:
        raise ValueError
    return _NumericPart(column, mean, scale, marks_missing, bounds, saved["kind"])
