"""Losses, slopes and scores of linear scores, weights that learn from slopes, and whitening. No session here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

__all__ = ["Numbers", "OwnWeights", "Whitening", "loss_of", "outputs_for", "scores_of", "slopes_of", "targets_of"]

Numbers = npt.NDArray[np.float64]

LARGEST = 4.0
"""Whitened columns are cut off here."""
# A direction in which columns, in standard deviations, spread less carries nothing.
_LEAST_SPREAD = 1e-3
# Weak directions count as if so many rows more, in which they do not help, had been seen.
_PRIOR_ROWS = 300

_NAMES = ("coefficients", "intercept", "velocity", "intercept_velocity")


def outputs_for(task: str, classes: int) -> int:
    """Return how many logits a row has."""
    return classes if task == "multiclass" else 1


def targets_of(task: str, encoded: npt.NDArray[np.float64], classes: int) -> Numbers:
    """Return one column per logit: the class as 0 and 1, or the standardised number."""
    if task == "multiclass":
        return np.eye(classes)[encoded.astype(np.int64)]
    return encoded.astype(np.float64).reshape(-1, 1)


def loss_of(task: str, logits: Numbers, targets: Numbers) -> float:
    """Return the mean loss over rows: cross-entropy, or half the squared error."""
    if task == "binary":
        # log(1 + exp(z)) - y z, without overflow for either sign.
        return float(np.mean(np.logaddexp(0.0, logits) - targets * logits))
    if task == "multiclass":
        highest = logits.max(axis=1, keepdims=True)
        normaliser = highest + np.log(np.exp(logits - highest).sum(axis=1, keepdims=True))
        return float(np.mean((normaliser - logits)[targets > 0]))
    return float(np.mean((logits - targets) ** 2) / 2)


def slopes_of(task: str, logits: Numbers, targets: Numbers) -> Numbers:
    """Return the derivative of the mean loss at every logit."""
    predicted = scores_of(task, logits).reshape(logits.shape)
    return (predicted - targets) / max(len(logits), 1)


def scores_of(task: str, logits: Numbers) -> Numbers:
    """Return probabilities, or the logits themselves where numbers are predicted."""
    if task == "multiclass":
        raised = np.exp(logits - logits.max(axis=1, keepdims=True))
        return np.asarray(raised / raised.sum(axis=1, keepdims=True))
    values = logits[:, 0]
    if task == "regression":
        return values
    # exp of a negative number only, so that it cannot overflow.
    small = np.exp(-np.abs(values))
    return np.where(values >= 0, 1.0 / (1.0 + small), small / (1.0 + small))


class OwnWeights:
    """The label holder's own coefficients and intercept, learned in the clear by the same rule as the shared ones."""

    def __init__(self, inputs: int, outputs: int, momentum: float) -> None:
        self.coefficients, self.intercept = np.zeros((inputs, outputs)), np.zeros(outputs)
        self.velocity, self.intercept_velocity = np.zeros((inputs, outputs)), np.zeros(outputs)
        self._momentum = momentum

    def logits(self, features: Numbers) -> Numbers:
        """Return this party's part of the logits, intercept included."""
        return features @ self.coefficients + self.intercept

    def learn(self, features: Numbers, steps: Numbers, decay: float) -> None:
        """Take one step along slopes that are already multiplied with the learning rate, as is the decay."""
        self.velocity = self._momentum * self.velocity + features.T @ steps + decay * self.coefficients
        self.intercept_velocity = self._momentum * self.intercept_velocity + steps.sum(axis=0)
        self.coefficients = self.coefficients - self.velocity
        self.intercept = self.intercept - self.intercept_velocity

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return copies of everything, for a checkpoint."""
        return {name: torch.from_numpy(getattr(self, name).copy()) for name in _NAMES}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `tensors` returned."""
        for name in _NAMES:
            setattr(self, name, tensors[name].numpy().copy())


@dataclass(frozen=True)
class Whitening:
    """Turn columns into uncorrelated ones of about the same spread, so that few steps along a gradient reach far.

    Weak directions keep less spread, so that they learn less: about what a ridge penalty does. A direction that fewer
    than ``minimum_support`` rows make up, by (sum of squares)^2 / sum of fourth powers, is left out: its coefficient
    would tell of these rows. For a column of zeros and ones that is the number of the rarer ones.
    """

    mean: Numbers
    directions: Numbers

    @classmethod
    def fit(cls, columns: Numbers, minimum_support: int) -> Whitening:
        """Learn from training rows."""
        rows, mean = len(columns), columns.mean(axis=0)
        along, spreads, axes = np.linalg.svd((columns - mean) / np.sqrt(rows), full_matrices=False)
        support = 1.0 / np.maximum((along**4).sum(axis=0), 1e-300)
        # The sum of squares along a direction is 1.
        chosen = (spreads > _LEAST_SPREAD) & (support >= minimum_support)
        kept = np.sqrt(spreads[chosen] ** 2 + min(1.0, _PRIOR_ROWS / rows))
        return cls(mean, axes[chosen].T / kept)

    @property
    def width(self) -> int:
        """Count the directions: the rank of the columns, as far as it is kept."""
        return len(self.directions.T)

    def transform(self, columns: Numbers) -> Numbers:
        """Return rows in terms of the directions."""
        return np.clip((columns - self.mean) @ self.directions, -LARGEST, LARGEST)
