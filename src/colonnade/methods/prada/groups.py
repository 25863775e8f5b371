"""Which columns make which group, and the network that follows from it. No session here."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import CodeEncoder, PartyTable
from colonnade.errors import ConfigError, did_you_mean
from colonnade.methods.prada.config import PrADA
from colonnade.nn import FeatureGroups, GroupShape, pair_groups

__all__ = [
    "DTYPES",
    "Columns",
    "NewCategory",
    "build_network",
    "check_structure",
    "choose_groups",
    "group_shapes",
    "nearest_ties",
    "propose_groups",
    "settled",
    "structure_of",
    "ties_of",
]

DTYPES = {"float32": torch.float32, "float64": torch.float64}
_STRUCTURE = ("interactions", "grouped", "widths", "aggregate", "embeddings", "precision")
# Rows that correlations are estimated from, and how many groups are proposed where nobody says.
_ROWS, _GROUPS = 5000, 4
# A category with fewer source rows than this, or than this part of all, has learned nothing. Columns of more categories
# than the last are not compared.
_RARE, _RARE_SHARE, _MOST_COMPARED = 50, 0.005, 512


def propose_groups(table: PartyTable, count: int = _GROUPS, *, seed: int = 0) -> dict[str, tuple[str, ...]]:
    """Put columns that say alike things into one group, for people to rename and edit.

    Columns are compared by Cramer's V; numbers are cut at their quintiles first. Groups are merged from single columns,
    always the two whose columns are most alike on average.
    """
    names = [column.name for column in table.columns]
    if count < 1:
        raise ConfigError(f"{count} groups were asked for. Choose at least 1.")
    rows = np.random.default_rng(seed).permutation(table.rows)[:_ROWS]
    levels = [_levels(table.values(name)[rows]) for name in names]
    alike = np.array([[_association(one, other) for other in levels] for one in levels]).reshape(len(names), -1)
    groups = [[place] for place in range(len(names))]
    while len(groups) > count:
        pairs = [(one, other) for one in range(len(groups)) for other in range(one)]
        closest = max(pairs, key=lambda pair: float(alike[np.ix_(groups[pair[0]], groups[pair[1]])].mean()))
        groups[closest[1]] += groups.pop(closest[0])
    ordered = sorted((sorted(group) for group in groups), key=lambda group: group[0])
    return {f"group{number}": tuple(names[place] for place in group) for number, group in enumerate(ordered, 1)}


def _levels(values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if values.dtype == object:
        _, codes = np.unique([("" if one is None else "=" + one) for one in values], return_inverse=True)
        return codes.astype(np.int64)
    absent = np.isnan(values)
    cuts = np.unique(np.quantile(values[~absent], (0.2, 0.4, 0.6, 0.8))) if not absent.all() else np.empty(0)
    return np.where(absent, 0, 1 + np.searchsorted(cuts, np.where(absent, 0.0, values), side="right"))


def _association(one: npt.NDArray[np.int64], other: npt.NDArray[np.int64]) -> float:
    """Return Cramer's V: 0 for columns that say nothing about each other, 1 where one gives the other away."""
    counts = np.zeros((one.max(initial=0) + 1, other.max(initial=0) + 1))
    np.add.at(counts, (one, other), 1.0)
    counts = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    smaller = min(counts.shape) - 1
    if smaller < 1:
        return 0.0
    expected = counts.sum(axis=1, keepdims=True) * counts.sum(axis=0) / counts.sum()
    return float(np.sqrt(((counts - expected) ** 2 / expected).sum() / counts.sum() / smaller))


def choose_groups(config: PrADA, table: PartyTable, seed: int) -> dict[str, tuple[str, ...]]:
    """Return the groups that the settings name, or proposed ones."""
    known = table.names
    if not table.feature_names:
        raise ConfigError(f"{table.name} has no feature columns to make groups of. Check its table and its drop list.")
    if not config.groups:
        return propose_groups(table, min(_GROUPS, len(table.feature_names)), seed=seed)
    for name, columns in config.groups.items():
        for column in columns:
            if column not in known:
                raise ConfigError(
                    f"config.groups.{name} names the column '{column}', which the feature holder does not have. "
                    f"{did_you_mean(column, known)}"
                )
    return {name: tuple(columns) for name, columns in config.groups.items()}


