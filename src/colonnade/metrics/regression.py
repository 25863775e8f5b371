"""A number to predict."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.curves import plain

__all__ = ["evaluate_regression"]

QUANTILE_BINS = 20
RESIDUAL_BINS = 30


def evaluate_regression(
    truth: NDArray[np.float64], predictions: NDArray[np.float64]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics and curves in the label's own units; a residual is observed minus predicted."""
    from sklearn.metrics import mean_absolute_error, r2_score, root_mean_squared_error

    metrics = {
        "rmse": float(root_mean_squared_error(truth, predictions)),
        "mae": float(mean_absolute_error(truth, predictions)),
    }
    # With no spread in the truth there is nothing to explain, and R² is undefined.
    if np.ptp(truth) > 0:
        metrics["r2"] = float(r2_score(truth, predictions))
    curves = {
        "predicted_observed": _quantile_means(truth, predictions),
        "residuals": _histogram(truth - predictions),
    }
    return metrics, curves


def _quantile_means(truth: NDArray[np.float64], predictions: NDArray[np.float64]) -> dict[str, list[Any]]:
    order = np.argsort(predictions, kind="stable")
    groups = np.array_split(order, min(QUANTILE_BINS, len(order)))
    return {
        "predicted": plain(np.array([predictions[group].mean() for group in groups])),
        "observed": plain(np.array([truth[group].mean() for group in groups])),
        "count": [len(group) for group in groups],
    }


def _histogram(residuals: NDArray[np.float64]) -> dict[str, list[Any]]:
    low, high = float(residuals.min()), float(residuals.max())
    # Residuals that differ only by rounding cannot be cut into thirty bins of a representable width.
    has_spread = high - low > 1e-9 * max(abs(low), abs(high))
    counts, edges = np.histogram(residuals, bins=RESIDUAL_BINS if has_spread else 1)
    return {"edges": plain(edges), "count": [int(count) for count in counts]}
