"""Made-up tables of the shapes that a run's tables have: the same columns, categories and gaps, and other values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.alignment import align_in_one_place
from colonnade.data import PartyTable
from colonnade.errors import ConfigError
from colonnade.session import Method, RunPlan, derive_seed

__all__ = ["World"]

Group = tuple[str, ...]
"""Rows that exactly these parties have in common, by way of the lead."""
Places = npt.NDArray[np.int64]

# Numbers with no more different values than the first are codes; texts with more than the second are prose.
_FEW, _MANY = 20, 50
# Rows in which a value comes up at least, so that some of them are for training.
_LEAST = 6
# How far numbers about one person, and the label, go together.
_TOGETHER = 0.6
_ID = "made-up id"


@dataclass(frozen=True)
class _Column:
    """How a column's values are drawn: some by their counts, numbers from a bell curve, or prose word by word."""

    name: str
    is_numeric: bool = True
    centre: float = 0.0
    spread: float = 1.0
    values: tuple[Any, ...] = ()
    counts: Mapping[Group, tuple[int, ...]] = field(default_factory=dict)
    """By group, how often each value comes up, or any at all, and last how often none does."""
    prose: tuple[str | None, ...] = ()
    """What stands for each row of the real table."""

    @classmethod
    def like(
        cls, name: str, values: npt.NDArray[Any], places: Mapping[Group, Places], named: set[str], *, is_label: bool
    ) -> _Column:
        """Describe a column; of its values only those stay that the settings name."""
        codes, distinct = pd.factorize(values, sort=True)
        own, known = cls(name, values.dtype != object), values[codes >= 0]
        has_spaces = not own.is_numeric and any(" " in one for one in distinct)
        if has_spaces and (is_label or len(distinct) > min(_MANY, len(values) // 3)):
            return replace(own, prose=tuple(_other_words(values)))
        if own.is_numeric and len(distinct) > _FEW and (values.dtype.kind == "f" or not is_label):
            codes, distinct = np.minimum(codes, 0), np.empty(0)
            own = replace(own, centre=float(known.mean()), spread=float(known.std()) or 1.0)
        made = [_other(number, one, named) for number, one in enumerate(distinct.tolist())]
        most = max(1, len(made))
        counted = {
            group: tuple(np.bincount(np.where(codes[rows] < 0, most, codes[rows]), minlength=most + 1).tolist())
            for group, rows in places.items()
        }
        return replace(own, values=tuple(made), counts=counted)

    def draw(self, group: Group, traits: npt.NDArray[Any], random: np.random.Generator, least: int) -> list[Any]:
        """Draw a value for each of a group's rows; what a person's numbers have in common is given."""
        rows = len(traits)
        latent = _TOGETHER * traits + math.sqrt(1.0 - _TOGETHER**2) * random.normal(size=rows)
        counts = self.counts.get(group) or (1,) * max(1, len(self.values)) + (0,)
        wanted = _divided(counts, rows, least)
        found: list[Any] = [None] * rows
        places = random.permutation(rows)[wanted[-1] :]
        drawn = np.sort(latent[places]) if self.values else latent[places]
        order = places[np.argsort(latent[places])] if self.values else places
        bounds = np.cumsum(wanted[:-1])
        for number, place in enumerate(order):
            if self.values:
                found[place] = self.values[int(np.searchsorted(bounds, number, side="right"))]
            else:
                found[place] = self.centre + self.spread * float(drawn[number])
        return found


@dataclass(frozen=True)
class World:
    """Who has which rows in common, and what their columns are like."""

    groups: Mapping[Group, int]
    columns: Mapping[str, tuple[_Column, ...]]
    labels: Mapping[str, _Column]
    degrees: Mapping[str, float]
    """Links per row, where a table has links."""
    least: int = _LEAST
    is_given: bool = False
    """Whether rows are matched by another tool."""

    @classmethod
    def of(
        cls,
        plan: RunPlan,
        method: Method,
        tables: Mapping[str, PartyTable],
        columns: Mapping[str, Sequence[str]],
        shared_rows: int | None,
        classes: int | None,
    ) -> tuple[World, list[str]]:
        """Describe the tables that are here, and the others by what the user says; return also what that assumes."""
        parties, lead = method.parties_with_rows(plan), method.leader_of(plan)
        absent, assumed = [party for party in parties if party not in tables], list[str]()
        _check_said(tables, [party for party in absent if party not in columns], shared_rows)
        if shared_rows is None and not absent:
            places = _places_here(plan, lead, {party: tables[party] for party in parties})
            groups = {group: len(next(iter(rows.values()))) for group, rows in places.items()}
        else:
            shared = min(table.rows for table in tables.values()) if shared_rows is None else shared_rows
            if shared_rows is None:
                assumed.append(
                    f"all {shared} rows of the smallest table that is here are shared (--shared-rows N says otherwise)"
                )
            if absent and tables:
                assumed.append(f"the table of {', '.join(absent)} has no more rows than are shared")
            rows = {party: tables[party].rows if party in tables else shared for party in parties}
            groups = _groups_said(lead, rows, shared, is_apart=method.stage(plan.stage).rows == "pairwise")
            places = {group: {party: np.arange(tables[party].rows) for party in group if party in tables} for group in groups}
        named, described, labels = set(_texts(plan.config)), {}, {}
        for party, table in tables.items():
            own = {group: by_party[party] for group, by_party in places.items() if party in by_party}
            described[party] = tuple(
                _Column.like(one, table.values(one), own, named, is_label=False) for one in table.feature_names
            )
            if table.labels is not None:
                labels[party] = _Column.like(str(table.label_column), table.labels, own, named, is_label=True)
        with_label = {role.name for role in method.roles if role.has_label}
        for party in absent:
            described[party] = tuple(_Column(name) for name in columns[party])
            if plan.role_of(party) in with_label:
                labels[party] = _label_said(plan, party, classes)
        degrees = {party: len(table.links) / table.rows for party, table in tables.items() if table.links is not None}
        least = _LEAST + 2 * int(plan.config.get("minimum_support", 0))
        return cls(groups, described, labels, degrees, least, plan.alignment.protocol == "given"), assumed

    @property
    def parties(self) -> tuple[str, ...]:
        """Return who has a table."""
        return tuple(self.columns)

    @property
    def least_rows(self) -> int:
        """Return how many rows a group needs so that what an encoder tells apart comes up in it."""
        every = [*self.labels.values(), *(one for columns in self.columns.values() for one in columns)]
        return self.least * max(min(_MANY, len(one.values)) + 1 for one in every)

    def scaled(self, ratio: float) -> World:
        """Return the same with a part of the rows."""
        return replace(self, groups={group: max(1, round(count * ratio)) for group, count in self.groups.items()})

    def tables(self, seed: int = 0, *, labelled: bool = True) -> dict[str, PartyTable]:
        """Draw the tables; those without labels are to be scored."""
        random = np.random.default_rng(seed)
        starts = dict(zip(self.groups, np.cumsum([0, *self.groups.values()]).tolist(), strict=False))
        traits = random.normal(size=sum(self.groups.values()))
        return {party: self._table(party, starts, traits, random, labelled=labelled) for party in self.parties}

    def _table(
        self, party: str, starts: Mapping[Group, int], traits: Any, random: np.random.Generator, *, labelled: bool
    ) -> PartyTable:
        own = {group: np.arange(starts[group], starts[group] + count) for group, count in self.groups.items()}
        own = {group: rows for group, rows in own.items() if party in group}
        label = self.labels.get(party) if labelled else None
        columns = (*self.columns[party], *(() if label is None else (label,)))
        rows = np.concatenate(list(own.values()))
        # The same for all of a row's prose, which may say how many choices there are and which of them was taken.
        texts = max((len(one.prose) for one in columns), default=0)
        alike = random.permutation(max(texts, len(rows)))[: len(rows)] % max(1, texts)
        frame = pd.DataFrame({_ID: rows})
        for one in columns:
            drawn = [one.draw(group, traits[places], random, self.least) for group, places in own.items()]
            frame[one.name] = [one.prose[row] for row in alike] if one.prose else [cell for part in drawn for cell in part]
        order = random.permutation(len(rows))
        shared = np.arange(starts[self.parties], starts[self.parties] + self.groups[self.parties]) if self.is_given else None
        return PartyTable(
            frame.iloc[order],
            id=_ID,
            label=None if label is None else label.name,
            types={one.name: "numeric" if one.is_numeric else "categorical" for one in self.columns[party]},
            matches=None if shared is None else pd.DataFrame({_ID: shared}),
            links=self._links(party, rows, random),
            unlabelled=True,
            name=party,
        )

    def _links(self, party: str, rows: Places, random: np.random.Generator) -> pd.DataFrame | None:
        if party not in self.degrees:
            return None
        count = max(1, round(self.degrees[party] * len(rows)))
        start, further = random.integers(0, len(rows), count), random.integers(1, len(rows), count)
        return pd.DataFrame({"from": rows[start], "to": rows[(start + further) % len(rows)]})


def _check_said(tables: Mapping[str, PartyTable], unknown: Sequence[str], shared_rows: int | None) -> None:
    if not tables and shared_rows is None:
        raise ConfigError(
            "No home of a party of this run is on this machine. Say --shared-rows N, and --columns PARTY=N for each "
            "party; or name the homes with --home PARTY=FOLDER."
        )
    if unknown:
        raise ConfigError(
            f"The table of {', '.join(unknown)} is not on this machine. Say how many columns it has, as in "
            f"--columns {unknown[0]}=20, or name its home with --home {unknown[0]}=FOLDER."
        )
    for party, table in tables.items():
        if shared_rows is not None and shared_rows > table.rows:
            raise ConfigError(f"--shared-rows {shared_rows} is more than the {table.rows} rows of '{party}'. Say fewer.")


def _places_here(plan: RunPlan, lead: str, tables: Mapping[str, PartyTable]) -> dict[Group, dict[str, Places]]:
    """Find each party's rows by who else has them."""
    seed, count = derive_seed(plan.seed, "alignment"), tables[lead].rows
    row_of = {party: np.full(count, -1) for party in tables} | {lead: np.arange(count)}
    for party, table in tables.items():
        if party != lead:
            pair = align_in_one_place({lead: tables[lead], party: table}, lead, plan.alignment, seed)
            row_of[party][pair[lead].positions] = pair[party].positions
    patterns, codes = np.unique(np.array([row_of[party] >= 0 for party in tables]), axis=1, return_inverse=True)
    found: dict[Group, dict[str, Places]] = {}
    for code, pattern in enumerate(patterns.T):
        group = tuple(party for party, has_it in zip(tables, pattern, strict=True) if has_it)
        found[group] = {party: row_of[party][codes.ravel() == code] for party in group}
    for party, table in tables.items():
        rest = np.setdiff1d(np.arange(table.rows), row_of[party])
        if len(rest):
            found[party,] = {party: rest}
    return found


def _groups_said(lead: str, rows: Mapping[str, int], shared: int, *, is_apart: bool) -> dict[Group, int]:
    """Let all parties share rows; or each of them others with the lead, where pairs share rows and it has as many."""
    others = [party for party in rows if party != lead]
    is_apart = is_apart and shared * len(others) <= rows[lead]
    groups = {tuple(one for one in rows if one in (lead, party)): shared for party in others}
    groups = groups if is_apart else {tuple(rows): shared}
    taken = {party: shared * (len(others) if is_apart and party == lead else 1) for party in rows}
    return groups | {(party,): count - taken[party] for party, count in rows.items() if count > taken[party]}


def _label_said(plan: RunPlan, party: str, classes: int | None) -> _Column:
    if classes is None:
        classes = {"binary": 2, "regression": 0}.get(str(plan.config.get("task")))
    if classes is None:
        raise ConfigError(
            f"The label of '{party}' is not on this machine. Say how many classes it has: --classes N, 0 for a number."
        )
    is_numeric = classes <= _FEW
    return _Column("label", is_numeric, values=tuple(range(classes)) if is_numeric else tuple(f"class {number}" for number in range(classes)))


def _divided(counts: Sequence[int], rows: int, least: int) -> list[int]:
    """Divide rows as the counts are, but so that what comes up comes up in a small table too."""
    wanted = np.array([max(one * rows / sum(counts), min(one, least, rows / len(counts))) for one in counts])
    bounds = np.rint(np.cumsum(wanted) * rows / wanted.sum()).astype(int)
    return [int(one) for one in np.diff(bounds, prepend=0)]


def _texts(value: Any) -> Iterator[str]:
    """Give every text in the settings: what they name is agreed, and so no secret."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        further = value.values() if isinstance(value, Mapping) else ()
        yield from (text for one in (*value, *further) for text in _texts(one))


def _other(number: int, value: Any, named: set[str]) -> Any:
    if isinstance(value, str):
        return value if value in named else f"v{number}".ljust(len(value), "x")
    return value if isinstance(value, bool) or f"{value:g}" in named else type(value)(number)


def _other_words(texts: npt.NDArray[Any]) -> Iterator[str | None]:
    """Give texts of as many other words; bars between items, and 0 and 1 where a choice is told, stay."""
    names = {"|": "|", "0": "0", "1": "1"}
    for text in texts:
        words = [] if text is None else text.split(" ")
        made = [names.setdefault(word, f"w{len(names)}".ljust(len(word), "x")) for word in words]
        yield None if text is None else " ".join(made)