def group_shapes(config: PrADA, encoder: CodeEncoder, groups: Mapping[str, Sequence[str]]) -> list[GroupShape]:
    """Return every group's inputs and widths: the groups themselves, then their pairs; or one of all columns."""
    if not config.grouped:
        groups = {"all": [column for columns in groups.values() for column in columns]}
    code_places = {one.column: place for place, one in enumerate(encoder.coded)}
    inputs_of = [part.column for part in encoder.numbers.parts for _ in part.names]
    shapes = [
        GroupShape(
            name,
            tuple(code_places[column] for column in columns if column in code_places),
            tuple(place for place, column in enumerate(inputs_of) if column in columns),
        )
        for name, columns in groups.items()
    ]
    empty = [shape.name for shape in shapes if not shape.codes and not shape.numbers]
    if empty:
        raise ConfigError(f"The columns of group '{empty[0]}' are constant in the training rows. Leave it out.")
    if config.interactions and config.grouped:
        shapes += pair_groups(shapes)
    unknown = set(config.widths) - {shape.name for shape in shapes}
    if unknown:
        raise ConfigError(
            f"config.widths.{min(unknown)} is for no group. {did_you_mean(min(unknown), [one.name for one in shapes])}"
        )
    return [
        GroupShape(shape.name, shape.codes, shape.numbers, tuple(config.widths.get(shape.name, ()))) for shape in shapes
    ]


def build_network(config: PrADA, encoder: CodeEncoder, shapes: Sequence[GroupShape], seed: int) -> FeatureGroups:
    """Return the untrained network."""
    known = {one.column for one in encoder.coded}
    for column in config.embeddings:
        if column not in known:
            raise ConfigError(f"config.embeddings names '{column}'. {did_you_mean(column, known)}")
    tables = {}
    for name, categories in encoder.tables.items():
        users = [one.column for one in encoder.coded if one.table == name]
        wanted = [config.embeddings[column] for column in users if column in config.embeddings]
        width = wanted[0] if wanted else min(16, max(1, round(1.5 * math.sqrt(len(categories)))))
        tables[name] = (len(categories) + 1, width)
    return FeatureGroups(
        shapes,
        tables,
        [one.table for one in encoder.coded],
        aggregate=config.aggregate,
        dropout=config.dropout,
        seed=seed,
        dtype=DTYPES[config.precision],
    )


def structure_of(config: PrADA) -> dict[str, Any]:
    """Return the settings, as JSON values, that decide which weights a network has."""
    return json.loads(json.dumps({name: getattr(config, name) for name in _STRUCTURE}))  # type: ignore[no-any-return]


def check_structure(config: PrADA, earlier: Mapping[str, Any]) -> None:
    """Refuse to go on from a model whose networks were made by other settings."""
    now = structure_of(config)
    changed = [name for name in _STRUCTURE if now[name] != earlier[name]]
    if changed:
        raise ConfigError(
            f"config.{changed[0]} differs from what the model to go on from was trained with. Only settings that do "
            "not change the networks may differ between stages."
        )


def ties_of(config: PrADA, encoder: CodeEncoder) -> dict[str, dict[int, int]]:
    """Return, by table, the codes of categories that are like another one, and that one's code."""
    found: dict[str, dict[int, int]] = {}
    tables = {one.column: one.table for one in encoder.coded}
    for column, likes in config.ties.items():
        if column not in tables:
            raise ConfigError(f"config.ties names the column '{column}'. {did_you_mean(column, tables)}")
        categories = encoder.tables[tables[column]]
        codes = {name: place for place, name in enumerate(categories, 1)}
        for category, like in likes.items():
            if like not in codes:
                raise ConfigError(f"config.ties.{column} names '{like}'. {did_you_mean(like, codes)}")
            if category in codes:
                found.setdefault(tables[column], {})[codes[category]] = codes[like]
    return found


