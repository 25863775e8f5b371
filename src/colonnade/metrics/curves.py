"""Curves that are short enough to keep and to draw, and too coarse to show single rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "SMALLEST_GROUP",
    "calibration_curve",
    "calibration_error",
    "kolmogorov_smirnov",
    "merged_bins",
    "plain",
    "precision_recall",
    "roc",
]

# Reports are passed on, so every point and every step of a curve stands for at least this many rows: one that stands
# for a single row would show its label or its score.
SMALLEST_GROUP = 5
MOST_POINTS = 200
BINS = 10


def plain(values: NDArray[Any]) -> list[float]:
    """Turn an array into a list with six significant digits, enough for a figure and short in a file."""
    return [float(f"{value:.6g}") for value in values]


def merged_bins(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where bins begin after small neighbours were put together; none when all rows together are too few."""
    starts: list[int] = []
    start = rows = 0
    for place, count in enumerate(counts):
        rows += int(count)
        if rows >= SMALLEST_GROUP:
            starts.append(start)
            start, rows = place + 1, 0
    # No bin begins with the rows left over at the end, so they fall to the last one.
    return np.array(starts, dtype=np.int64)


def _distributions(
    truth: NDArray[np.int64], scores: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Return for every distinct score how many rows lie at or below it, and which share of either class.

    Only distinct scores count, so that ties do not depend on the order of the rows.
    """
    order = np.argsort(scores, kind="stable")
    rows = np.append(np.flatnonzero(np.diff(scores[order])), len(scores) - 1) + 1
    positives = np.cumsum(truth[order])[rows - 1]
    negatives = rows - positives
    return rows, positives / positives[-1], negatives / negatives[-1]


def _cuts(
    rows: NDArray[np.int64], positives: NDArray[np.float64], negatives: NDArray[np.float64], below: int = 0
) -> list[int]:
    """Choose cuts between distinct scores with rows enough between every two of them and beyond the outer ones.

    All curves of a model share them: two choices laid over each other would be finer than either. The cut that leaves
    ``below`` rows below it, where the operating point is told too, comes first, then the widest gap.
    """
    # Even steps along the curve, not along its points: a long flat stretch needs no more than its ends.
    targets = np.linspace(0, 2, MOST_POINTS - 3)
    spread = np.unique(np.searchsorted(positives + negatives, targets).clip(0, len(rows) - 1))
    candidates = np.arange(len(rows)) if len(rows) <= MOST_POINTS else spread
    taken, chosen = [0, int(rows[-1])], []
    first = [int(np.searchsorted(rows, below))] if below in rows else []
    for cut in (*first, int(np.argmax(np.abs(negatives - positives))), *candidates.tolist()):
        at = int(rows[cut])
        if all(abs(at - other) >= SMALLEST_GROUP for other in taken):
            chosen.append(cut)
        if cut in (*first, *chosen):
            taken.append(at)
    return sorted(chosen)


def roc(truth: NDArray[np.int64], scores: NDArray[np.float64], below: int = 0) -> dict[str, list[float]] | None:
    """Return the ROC curve, if there are rows enough for a point between its ends; both classes must occur."""
    rows, positives, negatives = _distributions(truth, scores)
    # From the highest cut, where few rows are called positive, to the lowest.
    cuts = _cuts(rows, positives, negatives, below)[::-1]
    if not cuts:
        return None
    return {
        "false_positive_rate": plain(np.array([0.0, *(1 - negatives[cuts]), 1.0])),
        "true_positive_rate": plain(np.array([0.0, *(1 - positives[cuts]), 1.0])),
    }


def precision_recall(
    truth: NDArray[np.int64], scores: NDArray[np.float64], below: int = 0
) -> dict[str, list[float]] | None:
    """Return precision by recall down to where all rows are called positive; both classes must occur.

    It has the cuts of the ROC curve, and begins at the highest: where no row is called there is no precision.
    """
    rows, positives, negatives = _distributions(truth, scores)
    cuts = _cuts(rows, positives, negatives, below)[::-1]
    if not cuts:
        return None
    share = truth.mean()
    recall = np.append(1 - positives[cuts], 1.0)
    called = np.append(len(scores) - rows[cuts], len(scores)) / len(scores)
    return {"recall": plain(recall), "precision": plain(recall * share / called)}


def kolmogorov_smirnov(
    truth: NDArray[np.int64], scores: NDArray[np.float64], below: int = 0
) -> tuple[float, dict[str, Any] | None]:
    """Return the largest gap between the score distributions of the two classes, and both, if there are rows enough.

    The gap is exact. A threshold of the curve is no row's score: it lies halfway between the mean scores of the rows
    on its two sides, up to the next thresholds.
    """
    rows, positives, negatives = _distributions(truth, scores)
    gaps = np.abs(negatives - positives)
    cuts = _cuts(rows, positives, negatives, below)
    if not cuts:
        return float(gaps.max()), None
    bounds = np.array([0, *rows[cuts], len(scores)])
    means = np.add.reduceat(np.sort(scores), bounds[:-1]) / np.diff(bounds)
    curve = {
        "threshold": plain((means[:-1] + means[1:]) / 2),
        "cumulative_positive": plain(positives[cuts]),
        "cumulative_negative": plain(negatives[cuts]),
        "widest": int(np.argmax(gaps[cuts])),
    }
    return float(gaps.max()), curve


def calibration_curve(predicted: NDArray[np.float64], happened: NDArray[np.int64]) -> dict[str, list[Any]] | None:
    """Compare mean probability with observed share in ten equal-width bins, small ones merged with their neighbours."""
    # A probability of exactly 1 belongs to the last bin, not to an eleventh.
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    counts = np.bincount(bins, minlength=BINS)
    starts = merged_bins(counts)
    if len(starts) == 0:
        return None
    rows = np.add.reduceat(counts, starts)
    means = np.add.reduceat(np.bincount(bins, weights=predicted, minlength=BINS), starts) / rows
    shares = np.add.reduceat(np.bincount(bins, weights=happened, minlength=BINS), starts) / rows
    return {"predicted": plain(means), "observed": plain(shares), "count": rows.tolist()}


def calibration_error(predicted: NDArray[np.float64], happened: NDArray[np.int64]) -> float:
    """Return the expected calibration error: the mean gap of the bins, weighted by their rows."""
    bins = np.minimum((predicted * BINS).astype(np.int64), BINS - 1)
    gaps = np.bincount(bins, weights=predicted - happened, minlength=BINS)
    return float(np.abs(gaps).sum() / len(predicted))
