"""Columns of text: numbers, dates, booleans, or words; decided here whatever the source.

Every different text is looked at once. Nothing here quotes a cell: notes and errors speak of counts and of rows.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.dialect import DateOrder, Dialect

__all__ = ["MICROSECONDS_PER_DAY", "Found", "Texts", "shown_by", "texts_of"]

Array = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]

MICROSECONDS_PER_DAY = 86_400_000_000

_MISSING = frozenset(
    {
        "n/a",
        "na",
        "n.a.",
        "n.a",
        "#n/a",
        "#n/a n/a",
        "#na",
        "#nv",
        "nan",
        "-nan",
        "null",
        "none",
        "nil",
        "missing",
        "unknown",
    }
    | {"not available", "not known", "unbekannt", "keine angabe", "k.a.", "k. a.", "k.a", "inconnu", ".", "?", "??"}
    | {"-", "--", "\u2013", "\u2014", "-1.#ind", "-1.#qnan", "1.#ind", "1.#qnan"}
)
_BOOLEANS = (
    ("false", "true"),
    ("no", "yes"),
    ("nein", "ja"),
    ("non", "oui"),
    ("falsch", "wahr"),
    ("n", "y"),
    ("n", "j"),
    ("f", "t"),
)
_MARKS = r"€|\$|£|¥|%|‰|EUR|Euro|USD|GBP|CHF|JPY|SEK|NOK|DKK|PLN|CZK|HUF|Fr\.|kr\.?|zł|Kč|Ft"
_MARKED = rf"^(?P<sign>[+-]?)\s*(?P<before>{_MARKS})?\s*(?P<body>[+-]?[\d.,].*?)\s*(?P<after>{_MARKS})?$"
_SPACES, _APOSTROPHES = " \u00a0\u202f\u2009", "'\u2019"
_GROUPS = {".": r"\.", ",": ",", " ": f"[{_SPACES}]", "'": f"[{_APOSTROPHES}]"}
_LIKE_A_NUMBER = (
    rf"^[+-]?[\d.,{_SPACES}{_APOSTROPHES}]*\d[\d.,{_SPACES}{_APOSTROPHES}]*(?:[eE][+-]?\d+)?$|^[+-]?(?i:inf(?:inity)?)$"
)
_DATE = (
    r"^(?P<a>\d{1,4})(?P<s>[./-]) ?(?P<b>\d{1,2})(?P<t>[./-]) ?(?P<c>\d{1,4})"
    r"(?:[T ]+(?P<hour>\d{1,2}):(?P<minute>\d{2})(?::(?P<second>\d{2})(?:[.,](?P<part>\d{1,9}))?)?"
    r" ?(?P<zone>Z|UTC|[+-]\d{2}:?(?:\d{2})?)?)?$"
)
_MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "jan january januar jänner jän",
            "feb february februar febr",
            "mar march märz mär mrz",
            "apr april",
            "may mai",
            "jun june juni",
            "jul july juli",
            "aug august",
            "sep september sept",
            "oct october oktober okt",
            "nov november",
            "dec december dezember dez",
        ),
        start=1,
    )
    for name in names.split()
}
_DAY, _MONTH, _TIME = r"(\d{1,2})(?:st|nd|rd|th)?", r"([^\W\d_]{3,9})", r"([T ]+\d.*)?"
_NAMED_DATES = (
    (re.compile(rf"{_DAY}[\s./-]*{_MONTH}[\s.,/-]*(\d{{4}}|\d{{2}}){_TIME}"), (2, 1, 0)),
    (re.compile(rf"{_MONTH}\.? {_DAY},? (\d{{4}}){_TIME}"), (2, 0, 1)),
)
"""Dates with the month's name, and at which places year, month and day are."""
_COMPACT = r"^(?P<a>\d{4})(?P<b>\d{2})(?P<c>\d{2})$"
_SAMPLE = 200
_MOST_SPELLINGS = 20
"""Words such as yes and no may be written with spaces around, and in either case."""
_USUAL_YEARS = (1800, 2200)
_PIVOT = 40
"""Of years of two digits, those below are of this century."""


