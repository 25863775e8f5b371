"""A bank with labels, two shops with columns, a state and a bureau with sensitive ones, a server without a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade as cn
from colonnade.methods.fairvfl import METHOD
from colonnade.session import Channel, Scores

SEED = 11
ROLES: dict[str, Any] = {
    "label_holder": "bank",
    "feature_holder": ("one", "two"),
    "aggregator": "server",
    "attribute_holder": ("state", "bureau"),
}
SMALL: dict[str, Any] = {
    "attributes": ("gender", "age"),
    "epochs": 2,
    "batch_size": 16,
    "learning_rate": 0.01,
    "embedding": 4,
    "bins": 5,
    "width": 8,
    "heads": 2,
    "code_width": 4,
    "pooling_hidden": 4,
    "task_hidden": (6,),
    "mapper_hidden": (6,),
    "contrastive_hidden": (6,),
    "discriminator_hidden": (6,),
    "protected_width": 3,
    "dropout": 0.1,
    "attackers": 1,
    "secret_start": False,
    "key_size": "insecure_test",
}
# Nothing is removed to speak of, and the code is whole: as good as a plain model.
UNFAIR: dict[str, Any] = {"removal": "paper", "removal_weight": 1e-6, "epochs": 6, "attributes": ("gender",)}
TESTED = cn.Evaluate(validation_fraction=0.15, test_fraction=0.25)
WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta", "iota", "kappa")


def settings(**changes: Any) -> cn.FairVFL:
    """Return settings with which a run takes a second."""
    return cn.FairVFL(**{**SMALL, **changes})


def frames(task: str = "binary", rows: int = 80, seed: int = 5) -> dict[str, pd.DataFrame]:
    """Return tables of one set of customers; gender can be told from a column, age from none."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    gender = generator.integers(0, 2, rows)
    values = generator.normal(size=(rows, 5))
    values[:, 0] += 1.5 * gender
    signal = values[:, 0] - 0.7 + values[:, 1] - values[:, 3] + 0.2 * generator.normal(size=rows)
    labels = {
        "binary": np.where(signal > 0, "canary-yes", "canary-no"),
        "multiclass": np.array(["canary-low", "canary-middle", "canary-high"])[np.digitize(signal, [-0.8, 0.8])],
        "regression": signal * 4 + 2,
    }[task]
    found = {
        "bank": pd.DataFrame({"y": labels}),
        "one": pd.DataFrame({"a": values[:, 0] * 3 + 7, "b": values[:, 1] * 3 + 7}),
        "two": pd.DataFrame({"c": values[:, 2] * 3 + 7, "d": values[:, 3] * 3 + 7}),
        "state": pd.DataFrame({"gender": np.where(gender == 1, "canary-f", "canary-m")}),
        "bureau": pd.DataFrame({"age": generator.normal(size=rows) * 12.3 + 41.7}),
    }
    found["two"]["kind"] = np.where(values[:, 4] > 0, "canary-red", "canary-blue")
    return {
        name: frame.assign(id=[f"row-{number}" for number in range(rows)]).sample(frac=1, random_state=place)
        for place, (name, frame) in enumerate(found.items())
    }


def told_gender(rows: int = 600) -> dict[str, pd.DataFrame]:
    """Return tables without the bureau, in which the task cannot be done without gender."""
    found = {name: frame.sort_index() for name, frame in frames(rows=rows).items()}
    gender = found["state"]["gender"].to_numpy() == "canary-f"
    found["one"]["a"] = np.where(gender, 5.0, -5.0) + np.random.default_rng(1).normal(size=rows)
    found["bank"]["y"] = np.where(found["one"]["a"] + found["one"]["b"] > 7, "canary-yes", "canary-no")
    del found["bureau"]
    return found


