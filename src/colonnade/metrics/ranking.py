"""How well lists are ordered that were shown to people: AUC, MRR and nDCG of each list, and their gaps by group.

An impression is one such list: candidates with scores, some of them clicked. Where scores tie, the order among them is
a toss, and every number here is its mean over all such orders; a pessimistic or optimistic rule would reward or
punish a model for rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import UsageError
from colonnade.metrics.gaps import Gap, Level, widest_difference

__all__ = ["Ranking", "exposure_gap", "exposures", "rank_impressions"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Ranking:
    """The numbers of each impression, by name: ``auc``, ``mrr``, ``ndcg_5`` and ``ndcg_10``.

    They stand in the order of ``impressions``, the sorted ids, and are ``nan`` for an impression that lacks a click or
    a candidate without one: its order can be neither right nor wrong. Such impressions are left out of every mean.
    """

    impressions: Array
    values: dict[str, NDArray[np.float64]]

    @property
    def counted(self) -> int:
        """How many impressions have both a click and a candidate without one."""
        return int(np.isfinite(self.values["auc"]).sum())

    @property
    def left_out(self) -> int:
        """How many impressions do not."""
        return len(self.impressions) - self.counted

    def means(self) -> dict[str, float]:
        """Return each number's mean over impressions; nothing where none counts."""
        if not self.counted:
            return {}
        return {name: float(np.nanmean(values)) for name, values in self.values.items()}

    def gap(self, name: str, groups: ArrayLike) -> Gap:
        """Return by how much groups of impressions differ in the mean of one number.

        ``groups`` has one number (0, 1, …) per impression, in the order of ``impressions``. A group of fewer than two
        counted impressions is left out.
        """
        return _mean_gap([self.values[name]], _checked_groups(groups, len(self.impressions)))


def rank_impressions(scores: ArrayLike, clicks: ArrayLike, impressions: ArrayLike) -> Ranking:
    """Measure the order of each impression's candidates; one score, click (0 or 1) and impression id per candidate.

    MRR is the mean of the reciprocal ranks of all clicks, as the benchmarks of news recommendation compute it, not of
    the first click only. nDCG discounts by the logarithm of the rank plus one.

    >>> ranking = rank_impressions([3.0, 2.0, 1.0], [0, 1, 0], [7, 7, 7])
    >>> {name: round(value, 3) for name, value in ranking.means().items()}
    {'auc': 0.5, 'mrr': 0.5, 'ndcg_5': 0.631, 'ndcg_10': 0.631}
    """
    order = _Order(scores, impressions)
    clicked = np.asarray(clicks)
    if clicked.shape != order.rows.shape or not np.isin(clicked, (0, 1)).all():
        raise UsageError("Clicks are one 0 or 1 for each score.")
    weights = clicked.astype(np.float64)
    number = order.sum(weights)
    others = order.sizes - number
    counts = (number > 0) & (others > 0)

    # A click at rank r of n is above n - r candidates, some of them clicks too.
    above = order.sum(weights * (order.sizes[order.place] - order.expected(order.ranks)))
    found = {
        "auc": (above - number * (number - 1) / 2, number * others),
        "mrr": (order.sum(weights * order.expected(1 / order.ranks)), number),
    }
    for places in (5, 10):
        ideal = np.concatenate([[0.0], np.cumsum(_discounts(np.arange(1, places + 1), places))])
        gained = order.sum(weights * order.expected(_discounts(order.ranks, places)))
        found[f"ndcg_{places}"] = (gained, ideal[np.minimum(number, places).astype(np.int64)])
    values = {
        name: np.divide(top, bottom, out=np.full(len(counts), np.nan), where=counts)
        for name, (top, bottom) in found.items()
    }
    return Ranking(order.impressions, values)


