"""MARVELL's mathematics: the noise that hides a binary label best, and what no attack can exceed then.

O. Li et al., "Label leakage and protection in two-party split learning", ICLR 2022. Gradients of the two classes are
taken for Gaussian, with means that differ in one direction. Noise of another variance for each class, and another along
that direction than across it, makes the two distributions alike at the least total variance. How alike is measured by
the symmetrised Kullback-Leibler divergence, the sum of both directions.

Everything here is about one release of a row's gradient. Divergences of independent releases add up.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.errors import ConfigError

__all__ = [
    "LARGEST_BUDGET",
    "ClassNoise",
    "TwoClasses",
    "auc_bound",
    "auc_bound_of_releases",
    "best_noise",
    "best_noise_along",
    "check_budget",
    "error_bound",
    "noise_within",
]

Array = np.ndarray[Any, Any]

LARGEST_BUDGET = 4.0
"""From this divergence on, the bounds say nothing."""

_GROWTH = 1.5
_SQUARES = ("gap", "negative_along", "positive_along", "negative_across", "positive_across")
# Points of the search for the share of the power that goes across the gap, and how often it zooms in.
_POINTS, _ZOOMS = 65, 6


@dataclass(frozen=True, kw_only=True)
class TwoClasses:
    """What the gradients of two classes look like: how far apart, and how wide in which direction.

    Variances are those of one coordinate: ``along`` the line between the means, and the mean of those ``across`` it.
    The paper takes them for equal. Gradients of a split network with one output have none across.
    """

    dimensions: int
    gap: float
    """The squared distance of the two means."""
    positive_share: float
    negative_along: float
    positive_along: float
    negative_across: float = 0.0
    positive_across: float = 0.0


@dataclass(frozen=True)
class ClassNoise:
    """Variances of the noise, per coordinate, by class and direction, and the divergence that is left."""

    negative_along: float
    positive_along: float
    negative_across: float
    positive_across: float
    divergence: float


def check_budget(budget: float) -> None:
    """Refuse a budget under which the bounds mean nothing."""
    if not 0.0 < budget < LARGEST_BUDGET:
        raise ConfigError(f"A label budget must be above 0 and below {LARGEST_BUDGET:g}. Got {budget} instead.")


def error_bound(budget: float) -> float:
    """Return the least share of errors of any attack on one release, on rows of which half are positive.

    >>> error_bound(0.25)
    0.375
    """
    return max(0.5 - math.sqrt(budget) / 4.0, 0.0)


def auc_bound(budget: float) -> float:
    """Return the highest AUC of any attack on one release.

    >>> auc_bound(0.25)
    0.71875
    """
    return 0.5 + math.sqrt(budget) / 2.0 - budget / 8.0 if budget < LARGEST_BUDGET else 1.0


def auc_bound_of_releases(budget: float, releases: float) -> float:
    """Return the highest AUC of any attack on several releases of the same rows; 1 where the bound says nothing.

    >>> auc_bound_of_releases(0.25, 4), auc_bound_of_releases(0.25, 50)
    (0.875, 1.0)
    """
    return auc_bound(budget * releases)


def best_noise_along(
    negative: Any, positive: Any, gap: float, positive_share: float, power: Any
) -> tuple[Array, Array, Array]:
    """Return the best variances of noise in one dimension for negatives and positives, and the divergence left.

    The power is the mean variance of the noise over all rows. Several may be given at once, as an array.
    """
    u, v = np.asarray(negative, np.float64), np.asarray(positive, np.float64)
    p, P = positive_share, np.asarray(power, np.float64)
    total = P + p * v + (1.0 - p) * u
    bottom = total + p * gap
    # The two are 0 only where there is nothing to hide and nothing to hide it with.
    E = np.sqrt(np.divide(total + (1.0 - p) * gap, bottom, out=np.ones_like(total), where=bottom > 0.0))
    scale = total / (p * E + 1.0 - p)
    l0, l1 = scale - u, E * scale - v
    is_low, is_high = l0 < 0.0, l1 < 0.0
    l0, l1 = np.where(is_low, 0.0, l0), np.where(is_low, P / p, l1)
    l0, l1 = np.where(is_high, P / (1.0 - p), l0), np.where(is_high, 0.0, l1)
    return l0, l1, _divergence(l0 + u, l1 + v, gap)


def best_noise(classes: TwoClasses, power: float) -> ClassNoise:
    """Return the noise of the least divergence whose mean squared length over all rows is the power.

    Along the gap and across it the best noise is that of one dimension; what is left is to divide the power between
    them. A search of its own does that, so that the same numbers always give the same noise.
    """
    across, p = classes.dimensions - 1, classes.positive_share
    excess = classes.negative_across - classes.positive_across
    # More than it takes to make the classes equally wide is of no use across the gap.
    useful = across * (p * excess if excess > 0.0 else (p - 1.0) * excess)
    low, high = 0.0, min(power, useful)
    for _ in range(_ZOOMS if high > 0.0 else 0):
        spent = np.linspace(low, high, _POINTS)
        best = int(np.argmin(_parts(classes, power, spent)[-1]))
        low, high = float(spent[max(best - 1, 0)]), float(spent[min(best + 1, _POINTS - 1)])
    parts = _parts(classes, power, np.linspace(low, high, _POINTS if high > low else 1))
    best = int(np.argmin(parts[-1]))
    return ClassNoise(*(float(part[best]) for part in parts))


def noise_within(classes: TwoClasses, budget: float) -> ClassNoise:
    """Return the best noise of the least power, on a ladder of factors 1.5, that keeps the divergence in the budget."""
    check_budget(budget)
    largest = max(getattr(classes, name) for name in _SQUARES)
    if largest == 0.0:
        return ClassNoise(0.0, 0.0, 0.0, 0.0, 0.0)  # all gradients are alike
    # Late in training gradients are tiny, and their squares more so.
    scaled = replace(classes, **{name: getattr(classes, name) / largest for name in _SQUARES})
    # The paper's unit of power is the gap. Classes that differ in width alone have none, and need noise all the same.
    power = max(scaled.gap, 1e-6)
    while (found := best_noise(scaled, power)).divergence > budget:
        power *= _GROWTH
    return ClassNoise(
        largest * found.negative_along,
        largest * found.positive_along,
        largest * found.negative_across,
        largest * found.positive_across,
        found.divergence,
    )


def _parts(classes: TwoClasses, power: float, spent: Array) -> tuple[Array, ...]:
    """Return the four variances and the divergence, for several amounts of power spent across the gap."""
    across = classes.dimensions - 1
    p = classes.positive_share
    l10, l11, along = best_noise_along(
        classes.negative_along, classes.positive_along, classes.gap, p, np.maximum(power - spent, 0.0)
    )
    if across == 0:
        return l10, l11, np.zeros_like(l10), np.zeros_like(l10), along
    l20, l21, beside = best_noise_along(classes.negative_across, classes.positive_across, 0.0, p, spent / across)
    with np.errstate(over="ignore"):  # as in the divergence itself: infinite is too large, however it came about
        return l10, l11, l20, l21, along + across * beside


def _divergence(s0: Array, s1: Array, gap: float) -> Array:
    """Return the symmetrised divergence of two Gaussians of these variances and this squared distance."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        found: Array = ((s0 + gap) / s1 + (s1 + gap) / s0) / 2.0 - 1.0
    # Two points in the same place do not differ.
    return np.where((s0 == 0.0) & (s1 == 0.0) & (gap == 0.0), 0.0, found)
