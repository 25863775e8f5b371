"""Small sources and targets, and what can be read out of their runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from tests.parties import with_modules
from tests.worlds import received

import colonnade as cn
from colonnade.crypto import PublicKey, ring_integers

SEED = 11
# References divide rows by the seed alone.
PLAIN_SPLIT = cn.Evaluate(stratify=False)
SMALL: dict[str, Any] = {
    "width": 3,
    "iterations": 4,
    "learning_rate": 0.1,
    "safeguard": False,
    "secret_start": False,
    "key_size": "insecure_test",
}


def settings(**changes: Any) -> cn.FTL:
    """Return settings with which a run takes a second."""
    return cn.FTL(**{**SMALL, **changes})


def frames(
    task: str = "binary",
    *,
    sources: int = 1,
    targets: int = 1,
    shared: int = 71,
    own: int = 20,
    columns: tuple[int, int] = (3, 4),
    seed: int = 5,
) -> dict[str, pd.DataFrame]:
    """Return tables of traits that both sides see: so many shared rows, and more that only one party has."""
    generator = np.random.default_rng(seed)
    parties = [*[f"bank{i}" for i in range(sources)], *[f"shop{i}" for i in range(targets)]]
    mixing = {party: generator.normal(size=(3, columns[party.startswith("shop")])) for party in parties}
    weights = generator.normal(size=3)
    found = {}
    traits = generator.normal(size=(shared, 3))
    for place, party in enumerate(parties):
        every = np.vstack([traits, generator.normal(size=(own, 3))])
        block = every @ mixing[party] + 0.5 * generator.normal(size=(len(every), columns[party.startswith("shop")]))
        frame = pd.DataFrame(block * 3 + 1, columns=[f"{party}_{i}" for i in range(block.shape[1])])
        frame["id"] = [*range(shared), *(10_000 * (place + 1) + np.arange(own))]
        if party.startswith("bank"):
            signal = every @ weights
            frame["y"] = {
                "binary": (signal > 0).astype(int),
                "multiclass": np.digitize(signal, [-0.7, 0.7]),
                "regression": signal * 4 + 2,
            }[task]
        found[party] = frame.sample(frac=1, random_state=place)
    return found


def tables_of(found: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None, name=name)
        for name, frame in found.items()
    }


def roles_of(parties: Sequence[str]) -> dict[str, tuple[str, ...]]:
    starts = {"source": "bank", "target": "shop"}
    return {role: tuple(one for one in parties if one.startswith(start)) for role, start in starts.items()}


def run_of(found: dict[str, pd.DataFrame], config: cn.FTL, **options: Any) -> cn.Run:
    brought = with_modules(tables_of(found), options.pop("modules", {}))
    return cn.simulate(
        config, brought, roles=roles_of(list(found)), **{"seed": SEED, "evaluate": PLAIN_SPLIT, **options}
    )


def parameters(run: cn.Run) -> dict[str, np.ndarray]:
    return {
        f"{party}: {name}": value.numpy() for party, part in run.parts.items() for name, value in part.tensors.items()
    }


def assert_same_parameters(first: cn.Run, second: cn.Run, within: float = 0.0) -> None:
    one, two = parameters(first), parameters(second)
    assert one.keys() == two.keys()
    for name, value in one.items():
        if within:
            assert np.abs(value - two[name]).max(initial=0.0) < within, name
        else:
            assert value.tobytes() == two[name].tobytes(), name


def modulus_of(run: cn.Run, owner: str) -> int:
    """Return a party's public key, as its partner received it."""
    other = next(party for party in run.plan.parties if run.plan.role_of(party) != run.plan.role_of(owner))
    (found,) = received(run, other, "PublicModulus", owner)
    return int(found.modulus)


def opened_integers(message: Any, modulus: int) -> list[int]:
    """Return the ring elements of an opened message."""
    values = message.values
    return [int(one) for one in ring_integers(values, PublicKey(modulus), len(values))]
