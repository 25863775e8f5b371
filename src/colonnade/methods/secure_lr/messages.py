"""What crosses in secure regression."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.crypto import CipherArray
from colonnade.messages import ENCRYPTED, MASKED, NOISED, PLAIN, Between, Carries, Dims, OneOf, message, when

__all__ = [
    "MOST",
    "ColumnCount",
    "Factors",
    "MaskedSlopes",
    "RowScores",
    "SealedColumns",
    "SlopeShare",
    "TrainingExtent",
]

MOST = 2**16
"""The most columns, and scores of a row: a hostile count would make us compute with arrays of any size."""
_MOST_OPENED = 2**32


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class ColumnCount:
    """How many independent columns the sender brings, and what earlier runs opened about a row.

    Reveals: how many independent columns the sender has, and the most numbers that earlier runs opened to the receiver
    about one row.
    """

    rank: Annotated[int, Between(1, MOST)]
    opened: Annotated[int, Between(0, _MOST_OPENED)]


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class TrainingExtent:
    """How many scores of a row each epoch opens, how many outputs there are, and how many epochs.

    Reveals: the number of classes, and how long the training is.
    """

    scores: Annotated[int, Between(1, "most_scores")]
    outputs: Annotated[int, Between(1, "most_scores")]
    epochs: Annotated[int, OneOf(given="epochs")]


@message(
    sender="feature_holder", receiver="label_holder", protection=ENCRYPTED, step="set-up", carries=Carries.ROW_CODE
)
class SealedColumns:
    """The sender's whitened columns of some training rows, under the sender's key.

    Reveals: how many training rows and independent columns the sender has.
    """

    values: Annotated[CipherArray, Dims("rows", "columns")]


# The receiver owns the key: what hides the content from it is the mask.
@message(sender="label_holder", receiver="feature_holder", protection=MASKED, step="every epoch", carries=Carries.SUM)
class MaskedSlopes:
    """The slopes of the loss along the receiver's columns, over all training rows, behind a mask.

    Reveals: nothing about rows; it differs from a random number with a probability of 2**-40.
    """

    values: Annotated[CipherArray, Dims("scores", "columns")]


@message(
    sender="label_holder",
    receiver="feature_holder",
    protection=when("coefficient_noise", NOISED, PLAIN),
    step="every epoch",
    carries=Carries.WEIGHTS,
)
class SlopeShare:
    """What takes the mask off the slopes, once both parties have kept the masked ones.

    Reveals: sums over the training rows, from which the labels of rows that a column sets apart can be read.
    Reveals when NOISED: sums over the training rows, give or take about what the label of one row moves where a column
    is 1. A column that is much larger in a single row still tells that row's label.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("scores", "columns", kind="u")]


@message(
    sender="feature_holder", receiver="label_holder", protection=PLAIN, step="every epoch", carries=Carries.ROW_SCORE
)
class RowScores:
    """What the sender's columns add to the scores of rows.

    Reveals: one number per row and score, each a fixed linear combination of the sender's columns.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("rows", "scores", kind="f")]


@message(
    sender="label_holder", receiver="feature_holder", protection=PLAIN, step="end of training", carries=Carries.WEIGHTS
)
class Factors:
    """With which factors the receiver's scores go into those of the classes, or into the number to predict.

    Reveals: a few numbers that were fitted to all training rows together.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("scores", "outputs", kind="f")]
