"""Ids: how they are read from columns, the bytes that stand for one, and the rule by which two parties' ids are equal.

The errors of this module name columns and counts. They never name an id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, Literal, TypeAlias
from unicodedata import normalize

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.columns import Kind, cells_of, text_of
from colonnade.errors import ConfigError, TableError, did_you_mean
from colonnade.settings import described
from colonnade.text import toml_key

__all__ = [
    "LARGEST_EXACT_FLOAT",
    "SEPARATORS",
    "Id",
    "IdRule",
    "canonical_id_bytes",
    "canonical_ids",
    "canonical_whole_number",
    "column_names",
    "is_missing",
    "is_whole_number",
    "normalised_ids",
    "read_ids",
    "separators_in",
    "title_of_ids",
    "whole_number_of",
    "written_by",
]

Part: TypeAlias = str | int
Id: TypeAlias = Part | tuple[Part, ...]
"""What identifies a row; a tuple where several columns do so together."""

LARGEST_EXACT_FLOAT = 2**53

# Twenty characters hold every 64-bit integer, signed or not; longer digits are serial numbers, better kept as text.
_CANONICAL_WHOLE_NUMBER = re.compile(r"0|-?[1-9][0-9]{0,18}|[1-9][0-9]{19}")
# Python refuses to turn texts of more than 4300 digits into numbers.
_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,4000}")
# As a program writes whole numbers that took the column for floats, because of missing cells beside them.
_WHOLE_FLOAT = re.compile(r"\A([+-]?\d{1,4000})[.,]0+\Z")

SEPARATORS = {
    "spaces": r"\s",
    "hyphens": r"\-\u2010-\u2015\u2212",
    "dots": r"\.",
    "slashes": r"/\\",
    "underscores": "_",
}
"""What may stand inside ids to make them easier to read: by name, what a set of characters says of it."""
_ANY = "".join(SEPARATORS.values())
_SEPARATORS_INSIDE = re.compile(rf"(?<=[^{_ANY}])[{_ANY}]+(?=[^{_ANY}])")


@described
@dataclass(frozen=True, kw_only=True)
class IdRule:
    """Say when two ids are equal although they are written differently. All parties of a run agree on it.

    Text is always compared in Unicode's form NFC, so that an accent may be written as one character or as two. An id of
    several columns follows the rule column by column.
    """

    trim: bool = True
    """Whether white space around ids is ignored."""
    case: Literal["keep", "fold"] = "keep"
    """`fold` makes upper and lower case equal, by Unicode's canonical caseless matching."""
    type: Literal["keep", "text", "number"] = "keep"
    """`text` lets the number 7 equal the texts `7` and `7.0`; `number` reads every text that is a whole number as such,
    so that `007` equals 7 too; with `keep`, numbers and text are never equal."""
    separators: Literal["keep", "drop"] = "keep"
    """`drop` takes away spaces, hyphens, dots, slashes and underscores inside ids, so that `12-34` equals `1234`."""

    def __post_init__(self) -> None:
        for setting, choices in _CHOICES.items():
            given = getattr(self, setting)
            if given not in choices:
                raise ConfigError(
                    f"alignment.{setting} must be one of {', '.join(choices)}. {did_you_mean(str(given), choices)}"
                )
        if not isinstance(self.trim, bool):
            raise ConfigError("alignment.trim must be true or false.")

    def __str__(self) -> str:
        said = "".join(f', {setting} = "{getattr(self, setting)}"' for setting in _CHOICES)
        return f"trim = {str(self.trim).lower()}{said}"


_CHOICES = {"case": ("keep", "fold"), "type": ("keep", "text", "number"), "separators": ("keep", "drop")}


def normalised_ids(ids: Iterable[Id | None], rule: IdRule, *, where: str) -> list[bytes]:
    """Return canonical bytes for every id, equal where the rule makes ids equal, and b"" for every None.

    ``where`` names the ids in errors. Ids that become equal to one another are refused with their count.

    >>> normalised_ids([" Zoe", 7, None], IdRule(case="fold", type="text"), where="The ids")
    [b'szoe', b's7', b'']
    """
    listed = list(ids)
    made = canonical_ids([one for one in listed if one is not None], rule)
    if len(set(made)) != len(made):
        repeats = [times for times in Counter(made).values() if times > 1]
        raise TableError(
            f"{where} has {len(repeats)} ids that occur more than once, in {sum(repeats)} rows, when they are compared "
            f"as the run does ([alignment] {rule}). Keep one row for each id, or agree with all parties on a rule "
            f"that tells them apart."
        )
    if len(made) == len(listed):
        return made
    following = iter(made)
    return [b"" if one is None else next(following) for one in listed]


