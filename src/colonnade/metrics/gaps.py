"""The widest difference between groups, and how far it may be off."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from math import sqrt
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.uncertainty import proportion_interval

__all__ = ["Gap", "Level", "widest_difference"]


@dataclass(frozen=True)
class Gap:
    """The widest difference between groups, with a rough 95% interval; all three ``None`` where nothing compares.

    ``left_out`` numbers the groups without the rows that the comparison needs (in one part of it at least).
    """

    value: float | None
    low: float | None
    high: float | None
    left_out: tuple[int, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the content as a plain dict."""
        return {**asdict(self), "left_out": list(self.left_out)}


@dataclass(frozen=True)
class Level:
    """What one group reaches, and the ends of its interval for a point of the normal distribution."""

    value: float
    ends: Callable[[float], tuple[float, float]]

    @classmethod
    def of_share(cls, hits: int, rows: int) -> Level:
        """Take a share of rows, with Wilson's interval."""
        return cls(hits / rows, lambda z: proportion_interval(hits / rows, rows, z))

    @classmethod
    def of_mean(cls, values: NDArray[np.float64]) -> Level:
        """Take the mean of two values or more, with the usual interval from its standard error."""
        mean, error = float(values.mean()), float(values.std(ddof=1)) / sqrt(len(values))
        return cls(mean, lambda z: (mean - z * error, mean + z * error))


def widest_difference(parts: Iterable[Sequence[Level]], left_out: Iterable[int] = ()) -> Gap:
    """Return the widest difference between two levels of the same part.

    The interval of each pair is Newcombe's for two independent shares (his method 10, Statistics in Medicine 17,
    1998), put together from the intervals of the two levels. Where several pairs compete to be the widest, each
    interval is widened so that all of them hold together (Bonferroni), and the gap lies between the largest of the
    lower and the largest of the upper ends. As the widest of several, the number itself leans upwards.
    """
    pairs = [pair for levels in parts for pair in combinations(levels, 2)]
    if not pairs:
        return Gap(None, None, None, tuple(sorted(set(left_out))))
    z = NormalDist().inv_cdf(1 - 0.025 / len(pairs))
    ends = [_pair_ends(*((one, other) if one.value >= other.value else (other, one)), z) for one, other in pairs]
    return Gap(
        value=max(abs(one.value - other.value) for one, other in pairs),
        low=max(low for low, _ in ends),
        high=max(high for _, high in ends),
        left_out=tuple(sorted(set(left_out))),
    )


def _pair_ends(upper: Level, lower: Level, z: float) -> tuple[float, float]:
    """Return the interval of the size of a difference, whichever way it points; all levels lie between 0 and 1."""
    (upper_low, upper_high), (lower_low, lower_high) = upper.ends(z), lower.ends(z)
    difference = upper.value - lower.value
    low = difference - sqrt((upper.value - upper_low) ** 2 + (lower_high - lower.value) ** 2)
    high = difference + sqrt((upper_high - upper.value) ** 2 + (lower.value - lower_low) ** 2)
    return max(0.0, low), min(1.0, max(high, -low))
