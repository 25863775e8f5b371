"""From which score on rows are called positive, by which rule, and what such calls are worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.errors import UsageError

__all__ = ["USUAL", "OperatingPoint", "Threshold", "choose_threshold", "given_threshold", "operating_point"]


@dataclass(frozen=True)
class Threshold:
    """The score from which on a row is called positive, and the rule by which it was chosen, for people."""

    value: float
    rule: str

    def __post_init__(self) -> None:
        if not 0.0 <= self.value <= 1.0:
            raise UsageError(f"A threshold lies from 0 to 1. Got {self.value} instead.")


USUAL = Threshold(0.5, "That is half, as no validation rows chose another.")


def given_threshold(value: float) -> Threshold:
    """Return a threshold that somebody set."""
    return Threshold(value, "It was set by hand.")


@dataclass(frozen=True)
class OperatingPoint:
    """What calls of the positive class are worth at a threshold, on held-out rows of two classes."""

    threshold: float
    rule: str
    """How the threshold was chosen, as a sentence."""
    positive: str
    negative: str
    true_positives: int
    false_positives: int
    false_negatives: int
    true_negatives: int

    @property
    def rows(self) -> int:
        """Count the rows."""
        return self.called + self.false_negatives + self.true_negatives

    @property
    def positives(self) -> int:
        """Count the rows that are positive."""
        return self.true_positives + self.false_negatives

    @property
    def called(self) -> int:
        """Count the rows that are called positive."""
        return self.true_positives + self.false_positives

    @property
    def precision(self) -> float | None:
        """Return which share of the rows called positive are so; None where none is called so."""
        return self.true_positives / self.called if self.called else None

    @property
    def recall(self) -> float | None:
        """Return which share of the positive rows are called so; None where there are none."""
        return self.true_positives / self.positives if self.positives else None

    @property
    def lift(self) -> float | None:
        """Return how many times as often the rows called positive are so as all rows are."""
        if self.precision is None or not self.positives:
            return None
        return self.precision * self.rows / self.positives

    @property
    def support(self) -> str:
        """Say how many rows are positive, as it belongs beside every number about them."""
        return f"{self.positives:,} of {self.rows:,} held-out rows are '{self.positive}'"

    def to_json(self) -> dict[str, Any]:
        """Return the fields, and what follows from them, as JSON values."""
        derived = ("rows", "positives", "precision", "recall", "lift")
        return {**asdict(self), **{name: getattr(self, name) for name in derived}}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> OperatingPoint:
        """Return what `to_json` wrote."""
        return cls(
            threshold=float(content["threshold"]),
            rule=str(content["rule"]),
            positive=str(content["positive"]),
            negative=str(content["negative"]),
            true_positives=int(content["true_positives"]),
            false_positives=int(content["false_positives"]),
            false_negatives=int(content["false_negatives"]),
            true_negatives=int(content["true_negatives"]),
        )


def operating_point(
    truth: NDArray[np.int64], scores: NDArray[np.float64], names: tuple[str, str], threshold: Threshold
) -> OperatingPoint:
    """Count right and wrong calls at a threshold."""
    is_called, is_positive = scores >= threshold.value, truth == 1
    counts = (
        int(np.count_nonzero(one & other))
        for one, other in (
            (is_called, is_positive),
            (is_called, ~is_positive),
            (~is_called, is_positive),
            (~is_called, ~is_positive),
        )
    )
    return OperatingPoint(threshold.value, threshold.rule, names[1], names[0], *counts)


def choose_threshold(scores: NDArray[np.float64], share: float) -> Threshold:
    """Choose from which score on rows are called positive: as many of these rows as one expects to be.

    ``scores`` are those of rows that no model has learned from, ``share`` is that of positive rows among those learned
    from. On 42 small tables this was as good as the threshold with the best macro F1 on those rows, or better where
    few of them are positive; the best F1 of the positive class calls nearly all rows positive where a model is weak.
    """
    if len(scores) < 2:
        return USUAL
    called = min(max(1, round(share * len(scores))), len(scores) - 1)
    rule = (
        f"That calls {called:,} of {len(scores):,} validation rows positive, which is the share of positive rows in "
        f"training ({100 * share:.1f} %)."
    )
    return Threshold(_shortest(scores, float(np.sort(scores)[-called])), rule)


def _shortest(scores: NDArray[np.float64], threshold: float) -> float:
    """Return the shortest number that calls the same rows positive, so that it is no row's own score if it need not be.

    Between neighbouring scores the middle is rounded as far as it stays between them.
    """
    above = scores[scores >= threshold]
    below = scores[scores < threshold]
    high = float(above.min()) if len(above) else 1.0
    low = float(below.max()) if len(below) else 0.0
    middle = low + (high - low) / 2
    for digits in range(1, 16):
        rounded = round(middle, digits)
        if low < rounded <= high:
            return rounded
    return high
