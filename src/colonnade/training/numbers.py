"""One numeric column or date as numbers that models can take: skew tamed, outliers bounded, gaps marked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from colonnade.data.columns import Kind
from colonnade.data.parts import has_support, typed

__all__ = ["Numbers"]

Array = npt.NDArray[np.float64]

_RAMPS = 8
"""Into how many ramps a column is spread."""
_LARGEST = 1e150
"""Numbers beyond count as this one, so that differences and squares stay finite."""
_USUAL = 0.5
"""A value that more than this share of rows has, such as no gain at all, is not one quantity among others."""
_FENCE = 3.0
"""How many times the distance of the quartiles a value may lie beyond them before it is bounded."""
_FARTHEST = 10.0
"""How far apart the least and the largest output may lie."""
_SHARES = np.linspace(0.025, 0.975, 191)
_LOWER, _UPPER = 45, 145
"""The places of the quartiles among them."""
_NORMAL = np.array([NormalDist().inv_cdf(share) for share in _SHARES])
_STRAIGHT = 0.97
"""A column whose quantiles correlate so much with those of a normal distribution is not skewed."""
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
    among `knots` add a ramp that rises from the one to the other, a date adds waves for its cycles, and missing cells
    add a mark. Numbers, first mark and ramps are standardised, so that a missing cell, 0, is in their middle.
    """

    column: str
    is_date: bool
    curve: _Curve | None
    """None where there is one value beside missing cells."""
    usual: float | None
    """The value most rows have, if there is one."""
    knots: tuple[float, ...]
    means: tuple[float, ...]
    scales: tuple[float, ...]
    cycles: tuple[str, ...]
    harmonics: int
    marks_missing: bool

    kind: ClassVar[Kind] = "numeric"

    @classmethod
    def fit(cls, column: str, values: Array, *, is_date: bool, splines: bool, minimum_support: int) -> Numbers | None:
        """Learn from a column's training rows; None where they have nothing that may be told apart."""
        absent = np.isnan(values)
        known = np.clip(values[~absent], -_LARGEST, _LARGEST)
        if not len(known):
            return None
        cycles = tuple(name for name in _CYCLES if is_date and _has_cycle(known, name, minimum_support))
        if minimum_support:
            in_order = np.sort(known)
            # Fewer than twice as many rows are not told apart at all.
            first, last = (minimum_support - 1, -minimum_support) if len(known) >= 2 * minimum_support else (0, 0)
            known = np.clip(known, in_order[first], in_order[last])
        different, counts = np.unique(known, return_counts=True)
        usual = None
        if len(different) > 2 and counts.max() > _USUAL * len(known):
            most = int(counts.argmax())
            usual = float(different[most]) if has_support(int(counts[most]), len(known), minimum_support) else None
        curve = _fit_curve(known if usual is None else known[known != usual], different)
        knots = _fit_knots(curve, different, known[known != usual]) if splines and curve is not None else ()
        raw = _raw(curve, usual, knots, known)
        scales = np.maximum(raw.std(axis=0), np.ptp(raw, axis=0) / _FARTHEST)
        part = cls(
            column=column,
            is_date=is_date,
            curve=curve,
            usual=usual,
            knots=knots,
            means=tuple(raw.mean(axis=0).tolist()),
            scales=tuple(scales.tolist()),
            cycles=cycles,
            harmonics=3 if splines else 1,
            marks_missing=has_support(int(absent.sum()), len(values), minimum_support),
        )
        return part if part.names else None

    @property
    def names(self) -> tuple[str, ...]:
        """Name the outputs."""
        shown = [] if self.curve is None else [self.column]
        shown += [] if self.usual is None else [f"{self.column} is not {self._shown(self.usual)}"]
        shown += [f"{self.column} from {self._shown(low)} to {self._shown(high)}" for low, high in pairwise(self.knots)]
        for cycle in self.cycles:
            for times in range(1, self.harmonics + 1):
                shown += [f"{self.column} {wave} of the {cycle} ({times})" for wave in ("sine", "cosine")]
        shown += [f"{self.column} is missing"] if self.marks_missing else []
        return tuple(shown)

    def write(self, values: Array, block: npt.NDArray[Any]) -> None:
        """Write the outputs of these cells into a block of zeros."""
        present = ~np.isnan(values)
        known = values[present]
        standard = (_raw(self.curve, self.usual, self.knots, known) - np.array(self.means)) / np.array(self.scales)
        outputs = [standard, *(_waves(known, cycle, self.harmonics) for cycle in self.cycles)]
        block[present, : block.shape[1] - self.marks_missing] = np.concatenate(outputs, axis=1)
        if self.marks_missing:
            block[:, -1] = ~present

    def describe(self) -> str:
        """Say how the column is encoded, without a value of it."""
        what = "date" if self.is_date else "number"
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
        saved = {name: list(one) if isinstance(one, tuple) else one for name, one in asdict(self).items()}
        return {"kind": self.kind, **saved}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Numbers:
        """Return the part that `to_json` wrote; KeyError, TypeError or ValueError where it is damaged."""
        curve, usual = saved["curve"], saved["usual"]
        part = cls(
            column=typed(saved["column"], str),
            is_date=typed(saved["is_date"], bool),
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
            means=tuple(typed(one, float) for one in saved["means"]),
            scales=tuple(typed(one, float) for one in saved["scales"]),
            cycles=tuple(typed(one, str) for one in saved["cycles"]),
            harmonics=typed(saved["harmonics"], int),
            marks_missing=typed(saved["marks_missing"], bool),
        )
        count = (part.curve is not None) + (part.usual is not None) + max(len(part.knots) - 1, 0)
        if not len(part.means) == len(part.scales) == count or not set(part.cycles) <= set(_CYCLES):
            raise ValueError
        if any(scale <= 0 for scale in part.scales) or (part.curve is None and part.knots):
            raise ValueError
        if part.curve is not None and not (part.curve.unit > 0 and part.curve.least < part.curve.largest):
            raise ValueError
        if part.curve is not None and (np.diff(part.curve(np.array(part.knots))) <= 0).any():
            raise ValueError
        return part

    def _shown(self, value: float) -> str:
        if not self.is_date or abs(value) > 700_000:
            return f"{value:g}"
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=value)).date().isoformat()


