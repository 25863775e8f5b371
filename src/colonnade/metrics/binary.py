"""Two classes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.counting import area_under_roc, confusion_counts, f1_by_class, log_loss
from colonnade.metrics.curves import calibration_curve, calibration_error, kolmogorov_smirnov, precision_recall, roc

__all__ = ["evaluate_binary"]


def evaluate_binary(
    truth: NDArray[np.int64], scores: NDArray[np.float64], threshold: float
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics and curves for probabilities of class 1; a row is called positive from the threshold on."""
    probability = scores.clip(0, 1)
    called = (scores >= threshold).astype(np.int64)
    metrics: dict[str, float] = {}
    curves: dict[str, Any] = {}

    both_classes_occur = 0 < truth.sum() < len(truth)
    if both_classes_occur:
        below = int(np.count_nonzero(called == 0))
        metrics["auc"] = area_under_roc(truth == 1, scores)
        metrics["ks"], curves["ks"] = kolmogorov_smirnov(truth, scores, below)
        curves["roc"] = roc(truth, scores, below)
        curves["precision_recall"] = precision_recall(truth, scores, below)
    metrics["accuracy"] = float((truth == called).mean())
    metrics["f1"] = float(f1_by_class(confusion_counts(truth, called, 2))[1])
    metrics["log_loss"] = log_loss(truth, np.stack([1 - probability, probability], axis=1))
    metrics["brier"] = float(((truth - probability) ** 2).mean())
    metrics["calibration_error"] = calibration_error(probability, truth)
    metrics["positive_rate"] = float(truth.mean())
    curves["calibration"] = calibration_curve(probability, truth)
    return metrics, {name: curve for name, curve in curves.items() if curve is not None}
