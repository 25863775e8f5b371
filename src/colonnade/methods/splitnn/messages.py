"""What crosses in a split network."""

from __future__ import annotations

from typing import Annotated

import torch

from colonnade.messages import NOISED, PLAIN, Between, Binds, Carries, Dims, Warns, by, message
from colonnade.methods.splitnn.config import WIDEST

__all__ = ["CutActivations", "CutGradient", "CutWidth", "HeldOutActivations"]

Cut = Annotated[torch.Tensor, Dims("rows", "width")]


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class CutWidth:
    """How many numbers the sender's encoder gives per row.

    Reveals: how many numbers the sender's encoder gives per row.
    """

    width: Annotated[int, Between(1, WIDEST), Binds("width")]


@message(
    sender="feature_holder",
    receiver="label_holder",
    protection=PLAIN,
    step="forward",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class CutActivations:
    """The encoder's outputs for one training batch.

    Reveals: a learned summary of the sender's columns for every row of the batch. Whoever knows the columns of some
    tens of rows can often work out those of the others from it.
    """

    values: Cut


@message(
    sender="label_holder",
    receiver="feature_holder",
    protection=by("defence", {"none": PLAIN, "coae": PLAIN, "marvell": NOISED, "marvell+coae": NOISED}),
    step="backward",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class CutGradient:
    """The loss's gradient at the receiver's activations.

    Reveals: in most cases the label of every row of the batch, to a receiver that looks at directions and norms; of
    numbers to predict their order, or its reverse, and how far they lie apart. Codes of classes (coae) hide little of
    it by themselves.
    Reveals when NOISED: a hint at the label of every row of the batch. label_budget bounds what one of them tells, if
    gradients of a class are Gaussian; those of one row add up over the epochs.
    """

    values: Cut


@message(
    sender="feature_holder",
    receiver="label_holder",
    protection=PLAIN,
    step="evaluation",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class HeldOutActivations:
    """The encoder's outputs for rows that are scored, not trained on.

    Reveals: a learned summary of the sender's columns for every row that is scored.
    """

    values: Cut
