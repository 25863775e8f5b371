"""Encoders that turn a party's columns and labels into arrays, fitted on its own training rows only."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.columns import Kind
from colonnade.data.parts import Categories, check_fits, check_version, damaged, has_support, rows_of, typed
from colonnade.data.table import PartyTable
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["LabelEncoder", "TableEncoder", "Task"]

Task: TypeAlias = Literal["binary", "multiclass", "regression"]
Scalar: TypeAlias = str | int | float | bool

_VERSION = 1
_MOST_INTEGER_CLASSES = 20


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


@dataclass(frozen=True, repr=False)
class LabelEncoder:
    """Turn labels into the numbers a loss needs, and back.

    Classes are kept in ascending order, the second of two being the positive one. A regression label is standardised by
    `mean` and `scale`. Like a table encoder, this stays with the party that holds the label.
    """

    task: Task
    classes: tuple[Scalar, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def fit(cls, labels: npt.ArrayLike, task: str = "auto") -> LabelEncoder:
        """Learn classes, or mean and scale, from training labels.

        `auto` takes text and bools as classes, two different values as binary, whole numbers of at most 20 different
        values as multiclass, and anything else as regression.
        """
        if task not in ("auto", "binary", "multiclass", "regression"):
            known = ["auto", "binary", "multiclass", "regression"]
            raise ConfigError(f"There is no task '{task}'. {did_you_mean(task, known)}")
        values = _label_values(labels)
        is_text = values.dtype == object
        distinct = sorted(set(values)) if is_text else np.unique(values).tolist()
        if len(distinct) < 2:
            raise TableError(
                f"The {len(values)} labels have {len(distinct)} different values. A model needs at least two."
            )
        if task == "auto":
            is_whole = not is_text and bool(np.all(np.mod(values, 1) == 0))
            has_classes = is_text or (is_whole and len(distinct) <= _MOST_INTEGER_CLASSES)
            task = "binary" if len(distinct) == 2 else "multiclass" if has_classes else "regression"
        if task == "binary" and len(distinct) != 2:
            raise TableError(f"A binary task needs two classes, and the labels have {len(distinct)}. Use multiclass.")
        if task != "regression":
            return cls(task=cast(Task, task), classes=tuple(_class_name(value) for value in distinct))
        if is_text or values.dtype == bool:
            raise TableError("A regression needs numbers, and the labels are text or bools. Use binary or multiclass.")
        mean, scale = _mean_and_scale(values.astype(np.float64))
        return cls(task="regression", mean=mean, scale=scale or 1.0)

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return labels as 0.0 and 1.0 (binary), class numbers (multiclass, int64) or standardised (regression)."""
        values = _label_values(labels)
        if self.task == "regression":
            if values.dtype == object:
                raise TableError("The encoder was fitted on numbers and the labels are text. Pass numbers.")
            return (values.astype(np.float64) - self.mean) / self.scale
        codes = self._class_numbers(values)
        unseen = int((codes < 0).sum())
        if unseen:
            raise TableError(
                f"{unseen} of {len(values)} labels belong to none of the {len(self.classes)} classes the encoder was "
                f"fitted on. Fit it on rows that contain every class, or remove those rows."
            )
        return codes.astype(np.float64) if self.task == "binary" else codes

    def decode(self, encoded: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return classes or numbers for what `encode` gave; a binary score counts as the second class from 0.5."""
        values = np.asarray(encoded)
        if self.task == "regression":
            return values.astype(np.float64) * self.scale + self.mean
        codes = (values >= 0.5).astype(np.int64) if self.task == "binary" else values.astype(np.int64)
        outside = int(((codes < 0) | (codes >= len(self.classes))).sum())
        if outside:
            raise TableError(
                f"{outside} of {codes.size} class numbers lie outside 0 to {len(self.classes) - 1}. "
                f"Decode what this encoder, or a model trained with it, has given."
            )
        if isinstance(self.classes[0], str):
            return np.array(self.classes, dtype=object)[codes]
        return np.array(self.classes)[codes]

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "task": self.task,
            "classes": list(self.classes),
            "mean": self.mean,
            "scale": self.scale,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> LabelEncoder:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        check_version(saved, _VERSION, "label encoder")
        try:
            task = saved["task"]
            classes = tuple(typed(name, (str, int, float, bool)) for name in saved["classes"])
            mean, scale = typed(saved["mean"], float), typed(saved["scale"], float)
        except (KeyError, TypeError, ValueError):
            raise damaged("label encoder") from None
        if task not in ("binary", "multiclass", "regression") or (task != "regression" and len(classes) < 2):
            raise damaged("label encoder")
        return cls(task=task, classes=classes, mean=mean, scale=scale)

    def __repr__(self) -> str:  # class names, mean and scale stay out of logs and tracebacks
        return f"LabelEncoder(task={self.task!r}, classes={len(self.classes)})"

    def _class_numbers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        has_text = isinstance(self.classes[0], str)
        if has_text != (values.dtype == object):
            return np.full(len(values), -1, dtype=np.int64)
        if has_text:
            return pd.Index(self.classes, dtype=object).get_indexer(pd.Index(values, dtype=object)).astype(np.int64)
        # Compared as floats, so that 1, 1.0 and True are one class.
        known, wanted = np.array(self.classes, dtype=np.float64), values.astype(np.float64)
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[places] == wanted, places, -1).astype(np.int64)


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
    mean, scale = _mean_and_scale(present)
    marks_missing = has_support(int(absent.sum()), len(values), support)
    if scale == 0 and not marks_missing:
        return None
    return _NumericPart(column, mean, scale, marks_missing, bounds, kind)


def _mean_and_scale(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Return mean and population deviation; a constant has the exact deviation 0."""
    if values.min() == values.max():
        return float(values[0]), 0.0
    # Divided by the largest first, so that sums and squares of huge numbers stay finite.
    largest = np.abs(values).max()
    reduced = values / largest
    return float(reduced.mean() * largest), float(reduced.std() * largest)


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


def _label_values(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return labels as a bool, number or text (object) array, refusing missing and mixed ones."""
    values = np.asarray(labels)
    if values.ndim != 1:
        raise TableError(f"Labels have the shape {values.shape}. Pass one label for each row.")
    if values.dtype.kind in "biu":
        return values
    missing = int(pd.isna(values).sum())
    if missing:
        raise TableError(f"{missing} of {len(values)} labels are missing. Fill those labels or remove the rows.")
    if values.dtype.kind == "f":
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise TableError(f"{infinite} of {len(values)} labels are infinite. Replace them or remove the rows.")
        return values
    cells: Sequence[Any] = values.tolist()
    if all(isinstance(cell, str) for cell in cells):
        return np.array([str(cell) for cell in cells], dtype=object)
    if all(isinstance(cell, (bool, int, float, np.number, np.bool_)) for cell in cells):
        return _label_values(np.array(cells))
    kinds = ", ".join(sorted({type(cell).__name__ for cell in cells}))
    raise TableError(
        f"Labels mix or have types that cannot be labels: {kinds}. Use numbers, bools or text, not a mixture."
    )


def _class_name(value: Any) -> Scalar:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return cast(Scalar, value)
