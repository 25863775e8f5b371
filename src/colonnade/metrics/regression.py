"""A number to predict."""

from __future__ import annotations

from itertools import pairwise
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.curves import SMALLEST_GROUP, merged_bins, plain

__all__ = ["evaluate_regression"]

QUANTILE_BINS = 20
RESIDUAL_BINS = 30
# The width of a residual bin beside the largest residual, at least: bounds closer together would be the same when
# written with six digits.
FINEST_EXPONENT = -13


def evaluate_regression(
    truth: NDArray[np.float64], predictions: NDArray[np.float64]
) -> tuple[dict[str, float], dict[str, Any]]:
    """Return metrics and curves in the label's own units; a residual is observed minus predicted.

    What no finite number can express is left out.
    """
    # Squares of very large or very small labels are beyond floating point. A power of two costs no digits.
    exponent = _exponent(np.concatenate([truth, predictions]))
    with np.errstate(all="ignore"):
        observed, predicted = np.ldexp(truth, -exponent), np.ldexp(predictions, -exponent)
        residuals = observed - predicted
        error, spread = _root_mean_square(residuals), _root_mean_square(observed - observed.mean())
        metrics = {
            "rmse": float(np.ldexp(error, exponent)),
            "mae": float(np.ldexp(np.abs(residuals).mean(), exponent)),
        }
        # With no spread in the truth there is nothing to explain, and R² is undefined.
        if np.ptp(observed) > 0 and spread > 0:
            metrics["r2"] = 1 - (error / spread) * (error / spread)
        curves = {
            "predicted_observed": _quantile_means(observed, predicted, exponent),
            "residuals": _histogram(residuals, exponent),
        }
    return (
        {name: value for name, value in metrics.items() if isfinite(value)},
        {name: curve for name, curve in curves.items() if curve is not None},
    )


def _exponent(values: NDArray[np.float64]) -> int:
    """Return the power of two that brings the largest value to between a half and one."""
    return int(np.frexp(np.abs(values).max())[1])


def _root_mean_square(values: NDArray[np.float64]) -> float:
    exponent = _exponent(values)
    return float(np.ldexp(np.sqrt(np.mean(np.ldexp(values, -exponent) ** 2)), exponent))


def _quantile_means(
    observed: NDArray[np.float64], predicted: NDArray[np.float64], exponent: int
) -> dict[str, list[Any]] | None:
    order = np.argsort(predicted, kind="stable")
    number = min(QUANTILE_BINS, len(order) // SMALLEST_GROUP)
    if number < 2:
        return None
    groups = np.array_split(order, number)
    return {
        "predicted": plain(np.ldexp([predicted[group].mean() for group in groups], exponent)),
        "observed": plain(np.ldexp([observed[group].mean() for group in groups], exponent)),
        "count": [len(group) for group in groups],
    }


def _histogram(residuals: NDArray[np.float64], exponent: int) -> dict[str, list[Any]] | None:
    own_exponent = _exponent(residuals)
    residuals = np.ldexp(residuals, -own_exponent)
    # The bounds are multiples of a power of two: the smallest and the largest residual belong to single rows.
    width_exponent = max(FINEST_EXPONENT, int(np.frexp(np.ptp(residuals) / RESIDUAL_BINS)[1]))
    bins = np.floor(np.ldexp(residuals, -width_exponent)).astype(np.int64)
    counts = np.bincount(bins - bins.min())
    starts = merged_bins(counts)
    if len(starts) == 0:
        return None
    bounds = np.append(starts, len(counts)) + bins.min()
    edges = plain(np.ldexp(bounds.astype(np.float64), width_exponent + own_exponent + exponent))
    # At the limits of floating point neighbouring bounds run together or go beyond it.
    if not all(-np.inf < low < high < np.inf for low, high in pairwise(edges)):
        return None
    return {"edges": edges, "count": np.add.reduceat(counts, starts).tolist()}