class Number(NamedTuple):
    """How numbers are written: what begins a fraction, and what groups digits."""

    decimal: str
    thousands: str

    @property
    def pattern(self) -> str:
        """Return what such a number looks like."""
        mark, whole = re.escape(self.decimal), r"\d+"
        if self.thousands:
            whole = rf"(?:[1-9]\d{{0,2}}(?:{_GROUPS[self.thousands]}\d{{3}})+|\d+)"
        return rf"^[+-]?(?:{whole}(?:{mark}\d*)?|{mark}\d+)(?:[eE][+-]?\d+)?$|^[+-]?(?i:inf(?:inity)?)$"


_PLAIN = Number(".", "")
_NUMBERS = (
    _PLAIN,
    Number(",", ""),
    Number(".", ","),
    Number(",", "."),
    Number(".", "'"),
    Number(".", " "),
    Number(",", " "),
    Number(",", "'"),
)


class Found(NamedTuple):
    """Values of a column, with NaN where missing, and what is to be said about them."""

    values: npt.NDArray[np.float64]
    notes: tuple[str, ...] = ()


def texts_of(series: pd.Series[Any]) -> Texts | None:
    """Return a column as texts, or None where it holds, or may hold, anything else."""
    import pyarrow as pa

    if isinstance(series.dtype, pd.CategoricalDtype):
        return None
    if pd.api.types.is_object_dtype(series.dtype):
        if pd.api.types.infer_dtype(series, skipna=True) != "string":
            return None
    elif not pd.api.types.is_string_dtype(series.dtype):
        return None
    try:
        array = pa.array(
            series, type=None if not pd.api.types.is_object_dtype(series.dtype) else pa.large_string(), from_pandas=True
        )
        if isinstance(array, pa.ChunkedArray):
            array = array.combine_chunks()
        return Texts(array.cast(pa.large_string()))
    except (pa.ArrowException, UnicodeEncodeError):  # text that no file could hold, such as half a surrogate pair
        return None


