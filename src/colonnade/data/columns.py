"""Turn one column of a frame into numbers or categories, or say why that cannot be done.

The errors of this module name columns, kinds and counts. They never name a cell's content.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Literal, NamedTuple, TypeAlias
from uuid import UUID

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.errors import TableError

__all__ = [
    "Cells",
    "Column",
    "Kind",
    "cells_of",
    "days_since_1970",
    "is_number_text",
    "number_of",
    "read_column",
    "text_of",
]

Kind: TypeAlias = Literal["numeric", "date", "boolean", "categorical"]
"""What a column holds. Values of dates are days since 1970, of booleans 0 and 1."""

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|[+-]?[iI][nN][fF](?:inity)?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECONDS_PER_DAY = 86_400_000_000


@dataclass(frozen=True)
class Column:
    """Describe one column without showing any of its values; `distinct` counts different values, without missing."""

    name: str
    kind: Kind
    missing: int
    distinct: int
    left_out: str = field(default="", repr=False)
    """Why it is no feature, such as "identifier"; empty where it is one."""
    notes: tuple[str, ...] = field(default=(), repr=False)
    """Sentences on what was decided about it or looks wrong; counts only."""


class Cells(NamedTuple):
    """A column's kind, its values (float64 with NaN, or objects that are str or None), and what to say about it."""

    kind: Kind
    values: npt.NDArray[Any]
    notes: tuple[str, ...] = ()


def read_column(series: pd.Series[Any], *, where: str, override: Kind | None = None) -> Cells:
    """Return a column's kind and its values, and whether they were dates or booleans.

    `where` names the column in errors. `override` is the user's word on the kind and beats what the cells look like.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        override = override or "categorical"
    if override != "categorical":
        numbers = _numbers_by_dtype(series)
        if numbers is not None:
            is_date, is_boolean = (
                test(series.dtype) for test in (pd.api.types.is_datetime64_any_dtype, pd.api.types.is_bool_dtype)
            )
            return Cells(
                "date" if is_date else "boolean" if is_boolean else "numeric", _refuse_infinite(numbers, where)
            )

    cells, codes = _different_cells(series)
    occurrences = np.bincount(codes[codes >= 0], minlength=len(cells)).tolist()
    counts: Counter[str] = Counter()
    words = 0
    for cell, times in zip(cells, occurrences, strict=True):
        if cell is not None:
            counts[_cell_kind(cell)] += times
            words += times if isinstance(cell, str) and not is_number_text(cell) else 0
    _refuse_unusable(counts, where)

    # A few words among numbers are more likely a slip ("unknown", "n/a") than names that happen to be digits.
    is_text = override is None and set(counts) == {"text"} and 2 * words >= counts["text"]
    if override == "categorical" or is_text:
        texts = np.array([*(None if cell is None else text_of(cell) for cell in cells), None], dtype=object)
        return Cells("categorical", texts[codes])
    if set(counts) == {"date"}:
        days = np.array([*(np.nan if cell is None else days_since_1970(cell) for cell in cells), np.nan])
        return Cells("date", days[codes])

    unusable = words + counts["date"]
    if override == "numeric" and unusable:
        raise TableError(
            f"{where} is set to numeric, but {unusable} of its {len(codes)} cells are not numbers. "
            f"Clean those cells or set the column's type to categorical."
        )
    if unusable:
        raise TableError(
            f"{where} mixes kinds: {counts['number'] + counts['text'] - words} numbers, {words} texts that are no "
            f"numbers and {counts['date']} dates. "
            f'Clean it, or read all of it as text with types = {{{series.name} = "categorical"}}.'
        )
    numbers = np.array([*(np.nan if cell is None else number_of(cell) for cell in cells), np.nan])[codes]
    is_boolean = bool(counts) and all(cell is None or isinstance(cell, (bool, np.bool_)) for cell in cells)
    return Cells("boolean" if is_boolean else "numeric", _refuse_infinite(numbers, where))


def _different_cells(series: pd.Series[Any]) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Return cells and, for each row, the place of its cell; -1 is a missing one.

    Columns of text repeat few values often, so each is looked at once. Cells of other types are listed row by row,
    because they need not be hashable, and 1, 1.0 and True would fall together.
    """
    is_categorical = isinstance(series.dtype, pd.CategoricalDtype)
    if is_categorical or pd.api.types.infer_dtype(series, skipna=True) == "string":
        codes, different = pd.factorize(series)
        return cells_of(pd.Series(different, dtype=object)), codes.astype(np.int64)
    return cells_of(series), np.arange(len(series), dtype=np.int64)


