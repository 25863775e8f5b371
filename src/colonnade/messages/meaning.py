"""What a message carries, and what its readers must be warned of: said once, in its declaration.

The report's first box, the consent question, the documentation and attacks take it from there.
"""

from __future__ import annotations

from enum import Flag, auto

__all__ = ["Carries", "Warns", "must_warn"]


class Carries(Flag):
    """What is in a message."""

    NOTHING = 0
    ROW_GRADIENT = auto()
    """A loss's gradient for every row: at its code, its score, or an answer about it."""
    ROW_CODE = auto()
    """A learned or linear summary of every row's columns, or columns generated from them."""
    ROW_COLUMN = auto()
    """Columns of rows themselves."""
    ROW_LABEL = auto()
    """Labels of rows."""
    ROW_SCORE = auto()
    """What a model says of rows: scores, parts of scores, predictions."""
    ROWS = auto()
    """Which rows: those that are shared, or labelled."""
    LINK = auto()
    """Who is linked with whom, or sums along links."""
    WEIGHTS = auto()
    """Weights of a model, or their gradients."""
    SUM = auto()
    """Sums and counts over rows."""
    KEY = auto()
    """A public key, or what shows that it hides."""
    SHARE = auto()
    """A mask, or one share of something, which is uniform by itself."""
    SIZE = auto()
    """How many there are: rows, columns, classes, steps."""
    NAME = auto()
    """Names of columns, classes, models."""
    VERDICT = auto()
    """How training goes on: kept, stopped, chosen."""


class Warns(Flag):
    """What a receiver can often make of a message that it can read."""

    NOTHING = 0
    LABELS = auto()
    COLUMNS = auto()
    MEMBERSHIP = auto()
    LINKS = auto()

    @property
    def words(self) -> str:
        """Return how a warning begins."""
        return {
            Warns.LABELS: "Labels can be read",
            Warns.COLUMNS: "Columns in effect",
            Warns.MEMBERSHIP: "Who is known to whom",
            Warns.LINKS: "Links can be read",
        }[self]


_MUST = {
    Carries.ROW_GRADIENT: Warns.LABELS,
    Carries.ROW_LABEL: Warns.LABELS,
    Carries.ROW_CODE: Warns.COLUMNS,
    Carries.ROW_COLUMN: Warns.COLUMNS,
    Carries.LINK: Warns.LINKS,
}


def must_warn(carries: Carries) -> Warns:
    """Return of what a message must warn that carries this where its receiver can read it."""
    found = Warns.NOTHING
    for one in carries:
        found |= _MUST.get(one, Warns.NOTHING)
    return found
