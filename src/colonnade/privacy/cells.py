"""A table released once, cell by cell under noise, and what that costs per row.

Values are in *unit space*: a numeric column is scaled to [0, 1] by public bounds, a categorical one of k levels is a
block of k one-hot columns. Every cell is drawn once and then used as often as one likes: that costs nothing more.

``cell_ldp`` hides each cell from the receiver by itself (local differential privacy). A number is rounded to a grid of
1/4096 and gets discrete Laplace noise of scale 1/epsilon on that grid; it is not clipped afterwards, so that its mean
is the rounded number. Noise in floating point would give the value away by which sums can occur at all (I. Mironov, "On
significance of the least significant bits for differential privacy", CCS 2012); on the grid every value can give every
sum. The noise is looked up in tables of whole numbers over 2**64. Those differ from the exact distribution by less than
t = 2**-52 + (45/epsilon + 1) 2**-65 in total variation, so a cell has (epsilon, (1 + e**epsilon) t) differential
privacy: a delta of 6e-16 at epsilon 0.5, and none from rounding in the computer. A category is replaced at random
(k-ary randomised response: kept with probability e**epsilon / (e**epsilon + k - 1)) and then written so that its mean
is the one-hot row. Missing cells are released like others: as a level drawn at random, or as a half under noise.

``row_gaussian`` adds normal noise in every coordinate. Its promise is about whole rows and has a delta. The noise is
rounded to the grid too, which is the same as rounding the sum, so the promise stands; what floating point takes from it
is below sigma 2**-37 in total variation per coordinate.

``lemma`` and ``lemma_shared`` are there to reproduce M. Gong et al., "Multi-party dual learning" (IEEE Transactions on
Cybernetics, 2022). Their claim does not hold; `CellBudget.text` says why.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate, pairwise, repeat
from operator import mul
from typing import Any, Literal, get_args

import numpy as np

from colonnade.errors import ConfigError, OutOfRange, did_you_mean
from colonnade.privacy.noise import SecretNoise

__all__ = [
    "CELL_GRID",
    "CellBudget",
    "CellColumn",
    "CellRelease",
    "Mechanism",
    "largest_whole_laplace",
    "randomised_responses",
    "unbiased_rows",
    "whole_laplace",
]

Array = np.ndarray[Any, Any]
Mechanism = Literal["none", "cell_ldp", "row_gaussian", "lemma", "lemma_shared"]

CELL_GRID = 4096
"""A noised number is a whole multiple of one part in so many."""

# Below this the noise is ten thousand times the range: of no use, and its table gets long.
_LEAST_EPSILON = 1e-4
# Noise is drawn for so many rows at a time; another number would give other noise.
_ROWS_AT_A_TIME = 1024
_MISSING = -1
_BOUNDLESS = ("none", "lemma_shared")
_LEMMA = (
    "The paper's lemma claims epsilon {claim:.4g} for all of this. Its proof does not hold: it takes the sum of noisy "
    "cells for one Laplace draw, which is true only if all rows share one draw, and its neighbouring tables differ in "
    "a whole column while what is released is every row."
)


@dataclass(frozen=True)
class CellColumn:
    """A column of a table in unit space: numeric with 0 levels, otherwise a one-hot block of as many columns."""

    name: str
    levels: int = 0
    epsilon: float = 1.0

    def __post_init__(self) -> None:
        """Refuse levels and budgets that are none."""
        if self.levels < 0 or self.levels == 1:
            raise ConfigError(
                f"Column '{self.name}' needs 0 levels (numeric) or 2 and more. Got {self.levels} instead."
            )
        _check_positive(f"epsilon of column '{self.name}'", self.epsilon)

    @property
    def width(self) -> int:
        """Return how many columns of unit space it takes."""
        return self.levels or 1


@dataclass(frozen=True)
class CellBudget:
    """What the release of a table costs each of its rows; rows are hidden each by itself, so more rows cost no more.

    `cells` has the epsilon of one cell by column, infinite where there is no bound. `row_basic` is their sum: the
    epsilon of a whole row. `row_zcdp` is that row's rho under zero-concentrated differential privacy, and the epsilon
    it gives at `delta` (M. Bun and T. Steinke, 2016), or `row_basic` if that is less.
    """

    mechanism: Mechanism
    cells: Mapping[str, float]
    row_basic: float
    row_zcdp: tuple[float, float]
    paper_claim: float | None
    is_sound: bool
    rows: int
    delta: float

    def text(self) -> str:
        """Say in plain sentences what this means, with what is wrong with it.

        >>> release = CellRelease([CellColumn("age", 0, 0.5)], "cell_ldp", noise=SecretNoise(bytes(32)))
        >>> print(release.budget(100).text().split(". ")[0])
        100 rows of 1 column were released with noise in every cell, drawn once
        """
        return " ".join((self._opening(), self._cost(), *self._caveats()))

    def to_json(self) -> dict[str, object]:
        """Return plain values for a report; what is infinite is None, which JSON has a word for."""
        rho, epsilon = self.row_zcdp
        return {
            "mechanism": self.mechanism,
            "cells": {name: _or_none(value) for name, value in self.cells.items()},
            "row_basic": _or_none(self.row_basic),
            "row_zcdp": {"rho": _or_none(rho), "epsilon": _or_none(epsilon), "delta": self.delta},
            "paper_claim": self.paper_claim,
            "is_sound": self.is_sound,
            "rows": self.rows,
        }

    def _opening(self) -> str:
        columns = "1 column" if len(self.cells) == 1 else f"{len(self.cells)} columns"
        what = {
            "none": "as they are, without noise.",
            "cell_ldp": "with noise in every cell, drawn once.",
            "row_gaussian": "with normal noise over the whole row, drawn once.",
            "lemma": "with the noise of the paper's lemma, drawn for every cell.",
            "lemma_shared": "with the noise of the paper's lemma, one draw per column shared by all rows.",
        }[self.mechanism]
        rows = "1 row" if self.rows == 1 else f"{self.rows} rows"
        return f"{rows} of {columns} {'was' if self.rows == 1 else 'were'} released {what}"

    def _cost(self) -> str:
        rho, epsilon = self.row_zcdp
        if not math.isfinite(rho):
            return "Nothing bounds what the receiver learns of a row."
        least, most = min(self.cells.values()), max(self.cells.values())
        cell = f"{most:.4g}" if least == most else f"{least:.4g} to {most:.4g}"
        at = f"at delta {self.delta:.2g}"
        if not math.isfinite(self.row_basic):
            return f"One cell costs epsilon {cell} {at}, a whole row {epsilon:.4g} {at} (rho {rho:.4g})."
        return (
            f"One cell costs epsilon {cell}; a whole row costs {self.row_basic:.4g} by the sum of its cells, "
            f"{epsilon:.4g} {at} by zCDP (rho {rho:.4g}). Other rows add nothing to it."
        )

    def _caveats(self) -> list[str]:
        if self.paper_claim is None:
            return []
        lemma = _LEMMA.format(claim=self.paper_claim)
        if self.mechanism == "lemma":
            return [lemma, "The costs above are what independent draws of that size give, by another argument."]
        if self.mechanism == "lemma_shared":
            shared = "A shared draw only shifts a column: differences between rows are exact, and centring removes it."
            return [lemma, shared]
        other = f"The paper would print epsilon {self.paper_claim:.4g} for these settings, by a lemma for other noise"
        return [f"{other} whose proof does not hold: the two cannot be compared."]


class CellRelease:
    """Draws the noise of a table's cells, once for every purpose and counter, and says what it costs."""

    def __init__(
        self,
        columns: Sequence[CellColumn],
        mechanism: Mechanism,
        *,
        noise: SecretNoise,
        sigma: float = 1.0,
        hidden: int = 1,
        delta: float = 1e-5,
    ) -> None:
        """Take the columns in the order of the table.

        ``sigma`` is for ``row_gaussian``. ``hidden`` is the width of the affine layer in the paper's lemma, which does
        not state it. ``delta`` is for the budget only. Other settings give other noise under the same purpose: the
        difference of two releases with the same draws would give the rows away.
        """
        _check_mechanism(mechanism)
        _check_columns(columns)
        _check_positive("standard deviation", sigma)
        if hidden < 1:
            raise ConfigError(f"The hidden width of the lemma must be 1 or more. Got {hidden} instead.")
        if not 0.0 < delta < 1.0:
            raise ConfigError(f"delta must be above 0 and below 1. Got {delta} instead.")
        self._columns, self._mechanism, self._noise = tuple(columns), mechanism, noise
        self._sigma, self._hidden, self._delta = float(sigma), int(hidden), delta
        ends = list(accumulate((column.width for column in columns), initial=0))
        self._blocks = tuple(slice(start, stop) for start, stop in pairwise(ends))
        self._width = ends[-1]
        settings = repr((mechanism, self._columns, self._sigma, self._hidden, CELL_GRID))
        self._settings = hashlib.sha256(settings.encode()).hexdigest()
        if mechanism not in ("none", "row_gaussian"):
            _check_least(min(self._effective(column) for column in columns))

    def perturb(self, values: Array, purpose: str, counter: int = 0) -> Array:
        """Return what may be released of these rows, in double precision.

        The same purpose and counter give the same noise, whatever the rows. Never use them for rows that changed:
        the difference would be that of the rows.
        """
        rows = self._taken(values)
        if self._mechanism == "none":
            return rows.copy()
        blocks = {place: self._level(rows, place) for place, column in enumerate(self._columns) if column.levels}
        rows = self._on_grid(rows)
        released = np.empty_like(rows)
        for start in range(0, len(rows), _ROWS_AT_A_TIME):
            part = slice(start, start + _ROWS_AT_A_TIME)
            draws = "shared" if self._mechanism == "lemma_shared" else str(start)
            label = f"{draws} {self._settings} {purpose}"
            released[part] = rows[part] + self._shifts(len(rows[part]), label, counter)
            if self._mechanism == "cell_ldp":
                self._answer(released[part], {place: levels[part] for place, levels in blocks.items()}, label, counter)
        return released

    def budget(self, released_rows: int) -> CellBudget:
        """Return what one release of so many rows costs each of them.

        >>> columns = [CellColumn(f"c{place}", epsilon=0.5) for place in range(280)]
        >>> budget = CellRelease(columns, "cell_ldp", noise=SecretNoise(bytes(32))).budget(10)
        >>> budget.row_basic, round(budget.row_zcdp[1], 1)
        (140.0, 75.1)
        """
        if released_rows < 0:
            raise ConfigError(f"Rows released cannot be fewer than none. Got {released_rows} instead.")
        cells = {column.name: self._cell_epsilon(column) for column in self._columns}
        # Normal noise has no epsilon without a delta, and deltas would add up too.
        basic = math.inf if self._mechanism == "row_gaussian" else math.fsum(cells.values())
        rho = math.fsum(map(self._cell_rho, self._columns))
        claims = self._mechanism in ("cell_ldp", "lemma", "lemma_shared")
        return CellBudget(
            mechanism=self._mechanism,
            cells=cells,
            row_basic=basic,
            row_zcdp=(rho, min(basic, _zcdp_epsilon(rho, self._delta))),
            paper_claim=max(column.epsilon for column in self._columns) if claims else None,
            is_sound=self._mechanism in ("cell_ldp", "row_gaussian"),
            rows=int(released_rows),
            delta=self._delta,
        )

    def _taken(self, values: Array) -> Array:
        """Return the rows in double precision if this can release them."""
        rows: Array = np.asarray(values, np.float64)
        if rows.ndim != 2 or rows.shape[1] != self._width:
            raise ConfigError(
                f"These columns take rows of {self._width} values; this array has the shape {rows.shape}."
            )
        if self._mechanism != "none" and np.isinf(rows).any():
            raise OutOfRange("Values to be released under noise are not finite: no bounds hold them.")
        return rows

    def _level(self, rows: Array, place: int) -> Array:
        """Return the number of each row's level in this block, -1 where it is missing."""
        block = rows[:, self._blocks[place]]
        is_missing = np.isnan(block).all(axis=1) | (block == 0.0).all(axis=1)
        is_level = ((block == 0.0) | (block == 1.0)).all(axis=1) & (block.sum(axis=1) == 1.0)
        if not (is_missing | is_level).all():
            raise OutOfRange(
                f"Column '{self._columns[place].name}' has rows that are neither one level (a single 1 among zeros) "
                "nor missing (all zeros)."
            )
        levels: Array = np.where(is_missing, _MISSING, block.argmax(axis=1))
        return levels

    def _on_grid(self, rows: Array) -> Array:
        """Return numbers clipped to [0, 1] and rounded to the grid; missing ones are a half, missing levels zeros."""
        halves = np.repeat([0.0 if column.levels else 0.5 for column in self._columns], self._widths)
        known = np.where(np.isnan(rows), halves, rows)
        rounded: Array = np.rint(np.clip(known, 0.0, 1.0) * CELL_GRID) / CELL_GRID
        return rounded

    def _shifts(self, count: int, label: str, counter: int) -> Array:
        """Return the noise to add to so many rows: multiples of the grid."""
        if self._mechanism == "row_gaussian":
            draws = self._noise.gaussian(label, counter, (count, self._width))
            steps: Array = np.rint(self._sigma * CELL_GRID * draws)
            return steps / CELL_GRID
        words = self._noise.words(label, counter, (1 if self._mechanism == "lemma_shared" else count, self._width, 2))
        epsilons = np.repeat([self._effective(column) for column in self._columns], self._widths)
        steps = np.empty(words.shape[:2])
        for epsilon in np.unique(epsilons):
            chosen = epsilons == epsilon
            steps[:, chosen] = _discrete_laplace(float(epsilon), words[:, chosen])
        return steps / CELL_GRID

    def _answer(self, released: Array, blocks: Mapping[int, Array], label: str, counter: int) -> None:
        """Write the randomised responses of categorical columns over their blocks."""
        words = self._noise.words(f"responses {label}", counter, (len(released), len(blocks), 2))
        for number, (place, levels) in enumerate(blocks.items()):
            column = self._columns[place]
            answers = randomised_responses(levels, column.levels, column.epsilon, words[:, number])
            released[:, self._blocks[place]] = unbiased_rows(answers, column.levels, column.epsilon)

    @property
    def _widths(self) -> list[int]:
        return [column.width for column in self._columns]

    def _effective(self, column: CellColumn) -> float:
        """Return one over the scale of the Laplace noise in a coordinate of this column."""
        return column.epsilon if self._mechanism == "cell_ldp" else column.epsilon / (2.0 * self._hidden)

    def _cell_epsilon(self, column: CellColumn) -> float:
        if self._mechanism in _BOUNDLESS:
            return math.inf
        if self._mechanism == "row_gaussian":
            return _zcdp_epsilon(self._cell_rho(column), self._delta)
        # Noise on each bit by itself is charged twice: another level changes two bits.
        bits = 2.0 if self._mechanism == "lemma" and column.levels else 1.0
        return bits * self._effective(column)

    def _cell_rho(self, column: CellColumn) -> float:
        if self._mechanism == "row_gaussian":
            return (2.0 if column.levels else 1.0) / (2.0 * self._sigma**2)
        return self._cell_epsilon(column) ** 2 / 2.0


