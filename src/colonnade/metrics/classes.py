"""How well classes are called, in both averages: every class counting alike, and by its rows.

The two answer different questions and differ by several points where one class is rare, so they are always reported
together. A mean over classes is one over those that occur, as truth or as call, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import UsageError
from colonnade.metrics.counting import confusion_counts, f1_by_class

__all__ = ["ClassScores", "above_threshold", "chance_band", "class_scores", "macro_f1", "tuned_threshold"]


@dataclass(frozen=True)
class ClassScores:
    """What calls of classes are worth; ``weighted`` means by the rows of each true class, ``macro`` all alike.

    Weighted recall is the accuracy by another name. Balanced accuracy is the mean recall of the classes that truly
    occur; a constant answer has one over their number.
    """

    rows: int
    accuracy: float
    balanced_accuracy: float
    macro_precision: float
    macro_recall: float
    macro_f1: float
    weighted_precision: float
    weighted_recall: float
    weighted_f1: float

    def to_json(self) -> dict[str, Any]:
        """Return the content as a plain dict."""
        return asdict(self)


def class_scores(truth: ArrayLike, called: ArrayLike) -> ClassScores:
    """Compare called with true class numbers.

    >>> scores = class_scores([0, 0, 0, 1], [0, 0, 0, 0])
    >>> scores.accuracy, scores.balanced_accuracy, round(scores.macro_f1, 3), round(scores.weighted_f1, 3)
    (0.75, 0.5, 0.429, 0.643)
    """
    counts = _occurring_counts(truth, called)
    right, of_truth, of_calls = counts.diagonal(), counts.sum(axis=1), counts.sum(axis=0)
    recall = right / np.maximum(of_truth, 1)
    precision = right / np.maximum(of_calls, 1)
    f1 = f1_by_class(counts)
    shares = of_truth / of_truth.sum()
    return ClassScores(
        rows=int(of_truth.sum()),
        accuracy=float(right.sum() / of_truth.sum()),
        balanced_accuracy=float(recall[of_truth > 0].mean()),
        macro_precision=float(precision.mean()),
        macro_recall=float(recall.mean()),
        macro_f1=float(f1.mean()),
        weighted_precision=float(precision @ shares),
        weighted_recall=float(recall @ shares),
        weighted_f1=float(f1 @ shares),
    )


def macro_f1(truth: ArrayLike, called: ArrayLike) -> float:
    """Return the mean F1 of the classes that occur, as truth or as call; there may be thousands that do not."""
    return float(f1_by_class(_occurring_counts(truth, called)).mean())


def chance_band(shares: ArrayLike) -> tuple[float, float]:
    """Return the macro F1 of always naming the largest class, and of guessing classes by their shares.

    Both know the shares or counts of the classes and nothing about a row. The second is the most that such an answer
    can reach (with many rows), and one over the number of classes whatever the shares: a class of share p guessed with
    probability q has an F1 of 2pq/(p+q), and the mean of these is largest where q = p. What chance
    reaches in accuracy is quite another number.

    >>> [round(end, 2) for end in chance_band([0.67, 0.33])]
    [0.4, 0.5]
    """
    given = np.asarray(shares, np.float64)
    if given.ndim != 1 or not np.all(np.isfinite(given)) or np.any(given < 0) or not given.sum() > 0:
        raise UsageError("The chance band needs one share or count, at least 0, for every class, and not only zeros.")
    occurring = given[given > 0] / given.sum()
    largest = float(occurring.max())
    return 2 * largest / (1 + largest) / len(occurring), 1 / len(occurring)


def tuned_threshold(truth: ArrayLike, scores: ArrayLike) -> float:
    """Return the threshold with the highest macro F1 on these rows, which should not be those it is then judged on.

    Of two classes: rows are called 1 from the threshold on. It lies halfway between neighbouring scores, so that it is
    no row's own, unless the best is to call all rows alike; of equally good ones it is the lowest.

    >>> tuned_threshold([0, 0, 1, 1], [0.1, 0.2, 0.3, 0.4])
    0.25
    """
    values = np.asarray(scores, np.float64)
    classes = np.asarray(truth)
    if values.ndim != 1 or classes.shape != values.shape:
        raise UsageError(f"A threshold is tuned on one score per row; got shapes {classes.shape} and {values.shape}.")
    if not np.all(np.isfinite(values)):
        raise UsageError("A threshold cannot be tuned on scores that are not finite.")
    is_positive = classes == 1
    positives, rows = int(is_positive.sum()), len(values)
    if positives == 0 or positives == rows or np.any(~is_positive & (classes != 0)):
        raise UsageError("A threshold is tuned on rows of both classes, 0 and 1, and of no other.")

    order = np.argsort(values, kind="stable")
    ordered = values[order]
    # How many rows lie below each threshold that could matter: none, up to each new score, all.
    below = np.concatenate([[0], np.flatnonzero(np.diff(ordered)) + 1, [rows]])
    missed = np.concatenate([[0], np.cumsum(is_positive[order])])[below]
    f1_of_ones = 2 * (positives - missed) / (positives + rows - below)
    f1_of_zeros = 2 * (below - missed) / (rows - positives + below)
    best = int(below[np.argmax(f1_of_ones + f1_of_zeros)])
    if best == 0:
        return float(ordered[0])
    if best == rows:
        return float(np.nextafter(ordered[-1], np.inf))
    middle = ordered[best - 1] + (ordered[best] - ordered[best - 1]) / 2
    # Between neighbouring floating-point numbers there is no middle.
    return float(middle if middle > ordered[best - 1] else ordered[best])


def above_threshold(scores: ArrayLike, threshold: float) -> NDArray[np.int64]:
    """Return class 1 for scores from the threshold on, and class 0 for the others."""
    return (np.asarray(scores) >= threshold).astype(np.int64)


def _occurring_counts(truth: ArrayLike, called: ArrayLike) -> NDArray[np.int64]:
    """Return the confusion counts of the classes that occur at all."""
    sides: Sequence[NDArray[Any]] = (np.asarray(truth), np.asarray(called))
    if sides[0].ndim != 1 or sides[0].shape != sides[1].shape or not len(sides[0]):
        raise UsageError(f"Calls of shape {sides[1].shape} cannot be compared with a truth of shape {sides[0].shape}.")
    if any(side.dtype.kind not in "biu" for side in sides):
        raise UsageError("Classes are compared by number: truth and calls must be whole numbers, none missing.")
    occurring, places = np.unique(np.concatenate(sides), return_inverse=True)
    return confusion_counts(places[: len(sides[0])], places[len(sides[0]) :], len(occurring))
