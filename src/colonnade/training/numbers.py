"""One numeric column or date as numbers that models can take: skew tamed, outliers bounded, gaps marked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data.columns import Kind
from colonnade.data.parts import has_support, typed

__all__ = ["Numbers"]

Array = npt.NDArray[np.float64]

_RAMPS = 5
"""Into how many ramps a column is spread."""
_FEW = 12
"""Of a column with so few different values each begins a ramp."""
_LARGEST = 1e150
"""Training numbers beyond count as this one, also where they are divided by small units: differences and squares stay
finite."""
_USUAL = 0.5
"""A value that more than this share of rows has, such as no gain at all, is not one quantity among others."""
_FENCE = 3.0
"""How many times the distance of the quartiles a value may lie beyond them before it is bounded."""
_FARTHEST = 10.0
"""How far apart the least and the largest output may lie."""
_SHARES = np.linspace(0.025, 0.975, 191)
_NORMAL = np.array([NormalDist().inv_cdf(share) for share in _SHARES])
_UNITS = np.array([0.05, 0.25, 0.5, 0.75])
"""At which quantiles of the distance from its centre a curve may begin to bend."""
_STRAIGHT = 0.97
"""A column whose quantiles correlate so much with those of a normal distribution is not skewed."""
_WAVES = 3
"""How many waves a cycle gives beside ramps: with three, any function of the weekday is a sum of them."""
_CYCLES = {"year": 12, "week": 7, "day": 24}
"""Cycles of dates and moments, and how many parts each has: months, weekdays, hours."""


@dataclass(frozen=True, repr=False)
class _Curve:
    """Turn a column's cells into numbers without skew and outliers."""

    centre: float
    unit: float
    bends: bool
    """Whether the inverse hyperbolic sine is taken, which is a logarithm far from the centre."""
    least: float
    largest: float

    def __call__(self, values: Array) -> Array:
        return np.clip(_bent(values, self.centre, self.unit, self.bends), self.least, self.largest)


