"""Three classes or more (two work as well)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.classes import macro_f1
from colonnade.metrics.counting import area_under_roc, confusion_counts, log_loss
from colonnade.metrics.curves import SMALLEST_GROUP, calibration_curve, calibration_error, roc

__all__ = ["evaluate_multiclass"]

MOST_ROC_CURVES = 10
# Beyond this a confusion matrix is neither read nor small.
MOST_CONFUSION_CLASSES = 100


def evaluate_multiclass(
    truth: NDArray[np.int64], scores: NDArray[np.float64], names: list[str]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics and curves for class probabilities; the largest probability names the class."""
    probability = scores.clip(0, 1)
    # float32 rows miss 1 by a rounding error.
    probability = probability / probability.sum(axis=1, keepdims=True)
    called = probability.argmax(axis=1)
    confidence = probability.max(axis=1)
    is_right = (called == truth).astype(np.int64)

    metrics = {
        "accuracy": float(is_right.mean()),
        "macro_f1": macro_f1(truth, called),
        "log_loss": log_loss(truth, probability),
        "calibration_error": calibration_error(confidence, is_right),
    }
    curves: dict[str, Any] = {"calibration": calibration_curve(confidence, is_right)}

    counts = np.bincount(truth, minlength=len(names))
    # One class against the rest is defined only where both sides have rows.
    rankable = [index for index in range(len(names)) if 0 < counts[index] < len(truth)]
    if rankable:
        areas = [area_under_roc(truth == index, probability[:, index]) for index in rankable]
        metrics = {"accuracy": metrics.pop("accuracy"), "macro_auc": float(np.mean(areas)), **metrics}
        largest = sorted(sorted(rankable, key=lambda index: -counts[index])[:MOST_ROC_CURVES])
        drawn = {index: roc((truth == index).astype(np.int64), probability[:, index]) for index in largest}
        curves["roc"] = [{"class": names[index], **curve} for index, curve in drawn.items() if curve] or None
    if len(names) <= MOST_CONFUSION_CLASSES and len(truth) >= SMALLEST_GROUP:
        matrix = confusion_counts(truth, called, len(names))
        curves["confusion"] = {"classes": list(names), "counts": matrix.tolist()}
    return metrics, {name: curve for name, curve in curves.items() if curve is not None}