class Texts:
    """A column of texts."""

    def __init__(self, array: Any) -> None:
        import pyarrow.compute as pc

        self._array = pc.if_else(pc.equal(array, ""), None, array)
        self.rows = len(array)

    # What there is

    @cached_property
    def plain(self) -> npt.NDArray[np.float64] | None:
        """Return the numbers where all texts are such as programs write, which is quick to find out, else None."""
        import pyarrow as pa
        import pyarrow.compute as pc

        try:
            pc.cast(self._array[:_SAMPLE], pa.float64())  # each cell that is no number takes time
            numbers = pc.cast(self._array, pa.float64())
        except pa.ArrowInvalid:
            return None
        if numbers.null_count == self.rows or pc.any(pc.is_nan(numbers)).as_py():
            return None
        return np.asarray(numbers.to_numpy(zero_copy_only=False), np.float64)

    @cached_property
    def _encoded(self) -> tuple[Any, Array, Array, Mask]:
        """Return different texts, as they are and trimmed, each row's place among them, and which are not blank."""
        import pyarrow as pa
        import pyarrow.compute as pc

        encoded = self._array.dictionary_encode()
        different = encoded.dictionary
        codes = pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
        trimmed = pc.utf8_trim_whitespace(different)
        is_blank = _mask(pc.equal(trimmed, ""))
        if is_blank.any():
            codes = np.where(np.append(is_blank, False)[codes], -1, codes)
        trimmed = pc.if_else(pa.array(is_blank), None, trimmed)
        return different, codes, trimmed, ~is_blank

    @property
    def codes(self) -> npt.NDArray[np.int64]:
        """Return each row's place among the different texts, or -1."""
        return self._encoded[1]

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Return how many rows have each of the different texts."""
        return np.bincount(self.codes[self.codes >= 0], minlength=len(self._encoded[0]))

    @property
    def _trimmed(self) -> Any:
        return self._encoded[2]

    def words(self) -> tuple[npt.NDArray[np.object_], int]:
        """Return the texts themselves, row by row with None where blank, and how many are different."""
        different, codes, _, is_there = self._encoded
        texts = np.array([*different.to_pylist(), None], dtype=object)
        return texts[codes], int(is_there.sum())

    @cached_property
    def present(self) -> Mask:
        """Tell of each different text whether it says more than that something is missing."""
        import pyarrow as pa
        import pyarrow.compute as pc

        said = pc.is_in(pc.utf8_lower(self._trimmed), value_set=pa.array(sorted(_MISSING), pa.large_string()))
        return self._encoded[3] & ~_mask(said)

    @property
    def is_empty(self) -> bool:
        """Tell whether no row says anything."""
        if self.plain is not None:
            return False
        return not self.present.any()

    def missing_note(self) -> tuple[str, ...]:
        """Say how many cells hold a word that means nothing is known."""
        said = int(self.counts[self._encoded[3] & ~self.present].sum())
        if not said:
            return ()
        return (f"{said:,} of {self.rows:,} cells hold a word such as n/a or unknown, which counts as missing.",)

    # Booleans

    def booleans(self) -> Found | None:
        """Return 0 and 1 where all texts are one of two such words."""
        if self.plain is not None or self._encoded[3].sum() > _MOST_SPELLINGS:
            return None
        lower = [None if one is None else one.casefold() for one in self._trimmed.to_pylist()]
        there = {one for one in lower if one is not None}
        for pair in _BOOLEANS:
            # Alone, a letter may be one of other letters.
            if there and there <= set(pair) and (len(there) == 2 or len(pair[1]) > 1):
                values = np.array([*(np.nan if one is None else float(pair.index(one)) for one in lower), np.nan])
                return Found(values[self.codes])
        return None

    @property
    def is_truth(self) -> bool:
        """Tell whether booleans are written as true and false, as programs write them."""
        return {one.casefold() for one in self._trimmed.to_pylist() if one is not None} <= {"true", "false"}

    # Numbers

    @property
    def is_whole(self) -> bool:
        """Tell whether numbers are whole and written without a fraction."""
        return not self._shown

    @cached_property
    def _bodies(self) -> tuple[Any, str]:
        """Return the texts without the mark of a currency or a percentage that all of them have, and the mark."""
        import pyarrow.compute as pc

        bodies, mark = self._trimmed, ""
        first = self._trimmed.filter(_arrow(self.present)).slice(0, 50)
        if not len(first) or not all(re.match(_MARKED, one) for one in first.to_pylist()):
            return bodies, mark
        if _mask(pc.match_substring_regex(first, _LIKE_A_NUMBER)).all():
            return bodies, mark
        parts = pc.extract_regex(pc.if_else(_arrow(self.present), self._trimmed, None), pattern=_MARKED)
        before, after = (_texts(pc.struct_field(parts, name)) for name in ("before", "after"))
        marks = Counter((before + after)[self.present].tolist())
        named = [mark for mark in marks if mark]
        # An amount without its currency is an amount; a number without its per cent sign may be a share.
        if len(named) == 1 and (not marks[""] or named[0] not in "%‰"):
            sign, body = (_texts(pc.struct_field(parts, name)) for name in ("sign", "body"))
            import pyarrow as pa

            return pa.array(sign + body, pa.large_string()), named[0]
        return bodies, mark

    @cached_property
    def like_numbers(self) -> Mask:
        """Tell of each different text whether it looks like a number of any format."""
        import pyarrow.compute as pc

        return _mask(pc.match_substring_regex(self._bodies[0], _LIKE_A_NUMBER)) & self.present

    def fits(self, number: Number) -> Mask:
        """Tell of each different text whether it is a number in a format."""
        import pyarrow.compute as pc

        return _mask(pc.match_substring_regex(self._bodies[0], number.pattern)) & self.present

    @cached_property
    def _fitting(self) -> tuple[Number, ...]:
        """Return the formats in which all texts are numbers."""

        if self.plain is not None:
            if "." not in self._shown:
                return _NUMBERS
            dotted = tuple(one for one in _NUMBERS if one.decimal == ".")
            return (*dotted, Number(",", ".")) if self._may_be_grouped(self.plain) else dotted
        if self.is_empty or not self.like_numbers[self.present].all():
            return ()
        return tuple(one for one in _NUMBERS if self.fits(one)[self.present].all())

    @cached_property
    def _shown(self) -> str:
        """Return which of point and comma are in numbers."""
        import pyarrow.compute as pc

        texts = self._array if self.plain is not None else self._bodies[0].filter(_arrow(self.present))
        return "".join(one for one in ".," if pc.any(pc.match_substring(texts, one)).as_py())

    def _may_be_grouped(self, numbers: npt.NDArray[np.float64]) -> bool:
        """Tell whether every point in plain numbers could group thousands."""
        import pyarrow.compute as pc

        with np.errstate(over="ignore", invalid="ignore"):
            broken = np.abs(numbers[numbers != np.floor(numbers)])
            broken = broken[~np.isnan(broken)]
            if ((broken >= 1000) | (broken < 1) | (np.abs(broken * 1000 - np.rint(broken * 1000)) > 1e-6)).any():
                return False
        dotted = self._array.filter(pc.match_substring(self._array, "."))
        return bool(pc.all(pc.match_substring_regex(dotted, r"^[+-]?[1-9]\d{0,2}(?:\.\d{3})+$")).as_py())

    def _readings(self, dialect: Dialect) -> list[Number]:
        """Return the fitting formats that settings leave, one for each way to read the texts."""
        found: dict[tuple[str, ...], Number] = {}
        for one in self._fitting:
            is_as_set = dialect.decimal in (None, one.decimal) and dialect.thousands != one.decimal
            if is_as_set and (dialect.thousands is None or one.thousands in ("", dialect.thousands)):
                roles = tuple("decimal" if mark == one.decimal else "thousands" for mark in self._shown)
                found.setdefault(roles, one)
        return list(found.values())

    @cached_property
    def decimal_shown(self) -> str | None:
        """Return what begins a fraction where the texts leave no doubt about it."""
        readings = self._readings(Dialect())
        return readings[0].decimal if len(readings) == 1 and self._shown else None

    def numbers(self, dialect: Dialect, shown: Dialect) -> Found | None:
        """Return the texts as numbers where all of them are such; ``shown`` decides between two ways to read them."""
        import pyarrow.compute as pc

        if not self._fitting:
            return None
        notes: tuple[str, ...] = ()
        readings = self._readings(dialect)
        if not readings:
            readings = self._readings(Dialect())
            notes = ("Its numbers are not written as [table] sets by decimal or thousands; read as they are written.",)
        chosen = readings[0]
        if len(readings) > 1:
            chosen, why = _preferred(readings, shown)
            is_grouped = chosen.thousands in (".", ",")
            if is_grouped or why:
                mark = {".": "point", ",": "comma"}[chosen.thousands if is_grouped else chosen.decimal]
                role = "a mark of thousands" if is_grouped else "the start of a fraction"
                other = next(one.decimal for one in readings if one != chosen)
                more = f' by default; decimal = "{other}" in [table] says otherwise' if why else ", as in other columns"
                notes += (f"Every {mark} in it could begin a fraction or group thousands; read as {role}{more}.",)
        if self.plain is not None and chosen.decimal == ".":
            return Found(self.plain, notes)
        mark = "" if self.plain is not None else self._bodies[1]
        if mark:
            has_mark = _mask(pc.match_substring(self._trimmed, mark))[self.present]
            notes += (
                f"{'Every cell has' if has_mark.all() else 'Some cells have'} the mark {mark}, which is left off.",
            )
        return Found(self.parsed(chosen)[self.codes], notes + self.missing_note())

    def parsed(self, number: Number) -> npt.NDArray[np.float64]:
        """Return each different text as a number, NaN where it is none; and NaN at the end, for missing cells."""
        import pyarrow as pa
        import pyarrow.compute as pc

        bodies = pc.if_else(_arrow(self.fits(number)), self._bodies[0], None)
        if number.thousands:
            bodies = pc.replace_substring_regex(bodies, _GROUPS[number.thousands], "")
        if number.decimal != ".":
            bodies = pc.replace_substring(bodies, number.decimal, ".")
        bodies = pc.utf8_ltrim(bodies, characters="+")
        try:
            numbers = pc.cast(bodies, pa.float64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            numbers = np.array([np.nan if one is None else float(one) for one in bodies.to_pylist()])
        return np.append(np.asarray(numbers, np.float64), np.nan)

    @cached_property
    def coded(self) -> int:
        """Count rows whose whole number begins with a zero, as only codes do, where all are whole numbers; else 0."""
        import pyarrow.compute as pc

        if self.plain is not None:
            zeros = pc.starts_with(self._array, "0")
            some = self._array.filter(zeros)
            count = int(pc.sum(pc.match_substring_regex(some, r"^0\d+$")).as_py() or 0) if len(some) else 0
            return count if count and pc.all(pc.match_substring_regex(self._array, r"^\d+$")).as_py() else 0
        if self.is_empty or not _mask(pc.match_substring_regex(self._trimmed, r"^\d+$"))[self.present].all():
            return 0
        return int(self.counts[_mask(pc.match_substring_regex(self._trimmed, r"^0\d+$"))].sum())

    # Dates

    @cached_property
    def _dated(self) -> tuple[Mask, dict[DateOrder | None, npt.NDArray[np.float64]], str]:
        """Return which texts look like dates, their days by what comes first, and what stands between the parts.

        The key None is for dates that begin with the year.
        """
        import pyarrow.compute as pc

        nothing = np.zeros(len(self._trimmed), bool)
        texts = self._trimmed
        first = texts.filter(_arrow(self.present)).slice(0, _SAMPLE)
        if any(_with_month_number(one) != one for one in first.to_pylist()):
            import pyarrow as pa

            texts = pa.array([one and _with_month_number(one) for one in texts.to_pylist()], pa.large_string())
            first = texts.filter(_arrow(self.present)).slice(0, _SAMPLE)
        if not _mask(pc.match_substring_regex(first, _DATE)).any():
            return nothing, {}, ""
        parts = pc.extract_regex(pc.if_else(_arrow(self.present), texts, None), pattern=_DATE)
        return _read_dates(parts, self.present)

    @cached_property
    def date_orders(self) -> tuple[DateOrder | None, ...]:
        """Return in which orders all texts are dates; of those that give the same days only one."""
        if self.plain is not None or self.is_empty:
            return ()
        _, by_order, _ = self._dated
        found: list[DateOrder | None] = []
        for order, days in by_order.items():
            is_new = not any(np.array_equal(days, by_order[one], equal_nan=True) for one in found)
            if not np.isnan(days[self.present]).any() and is_new:
                found.append(order)
        return tuple(found)

    @property
    def order_shown(self) -> DateOrder | None:
        """Return what comes first in dates where they leave no doubt about it."""
        return self.date_orders[0] if len(self.date_orders) == 1 else None

    def dates(self, dialect: Dialect, shown: Dialect) -> Found | None:
        """Return the texts as days since 1970 where all of them are dates."""
        orders = self.date_orders
        if not orders:
            return None
        _, by_order, between = self._dated
        order = orders[0]
        notes: tuple[str, ...] = ()
        if dialect.dates in orders:
            order = dialect.dates
        elif len(orders) > 1:
            order, is_default = _preferred_order(shown)
            other = next(one for one in orders if one != order)
            more = (
                f' by default; dates = "{other}" in [table] says otherwise' if is_default else ", as in other columns"
            )
            notes = (f"No cell tells day and month apart; read with the {order}{more}.",)
        elif dialect.dates is not None and order is not None and between != ".":
            notes = (f"Read with the {order}, the only order that fits, although [table] sets dates.",)
        return Found(np.append(by_order[order], np.nan)[self.codes], notes + self.missing_note())

    def compact_dates(self) -> Found | None:
        """Return texts of eight digits, such as 20170314, as days since 1970."""
        import pyarrow.compute as pc

        parts = pc.extract_regex(pc.if_else(_arrow(self.present), self._trimmed, None), pattern=_COMPACT)
        year, month, day = (_whole(pc.struct_field(parts, name)) for name in "abc")
        days = _days(year, month, day)
        if np.isnan(days[self.present]).any():
            return None
        return Found(np.append(days, np.nan)[self.codes], self.missing_note())

    # What does not fit

    def odd_numbers(self) -> tuple[npt.NDArray[np.int64], bool]:
        """Return the rows that are no numbers in the format that fits most rows, and whether others have fractions."""
        best = max(_NUMBERS, key=lambda one: int(self.counts[self.fits(one)].sum()))
        fits = self.fits(best)
        numbers = self.parsed(best)[:-1][fits]
        has_fractions = bool((numbers != np.floor(numbers)).any()) or bool(self._bodies[1])
        return self.rows_of(self.present & ~fits), has_fractions

    def odd_dates(self) -> npt.NDArray[np.int64]:
        """Return the rows that are no dates in the order that fits most rows."""
        looks, by_order, _ = self._dated
        if not looks.any():
            return self.rows_of(self.present)
        best = max(by_order.values(), key=lambda days: int(self.counts[~np.isnan(days)].sum()))
        return self.rows_of(self.present & np.isnan(best))

    def rows_of(self, chosen: Mask) -> npt.NDArray[np.int64]:
        """Return the rows that have one of the chosen texts."""
        return np.flatnonzero(np.append(chosen, False)[self.codes])


def shown_by(columns: Iterable[Texts], given: Dialect) -> Dialect:
    """Return what columns together show of how numbers and dates are written, settings going before."""
    decimals: Counter[str] = Counter()
    orders: Counter[DateOrder] = Counter()
    for one in columns:
        if (decimal := one.decimal_shown) is not None:
            decimals[decimal] += 1
        elif one.plain is None and (order := one.order_shown) is not None:
            orders[order] += 1
    return Dialect(
        separator=given.separator,
        quote=given.quote,
        encoding=given.encoding,
        decimal=given.decimal or _most(decimals),
        thousands=given.thousands,
        dates=given.dates or _most(orders),
    )


def _most(votes: Counter[Any]) -> Any:
    ranked = votes.most_common(2)
    return ranked[0][0] if len(ranked) == 1 or (ranked and ranked[0][1] > ranked[1][1]) else None


def _preferred(readings: list[Number], shown: Dialect) -> tuple[Number, bool]:
    """Choose between two ways to read numbers, and tell whether that was by default."""
    by_decimal = {one.decimal: one for one in readings}
    if shown.decimal in by_decimal:
        return by_decimal[shown.decimal], False
    # What a file separated by semicolons has commas for.
    return by_decimal["," if shown.separator == ";" else "."], True


def _preferred_order(shown: Dialect) -> tuple[DateOrder, bool]:
    """Choose what comes first in dates, and tell whether that was by default."""
    if shown.dates is not None:
        return shown.dates, False
    return ("day first" if shown.decimal == "," or shown.separator == ";" else "month first"), True


# Arrow and numpy


def _mask(values: Any) -> Mask:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), bool)


def _arrow(mask: Mask) -> Any:
    import pyarrow as pa

    return pa.array(mask)


def _texts(values: Any) -> npt.NDArray[np.object_]:
    import pyarrow.compute as pc

    return np.asarray(pc.fill_null(values, "").to_numpy(zero_copy_only=False), object)


def _whole(values: Any) -> npt.NDArray[np.int64]:
    """Return texts of digits as whole numbers, and -1 where there is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = pc.if_else(pc.equal(values, ""), None, values)
    return np.asarray(pc.fill_null(pc.cast(there, pa.int64()), -1).to_numpy(zero_copy_only=False), np.int64)


