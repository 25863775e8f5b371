"""PartyTable: one party's rows and columns, checked once so that nothing later has to ask again."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.classes import Scalar, named_class
from colonnade.data.columns import Column, Kind, cells_of, looked_at, read_column
from colonnade.data.dialect import DateOrder, Dialect, dialect_of
from colonnade.data.ids import (
    LARGEST_EXACT_FLOAT,
    canonical_id_bytes,
    canonical_whole_number,
    column_names,
    is_missing,
    read_ids,
    title_of_ids,
)
from colonnade.data.texts import Texts, shown_by, texts_of
from colonnade.errors import TableError, did_you_mean

__all__ = ["PartyTable"]


class PartyTable:
    """Hold one party's rows: an id column, feature columns, and a label column if this party has it.

    `id` names the column that identifies a row, or several that do so together; then each of `ids` is a tuple.
    `partner_ids` names, for a partner that knows the rows by another id, the column or columns of that one, which may
    be empty in rows that this partner cannot share. No id column is a feature. `matches` lists rows that another tool
    matched, for runs that take shared rows as given; see `matched_rows`. `links` lists pairs of rows that belong
    together, for methods that learn from graphs; see `linked_rows`.

    Identifiers, free text and texts of which nearly every one differs are left out of `columns`, `feature_names` and
    training; `all_columns` and `describe` show them and say why. Text is read as numbers, dates or booleans where all
    of a column is such, whatever the source; what the cells leave open `decimal`, `thousands` and `dates` decide.
    `most_categories` is how many categories of a column are told apart.

    `types` overrides what a column looks like: `{"postcode": "categorical"}`. For an id column, "categorical" makes
    ids text and "numeric" makes them whole numbers, so that two parties can agree on one form. `drop` lists columns to
    ignore, `name` stands for the table in errors. `unlabelled` allows rows without a label, for methods that learn from
    such rows too; their label is NaN or None. `positive` names the one of two classes whose probability scores are;
    without it, that is 1 of 0 and 1, or the rarer class. A table may hold ids alone, which is all that a label holder
    without columns needs in order to have rows scored; a role that needs more says so.

    The table copies what it needs, and its arrays are read-only.

    >>> table = PartyTable(pd.DataFrame({"id": [7, 8], "age": [30, None]}), id="id", name="bank")
    >>> table.columns
    (Column(name='age', kind='numeric', missing=1, distinct=1),)
    """

    name: str
    id_columns: tuple[str, ...]
    label_column: str | None
    most_categories: int
    """How many categories of a column get an output of their own where it is encoded; the others share one."""
    dialect: Dialect
    """How text was written, as far as that was told or could be seen."""
    ids: npt.NDArray[np.object_]
    labels: npt.NDArray[Any] | None
    positive: Scalar | None
    """The class that the user calls positive; None leaves it to the labels."""
    matches: pd.DataFrame | None
    """A list of rows that another tool matched, for the alignment "given"; see `matched_rows`."""
    links: pd.DataFrame | None
    """A list of links between rows, for methods that learn from graphs; see `linked_rows`."""

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        id: str | Sequence[str],
        label: str | None = None,
        types: Mapping[str, Kind] | None = None,
        drop: Iterable[str] = (),
        partner_ids: Mapping[str, str | Sequence[str]] | None = None,
        matches: pd.DataFrame | None = None,
        links: pd.DataFrame | None = None,
        unlabelled: bool = False,
        positive: Scalar | None = None,
        most_categories: int = 50,
        decimal: str | None = None,
        thousands: str | None = None,
        dates: DateOrder | None = None,
        name: str = "table",
    ) -> None:
        if not isinstance(frame, pd.DataFrame):
            raise TableError(
                f"{name} was given a {type(frame).__name__} instead of a pandas DataFrame. "
                f"Pass a DataFrame, or use PartyTable.read for a file or a database."
            )
        types = dict(types or {})
        dropped = {drop} if isinstance(drop, str) else set(drop)
        series_by_name = _columns_by_name(frame, name)
        id_columns = column_names(id)
        columns_by_partner = {partner: column_names(columns) for partner, columns in (partner_ids or {}).items()}
        _check_names(
            frame,
            series_by_name,
            ids={"id": id_columns}
            | {f"the id for partner '{partner}'": columns for partner, columns in columns_by_partner.items()},
            label=label,
            types=types,
            dropped=dropped,
            name=name,
        )
        if not len(frame):
            raise TableError(f"{name} has columns but no rows. Check that the export behind it finished.")

        self.name = name
        if isinstance(most_categories, bool) or not isinstance(most_categories, int) or most_categories < 1:
            raise TableError(f"{name} sets most_categories to {most_categories!r}. Choose a whole number from 1 on.")
        self.most_categories = most_categories
        self.matches = matches
        self.links = links
        self.id_columns = id_columns
        self.label_column = label
        self.ids = read_ids({column: series_by_name[column] for column in id_columns}, types=types, name=name)
        self._partner_columns = columns_by_partner
        self._partner_ids = {
            partner: read_ids(
                {column: series_by_name[column] for column in columns}, types=types, name=name, partner=partner
            )
            for partner, columns in columns_by_partner.items()
        }
        others = {label, *id_columns, *(column for columns in columns_by_partner.values() for column in columns)}
        features = [column for column in series_by_name if column not in others | dropped]
        given = dialect_of(frame, decimal=decimal, thousands=thousands, dates=dates)
        texts = {
            column: found
            for column in [*features, *([] if label is None else [label])]
            if types.get(column) != "categorical" and (found := texts_of(series_by_name[column])) is not None
        }
        self.dialect = shown_by(texts.values(), given)
        self.labels = None
        if label is not None:
            self.labels = _read_labels(
                series_by_name[label],
                where=f"The label column '{label}' of {name}",
                override=types.get(label),
                unlabelled=unlabelled,
                texts=texts.get(label),
                dialect=given,
                shown=self.dialect,
            )
        self.positive = None
        if positive is not None and self.labels is None:
            raise TableError(f'{name} names a positive class and no label. Set label = "…", or leave out positive.')
        if positive is not None and self.labels is not None:
            where = f"The label column '{label}' of {name}"
            self.positive = named_class(self.labels[self.is_labelled], positive, where)
        self._kinds: dict[str, Kind] = {}
        self._values: dict[str, npt.NDArray[Any]] = {}
        self._notes: dict[str, tuple[str, ...]] = {}
        self._left_out: dict[str, str] = {}
        for column in features:
            cells = read_column(
                series_by_name[column],
                where=f"Column '{column}' of {name}",
                override=types.get(column),
                texts=texts.pop(column, None),
                dialect=given,
                shown=self.dialect,
            )
            reason, notes = looked_at(column, cells, most_categories, is_set=column in types)
            self._kinds[column], self._values[column] = cells.kind, cells.values
            self._notes[column] = cells.notes + notes
            if reason:
                self._left_out[column] = reason
        self._freeze()

    @classmethod
    def nothing(cls, name: str) -> PartyTable:
        """Return a table without rows or columns, for a party that needs to bring none."""
        empty = cls(pd.DataFrame({"row": [0]}), id="row", name=name).take(np.empty(0, np.int64))
        empty.id_columns = ()
        return empty

    @classmethod
    def read(
        cls,
        source: str | Path,
        *,
        id: str | Sequence[str],
        label: str | None = None,
        types: Mapping[str, Kind] | None = None,
        drop: Iterable[str] = (),
        partner_ids: Mapping[str, str | Sequence[str]] | None = None,
        unlabelled: bool = False,
        positive: Scalar | None = None,
        most_categories: int = 50,
        separator: str | None = None,
        quote: str | None = None,
        decimal: str | None = None,
        thousands: str | None = None,
        encoding: str | None = None,
        dates: DateOrder | None = None,
        query: str | None = None,
        table: str | None = None,
        name: str | None = None,
        folder: str | Path | None = None,
    ) -> PartyTable:
        """Read a table from a file (.csv, .csv.gz, .tsv, .parquet) or from a database, given by its SQLAlchemy URL.

        A relative path starts at `folder`. A URL needs exactly one of `query` and `table` (`schema.table` is fine).
        CSV ids keep leading zeros: they become whole numbers only if every one of them prints as one. A column whose
        type is set to categorical is read as it is written. What separates and quotes cells of a text file, its
        `encoding`, and how numbers and dates in text are written (`decimal`, `thousands`, `dates`) is found out where
        it is not given; `dialect` of the table says what was found.
        """
        from colonnade.data.readers import read_frame, title_of

        id_columns = [
            *column_names(id),
            *(one for names in (partner_ids or {}).values() for one in column_names(names)),
        ]
        dialect = Dialect(
            separator=separator, quote=quote, encoding=encoding, decimal=decimal, thousands=thousands, dates=dates
        )
        frame = read_frame(source, id=id_columns, types=types, dialect=dialect, query=query, table=table, folder=folder)
        return cls(
            frame,
            id=id,
            label=label,
            types=types,
            drop=drop,
            partner_ids=partner_ids,
            unlabelled=unlabelled,
            positive=positive,
            most_categories=most_categories,
            decimal=decimal,
            thousands=thousands,
            dates=dates,
            name=name or title_of(source, table),
        )

    @property
    def rows(self) -> int:
        """Count the rows."""
        return len(self.ids)

    @property
    def id_column(self) -> str:
        """Name the id column, or the columns that make the id, for people to read."""
        return " + ".join(self.id_columns)

    @property
    def id_parts(self) -> dict[str, npt.NDArray[np.object_]]:
        """Return the ids column by column."""
        if len(self.id_columns) == 1:
            return {self.id_column: self.ids}
        parts = {}
        for place, column in enumerate(self.id_columns):
            parts[column] = np.fromiter((one[place] for one in self.ids), dtype=object, count=self.rows)
        return parts

    def ids_for(self, partner: str) -> npt.NDArray[np.object_]:
        """Return the ids by which a partner knows the rows, with None where it cannot share a row."""
        return self._partner_ids.get(partner, self.ids)

    def title_of_ids_for(self, partner: str) -> str:
        """Return what begins a sentence about the ids by which a partner knows the rows."""
        if partner not in self._partner_ids:
            return title_of_ids(self.id_columns, name=self.name)
        return title_of_ids(self._partner_columns[partner], name=self.name, partner=partner)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """Name the feature columns in the order of the source, without those left out."""
        return tuple(name for name in self._kinds if name not in self._left_out)

    @property
    def names(self) -> tuple[str, ...]:
        """Name all columns beside ids and label; those left out are used only where a method's settings name them."""
        return tuple(self._kinds)

    @property
    def has_label(self) -> bool:
        """Tell whether this party holds the label."""
        return self.labels is not None

    @property
    def is_labelled(self) -> npt.NDArray[np.bool_]:
        """Tell of each row whether its label is known."""
        if self.labels is None:
            return np.zeros(self.rows, dtype=bool)
        return np.asarray(~pd.isna(self.labels))

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        """Describe the feature columns, without those left out."""
        return tuple(column for column in self.all_columns if column.name not in self._left_out)

    @cached_property
    def all_columns(self) -> tuple[Column, ...]:
        """Describe all columns beside ids and label, also those left out."""
        return tuple(self._describe_column(name) for name in self._kinds)

    def values(self, column: str) -> npt.NDArray[Any]:
        """Return a column, also one left out: float64 with NaN where missing, or text with None where missing."""
        try:
            return self._values[column]
        except KeyError:
            raise TableError(
                f"{self.name} has no feature column '{column}'. {did_you_mean(column, self._kinds)}"
            ) from None

    def take(self, positions: npt.ArrayLike) -> PartyTable:
        """Return the rows at the given positions, in the given order, as a table of the same columns and kinds.

        The result may be empty and its label may be constant: it is a part of a table that was already checked.
        """
        chosen = np.asarray(positions)
        if chosen.size == 0:
            chosen = chosen.astype(np.int64)
        if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
            raise TableError(
                f"{self.name} cannot take rows by {chosen.ndim}-dimensional positions of type {chosen.dtype}. "
                f"Pass a list of row numbers."
            )
        outside = int(((chosen < 0) | (chosen >= self.rows)).sum())
        if outside:
            raise TableError(
                f"{outside} of {chosen.size} positions lie outside {self.name}, which has {self.rows} rows. "
                f"Take positions from an alignment or a split of this very table."
            )
        repeated = chosen.size - np.unique(chosen).size
        if repeated:
            raise TableError(
                f"{repeated} positions into {self.name} repeat earlier ones. "
                f"Take each row at most once, as ids are unique."
            )
        part = object.__new__(PartyTable)
        part.name, part.id_columns, part.label_column = self.name, self.id_columns, self.label_column
        part.matches = None
        part.links = None
        part.ids = self.ids[chosen]
        part._partner_columns = dict(self._partner_columns)
        part._partner_ids = {partner: ids[chosen] for partner, ids in self._partner_ids.items()}
        part.labels = None if self.labels is None else self.labels[chosen]
        part.positive = self.positive
        part._kinds = dict(self._kinds)
        part._values = {name: values[chosen] for name, values in self._values.items()}
        part._notes, part._left_out = self._notes, self._left_out
        part.most_categories, part.dialect = self.most_categories, self.dialect
        part._freeze()
        return part

    def describe(self) -> dict[str, Any]:
        """Return a summary for JSON: names, kinds and counts, no cell's content."""
        return {
            "name": self.name,
            "rows": self.rows,
            "id": self.id_column,
            "label": self.label_column,
            "dialect": {name: value for name, value in asdict(self.dialect).items() if value is not None},
            "columns": [asdict(column) | {"notes": list(column.notes)} for column in self.all_columns],
            "partner_ids": {
                partner: {"id": " + ".join(self._partner_columns[partner]), "missing": int(is_missing(ids).sum())}
                for partner, ids in self._partner_ids.items()
            },
        }

    def digest(self) -> str:
        """Return a SHA-256 over ids, columns, values and label, in row order.

        The table's name, the file's format and the storage types stay out of it, so the same content read from CSV and
        from Parquet has the same digest as long as the kinds agree. It is not a secret hash: who can guess the whole
        table can check the guess, so keep it within the party.
        """
        header: dict[str, Any] = {
            "id": self.id_column if len(self.id_columns) == 1 else self.id_columns,
            "label": self.label_column,
            "columns": list(self._kinds.items()),
        }
        if self.positive is not None:
            header["positive"] = self.positive
        if self._partner_columns:
            header["partner_ids"] = sorted(self._partner_columns.items())
        summary = hashlib.sha256(json.dumps(header).encode())
        for ids in [self.ids, *(self._partner_ids[partner] for partner in sorted(self._partner_ids))]:
            _add_texts(summary, [b"" if one is None else canonical_id_bytes(one) for one in ids])
        for values in [*self._values.values(), *([] if self.labels is None else [self.labels])]:
            _add_values(summary, values)
        return summary.hexdigest()

    def __len__(self) -> int:
        return self.rows

    def __repr__(self) -> str:
        label = f", label={self.label_column!r}" if self.has_label else ""
        return f"PartyTable({self.name!r}, rows={self.rows}, features={len(self._kinds)}{label})"

    def _describe_column(self, name: str) -> Column:
        values = self._values[name]
        absent = np.isnan(values) if self._kinds[name] != "categorical" else values == None  # noqa: E711 (elementwise)
        distinct, missing = len(pd.unique(values[~absent])), int(absent.sum())
        # These two stay among the columns that methods get: encoders leave them out, and later rows may differ.
        nothing = "empty" if missing == self.rows else "constant" if distinct == 1 and not missing else ""
        return Column(
            name=name,
            kind=self._kinds[name],
            missing=missing,
            distinct=distinct,
            left_out=self._left_out.get(name, nothing),
            notes=self._notes.get(name, ()),
        )

    def _freeze(self) -> None:
        arrays = [self.ids, *self._partner_ids.values(), *self._values.values()]
        for array in [*arrays, *([] if self.labels is None else [self.labels])]:
            array.flags.writeable = False


