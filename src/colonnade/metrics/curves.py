"""Curves that are short enough to keep and to draw."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["calibration_curve", "calibration_error", "kolmogorov_smirnov", "plain", "roc", "thin"]

MOST_POINTS = 200
BINS = 10


def plain(values: NDArray[Any]) -> list[float]:
    """Turn an array into a list with six significant digits, enough for a figure and short in a file."""
    return [float(f"{value:.6g}") for value in values]


def thin(length: int, keep: int | None = None) -> NDArray[np.int64]:
    """Choose at most 200 evenly spread positions, the first, the last and ``keep`` among them."""
    if length <= MOST_POINTS:
        return np.arange(length)
    room = MOST_POINTS if keep is None else MOST_POINTS - 1
    chosen = np.linspace(0, length - 1, room).round().astype(np.int64)
    return np.unique(chosen if keep is None else np.append(chosen, keep))


def roc(truth: NDArray[np.int64], scores: NDArray[np.float64]) -> dict[str, list[float]]:
    """Return the ROC curve; both classes must occur."""
    from sklearn.metrics import roc_curve

    false_positive, true_positive, _ = roc_curve(truth, scores)
    # Even steps along the curve, not along its points: a long flat stretch needs no more than its ends.
    travelled = false_positive + true_positive
    if len(travelled) > MOST_POINTS:
        targets = np.linspace(0, travelled[-1], MOST_POINTS)
        chosen = np.unique(np.searchsorted(travelled, targets).clip(0, len(travelled) - 1))
        false_positive, true_positive = false_positive[chosen], true_positive[chosen]
    return {"false_positive_rate": plain(false_positive), "true_positive_rate": plain(true_positive)}


def kolmogorov_smirnov(truth: NDArray[np.int64], scores: NDArray[np.float64]) -> tuple[float, dict[str, Any]]:
    """Return the largest gap between the score distributions of the two classes, and both distributions.

    The gap is taken only between distinct scores, so that ties do not depend on the order of the rows.
    """
    order = np.argsort(scores, kind="stable")
    ordered_scores, ordered_truth = scores[order], truth[order]
    last_of_ties = np.append(np.flatnonzero(np.diff(ordered_scores)), len(scores) - 1)
    positives = np.cumsum(ordered_truth)[last_of_ties] / truth.sum()
    negatives = np.cumsum(1 - ordered_truth)[last_of_ties] / (len(truth) - truth.sum())
    gaps = np.abs(negatives - positives)
    widest = int(np.argmax(gaps))
    chosen = thin(len(gaps), keep=widest)
    curve = {
        "threshold": plain(ordered_scores[last_of_ties][chosen]),
        "cumulative_positive": plain(positives[chosen]),
        "cumulative_negative": plain(negatives[chosen]),
        "widest": int(np.searchsorted(chosen, widest)),
    }
    return float(gaps[widest]), curve


def calibration_curve(predicted: NDArray[np.float64], happened: NDArray[np.int64]) -> dict[str, list[Any]]:
    """Compare mean probability with observed share in ten equal-width bins, the empty ones left out."""
    # A probability of exactly 1 belongs to the last bin, not to an eleventh.
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    used = counts > 0
    means = np.bincount(bins, weights=predicted, minlength=BINS)[used] / counts[used]
    shares = np.bincount(bins, weights=happened, minlength=BINS)[used] / counts[used]
    return {"predicted": plain(means), "observed": plain(shares), "count": [int(count) for count in counts[used]]}


def calibration_error(predicted: NDArray[np.float64], happened: NDArray[np.int64]) -> float:
    """Return the expected calibration error: the mean gap of the bins, weighted by their rows."""
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=predicted - happened, minlength=BINS)
    return float(np.abs(gaps).sum() / len(predicted))