@dataclass(frozen=True, repr=False)
class Numbers:
    """Encode one numeric column.

    The first output is the number itself on its `curve`. A value that most rows have adds a mark, each two neighbours
    among `knots` add a ramp that rises from the one to the other, and a date adds waves for its cycles. All these are
    standardised, ramps to half the size, as they say what the number says too; a missing cell, which is 0, lies in
    their middle. Missing cells add a mark of zeros and ones.
    """

    column: str
    kind: Kind
    curve: _Curve | None
    """None where there is one value beside missing cells."""
    usual: float | None
    """The value most rows have, if there is one."""
    knots: tuple[float, ...]
    cycles: tuple[str, ...]
    harmonics: int
    means: tuple[float, ...]
    scales: tuple[float, ...]
    marks_missing: bool

    @classmethod
    def fit(cls, column: str, values: Array, *, kind: Kind, splines: bool, minimum_support: int) -> Numbers | None:
        """Learn from a column's training rows; None where they have nothing that may be told apart."""
        absent = np.isnan(values)
        known = np.sort(np.clip(values[~absent], -_LARGEST, _LARGEST))
        if not len(known):
            return None
        cycles = tuple(name for name in _CYCLES if kind == "date" and _has_cycle(known, name, minimum_support))
        if minimum_support:
            # Fewer than twice as many rows are not told apart at all.
            first, last = (minimum_support - 1, -minimum_support) if len(known) >= 2 * minimum_support else (0, 0)
            known = np.clip(known, known[first], known[last])
        different, counts = np.unique(known, return_counts=True)
        usual = None
        if len(different) > 2 and counts.max() > _USUAL * len(known):
            usual = float(different[counts.argmax()])
        rest = known if usual is None else known[known != usual]
        curve = _fit_curve(rest, different, usual)
        part = cls(
            column=column,
            kind=kind,
            curve=curve,
            usual=None if curve is None else usual,
            knots=_fit_knots(curve, different, known, rest, minimum_support) if splines and curve is not None else (),
            cycles=cycles,
            harmonics=_WAVES if splines else 1,
            means=(),
            scales=(),
            marks_missing=has_support(int(absent.sum()), len(values), minimum_support),
        )
        return part._standardised(known) if part.names else None

    @property
    def names(self) -> tuple[str, ...]:
        """Name the outputs."""
        shown = [] if self.curve is None else [self.column]
        shown += [] if self.usual is None else [f"{self.column} is not {self._shown(self.usual, 6)}"]
        # With as many digits as tell them apart.
        texts = next(
            texts
            for digits in range(3, 18)
            if len(set(texts := [self._shown(knot, digits) for knot in self.knots])) == len(texts) or digits == 17
        )
        shown += [f"{self.column} from {low} to {high}" for low, high in pairwise(texts)]
        for cycle in self.cycles:
            for times in range(1, self.harmonics + 1):
                shown += [f"{self.column} {wave} of the {cycle} ({times})" for wave in ("sine", "cosine")]
        shown += [f"{self.column} is missing"] if self.marks_missing else []
        return tuple(shown)

    def write(self, values: Array, block: npt.NDArray[Any]) -> None:
        """Write the outputs of these cells into a block of zeros."""
        present = ~np.isnan(values)
        rows = slice(None) if present.all() else present
        for place, output in enumerate(self._outputs(values[rows])):
            block[rows, place] = (output - self.means[place]) / self.scales[place]
        if self.marks_missing:
            block[:, -1] = ~present

    def beyond(self, known: Array) -> int:
        """Count the cells, none of them missing, that are cut off at the ends."""
        if self.curve is None:
            return 0
        places = _bent(known, self.curve.centre, self.curve.unit, self.curve.bends)
        slack = 1e-9 * (self.curve.largest - self.curve.least)
        return int(((places < self.curve.least - slack) | (places > self.curve.largest + slack)).sum())

    def distance(self, known: Array) -> float:
        """Return how far the mean of these cells lies from that of training, in standard deviations."""
        return 0.0 if self.curve is None else float((self.curve(known).mean() - self.means[0]) / self.scales[0])

    def describe(self) -> str:
        """Say how the column is encoded, without a value of it."""
        what = {"date": "date", "boolean": "0 or 1"}.get(self.kind, "number")
        said = (
            []
            if self.curve is None
            else [f"{what} on a logarithmic scale, bounded" if self.curve.bends else f"{what}, bounded"]
        )
        said += [] if self.usual is None else ["a mark where it is not the usual value"]
        said += [f"{len(self.knots) - 1} ramps"] if self.knots else []
        said += [f"waves of the {' and the '.join(self.cycles)}"] if self.cycles else []
        said += ["a mark where it is missing"] if self.marks_missing else []
        return ", ".join(said)

    def to_json(self) -> dict[str, Any]:
        """Return the part for JSON."""
        return {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Numbers:
        """Return the part that `to_json` wrote; KeyError, TypeError or ValueError where it is damaged."""
        curve, usual = saved["curve"], saved["usual"]
        part = cls(
            column=typed(saved["column"], str),
            kind=saved["kind"],
            curve=None
            if curve is None
            else _Curve(
                typed(curve["centre"], float),
                typed(curve["unit"], float),
                typed(curve["bends"], bool),
                typed(curve["least"], float),
                typed(curve["largest"], float),
            ),
            usual=None if usual is None else typed(usual, float),
            knots=tuple(typed(one, float) for one in saved["knots"]),
            cycles=tuple(typed(one, str) for one in saved["cycles"]),
            harmonics=typed(saved["harmonics"], int),
            means=tuple(typed(one, float) for one in saved["means"]),
            scales=tuple(typed(one, float) for one in saved["scales"]),
            marks_missing=typed(saved["marks_missing"], bool),
        )
        if not len(part.means) == len(part.scales) == len(part.names) - part.marks_missing:
            raise ValueError
        if (
            not set(part.cycles) <= set(_CYCLES)
            or part.harmonics not in (1, _WAVES)
            or min(part.scales, default=1) <= 0
        ):
            raise ValueError
        if part.curve is None:
            is_sound = part.usual is None and not part.knots
        else:
            places = part.curve(np.array(part.knots))
            is_sound = part.curve.unit > 0 and part.curve.least < part.curve.largest
            is_sound &= bool((np.diff(places) > 0).all())
        if not is_sound:
            raise ValueError
        return part

    def _standardised(self, known: Array) -> Numbers:
        """Return the part with means and scales by which outputs of these cells have about unit variance."""
        means, scales = [], []
        for output in self._outputs(known):
            means.append(float(output.mean()))
            spread = float(np.ptp(output))
            scales.append(max(float(output.std()), spread / _FARTHEST) if spread else 1.0)
        first = (self.curve is not None) + (self.usual is not None)
        for place in range(first, first + len(self.knots) - 1):
            scales[place] *= 2
        return replace(self, means=tuple(means), scales=tuple(scales))

    def _outputs(self, known: Array) -> Iterator[Array]:
        """Return the outputs of cells that are not missing, one by one, before they are standardised."""
        if self.curve is not None:
            number = self.curve(known)
            yield number
            if self.usual is not None:
                # Compared on the curve, where few rows beyond its bounds count as what lies at them.
                yield (number != self.curve(np.array(self.usual))).astype(np.float64)
            for low, high in pairwise(self.curve(np.array(self.knots))):
                # Cut off before the division: neighbours may lie so near each other that it would overflow.
                yield (np.clip(number, low, high) - low) / (high - low)
        for cycle in self.cycles:
            angle = _part_of_cycle(known, cycle) * (2 * np.pi / _CYCLES[cycle])
            for times in range(1, self.harmonics + 1):
                yield np.sin(times * angle).round(9)
                yield np.cos(times * angle).round(9)

    def _shown(self, value: float, digits: int) -> str:
        if self.kind != "date" or abs(value) > 700_000:
            return f"{value:.{digits}g}"
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=value)).date().isoformat()