def canonical_ids(ids: Sequence[Any], rule: IdRule) -> list[bytes]:
    """Return canonical bytes for every id, equal where the rule makes ids equal; none of the ids is missing."""
    if not ids or not isinstance(ids[0], tuple):
        return _canonical_parts(ids, rule)
    # Column by column, as each is of one type, which is quick.
    columns = [_canonical_parts(column, rule) for column in zip(*ids, strict=True)]
    return [_joined(parts) for parts in zip(*columns, strict=True)]


def _canonical_parts(parts: Sequence[Any], rule: IdRule) -> list[bytes]:
    texts = [part for part in parts if isinstance(part, str)]
    if len(texts) == len(parts):
        return _canonical_texts(texts, rule)
    form = b"s%d" if rule.type == "text" else b"i%d"
    if not texts:
        return [form % number for number in parts]
    following = iter(_canonical_texts(texts, rule))
    return [next(following) if isinstance(part, str) else form % part for part in parts]


def _canonical_texts(texts: list[str], rule: IdRule) -> list[bytes]:
    texts = written_by(texts, rule)
    if rule.case == "fold":
        # Folding can undo a form and depends on it, so NFD goes before and NFC after (The Unicode Standard, D145).
        texts = [
            text.lower() if text.isascii() else normalize("NFC", normalize("NFD", text).casefold()) for text in texts
        ]
    else:
        texts = [text if text.isascii() else normalize("NFC", text) for text in texts]
    if rule.type == "number":
        return [b"i%d" % int(text) if is_whole_number(text) else _text_bytes(text) for text in texts]
    return [_text_bytes(text) for text in texts]


def written_by(texts: Sequence[str], rule: IdRule) -> list[str]:
    """Return texts without what the rule takes away from them: spaces around, a `.0` at the end, separators inside."""
    found = [text.strip() for text in texts] if rule.trim else list(texts)
    if rule.type != "keep":
        found = [text if text.isalnum() else _WHOLE_FLOAT.sub(r"\1", text) for text in found]
    if rule.separators == "drop":
        found = [text if text.isalnum() else _SEPARATORS_INSIDE.sub("", text) for text in found]
    return found


def separators_in(texts: Iterable[str]) -> tuple[str, ...]:
    """Name the kinds of separators that stand inside texts."""
    seen = {one for text in texts if not text.isalnum() for run in _SEPARATORS_INSIDE.findall(text) for one in run}
    return tuple(name for name, kind in SEPARATORS.items() if re.search(f"[{kind}]", "".join(seen)))


def is_whole_number(text: str) -> bool:
    """Tell whether a text is a whole number, with a sign and leading zeros or without."""
    return _WHOLE_NUMBER.fullmatch(text) is not None


def _text_bytes(text: str) -> bytes:
    return b"s" + text.encode("utf-8", "surrogatepass")


def canonical_id_bytes(identifier: Id) -> bytes:
    """Return the bytes that stand for an id in every hash; 7 and "7" differ, and every party gets the same.

    An id of several columns is their count, then the length and the bytes of each, so that no two such ids look alike.

    >>> canonical_id_bytes(7), canonical_id_bytes("7"), canonical_id_bytes(("Zoe", 7))
    (b'i7', b's7', b't2:4:sZoe:2:i7')
    """
    if isinstance(identifier, str):
        return _text_bytes(identifier)
    if isinstance(identifier, tuple):
        return _joined([canonical_id_bytes(part) for part in identifier])
    return b"i%d" % identifier


def _joined(parts: Sequence[bytes]) -> bytes:
    return b"t%d" % len(parts) + b"".join([b":%d:%b" % (len(part), part) for part in parts])


def canonical_whole_number(text: str) -> bool:
    """Tell whether a text is how an integer prints itself: no leading zeros, no plus sign, no `-0`."""
    return _CANONICAL_WHOLE_NUMBER.fullmatch(text) is not None


def whole_number_of(text: str) -> int | None:
    """Return the integer that a text prints, as an integer or as a float (`123.0`); None for any other text."""
    as_float = _WHOLE_FLOAT.match(text)
    digits = text if as_float is None else as_float[1]
    return int(digits) if canonical_whole_number(digits) else None


# From columns to ids


def column_names(names: str | Iterable[str]) -> tuple[str, ...]:
    """Return one column name or several as a tuple."""
    return (names,) if isinstance(names, str) else tuple(names)


def title_of_ids(columns: Sequence[str], *, name: str, partner: str | None = None) -> str:
    """Return what begins a sentence about the ids of a table.

    >>> title_of_ids(["first", "last"], name="bank", partner="shop")
    "The id 'first + last' of bank for partner 'shop'"
    """
    what = "id column" if len(columns) == 1 else "id"
    return f"The {what} '{' + '.join(columns)}' of {name}" + ("" if partner is None else f" for partner '{partner}'")


