"""How far a number from few rows may be off.

These are rough 95% intervals that need only the number itself and the counts behind it, not the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colonnade.metrics.evaluation import Evaluation

__all__ = ["auc_interval", "interval", "proportion_interval"]

# The 97.5% point of the normal distribution.
Z = 1.959963984540054


def proportion_interval(share: float, rows: int, z: float = Z) -> tuple[float, float]:
    """Return Wilson's interval for a share of independent rows, as wide as the normal point ``z`` says.

    >>> [round(end, 3) for end in proportion_interval(0.9, 100)]
    [0.826, 0.945]
    """
    middle = (share + z**2 / (2 * rows)) / (1 + z**2 / rows)
    reach = z * sqrt(share * (1 - share) / rows + z**2 / (4 * rows**2)) / (1 + z**2 / rows)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def auc_interval(area: float, positives: int, negatives: int) -> tuple[float, float]:
    """Return an interval for an AUC from Hanley and McNeil's standard error (Radiology 143, 1982).

    The error is taken at each candidate for the true area, as Wilson does for shares and Newcombe (2006) for the AUC,
    not at the observed area: there it would be zero for a perfect ranking, however few the rows.
    """

    def is_compatible(candidate: float) -> bool:
        return abs(area - candidate) <= Z * _auc_error(candidate, positives, negatives)

    return _last_compatible(area, 0.0, is_compatible), _last_compatible(area, 1.0, is_compatible)


def _auc_error(area: float, positives: int, negatives: int) -> float:
    two_positives = area / (2 - area)
    two_negatives = 2 * area**2 / (1 + area)
    variance = area * (1 - area) + (positives - 1) * (two_positives - area**2)
    variance += (negatives - 1) * (two_negatives - area**2)
    return sqrt(max(0.0, variance) / (positives * negatives))


def _last_compatible(start: float, end: float, is_compatible: Callable[[float], bool]) -> float:
    if is_compatible(end):
        return end
    for _ in range(50):
        middle = (start + end) / 2
        if is_compatible(middle):
            start = middle
        else:
            end = middle
    return start


def interval(evaluation: Evaluation, name: str) -> tuple[float, float] | None:
    """Return a rough 95% interval for AUC or accuracy; ``None`` for metrics that need the rows."""
    value = evaluation.metrics.get(name)
    if value is None:
        return None
    if name == "accuracy":
        return proportion_interval(value, evaluation.rows)
    if name == "auc" and "positive_rate" in evaluation.metrics:
        positives = round(evaluation.metrics["positive_rate"] * evaluation.rows)
        if 0 < positives < evaluation.rows:
            return auc_interval(value, positives, evaluation.rows - positives)
    return None