def _days(year: Array, month: Array, day: Array) -> npt.NDArray[np.float64]:
    """Return days since 1970, and NaN for what is in no calendar."""
    sound = (year >= 1) & (year <= 9999) & (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
    months = np.where(sound, (year - 1970) * 12 + month - 1, 0).astype("datetime64[M]")
    days = months.astype("datetime64[D]") + np.where(sound, day - 1, 0)
    sound &= days.astype("datetime64[M]") == months
    return np.where(sound, days.astype(np.int64), np.nan)


def _read_dates(parts: Any, present: Mask) -> tuple[Mask, dict[DateOrder | None, npt.NDArray[np.float64]], str]:
    import pyarrow.compute as pc

    field = {
        name: pc.struct_field(parts, name)
        for name in ("a", "b", "c", "s", "t", "hour", "minute", "second", "part", "zone")
    }
    between = _texts(field["s"])
    marks = Counter(between[present].tolist())
    mark = max(("-", ".", "/"), key=lambda one: marks[one])
    a, b, c = (_whole(field[name]) for name in "abc")
    widths = {name: np.array([len(one) for one in _texts(field[name])]) for name in "ac"}
    looks = present & (between == mark) & (_texts(field["t"]) == mark)
    hours, minutes, seconds = (np.maximum(_whole(field[name]), 0) for name in ("hour", "minute", "second"))
    looks &= (hours < 24) & (minutes < 60) & (seconds < 61)
    moment = (hours * 3600 + minutes * 60 + seconds) * 1_000_000
    fractions = _texts(field["part"])
    if (fractions != "").any():
        moment += np.array([int(one.ljust(6, "0")[:6]) if one else 0 for one in fractions])
    zones = _texts(field["zone"])
    if (zones != "").any():
        offsets = {zone: _offset(zone) for zone in set(zones.tolist())}
        moment -= np.array([offsets[zone] for zone in zones])

    def moments(year: Array, month: Array, day: Array, chosen: Mask) -> npt.NDArray[np.float64]:
        days = np.where(looks & chosen, _days(year, month, day), np.nan)
        known = ~np.isnan(days)
        found = np.full(len(days), np.nan)
        found[known] = (days[known].astype(np.int64) * MICROSECONDS_PER_DAY + moment[known]) / MICROSECONDS_PER_DAY
        return found

    by_order: dict[DateOrder | None, npt.NDArray[np.float64]] = {
        None: moments(a, b, c, (widths["a"] == 4) & (widths["c"] <= 2))
    }
    short = (widths["c"] == 2) & (mark != "-")
    year = np.where(short, c + np.where(c < _PIVOT, 2000, 1900), c)
    chosen = (widths["a"] <= 2) & ((widths["c"] == 4) | short)
    by_order["day first"] = moments(year, b, a, chosen)
    if mark != ".":
        by_order["month first"] = moments(year, a, b, chosen)
    years = np.where(widths["a"] == 4, a, year)[looks]
    if not len(years) or np.mean((years >= _USUAL_YEARS[0]) & (years <= _USUAL_YEARS[1])) < 0.9:
        return np.zeros(len(present), bool), {}, mark
    return looks, by_order, mark


def _with_month_number(text: str) -> str:
    """Return a date that names its month as an ISO date, and any other text as it is.

    >>> _with_month_number("14. Mrz 2017"), _with_month_number("Mar 14, 2017"), _with_month_number("14 rooms")
    ('2017-03-14', '2017-03-14', '14 rooms')
    """
    for form, places in _NAMED_DATES:
        if found := form.fullmatch(text):
            year, month, day = (found.groups()[place] for place in places)
            if (number := _MONTHS.get(month.casefold())) is not None:
                century = "" if len(year) == 4 else "20" if int(year) < _PIVOT else "19"
                return f"{century}{year}-{number:02d}-{int(day):02d}{found.group(4) or ''}"
    return text


def _offset(zone: str) -> int:
    """Return a zone's distance from UTC in microseconds."""
    if zone in ("", "Z", "UTC"):
        return 0
    digits = zone[1:].replace(":", "").ljust(4, "0")
    return (1 if zone[0] == "+" else -1) * (int(digits[:2]) * 60 + int(digits[2:])) * 60_000_000