def whole_laplace(epsilon: float, words: Array) -> Array:
    """Return whole numbers k with probability proportional to e**(-epsilon |k|), from two words each: for counts."""
    steps = _steps(epsilon)
    return _discrete_laplace(epsilon * steps, words, steps)


def largest_whole_laplace(epsilon: float) -> int:
    """Return a magnitude that no draw of `whole_laplace` exceeds, for places that must have room for it.

    >>> largest_whole_laplace(0.125)
    368
    """
    steps = _steps(epsilon)
    return steps * (1 + len(_laplace_tables(epsilon * steps, steps)[1]))


def _steps(epsilon: float) -> int:
    """Return how many steps make a unit: a power of two, so that nothing is rounded, which keeps both tables short."""
    _check_positive("epsilon of a count", epsilon)
    if epsilon < _LEAST_EPSILON:
        raise ConfigError(
            f"An epsilon of {epsilon:.3g} per count asks for noise of about {1.0 / epsilon:.3g} rows; the least this "
            f"draws for is {_LEAST_EPSILON:g}. Raise epsilon."
        )
    return 1 << min(max(round(-math.log2(epsilon)), 0), CELL_GRID.bit_length() - 1)


def _discrete_laplace(epsilon: float, words: Array, steps: int = CELL_GRID) -> Array:
    """Return whole numbers k with probability proportional to e**(-epsilon |k| / steps), from two words each.

    Such a number has a place within its unit and a count of whole units, and these are independent: so two short tables
    do for one long one.
    """
    places, units = _laplace_tables(epsilon, steps)
    place = np.searchsorted(places, words[..., 0], side="right") - steps
    whole = len(units) - np.searchsorted(units, words[..., 1], side="right")
    numbers: Array = place + np.where(place < 0, -steps, steps) * whole
    return numbers


