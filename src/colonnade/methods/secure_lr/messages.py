"""What crosses in secure regression, beside the messages of the secure linear layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.secure_linear import linear_messages
from colonnade.messages import NOISED, PLAIN, message
from colonnade.session import RunPlan

__all__ = [
    "LINEAR",
    "MESSAGES",
    "ColumnCount",
    "HeldOutLogits",
    "NoisedShare",
    "PartnerShare",
    "TrainingExtent",
    "choose_messages",
]

LINEAR = linear_messages("feature_holder", "label_holder")


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up")
class ColumnCount:
    """How many encoded columns the sender brings, how many are independent, and what earlier runs opened about a row.

    Reveals: these three numbers. The last is the most numbers that earlier runs opened to the receiver about one row.
    """

    width: int
    rank: int
    opened: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up")
class TrainingExtent:
    """How many scores a row has, one or one per class, and how many epochs there are. Reveals: these two numbers."""

    scores: int
    epochs: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="end of training")
class PartnerShare:
    """The sender's share of the receiver's coefficients, without noise.

    Reveals: the coefficients of the receiver's own columns, and so the labels of rows that a column sets apart.
    """

    values: tuple[int, ...]


@message(sender="label_holder", receiver="feature_holder", protection=NOISED, step="end of training")
class NoisedShare:
    """The sender's share of the receiver's coefficients, with noise.

    Reveals: the coefficients of the receiver's own columns, give or take about what the label of one row moves where a
    column is 1. A column that is much larger in a single row still tells that row's label.
    """

    values: tuple[int, ...]


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="evaluation")
class HeldOutLogits:
    """What the sender's columns add to the scores of rows that are scored, not trained on.

    Reveals: one number per row and class, a fixed linear combination of the sender's columns.
    """

    values: np.ndarray[Any, Any]


MESSAGES: tuple[type, ...] = (
    public_modulus("feature_holder", "label_holder"),
    ColumnCount,
    TrainingExtent,
    *LINEAR.for_fixed_inputs,
    PartnerShare,
    NoisedShare,
    HeldOutLogits,
    EpochVerdict,
)


def choose_messages(plan: RunPlan) -> tuple[type, ...]:
    """Return the messages that a run can send with its settings, in its stage."""
    if plan.stage == "predict":
        return (HeldOutLogits,)
    unused = PartnerShare if plan.config["coefficient_noise"] else NoisedShare
    return tuple(one for one in MESSAGES if one is not unused)
