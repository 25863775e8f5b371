"""The label holder's exact regression on its own columns and on what partners' columns add to a row's scores."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from colonnade.data import LabelEncoder
from colonnade.nn.regression import Numbers, loss_of, outputs_for, scores_of, targets_of
from colonnade.training.alone import Linear, best_penalty

__all__ = ["JoinedRegression"]

# The penalty on what partners' columns add, in standard deviations: it is penalised where it is made.
_LIGHT = 1e-3
# More rows than these hardly change which penalty is best.
_MOST_COMPARED = 4000


class JoinedRegression:
    """A regression that is fitted anew whenever partners' contributions are known. Nothing crosses."""

    def __init__(self, labels: LabelEncoder, own: Numbers, values: Any) -> None:
        """Take the training rows' own columns and labels."""
        self.task, self._classes, self._own = labels.task, len(labels.classes), own
        self._labels = labels.encode(values).astype(np.float64)
        self._targets = targets_of(self.task, self._labels, self._classes)
        self.outputs = outputs_for(self.task, self._classes)
        self.scores = max(1, self.outputs - 1)
        """How many numbers of a row tell all classes apart."""
        rate = self._labels.mean()
        # With labels of one class only nothing is left to be learned, whatever this is.
        self.curvature = {"binary": rate * (1 - rate) or 0.25, "multiclass": 1 / self.outputs}.get(self.task, 1.0)
        """Of a row's loss, about, in a score."""
        self.fit([])

    def fit(self, added: Sequence[Numbers]) -> list[Numbers]:
        """Fit; return by partner the factors with which what it adds goes into the outputs."""
        every = np.hstack([np.empty((len(self._own), 0)), *added])
        # Larger numbers are penalised less.
        scale = np.sqrt(self._penalty / _LIGHT) / np.maximum(every.std(axis=0), 1e-12)
        columns, width = np.hstack([self._own, every * scale]), self._own.shape[1]
        found = Linear.fit(self.task, columns, self._labels, self._classes, self._penalty)
        self.coefficients, self.intercept = found.coefficients[:width], found.intercepts
        logits = columns @ found.coefficients + found.intercepts
        self.loss = loss_of(self.task, logits, self._targets)
        self.residuals = self._targets - scores_of(self.task, logits).reshape(self._targets.shape)
        """How far the targets lie above what was fitted."""
        return np.split(found.coefficients[width:] * scale[:, None], len(added)) if added else []

    def basis(self, scores: int) -> Numbers:
        """Return so many combinations of the outputs: those of which most is left to be explained."""
        found: Numbers = np.linalg.svd(self.residuals, full_matrices=False)[2][:scores].T
        return found

    @cached_property
    def _penalty(self) -> float:
        if not self._own.shape[1]:
            return _LIGHT
        few = slice(_MOST_COMPARED)
        return best_penalty(self.task, self._own[few], self._labels[few], self._classes)[0]
