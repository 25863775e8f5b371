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

from colonnade.data.dialect import Dialect
from colonnade.data.texts import MICROSECONDS_PER_DAY, Texts, texts_of
from colonnade.errors import TableError
from colonnade.text import toml_key, toml_value

__all__ = [
    "Cells",
    "Column",
    "Kind",
    "cells_of",
    "days_since_1970",
    "looked_at",
    "number_of",
    "read_column",
    "text_of",
]

Kind: TypeAlias = Literal["numeric", "date", "boolean", "categorical"]
"""What a column holds. Values of dates are days since 1970, of booleans 0 and 1."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_ROWS_SHOWN = 5
_FEWEST_ROWS = 30
"""Fewer rows do not tell a name that repeats from one that does not."""
_ROWS_OF_A_RUN = 100
"""So many whole numbers in a run, each of them once, count rows, whatever their column is called."""
_WORDS_OF_A_SENTENCE = 4
_SHARE_OF_SENTENCES, _SHARE_OF_IDS = 0.5, 0.9
"""Of how many cells different sentences, or other texts, are each a thing of its own."""
_ID_WORDS = {"id", "key", "uuid", "guid", "rowid"}
_ID_LAST_WORDS = _ID_WORDS | {"ids", "nr", "no", "num", "number", "index", "ref"}
_ID_ENDINGS = re.compile(
    r"(?:nummer|number|uuid|guid|(?:customer|client|user|kunden|person|account|konto|order)(?:id|nr|no|key))$"
)


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
    distinct: int | None = None
    """How many different texts there are, where that is known."""


def read_column(
    series: pd.Series[Any],
    *,
    where: str,
    override: Kind | None = None,
    texts: Texts | None = None,
    dialect: Dialect = Dialect(),  # noqa: B008 - frozen
    shown: Dialect = Dialect(),  # noqa: B008 - frozen
) -> Cells:
    """Return a column's kind, its values, and what is to be said about them.

    `where` names the column in errors. `override` is the user's word on the kind and beats what the cells look like.
    `texts` are the cells where all are texts, `dialect` what settings say of how these are written, and `shown` what
    all columns together show.
    """
    if isinstance(series.dtype, pd.CategoricalDtype):
        override = override or "categorical"
    if override != "categorical" and (cells := _by_dtype(series)) is not None:
        if np.isnan(cells.values).all():
            cells = cells._replace(kind="numeric")  # as from a source that has no types
        return _as_set(cells._replace(values=_refuse_infinite(cells.values, where)), override, where)
    if texts is not None:
        return _read_texts(texts, series, where=where, override=override, dialect=dialect, shown=shown)

    listed, codes = _different_cells(series)
    occurrences = np.bincount(codes[codes >= 0], minlength=len(listed)).tolist()
    counts: Counter[str] = Counter()
    for cell, times in zip(listed, occurrences, strict=True):
        if cell is not None:
            counts[_cell_kind(cell)] += times
    _refuse_unusable(counts, where)
    if override == "categorical":
        words = np.array([*(None if cell is None else text_of(cell) for cell in listed), None], dtype=object)
        return Cells("categorical", words[codes])
    if set(counts) == {"text"}:
        texts = texts_of(pd.Series([*listed, None], dtype=object)[codes])  # a database's identifiers and times of day
        if texts is not None:
            return _read_texts(texts, series, where=where, override=override, dialect=dialect, shown=shown)
        return Cells("categorical", np.array([*listed, None], dtype=object)[codes])
    if counts["text"]:
        return _read_mixed(listed, codes, series, where=where, override=override, dialect=dialect, shown=shown)
    if counts["date"] and counts["number"]:
        raise TableError(
            f"{where} mixes kinds: {counts['number']} numbers and {counts['date']} dates. Write all of it as one kind, "
            f"or leave it out with drop = {toml_value([str(series.name)])}."
        )
    if counts["date"]:
        days = np.array([*(np.nan if cell is None else days_since_1970(cell) for cell in listed), np.nan])
        return _as_set(Cells("date", days[codes]), override, where)
    numbers = np.array([*(np.nan if cell is None else number_of(cell) for cell in listed), np.nan])[codes]
    is_boolean = bool(counts) and all(cell is None or isinstance(cell, (bool, np.bool_)) for cell in listed)
    found = Cells("boolean" if is_boolean else "numeric", _refuse_infinite(numbers, where))
    return _as_set(found, override, where)


def _read_texts(
    texts: Texts, series: pd.Series[Any], *, where: str, override: Kind | None, dialect: Dialect, shown: Dialect
) -> Cells:
    """Decide what a column of texts holds; the same whether a file, a database or a frame has them."""
    if override == "categorical":
        values, distinct = texts.words()
        return Cells("categorical", values, (), distinct)
    if texts.is_empty:
        return Cells(override or "numeric", np.full(texts.rows, np.nan), texts.missing_note())
    if override in (None, "boolean") and (found := texts.booleans()) is not None:
        return Cells("boolean", *found)
    codes = texts.coded if override is None else 0
    if codes:
        values, distinct = texts.words()
        note = (
            f"{codes:,} whole numbers begin with a zero, as codes do, so that all are categories; "
            f'types = {{{toml_key(str(series.name))} = "numeric"}} makes them numbers.'
        )
        return Cells("categorical", values, (note,), distinct)
    if override in (None, "date") and (found := texts.dates(dialect, shown)) is not None:
        return Cells("date", *found)
    if override == "date" and (found := texts.compact_dates()) is not None:
        return Cells("date", *found)
    if override != "date" and (found := texts.numbers(dialect, shown)) is not None:
        cells = Cells("numeric", _refuse_infinite(found.values, where), found.notes)
        return cells if override != "boolean" else _as_set(cells, override, where)
    if override == "numeric" and (found := texts.booleans()) is not None:
        return Cells("numeric", *found)
    _refuse_odd(texts, str(series.name), where, override, is_file=dialect.separator is not None)
    values, distinct = texts.words()
    return Cells("categorical", values, (), distinct)


def _refuse_odd(texts: Texts, column: str, where: str, override: Kind | None, *, is_file: bool) -> None:
    """Refuse a column most of whose texts are numbers or dates, or of which that was said; name the rows to mend."""
    dropped = f"leave the column out with drop = {toml_value([column])}"
    if override == "boolean":
        raise TableError(
            f"{where} is set to boolean, but its cells are not all one of two words such as yes and no. "
            f"Clean it, {dropped}, or remove it from types."
        )
    dates, (numbers, has_fractions) = texts.odd_dates(), texts.odd_numbers()
    present = int(texts.counts[texts.present].sum())
    for kind, name, odd in (("date", "dates", dates), ("numeric", "numbers", numbers)):
        if override != kind and (override is not None or 2 * len(odd) >= present):
            continue
        said = f"is set to {kind}" if override else f"looks like {name}"
        as_codes = ""
        if override is None and kind == "numeric" and not has_fractions:
            as_codes = f'. If these are codes rather than amounts, set types = {{{toml_key(column)} = "categorical"}}'
        raise TableError(
            f"{where} {said}, but {len(odd)} of its {texts.rows} cells are no {name}: {_rows_in_words(odd, is_file)}. "
            f"Mend or empty those cells, or {dropped}{as_codes}."
        )


def _rows_in_words(rows: npt.NDArray[np.int64], is_file: bool) -> str:
    """Name the first rows, as a person counts them who opens the file.

    >>> _rows_in_words(np.array([3, 4]), is_file=False)
    'rows 4 and 5 of the table'
    """
    shown = [f"{row + 1 + is_file:,}" for row in rows[:_ROWS_SHOWN].tolist()]
    if len(rows) > _ROWS_SHOWN:
        shown.append(f"{len(rows) - _ROWS_SHOWN:,} more")
    named = shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
    of = "the file, whose first row is its header" if is_file else "the table"
    return f"row{'s' if len(rows) > 1 else ''} {named} of {of}"


def _read_mixed(
    cells: list[Any],
    codes: npt.NDArray[np.int64],
    series: pd.Series[Any],
    *,
    where: str,
    override: Kind | None,
    dialect: Dialect,
    shown: Dialect,
) -> Cells:
    """Read texts beside other cells, such as a database gives that has no types: the texts must be of their kind."""
    rows = pd.Series([None if code < 0 else cells[code] for code in codes.tolist()], dtype=object)
    is_text = np.array([isinstance(cell, str) for cell in rows])
    texts = texts_of(rows.where(is_text, None))
    others = read_column(rows.where(~is_text, None), where=where)
    if texts is None or texts.is_empty:
        return _as_set(others._replace(notes=() if texts is None else texts.missing_note()), override, where)
    found = texts.dates(dialect, shown) if others.kind == "date" else texts.numbers(dialect, shown)
    if found is None:
        odd = texts.odd_dates() if others.kind == "date" else texts.odd_numbers()[0]
        rows_named = _rows_in_words(odd, is_file=dialect.separator is not None)
        is_whole = others.kind == "numeric" and not (others.values % 1 > 0).any()
        as_codes = (
            f'. If these are codes, set types = {{{toml_key(str(series.name))} = "categorical"}}' if is_whole else ""
        )
        name = {"date": "dates", "boolean": "booleans", "numeric": "numbers"}[others.kind]
        raise TableError(
            f"{where} mixes kinds: {int((~is_text & rows.notna().to_numpy()).sum())} {name} and {len(odd)} texts that "
            f"are none ({rows_named}). Mend or empty those cells, or leave the column out with "
            f"drop = {toml_value([str(series.name)])}{as_codes}."
        )
    values = _refuse_infinite(np.where(is_text, found.values, others.values), where)
    return _as_set(Cells(others.kind if others.kind == "date" else "numeric", values, found.notes), override, where)


def _as_set(cells: Cells, override: Kind | None, where: str) -> Cells:
    """Return cells as the kind that was set."""
    if override in (None, cells.kind):
        return cells
    values = cells.values[~np.isnan(cells.values)]
    if override == "numeric" or not len(values):
        return cells._replace(kind=override)
    if override == "boolean" and np.isin(values, (0.0, 1.0)).all():
        return cells._replace(kind="boolean")
    if override == "date" and cells.kind == "numeric":
        found = texts_of(pd.Series([None if one != one else f"{one:.0f}" for one in cells.values], dtype=object))
        days = None if found is None or (values % 1 != 0).any() else found.compact_dates()
        if days is not None:
            return Cells("date", days.values)
    wanted = {"date": "dates, or whole numbers such as 20170314", "boolean": "booleans, or 0 and 1"}[override]
    raise TableError(
        f"{where} is set to {override}, but its cells are not all {wanted}. Mend it, or the types setting."
    )


def looked_at(column: str, cells: Cells, most_categories: int, *, is_set: bool) -> tuple[str, tuple[str, ...]]:
    """Return why a column is no feature, or nothing, and notes; a kind that was set takes any column in."""
    present = int((~pd.isna(cells.values)).sum())
    if cells.kind == "categorical":
        reason, distinct = _why_no_category(column, cells, present, most_categories)
    else:
        reason = "identifier" if cells.kind == "numeric" and _is_counter(column, cells.values, present) else ""
        distinct = present
    if reason and is_set:
        return "", (f"Looks like no feature ({reason}); used because types names it.",)
    if reason:
        note = (
            f"Left out ({reason}): {distinct:,} different values in {present:,} cells. "
            f'types = {{{toml_key(column)} = "{cells.kind}"}} takes it in.'
        )
        return reason, (note,)
    if cells.kind == "categorical" and distinct > most_categories:
        note = (
            f"{distinct:,} categories, of which the {most_categories} most frequent are told apart and the others "
            "count as one (most_categories)."
        )
        return "", (note,)
    return "", ()


def _why_no_category(column: str, cells: Cells, present: int, most_categories: int) -> tuple[str, int]:
    if present < _FEWEST_ROWS and cells.distinct is None:
        return "", 0
    different, distinct = None, cells.distinct
    if distinct is None or (distinct > most_categories and 2 * distinct > present):
        different = pd.factorize(cells.values)[1]
        distinct = len(different)
    if present < _FEWEST_ROWS or distinct <= _SHARE_OF_SENTENCES * present or different is None:
        return "", distinct
    some = [str(one) for one in different[:: max(1, distinct // 1000)]]
    if sum(len(one.split()) >= _WORDS_OF_A_SENTENCE for one in some) > len(some) / 2:
        return ("free text", distinct) if distinct > most_categories else ("", distinct)
    if distinct <= _SHARE_OF_IDS * present:
        return "", distinct
    is_code = sum(" " not in one.strip() and any(sign.isdigit() for sign in one) for one in some) > 0.95 * len(some)
    if distinct == present and (is_code or _names_ids(column)):
        return "identifier", distinct
    return "nearly every value differs", distinct


def _is_counter(column: str, values: npt.NDArray[np.float64], present: int) -> bool:
    """Tell whether whole numbers, different in every row, only name the rows."""
    if present < max(len(values), _FEWEST_ROWS) or (values[:100] % 1 != 0).any() or (values % 1 != 0).any():
        return False
    is_run = len(values) >= _ROWS_OF_A_RUN and values.max() - values.min() + 1 == len(values)
    return (is_run or _names_ids(column)) and len(np.unique(values)) == len(values)


def _names_ids(column: str) -> bool:
    """Tell whether a column is called what identifies rows.

    >>> [_names_ids(one) for one in ("customerID", "konto_nr", "paid", "Kundennummer", "minutes")]
    [True, True, False, True, False]
    """
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1 \2", column).casefold()
    parts = re.split(r"[\W_]+", words)
    return bool(_ID_WORDS & set(parts)) or parts[-1] in _ID_LAST_WORDS or bool(_ID_ENDINGS.search(words))


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


def number_of(cell: Any) -> float:
    """Return a number or a duration (in days) as a float."""
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
    return float((cell - _EPOCH) // timedelta(microseconds=1) / MICROSECONDS_PER_DAY)


def _by_dtype(series: pd.Series[Any]) -> Cells | None:
    """Return a column whose dtype alone settles the matter, else None."""
    dtype: Any = series.dtype
    if pd.api.types.is_complex_dtype(dtype):
        return None
    if pd.api.types.is_numeric_dtype(dtype):
        numbers = series.to_numpy(dtype=np.float64, na_value=np.nan, copy=True)
        return Cells("boolean" if pd.api.types.is_bool_dtype(dtype) else "numeric", numbers)
    if pd.api.types.is_datetime64_any_dtype(dtype):
        # One road for naive, zoned and arrow-backed moments.
        moments = pd.to_datetime(series, utc=True).dt.tz_localize(None).to_numpy(dtype="datetime64[us]")
        days = moments.astype(np.int64) / MICROSECONDS_PER_DAY
        return Cells("date", np.where(np.isnat(moments), np.nan, days))
    if pd.api.types.is_timedelta64_dtype(dtype):
        return Cells("numeric", pd.to_timedelta(series).to_numpy() / np.timedelta64(1, "D"))
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
