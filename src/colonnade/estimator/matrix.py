"""One matrix as the tables of several parties: whose columns are whose, and what an encoder before it has left."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

import numpy as np
import pandas as pd

from colonnade.data import DateOrder, Kind, PartyTable
from colonnade.errors import did_you_mean

__all__ = ["Labels", "ReadAs", "assigned_columns", "refuse_sparse", "signs_of_an_encoder", "tables_of"]

# Fewer constant columns than this happen in any small sample.
_MANY_CONSTANTS = 100
_NOT_NEEDED = (
    "An encoder is not needed: colonnade encodes each party's own columns. Leave it out of the pipeline, and pass the "
    "DataFrame as it is, with texts, dates and gaps."
)


@dataclass(frozen=True)
class Labels:
    """The labels of all rows, at the party that has them."""

    party: str
    values: np.ndarray[Any, Any]
    kind: Kind | None = None
    """As what they are read; None where they say it themselves."""
    positive: Any = None


@dataclass(frozen=True)
class ReadAs:
    """How a party's columns were read, so that later rows are read alike."""

    kinds: Mapping[str, Kind]
    """By column, of those that are of use."""
    decimal: str | None = None
    dates: DateOrder | None = None

    @classmethod
    def of(cls, table: PartyTable) -> ReadAs:
        """Return how a table was read."""
        # A method may read texts that its settings name; no text is refused as one.
        kinds = {one.name: one.kind for one in table.all_columns if not one.left_out or one.kind == "categorical"}
        return cls(kinds, table.dialect.decimal, table.dialect.dates)


def refuse_sparse(matrix: Any) -> None:
    """Refuse a sparse matrix, and a DataFrame with sparse columns, as one-hot encoders give them."""
    is_frame = isinstance(matrix, pd.DataFrame)
    kinds = matrix.dtypes if is_frame else []
    if hasattr(matrix, "toarray") or any(isinstance(one, pd.SparseDtype) for one in kinds):
        # scikit-learn's own checks look for the word "sparse".
        dense = "X.sparse.to_dense()" if is_frame else "X.toarray()"
        raise TypeError(
            f"Sparse data was passed for X, as a one-hot encoder gives it, and cells are needed. {_NOT_NEEDED} "
            f"Where the matrix is sparse for another reason, pass {dense}."
        )


def assigned_columns(parties: Any, names: Sequence[str], count: int) -> dict[str, list[int]]:
    """Return column positions by party; without an assignment, halves of the matrix. ``names`` may be empty."""
    if parties is None:
        half = (count + 1) // 2
        halves = {"first": list(range(half)), "second": list(range(half, count))}
        return {party: columns for party, columns in halves.items() if columns}
    if not isinstance(parties, Mapping) or not parties or not all(isinstance(party, str) for party in parties):
        raise ValueError(
            f"parties must map the name of each party to its columns, such as {{'bank': [0, 1], 'shop': [2]}}. "
            f"Got {short(parties)} instead."
        )
    for party, columns in parties.items():
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise ValueError(
                f"The columns of '{party}' must be a list of names or positions, such as [0, 1]. "
                f"Got {short(columns)} instead."
            )
    assigned = {party: [_position(one, names, count) for one in columns] for party, columns in parties.items()}
    flat = [column for columns in assigned.values() for column in columns]
    if len(set(flat)) != len(flat):
        raise ValueError("A column is assigned to two parties. Give every column to one party at most.")
    return assigned


def _position(column: Hashable, names: Sequence[str], count: int) -> int:
    if isinstance(column, str):
        if names.count(column) == 1:
            return names.index(column)
        if column in names:
            raise ValueError(f"The matrix has {names.count(column)} columns '{column}'. Rename all but one of them.")
        if not names:
            raise ValueError(
                f"The matrix has no column names, so there is no column '{column}': it is an array, which is also what "
                "a ColumnTransformer or a scaler makes of a DataFrame. Leave that out of the pipeline, as colonnade "
                "takes a DataFrame as it is, or call set_output(transform='pandas') on it, which keeps names."
            )
        made = [one for one in names if one.startswith(f"{column}_") or one.endswith(f"__{column}")]
        if made:
            raise ValueError(
                f"The matrix has no column '{column}', but {len(made)} whose names a transformer or an encoder made of "
                f"it. {_NOT_NEEDED} A ColumnTransformer keeps names with verbose_feature_names_out=False."
            )
        raise ValueError(f"The matrix has no column '{column}'. {did_you_mean(column, names)}")
    if not isinstance(column, int | np.integer) or not 0 <= int(column) < count:
        raise ValueError(
            f"A column position must be a whole number from 0 to {count - 1}. Positions are those of what reaches the "
            "estimator: after a ColumnTransformer they are others than before. Assign columns by name, or leave the "
            "transformer out of the pipeline: colonnade encodes each party's own columns."
        )
    return int(column)


def tables_of(
    frame: pd.DataFrame,
    columns: Mapping[str, Sequence[int]],
    *,
    read_as: Mapping[str, ReadAs] | None = None,
    labels: Labels | None = None,
) -> dict[str, PartyTable]:
    """Give every party its columns; the place of a row is its id.

    With ``read_as`` columns are read as they were before, and others are not.
    """
    taken = {str(name) for name in frame.columns}
    row, label = _free("row", taken), _free("label", taken)
    tables = {}
    for party, positions in columns.items():
        part = frame.iloc[:, list(positions)].copy()
        part.insert(0, row, np.arange(len(frame)))
        before = None if read_as is None else read_as[party]
        types: dict[str, Kind] = {} if before is None else dict(before.kinds)
        drop = set() if before is None else set(map(str, part.columns)) - {row, *types}
        own, positive = None, None
        if labels is not None and party == labels.party:
            part[label] = labels.values
            own, positive = label, labels.positive
            if labels.kind is not None:
                types[label] = labels.kind
        tables[party] = PartyTable(
            part,
            id=row,
            label=own,
            positive=positive,
            types=types,
            drop=drop,
            decimal=None if before is None else before.decimal,
            dates=None if before is None else before.dates,
            name=party,
        )
    return tables


def _free(name: str, taken: set[str]) -> str:
    while name in taken:
        name += "_"
    return name


def signs_of_an_encoder(frame: pd.DataFrame) -> str:
    """Say what looks as if an encoder had made it, and what to do; an empty text where nothing does."""
    cells = frame.select_dtypes(["number", "bool"])
    flags = cells.loc[:, (((cells == 0) | (cells == 1)) & cells.notna()).all()].astype(float)
    stems: dict[str, list[int]] = {}
    for place, name in enumerate(map(str, flags.columns)):
        stems.setdefault(name.rpartition("_")[0], []).append(place)
    # Of the columns made of one, every row has exactly one set. Their names end in categories, which are not shown.
    encoded = {
        stem: len(places)
        for stem, places in stems.items()
        if stem and len(places) > 1 and (flags.iloc[:, places].sum(axis=1) == 1).all()
    }
    constants = int((cells.nunique(dropna=False) < 2).sum())
    said = []
    if encoded:
        shown = [f"{stem}_…" for stem in encoded]
        listed = ", ".join(shown[:3]) + (", …" if len(shown) > 3 else "")
        said.append(f"{sum(encoded.values())} columns look as if a one-hot encoder had made them ({listed}).")
    if constants >= _MANY_CONSTANTS:
        said.append(f"{constants} of {frame.shape[1]} columns are constant, as rare categories are after an encoder.")
    return " ".join([*said, _NOT_NEEDED]) if said else ""
