"""Federated equals central: the split network against one plain module trained in one place.

The reference shares nothing with the product but the agreed facts: which rows, in which order, which initial weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import torch
from tests.references import shared_rows, toy
from torch import nn

import colonnade as cn
from colonnade.nn import Heads, mlp
from colonnade.session import derive_seed
from colonnade.training import Inputs

BATCH, STEPS = 22, 20
SEED = 11


@dataclass
class Untrained:
    """What all parties bring to a training, in one place."""

    train: np.ndarray
    labels: np.ndarray
    targets: torch.Tensor
    features: dict[str, torch.Tensor]
    encoders: nn.ModuleDict
    head: nn.Module

    def batches(self, epochs: int) -> Iterator[np.ndarray]:
        for epoch in range(epochs):
            generator = np.random.Generator(np.random.PCG64(derive_seed(SEED, "batches", epoch)))
            shuffled = generator.permutation(self.train)
            for step in range(math.ceil(len(self.train) / BATCH)):
                yield shuffled[step * BATCH : (step + 1) * BATCH]

    def optimizer(self, config: cn.SplitNN, *modules: nn.Module) -> torch.optim.Optimizer:
        parameters = [one for module in modules for one in module.parameters()]
        return getattr(torch.optim, config.optimizer)(parameters, lr=config.learning_rate, **config.optimizer_options)

    def parameters(self) -> dict[str, torch.Tensor]:
        """Return the parameters by party and name."""
        found = {
            f"{name}/encoder.{key}": value
            for name, encoder in self.encoders.items()
            for key, value in encoder.state_dict().items()
        }
        return found | {f"bank/head.{key}": value for key, value in self.head.state_dict().items()}


def untrained(frames: dict[str, pd.DataFrame], config: cn.SplitNN, task: str) -> Untrained:
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
                dtype=torch.float64,
            )
            for name, values in features.items()
        }
    )
    cuts, seed = [config.cut_width] * len(features), derive_seed(SEED, "head/bank")
    head = Heads(cuts, config.head_hidden, outputs, members=config.members, seed=seed, dtype=torch.float64)
    return Untrained(train, labels, targets, features, encoders, head)


def central_reference(frames: dict[str, pd.DataFrame], config: cn.SplitNN, task: str) -> dict[str, torch.Tensor]:
    """Train all encoders and the head as one module with one optimizer."""
    model = untrained(frames, config, task)
    optimizer = model.optimizer(config, model.encoders, model.head)
    weights = None
    if config.class_weights == "balanced":
        counts = np.bincount(model.labels[model.train])
        weights = torch.tensor(len(model.train) / (len(counts) * counts))
    for rows in model.batches(config.epochs):
        cuts = [model.encoders[name](values[rows]) for name, values in model.features.items()]
        loss = members_loss(task, model.head(torch.cat(cuts, 1)), model.targets[rows], weights)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.parameters()


def delayed_reference(frames: dict[str, pd.DataFrame], config: cn.SplitNN) -> dict[str, torch.Tensor]:
    """Train where gradients reach the other parties late.

    Their codes were made with the weights of the time of sending; a gradient is applied to what the weights of the time
    of its arrival make of the same batch.
    """
    model = untrained(frames, config, "binary")
    others = [name for name in model.features if name != "bank"]
    optimizers = {name: model.optimizer(config, model.encoders[name]) for name in others}
    own = model.optimizer(config, model.encoders["bank"], model.head)
    under_way: list[tuple[np.ndarray, dict[str, torch.Tensor]]] = []
    per_epoch = math.ceil(len(model.train) / BATCH)
    for number, rows in enumerate(model.batches(config.epochs), 1):
        sent = {name: model.encoders[name](model.features[name][rows]).detach().requires_grad_() for name in others}
        result = model.head(torch.cat([model.encoders["bank"](model.features["bank"][rows]), *sent.values()], 1))
        loss = members_loss("binary", result, model.targets[rows], None)
        own.zero_grad()
        loss.backward()
        own.step()
        under_way.append((rows, {name: codes.grad for name, codes in sent.items()}))
        is_followed = number % per_epoch == 0 or number % config.checkpoint_every == 0
        while len(under_way) > (0 if is_followed else config.look_ahead):
            earlier, gradients = under_way.pop(0)
            for name in others:
                optimizers[name].zero_grad()
                model.encoders[name](model.features[name][earlier]).backward(gradients[name])
                optimizers[name].step()
    return model.parameters()


def members_loss(task: str, found: torch.Tensor, wanted: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    """Every member of the head learns by itself; the loss is the mean of theirs."""
    return sum(row_loss(task, one, wanted, weights) for one in found.unbind(1)) / found.shape[1]


def row_loss(task: str, result: torch.Tensor, wanted: torch.Tensor, weights: torch.Tensor | None) -> torch.Tensor:
    if task == "multiclass":
        return nn.functional.cross_entropy(result, wanted, weight=weights)
    if task == "regression":
        return ((result[:, 0] - wanted) ** 2).mean()
    row_weights = torch.ones(len(wanted)) if weights is None else weights[wanted]
    losses = nn.functional.binary_cross_entropy_with_logits(result[:, 0], wanted.double(), reduction="none")
    return (losses * row_weights).sum() / row_weights.sum()


def federated(frames: dict[str, pd.DataFrame], config: cn.SplitNN) -> tuple[dict[str, torch.Tensor], cn.Run]:
    tables = {
        name: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for name, frame in frames.items()
    }
    run = cn.simulate(config, tables, seed=SEED, evaluate=cn.Evaluate(stratify=False))
    parts = ((party, key, value) for party, part in run.parts.items() for key, value in part.tensors.items())
    return {f"{party}/{key}": value for party, key, value in parts if not key.startswith("alone.")}, run


def settings(**changes: object) -> cn.SplitNN:
    # 5 batches of at most 22 rows make an epoch of the 98 to 105 training rows; 4 epochs make 20 steps.
    base: dict[str, object] = {
        "hidden": (6,),
        "cut_width": 4,
        "members": 2,
        "head_hidden": (),
        "dropout": 0.0,
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
    assert not torch.equal(other.parts["bank"].tensors["head.weights.0"], first["bank/head.weights.0"])


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


@pytest.mark.parametrize("parties", [2, 3])
@pytest.mark.parametrize("look_ahead", [1, 2])
def test_batches_sent_ahead_match_training_with_late_gradients(look_ahead: int, parties: int) -> None:
    frames, config = toy("binary", parties), settings(look_ahead=look_ahead, checkpoint_every=4)
    expected, (found, _) = delayed_reference(frames, config), federated(frames, config)
    assert found.keys() == expected.keys()
    assert all(torch.allclose(found[name], value, rtol=0, atol=1e-9) for name, value in expected.items())
    central = central_reference(frames, config, "binary")
    assert not all(torch.allclose(found[name], value, rtol=0, atol=1e-4) for name, value in central.items())
