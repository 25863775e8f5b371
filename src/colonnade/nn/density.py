"""How likely a row is among others: a Gaussian kernel density, in logarithms only.

The product over columns that papers write vanishes at a few hundred columns, and its normaliser with it; the logarithm
does not. The width of the kernels, 1.05 N**(-1/5), is the rule for one column. Beyond about ten columns the density is
in effect the distance to the nearest row, which is why a row that is in the support itself must be left out of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from colonnade.errors import ConfigError, OutOfRange
from colonnade.nn.draws import seeded_generator

__all__ = ["KernelDensity", "thinned"]

# A row of the support of which less is known says too little about distances.
_LEAST_OBSERVED = 0.8
# Distances held at a time: 32 MB.
_DISTANCES = 1 << 22


def thinned(support: torch.Tensor, most: int = 2000, *, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Return at most so many rows, drawn at random in their order, and where every row stands among them (-1: nowhere).

    >>> rows, places = thinned(torch.arange(5.0)[:, None], most=2, seed=0)
    >>> rows.flatten().tolist(), places.tolist()
    ([0.0, 4.0], [0, -1, -1, -1, 1])
    """
    if most < 1:
        raise ConfigError(f"A support is thinned to 1 row or more. Got {most} instead.")
    order = torch.randperm(len(support), generator=seeded_generator(seed))
    chosen = order[:most].sort().values
    places = torch.full((len(support),), -1)
    places[chosen] = torch.arange(len(chosen))
    return support[chosen], places


@dataclass(frozen=True)
class _Near:
    """Some points, and how near each row of the support is to each of them."""

    points: torch.Tensor  # centred, 0 where missing
    known: torch.Tensor  # which cells of the points are not missing
    shares: torch.Tensor | None  # by how much distances over common cells were stretched; None: not at all
    exponents: torch.Tensor
    counts: torch.Tensor  # rows of the support that were not left out