def _bent(values: Array, centre: float, unit: float, bends: bool) -> Array:
    with np.errstate(over="ignore"):
        scaled = (np.clip(values, -_LARGEST, _LARGEST) - centre) / unit
    return np.arcsinh(scaled) if bends else scaled


def _fit_curve(rest: Array, different: Array) -> _Curve | None:
    """Choose the form in which quantiles come nearest to those of a normal distribution, and bound it."""
    if len(different) == 1:
        return None
    quantiles = np.quantile(rest, _SHARES)
    middle = float(np.median(rest))
    span = float(quantiles[_UPPER] - quantiles[_LOWER]) or float(different[-1] - different[0])
    centre, unit, bends = middle, span, False
    straight = best = _normality(_bent(quantiles, centre, unit, bends))
    for place in (float(quantiles[0]), middle, float(quantiles[-1])):
        distances = np.abs(quantiles - place)
        units = np.quantile(distances[distances > 0], (0.05, 0.25, 0.5, 0.75)) if distances.any() else ()
        for one in units:
            reached = _normality(_bent(quantiles, place, float(one), True))
            if straight < _STRAIGHT and reached > best and 1 - reached < (1 - straight) / 2:
                best, centre, unit, bends = reached, place, float(one), True
    outer = np.quantile(rest, (0.01, _SHARES[_LOWER], _SHARES[_UPPER], 0.99))
    ends, (low, lower, upper, high) = (_bent(one, centre, unit, bends) for one in (different[[0, -1]], outer))
    fence = _FENCE * (upper - lower)
    least = max(float(ends[0]), float(min(lower - fence, low)))
    largest = min(float(ends[1]), float(max(upper + fence, high)))
    return _Curve(centre, unit, bends, least, largest) if least < largest else None


def _normality(numbers: Array) -> float:
    """Return the correlation of quantiles with those of a normal distribution."""
    if not np.isfinite(numbers).all() or not numbers.std() > 0:
        return 0.0
    return float(np.corrcoef(numbers, _NORMAL)[0, 1])


def _fit_knots(curve: _Curve, different: Array, rest: Array) -> tuple[float, ...]:
    """Choose where ramps begin and end: at each of few values, or at quantiles."""
    if len(different) <= 2:
        return ()
    places = different
    if len(different) > _RAMPS + 1:
        inner = np.quantile(rest, np.arange(1, _RAMPS) / _RAMPS)
        places = np.unique([different[0], *inner, different[-1]])
    _, first = np.unique(curve(places), return_index=True)
    return tuple(places[first].tolist()) if len(first) > 2 else ()


def _raw(curve: _Curve | None, usual: float | None, knots: tuple[float, ...], values: Array) -> Array:
    """Return what is standardised: the number, the mark of the usual value, and the ramps."""
    outputs: list[npt.NDArray[Any]] = []
    if curve is not None:
        outputs.append(curve(values))
    if usual is not None:
        outputs.append(values != usual)
    if curve is not None and knots:
        places = curve(np.array(knots))
        outputs += [np.clip((outputs[0] - low) / (high - low), 0.0, 1.0) for low, high in pairwise(places)]
    return np.stack(outputs, axis=1).astype(np.float64) if outputs else np.empty((len(values), 0))


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


def _waves(days: Array, cycle: str, harmonics: int) -> Array:
    angle = _part_of_cycle(days, cycle) * (2 * np.pi / _CYCLES[cycle])
    turns = angle[:, None] * np.arange(1, harmonics + 1)
    # Times the root of two, as the mean square of a wave is a half.
    waves: Array = np.sqrt(2) * np.stack([np.sin(turns), np.cos(turns)], axis=2)
    return waves.reshape(len(days), 2 * harmonics)
