"""What crosses in secure regression, beside the messages of the secure linear layer."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.exchanges.secure_linear import Shares
from colonnade.messages import NOISED, PLAIN, Between, Binds, Carries, Dims, OneOf, message, when

__all__ = ["MOST", "ColumnCount", "HeldOutLogits", "PartnerShare", "TrainingExtent"]

MOST = 2**16
"""The most columns, and scores of a row: a hostile count would make us compute with arrays of any size."""
_MOST_OPENED = 2**32


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class ColumnCount:
    """How many encoded columns the sender brings, how many are independent, and what earlier runs opened about a row.

    Reveals: these three numbers. The last is the most numbers that earlier runs opened to the receiver about one row.
    """

    width: Annotated[int, Between(1, MOST), Binds("columns")]
    rank: Annotated[int, Between(0, "columns")]
    opened: Annotated[int, Between(0, _MOST_OPENED)]


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class TrainingExtent:
    """How many scores a row has, one or one per class, and how many epochs there are. Reveals: these two numbers."""

    scores: Annotated[int, Between(1, "most_scores")]
    epochs: Annotated[int, OneOf(given="epochs")]


@message(
    sender="label_holder",
    receiver="feature_holder",
    protection=when("coefficient_noise", NOISED, PLAIN),
    step="end of training",
    carries=Carries.WEIGHTS,
)
class PartnerShare:
    """The sender's share of the receiver's coefficients.

    Reveals: the coefficients of the receiver's own columns, and so the labels of rows that a column sets apart.
    Reveals when NOISED: the coefficients of the receiver's own columns, give or take about what the label of one row
    moves where a column is 1. A column that is much larger in a single row still tells that row's label.
    """

    values: Shares


@message(
    sender="feature_holder", receiver="label_holder", protection=PLAIN, step="evaluation", carries=Carries.ROW_SCORE
)
class HeldOutLogits:
    """What the sender's columns add to the scores of rows that are scored, not trained on.

    Reveals: one number per row and class, a fixed linear combination of the sender's columns.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("rows", "scores", kind="f")]
