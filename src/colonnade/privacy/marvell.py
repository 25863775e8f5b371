"""MARVELL: a label holder adds just enough noise to the gradients it sends to hide the labels behind them.

O. Li et al., "Label leakage and protection in two-party split learning", ICLR 2022.

What it hides, and what not. The budget bounds what any attack makes of *one* release of a row's gradient, where the
gradients of a class are Gaussian. A row is released once per epoch; with T releases the budgets add up to T times the
budget, and from 4 on the bound says nothing. Partners that put their gradients together add up in the same way. It is
about gradients alone: a partner also has columns, and learns from the noised gradients of many rows what these say of
labels. It does not hide what a trained encoder knows: a partner with some labels can fit a head to its own outputs
(model completion).
And the bound is on the ranking of all rows. The noise is as large as the classes differ on the whole; a row with a far
larger gradient, such as one that the model gets wrong late in training, stands out of it.

More than two classes, and numbers, are not in the paper. Classes get noise that is alike in all directions, raised
until every two classes of a batch are within the budget. Numbers get noise after which a linear estimate from one
release explains at most budget / (1 + budget) of the variance; no AUC is claimed for them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np

from colonnade.errors import ConfigError, OutOfRange
from colonnade.privacy.leak import LeakMeter, MeasuredLeak
from colonnade.privacy.noise import SecretNoise
from colonnade.privacy.optimal_noise import (
    ClassNoise,
    TwoClasses,
    auc_bound,
    auc_bound_of_releases,
    check_budget,
    noise_within,
)

__all__ = ["Marvell", "content_of", "explained_bound"]

Array = np.ndarray[Any, Any]

# The weight of what was known before, when a batch adds to it.
_MEMORY = 0.9
_GROWTH = 1.5
# Slopes of single rows, which lie within 1, are the same if they agree to this part: rounding of about one in a
# hundred batches falls to the other side, which does no harm.
_COARSE = 64.0
# Least noise across the gap, in parts of that along it. Gradients that lie on a line do so only up to rounding, and
# the way each was rounded would give away what it was.
_LEAST_ACROSS = 1e-6
_ROUNDING = 1e-10


def explained_bound(budget: float, releases: float = 1) -> float:
    """Return the largest share of a number's variance that a linear estimate from its releases explains.

    >>> explained_bound(0.25)
    0.2
    """
    return budget * releases / (1.0 + budget * releases)


@dataclass(frozen=True)
class _Seen:
    """Two classes as a batch shows them, times the number of rows: slopes of a mean loss shrink with it."""

    negative_mean: Array
    positive_mean: Array
    negative_along: float
    positive_along: float
    negative_across: float
    positive_across: float
    positive_share: float

    @classmethod
    def of(cls, slopes: Array, is_positive: Array) -> _Seen:
        """Measure a batch with rows of both classes."""
        negatives, positives = slopes[~is_positive], slopes[is_positive]
        means = negatives.mean(axis=0), positives.mean(axis=0)
        direction = _unit(means[1] - means[0])
        widths = [_widths(rows, mean, direction) for rows, mean in zip((negatives, positives), means, strict=True)]
        (along_0, across_0), (along_1, across_1) = widths
        return cls(*means, along_0, along_1, across_0, across_1, float(is_positive.mean()))

    def mixed_with(self, earlier: _Seen | None) -> _Seen:
        """Return the running average after this batch."""
        if earlier is None:
            return self
        kept = {name: _MEMORY * value + (1.0 - _MEMORY) * vars(self)[name] for name, value in vars(earlier).items()}
        return _Seen(**kept)

    @property
    def gap(self) -> Array:
        """Return the line from the negatives' mean to the positives'."""
        return self.positive_mean - self.negative_mean

    def classes(self) -> TwoClasses:
        """Return what the noise is chosen by."""
        gap = float(self.gap @ self.gap)
        # What rounding leaves beside a line is hidden by the least noise across, and need not be searched for.
        is_line = max(self.negative_across, self.positive_across) < _ROUNDING * max(
            gap, self.negative_along, self.positive_along
        )
        return TwoClasses(
            dimensions=len(self.gap),
            gap=gap,
            positive_share=self.positive_share,
            negative_along=self.negative_along,
            positive_along=self.positive_along,
            negative_across=0.0 if is_line else self.negative_across,
            positive_across=0.0 if is_line else self.positive_across,
        )

    def evidence(self, slopes: Array, noise: ClassNoise) -> Array:
        """Return Fisher's discriminant of each row, positive where it looks like a positive."""
        width = (self.negative_along + self.positive_along + noise.negative_along + noise.positive_along) / 2.0
        middle = (self.negative_mean + self.positive_mean) / 2.0
        found: Array = ((slopes - middle) @ self.gap)[:, None]
        return found / width if width > 0.0 else found


