"""What crosses in secure regression, beside the messages of the secure linear layer."""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.secure_linear import linear_messages
from colonnade.messages import PLAIN, message

__all__ = ["LINEAR", "MESSAGES", "ColumnCount", "HeldOutLogits", "LogitCount", "PartnerShare"]

LINEAR = linear_messages("feature_holder", "label_holder")


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up")
class ColumnCount:
    """How many encoded columns the sender brings. Reveals: that number."""

    width: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up")
class LogitCount:
    """How many scores a row has: one, or one per class. Reveals: that number."""

    count: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="end of training")
class PartnerShare:
    """The sender's share of the receiver's coefficients. Reveals: the coefficients of the receiver's own columns."""

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
    LogitCount,
    *LINEAR.for_fixed_inputs,
    PartnerShare,
    HeldOutLogits,
    EpochVerdict,
)
