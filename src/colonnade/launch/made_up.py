"""Made-up tables of the shapes that a run's tables have: the same columns, categories and gaps, and other values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from colonnade.alignment import align_in_one_place
from colonnade.data import PartyTable
from colonnade.errors import ConfigError
from colonnade.methods import method_named
from colonnade.session import RunPlan, derive_seed

__all__ = ["World"]

Group = tuple[str, ...]
"""Rows that exactly these parties have, by way of the lead."""
Array = np.ndarray[Any, Any]
Tables = Mapping[str, PartyTable]

# Numbers with no more different values than the first are codes; texts with more than the second are prose.
_FEW, _MANY = 20, 50
# Rows in which a value comes up at least, so that some of them are for training.
_LEAST = 6
_TOGETHER = 0.6  # how far numbers about one person, and the label, go together
_ID = "made-up id"


@dataclass(frozen=True)
class _Column:
    """How a column's values are drawn: some by their counts, numbers from a bell curve, or prose word by word."""

    name: str
    is_numeric: bool = True
    centre: float = 0.0
    spread: float = 1.0
    values: tuple[Any, ...] = ()
    counts: Mapping[Group, Sequence[int]] = field(default_factory=dict)
    """By group, how often each value comes up, or any at all, and last how often none does."""
    prose: tuple[str | None, ...] = ()
    """What stands for each row of the real table."""

    @classmethod
    def like(cls, name: str, cells: Array, places: Mapping[Group, Array], named: set[str], is_label: bool) -> _Column:
        """Describe a column; of its values only those stay that the settings name."""
        codes, distinct = pd.factorize(cells, sort=True)
        own = cls(name, cells.dtype != object)
        has_words = not own.is_numeric and any(" " in one for one in distinct)
        if has_words and (is_label or len(distinct) > min(_MANY, len(cells) // 3)):
            return replace(own, prose=_other_words(cells))
        if cells.dtype.kind == "f" and len(distinct) > _FEW:
            own = replace(own, centre=float(np.nanmean(cells)), spread=float(np.nanstd(cells)))
            codes, distinct = np.minimum(codes, 0), np.empty(0)
        made = [_other(number, one, named) for number, one in enumerate(distinct.tolist())]
        kinds = max(1, len(made)) + 1
        counts = {group: np.bincount(codes[rows] % kinds, minlength=kinds).tolist() for group, rows in places.items()}
        return replace(own, values=tuple(made), counts=counts)

    def draw(self, group: Group, traits: Array, random: np.random.Generator, least: int) -> Array:
        """Draw a cell for each of a group's rows; what a person's numbers have in common is given."""
        latent = _TOGETHER * traits + math.sqrt(1.0 - _TOGETHER**2) * random.normal(size=len(traits))
        wanted = _divided(self.counts.get(group, [1] * max(1, len(self.values)) + [0]), len(traits), least)
        found = np.full(len(traits), None, dtype=object)
        places = random.permutation(len(traits))[wanted[-1] :]
        places = places[np.argsort(latent[places])]
        drawn = np.repeat(np.array(self.values, dtype=object), wanted[:-1]) if self.values else None
        found[places] = self.centre + self.spread * latent[places] if drawn is None else drawn
        return found


@dataclass(frozen=True)
class World:
    """Who has which rows in common, and what their columns are like."""

    groups: Mapping[Group, int]
    columns: Mapping[str, tuple[_Column, ...]]
    labels: Mapping[str, _Column]
    degrees: Mapping[str, float]
    """Links per row, where a table has links."""
    least: int
    """Rows in which a value comes up at least."""
    assumed: tuple[str, ...]
    most_categories: Mapping[str, int]
    """How many categories of a column are told apart, where a table is here."""

    @classmethod
    def of(
        cls, plan: RunPlan, tables: Tables, names: Mapping[str, Sequence[str]], shared: int | None, classes: int | None
    ) -> World:
        """Describe the tables that are here, and the others by what the user says: columns, shared rows, classes."""
        method, assumed = method_named(plan.method), list[str]()
        parties, lead = method.parties_with_rows(plan), method.leader_of(plan)
        absent = [party for party in parties if party not in tables]
        _check_said(tables, [party for party in absent if party not in names], shared)
        if shared is None and not absent:
            places = _places_here(plan, lead, {party: tables[party] for party in parties})
            groups = {group: len(next(iter(rows.values()))) for group, rows in places.items()}
        else:
            if shared is None:
                shared = min(table.rows for table in tables.values())
                assumed.append(
                    f"all {shared} rows of the smallest table here are shared (--shared-rows says otherwise)"
                )
            if absent and tables:
                assumed.append(f"the table of {', '.join(absent)} has no more rows than are shared")
            rows = {party: tables[party].rows if party in tables else shared for party in parties}
            groups = _groups_said(lead, rows, shared, is_apart=method.stage(plan.stage).rows == "pairwise")
            places = {group: {one: np.arange(tables[one].rows) for one in group if one in tables} for group in groups}
        # What the settings name is agreed, and so no secret.
        named = set(re.findall(r'"([^"]*)"', json.dumps(dict(plan.config), ensure_ascii=False)))
        labels: dict[str, _Column] = {}
        columns = {party: tuple(map(_Column, names[party])) for party in absent}
        for party in absent:
            if any(role.has_label for role in method.roles if role.name == plan.role_of(party)):
                labels[party] = _label_said(plan, party, classes)
        for party, table in tables.items():
            own = {group: by_party[party] for group, by_party in places.items() if party in by_party}
            used = {*table.feature_names, *(named & {*table.names})}
            cells = {name: table.values(name) for name in table.names if name in used}
            columns[party] = tuple(_Column.like(name, one, own, named, False) for name, one in cells.items())
            if table.labels is not None:
                labels[party] = _Column.like(str(table.label_column), table.labels, own, named, True)
        degrees = {party: len(table.links) / table.rows for party, table in tables.items() if table.links is not None}
        least = _LEAST + 2 * int(plan.config.get("minimum_support", 0))
        most_categories = {party: table.most_categories for party, table in tables.items()}
        return cls(groups, columns, labels, degrees, least, tuple(assumed), most_categories)

    @property
    def least_rows(self) -> int:
        """Return how many rows a group needs so that what an encoder tells apart comes up in it."""
        every = (*self.labels.values(), *(one for columns in self.columns.values() for one in columns))
        most = max(self.most_categories.values(), default=_MANY)
        return self.least * max(1 + min(most, len(one.values)) for one in every)

    def tables(self, *, labelled: bool = True) -> dict[str, PartyTable]:
        """Draw the tables; those without labels are to be scored."""
        random, ends = np.random.default_rng(0), np.cumsum(list(self.groups.values()))
        people = dict(zip(self.groups, np.split(np.arange(ends[-1]), ends[:-1]), strict=True))
        traits, found = random.normal(size=ends[-1]), {}
        for party, columns in self.columns.items():
            own = {group: rows for group, rows in people.items() if party in group}
            label = (self.labels[party],) if labelled and party in self.labels else ()
            frame = pd.DataFrame({_ID: np.concatenate(list(own.values()))})
            for one in (*columns, *label):
                drawn = [one.draw(group, traits[rows], random, self.least) for group, rows in own.items()]
                # All prose of a row is of one real row: it may say how many choices there are, and which was taken.
                prose = [one.prose[row * len(one.prose) // len(frame)] for row in range(len(frame)) if one.prose]
                frame[one.name] = prose or np.concatenate(drawn).tolist()
            found[party] = PartyTable(
                frame.iloc[random.permutation(len(frame))],
                id=_ID,
                label=label[0].name if label else None,
                types={one.name: "numeric" if one.is_numeric else "categorical" for one in columns},
                links=_linked(frame[_ID].to_numpy(), self.degrees[party], random) if party in self.degrees else None,
                unlabelled=True,
                most_categories=self.most_categories.get(party, _MANY),
                name=party,
            )
        return found


def _check_said(tables: Tables, unknown: Sequence[str], shared: int | None) -> None:
    if not tables and shared is None:
        raise ConfigError(
            "No home of a party of this run is here. Say --shared-rows N, and --columns PARTY=N for each."
        )
    if unknown:
        how = f"--columns {unknown[0]}=20, or name its home: --home {unknown[0]}=FOLDER"
        raise ConfigError(f"The table of {', '.join(unknown)} is not here. Say how many columns it has, as in {how}.")
    for party, table in tables.items():
        if (shared or 0) > table.rows:
            raise ConfigError(f"--shared-rows {shared} is more than the {table.rows} rows of '{party}'. Say fewer.")


def _places_here(plan: RunPlan, lead: str, tables: Tables) -> dict[Group, dict[str, Array]]:
    """Find each party's rows by who else has them."""
    seed, count = derive_seed(plan.seed, "alignment"), tables[lead].rows
    row_of = {party: np.full(count, -1) for party in tables} | {lead: np.arange(count)}
    for party in set(tables) - {lead}:
        pair = align_in_one_place({one: tables[one] for one in (lead, party)}, lead, plan.alignment, seed)
        row_of[party][pair[lead].positions] = pair[party].positions
    patterns, codes = np.unique(np.array([row_of[party] >= 0 for party in tables]), axis=1, return_inverse=True)
    found: dict[Group, dict[str, Array]] = {}
    for code, pattern in enumerate(patterns.T):
        group = tuple(party for party, has_it in zip(tables, pattern, strict=True) if has_it)
        found[group] = {party: row_of[party][codes.ravel() == code] for party in group}
    rest = {party: np.setdiff1d(np.arange(table.rows), row_of[party]) for party, table in tables.items()}
    return found | {(party,): {party: rows} for party, rows in rest.items() if len(rows)}


def _groups_said(lead: str, rows: Mapping[str, int], shared: int, *, is_apart: bool) -> dict[Group, int]:
    """Let all parties share rows; or each of them others with the lead, where pairs share rows and it has as many."""
    groups: dict[Group, int] = {tuple(rows): shared}
    if is_apart and shared * (len(rows) - 1) <= rows[lead]:
        groups = {tuple(one for one in rows if one in (lead, party)): shared for party in rows if party != lead}
    left = {party: count - shared * sum(party in group for group in groups) for party, count in rows.items()}
    return groups | {(party,): count for party, count in left.items() if count > 0}


def _label_said(plan: RunPlan, party: str, classes: int | None) -> _Column:
    count = {"binary": 2, "regression": 0}.get(str(plan.config.get("task"))) if classes is None else classes
    if count is None:
        raise ConfigError(f"The label of '{party}' is not here. Say what classes it has: --classes N, 0 for a number.")
    # Whole numbers of more different values would not be taken for classes.
    values = [number if count <= _FEW else f"class {number}" for number in range(count)]
    return _Column("label", count <= _FEW, values=tuple(values))


def _linked(rows: Array, degree: float, random: np.random.Generator) -> pd.DataFrame:
    starts, steps = random.integers(1, len(rows), (2, max(1, round(degree * len(rows)))))
    return pd.DataFrame({"from": rows[starts], "to": rows[(starts + steps) % len(rows)]})


def _divided(counts: Sequence[int], rows: int, least: int) -> list[int]:
    """Divide rows as the counts are, but so that what comes up comes up in a small table too."""
    wanted = np.array([max(one * rows / sum(counts), min(one, least, rows / len(counts))) for one in counts])
    bounds = np.rint(np.cumsum(wanted) * rows / wanted.sum()).astype(int)
    return [int(one) for one in np.diff(bounds, prepend=0)]


def _other(number: int, value: Any, named: set[str]) -> Any:
    if isinstance(value, str):
        return value if value in named else f"v{number}".ljust(len(value), "x")
    return value if isinstance(value, bool) or f"{value:g}" in named else type(value)(number)


def _other_words(texts: Array) -> tuple[str | None, ...]:
    """Return texts of as many other words; bars between items, and 0 and 1 where a choice is told, stay."""
    names = {"|": "|", "0": "0", "1": "1"}
    words = ([] if text is None else text.split(" ") for text in texts)
    made = ([names.setdefault(word, f"w{len(names)}".ljust(len(word), "x")) for word in row] for row in words)
    return tuple(" ".join(row) or None for row in made)
