"""A bank with labels, a shop and a telco that share a few customers with it, and what a run did step by step."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.parties import with_modules
from torch import nn

import colonnade as cn
from colonnade.methods.fedcvt import open_cut, sealed_cut
from colonnade.session import Session

SEED = 11
WEIGHT_BITS = 52
WIDTHS = {"bank": 5, "shop": 4, "telco": 3}
# 5 batches of 10 of the bank's own rows make an epoch; 4 epochs make 20 steps.
SMALL: dict[str, Any] = {
    "candidates": ("fedcvt",),
    "shared_width": 4,
    "unique_width": 4,
    "epochs": 4,
    "batch_size": 12,
    "own_batch_size": 10,
    "patience": 0,
    "gradient_clip": 0.0,
    "weight_decay": 0.0,
    "learning_rate": 0.02,
    "head_rate": 0.2,
    "precision": "float64",
    "key_size": "insecure_test",
    "secret_start": False,
}
EVERYTHING = cn.Evaluate(validation_fraction=0.0, test_fraction=0.2)


def settings(**changes: Any) -> cn.FedCVT:
    """Return settings with which a run takes a second."""
    return cn.FedCVT(**{**SMALL, **changes})


def frames(
    task: str = "multiclass",
    parties: int = 2,
    *,
    shared: int = 60,
    own: Mapping[str, int] | None = None,
    seed: int = 5,
    noise: float = 0.3,
) -> dict[str, pd.DataFrame]:
    """Return tables of customers whose traits all parties see; each has customers that nobody else has."""
    torch.set_num_threads(1)
    counts = {"bank": 50, "shop": 30, "telco": 24, **(own or {})}
    generator = np.random.default_rng(seed)
    mixing = {name: generator.normal(size=(3, width)) for name, width in WIDTHS.items()}
    traits = generator.normal(size=(shared + sum(counts.values()), 3))
    signal = traits @ [1.2, -1.0, 0.8] + 0.2 * generator.normal(size=len(traits))
    labels = {
        "binary": (signal > 0).astype(int),
        "multiclass": np.digitize(signal, [-0.8, 0.8]),
        "regression": signal * 4 + 2,
    }[task]
    found, start = {}, shared
    for place, name in enumerate(list(WIDTHS)[:parties]):
        rows = np.concatenate([np.arange(shared), np.arange(start, start + counts[name])])
        start += counts[name]
        values = traits[rows] @ mixing[name] + noise * generator.normal(size=(len(rows), WIDTHS[name]))
        frame = pd.DataFrame(values * 3 + 7, columns=[f"{name}{i}" for i in range(WIDTHS[name])]).assign(id=rows)
        if name == "bank":
            frame["y"] = labels[rows]
        found[name] = frame.sample(frac=1, random_state=place).reset_index(drop=True)
    return found


def tables_of(found: Mapping[str, pd.DataFrame], **options: Any) -> dict[str, cn.PartyTable]:
    return {
        name: cn.PartyTable(
            frame, id="id", label="y" if "y" in frame else None, name=name, **(options if "y" in frame else {})
        )
        for name, frame in found.items()
    }


def run_of(found: Mapping[str, pd.DataFrame], config: cn.FedCVT, **options: Any) -> cn.Run:
    brought = with_modules(tables_of(found), options.pop("modules", {}))
    return cn.simulate(config, brought, **{"seed": SEED, "evaluate": EVERYTHING, **options})


def cut_at(patch: pytest.MonkeyPatch, party: str, step: int) -> None:
    """Let a party fail in a step."""
    original = Session.next_step

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step == step:
            raise ZeroDivisionError

    patch.setattr(Session, "next_step", next_step)


def fixed_secret(patch: pytest.MonkeyPatch) -> None:
    """Give every run the same secret, which would otherwise be drawn anew in every folder."""
    patch.setattr(Session, "_durable_secret", lambda session: b"tests/fedcvt" + bytes(20))


@dataclass
class Watched:
    """What a run began with and did: networks as they were drawn, rows of every step, outputs at the end."""

    encoders: dict[str, nn.ModuleDict] = field(default_factory=dict)
    heads: nn.Module | None = None
    features: dict[str, torch.Tensor] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    targets: torch.Tensor = field(default_factory=lambda: torch.zeros(0))
    steps: dict[str, list[tuple[np.ndarray, np.ndarray]]] = field(default_factory=dict)
    shares: dict[str, Any] = field(default_factory=dict)
    outputs: dict[str, dict[str, tuple[torch.Tensor, torch.Tensor]]] = field(default_factory=dict)
    sides: dict[str, Any] = field(default_factory=dict)

    @property
    def parties(self) -> list[str]:
        return [name for name in WIDTHS if name in self.features]

    def begin(self, side: Any) -> None:
        party = side._session.party
        self.encoders[party] = copy.deepcopy(side._encoders)
        self.features[party], self.tables[party], self.steps[party] = side._table.features, side._table, []
        self.sides[party] = side
        if hasattr(side, "_labels"):
            self.targets = side._labels.targets
            self.heads = copy.deepcopy(getattr(side, "heads", None) or side._heads)


@contextmanager
def watched(name: str = "fedcvt") -> Iterator[Watched]:
    """Watch one candidate's training."""
    found = Watched()
    kinds = (
        open_cut.OpenPartnerSide,
        open_cut.OpenLabelSide,
        sealed_cut.SealedPartnerSide,
        sealed_cut.SealedLabelSide,
    )
    with pytest.MonkeyPatch.context() as patch:
        for kind in kinds:
            _watch(patch, kind, found, name)
        yield found


def _watch(patch: pytest.MonkeyPatch, kind: Any, found: Watched, name: str) -> None:
    begin, open_, step, finish = kind.__init__, kind.open, kind.step, kind.finish

    def begun(side: Any, *arguments: Any, **named: Any) -> None:
        begin(side, *arguments, **named)
        if side._variant.name == name and side._session.stage == "train":
            found.begin(side)

    def opened(side: Any) -> None:
        open_(side)
        if side._variant.name == name:
            held = side.owner.state() if hasattr(side, "owner") else [one.state() for one in _partners(side)]
            found.shares[side._session.party] = copy.deepcopy(held)

    def stepped(side: Any, shared: Any, own: Any, *rest: Any) -> Any:
        if side._variant.name == name:
            found.steps[side._session.party].append((np.array(shared), np.array(own)))
        return step(side, shared, own, *rest)

    def finished(side: Any) -> Any:
        outputs = finish(side)
        if outputs is not None and side._variant.name == name:
            found.outputs = outputs
        return outputs

    for field_name, function in (("__init__", begun), ("open", opened), ("step", stepped), ("finish", finished)):
        patch.setattr(kind, field_name, function)


def _partners(side: Any) -> list[Any]:
    return list(getattr(side, "partners", []))


def whole_weights(owner: Any, partner: Any, outputs: int) -> list[np.ndarray]:
    """Return weights by kind of code, which take both sides' shares to know."""
    return [
        np.array([(int(a) + int(b)) / 2**WEIGHT_BITS for a, b in zip(one["share"], two["share"], strict=True)]).reshape(
            -1, outputs
        )
        for one, two in zip(owner, partner, strict=True)
    ]
