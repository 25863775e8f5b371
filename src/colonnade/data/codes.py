"""Categories as whole numbers, for networks that learn a vector for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.encoders import TableEncoder
from colonnade.data.table import PartyTable
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["CodeEncoder", "CodedColumn"]

_VERSION = 1
# More categories than this are ids rather than categories; the rarest count as unknown.
_MOST_CATEGORIES = 4096


@dataclass(frozen=True)
class CodedColumn:
    """A categorical column, and the table of categories it is coded by."""

    column: str
    table: str


@dataclass(frozen=True, repr=False)
class CodeEncoder:
    """Turn categorical columns into codes and numeric columns into standardised numbers, fitted on training rows.

    A category's code is its place in its table, from 1; 0 stands for missing cells and unknown categories. Columns may
    share a table. Like a `TableEncoder`, this stays with its party.
    """

    coded: tuple[CodedColumn, ...]
    tables: Mapping[str, tuple[str, ...]]
    numbers: TableEncoder

    @classmethod
    def fit(
        cls,
        table: PartyTable,
        positions: npt.NDArray[np.int64],
        columns: Sequence[str] | None = None,
        shared: Sequence[Sequence[str]] = (),
    ) -> CodeEncoder:
        """Learn categories, means and scales from the rows at ``positions``; each of ``shared`` has one table."""
        kinds = {column.name: column.kind for column in table.all_columns}
        chosen = list(table.feature_names) if columns is None else list(columns)
        for column in [*chosen, *(one for names in shared for one in names)]:
            if column not in kinds:
                raise TableError(f"{table.name} has no feature column '{column}'. {did_you_mean(column, kinds)}")
        tables_of = {column: names[0] for names in shared for column in names}
        if len(tables_of) != sum(map(len, shared)):
            raise ConfigError("shared_tables names a column twice. Put every column into one of them.")
        wrong = [column for column in tables_of if kinds[column] != "categorical"]
        if wrong:
            raise ConfigError(f"shared_tables names {wrong[0]}, which is numeric. Only categories share a table.")
        coded = [CodedColumn(name, tables_of.get(name, name)) for name in chosen if kinds[name] == "categorical"]
        tables = {}
        for name in dict.fromkeys(one.table for one in coded):
            values = [table.values(one.column)[positions] for one in coded if one.table == name]
            counts = pd.Series(np.concatenate(values)).value_counts()
            most = sorted(zip(-counts.to_numpy(), counts.index, strict=True))[:_MOST_CATEGORIES]
            tables[name] = tuple(sorted(category for _, category in most))
        numeric = {name for name in chosen if kinds[name] != "categorical"}
        return cls(tuple(coded), tables, TableEncoder.fit(table, positions, columns=numeric))

    def codes(self, table: PartyTable, positions: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the categorical columns' codes at the rows given."""
        found = np.zeros((len(positions), len(self.coded)), dtype=np.int64)
        indices = {name: pd.Index(categories, dtype=object) for name, categories in self.tables.items()}
        for place, one in enumerate(self.coded):
            values = table.values(one.column)[positions]
            if values.dtype == object:  # a column of missing cells only has no kind of its own
                found[:, place] = indices[one.table].get_indexer(pd.Index(values, dtype=object)) + 1
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "coded": [[one.column, one.table] for one in self.coded],
            "tables": {name: list(categories) for name, categories in self.tables.items()},
            "numbers": self.numbers.to_json(),
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> CodeEncoder:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        try:
            if saved["version"] != _VERSION:
                raise ValueError
            coded = tuple(CodedColumn(str(column), str(name)) for column, name in saved["coded"])
            tables = {str(name): tuple(map(str, categories)) for name, categories in saved["tables"].items()}
            if any(one.table not in tables for one in coded):
                raise ValueError
            numbers = saved["numbers"]
        except (AttributeError, KeyError, TypeError, ValueError):
            raise TableError(
                "The saved code encoder is incomplete or changed. Restore the file or train again."
            ) from None
        return cls(coded, tables, TableEncoder.from_json(numbers))

    def __repr__(self) -> str:  # category names stay out of logs and tracebacks
        return f"CodeEncoder(coded={len(self.coded)}, numbers={self.numbers.width})"
