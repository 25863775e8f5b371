"""Tables and adversaries for tests of secure regression."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.decomposition import FastICA

import colonnade as cn
from colonnade.methods.secure_lr import train
from colonnade.nn.regression import Whitening
from colonnade.session import ModelPart
from colonnade.training import Inputs, JoinedRegression


def frames(rows: int = 400, seed: int = 0) -> dict[str, pd.DataFrame]:
    """Return a bank's table with the label, and a shop's of rank 7: two categories and two numbers."""
    draw = np.random.default_rng(seed)
    own = draw.normal(size=(rows, 3))
    numbers = draw.normal(size=(rows, 2))
    region = draw.choice(["north", "south", "east", "west"], rows, p=[0.4, 0.3, 0.2, 0.1])
    tier = draw.choice(["gold", "silver", "none"], rows, p=[0.15, 0.35, 0.5])
    score = own @ [1.0, -0.5, 0.3] + numbers @ [0.8, -0.6] + (region == "south") - (region == "west") + (tier == "gold")
    label = (score + draw.logistic(size=rows) > 0).astype(int)
    return {
        "bank": pd.DataFrame(own, columns=["b0", "b1", "b2"]).assign(id=np.arange(rows), y=label),
        "shop": pd.DataFrame(numbers, columns=["s0", "s1"]).assign(id=np.arange(rows), region=region, tier=tier),
    }


def tables(found: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {name: cn.PartyTable(frame, id="id", label="y" if name == "bank" else None) for name, frame in found.items()}


@contextmanager
def seen_contributions() -> Iterator[list[np.ndarray]]:
    """Keep what the label holder gets in each epoch: the partner's part of the scores of all rows."""
    seen: list[np.ndarray] = []
    gather = train.gather_scores

    def kept(peers: Any, count: int, scores: int) -> np.ndarray:
        found = gather(peers, count, scores)
        seen.append(found[0])
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train, "gather_scores", kept)
        yield seen


def encode_otherwise(monkeypatch: pytest.MonkeyPatch, value: float = 1.0) -> None:
    """Let the shop keep every category, not whiten its columns, and give those of one row a value."""

    def fit(columns: np.ndarray, minimum_support: int) -> Whitening:
        scale = np.where((columns > 0).sum(axis=0) == 1, value, 1.0)
        return Whitening(np.zeros(columns.shape[1]), np.diag(scale))

    monkeypatch.setattr(train.Whitening, "fit", fit)
    of = Inputs.of
    monkeypatch.setattr(train.Inputs, "of", lambda holding, minimum_support=0: of(holding))


@contextmanager
def steps_at_random() -> Iterator[None]:
    """Let the label holder send slopes at random, and forget those before, so that every opening is another one."""
    draw, fit = np.random.default_rng(0), JoinedRegression.fit

    def otherwise(regression: JoinedRegression, added: Any) -> Any:
        factors = fit(regression, added)
        regression.residuals = draw.normal(size=regression.residuals.shape)
        return [np.zeros_like(one) for one in factors]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JoinedRegression, "fit", otherwise)
        yield


def sums_by_name(part: ModelPart) -> dict[str, float]:
    """Return what a feature holder knows of the labels by each of its encoded columns: what all epochs say together."""
    found = (part.tensors["directions"] @ part.tensors["weights"]).sum(dim=1).tolist()
    return dict(zip(part.document["coefficients"], found, strict=True))


def two_valued(contributed: np.ndarray, starts: int) -> list[np.ndarray]:
    """Find two-valued vectors in the span of contributions (rows x contributions) and a constant, knowing no row.

    Independent components, and so many random directions, are cut at two levels and projected on the span until nothing
    is left over.
    """
    constant = np.ones((len(contributed), 1)) / np.sqrt(len(contributed))
    scaled = np.hstack([contributed / np.linalg.norm(contributed, 2), constant])
    span, sizes, _ = np.linalg.svd(scaled, full_matrices=False)
    span = span[:, sizes > 1e-7 * sizes[0]]
    candidates = list((span @ np.random.default_rng(0).normal(size=(span.shape[1], starts))).T)
    for trial in range(6):
        for shape in ("cube", "logcosh"):
            ica = FastICA(span.shape[1] - 1, fun=shape, max_iter=300, tol=1e-4, random_state=trial)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                candidates += list(ica.fit_transform(span - span.mean(0)).T)
    found = {}
    for candidate in candidates:
        vector = _settled(candidate, span)
        if vector is not None:
            found[vector.tobytes()] = vector
    return list(found.values())


def _settled(vector: np.ndarray, span: np.ndarray) -> np.ndarray | None:
    before = None
    for _ in range(60):
        upper = _cut(vector)
        # What was cut like this before is projected to the same again.
        if upper is None or (before is not None and (upper == before).all()):
            return None
        vector, before = span @ (span.T @ upper), upper
        if np.allclose(vector, upper, atol=1e-3):
            return upper if upper.mean() <= 0.5 else ~upper
    return None


def _cut(vector: np.ndarray) -> np.ndarray | None:
    """Return which elements are nearer to the upper of two levels, unless all but one are on one side."""
    level, upper = (np.quantile(vector, 0.02) + np.quantile(vector, 0.98)) / 2, None
    for _ in range(21):
        before, upper = upper, vector > level
        if before is not None and (upper == before).all():
            break
        if not 1 < upper.sum() < len(upper) - 1:
            return None
        level = (vector[upper].mean() + vector[~upper].mean()) / 2
    return upper


def columns_found(contributed: np.ndarray, columns: np.ndarray, starts: int = 0) -> int:
    """Count the two-valued columns that the attack finds exactly."""
    found = two_valued(contributed, starts)
    two = [column == column.max() for column in columns.T if len(np.unique(column)) == 2]
    return sum(any((one == true).all() or (one == ~true).all() for one in found) for true in two)
