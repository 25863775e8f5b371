"""The paper's way to add up features along another party's links, and how its links are read from it.

Paper mode, for comparison only: `colonnade.exchanges.shared_sums` does the same without showing links.

The owner of features F multiplies them with a secret invertible matrix and sends F M; the party with the adjacency
returns Adj F M; the owner takes off M and has Adj F. The paper argues that Adj has more unknowns than Adj F numbers.
But links are 0 or 1 and sparse, and the owner knows F: of all answers within these bounds that fit, the one with the
fewest links is found by a linear programme, and with far fewer columns than rows it is the true one already. The other
party learns too: M hides neither the space of F's columns, nor which rows are equal, nor which are zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["ConfusionFlow", "confusion_flow_messages", "link_overlap", "recover_links"]

Numbers: TypeAlias = npt.NDArray[np.float64]
Links: TypeAlias = npt.NDArray[np.bool_]

# What a unit of misfit costs, against a link: so much that links are never left out to save them.
_MISFIT = 1e4


@dataclass(frozen=True)
class ConfusionFlow:
    """Everything that crosses or is learned in the paper's flow."""

    confused: Numbers
    """What the owner of the features sends: F M."""
    returned: Numbers
    """What the party with the links returns: Adj F M."""
    opened: Numbers
    """What the owner has in the end: Adj F."""


def confusion_flow_messages(features: Numbers, adjacency: npt.ArrayLike, confusion: Numbers) -> ConfusionFlow:
    """Play the paper's flow with a secret invertible matrix."""
    confused = features @ confusion
    returned = np.asarray(adjacency, dtype=np.float64) @ confused
    # The transposed system: X M = R becomes M' X' = R'.
    opened = np.linalg.solve(confusion.T, returned.T).T
    return ConfusionFlow(confused, returned, opened.astype(np.float64))


def recover_links(features: Numbers, product: Numbers) -> Links:
    """Return the links that explain a product best, as the owner of the features can find them out.

    For each row: the fewest links, as fractions from 0 to 1, whose features add up to the product, or come closest to
    it. Those above one half count.
    """
    rows, columns = features.shape
    # Misfit of each sign has a variable of its own, so that there always is an answer.
    costs = np.concatenate([np.ones(rows), np.full(2 * columns, _MISFIT)])
    sums = np.hstack([features.T, np.eye(columns), -np.eye(columns)])
    limits = np.array([(0.0, 1.0)] * rows + [(0.0, np.inf)] * (2 * columns))
    return np.array([_solve(costs, sums, wanted, limits)[:rows] > 0.5 for wanted in product]).reshape(-1, rows)


def link_overlap(found: Links, truth: npt.ArrayLike) -> float:
    """Return how many links are both found and true, as a share of those that are either (the Jaccard index)."""
    true = np.asarray(truth, dtype=np.bool_)
    either = int((found | true).sum())
    return int((found & true).sum()) / either if either else 1.0


def _solve(costs: Numbers, sums: Numbers, wanted: Numbers, limits: Numbers) -> Numbers:
    # Slow to load, and needed by nothing but this attack.
    from scipy.optimize import linprog  # type: ignore[import-untyped]

    solved = linprog(costs, A_eq=sums, b_eq=wanted, bounds=limits, method="highs")
    if solved.x is None:
        return np.zeros_like(costs)
    return np.asarray(solved.x, dtype=np.float64)
