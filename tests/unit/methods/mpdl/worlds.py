"""A bank with labels, a shop and a telco that share customers with it, a helper without a table, and what they did."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import colonnade as cn
from colonnade.methods.mpdl import METHOD, dual, train
from colonnade.session import Channel, Session

SEED = 11
WIDTHS = {"bank": 4, "shop": 3, "telco": 2}
LOW, HIGH = -30.0, 50.0
SMALL: dict[str, Any] = {
    "bounds": {"*": (LOW, HIGH)},
    "mechanism": "cell_ldp",
    "epsilon": 20.0,
    "folds": 0,
    "hidden": 5,
    "epochs": 2,
    "batch_size": 16,
    "generator_epochs": 3,
    "precision": "float64",
    "key_size": "insecure_test",
    "secret_start": False,
}
TESTED = cn.Evaluate(validation_fraction=0.0, test_fraction=0.2)
COMPARED = cn.Evaluate(validation_fraction=0.2, test_fraction=0.2)


def settings(**changes: Any) -> cn.MPDL:
    """Return settings with which a run takes a second."""
    return cn.MPDL(**{**SMALL, **changes})


def roles_of(parties: int = 2) -> dict[str, Any]:
    """Return who plays what; the helper has no table."""
    others = tuple(list(WIDTHS)[1:parties])
    return {"label_holder": "bank", "feature_holder": others, "collaborator": "helper"}


def frames(
    task: str = "binary",
    parties: int = 2,
    *,
    shared: int = 40,
    own: Mapping[str, int] | None = None,
    seed: int = 5,
    noise: float = 0.3,
    common: int = 0,
    missing: bool = False,
) -> dict[str, pd.DataFrame]:
    """Return tables of customers whose traits all parties see; each has customers that nobody else has."""
    torch.set_num_threads(1)
    counts = {"bank": 30, "shop": 12, "telco": 9, **(own or {})}
    generator = np.random.default_rng(seed)
    mixing = {name: generator.normal(size=(3, width)) for name, width in WIDTHS.items()}
    mixed = generator.normal(size=(3, common))
    traits = generator.normal(size=(shared + sum(counts.values()), 3))
    signal = traits @ [1.2, -1.0, 0.8] + 0.2 * generator.normal(size=len(traits))
    labels = {
        "binary": (signal > 0).astype(int),
        "multiclass": np.digitize(signal, [-0.8, 0.8]),
        "regression": signal * 4 + 2,
    }[task]
    everywhere = traits @ mixed * 3 + 7
    found, start = {}, shared
    for place, name in enumerate(list(WIDTHS)[:parties]):
        rows = np.concatenate([np.arange(shared), np.arange(start, start + counts[name])])
        start += counts[name]
        values = traits[rows] @ mixing[name] + noise * generator.normal(size=(len(rows), WIDTHS[name]))
        frame = pd.DataFrame(values * 3 + 7, columns=[f"{name}{i}" for i in range(WIDTHS[name])])
        for one in range(common):
            frame[f"common{one}"] = everywhere[rows, one]
        if missing:
            frame.iloc[::7, 0] = np.nan
        frame["id"] = rows
        if name == "bank":
            frame["y"] = labels[rows]
        found[name] = frame.sample(frac=1, random_state=place).reset_index(drop=True)
    return found


def pictures(shared: int = 24, own: int = 14, size: int = 6, seed: int = 3) -> dict[str, pd.DataFrame]:
    """Return pictures of which the bank sees the left half, and the shop the right."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    count = shared + 2 * own
    labels = generator.integers(0, 3, count)
    grid = generator.uniform(0, 0.4, size=(count, size, size))
    for row, label in enumerate(labels):
        grid[row, 2 * label : 2 * label + 2] += 0.5
    flat = grid.reshape(count, -1)
    left = [place for place in range(size * size) if place % size < size // 2]
    right = [place for place in range(size * size) if place % size >= size // 2]
    found = {}
    for name, columns, rows in (
        ("bank", left, np.arange(shared + own)),
        ("shop", right, np.concatenate([np.arange(shared), np.arange(shared + own, count)])),
    ):
        frame = pd.DataFrame(flat[rows][:, columns], columns=[f"p_{place}" for place in columns]).assign(id=rows)
        if name == "bank":
            frame["y"] = labels[rows]
        found[name] = frame.sample(frac=1, random_state=len(found)).reset_index(drop=True)
    return found


def tables_of(found: Mapping[str, pd.DataFrame], **options: Any) -> dict[str, cn.PartyTable]:
    """Return the tables of all parties that have one."""
    return {
        name: cn.PartyTable(
            frame, id="id", label="y" if "y" in frame else None, name=name, **(options if "y" in frame else {})
        )
        for name, frame in found.items()
    }


def run_of(found: Mapping[str, pd.DataFrame], config: cn.MPDL, **options: Any) -> cn.Run:
    """Carry out a run of the method."""
    options = {"seed": SEED, "evaluate": TESTED, "roles": roles_of(len(found)), **options}
    return cn.simulate(config, tables_of(found), **options)


def cut_at(patch: pytest.MonkeyPatch, party: str, step: int) -> None:
    """Let a party fail in a step."""
    original = Session.next_step

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step == step:
            raise ZeroDivisionError

    patch.setattr(Session, "next_step", next_step)


Heard = list[tuple[str, str, Any]]
"""Receiver, sender and message."""


@contextmanager
def overheard() -> Iterator[Heard]:
    """Note every message of the method that anybody receives."""
    found: Heard = []
    receive = Channel.receive
    known = {one.cls for one in METHOD.declarations}

    def heard(channel: Channel, kind: Any, **shapes: Any) -> Any:
        message = receive(channel, kind, **shapes)
        if kind in known:
            found.append((channel.party, channel.peer, message))
        return message

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Channel, "receive", heard)
        yield found


def fixed_secret(patch: pytest.MonkeyPatch) -> None:
    """Give every run the same secrets, whatever its settings, so that runs differ in nothing but those."""

    def secret(session: Session, purpose: str) -> bytes:
        return hashlib.sha256(f"{session.party}/{purpose}".encode()).digest()

    patch.setattr(Session, "secret", secret)


@dataclass
class Training:
    """One classifier at one party: what it began and ended with, and the order of rows in every epoch."""

    begun: dict[str, torch.Tensor]
    orders: list[np.ndarray] = field(default_factory=list)
    ended: dict[str, torch.Tensor] = field(default_factory=dict)


@dataclass
class Watched:
    """What a run began with and did; facts only, nothing that the method computed."""

    tables: dict[str, Any] = field(default_factory=dict)
    generators: dict[str, nn.Module] = field(default_factory=dict)
    """By party and how often it began anew: the generator as it was drawn."""
    lessons: dict[str, list[tuple[str, np.ndarray]]] = field(default_factory=dict)
    """By party: which shared rows a generator learned from, and the name of that."""
    steps: dict[tuple[str, str], list[torch.Tensor]] = field(default_factory=dict)
    """By party and lesson: the rows of every step."""
    learned: dict[tuple[str, str], dict[str, torch.Tensor]] = field(default_factory=dict)
    """By party and lesson: the generator after it."""
    trainings: dict[tuple[str, str], Training] = field(default_factory=dict)
    """By party and name."""


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch all trainings of a run."""
    found = Watched()
    own_table, train_central, learn = train.own_table, train.train_central, dual.DualLearning.learn

    def table(session: Any, *rest: Any) -> Any:
        found.tables[session.party] = own_table(session, *rest)
        return found.tables[session.party]

    def central(session: Any, course: Any, name: str, side: Any, *rest: Any) -> None:
        one = Training({key: value.clone() for key, value in side.learner.weights().items()})
        begin = side.begin_epoch

        def begin_epoch(order: np.ndarray) -> None:
            one.orders.append(order.copy())
            begin(order)

        side.begin_epoch = begin_epoch
        train_central(session, course, name, side, *rest)
        one.ended = {key: value.clone() for key, value in side.learner.weights().items()}
        found.trainings[session.party, name] = one

    def learned(self: Any, rows: np.ndarray, name: str, counter: int) -> Any:
        party = self._session.party
        self._lesson = name
        found.lessons.setdefault(party, []).append((name, np.array(rows)))
        if party not in found.generators and hasattr(self.generator, "network"):
            found.generators[party] = copy.deepcopy(self.generator.network)
        generator = learn(self, rows, name, counter)
        found.learned[party, name] = {key: value.clone() for key, value in generator.tensors().items()}
        return generator

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "own_table", table)
        patch.setattr(train, "train_central", central)
        patch.setattr(dual.DualLearning, "learn", learned)
        for kind in (dual._Released, dual._Interactive):
            _watch_steps(patch, kind, found)
        yield found


def _watch_steps(patch: pytest.MonkeyPatch, kind: Any, found: Watched) -> None:
    call = kind.__call__

    def called(self: Any, rows: torch.Tensor) -> None:
        found.steps.setdefault((self._dual._session.party, self._dual._lesson), []).append(rows.clone())
        call(self, rows)

    patch.setattr(kind, "__call__", called)
