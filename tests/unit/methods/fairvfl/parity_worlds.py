"""A bank with labels, three parties with columns, two with a sensitive one each, a helper, and what they began with."""

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
from colonnade.exchanges.epochs import Epochs
from colonnade.methods.fairvfl import train

SEED = 11
CODERS = ("cinema", "shop", "telco")
OWNERS = ("registry", "census")
SMALL: dict[str, Any] = {
    "attributes": ("gender", "age"),
    "label_epsilon": None,
    "code_noise": 0.0,
    "protected_noise": 0.0,
    "embedding": 3,
    "bins": 5,
    "width": 8,
    "heads": 2,
    "pooling_hidden": 5,
    "code_width": 4,
    "protected_width": 3,
    "task_hidden": (10, 8),
    "mapper_hidden": (7, 6),
    "contrastive_hidden": (6, 5),
    "discriminator_hidden": (5,),
    "nearest": 4,
    "learning_rate": 5e-3,
    "dropout": 0.0,
    "batch_size": 16,
    "epochs": 5,
    "precision": "float64",
    "secret_start": False,
    "key_size": "insecure_test",
}
TESTED = cn.Evaluate(validation_fraction=0.0, test_fraction=0.2)


def settings(**changes: Any) -> cn.FairVFL:
    """Return settings of small networks, without any noise."""
    return cn.FairVFL(**{**SMALL, **changes})


def frames(task: str = "binary", *, rows: int = 74, age: str = "classes", seed: int = 5) -> dict[str, pd.DataFrame]:
    """Return everybody's table, each in an order of its own; some cells and some whole rows of a party are missing."""
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    traits = generator.normal(size=(rows, 4))
    signal = traits @ [1.2, -1.0, 0.8, 0.6] + 0.3 * generator.normal(size=rows)
    labels = {
        "binary": (signal > 0).astype(int),
        "multiclass": np.digitize(signal, [-0.8, 0.8]),
        "regression": signal * 4 + 2,
    }[task]
    gender = np.where(traits[:, 0] + 0.4 * generator.normal(size=rows) > 0, "f", "m").astype(object)
    years = 40 + 12 * traits[:, 1] + 3 * generator.normal(size=rows)
    ages = np.array(["young", "middle", "old"], object)[np.digitize(years, [33, 47])] if age == "classes" else years
    gender[3] = gender[50] = None
    ages[7] = None if age == "classes" else np.nan
    found = {"bank": pd.DataFrame({"y": labels})}
    for place, party in enumerate(CODERS):
        mixed = traits @ generator.normal(size=(4, 3)) + 0.3 * generator.normal(size=(rows, 3))
        words = np.array(["low", "mean", "high"], object)[np.digitize(mixed[:, 2], [-0.7, 0.7])]
        frame = pd.DataFrame({f"{party}0": mixed[:, 0], f"{party}1": mixed[:, 1], f"{party}2": words})
        frame.iloc[place::9, 0] = np.nan
        frame.iloc[place::11, 2] = None
        # This party knows nothing at all of some rows, and of one row nobody does.
        frame.iloc[place::13] = None
        frame.iloc[20] = None
        found[party] = frame.astype({f"{party}0": float, f"{party}1": float})
    found["registry"] = pd.DataFrame({"gender": gender})
    found["census"] = pd.DataFrame({"age": ages})
    for place, (party, frame) in enumerate(found.items()):
        found[party] = frame.assign(id=np.arange(rows)).sample(frac=1, random_state=place).reset_index(drop=True)
    return found


def roles_of(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return who plays what among those who are there; the helper has no table."""
    owners = tuple(party for party in OWNERS if party in found)
    several = {"attribute_holder": owners} if owners else {}
    return {"label_holder": "bank", "feature_holder": CODERS, "aggregator": "helper", **several}


def tables_of(found: Mapping[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    """Return the tables of all parties that have one."""
    return {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None, name=name)
        for name, frame in found.items()
    }


def run_of(found: Mapping[str, pd.DataFrame], config: cn.FairVFL, **options: Any) -> cn.Run:
    """Carry out a training."""
    options = {"seed": SEED, "evaluate": TESTED, "roles": roles_of(found), **options}
    return cn.simulate(config, tables_of(found), **options)


@dataclass
class Watched:
    """What a training began and ended with; facts only, nothing that was computed on the way."""

    begun: dict[str, dict[str, torch.Tensor]] = field(default_factory=dict)
    """By party: all weights as they were drawn."""
    holdings: dict[str, Any] = field(default_factory=dict)
    _learners: dict[str, Any] = field(default_factory=dict)

    @property
    def ended(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return by party all weights as they are now."""
        return {party: _weights(one) for party, one in self._learners.items()}


def _weights(trainee: Any) -> dict[str, torch.Tensor]:
    return {
        f"{name}/{key}": value.detach().clone()
        for name, learner in trainee._learners.items()
        if not name.startswith("ascent/")  # the mapper's weights once more
        for key, value in learner.weights().items()
    }


@contextmanager
def watched() -> Iterator[Watched]:
    """Watch a training."""
    found = Watched()
    begin, own_attributes = Epochs.begin, train.own_attributes

    def begun(session: Any, trainee: Any, *rest: Any) -> Epochs:
        found.begun[session.party] = _weights(trainee)
        found._learners[session.party] = trainee
        return begin(session, trainee, *rest)

    def attributes(session: Any, holding: Any, config: Any) -> Any:
        found.holdings[session.party] = holding
        return own_attributes(session, holding, config)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Epochs, "begin", begun)
        patch.setattr(train, "own_attributes", attributes)
        yield found
