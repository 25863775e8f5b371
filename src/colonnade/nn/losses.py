"""Losses of supervised heads, the same in every method."""

from __future__ import annotations

import numpy as np
import torch
from torch.nn import functional

__all__ = ["backpropagate", "balanced_weights", "loss_gradient", "row_losses", "supervised_loss"]


def supervised_loss(
    task: str, outputs: torch.Tensor, targets: torch.Tensor, class_weights: torch.Tensor | None = None
) -> torch.Tensor:
    """Return the mean loss of a batch: logistic, softmax cross-entropy or squared error.

    ``outputs`` has one column for binary and regression tasks and one per class otherwise. With class weights it is the
    weighted mean.
    """
    if task == "regression":
        return functional.mse_loss(outputs.squeeze(1), targets)
    if task == "multiclass":
        return functional.cross_entropy(outputs, targets, weight=class_weights)
    logits = outputs.squeeze(1)
    if class_weights is None:
        return functional.binary_cross_entropy_with_logits(logits, targets)
    weights = class_weights[targets.long()]
    losses = functional.binary_cross_entropy_with_logits(logits, targets, reduction="none")
    return (weights * losses).sum() / weights.sum()


def row_losses(task: str, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the loss of every row: logistic, softmax cross-entropy or squared error."""
    if task == "multiclass":
        return functional.cross_entropy(outputs, targets, reduction="none")
    if task == "regression":
        return (outputs.squeeze(1) - targets) ** 2
    return functional.binary_cross_entropy_with_logits(outputs.squeeze(1), targets, reduction="none")


def loss_gradient(task: str, outputs: torch.Tensor, targets: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the mean of `row_losses`, each times its weight, at the outputs.

    For a party that has labels but no layer of its own, to which a graph for going backwards would be of no use.
    """
    with torch.no_grad():
        if task == "multiclass":
            # Small, and on the way of all parties of a step: with numpy, threads of other parties interrupt less often.
            found = torch.softmax(outputs, dim=1).numpy()
            found[np.arange(len(targets)), targets.numpy()] -= 1.0
            found *= (weights.numpy() / len(targets))[:, None]
            return torch.from_numpy(found)
        shares = (weights / len(targets))[:, None]
        if task == "regression":
            return (outputs - targets[:, None]).mul_(2.0).mul_(shares)
        return (torch.sigmoid(outputs) - targets[:, None]).mul_(shares)


def balanced_weights(targets: torch.Tensor, classes: int) -> torch.Tensor:
    """Return weights that give every class the same say; a class without rows gets weight 0."""
    counts = torch.bincount(targets.long(), minlength=classes).double()
    return torch.where(counts > 0, len(targets) / (classes * counts), torch.zeros_like(counts))


def backpropagate(outputs: torch.Tensor, gradient: torch.Tensor) -> None:
    """Go on backwards from a gradient that was computed elsewhere, such as by a peer.

    The same as ``outputs.backward(gradient)``, to the bit; but that loads half a second of symbolic algebra first, so
    that this asks its engine directly.
    """
    engine = torch.autograd.Variable._execution_engine
    engine.run_backward((outputs,), (gradient,), False, False, (), allow_unreachable=True, accumulate_grad=True)