@lru_cache(maxsize=64)
def _laplace_tables(epsilon: float, steps: int = CELL_GRID) -> tuple[Array, Array]:
    """Return thresholds, as parts of 2**64, of the place from -steps to steps - 1 and of the whole units away from 0.

    In decimals of 50 digits, since a double has only 53 bits: the tables are the same on every machine.
    """
    with localcontext() as context:
        context.prec = 50
        full = Decimal(2**64)
        powers = list(accumulate(repeat((-Decimal(epsilon) / steps).exp(), steps), mul, initial=Decimal(1)))
        heights = list(accumulate([*reversed(powers[1:]), *powers[:-1]]))
        places = [round(full * height / heights[-1]) for height in heights[:-1]]
        units = [full * powers[-1]]
        while units[-1] > 1:
            units.append(units[-1] * powers[-1])
        least_first = [round(unit) for unit in reversed(units)]
    return np.array(places, np.uint64), np.array(least_first, np.uint64)


def randomised_responses(levels: Array, count: int, epsilon: float, words: Array) -> Array:
    """Return the level to release for each, from two words: the true one or any other; any at all for a missing one.

    A level is kept with probability e**epsilon / (e**epsilon + count - 1); -1 stands for a missing one.
    """
    keep = min(int(2.0**64 / (1.0 + (count - 1) * math.exp(-epsilon))), 2**64 - 1)
    draws = (words[:, 1] >> np.uint64(11)).astype(np.float64) * 2.0**-53
    others = (levels + 1 + np.floor(draws * (count - 1)).astype(np.int64)) % count
    kept = np.where(words[:, 0] < np.uint64(keep), levels, others)
    answers: Array = np.where(levels == _MISSING, np.floor(draws * count).astype(np.int64), kept)
    return answers


