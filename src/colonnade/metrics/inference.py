"""How much of an attribute an attacker read from representations, beside what chance gives.

Each number alone misleads. The macro F1 of the likeliest class saturates at the constant answer and then hides what an
attacker still knows, so it stands beside the one at a threshold tuned on other rows, the AUC and the chance band.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import UsageError
from colonnade.metrics.classes import above_threshold, chance_band, macro_f1, tuned_threshold
from colonnade.metrics.counting import area_under_roc
from colonnade.metrics.regression import evaluate_regression
from colonnade.metrics.uncertainty import auc_interval

__all__ = ["Inference", "ValueInference", "average_inference", "measure_inference", "measure_value_inference"]

Numbers = NDArray[np.float64]


@dataclass(frozen=True)
class Inference:
    """What an attacker reached on test rows.

    ``tuned_macro_f1`` is there for two classes. ``auc`` is that of class 1, or the mean of each class against the rest
    when there are more; it and its rough 95% interval are absent when only one class occurs. ``chance`` is the band
    of macro F1 from naming the largest class to guessing by shares. ``members`` says of how many attackers these
    numbers are the mean; an ensemble is one.
    """

    counts: tuple[int, ...]
    macro_f1: float
    tuned_macro_f1: float | None
    auc: float | None
    auc_interval: tuple[float, float] | None
    chance: tuple[float, float]
    members: int = 1

    @property
    def is_above_chance(self) -> bool:
        """Tell whether so much is hardly read by luck."""
        return self.auc_interval is not None and self.auc_interval[0] > 0.5

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain dicts and lists."""
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in asdict(self).items()}
        return found | {"is_above_chance": self.is_above_chance}


@dataclass(frozen=True)
class ValueInference:
    """What an attacker reached for an attribute that is a number; ``None`` where there is no spread to explain.

    R² is against always naming the test rows' mean, so it may be negative; the correlation overlooks a wrong scale.
    """

    rows: int
    r2: float | None
    correlation: float | None

    @property
    def is_above_chance(self) -> bool:
        """Tell whether so much is hardly read by luck: without a connexion, correlations have this much spread."""
        return self.correlation is not None and self.correlation > 2.0 / math.sqrt(self.rows)

    def to_json(self) -> dict[str, Any]:
        """Return the content as a plain dict."""
        return asdict(self) | {"is_above_chance": self.is_above_chance}


def measure_inference(
    truth: ArrayLike, probabilities: ArrayLike, validation_truth: ArrayLike, validation_probabilities: ArrayLike
) -> Inference:
    """Measure an attacker's class probabilities, one column per class; the threshold comes from validation rows."""
    actual, chances = _checked(truth, probabilities, "test")
    classes = chances.shape[1]
    counts = np.bincount(actual, minlength=classes)
    tuned = None
    if classes == 2:
        other, other_chances = _checked(validation_truth, validation_probabilities, "validation")
        if 0 < other.sum() < len(other):
            tuned = macro_f1(actual, above_threshold(chances[:, 1], tuned_threshold(other, other_chances[:, 1])))
    area, interval = _area(actual, chances, counts)
    return Inference(
        counts=tuple(counts.tolist()),
        macro_f1=macro_f1(actual, chances.argmax(axis=1)),
        tuned_macro_f1=tuned,
        auc=area,
        auc_interval=interval,
        chance=chance_band(counts),
    )


def average_inference(members: Sequence[Inference]) -> Inference:
    """Return the mean numbers of several attackers on the same rows, each judged by itself.

    An ensemble, which averages probabilities first, is another thing and usually stronger.
    """
    if not members or any(member.counts != members[0].counts for member in members):
        raise UsageError("Only attacks on the same test rows can be averaged, and at least one is needed.")

    def mean(pick: Callable[[Inference], float | None]) -> float | None:
        values = [value for value in map(pick, members) if value is not None]
        return float(np.mean(values)) if len(values) == len(members) else None

    intervals = [member.auc_interval for member in members if member.auc_interval is not None]
    ends = tuple(np.mean(intervals, axis=0).tolist()) if len(intervals) == len(members) else None
    return Inference(
        counts=members[0].counts,
        macro_f1=float(np.mean([member.macro_f1 for member in members])),
        tuned_macro_f1=mean(lambda member: member.tuned_macro_f1),
        auc=mean(lambda member: member.auc),
        auc_interval=ends,
        chance=members[0].chance,
        members=len(members),
    )


def measure_value_inference(truth: ArrayLike, predictions: ArrayLike) -> ValueInference:
    """Measure an attacker's predictions of a number."""
    actual, predicted = np.asarray(truth, np.float64), np.asarray(predictions, np.float64)
    if actual.ndim != 1 or actual.shape != predicted.shape or not len(actual):
        raise UsageError(f"Predictions of shape {predicted.shape} do not fit a truth of shape {actual.shape}.")
    if not (np.all(np.isfinite(actual)) and np.all(np.isfinite(predicted))):
        raise UsageError("Truth and predictions must be finite. Leave out rows whose attribute is unknown.")
    has_spread = bool(np.ptp(actual) > 0 and np.ptp(predicted) > 0)
    return ValueInference(
        rows=len(actual),
        r2=evaluate_regression(actual, predicted)[0].get("r2"),
        correlation=float(np.corrcoef(actual, predicted)[0, 1]) if has_spread else None,
    )


def _area(
    actual: NDArray[np.int64], chances: Numbers, counts: NDArray[np.int64]
) -> tuple[float | None, tuple[float, float] | None]:
    """Return the AUC with its interval: of class 1, or of every class against the rest that has both sides.

    For several classes the intervals' ends are averaged as well. That is rather too wide than too narrow: the error
    of a mean is at most the mean of the errors.
    """
    rankable = [index for index in range(len(counts)) if 0 < counts[index] < len(actual)]
    if not rankable:
        return None, None
    rankable = [1] if len(counts) == 2 else rankable
    areas = [area_under_roc(actual == index, chances[:, index]) for index in rankable]
    sizes = [(int(counts[index]), int(len(actual) - counts[index])) for index in rankable]
    ends = [auc_interval(area, *size) for area, size in zip(areas, sizes, strict=True)]
    low, high = np.mean(ends, axis=0).tolist()
    return float(np.mean(areas)), (low, high)


def _checked(truth: ArrayLike, probabilities: ArrayLike, rows: str) -> tuple[NDArray[np.int64], Numbers]:
    actual, chances = np.asarray(truth), np.asarray(probabilities, np.float64)
    if chances.ndim != 2 or chances.shape[1] < 2 or actual.shape != chances.shape[:1] or not len(actual):
        raise UsageError(
            f"{len(actual) if actual.ndim else 0} {rows} rows and probabilities of shape {chances.shape} do not fit: "
            "one row of class probabilities is needed for each."
        )
    if not np.all(np.isfinite(chances)):
        raise UsageError(f"The attacker's probabilities for {rows} rows are not all finite.")
    if actual.dtype.kind not in "biu" or actual.min() < 0 or actual.max() >= chances.shape[1]:
        raise UsageError(f"Classes of {rows} rows must be whole numbers from 0 to {chances.shape[1] - 1}.")
    return actual.astype(np.int64), chances
