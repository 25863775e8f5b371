"""Encrypted equals plain: secure regression against ordinary gradient descent on the joined columns.

The reference shares nothing with the product but the agreed facts: which rows, in which batches and in which order.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from tests.references import shared_rows, toy

import colonnade as cn
from colonnade.session import derive_seed

BATCH, STEPS, SEED = 22, 20, 11
EXACT = {"momentum": 0.0, "l2": 0.0, "schedule": "constant"}


def central_reference(frames: dict[str, pd.DataFrame], config: cn.SecureLR, task: str) -> dict[str, np.ndarray]:
    """Run plain gradient descent in float64 and return the coefficients by party, and the intercept."""
    tables = {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()
    }
    aligned = shared_rows(tables, derive_seed(SEED, "alignment"))
    count = len(aligned["bank"])
    order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(count)
    train = np.sort(order[round(count * 0.2) + round(count * 0.1) :])
    blocks = {}
    for name, frame in frames.items():
        values = frame.drop(columns=["id", "y"], errors="ignore").to_numpy(float)[aligned[name]]
        blocks[name] = (values - values[train].mean(0)) / values[train].std(0) if values.shape[1] else values
    columns = np.hstack(list(blocks.values()))
    labels = frames["bank"]["y"].to_numpy()[aligned["bank"]]
    if task == "multiclass":
        targets = np.eye(len(np.unique(labels)))[labels]
    elif task == "binary":
        targets = labels.astype(float).reshape(-1, 1)
    else:
        targets = ((labels - labels[train].mean()) / labels[train].std()).reshape(-1, 1)

    weights, intercept = np.zeros((columns.shape[1], targets.shape[1])), np.zeros(targets.shape[1])
    speed, intercept_speed = np.zeros_like(weights), np.zeros_like(intercept)
    shuffled = np.random.Generator(np.random.PCG64(derive_seed(SEED, "batches"))).permutation(train)
    cut = [shuffled[start : start + BATCH] for start in range(0, len(shuffled), BATCH)]
    total, done = config.epochs * len(cut), 0
    for epoch in range(config.epochs):
        for number in np.random.default_rng(derive_seed(SEED, "order", epoch)).permutation(len(cut)):
            rows = cut[number]
            rate = config.learning_rate
            if config.schedule == "cosine":
                rate *= (1 + math.cos(math.pi * done / total)) / 2
            done += 1
            logits = columns[rows] @ weights + intercept
            if task == "binary":
                predicted = 1 / (1 + np.exp(-logits))
            elif task == "multiclass":
                predicted = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
            else:
                predicted = logits
            slopes = (predicted - targets[rows]) / len(rows)
            speed = config.momentum * speed + rate * (columns[rows].T @ slopes + config.l2 * weights)
            intercept_speed = config.momentum * intercept_speed + rate * slopes.sum(0)
            weights, intercept = weights - speed, intercept - intercept_speed
    edges = np.cumsum([block.shape[1] for block in blocks.values()])[:-1]
    return dict(zip(blocks, np.split(weights, edges), strict=True)) | {"intercept": intercept}


def federated(frames: dict[str, pd.DataFrame], config: cn.SecureLR) -> cn.Run:
    tables = {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()
    }
    return cn.simulate(config, tables, seed=SEED)


def settings(**changes: object) -> cn.SecureLR:
    # 5 batches of at most 22 rows make an epoch of the 98 to 105 training rows; 4 epochs make 20 steps.
    base = {"epochs": STEPS // 5, "batch_size": BATCH, "key_size": "insecure_test"}
    # Mathematics only: few columns, many epochs, nothing cut off and no noise.
    base |= {"allow_leak": True, "minimum_support": 0, "coefficient_noise": 0.0}
    return cn.SecureLR(**{**base, **changes})  # type: ignore[arg-type]


def largest_difference(run: cn.Run, expected: dict[str, np.ndarray]) -> float:
    found = {party: part.tensors["coefficients"].numpy() for party, part in run.parts.items()}
    found["intercept"] = run.parts["bank"].tensors["intercept"].numpy()
    assert found.keys() == expected.keys()
    return max(float(np.abs(found[name] - value).max(initial=0.0)) for name, value in expected.items())


CASES = [
    *[(task, parties, {}) for task in ("binary", "multiclass", "regression") for parties in (2, 3)],
    ("binary", 2, EXACT | {"learning_rate": 1.0}),
    ("multiclass", 3, EXACT),
    ("binary", 3, {"l2": 0.1, "momentum": 0.5, "schedule": "constant"}),
    ("binary", 2, {"key_size": 2048}),
]


@pytest.mark.parametrize(("task", "parties", "changes"), CASES, ids=str)
def test_every_coefficient_matches_plain_gradient_descent_after_20_batches(
    task: str, parties: int, changes: dict
) -> None:
    frames, config = toy(task, parties), settings(**changes)
    run = federated(frames, config)
    steps = [entry for entry in run.ledgers["bank"].messages() if entry.content["message"] == "MaskedGradient"]
    assert len(steps) == STEPS * (parties - 1)
    assert largest_difference(run, central_reference(frames, config, task)) < 1e-6


def test_a_label_holder_without_columns_matches_plain_gradient_descent() -> None:
    frames = toy("binary", 3, label_holder_has_columns=False)
    run = federated(frames, settings())
    assert largest_difference(run, central_reference(frames, settings(), "binary")) < 1e-6


def test_without_momentum_and_l2_the_model_repeats_bit_for_bit() -> None:
    frames, config = toy("binary", 3), settings(**EXACT)
    first, again = federated(frames, config), federated(frames, config)
    for party, part in first.parts.items():
        assert np.array_equal(part.tensors["coefficients"], again.parts[party].tensors["coefficients"])


def test_early_stopping_keeps_the_best_epochs_coefficients_at_every_party() -> None:
    frames = toy("binary", 2)
    long = settings(**EXACT, epochs=40, patience=2, learning_rate=2.0)
    run = federated(frames, long)
    losses = [line["validation_loss"] for line in run.history["bank"]]
    best = losses.index(min(losses))
    assert len(losses) == best + 3 < 40, "training goes on for exactly `patience` epochs after the best one"
    short = federated(frames, settings(**EXACT, epochs=best + 1, learning_rate=2.0))
    for party, part in run.parts.items():
        assert np.array_equal(part.tensors["coefficients"], short.parts[party].tensors["coefficients"])


def test_predictions_are_the_sigmoid_of_all_parties_sums() -> None:
    frames = toy("binary", 3)
    run = federated(frames, settings())
    tables = {name: cn.PartyTable(frame.drop(columns="y", errors="ignore"), id="id") for name, frame in frames.items()}
    scores = run.predict(tables).set_index("id")["score"]
    reference = central_reference(frames, settings(), "binary")
    shared = shared_rows(
        {name: cn.PartyTable(frame, id="id") for name, frame in frames.items()}, derive_seed(SEED, "alignment")
    )
    order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(len(shared["bank"]))
    train = order[round(len(order) * 0.2) + round(len(order) * 0.1) :]
    logits = np.zeros(len(shared["bank"])) + reference["intercept"]
    for name, frame in frames.items():
        values = frame.drop(columns=["id", "y"], errors="ignore").to_numpy()[shared[name]]
        logits += ((values - values[train].mean(0)) / values[train].std(0)) @ reference[name][:, 0]
    ids = frames["bank"]["id"].to_numpy()[shared["bank"]]
    assert np.allclose(scores.loc[ids], 1 / (1 + np.exp(-logits)), atol=1e-6)


def test_every_party_knows_the_names_of_its_own_coefficients_only() -> None:
    run = federated(toy("multiclass", 2), settings())
    assert list(run.parts["shop"].document["coefficients"]) == [f"shop{i}" for i in range(4)]
    assert list(run.parts["bank"].document["coefficients"]) == [f"bank{i}" for i in range(3)]
    assert all(len(row) == 3 for row in run.parts["shop"].document["coefficients"].values())
