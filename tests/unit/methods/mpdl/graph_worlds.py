"""Two holders of one small graph, each with its own people and columns, and a collaborator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

import colonnade as cn

ROLES = {"label_holder": "b", "feature_holder": "a", "collaborator": "c"}
SMALL: dict[str, Any] = {
    "key_size": "insecure_test",
    "mechanism": "none",
    "bounds": {"*": (0.0, 1.0)},
    "folds": 0,
    "epochs": 4,
    "batch_size": 16,
    "precision": "float64",
    "secret_start": False,
}
EVALUATE = cn.Evaluate(validation_fraction=0.0, test_fraction=0.25, stratify=False)


def settings(**changes: Any) -> cn.MPDL:
    """Return settings with which a run takes less than a second."""
    return cn.MPDL(**SMALL | changes)


@dataclass(frozen=True)
class GraphWorld:
    """All of a graph in one place, and who knows what of it; people are numbered as a, b and both have them."""

    features: np.ndarray
    adjacency: np.ndarray
    labels: np.ndarray
    shared: np.ndarray
    b_only: np.ndarray
    a_only: np.ndarray
    a_columns: int
    common: int

    @property
    def ids(self) -> np.ndarray:
        return np.array([f"p{place:03d}" for place in range(len(self.features))])

    def owner(self, place: int) -> str:
        if place < self.a_columns:
            return "a"
        return "b" if place < self.features.shape[1] - self.common else "common"

    def names(self) -> list[str]:
        return [f"{self.owner(place)}{place:02d}" for place in range(self.features.shape[1])]

    def people(self, party: str) -> np.ndarray:
        return np.concatenate([self.shared, self.a_only if party == "a" else self.b_only])

    def columns(self, party: str) -> np.ndarray:
        return np.array([place for place, name in enumerate(self.names()) if name.startswith((party, "common"))])

    def table(self, party: str, **changes: Any) -> cn.PartyTable:
        people, columns = self.people(party), self.columns(party)
        frame = pd.DataFrame(self.features[np.ix_(people, columns)], columns=np.array(self.names())[columns])
        frame.insert(0, "id", self.ids[people])
        if party == "b":
            frame["y"] = self.labels[people]
        links = changes.pop("links", self.links(party))
        return cn.PartyTable(frame, id="id", label="y" if party == "b" else None, links=links, name=party, **changes)

    def links(self, party: str) -> pd.DataFrame:
        pairs = np.argwhere(np.triu(self.adjacency, 1))
        kept = pairs[np.isin(pairs, self.people(party)).all(axis=1)]
        return pd.DataFrame({"from": self.ids[kept[:, 0]], "to": self.ids[kept[:, 1]]})

    def tables(self) -> dict[str, cn.PartyTable]:
        return {party: self.table(party) for party in ("a", "b")}


def graph_world(
    *,
    shared: int = 48,
    b_only: int = 14,
    a_only: int = 12,
    a_columns: int = 5,
    b_columns: int = 4,
    common: int = 0,
    density: float = 0.12,
    seed: int = 3,
) -> GraphWorld:
    """Return a graph in which people of the same kind are linked more often, with features that tell the kind."""
    random = np.random.default_rng(seed)
    count, width = shared + b_only + a_only, a_columns + b_columns + common
    labels = random.integers(0, 2, count)
    features = np.clip(0.4 * random.random((count, width)) + 0.4 * labels[:, None] * random.random(width), 0.0, 1.0)
    chance = density * np.where(labels[:, None] == labels, 1.6, 0.4)
    upper = np.triu(random.random((count, count)) < chance, 1)
    places = np.split(np.arange(count), [shared, shared + b_only])
    return GraphWorld(features, upper | upper.T, labels, *places, a_columns, common)


def graph_run(world: GraphWorld, config: cn.MPDL, **further: Any) -> cn.Run:
    """Play the stage between threads."""
    tables = further.pop("tables", None) or world.tables()
    return cn.simulate(config, tables, roles=ROLES, stage="graph", seed=7, evaluate=EVALUATE, **further)
