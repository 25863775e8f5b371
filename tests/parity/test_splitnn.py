"""Federated equals central: the split network against one plain module trained in one place.

The reference shares nothing with the product but the agreed facts: which rows, in which order, which initial weights.
"""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch
from tests.references import shared_rows, toy
from torch import nn

import colonnade as cn
from colonnade.nn import mlp
from colonnade.session import derive_seed
from colonnade.training import Inputs

BATCH, STEPS = 22, 20
SEED = 11


def central_reference(frames: dict[str, pd.DataFrame], config: cn.SplitNN, task: str) -> dict[str, torch.Tensor]:
    """Train all encoders and the head as one module with one optimizer; return the parameters by party and name."""
    tables = {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()
    }
    aligned = shared_rows(tables, derive_seed(SEED, "alignment"))
    count = len(aligned["bank"])
    order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(count)
    train = np.sort(order[round(count * 0.2) + round(count * 0.1) :])

    features = {}
    for name, frame in frames.items():
        if len(frame.columns.drop(["id", "y"], errors="ignore")):
            positions = np.array(aligned[name])
            inputs = Inputs.fit(tables[name], positions[train], splines=True)
            features[name] = torch.from_numpy(inputs.transform(tables[name], positions, dtype=np.float64))
    labels = frames["bank"]["y"].to_numpy()[aligned["bank"]]
    if task == "regression":
        targets = torch.from_numpy((labels - labels[train].mean()) / labels[train].std())
    else:
        targets = torch.from_numpy(labels)
    outputs = len(np.unique(labels)) if task == "multiclass" else 1

    encoders = nn.ModuleDict(
        {
            name: mlp(
                (values.shape[1], *config.hidden, config.cut_width),
                seed=derive_seed(SEED, f"encoder/{name}"),
                activate_output=True,
                dtype=torch.float64,
            )
            for name, values in features.items()
        }
    )
    head = mlp(
        (config.cut_width * len(features), *config.head_hidden, outputs),
        seed=derive_seed(SEED, "head/bank"),
        dtype=torch.float64,
    )
    parameters = [*encoders.parameters(), *head.parameters()]
    optimizer = getattr(torch.optim, config.optimizer)(parameters, lr=config.learning_rate, **config.optimizer_options)

    weights = None
    if config.class_weights == "balanced":
        counts = np.bincount(labels[train])
        weights = torch.tensor(len(train) / (len(counts) * counts))
    steps_per_epoch = math.ceil(len(train) / BATCH)
    for epoch in range(config.epochs):
        shuffled = np.random.Generator(np.random.PCG64(derive_seed(SEED, "batches", epoch))).permutation(train)
        for step in range(steps_per_epoch):
            rows = shuffled[step * BATCH : (step + 1) * BATCH]
            cuts = [encoders[name](values[rows]) for name, values in features.items()]
            result = head(torch.cat(cuts, 1))
            wanted = targets[rows]
            if task == "binary":
                row_weights = torch.ones(len(rows)) if weights is None else weights[wanted]
                losses = nn.functional.binary_cross_entropy_with_logits(result[:, 0], wanted.double(), reduction="none")
                loss = (losses * row_weights).sum() / row_weights.sum()
            elif task == "multiclass":
                loss = nn.functional.cross_entropy(result, wanted, weight=weights)
            else:
                loss = ((result[:, 0] - wanted) ** 2).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    found = {
        f"{name}/encoder.{key}": v for name, encoder in encoders.items() for key, v in encoder.state_dict().items()
    }
    return found | {f"bank/head.{key}": value for key, value in head.state_dict().items()}


def federated(frames: dict[str, pd.DataFrame], config: cn.SplitNN) -> tuple[dict[str, torch.Tensor], cn.Run]:
    tables = {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()
    }
    run = cn.simulate(config, tables, seed=SEED)
    parts = ((party, key, value) for party, part in run.parts.items() for key, value in part.tensors.items())
    return {f"{party}/{key}": value for party, key, value in parts if not key.startswith("alone.")}, run


def settings(**changes: object) -> cn.SplitNN:
    # 5 batches of at most 22 rows make an epoch of the 98 to 105 training rows; 4 epochs make 20 steps.
    base: dict[str, object] = {
        "hidden": (6,),
        "cut_width": 4,
        "epochs": STEPS // 5,
        "batch_size": BATCH,
        "patience": 0,
        "learning_rate": 0.01,
        "precision": "float64",
        "secret_start": False,
        "minimum_steps": 0,
    }
    return cn.SplitNN(**{**base, **changes})  # type: ignore[arg-type]


CASES = [
    *[(task, parties, {}) for task in ("binary", "multiclass", "regression") for parties in (2, 3)],
    ("binary", 3, {"head_hidden": (5,)}),
    ("binary", 2, {"class_weights": "balanced"}),
    ("multiclass", 2, {"class_weights": "balanced", "optimizer": "AdamW", "optimizer_options": {"weight_decay": 0.1}}),
    ("regression", 3, {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}}),
    ("binary", 2, {"optimizer": "RMSprop"}),
]


@pytest.mark.parametrize(("task", "parties", "changes"), CASES, ids=str)
def test_every_parameter_matches_central_training_after_20_steps(task: str, parties: int, changes: dict) -> None:
    frames, config = toy(task, parties), settings(**changes)
    expected = central_reference(frames, config, task)
    found, run = federated(frames, config)

    steps = [entry for entry in run.ledgers["bank"].messages() if entry.content["message"] == "CutGradient"]
    assert len(steps) == STEPS * (parties - 1)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert torch.allclose(found[name], value, rtol=0, atol=1e-9), name


def test_a_label_holder_without_columns_matches_central_training() -> None:
    frames = toy("binary", 3, label_holder_has_columns=False)
    expected = central_reference(frames, settings(), "binary")
    found, _ = federated(frames, settings())
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], value, rtol=0, atol=1e-9) for name, value in expected.items())


@pytest.mark.parametrize("changes", [{}, {"dropout": 0.3}, {"precision": "float32"}], ids=str)
def test_the_same_seed_repeats_bit_for_bit_and_another_does_not(changes: dict) -> None:
    frames = toy("binary", 3)
    first, _ = federated(frames, settings(**changes))
    again, _ = federated(frames, settings(**changes))
    assert all(torch.equal(first[name], again[name]) for name in first)
    tables = {n: cn.PartyTable(f, id="id", label="y" if "y" in f else None) for n, f in frames.items()}
    other = cn.simulate(settings(**changes), tables, seed=SEED + 1)
    assert not torch.equal(other.parts["bank"].tensors["head.0.weight"], first["bank/head.0.weight"])


def test_early_stopping_keeps_the_best_epochs_weights_at_every_party() -> None:
    frames = toy("binary", 2)
    long = settings(epochs=60, patience=3, learning_rate=0.05)
    found, run = federated(frames, long)
    history = run.history["bank"]
    losses = [line["validation_loss"] for line in history]
    best = losses.index(min(losses))
    assert len(losses) == best + 4, "training goes on for exactly `patience` epochs after the best one"
    short = settings(epochs=best + 1, patience=0, learning_rate=0.05)
    expected, _ = federated(frames, short)
    assert all(torch.equal(found[name], expected[name]) for name in expected)
