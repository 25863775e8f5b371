"""A method with settings to be checked, toy tables for its parties, and runs that several checks look at."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd

from colonnade.data import PartyTable
from colonnade.launch.run import Run
from colonnade.launch.simulation import Launch, simulate
from colonnade.methods import method_for
from colonnade.session import Method, Party, Policy, Session
from colonnade.testing.hostile import Heard, overheard

__all__ = [
    "TRANSPORTS",
    "Case",
    "heard_in",
    "heard_in_prediction",
    "new_tables",
    "once",
    "predict",
    "secret_of",
    "toy_tables",
    "train",
]

TRANSPORTS = ("memory", "grpc")

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A method's settings that are quick on the toy tables, and how many parties play each role."""

    name: str
    config: Any
    roles: Mapping[str, int]
    rows: int = 160
    learns: float = 0.8
    """The AUC the federated model must reach on the toy data's held-out rows; 0 where it is not asked to learn."""
    repeats_within: float = 0.0
    """How far two runs of one seed may be apart. Above 0 only where secret shares are rounded, and the page says so."""
    may_be_missing: tuple[str, ...] = ()
    """Messages that a run sends or not, depending on what it finds in the data."""
    draws_in_secret: bool = False
    """Whether noise or initial weights come from a secret of their party: then no two runs are alike."""
    without: tuple[str, ...] = ()
    """Columns that the tables lack: where categories stand in the settings, everybody knows them."""
    columns: Mapping[str, Callable[[Array, int], pd.DataFrame]] = field(default_factory=dict)
    """By role: what makes other columns of a party's four, given its place; those then explain nothing of the label."""
    tells_scores: bool = False
    """Whether other parties than the lead get scores of rows that only they know, and not predictions alone."""
    asks_all: bool = False
    """Whether rows that only one party knows are scored with the help of all others that hold rows."""

    @property
    def method(self) -> Method:
        """Return the method that the settings belong to."""
        return method_for(self.config)

    @property
    def parties(self) -> dict[str, tuple[str, ...]]:
        """Return party names by role."""
        return {role: tuple(f"{role}-{number}" for number in range(count)) for role, count in self.roles.items()}

    @property
    def beats_alone(self) -> bool:
        """Return whether it must be better than the label holder alone; on twenty rows, chance decides on secrets."""
        return self.learns > 0.0 and not self.draws_in_secret

    def __str__(self) -> str:
        return f"{type(self.config).__name__}: {self.name}"


def toy_tables(case: Case, *, with_label: bool = True) -> dict[str, PartyTable]:
    """Return one table per party whose role brings rows; only all columns together explain the label.

    Where one role's rows are scored without the others' columns, all columns follow the same hidden traits instead, as
    nothing could be transferred otherwise. Where rows that not all know are learned from, every party has some.

    Columns hold irrational-looking numbers, so that their bytes are recognisable wherever they turn up. One column of
    each party is text, one has missing values.
    """
    generator, rows = np.random.default_rng(3), case.rows
    without = {role.name for role in case.method.roles if not role.has_rows}
    with_rows = {role: parties for role, parties in case.parties.items() if role not in without}
    names = [name for parties in with_rows.values() for name in parties]
    centred = {name: generator.normal(size=(rows, 4)) for name in names}
    weights = np.array([1.0, -1.0, 0.5, 0.5])
    if case.method.predicting.rows == "own":
        traits = generator.normal(size=(rows, 4))
        centred = {name: traits @ generator.normal(size=(4, 4)) + 0.3 * block for name, block in centred.items()}
        signal = traits @ weights
    else:
        explaining = [name for role, parties in with_rows.items() if role not in case.columns for name in parties]
        signal = np.sum([centred[name] @ weights for name in explaining], axis=0)
    blocks = {name: block * 7.3 + 101.7 for name, block in centred.items()}
    tables: dict[str, PartyTable] = {}
    holding = {role.name for role in case.method.roles if role.has_label}
    for role, parties in with_rows.items():
        for place, name in enumerate(parties):
            frame = pd.DataFrame(blocks[name], columns=[f"c{i}" for i in range(4)])
            frame["kind"] = np.where(centred[name][:, 0] > 0, "canary-yellow", "canary-green")
            frame.loc[::9, "c3"] = np.nan
            frame = frame.drop(columns=list(case.without))
            if role in case.columns:
                frame = case.columns[role](blocks[name], place)
            frame["id"] = [f"row-{number}" for number in range(rows)]
            labelled = role in holding and with_label
            if labelled:
                frame["label"] = np.where(signal > 0, "label-canary-yes", "label-canary-no")
            if case.method.predicting.rows == "shared and rest":
                # Everybody lacks other rows, so that each party has rows that nobody else shares with all.
                frame = frame[np.arange(rows) % 5 != len(tables)]
            shuffled = frame.sample(frac=1, random_state=len(tables)).iloc[: rows - 4 * len(tables)]
            label, positive = ("label", "label-canary-yes") if labelled else (None, None)
            tables[name] = PartyTable(shuffled, id="id", label=label, positive=positive, name=name)
    return tables


def train(
    case: Case, transport: str = "memory", *, policies: Mapping[str, Policy] | None = None, **options: Any
) -> Run:
    """Carry out a run of the case over a transport."""
    options = {"seed": 5, "launch": Launch(transport=transport), **options}
    brought = _with_policies(toy_tables(case), policies)
    return simulate(options.pop("config", case.config), brought, roles=case.parties, **options)


def predict(case: Case, policies: Mapping[str, Policy] | None = None) -> pd.DataFrame:
    """Score the toy rows anew with the model of a run that other checks look at too."""
    return once(case).predict(_with_policies(new_tables(case), policies))


def new_tables(case: Case) -> dict[str, PartyTable]:
    """Return what parties bring to a prediction."""
    bringing = case.method.parties_with_rows(case.method.in_stage(once(case).plan, "predict"))
    return {party: table for party, table in toy_tables(case, with_label=False).items() if party in bringing}


def _with_policies(
    tables: Mapping[str, PartyTable], policies: Mapping[str, Policy] | None
) -> dict[str, PartyTable | Party]:
    given = {name: Party(tables.get(name), policy=policy) for name, policy in (policies or {}).items()}
    return {**tables, **given}


_KNOWN: dict[tuple[str, str], tuple[Run, list[Heard]]] = {}
_HEARD: dict[str, list[Heard]] = {}


def once(case: Case, transport: str = "memory") -> Run:
    """Return a run that other checks look at too; what its parties draw in secret is always the same."""
    return _once(case, transport)[0]


def heard_in(case: Case) -> list[Heard]:
    """Return one message of each kind that arrived at a party of each role in that run."""
    return _once(case, "memory")[1]


def heard_in_prediction(case: Case) -> list[Heard]:
    """Return one message of each kind that arrives while rows are scored by that run's model."""
    if repr(case) not in _HEARD:
        once(case)
        with overheard() as heard:
            predict(case)
        _HEARD[repr(case)] = heard
    return _HEARD[repr(case)]


def _once(case: Case, transport: str) -> tuple[Run, list[Heard]]:
    key = (repr(case), transport)
    if key not in _KNOWN:
        with patch.object(Session, "_durable_secret", secret_of), overheard() as heard:
            run = train(case, launch=Launch(transport=transport, keep_views=True), compare=True)
        _KNOWN[key] = (run, heard)
    return _KNOWN[key]


def secret_of(session: Session) -> bytes:
    """Return what stands for a party's secret where runs must be alike."""
    return hashlib.sha256(session.party.encode()).digest()