def _columns_by_name(frame: pd.DataFrame, name: str) -> dict[str, pd.Series[Any]]:
    """Return the columns under their names as text, refusing names that repeat."""
    names = [str(column) for column in frame.columns]
    repeated = sorted(column for column, times in Counter(names).items() if times > 1)
    if repeated:
        raise TableError(
            f"{name} has {len(repeated)} column names that occur more than once: {', '.join(repeated)}. Rename them."
        )
    return {column: frame.iloc[:, position] for position, column in enumerate(names)}


def _check_names(
    frame: pd.DataFrame,
    known: Mapping[str, Any],
    *,
    ids: Mapping[str, tuple[str, ...]],
    label: str | None,
    types: Mapping[str, Kind],
    dropped: set[str],
    name: str,
) -> None:
    """Refuse names that do not exist or contradict one another; `ids` are the id columns by the setting they are in."""
    for setting, columns in ids.items():
        if not columns:
            raise TableError(f"{name} names no column under {setting}. Name the column or columns that identify a row.")
        if len(set(columns)) < len(columns):
            raise TableError(f"{name} names a column twice under {setting}. Name each column once.")
        for column in columns:
            if column not in known and column in frame.index.names:
                raise TableError(
                    f"The id '{column}' of {name} is the frame's index, not a column. Call reset_index() first."
                )
    roles = [(setting, column) for setting, columns in ids.items() for column in columns]
    roles += [] if label is None else [("label", label)]
    listed = [("drop", column) for column in sorted(dropped)] + [("types", column) for column in types]
    for role, column in [*roles, *listed]:
        if column not in known:
            raise TableError(f"{name} has no column '{column}', named under {role}. {did_you_mean(column, known)}")
    for role, column in roles:
        if role != "label" and column == label:
            raise TableError(f"{name} names '{column}' as both {role} and label. Choose two different columns.")
        if column in dropped:
            raise TableError(f"{name} names '{column}' under both {role} and drop. Remove it from one of them.")
    for column, kind in types.items():
        if kind not in get_args(Kind):
            raise TableError(
                f"{name} sets column '{column}' to an unknown type '{kind}'. {did_you_mean(str(kind), get_args(Kind))}"
            )
    nameless = [place for place, column in enumerate(known, start=1) if not column.strip() and column not in dropped]
    if nameless:
        raise TableError(
            f"Column {nameless[0]} of {name} has no name. Name it, or write the file without its index (index=False)."
        )


