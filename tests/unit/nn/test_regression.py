"""Losses and slopes of a linear score against autograd, and weights that learn from slopes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from colonnade.nn.regression import OwnWeights, loss_of, outputs_for, scores_of, slopes_of, targets_of

TASKS = ("binary", "multiclass", "regression")
ROWS, GROUPS, COLUMNS = 9, 4, 3


def world(task: str) -> tuple[torch.Tensor, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    classes = 3 if task == "multiclass" else 2
    outputs = outputs_for(task, classes)
    encoded = generator.normal(size=ROWS) if task == "regression" else generator.integers(0, classes, ROWS)
    mu, x = generator.normal(size=(ROWS, GROUPS)), generator.normal(size=(ROWS, COLUMNS))
    weights = generator.normal(size=(GROUPS + COLUMNS + 1, outputs))
    targets = targets_of(task, np.asarray(encoded, np.float64), classes)
    return torch.from_numpy(mu), x, weights, targets, np.asarray(encoded)


def autograd_loss(task: str, z: torch.Tensor, encoded: np.ndarray) -> torch.Tensor:
    labels = torch.from_numpy(encoded)
    if task == "binary":
        return functional.binary_cross_entropy_with_logits(z[:, 0], labels.double())
    if task == "multiclass":
        return functional.cross_entropy(z, labels.long())
    return functional.mse_loss(z[:, 0], labels) / 2


@pytest.mark.parametrize("task", TASKS)
def test_slopes_and_all_gradients_equal_autograd(task: str) -> None:
    """Check 1 of the sheet: delta, dW^C = mu' delta, dW^p = x' delta, db = sum delta and delta^C = delta W_t'."""
    mu, x, start, targets, encoded = world(task)
    mu.requires_grad_()
    weights = torch.from_numpy(start).requires_grad_()
    z = mu @ weights[:GROUPS] + torch.from_numpy(x) @ weights[GROUPS:-1] + weights[-1]
    z.retain_grad()
    loss = autograd_loss(task, z, encoded)
    loss.backward()
    logits = z.detach().numpy()
    delta = slopes_of(task, logits, targets)
    assert abs(loss_of(task, logits, targets) - loss.item()) <= 1e-12
    assert z.grad is not None
    assert np.abs(delta - z.grad.numpy()).max() <= 1e-12
    assert weights.grad is not None
    found = np.concatenate([mu.detach().numpy().T @ delta, x.T @ delta, delta.sum(axis=0, keepdims=True)])
    assert np.abs(found - weights.grad.numpy()).max() <= 1e-12
    assert mu.grad is not None
    assert np.abs(delta @ start[:GROUPS].T - mu.grad.numpy()).max() <= 1e-12


@pytest.mark.parametrize("task", TASKS)
def test_large_scores_stay_finite(task: str) -> None:
    outputs = outputs_for(task, 3)
    logits = np.tile(np.array([[800.0], [-800.0], [0.0]]), (1, outputs)) * np.linspace(1, 2, outputs)
    targets = targets_of(task, np.array([0.0, 1.0, 1.0]), 3)
    assert np.isfinite(loss_of(task, logits, targets))
    assert np.isfinite(slopes_of(task, logits, targets)).all()
    if task != "regression":
        assert ((scores_of(task, logits) >= 0) & (scores_of(task, logits) <= 1)).all()


def test_no_rows_have_no_slopes() -> None:
    assert slopes_of("binary", np.empty((0, 1)), np.empty((0, 1))).shape == (0, 1)


def test_own_weights_learn_as_torchs_gradient_descent_with_momentum_does() -> None:
    _, x, _, targets, encoded = world("binary")
    own = OwnWeights(COLUMNS, 1, momentum=0.9)
    weights = torch.zeros(COLUMNS, 1, dtype=torch.float64, requires_grad=True)
    intercept = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD(
        [{"params": [weights], "weight_decay": 0.01}, {"params": [intercept]}], lr=0.3, momentum=0.9
    )
    for _ in range(5):
        optimizer.zero_grad()
        autograd_loss("binary", torch.from_numpy(x) @ weights + intercept, encoded).backward()
        optimizer.step()
        own.learn(x, 0.3 * slopes_of("binary", own.logits(x), targets), 0.3 * 0.01)
    assert np.abs(own.coefficients - weights.detach().numpy()).max() < 1e-12
    assert np.abs(own.intercept - intercept.detach().numpy()).max() < 1e-12
    other = OwnWeights(COLUMNS, 1, momentum=0.9)
    other.load(own.tensors())
    for one in (own, other):
        one.learn(x, np.ones((ROWS, 1)), 0.0)
    assert (own.coefficients == other.coefficients).all(), "momentum is kept too"
    assert own.tensors()["velocity"].data_ptr() != own.tensors()["velocity"].data_ptr(), "copies"