def _bent(values: Array, centre: float, unit: float, bends: bool) -> Array:
    with np.errstate(over="ignore"):
        scaled = np.clip((values - centre) / unit, -_LARGEST, _LARGEST)
    return np.arcsinh(scaled) if bends else scaled


def _fit_curve(rest: Array, different: Array, usual: float | None) -> _Curve | None:
    """Choose the form in which quantiles come nearest to those of a normal distribution, and bound it.

    The bounds follow from rows that do not have the usual value, which stays apart from them.
    """
    if len(different) == 1:
        return None
    quantiles = _quantiles(rest, _SHARES)
    outer = _quantiles(rest, np.array([0.01, 0.25, 0.5, 0.75, 0.99]))
    centre, unit, bends = float(outer[2]), float(outer[3] - outer[1]) or float(different[-1] - different[0]), False
    straight = best = _normality(_bent(quantiles, centre, unit, bends))
    for place in (quantiles[0], outer[2], quantiles[-1]) if straight < _STRAIGHT else ():
        distances = np.abs(quantiles - place)
        for distance in _quantiles(np.sort(distances[distances > 0]), _UNITS) if distances.any() else ():
            reached = _normality(_bent(quantiles, place, distance, bends=True))
            if reached > best and 1 - reached < (1 - straight) / 2:
                best, centre, unit, bends = reached, float(place), float(distance), True
    ends, (low, lower, _, upper, high) = (_bent(one, centre, unit, bends) for one in (different[[0, -1]], outer))
    fence = _FENCE * (upper - lower)
    least = max(float(ends[0]), float(min(lower - fence, low)))
    largest = min(float(ends[1]), float(max(upper + fence, high)))
    if usual is not None:
        place, apart = float(_bent(np.array(usual), centre, unit, bends)), max(float(fence), 1.0)
        least, largest = min(least, max(place, least - apart)), max(largest, min(place, largest + apart))
    return _Curve(centre, unit, bends, least, largest) if least < largest else None


def _quantiles(in_order: Array, shares: Array) -> Array:
    return np.interp(shares * (len(in_order) - 1), np.arange(len(in_order)), in_order)


def _normality(numbers: Array) -> float:
    """Return the correlation of quantiles with those of a normal distribution."""
    if not numbers.std() > 0:
        return 0.0
    return float(np.corrcoef(numbers, _NORMAL)[0, 1])


def _fit_knots(curve: _Curve, different: Array, known: Array, rest: Array, support: int) -> tuple[float, ...]:
    """Choose where ramps begin and end: at each of few values, or at quantiles, with enough rows between two."""
    places = different
    if len(different) > _FEW:
        places = np.unique([different[0], *_quantiles(rest, np.arange(1, _RAMPS) / _RAMPS), different[-1]])
    _, first = np.unique(curve(places), return_index=True)
    places = places[first]
    # The difference of two neighbouring ramps must not tell few rows apart either.
    below = np.searchsorted(known, places, side="right")
    kept = [0]
    for place in range(1, len(places)):
        if below[place] - below[kept[-1]] >= max(support, 1):
            kept.append(place)
    kept = [*kept[:-1], len(places) - 1] if kept[-1] else kept
    return tuple(places[kept].tolist()) if len(kept) > 2 else ()


def _part_of_cycle(days: Array, cycle: str) -> npt.NDArray[np.int64]:
    """Return the month, weekday or hour of days since 1970, from 0."""
    # Years 1 to 9999; whatever lies beyond is no date that a calendar knows.
    bounded = np.clip(days, -719_162, 2_932_896)
    if cycle == "year":
        return np.floor(bounded).astype("datetime64[D]").astype("datetime64[M]").astype(np.int64) % 12
    if cycle == "week":
        return (np.floor(bounded).astype(np.int64) + 3) % 7
    return np.floor((bounded - np.floor(bounded)) * 24 + 1e-6).astype(np.int64) % 24


def _has_cycle(days: Array, cycle: str, support: int) -> bool:
    counts = np.bincount(_part_of_cycle(days, cycle))
    there = counts[counts > 0]
    return len(there) > 1 and int(there.min()) >= support