class Marvell:
    """Adds noise to a label holder's gradients, step by step, and can go on exactly after an interruption."""

    def __init__(
        self,
        budget: float,
        noise: SecretNoise,
        *,
        classes: int = 2,
        purpose: str = "marvell",
        meter: LeakMeter | None = None,
    ) -> None:
        """Take the budget of one release, above 0 and below 4, and how many classes there are; 0 for numbers.

        The purpose keeps the noise of several receivers apart. A meter, if there is one, sees every release.
        """
        check_budget(budget)
        if classes < 0 or classes == 1:
            raise ConfigError(f"Labels have two classes or more, or 0 for numbers. Got {classes} instead.")
        self.budget, self._noise, self._classes, self._purpose, self._meter = budget, noise, classes, purpose, meter
        self._seen: _Seen | None = None
        self._variance: float | None = None

    @property
    def bound(self) -> float:
        """Return what no attack on one release exceeds: an AUC, or for numbers a share of variance."""
        return auc_bound(self.budget) if self._classes else explained_bound(self.budget)

    def protect(self, slopes: Array, labels: Array, counter: int, rows: Array | None = None) -> Array:
        """Return the slopes of a batch with noise: one row per row of the batch.

        ``labels`` are numbers of classes, or numbers. ``counter`` is the step. Noise depends on key, purpose, counter
        and the slopes themselves: a step that is repeated exactly sends the same once more, and one that is repeated
        with other slopes draws noise of its own, as two releases with equal noise would give away their difference.
        Slopes that differ in their last bits only, as after a resume with other secret shares, count as the same.

        A batch with rows of one class is noised by the running average of earlier ones. If there is none yet, only
        noise is sent, of the length that slopes of a mean loss can have: 1 / rows. ``rows`` are places for the meter.
        """
        slopes = np.ascontiguousarray(slopes, np.float64)
        if slopes.ndim != 2 or len(slopes) != len(labels):
            raise ConfigError(f"There are {len(labels)} labels for slopes of shape {slopes.shape}.")
        if not np.isfinite(slopes).all():
            raise OutOfRange("Gradients are no longer finite, so no noise can hide them. Lower learning_rate.")
        if not len(slopes):
            return slopes
        draws = self._noise.gaussian(f"{self._purpose}/{content_of(slopes, labels)}", counter, slopes.shape)
        if self._classes == 2:
            noised, evidence = self._of_two_classes(slopes, np.asarray(labels) == 1, draws)
        elif self._classes:
            noised, evidence = self._of_many_classes(slopes, np.asarray(labels), draws)
        else:
            noised, evidence = self._of_numbers(slopes, np.asarray(labels, np.float64), draws)
        if self._meter is not None and rows is not None:
            self._meter.add(rows, *evidence)
        return noised

    def measured(self) -> MeasuredLeak | None:
        """Return what the meter saw, with the bounds beside it."""
        if self._meter is None:
            return None
        return self._meter.measured(
            self.budget, self.bound, auc_bound_of_releases if self._classes else explained_bound
        )

    def state(self) -> dict[str, Any]:
        """Return what a resumed run needs, as JSON values. The key is not among them."""
        seen = None
        if self._seen is not None:
            seen = {
                name: value.tolist() if isinstance(value, np.ndarray) else value
                for name, value in vars(self._seen).items()
            }
        return {"seen": seen, "variance": self._variance}

    def load_state(self, document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        seen = document["seen"]
        self._seen = None
        if seen is not None:
            plain: dict[str, Any] = {
                name: np.array(value) if isinstance(value, list) else value for name, value in seen.items()
            }
            self._seen = _Seen(**plain)
        self._variance = document["variance"]

    def _of_two_classes(self, slopes: Array, is_positive: Array, draws: Array) -> tuple[Array, tuple[Array, ...]]:
        count = len(slopes)
        if 0 < is_positive.sum() < count:
            seen = _Seen.of(slopes * count, is_positive)
            self._seen = seen.mixed_with(self._seen)
        elif self._seen is None:
            return _only_noise(draws), ()
        else:
            seen = self._seen
        noise = noise_within(seen.classes(), self.budget)
        direction = _unit(seen.gap)
        along = np.where(is_positive, noise.positive_along, noise.negative_along)
        across = np.where(is_positive, noise.positive_across, noise.negative_across)
        across = np.maximum(across, _LEAST_ACROSS * max(noise.positive_along, noise.negative_along))
        # Along the gap each row gets one number, across it one in every other direction.
        in_line = (draws @ direction)[:, None] * direction
        added = np.sqrt(along)[:, None] * in_line + np.sqrt(across)[:, None] * (draws - in_line)
        noised = slopes + added / count
        return noised, (seen.evidence(slopes * count, noise), seen.evidence(noised * count, noise))

    def _of_many_classes(self, slopes: Array, labels: Array, draws: Array) -> tuple[Array, tuple[Array, ...]]:
        count, present = len(slopes), np.unique(labels)
        if len(present) > 1:
            variance = _variance_for_all_pairs(slopes * count, labels, present, self.budget)
            self._variance = _average(self._variance, variance)
        elif self._variance is None:
            return _only_noise(draws), ()
        else:
            variance = self._variance
        noised = slopes + math.sqrt(variance) / count * draws
        if len(present) < 2:
            return noised, ()
        known = (slopes, labels, variance / count**2)
        return noised, (self._evidence_of_each(slopes, *known), self._evidence_of_each(noised, *known))

    def _evidence_of_each(self, sent: Array, slopes: Array, labels: Array, variance: float) -> Array:
        """Return how much each row looks like each class, against all others."""
        found = np.zeros((len(sent), self._classes))
        for one in np.unique(labels):
            mean, rest = slopes[labels == one].mean(axis=0), slopes[labels != one].mean(axis=0)
            gap = mean - rest
            width = variance + float(((slopes - slopes.mean(axis=0)) @ _unit(gap)).var())
            found[:, one] = (sent - (mean + rest) / 2.0) @ gap / (width or 1.0)
        return found

    def _of_numbers(self, slopes: Array, labels: Array, draws: Array) -> tuple[Array, tuple[Array, ...]]:
        count = len(slopes)
        # The largest of any direction, about 0: a batch of one row has no variance, and still something to hide.
        _, lengths, directions = np.linalg.svd(slopes * count, full_matrices=False)
        strongest = float(lengths[0] ** 2 / count)
        # A batch of small slopes among larger ones would be known by its little noise.
        self._variance = _average(self._variance, strongest)
        variance = max(strongest, self._variance) / self.budget
        noised = slopes + math.sqrt(variance) / count * draws
        # The axis has no sign of its own; the meter's attacker knows which end of it is high.
        axis = directions[0] * (1.0 if (slopes @ directions[0]) @ (labels - labels.mean()) >= 0.0 else -1.0)
        # The more noise there is in a release, the less an attacker makes of it.
        weight = count / variance if variance > 0.0 else 1.0
        return noised, ((slopes @ axis)[:, None], (noised @ axis)[:, None] * weight)


def _variance_for_all_pairs(slopes: Array, labels: Array, present: Array, budget: float) -> float:
    """Return the variance of noise that keeps every two classes of a batch within the budget.

    Classes are Gaussian with independent coordinates along the batch's own axes.
    """
    _, _, axes = np.linalg.svd(slopes - slopes.mean(axis=0), full_matrices=False)
    turned = slopes @ axes.T
    means = np.array([turned[labels == one].mean(axis=0) for one in present])
    widths = np.array([turned[labels == one].var(axis=0) for one in present])
    ones, others = np.array(list(combinations(range(len(present)), 2))).T
    gaps = (means[ones] - means[others]) ** 2
    variance = float(gaps.sum(axis=1).max())
    if variance == 0.0:
        variance = 1e-6 * float(widths.max())
    if variance == 0.0:
        return 0.0
    while True:
        first, second = widths[ones] + variance, widths[others] + variance
        divergence = (((first + gaps) / second + (second + gaps) / first) / 2.0 - 1.0).sum(axis=1)
        if divergence.max() <= budget:
            return variance
        variance *= _GROWTH


def _only_noise(draws: Array) -> Array:
    # As long as a slope of a mean loss can be, whatever its number of columns.
    return draws / (len(draws) * math.sqrt(draws.shape[1]))


def _average(earlier: float | None, value: float) -> float:
    return value if earlier is None else _MEMORY * earlier + (1.0 - _MEMORY) * value


def _unit(vector: Array) -> Array:
    """Return a vector of length 1, or the first axis where there is no direction."""
    length = float(np.linalg.norm(vector))
    if length == 0.0:
        first: Array = np.eye(1, len(vector))[0]
        return first
    unit: Array = vector / length
    return unit


def _widths(rows: Array, mean: Array, direction: Array) -> tuple[float, float]:
    """Return the variance along a direction, and the mean variance of the other coordinates."""
    deviations = rows - mean
    along = float(((deviations @ direction) ** 2).mean())
    whole = float((deviations**2).sum(axis=1).mean())
    return along, max(whole - along, 0.0) / max(rows.shape[1] - 1, 1)


def content_of(slopes: Array, labels: Array) -> str:
    """Return a digest of slopes, coarsely rounded, and labels, to which noise is bound."""
    coarse = np.rint(slopes * (len(slopes) * _COARSE)).astype(np.int64)
    parts = (str(slopes.shape).encode(), coarse.tobytes(), np.ascontiguousarray(labels, np.float64).tobytes())
    whole = hashlib.sha256()
    for part in parts:
        whole.update(len(part).to_bytes(8, "little") + part)
    return whole.hexdigest()