def _read_labels(
    series: pd.Series[Any],
    *,
    where: str,
    override: Kind | None,
    unlabelled: bool,
    texts: Texts | None,
    dialect: Dialect,
    shown: Dialect,
) -> npt.NDArray[Any]:
    """Return labels as bool, int64, float64 or text, not all the same, and none missing unless that is allowed."""
    if isinstance(series.dtype, np.dtype) and series.dtype.kind == "i" and override is None:
        return _refuse_constant(series.to_numpy(np.int64, copy=True), where)
    if override is None and texts is not None and texts.booleans() is not None and not texts.is_truth:
        override = "categorical"  # classes keep the names that people gave them, such as ja and nein
    cells = read_column(series, where=where, override=override, texts=texts, dialect=dialect, shown=shown)
    values, is_missing_label = cells.values, np.asarray(pd.isna(cells.values))
    if texts is not None and cells.kind == "categorical":
        values = _spelt_alike(values, is_word=texts.booleans() is not None)
    missing = int(is_missing_label.sum())
    if missing == len(values):
        raise TableError(f"{where} is empty in every row. Name another column, or leave the label out.")
    if missing and not unlabelled:
        raise TableError(
            f"{where} is empty in {missing} of {len(values)} rows. Fill those labels or remove the rows; for a method "
            "that learns from rows without a label too, such as prada, set unlabelled = true."
        )
    if cells.kind == "boolean" and not missing:
        values = values.astype(bool)
    elif cells.kind == "numeric" and override is None and not missing:
        is_whole = texts.is_whole if texts is not None else _all_whole(series)
        values = values.astype(np.int64) if is_whole and np.abs(values).max() <= LARGEST_EXACT_FLOAT else values
    _refuse_constant(values[~is_missing_label], where)
    return values


