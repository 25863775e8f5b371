"""What crosses in a split network."""

from __future__ import annotations

import torch

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.messages import PLAIN, message

__all__ = ["MESSAGES", "CutActivations", "CutGradient", "CutWidth", "HeldOutActivations"]


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up")
class CutWidth:
    """How many numbers the sender's encoder gives per row. Reveals: that width."""

    width: int


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="forward")
class CutActivations:
    """The encoder's outputs for one training batch.

    Reveals: a learned summary of the sender's columns for every row of the batch, from which the receiver may infer
    column values it can guess the distribution of.
    """

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="backward")
class CutGradient:
    """The loss's gradient at the receiver's activations.

    Reveals: for binary labels, in most cases the label of every row of the batch, to a receiver that looks at
    directions and norms.
    """

    values: torch.Tensor


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="evaluation")
class HeldOutActivations:
    """The encoder's outputs for rows that are scored, not trained on.

    Reveals: a learned summary of the sender's columns for every such row.
    """

    values: torch.Tensor


MESSAGES = (CutWidth, CutActivations, CutGradient, HeldOutActivations, EpochVerdict)