def cells_of(series: pd.Series[Any]) -> list[Any]:
    """Return a column's cells as Python objects, with None for whatever counts as missing.

    Missing are None, NaN, NaT and text that is empty or blank. UUIDs and times of day, which databases give, are text.
    """
    absent = series.isna().to_numpy(dtype=bool)
    cells: list[Any] = []
    for cell, is_absent in zip(series.astype(object).tolist(), absent, strict=True):
        if is_absent or (isinstance(cell, str) and not cell.strip()):
            cells.append(None)
        else:
            cells.append(text_of(cell) if isinstance(cell, (UUID, time)) else cell)
    return cells


def is_number_text(text: str) -> bool:
    """Tell whether a text is a number as a data file would write it (so not `1_000`, not `nan`)."""
    return _NUMBER.fullmatch(text.strip()) is not None


def number_of(cell: Any) -> float:
    """Return a number, a number's text or a duration (in days) as a float."""
    if isinstance(cell, (timedelta, np.timedelta64)):
        return float(pd.Timedelta(cell) / pd.Timedelta(days=1))
    try:
        return float(cell)
    except OverflowError:  # a whole number beyond the range of a float; reported with the infinite ones
        return float("inf")


def text_of(cell: Any) -> str:
    """Return a cell as category text, the same whether it came from a CSV file, a Parquet file or a database.

    A whole number that a frame stored as a float (because of missing cells beside it) loses its `.0`.
    """
    if isinstance(cell, np.generic):
        cell = cell.item()
    if isinstance(cell, (float, Decimal)) and np.isfinite(float(cell)) and cell == int(cell):
        return str(int(cell))
    if isinstance(cell, datetime):
        at_midnight = cell.time() == time.min
        return cell.date().isoformat() if at_midnight else cell.isoformat(sep=" ")
    if isinstance(cell, (date, time)):
        return cell.isoformat()
    return str(cell)


def days_since_1970(cell: Any) -> float:
    """Return a date or a moment as days since 1970 began in UTC; a moment without a zone counts as UTC."""
    if isinstance(cell, np.datetime64):
        cell = pd.Timestamp(cell)
    if not isinstance(cell, datetime):
        cell = datetime(cell.year, cell.month, cell.day, tzinfo=UTC)
    if cell.tzinfo is None:
        cell = cell.replace(tzinfo=UTC)
    return float((cell - _EPOCH) // timedelta(microseconds=1) / _MICROSECONDS_PER_DAY)


def _numbers_by_dtype(series: pd.Series[Any]) -> npt.NDArray[np.float64] | None:
    """Return the numbers of a column whose dtype alone settles the matter, else None."""
    dtype: Any = series.dtype
    if pd.api.types.is_complex_dtype(dtype):
        return None
    if pd.api.types.is_numeric_dtype(dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        # One road for naive, zoned and arrow-backed moments.
        moments = pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        days = moments.astype(np.int64) / _MICROSECONDS_PER_DAY
        return np.where(np.isnat(moments), np.nan, days)
    if pd.api.types.is_timedelta64_dtype(dtype):
        return pd.to_timedelta(series).to_numpy() / np.timedelta64(1, "D")
    return None


def _cell_kind(cell: Any) -> str:
    if isinstance(cell, str):
        return "text"
    if isinstance(cell, (complex, np.complexfloating)):
        return "complex"
    if isinstance(cell, (int, float, Decimal, np.number, np.bool_, timedelta)):
        return "number"
    if isinstance(cell, (date, np.datetime64)):
        return "date"
    if isinstance(cell, (list, tuple, dict, set, frozenset, np.ndarray)):
        return "nested"
    return type(cell).__name__


def _refuse_unusable(counts: Counter[str], where: str) -> None:
    if counts["nested"]:
        raise TableError(
            f"{where} has {counts['nested']} cells that hold lists, dicts or arrays. "
            f"Spread them over columns of their own, or list the column under drop."
        )
    unknown = sorted(set(counts) - {"text", "number", "date", "nested"})
    if unknown:
        raise TableError(
            f"{where} has cells of a type colonnade cannot use ({', '.join(unknown)}). "
            f"Convert them to numbers, text or dates, or list the column under drop."
        )


def _refuse_infinite(numbers: npt.NDArray[np.float64], where: str) -> npt.NDArray[np.float64]:
    infinite = int(np.isinf(numbers).sum())
    if infinite:
        raise TableError(
            f"{where} has {infinite} infinite numbers. Replace them by a finite number or leave the cells empty."
        )
    return numbers