def unbiased_rows(answers: Array, count: int, epsilon: float) -> Array:
    """Return rows whose mean over the responses is the one-hot row of the true level.

    They are the rows of the inverse of the matrix that says how likely each level becomes each response.
    """
    loss, gap = math.exp(-epsilon), -math.expm1(-epsilon)
    rows: Array = np.where(np.arange(count) == answers[:, None], (1.0 + (count - 2) * loss) / gap, -loss / gap)
    return rows


def _zcdp_epsilon(rho: float, delta: float) -> float:
    return rho + 2.0 * math.sqrt(rho * math.log(1.0 / delta))


def _or_none(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _check_mechanism(mechanism: str) -> None:
    known = get_args(Mechanism)
    if mechanism not in known:
        raise ConfigError(f"There is no mechanism '{mechanism}'. {did_you_mean(mechanism, known)}")


def _check_columns(columns: Sequence[CellColumn]) -> None:
    if not columns:
        raise ConfigError("A release needs at least one column.")
    names = [column.name for column in columns]
    if len(set(names)) != len(names):
        raise ConfigError("Two columns of a release have the same name; the budget could not tell them apart.")


def _check_least(epsilon: float) -> None:
    if epsilon < _LEAST_EPSILON:
        raise ConfigError(
            f"An epsilon of {epsilon:.3g} per cell asks for noise {1.0 / epsilon:.3g} times the range; the least this "
            f"draws for is {_LEAST_EPSILON:g}. Raise epsilon."
        )


def _check_positive(name: str, value: float) -> None:
    if not (math.isfinite(value) and value > 0.0):
        raise ConfigError(f"The {name} must be a number above 0. Got {value} instead.")