def exposures(scores: ArrayLike, impressions: ArrayLike, kinds: ArrayLike, places: int = 10) -> NDArray[np.float64]:
    """Return how each impression (down, by sorted id) shares out its first places among kinds of candidates (across).

    ``kinds`` has one number (0, 1, …) per candidate, such as the topic of an article. A place counts as much as nDCG
    discounts it; an impression's shares sum to 1.
    """
    order = _Order(scores, impressions)
    sorts = np.asarray(kinds)
    if sorts.shape != order.rows.shape or sorts.dtype.kind not in "biu" or sorts.min() < 0:
        raise UsageError("Kinds of candidates are whole numbers from 0 on, one for each score.")
    if places < 1:
        raise UsageError(f"Exposure needs at least one place. Got {places}.")
    weights = order.expected(_discounts(order.ranks, places))
    number = int(sorts.max()) + 1
    cells = np.bincount(order.place * number + sorts, weights, minlength=len(order.sizes) * number)
    table = cells.reshape(len(order.sizes), number)
    shares: NDArray[np.float64] = table / table.sum(axis=1, keepdims=True)
    return shares


def exposure_gap(
    scores: ArrayLike, impressions: ArrayLike, kinds: ArrayLike, groups: ArrayLike, places: int = 10
) -> Gap:
    """Return by how much groups of people differ in what the first places show them, for the kind that differs most.

    ``groups`` has one number per impression, by sorted id. This is demographic parity for lists: it does not ask what
    the candidates were, nor what was clicked. A group of fewer than two impressions is left out.
    """
    table = exposures(scores, impressions, kinds, places)
    return _mean_gap(list(table.T), _checked_groups(groups, len(table)))


class _Order:
    """Candidates' places within their impressions, best score first, in the order they were given."""

    def __init__(self, scores: ArrayLike, impressions: ArrayLike) -> None:
        values, ids = np.asarray(scores, np.float64), np.asarray(impressions)
        if values.ndim != 1 or values.shape != ids.shape or not len(values):
            raise UsageError(f"Scores of shape {values.shape} and impression ids of shape {ids.shape} do not fit.")
        if not np.all(np.isfinite(values)):
            raise UsageError("Candidates cannot be ordered by scores that are not finite.")
        self.impressions, self.place, self.sizes = np.unique(ids, return_inverse=True, return_counts=True)
        self.rows = np.lexsort((-values, self.place))
        owner, ordered = self.place[self.rows], values[self.rows]
        self.ranks = np.empty(len(values), np.int64)
        self.ranks[self.rows] = np.arange(len(values)) - (np.cumsum(self.sizes) - self.sizes)[owner] + 1
        is_new = np.append(True, (owner[1:] != owner[:-1]) | (ordered[1:] != ordered[:-1]))
        self._ties = np.empty(len(values), np.int64)
        self._ties[self.rows] = np.cumsum(is_new) - 1

    def expected(self, worth: NDArray[Any]) -> NDArray[np.float64]:
        """Return the mean worth of the ranks that a candidate shares with those of its score.

        Every number here adds up what single candidates are worth, so this gives its mean over all tied orders.
        """
        means: NDArray[np.float64] = np.bincount(self._ties, worth) / np.bincount(self._ties)
        return means[self._ties]

    def sum(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up by impression."""
        return np.bincount(self.place, values, minlength=len(self.sizes)).astype(np.float64, copy=False)


def _discounts(ranks: NDArray[np.int64], places: int) -> NDArray[np.float64]:
    return np.where(ranks <= places, 1 / np.log2(ranks + 1.0), 0.0)


def _checked_groups(groups: ArrayLike, impressions: int) -> NDArray[np.int64]:
    members = np.asarray(groups)
    if members.shape != (impressions,) or members.dtype.kind not in "biu" or members.min() < 0:
        raise UsageError(f"Groups are whole numbers from 0 on, one for each of the {impressions} impressions.")
    return members.astype(np.int64)


def _mean_gap(parts: Sequence[NDArray[np.float64]], groups: NDArray[np.int64]) -> Gap:
    levels, left_out = [], []
    for values in parts:
        is_counted = np.isfinite(values)
        of_groups = [values[is_counted & (groups == group)] for group in range(int(groups.max()) + 1)]
        left_out += [group for group, own in enumerate(of_groups) if len(own) < 2]
        levels.append([Level.of_mean(own) for own in of_groups if len(own) >= 2])
    return widest_difference(levels, left_out)
