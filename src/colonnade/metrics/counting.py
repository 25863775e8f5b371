"""Metrics from counts and ranks. The tests hold them against scikit-learn, which would take a second to load."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["area_under_roc", "confusion_counts", "f1_by_class", "log_loss", "widest_gap"]


def area_under_roc(is_positive: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Return how often a positive row has a higher score than a negative one; ties count half.

    >>> area_under_roc(np.array([False, True, True]), np.array([0.2, 0.2, 0.7]))
    0.75
    """
    _, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    # Rows with equal scores share the mean of their ranks.
    ranks = (np.cumsum(sizes) - (sizes - 1) / 2)[group]
    positives = int(is_positive.sum())
    negatives = len(scores) - positives
    return float((ranks[is_positive].sum() - positives * (positives + 1) / 2) / (positives * negatives))


def widest_gap(is_positive: NDArray[np.bool_], scores: NDArray[np.floating]) -> float:
    """Return the Kolmogorov-Smirnov distance: the most by which true and false positive rate differ at any threshold.

    Both classes must occur.

    >>> widest_gap(np.array([False, True, True, False]), np.array([0.1, 0.4, 0.8, 0.4]))
    0.5
    """
    order = np.argsort(scores, kind="stable")
    ordered, positive = scores[order], is_positive[order]
    # Rows of one score cross a threshold together.
    ends = np.append(ordered[1:] != ordered[:-1], True)
    above = np.cumsum(positive)[ends] / positive.sum() - np.cumsum(~positive)[ends] / (~positive).sum()
    return float(np.abs(above).max())


def confusion_counts(truth: NDArray[np.int64], called: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """Return how many rows of each true class (down) were called each class (across)."""
    return np.bincount(truth * classes + called, minlength=classes**2).reshape(classes, classes)


def f1_by_class(counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the F1 of every class from confusion counts; 0 for a class that is neither true nor called."""
    right = counts.diagonal()
    seen = counts.sum(axis=0) + counts.sum(axis=1)
    found: NDArray[np.float64] = np.divide(2 * right, seen, out=np.zeros(len(counts)), where=seen > 0)
    return found


def log_loss(truth: NDArray[np.int64], probability: NDArray[np.float64]) -> float:
    """Return the mean negative logarithm of the probability that was given to the true class."""
    tiny = np.finfo(probability.dtype).eps
    given = probability[np.arange(len(truth)), truth].clip(tiny, 1 - tiny)
    return float(-np.log(given).mean())
