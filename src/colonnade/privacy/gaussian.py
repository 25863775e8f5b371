"""The Gaussian mechanism for rows: clip each, add noise, and count how often each was released.

A row is hidden against another row in its place: two rows clipped to a norm of C are at most 2C apart. With noise of
standard deviation sigma in every coordinate, k releases of a row have Rényi divergence 2 alpha k C² / sigma² of order
alpha (I. Mironov, "Rényi differential privacy", CSF 2017), whatever was released before. That gives (epsilon, delta)
differential privacy for every alpha above 1; the best alpha is known in closed form.

What it hides, and what not. The promise is about what a row's own releases say of it. Values of *other* rows are not
counted: where they come from a network that was trained on this row, they carry something of it too, and this epsilon
does not bound that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError, OutOfRange

__all__ = ["RowBudget", "clip_rows", "sigma_for"]

Array = np.ndarray[Any, Any]


def clip_rows(values: Array, norm: float) -> Array:
    """Return rows in double precision, each longer one shortened to this Euclidean norm.

    >>> clip_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0).round(4).tolist()
    [[0.6, 0.8], [0.3, 0.4]]
    """
    _check_positive("norm to clip at", norm)
    rows = np.asarray(values, np.float64)
    if rows.ndim != 2:
        raise ConfigError(f"Clipping takes rows and columns; this array has {rows.ndim} dimensions.")
    if not np.isfinite(rows).all():
        raise OutOfRange("Values to be clipped are not finite: no norm bounds them.")
    # Squares of large numbers overflow, and those of small ones vanish; parts of the largest do neither.
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    parts = np.divide(rows, largest, out=np.zeros_like(rows), where=largest > 0.0)
    lengths = np.linalg.norm(parts, axis=1, keepdims=True)
    # Not the product, which may overflow, but: is the largest value beyond its share of the norm?
    shares = np.divide(norm, lengths, out=np.full_like(lengths, np.inf), where=lengths > 0.0)
    return np.where(largest > shares, parts * np.minimum(shares, largest), rows)


def sigma_for(epsilon: float, delta: float, releases: int, clip: float) -> float:
    """Return the standard deviation of noise under which so many releases of a row stay within epsilon.

    >>> round(sigma_for(3.2349, 1e-5, releases=10, clip=1.0), 3)
    10.0
    """
    _check_positive("epsilon", epsilon)
    _check_positive("norm to clip at", clip)
    if releases < 1:
        raise ConfigError(f"Noise is chosen for one release or more. Got {releases} instead.")
    weight = _weight(delta)
    # The root of `_epsilon`, written as a fraction: a difference of roots would lose the digits of a small epsilon.
    root = epsilon / (math.sqrt(weight + epsilon) + math.sqrt(weight))
    return clip * math.sqrt(2.0 * releases) / root


class RowBudget:
    """Counts the releases of every row, and says what they add up to for the row that had the most."""

    def __init__(self, clip: float, sigma: float) -> None:
        """Take the norm that rows are clipped to, and the standard deviation of the noise in each coordinate."""
        _check_positive("norm to clip at", clip)
        _check_positive("standard deviation", sigma)
        self._divergence = 2.0 * (clip / sigma) ** 2
        self._releases = np.zeros(0, np.int64)

    @property
    def releases(self) -> Array:
        """Return how often each row was released, up to the last that was."""
        return self._releases.copy()

    @property
    def most(self) -> int:
        """Return the releases of the row that had the most."""
        return int(self._releases.max(initial=0))

    def released(self, rows: Array) -> None:
        """Note one release of each of these rows, by place; a row that stands there twice was released twice."""
        places = np.asarray(rows, np.int64)
        if places.min(initial=0) < 0:
            raise ConfigError("Rows are counted by place, from 0; a place below that is none.")
        counts = np.bincount(places, minlength=len(self._releases))
        counts[: len(self._releases)] += self._releases
        self._releases = counts

    def epsilon(self, delta: float) -> float:
        """Return the epsilon of the row released most often; 0 before any release.

        >>> budget = RowBudget(clip=1.0, sigma=10.0)
        >>> for _ in range(10):
        ...     budget.released(np.arange(5))
        >>> round(budget.epsilon(1e-5), 4)
        3.2349
        """
        return _epsilon(self.most * self._divergence, _weight(delta))

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything a checkpoint needs."""
        return {"releases": torch.from_numpy(self._releases.copy())}

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up what `state` returned."""
        self._releases = tensors["releases"].numpy().copy()


def _epsilon(divergence: float, weight: float) -> float:
    """Return the least of divergence * alpha + weight / (alpha - 1), which is at alpha = 1 + √(weight / divergence)."""
    return divergence + 2.0 * math.sqrt(divergence * weight)


def _weight(delta: float) -> float:
    if not 0.0 < delta < 1.0:
        raise ConfigError(f"delta must be above 0 and below 1. Got {delta} instead.")
    return math.log(1.0 / delta)


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"The {name} must be a number above 0. Got {value} instead.")
