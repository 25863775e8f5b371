"""Which of two models serves the target, and how scores become probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.session import Finding

__all__ = [
    "Calibration",
    "judge",
    "quality",
    "quality_name",
    "quality_of_decided",
    "safeguard_finding",
    "weighted_f1",
    "word_for",
]

Numbers = npt.NDArray[np.float64]

# With fewer rows of a class the slope would be an accident.
_FEWEST = 20
_STEPS = 50
# Where a threshold divides the labelled rows without a fault, the best slope would be infinite.
_PENALTY = 1e-3


@dataclass(frozen=True)
class Calibration:
    """A slope and an intercept that turn scores into the logarithms of odds, or into numbers of the label's scale."""

    slope: float = 1.0
    intercept: float = 0.0

    @classmethod
    def fit(cls, task: str, scores: Numbers, targets: Numbers, share: float) -> Calibration:
        """Fit a slope; several classes stay as they are.

        For two classes a score of zero stands for even chances where both are as frequent. It stays there, as few
        labelled rows know little about it; ``share`` of the second class among all the source's rows then shifts it.
        """
        if task == "multiclass":
            return cls()
        x, y = scores[:, 0], targets[:, 0]
        if task == "regression":
            if len(x) < _FEWEST or x.std() == 0.0:
                return cls()
            slope = float(((x - x.mean()) * (y - y.mean())).mean() / x.var())
            return cls(slope, float(y.mean() - slope * x.mean())) if slope > 0.0 else cls()
        if min(int((y > 0).sum()), int((y < 0).sum())) < _FEWEST or not x.any():
            return cls()
        slope = _slope(x, y > 0)
        # A falling curve would turn every score round; then the scores say nothing, and are left alone.
        return cls(slope, float(np.log(share / (1.0 - share)))) if slope > 0.0 else cls()

    def apply(self, scores: Numbers) -> Numbers:
        """Return scores on the new scale."""
        return self.slope * scores + self.intercept

    def to_json(self) -> dict[str, float]:
        """Return both numbers."""
        return {"slope": self.slope, "intercept": self.intercept}


def judge(
    task: str,
    truth: Mapping[str, Numbers],
    transferred: Mapping[str, Numbers],
    alone: Mapping[str, Numbers],
    margin: float,
) -> tuple[bool, dict[str, Any]]:
    """Tell whether transfer does better on validation rows than learning alone, with both numbers for all parts."""
    found: dict[str, Any] = {"metric": quality_name(task)}
    for part, y in truth.items():
        found[part] = {
            "transfer": quality(task, y, transferred[part]),
            "self-learning": quality(task, y, alone[part]),
            "rows": len(y),
        }
    if "validation" not in found:
        found["note"] = "no validation rows, so nothing was compared"
        return True, found
    return found["validation"]["transfer"] >= found["validation"]["self-learning"] + margin, found


def safeguard_finding(found: Mapping[str, Mapping[str, Any]]) -> Finding:
    """Return both models' quality, target by target, as the report shows it."""
    rows = []
    for target, one in found.items():
        for part in ("validation", "test"):
            if part in one:
                numbers = [f"{one[part][name]:.4f}" for name in ("transfer", "self-learning")]
                rows.append((target, part, str(one[part]["rows"]), *numbers, one["chosen"]))
    metric = word_for(next(iter(found.values()))["metric"])
    return Finding(
        name="safeguard",
        title="Transfer against learning alone",
        text=f"The {metric} of the transferred model and of a regression on the target's columns that learned from the "
        "labelled shared rows alone. The better one on validation rows serves; test rows have no say.",
        columns=("target", "rows", "count", "transfer", "self-learning", "chosen"),
        rows=tuple(rows),
        values=dict(found),
    )


def word_for(metric: str) -> str:
    """Return a metric's name for people."""
    return {"auc": "AUC", "weighted_f1": "weighted F1", "r2": "R²"}[metric]


def quality_name(task: str) -> str:
    """Return the name of the metric that decides."""
    # By rank where there are two classes: a threshold would be a second thing to get wrong with few rows.
    return {"regression": "r2", "multiclass": "weighted_f1"}.get(task, "auc")


def quality(task: str, targets: Numbers, scores: Numbers) -> float:
    """Return how good scores are."""
    if task == "regression":
        residual, spread = ((targets - scores) ** 2).sum(), ((targets - targets.mean()) ** 2).sum()
        return float(1.0 - residual / spread) if spread else 0.0
    if task == "multiclass":
        return weighted_f1(targets.argmax(axis=1), scores.argmax(axis=1))
    is_second = targets[:, 0] > 0
    return _area(is_second, scores[:, 0]) if is_second.any() and not is_second.all() else 0.5


def quality_of_decided(task: str, targets: Numbers, decided: npt.NDArray[Any]) -> float:
    """Return how good predictions are that came without scores: class numbers, or standardised numbers."""
    if task == "regression":
        return quality(task, targets[:, 0], decided)
    truth = targets.argmax(axis=1) if task == "multiclass" else (targets[:, 0] > 0).astype(np.int64)
    return weighted_f1(truth, decided)


def _area(is_second: npt.NDArray[np.bool_], scores: Numbers) -> float:
    """Return the chance that a row of the second class scores above one of the first; ties count half."""
    first, second = np.sort(scores[~is_second]), scores[is_second]
    below, up_to = np.searchsorted(first, second, "left"), np.searchsorted(first, second, "right")
    return float((below + up_to).mean() / 2.0 / len(first))


def weighted_f1(truth: npt.NDArray[np.int64], found: npt.NDArray[np.int64]) -> float:
    """Return the mean of all classes' F1, weighted by their rows."""
    total = 0.0
    for kind in np.unique(truth):
        hits = float(((truth == kind) & (found == kind)).sum())
        total += (truth == kind).sum() * 2.0 * hits / ((truth == kind).sum() + (found == kind).sum())
    return float(total / len(truth))


def _slope(x: Numbers, is_second: npt.NDArray[np.bool_]) -> float:
    """Fit a logistic curve through the origin by Newton's method, both classes of equal weight."""
    weights = np.where(is_second, 0.5 / is_second.sum(), 0.5 / (~is_second).sum())
    scale = float(np.abs(x).max())
    scaled, slope = x / scale, 0.0
    for _ in range(_STEPS):
        likely = 1.0 / (1.0 + np.exp(-np.clip(slope * scaled, -30.0, 30.0)))
        gradient = float((weights * (likely - is_second) * scaled).sum()) + _PENALTY * slope
        curvature = float((weights * likely * (1.0 - likely) * scaled**2).sum()) + _PENALTY
        step = gradient / curvature
        slope -= step
        if abs(step) < 1e-10:
            break
    return slope / scale