def _spelt_alike(classes: npt.NDArray[Any], *, is_word: bool) -> npt.NDArray[Any]:
    """Return classes without spaces around; of words such as ja and JA, each as most rows spell it."""
    trimmed = [None if one is None else one.strip() for one in classes]
    usual: dict[str, str] = {}
    for spelt, _ in Counter(one for one in trimmed if one is not None).most_common():
        usual.setdefault(spelt.casefold() if is_word else spelt, spelt)
    return np.array(
        [None if one is None else usual[one.casefold() if is_word else one] for one in trimmed], dtype=object
    )


def _all_whole(series: pd.Series[Any]) -> bool:
    return all(
        canonical_whole_number(cell.strip()) if isinstance(cell, str) else isinstance(cell, (int, np.integer))
        for cell in cells_of(series)
    )


def _refuse_constant(values: npt.NDArray[Any], where: str) -> npt.NDArray[Any]:
    if len(pd.unique(values)) < 2:
        raise TableError(f"{where} has the same value in all {len(values)} rows. A model needs at least two.")
    return values


def _add_values(summary: hashlib._Hash, values: npt.NDArray[Any]) -> None:
    if values.dtype == object:
        # Each different text once and then which row has which: same content, same bytes, and quick.
        codes, texts = pd.factorize(values)
        summary.update(b"text")
        _add_texts(summary, [text.encode("utf-8", "surrogatepass") for text in texts])
        summary.update(codes.astype("<i8").tobytes())
        return
    numbers = values.astype("<f8") + 0.0  # turns -0.0 into 0.0
    numbers[np.isnan(numbers)] = np.nan  # one bit pattern for every missing cell
    summary.update(b"numbers" + numbers.tobytes())


def _add_texts(summary: hashlib._Hash, texts: Sequence[bytes]) -> None:
    """Hash texts with their lengths, so that no two lists of texts look alike."""
    summary.update(np.array([len(texts), *map(len, texts)], dtype="<i8").tobytes())
    summary.update(b"".join(texts))
