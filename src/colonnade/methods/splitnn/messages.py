"""What crosses in a split network."""

from __future__ import annotations

from typing import Any

import torch

from colonnade.exchanges.epochs import EpochVerdict
from colonnade.messages import NOISED, PLAIN, message
from colonnade.session import RunPlan

__all__ = [
    "MESSAGES",
    "CutActivations",
    "CutGradient",
    "CutWidth",
    "HeldOutActivations",
    "NoisedCutGradient",
    "choose_messages",
    "gradient_message",
]


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

    Reveals: in most cases the label of every row of the batch, to a receiver that looks at directions and norms; of
    numbers to predict their order, or its reverse, and how far they lie apart.
    """

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=NOISED, step="backward, defence = marvell")
class NoisedCutGradient:
    """The loss's gradient at the receiver's activations, behind noise of the label budget.

    Reveals: a hint at the label of every row of the batch. label_budget bounds what one of them tells, if gradients of
    a class are Gaussian; those of one row add up over the epochs.
    """

    values: torch.Tensor


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="evaluation")
class HeldOutActivations:
    """The encoder's outputs for rows that are scored, not trained on.

    Reveals: a learned summary of the sender's columns for every such row.
    """

    values: torch.Tensor


MESSAGES = (CutWidth, CutActivations, CutGradient, NoisedCutGradient, HeldOutActivations, EpochVerdict)


def gradient_message(defence: str) -> type[CutGradient] | type[NoisedCutGradient]:
    """Return how gradients cross under a defence."""
    return NoisedCutGradient if "marvell" in defence else CutGradient


def choose_messages(plan: RunPlan) -> tuple[type[Any], ...]:
    """Return what a run can send: never a gradient in the clear that its settings put noise on."""
    if plan.stage == "predict":
        return (HeldOutActivations,)
    # Plans of before there were defences do not name one.
    gradient = gradient_message(plan.config.get("defence", "none"))
    return (CutWidth, CutActivations, gradient, HeldOutActivations, EpochVerdict)
