"""By how much one model is ahead of another on the same rows, and how far that may be off.

Two models that score the same rows err on the same ones, so that their difference is known better than each by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.metrics.counting import area_under_roc
from colonnade.metrics.uncertainty import Z, auc_interval, proportion_interval

__all__ = ["Gain", "gains"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """A metric's difference between two models, above 0 where the first is ahead, with a rough 95% interval."""

    value: float
    low: float
    high: float

    @property
    def is_clear(self) -> bool:
        """Tell whether the interval leaves no doubt about which model is ahead."""
        return self.low > 0 or self.high < 0


def gains(task: str, truth: ArrayLike, scores: ArrayLike, others: ArrayLike) -> dict[str, Gain]:
    """Compare two models' scores of the same rows, as `evaluate` takes them, by the headline of the task.

    For AUC and accuracy the intervals of both models are put together with how alike the models err: Zou and Donner
    (Statistics in Medicine 27, 2008), whose interval for two paired shares is Newcombe's method 10. The correlation of
    two AUCs is that of DeLong, DeLong and Clarke-Pearson (Biometrics 44, 1988). For R² the interval is the usual one of
    a mean of differences, one for each row.
    """
    observed = np.asarray(truth)
    first, second = (np.asarray(one, np.float64) for one in (scores, others))
    if task == "regression":
        return _of_squares(observed.astype(np.float64), first, second)
    if task == "multiclass":
        hits = (np.asarray(one.argmax(axis=1) == observed, np.float64) for one in (first, second))
        return {"accuracy": _of_shares(*hits)}
    is_positive = observed == 1
    return {"auc": _of_areas(is_positive, first, second)} if 0 < is_positive.sum() < len(observed) else {}


def _of_shares(hits: Numbers, others: Numbers) -> Gain:
    shares = [float(one.mean()) for one in (hits, others)]
    ends = [proportion_interval(share, len(hits)) for share in shares]
    return _together(shares, ends, _correlation(np.cov(hits, others, bias=True)))


def _of_areas(is_positive: NDArray[np.bool_], scores: Numbers, others: Numbers) -> Gain:
    positives, negatives = int(is_positive.sum()), int((~is_positive).sum())
    areas = [area_under_roc(is_positive, one) for one in (scores, others)]
    ends = [auc_interval(area, positives, negatives) for area in areas]
    of_positives, of_negatives = (
        np.stack(parts) for parts in zip(*(_placements(is_positive, one) for one in (scores, others)), strict=True)
    )
    covariance = np.zeros((2, 2))
    for placed in (of_positives, of_negatives):
        if placed.shape[1] > 1:
            covariance += np.cov(placed) / placed.shape[1]
    return _together(areas, ends, _correlation(covariance))


def _placements(is_positive: NDArray[np.bool_], scores: Numbers) -> tuple[Numbers, Numbers]:
    """Return for every row the share of rows of the other class that it is on the right side of; ties count half."""
    positive, negative = np.sort(scores[is_positive]), np.sort(scores[~is_positive])

    def share_below(values: Numbers, of: Numbers) -> Numbers:
        return (np.searchsorted(of, values, "left") + np.searchsorted(of, values, "right")) / (2.0 * len(of))

    return share_below(scores[is_positive], negative), 1.0 - share_below(scores[~is_positive], positive)


def _correlation(covariance: NDArray[Any]) -> float:
    spread = sqrt(float(covariance[0, 0] * covariance[1, 1]))
    # Of a model that never errs nothing is known about what it errs on.
    return float(np.clip(covariance[0, 1] / spread, -1.0, 1.0)) if spread > 0 else 0.0


def _together(values: list[float], ends: list[tuple[float, float]], correlation: float) -> Gain:
    (first, second), ((first_low, first_high), (second_low, second_high)) = values, ends

    def reach(one: float, other: float) -> float:
        return sqrt(max(0.0, one**2 + other**2 - 2 * correlation * one * other))

    gap = first - second
    low = gap - reach(first - first_low, second_high - second)
    return Gain(gap, low, gap + reach(first_high - first, second - second_low))


def _of_squares(truth: Numbers, scores: Numbers, others: Numbers) -> dict[str, Gain]:
    count, largest = len(truth), max(float(np.abs(one).max()) for one in (truth, scores, others))
    with np.errstate(all="ignore"):
        # Squares of very large or very small labels are beyond floating point.
        observed, first, second = (one / largest for one in (truth, scores, others))
        spread = (observed - observed.mean()) ** 2
        gap = float(((observed - second) ** 2 - (observed - first) ** 2).mean() / spread.mean())
        pulls = ((observed - second) ** 2 - (observed - first) ** 2 - gap * spread) / spread.mean()
        error = float(pulls.std(ddof=1)) / sqrt(count) if count > 1 else float("nan")
    return {"r2": Gain(gap, gap - Z * error, gap + Z * error)} if isfinite(gap) and isfinite(error) else {}