def nearest_ties(
    columns: Columns, encoder: CodeEncoder, source: npt.NDArray[np.int64], every: npt.NDArray[np.int64]
) -> dict[str, dict[int, int]]:
    """Return, by table, categories that hardly any source row has, each with the category whose rows are most alike.

    Alike are rows with the same categories in other columns: the coefficients of Bhattacharyya between what two
    categories' rows have there, added up over columns. ``every`` are all training rows, of source and target.
    """
    codes, seen = columns.codes.numpy()[every], columns.codes.numpy()[source]
    fewest = max(1.0, min(_RARE, _RARE_SHARE * len(source)))
    sizes = {name: len(categories) + 1 for name, categories in encoder.tables.items()}
    tables = [one.table for one in encoder.coded]
    found: dict[str, dict[int, int]] = {}
    for name, size in sizes.items():
        places = [place for place, table in enumerate(tables) if table == name]
        counts, present = (np.bincount(rows[:, places].reshape(-1), minlength=size) for rows in (seen, codes))
        rare = [code for code in range(1, size) if counts[code] < fewest and present[code]]
        usual = [code for code in range(1, size) if counts[code] >= fewest]
        if not rare or not usual or size > _MOST_COMPARED:
            continue
        alike = np.zeros((size, size))
        for other, table in enumerate(tables):
            width = sizes[table]
            if table == name or width > _MOST_COMPARED:
                continue
            for place in places:
                pairs = np.bincount(codes[:, place] * width + codes[:, other], minlength=size * width)
                shares = np.sqrt(pairs.reshape(size, width) / np.maximum(present, 1)[:, None])
                alike += shares @ shares.T
        found[name] = {code: usual[int(np.argmax(alike[code, usual]))] for code in rare}
    return found


def settled(ties: Mapping[int, int]) -> dict[int, int]:
    """Follow ties to their end, so that nothing is tied to what is itself tied; what leads in a circle stays untied."""
    found = {}
    for code in ties:
        like, seen = ties[code], {code}
        while like in ties and like not in seen:
            seen.add(like)
            like = ties[like]
        if like not in seen:
            found[code] = like
    return found


@dataclass(frozen=True)
class NewCategory:
    """A category that target rows have and source rows do not."""

    place: int
    """Which of the coded columns it is in."""
    code: int
    group: int
    """The group, by its place, that the column belongs to."""


@dataclass(frozen=True)
class Columns:
    """All of the feature holder's rows as a network takes them."""

    codes: torch.Tensor
    numbers: torch.Tensor

    @classmethod
    def of(cls, encoder: CodeEncoder, table: PartyTable, precision: str) -> Columns:
        """Encode a whole table."""
        every = np.arange(table.rows)
        numbers = encoder.numbers.transform(table, every, dtype=np.dtype(precision).type)
        return cls(torch.from_numpy(encoder.codes(table, every)), torch.from_numpy(numbers))

    def take(self, rows: npt.NDArray[np.int64]) -> Columns:
        """Return some rows."""
        places = torch.from_numpy(rows)
        return Columns(self.codes.index_select(0, places), self.numbers.index_select(0, places))

    def marks(self, new: Sequence[NewCategory], rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """Return 1 where a row has a new category, and 0 elsewhere: one column for each."""
        codes = self.codes.numpy()[rows]
        return np.array([codes[:, one.place] == one.code for one in new], dtype=np.float64).reshape(-1, len(rows)).T

    def tied(self, ties: Mapping[str, Mapping[int, int]], table_of: Sequence[str]) -> Columns:
        """Return the same with some categories in the place of others."""
        codes = self.codes.clone()
        for place, name in enumerate(table_of):
            for code, like in ties.get(name, {}).items():
                codes[self.codes[:, place] == code, place] = like
        return Columns(codes, self.numbers)
