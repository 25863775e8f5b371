"""A party's columns in unit space: numbers from 0 to 1 by public bounds, categories as one-hot blocks.

The party's own columns come first, in the order of its table, then those that all holders have, by name: generated
columns of the others then fit together without a further word.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data import Kind, PartyTable
from colonnade.errors import ConfigError, TableError
from colonnade.methods.mpdl.config import MPDL, found_by
from colonnade.privacy import CellColumn

__all__ = ["UnitColumn", "UnitSpace"]

Places = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]

_SHOWN = 5


@dataclass(frozen=True)
class UnitColumn:
    """One column of a table and how its cells become numbers."""

    name: str
    kind: Kind
    is_common: bool
    low: float = 0.0
    high: float = 1.0
    levels: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Return how many numbers a cell becomes."""
        return len(self.levels) or 1

    @property
    def names(self) -> tuple[str, ...]:
        """Return what each of these numbers is called."""
        return tuple(f"{self.name}={level}" for level in self.levels) or (self.name,)


@dataclass(frozen=True)
class UnitSpace:
    """All columns of a party that carry something."""

    columns: tuple[UnitColumn, ...]

    @classmethod
    def fit(cls, table: PartyTable, rows: Places, config: MPDL) -> UnitSpace:
        """Take bounds and categories from the settings or, where nothing is hidden, from these rows."""
        undeclared: list[str] = []
        found = []
        for column in table.all_columns:
            is_declared = any(
                fnmatchcase(column.name, one) for one in (*config.common_columns, *config.bounds, *config.levels)
            )
            if column.name not in table.feature_names and not is_declared:
                continue
            one = _column(table, column.name, column.kind, rows, config, undeclared)
            if one is not None:
                found.append(one)
        if undeclared:
            shown = ", ".join(f"'{name}'" for name in undeclared[:_SHOWN])
            more = f" and {len(undeclared) - _SHOWN} more" if len(undeclared) > _SHOWN else ""
            raise ConfigError(
                f"{table.name} has columns without public bounds or categories: {shown}{more}. Noise is measured by "
                "them, and they must not come from the table. Add config.bounds (two numbers) or config.levels "
                "(categories) for each, by name or pattern; or leave them out by drop = [...] in [table] of party.toml."
            )
        for pattern in config.common_columns:
            if not any(fnmatchcase(column.name, pattern) for column in found):
                raise ConfigError(
                    f"config.common_columns names '{pattern}', which all holders must have, and {table.name} has no "
                    "such column. Correct it, or the table."
                )
        own = [column for column in found if not column.is_common]
        common = sorted((column for column in found if column.is_common), key=lambda column: column.name)
        return cls((*own, *common))

    @property
    def own_width(self) -> int:
        """Return how many numbers a row has in columns that only this party brings."""
        return sum(column.width for column in self.columns if not column.is_common)

    @property
    def width(self) -> int:
        """Return how many numbers a row has."""
        return sum(column.width for column in self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """Return what each number is called."""
        return tuple(name for column in self.columns for name in column.names)

    @property
    def types(self) -> dict[str, Kind]:
        """Return the kind of each column, to read later tables alike."""
        return {column.name: column.kind for column in self.columns}

    @property
    def common_digest(self) -> bytes:
        """Return what stands for the columns that all holders have: these must be the same everywhere."""
        common = [asdict(column) for column in self.columns if column.is_common]
        return hashlib.sha256(json.dumps(common, sort_keys=True).encode()).digest()

    def cells(self, config: MPDL, *, with_common: bool) -> tuple[CellColumn, ...]:
        """Return the columns as noise takes them."""
        return tuple(
            CellColumn(column.name, len(column.levels), config.epsilon_of(column.name))
            for column in self.columns
            if with_common or not column.is_common
        )

    def transform(self, table: PartyTable, rows: Places) -> Numbers:
        """Return rows as numbers; a missing number is NaN, a missing category a block of zeros."""
        known = set(table.names)
        absent = [column.name for column in self.columns if column.name not in known]
        if absent:
            raise TableError(f"{table.name} has no column '{absent[0]}', which the model was trained with. Add it.")
        blocks = [_encoded(column, table.values(column.name)[rows]) for column in self.columns]
        return np.concatenate(blocks, axis=1) if blocks else np.empty((len(rows), 0))

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values."""
        return [asdict(column) for column in self.columns]

    @classmethod
    def from_json(cls, document: list[dict[str, Any]]) -> UnitSpace:
        """Read what `to_json` wrote."""
        return cls(tuple(UnitColumn(**{**one, "levels": tuple(one["levels"])}) for one in document))


def _column(
    table: PartyTable, name: str, kind: Kind, rows: Places, config: MPDL, undeclared: list[str]
) -> UnitColumn | None:
    is_common, bounds, levels = config.is_common(name), found_by(name, config.bounds), found_by(name, config.levels)
    # Scales of columns that all holders have must be the same everywhere.
    must_declare = config.mechanism != "none" or is_common
    values = table.values(name)[rows]
    if levels is not None:
        return UnitColumn(name, "categorical", is_common, levels=tuple(levels))
    if kind != "categorical" and bounds is not None:
        return UnitColumn(name, kind, is_common, *bounds)
    if must_declare:
        undeclared.append(name)
        return None
    present = values[~pd.isna(values)]
    seen = np.unique(present)
    if len(seen) < 2:
        return None
    if kind != "categorical":
        return UnitColumn(name, kind, is_common, float(seen[0]), float(seen[-1]))
    if len(seen) > table.most_categories:
        raise ConfigError(
            f"{table.name} has {len(seen)} categories in column '{name}', more than most_categories, which is "
            f"{table.most_categories}. Raise it in [table], drop the column, or give config.levels for it."
        )
    return UnitColumn(name, kind, is_common, levels=tuple(str(one) for one in seen))


def _encoded(column: UnitColumn, values: npt.NDArray[Any]) -> Numbers:
    if not column.levels:
        scaled: Numbers = (values.astype(np.float64) - column.low) / (column.high - column.low)
        return np.clip(scaled, 0.0, 1.0)[:, None]
    texts = pd.Index([_text(one) for one in values], dtype=object)
    places = pd.Index(column.levels, dtype=object).get_indexer(texts)
    block = np.zeros((len(values), len(column.levels)))
    there = np.flatnonzero(places >= 0)
    block[there, places[there]] = 1.0
    return block


def _text(cell: Any) -> Any:
    # Categories in the settings are texts; a column of codes such as 0 and 1 is read as numbers.
    if isinstance(cell, float | np.floating):
        return None if np.isnan(cell) else f"{cell:g}"
    return cell