def texts(rows: int = 48, seed: int = 3) -> dict[str, pd.DataFrame]:
    """Return what people read at two shops, and which of a few candidates they chose: one with a word they know."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    gender = generator.integers(0, 2, rows)
    taste = generator.integers(0, len(WORDS), rows)
    found: dict[str, list[Any]] = {"one": [], "two": [], "candidates": [], "clicks": []}
    for row in range(rows):
        for shop in ("one", "two"):
            items = [
                " ".join([WORDS[taste[row]], *generator.choice(WORDS, 2)]) for _ in range(generator.integers(1, 5))
            ]
            found[shop].append(" | ".join(items))
        count = int(generator.integers(2, 5))
        right = int(generator.integers(count))
        shown = [" ".join(generator.choice(WORDS, 2)) for _ in range(count)]
        shown[right] = f"{WORDS[taste[row]]} {shown[right]}"
        found["candidates"].append(" | ".join(shown))
        found["clicks"].append(" ".join("1" if place == right else "0" for place in range(count)))
    frames = {
        "bank": pd.DataFrame({"candidates": found["candidates"], "y": found["clicks"]}),
        "one": pd.DataFrame({"history": found["one"], "user": [f"user-{number % 9}" for number in range(rows)]}),
        "two": pd.DataFrame({"history": found["two"]}),
        "state": pd.DataFrame({"gender": np.where(gender == 1, "canary-f", "canary-m")}),
        "bureau": pd.DataFrame({"age": generator.normal(size=rows) * 12.3 + 41.7}),
    }
    return {
        name: frame.assign(id=[f"row-{number}" for number in range(rows)]).sample(frac=1, random_state=place)
        for place, (name, frame) in enumerate(frames.items())
    }


def by_id(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table in the order of its ids' numbers."""
    return frame.assign(id=frame["id"].str.removeprefix("row-").astype(int)).set_index("id").sort_index()


def tables_of(found: Mapping[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    """Return the tables of all parties that have one."""
    return {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None, name=name)
        for name, frame in found.items()
    }


def run_of(found: Mapping[str, pd.DataFrame], config: cn.FairVFL, **options: Any) -> cn.Run:
    """Carry out a run of the method by those parties that have a table, and the server."""
    own: dict[str, Any] = {
        role: tuple(party for party in ((named,) if isinstance(named, str) else named) if party in (*found, "server"))
        for role, named in ROLES.items()
    }
    options = {"seed": SEED, "evaluate": TESTED, "roles": {role: who for role, who in own.items() if who}, **options}
    return cn.simulate(config, tables_of(found), **options)


def scored(run: cn.Run, found: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Score rows without their labels, and without the holders of attributes."""
    kept = {name: frame.drop(columns="y", errors="ignore") for name, frame in found.items()}
    return run.predict(tables_of({name: kept[name] for name in ("bank", "one", "two") if name in kept}))


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


@dataclass
class Ended:
    """What the bank ended with: the ids of its shared rows in the agreed order, and scores of held-out ones."""

    ids: list[str] = field(default_factory=list)
    train: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)
    scores: Scores | None = None

    def values(self) -> dict[str, np.ndarray]:
        """Return the scores of held-out rows, by id."""
        assert self.scores is not None
        return {self.ids[row]: np.atleast_1d(value) for row, value in zip(*self._both(), strict=True)}

    def _both(self) -> tuple[np.ndarray, np.ndarray]:
        assert self.scores is not None
        return self.scores.rows, self.scores.values


@contextmanager
def watched(stage: str = "train") -> Iterator[Ended]:
    """Watch what the label holder of a stage ends with."""
    found = Ended()
    original = METHOD.stages[stage].roles["label_holder"]

    def label_holder(session: Any, holding: Any, config: Any) -> Any:
        result = original(session, holding, config)
        found.ids = [str(one) for one in holding.table.ids[holding.aligned.positions]]
        found.train = [found.ids[row] for row in holding.split.train]
        found.test = [found.ids[row] for row in holding.split.test]
        found.scores = result.scores
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHOD.stages[stage].roles, "label_holder", label_holder)
        yield found