def read_ids(
    columns: Mapping[str, pd.Series[Any]],
    *,
    types: Mapping[str, Kind],
    name: str,
    partner: str | None = None,
) -> npt.NDArray[np.object_]:
    """Return ids as Python ints, strings or, from several columns, tuples of these; each of one kind, none twice.

    Missing ids are refused, but for those made for one partner: there, a row without an id is one it does not share.
    """
    title = title_of_ids(list(columns), name=name, partner=partner)
    parts = [
        _read_part(series, where=title_of_ids([column], name=name), column=column, override=types.get(column))
        for column, series in columns.items()
    ]
    ids = parts[0]
    if len(parts) > 1:
        rows = zip(*parts, strict=True)
        # Numpy would make a table of a list of tuples.
        ids = np.fromiter((None if None in row else row for row in rows), dtype=object, count=len(ids))
    absent = is_missing(ids)
    missing = int(absent.sum())
    if missing and partner is None:
        counts = {column: int(is_missing(part).sum()) for column, part in zip(columns, parts, strict=True)}
        shares = ", ".join(f"'{column}' in {count}" for column, count in counts.items() if count)
        raise TableError(
            f"{title} is empty in {missing} of {len(ids)} rows{f' ({shares})' if len(parts) > 1 else ''}. "
            f"Fill those ids or remove the rows."
        )
    if missing == len(ids):
        raise TableError(f"{title} is empty in every row. Fill the ids or name another column.")
    index = pd.Index(ids[~absent], dtype=object, tupleize_cols=False)
    repeats = index.duplicated(keep=False)
    if repeats.any():
        raise TableError(
            f"{title} has {index[repeats].nunique()} ids that occur more than once, in {int(repeats.sum())} rows. "
            f"Keep one row for each id."
        )
    return ids


def is_missing(ids: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    """Tell for each place of an array of ids whether there is none."""
    return np.fromiter((one is None for one in ids), dtype=bool, count=len(ids))


def _read_part(series: pd.Series[Any], *, where: str, column: str, override: Kind | None) -> npt.NDArray[np.object_]:
    """Return one column of ids as Python ints or strings, all of one kind, with None where missing."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind in "iu" and override != "categorical":
        # Plain integers, the common case, need no look at each cell.
        return series.to_numpy().astype(object)
    cells = cells_of(series)
    ids = [_plain_id(cell) for cell in cells]
    unusable = Counter(
        type(cell).__name__ for cell, plain in zip(cells, ids, strict=True) if plain is None and cell is not None
    )
    if unusable:
        kinds = ", ".join(f"{count} of type {kind}" for kind, count in sorted(unusable.items()))
        raise TableError(
            f"{where} has values that cannot be ids: {kinds}. "
            f"Use whole numbers, text or dates; a float that is not whole, or beyond 2**53, does not identify a row."
        )
    array = np.empty(len(ids), dtype=object)
    array[:] = _one_form(ids, where=where, column=column, override=override)
    return array


def _plain_id(cell: Any) -> Part | None:
    """Return an id as a Python str or int, or None where it is neither."""
    if isinstance(cell, str):
        return str(cell)
    if isinstance(cell, (bool, np.bool_)):
        return None
    if isinstance(cell, (int, np.integer)):
        return int(cell)
    if isinstance(cell, Decimal) and cell.is_finite() and cell == int(cell):
        return int(cell)
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer() and abs(float(cell)) <= LARGEST_EXACT_FLOAT:
        return int(cell)
    if isinstance(cell, date):
        # As a CSV file would write it, so that a day of birth is the same id from any source.
        return text_of(cell)
    return None


def _one_form(ids: list[Part | None], *, where: str, column: str, override: Kind | None) -> list[Part | None]:
    given = [identifier for identifier in ids if identifier is not None]
    if override == "categorical":
        return [None if identifier is None else str(identifier) for identifier in ids]
    texts = [identifier for identifier in given if isinstance(identifier, str)]
    if override == "numeric":
        unusable = sum(_WHOLE_NUMBER.fullmatch(text.strip()) is None for text in texts)
        if unusable:
            raise TableError(
                f"{where} is set to numeric, but {unusable} of {len(given)} ids are not whole numbers. "
                f"Set its type to categorical at every party."
            )
        return [None if identifier is None else int(identifier) for identifier in ids]
    if 0 < len(texts) < len(given):
        raise TableError(
            f"{where} mixes {len(given) - len(texts)} numbers and {len(texts)} texts, which never equal "
            f'one another. Set types = {{{toml_key(column)} = "categorical"}} to make them all text.'
        )
    return ids
