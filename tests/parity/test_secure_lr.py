"""Encrypted equals plain: secure regression against the same steps on columns in one place.

The reference takes the agreed facts from the product: which rows, how columns are encoded and whitened, and the label
holder's own regression, which stops within about 1e-5. Shares, encryption, masks and messages it does without.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.references import shared_rows, toy

import colonnade as cn
from colonnade.data import LabelEncoder
from colonnade.nn.regression import Whitening, scores_of
from colonnade.session import derive_seed
from colonnade.training import Inputs, JoinedRegression

SEED = 11


def tables_of(frames: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()}


def rows_of(frames: dict[str, pd.DataFrame]) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return each party's places of the shared rows, and which of these train."""
    found = shared_rows(tables_of(frames), derive_seed(SEED, "alignment"))
    aligned = {name: np.array(places) for name, places in found.items()}
    count = len(aligned["bank"])
    order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(count)
    return aligned, np.sort(order[round(count * 0.2) + round(count * 0.1) :])


def reference(frames: dict[str, pd.DataFrame], epochs: int, task: str) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Return the weights of the feature holders' whitened columns, and the scores of all shared rows."""
    (aligned, train), tables = rows_of(frames), tables_of(frames)
    columns = {}
    for name, table in tables.items():
        has_columns = bool(table.columns)
        inputs = Inputs.fit(table, aligned[name][train]) if has_columns else None
        empty = np.empty((len(aligned[name]), 0))
        columns[name] = empty if inputs is None else inputs.transform(table, aligned[name], dtype=np.float64)
    own = columns.pop("bank")
    labels = frames["bank"]["y"].to_numpy()[aligned["bank"]]
    regression = JoinedRegression(LabelEncoder.fit(labels[train], task), own[train], labels[train])
    whitened = {name: Whitening.fit(one[train], 0).transform(one) for name, one in columns.items()}
    weights = {name: np.zeros((one.shape[1], 0)) for name, one in whitened.items()}
    for epoch in range(epochs):
        regression.fit([whitened[name][train] @ one for name, one in weights.items()] if epoch else [])
        slopes = regression.residuals @ regression.basis(regression.scores) / len(train)
        weights = {name: np.hstack([one, whitened[name][train].T @ slopes]) for name, one in weights.items()}
    added = [whitened[name] @ one for name, one in weights.items()]
    factors = regression.fit([one[train] for one in added])
    logits = own @ regression.coefficients + regression.intercept
    logits = logits + sum(one @ factor for one, factor in zip(added, factors, strict=True))
    return weights, scores_of(task, logits)


def federated(frames: dict[str, pd.DataFrame], **changes: Any) -> cn.Run:
    # Mathematics only: few columns, nothing left out and no noise.
    settings: dict[str, Any] = {"epochs": 3, "key_size": "insecure_test", "allow_leak": True}
    settings |= {"minimum_support": 0, "coefficient_noise": 0.0}
    evaluate = cn.Evaluate(stratify=False)
    return cn.simulate(cn.SecureLR(**settings | changes), tables_of(frames), seed=SEED, evaluate=evaluate)


CASES = [
    *[(task, parties, {}) for task in ("binary", "multiclass", "regression") for parties in (2, 3)],
    ("binary", 2, {"epochs": 1}),
    ("binary", 2, {"key_size": 2048, "epochs": 2}),
]


@pytest.mark.parametrize(("task", "parties", "changes"), CASES, ids=str)
def test_every_weight_matches_the_same_steps_in_plain(task: str, parties: int, changes: dict[str, Any]) -> None:
    frames = toy(task, parties)
    run = federated(frames, **changes)
    epochs = changes.get("epochs", 3)
    steps = [entry for entry in run.ledgers["bank"].messages() if entry.content["message"] == "MaskedSums"]
    assert len(steps) == epochs * (parties - 1)
    weights, _ = reference(frames, epochs, task)
    for party, expected in weights.items():
        assert np.abs(run.parts[party].tensors["weights"].numpy() - expected).max() < 2e-4


def test_a_label_holder_without_columns_matches_too() -> None:
    frames = toy("binary", 3, label_holder_has_columns=False)
    run, (weights, _) = federated(frames), reference(frames, 3, "binary")
    for party, expected in weights.items():
        assert np.abs(run.parts[party].tensors["weights"].numpy() - expected).max() < 2e-4


def test_the_model_repeats_bit_for_bit() -> None:
    frames = toy("binary", 3)
    first, again = federated(frames), federated(frames)
    for party, part in first.parts.items():
        assert all(np.array_equal(value, again.parts[party].tensors[name]) for name, value in part.tensors.items())


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_coefficients_by_name_are_what_contributions_are_made_of(task: str) -> None:
    """What a feature holder's columns add to the outputs follows from its named coefficients, up to a constant."""
    frames = toy(task, 2)
    run, table = federated(frames), tables_of(frames)["shop"]
    part = run.parts["shop"]
    columns = Inputs.from_json(part.document["inputs"]).transform(table, dtype=np.float64)
    named = np.array(list(run.coefficients["shop"].values()))
    mean, directions, weights = (part.tensors[name].numpy() for name in ("mean", "directions", "weights"))
    added = Whitening(mean, directions).transform(columns) @ weights @ part.tensors["factors"].numpy()
    assert list(run.coefficients["shop"]) == [f"shop{i}" for i in range(4)]
    assert list(run.coefficients["bank"]) == [f"bank{i}" for i in range(3)]
    if task == "multiclass":
        named = named[:, :-1] - named[:, -1:]
    assert np.allclose(added, (columns - mean) @ named, atol=1e-6)
