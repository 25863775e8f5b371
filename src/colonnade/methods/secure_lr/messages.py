"""What crosses in secure regression."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.messages import PLAIN, Between, Carries, Dims, OneOf, message

__all__ = ["MOST", "ColumnCount", "Factors", "RowScores", "TrainingExtent"]

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

    Reveals: the number of classes, how long the training is, and so whether the columns of some feature holder, or what
    they opened before, allow no more.
    """

    scores: Annotated[int, Between(1, "most_scores")]
    outputs: Annotated[int, Between(1, "most_scores")]
    epochs: Annotated[int, OneOf(given="epochs")]


@message(
    sender="feature_holder", receiver="label_holder", protection=PLAIN, step="every epoch", carries=Carries.ROW_SCORE
)
class RowScores:
    """What the sender's columns add to the scores of rows.

    Reveals: one number per row and score: a linear combination of the sender's columns, the same for all rows. So rows
    with equal columns are seen to be equal. A receiver that deviates may choose the combination.
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
