"""What crosses in FedCVT, by level. The names in brackets are those of the method's sheet."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from colonnade.crypto import CipherArray
from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.split_linear import SPLIT_LINEAR
from colonnade.messages import ENCRYPTED, NOISED, PLAIN, message
from colonnade.session import RunPlan

__all__ = [
    "MESSAGES",
    "AlignedGradient",
    "AlignedLogits",
    "AnswersAlone",
    "Choice",
    "CodeGradient",
    "Codes",
    "EstimateGradient",
    "EstimatedLogits",
    "FitCodes",
    "FitGradient",
    "HeldOutCodes",
    "ModelMark",
    "NoisedCodeGradient",
    "NoisedCodes",
    "NoisedHeldOutCodes",
    "OwnRows",
    "RowsAlone",
    "Schedule",
    "SharedCodes",
    "choose_messages",
    "codes_message",
    "gradient_message",
    "held_out_message",
]


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up")
class OwnRows:
    """How many rows the sender has beside the shared ones. Reveals: that number."""

    count: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up")
class Schedule:
    """How many steps an epoch has, and how many scores a row.

    Reveals: about how many rows the sender has beside the shared ones, if it has more than all others; and the number
    of classes.
    """

    steps: int
    outputs: int


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="level 0 (repr_fwd)")
class Codes:
    """The sender's codes of a batch: shared rows, then rows that only the sender knows.

    Reveals: a learned summary of the sender's columns for every row of the batch, also for people whom the receiver
    does not know; not who these are.
    """

    values: torch.Tensor


@message(sender="feature_holder", receiver="label_holder", protection=NOISED, step="level 1 (repr_fwd)")
class NoisedCodes:
    """The sender's codes of a batch, clipped and with noise.

    Reveals: a blurred summary of the sender's columns for every row; every epoch is a further release of it.
    """

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="levels 0 and 1 (repr_grad)")
class CodeGradient:
    """The loss's gradient at the receiver's codes.

    Reveals: for most labels, the label of every shared row of the batch; and which of the receiver's own rows got a
    label, and often which.
    """

    values: torch.Tensor


@message(
    sender="label_holder",
    receiver="feature_holder",
    protection=NOISED,
    step="levels 0 and 1, defence = marvell (repr_grad)",
)
class NoisedCodeGradient:
    """The loss's gradient at the receiver's codes, behind noise of the label budget.

    Reveals: a hint at the label of every shared row and at which own rows got a label; hints of one row add up over the
    epochs.
    """

    values: torch.Tensor


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="evaluation, level 0 (eval_fwd)")
class HeldOutCodes:
    """The sender's codes of rows that are scored or looked up, not learned from.

    Reveals: a learned summary of the sender's columns for every such row. The receiver keeps those of some shared
    training rows with the model, to estimate views by them.
    """

    values: torch.Tensor


@message(sender="feature_holder", receiver="label_holder", protection=NOISED, step="evaluation, level 1 (eval_fwd)")
class NoisedHeldOutCodes:
    """The sender's codes of rows that are scored or looked up, clipped and with noise.

    Reveals: a blurred summary of the sender's columns for every such row.
    """

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=ENCRYPTED, step="level 2, 4 (he_al_logit)")
class AlignedLogits:
    """What the other parties' codes of shared rows add to scores, under the sender's key.

    Reveals: nothing but the number of rows and scores.
    """

    values: CipherArray


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="level 2, 5 (he_est_logit)")
class EstimatedLogits:
    """What the other parties' estimated codes add to the scores of rows, under the receiver's key.

    Reveals: these scores: averages of scores of shared rows that the receiver knows, each over as many rows as
    least_keys asks for or more.
    """

    values: CipherArray


@message(sender="label_holder", receiver="feature_holder", protection=ENCRYPTED, step="level 2, 6 (he_est_grad)")
class EstimateGradient:
    """The loss's gradient at estimated scores, under the sender's key. Reveals: nothing but the number of rows."""

    values: CipherArray


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="level 2, 7 (he_al_grad)")
class AlignedGradient:
    """The same gradient carried back to the shared rows, under the receiver's key.

    Reveals: sums, over the sender's own rows, of gradients that the receiver knows, weighted by attention: about which
    shared rows those rows are like that got a label. It is not exact, as more rows take part than there are equations.
    """

    values: CipherArray


@message(sender="label_holder", receiver="feature_holder", protection=ENCRYPTED, step="level 2, fit term")
class FitCodes:
    """The sender's codes of shared rows, under its own key. Reveals: nothing but the number of rows."""

    values: tuple[CipherArray, ...]


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="level 2, fit term")
class FitGradient:
    """How estimates of the receiver's codes of shared rows miss them, carried back, under the receiver's key.

    Reveals: products of the receiver's codes with a matrix of the sender's attention among shared rows: much of how
    alike the sender finds shared rows. It is only sent where a batch has more than twice as many shared rows as a code
    has numbers, so that the matrix does not follow from it alone.
    """

    values: tuple[CipherArray, ...]


