"""What crosses in secure regression, beside the messages of the secure linear layer."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.exchanges.secure_linear import Shares
from colonnade.messages import NOISED, PLAIN, Between, Carries, Dims, OneOf, message, when

__all__ = ["MOST", "ColumnCount", "Factors", "PartnerShare", "RowScores", "TrainingExtent"]

MOST = 2**16
"""The most columns, and scores of a row: a hostile count would make us compute with arrays of any size."""
_MOST_OPENED = 2**32


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class ColumnCount:
    """How many independent columns the sender brings, and what earlier runs opened about a row.

    Reveals: how many independent columns the sender brings, and the most numbers that earlier runs opened to the
    receiver about one row.
    """

    rank: Annotated[int, Between(1, MOST)]
    opened: Annotated[int, Between(0, _MOST_OPENED)]


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class TrainingExtent:
    """How many scores a row has, how many classes, and how many epochs there are.

    Reveals: how many scores a row has, how many classes, and how many epochs there are.
    """

    scores: Annotated[int, Between(1, "most_scores")]
    outputs: Annotated[int, Between(1, "most_scores")]
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


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="scoring", carries=Carries.ROW_SCORE)
class RowScores:
    """What the sender's columns add to the scores of rows, with the coefficients that training ended with.

    Reveals: one number per row and score, a fixed linear combination of the sender's columns.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("rows", "scores", kind="f")]


@message(
    sender="label_holder", receiver="feature_holder", protection=PLAIN, step="end of training", carries=Carries.WEIGHTS
)
class Factors:
    """With which factors the receiver's scores go into those of the classes, or into the number to predict.

    Reveals: a few numbers, fitted to all training rows together, by which the receiver's scores are used.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("scores", "outputs", kind="f")]