class KernelDensity:
    """The density of a support of rows, and its gradient; in double precision, and differentiable in the points.

    Missing cells (NaN) are allowed on both sides. Distances then go over the cells known on both, and are stretched to
    all columns; a row that has no known cell in common with a point is left out for it.
    """

    def __init__(
        self, support: torch.Tensor, *, observed: torch.Tensor | None = None, bandwidth: float | None = None
    ) -> None:
        """Take the rows, which of their cells are known (default: those that are numbers), and the kernels' width.

        Rows of which less than 80 % is known are left out.
        """
        known = _known_cells(support, observed)
        kept = known.double().mean(dim=1) >= _LEAST_OBSERVED
        rows, known = torch.where(known, support.detach().double(), 0.0)[kept], known[kept]
        if not len(rows):
            raise ConfigError(f"A density needs a row of which {_LEAST_OBSERVED:.0%} is known; there is none.")
        if not rows.isfinite().all():
            raise OutOfRange("The support of a density has values that are not finite.")
        self.rows, self.columns = rows.shape
        self.bandwidth = 1.05 * self.rows ** (-1 / 5) if bandwidth is None else bandwidth
        if not (math.isfinite(self.bandwidth) and self.bandwidth > 0.0):
            raise ConfigError(f"The bandwidth must be a number above 0. Got {bandwidth} instead.")
        self._places = torch.where(kept, kept.long().cumsum(0) - 1, -1)
        self._known = known.double()
        self._is_complete = bool(known.all())
        # Distances do not depend on the origin, but near it their squares lose fewer digits.
        self._centre = rows.mean(dim=0)
        self._support = (rows - self._centre) * self._known
        self._squares = self._support.square()
        self._norms = self._squares.sum(dim=1)

    def log_density(self, points: torch.Tensor, *, own: torch.Tensor | None = None) -> torch.Tensor:
        """Return the logarithm of the density at each point.

        `own` is the place of each point in the support as it was given, which is left out for it (the rest then counts
        as the whole); -1 where it is not in it.
        """
        return torch.cat([self._logarithm(near) for near in self._nearness(points, own)])

    def score(self, points: torch.Tensor, *, own: torch.Tensor | None = None) -> torch.Tensor:
        """Return the gradient of the logarithm of the density at each point; 0 for a missing cell."""
        return torch.cat([self._slope(near) for near in self._nearness(points, own)])

    def both(self, points: torch.Tensor, *, own: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        """Return `log_density` and `score` from one matrix of distances."""
        pairs = [(self._logarithm(near), self._slope(near)) for near in self._nearness(points, own)]
        return torch.cat([pair[0] for pair in pairs]), torch.cat([pair[1] for pair in pairs])

    def _nearness(self, points: torch.Tensor, own: torch.Tensor | None) -> Iterator[_Near]:
        """Go through the points by as many as memory is meant to hold."""
        if points.ndim != 2 or points.shape[1] != self.columns:
            raise ConfigError(f"This density takes rows of {self.columns}; got the shape {tuple(points.shape)}.")
        if points.isinf().any():
            raise OutOfRange("Points to find the density of are not finite.")
        own = torch.full((len(points),), -1) if own is None else own
        if own.shape != points.shape[:1]:
            raise ConfigError(f"The places of {len(points)} points were given as {tuple(own.shape)}.")
        at_a_time = max(1, _DISTANCES // self.rows)
        # At least once, so that no points give results for none.
        for start in range(0, max(1, len(points)), at_a_time):
            yield self._near(points[start : start + at_a_time], own[start : start + at_a_time])

    def _near(self, points: torch.Tensor, own: torch.Tensor) -> _Near:
        known = ~points.isnan()
        centred = torch.where(known, points.double() - self._centre, 0.0)
        places = torch.where(own < 0, -1, self._places[own])
        is_out = torch.arange(self.rows) == places[:, None]
        shares = None
        if self._is_complete and bool(known.all()):
            distances = self._complete_distances(centred)
        else:
            common = known.double() @ self._known.T
            is_out, shares = is_out | (common == 0.0), self.columns / common.clamp_min(1.0)
            distances = self._distances(centred, known) * shares
        if bool(is_out.all(dim=1).any()):
            raise OutOfRange("A point has no row of the support to be compared with: none other, or no common cell.")
        exponents = -distances.clamp_min(0.0) / (2.0 * self.bandwidth**2)
        counts = self.rows - is_out.sum(dim=1)
        return _Near(centred, known, shares, exponents.masked_fill(is_out, -math.inf), counts)

    def _complete_distances(self, points: torch.Tensor) -> torch.Tensor:
        return points.square().sum(dim=1, keepdim=True) + self._norms - 2.0 * points @ self._support.T

    def _distances(self, points: torch.Tensor, known: torch.Tensor) -> torch.Tensor:
        """Return squared distances over the cells that both sides know."""
        of_points, of_support = points.square() @ self._known.T, known.double() @ self._squares.T
        return of_points + of_support - 2.0 * points @ self._support.T

    def _logarithm(self, near: _Near) -> torch.Tensor:
        normaliser = self.columns * (math.log(self.bandwidth) + 0.5 * math.log(2.0 * math.pi))
        return near.exponents.logsumexp(dim=1) - near.counts.double().log() - normaliser

    def _slope(self, near: _Near) -> torch.Tensor:
        weights = near.exponents.softmax(dim=1)
        if near.shares is None:
            return (weights @ self._support - near.points) / self.bandwidth**2
        weights = weights * near.shares
        pulls = weights @ self._support - near.points * (weights @ self._known)
        return torch.where(near.known, pulls, 0.0) / self.bandwidth**2


def _known_cells(support: torch.Tensor, observed: torch.Tensor | None) -> torch.Tensor:
    if support.ndim != 2 or not support.shape[1]:
        raise ConfigError(f"A density takes rows and columns; this support is of shape {tuple(support.shape)}.")
    if observed is None:
        return ~support.isnan()
    if observed.shape != support.shape:
        raise ConfigError("Whether a cell is observed must be said of every cell of the support.")
    return observed.bool() & ~support.isnan()
