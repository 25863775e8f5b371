"""Randomised response on labels: each is drawn once, kept or replaced, and only the response is ever used.

With k classes and an epsilon, the true label is kept with probability e**epsilon / (e**epsilon + k - 1), and otherwise
one of the other k - 1 takes its place, each as likely (S. L. Warner, "Randomized response", JASA 1965; for k classes
P. Kairouz et al., "Discrete distribution estimation under local privacy", ICML 2016). Whatever is computed from the
responses, however often, has epsilon differential privacy for each label: label-DP. That holds as long as nothing else
that leaves depends on the true labels, be it a validation score or which rows are left out.

A draw belongs to its row: it comes from a durable secret and the row's own place or id, not from the order in which
rows come. So it is the same in every epoch, in every batch and after a resume; a second draw would be a second release.

Losses at responses are wrong on average. The inverse of the matrix of transitions makes a loss out of those of all
classes whose mean over the responses is the loss at the true label (N. Natarajan et al., "Learning with noisy labels",
NeurIPS 2013; G. Patrini et al., CVPR 2017: backward correction). Its gradient is right on average too. The price is
spread: for a small epsilon single losses are large, and may be below 0.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from colonnade.errors import ConfigError, OutOfRange
from colonnade.privacy.cells import randomised_responses, unbiased_rows
from colonnade.privacy.noise import SecretNoise

__all__ = ["UNKNOWN_LABEL", "LabelBudget", "LabelResponse", "flip_bound"]

Array = np.ndarray[Any, Any]

UNKNOWN_LABEL = -1
"""Stands for a label that its holder does not know."""

_SMALLEST_EPSILON = 1e-3


def flip_bound(epsilon: float, classes: int) -> float:
    """Return the best accuracy with which anyone can tell a label from its response, for classes as likely as another.

    >>> round(flip_bound(3.0, 2), 4), round(flip_bound(3.0, 4), 4)
    (0.9526, 0.87)
    """
    return LabelResponse(epsilon, classes).keep_probability


@dataclass(frozen=True)
class LabelBudget:
    """What the responses of so many labels cost each of them, once and for all."""

    epsilon: float
    classes: int
    rows: int
    unknown_drawn: bool
    """Whether unknown labels have a response too, so that nobody sees which they are."""

    def text(self) -> str:
        """Say in plain sentences what this means.

        >>> print(LabelResponse(3.0, 2).budget(100).text().split(". ")[0])
        100 labels of 2 classes were each kept with probability 0.953 and otherwise replaced at random, once
        """
        labels = "1 label" if self.rows == 1 else f"{self.rows} labels"
        was = "was" if self.rows == 1 else "were each"
        keep = flip_bound(self.epsilon, self.classes)
        unknown = (
            "Unknown labels have responses as well."
            if self.unknown_drawn
            else "Unknown labels have none: which rows these are is not hidden by it."
        )
        return (
            f"{labels} of {self.classes} classes {was} kept with probability {keep:.3f} and otherwise replaced at "
            f"random, once. This costs each label epsilon {self.epsilon:.4g} (label-DP), however often the responses "
            f"are used: of classes as likely as another, nobody can tell more than {keep:.1%} right from them. "
            f"{unknown} It bounds nothing that other columns of a row, or other rows, say about its label."
        )

    def to_json(self) -> dict[str, object]:
        """Return plain values for a report."""
        return {
            "mechanism": "label_response",
            "epsilon": self.epsilon,
            "classes": self.classes,
            "rows": self.rows,
            "keep_probability": flip_bound(self.epsilon, self.classes),
            "unknown_drawn": self.unknown_drawn,
        }


@dataclass(frozen=True)
class LabelResponse:
    """How labels of so many classes are replaced at random, and how to learn from what comes of it.

    With ``draws_unknown`` an unknown label has a response, each class as likely: it counts for a loss that favours no
    class on average. Without, it stays unknown and its loss is 0, which shows whoever sees a gradient that it is.
    """

    epsilon: float
    classes: int
    draws_unknown: bool = True

    def __post_init__(self) -> None:
        """Refuse budgets and classes that are none."""
        if not (math.isfinite(self.epsilon) and self.epsilon >= _SMALLEST_EPSILON):
            raise ConfigError(
                f"The epsilon of labels must be a number of at least {_SMALLEST_EPSILON:g}; below that, responses "
                f"hardly depend on labels. Got {self.epsilon} instead."
            )
        if self.classes < 2:
            raise ConfigError(f"Randomised response needs 2 classes or more. Got {self.classes} instead.")

    @property
    def keep_probability(self) -> float:
        """Return how likely a label is its own response."""
        return 1.0 / (1.0 + (self.classes - 1) * math.exp(-self.epsilon))

    def transition(self) -> Array:
        """Return how likely each label (rows) becomes each response (columns).

        >>> LabelResponse(math.log(3.0), 2).transition().round(4).tolist()
        [[0.75, 0.25], [0.25, 0.75]]
        """
        other = math.exp(-self.epsilon) * self.keep_probability
        matrix: Array = np.full((self.classes, self.classes), other)
        np.fill_diagonal(matrix, self.keep_probability)
        return matrix

    def inverse(self) -> Array:
        """Return the inverse of `transition`.

        >>> LabelResponse(math.log(3.0), 2).inverse().round(4).tolist()
        [[1.5, -0.5], [-0.5, 1.5]]
        """
        return unbiased_rows(np.arange(self.classes), self.classes, self.epsilon)

    def respond(self, labels: Array, rows: Sequence[int] | Sequence[str] | Array, noise: SecretNoise) -> Array:
        """Return the response of each label, from the row's own place or id; the same row always has the same draw.

        Labels are numbers from 0; -1 is unknown. Other settings give other draws for the same rows. Do not use one
        secret for two different columns of labels: the two would be replaced together.
        """
        taken = self._checked(labels)
        if len(rows) != len(taken):
            raise ConfigError(f"There are {len(taken)} labels, but {len(rows)} rows that they belong to.")
        words = np.array([self._words(row, noise) for row in rows], np.uint64).reshape(len(taken), 2)
        responses = randomised_responses(taken, self.classes, self.epsilon, words)
        if not self.draws_unknown:
            responses = np.where(taken == UNKNOWN_LABEL, UNKNOWN_LABEL, responses)
        found: Array = responses.astype(np.int64)
        return found

    def corrected_losses(self, per_class_losses: Tensor, responses: Tensor) -> Tensor:
        """Return a loss for each row whose mean over the responses is the loss at its true label.

        ``per_class_losses`` has the loss that a row would have with each label, such as the negative logarithms of its
        probabilities, of shape (rows, classes). A response that is still unknown gives 0.
        """
        shape = (len(responses), self.classes)
        if responses.ndim != 1 or tuple(per_class_losses.shape) != shape:
            raise ConfigError(
                f"Corrected losses need one response per row and losses of shape (rows, {self.classes}); they have "
                f"{tuple(responses.shape)} and {tuple(per_class_losses.shape)}."
            )
        places = torch.from_numpy(self._checked(responses.detach().cpu().numpy())).to(per_class_losses.device)
        # The last row, which -1 finds, is for unknown labels.
        table = np.vstack([self.inverse(), np.zeros(self.classes)])
        weights = torch.from_numpy(table).to(per_class_losses.device, per_class_losses.dtype)[places]
        # Where nothing is known a loss counts for nothing, even one that is infinite.
        losses = torch.where((places == UNKNOWN_LABEL)[:, None], torch.zeros_like(weights), per_class_losses)
        return (weights * losses).sum(dim=1)

    def budget(self, rows: int) -> LabelBudget:
        """Return what the responses of so many labels cost each of them."""
        if rows < 0:
            raise ConfigError(f"Labels cannot be fewer than none. Got {rows} instead.")
        return LabelBudget(self.epsilon, self.classes, int(rows), self.draws_unknown)

    def _checked(self, labels: Array) -> Array:
        taken: Array = np.asarray(labels)
        if taken.ndim != 1 or (taken.dtype.kind not in "iu" and taken.size):
            raise ConfigError(
                f"Labels are whole numbers in one column; this array has the type {taken.dtype} and the shape "
                f"{taken.shape}."
            )
        taken = taken.astype(np.int64)
        if taken.size and not UNKNOWN_LABEL <= int(taken.min()) <= int(taken.max()) < self.classes:
            raise OutOfRange(f"Labels of {self.classes} classes are from 0 to {self.classes - 1}, or -1 if unknown.")
        return taken

    def _words(self, row: int | str, noise: SecretNoise) -> Array:
        # A place and an id that look alike are two different rows; the name comes last, so nothing can run into it.
        key = f"id {row}" if isinstance(row, str) else f"place {operator.index(row)}"
        return noise.words(f"label response {self.epsilon!r} {self.classes} {key}", 0, (2,))