@message(sender="feature_holder", receiver="label_holder", protection=NOISED, step="level 2, sealed_pull (shared_code)")
class SharedCodes:
    """The sender's shared codes of shared rows, clipped and with noise.

    Reveals: a blurred summary of the sender's columns for every shared row; every epoch is a further release.
    """

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="after training")
class Choice:
    """Which model serves rows known to all, which serves rows that only the receiver knows, and a mark of the training.

    Reveals: which of the models did best on validation rows.
    """

    shared: str
    alone: str
    mark: str


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="prediction")
class ModelMark:
    """A mark of the training that made the model. Reveals: nothing else."""

    mark: str


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="prediction", asks_for="count")
class RowsAlone:
    """How many rows only the sender knows that shall be scored. Reveals: that number."""

    count: int


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="prediction")
class AnswersAlone:
    """Predictions for rows that only the receiver knows, without how sure they are.

    Reveals: the predicted class or number of every such row, and the names of the classes.
    """

    values: np.ndarray[Any, Any]
    labels: LabelText


_KEYS = (public_modulus("feature_holder", "label_holder"), public_modulus("label_holder", "feature_holder"))
_SEALED = (
    *SPLIT_LINEAR.all,
    AlignedLogits,
    EstimatedLogits,
    EstimateGradient,
    AlignedGradient,
    FitCodes,
    FitGradient,
    SharedCodes,
)
_CONTROL = (OwnRows, Schedule, EpochVerdict, Choice)
_SCORING = (ModelMark, RowsAlone, AnswersAlone)
MESSAGES = (
    *_CONTROL,
    Codes,
    NoisedCodes,
    CodeGradient,
    NoisedCodeGradient,
    HeldOutCodes,
    NoisedHeldOutCodes,
    *_KEYS,
    *_SEALED,
    *_SCORING,
)


def codes_message(level: int) -> type[Any]:
    """Return how codes of a batch cross at a level that lets them."""
    return NoisedCodes if level == 1 else Codes


def held_out_message(level: int) -> type[Any]:
    """Return how codes of rows that are only scored cross at such a level."""
    return NoisedHeldOutCodes if level == 1 else HeldOutCodes


def gradient_message(defence: str) -> type[Any]:
    """Return how gradients cross under a defence."""
    return CodeGradient if defence == "none" else NoisedCodeGradient


def choose_messages(plan: RunPlan) -> tuple[type[Any], ...]:
    """Return what a run can send: at level 2 no codes, at level 1 none without noise."""
    level, defence = plan.config.get("level", 0), plan.config.get("defence", "none")
    is_prediction = plan.stage == "predict"
    if level == 2:
        answering = (*SPLIT_LINEAR.for_scoring, AlignedLogits, EstimatedLogits)
        if is_prediction:
            return (*_SCORING, *_KEYS, *answering)
        left_out: set[type[Any]] = set()
        if plan.config.get("sealed_pull", "off") == "off":
            left_out.add(SharedCodes)
        if plan.config.get("sealed_fit", "auto") == "off":
            left_out |= {FitCodes, FitGradient}
        return (*_CONTROL, *_KEYS, *(one for one in _SEALED if one not in left_out))
    if is_prediction:
        return (*_SCORING, held_out_message(level))
    return (*_CONTROL, codes_message(level), gradient_message(defence), held_out_message(level))
