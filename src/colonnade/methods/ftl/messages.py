"""What crosses in federated transfer learning."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from colonnade.crypto import CipherArray
from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.public_keys import public_modulus
from colonnade.messages import ENCRYPTED, MASKED, PLAIN, message
from colonnade.session import RunPlan

__all__ = [
    "MESSAGES",
    "AnswerParts",
    "Choice",
    "ClearLabels",
    "ClearLossSignals",
    "ClearOwnScores",
    "ClearScores",
    "ClearScoresAlone",
    "ClearSourceSignals",
    "ClearTargetSignals",
    "ClearTranslatorSignals",
    "FoldRows",
    "LabelledRows",
    "MaskedFit",
    "MirroredLossSignals",
    "MirroredTranslatorSignals",
    "OpenedFit",
    "OwnLabels",
    "RowsToScore",
    "ScoreMasks",
    "ScoresAlone",
    "SealedLabels",
    "SourceSignals",
    "TargetSignals",
    "Verdict",
    "answers",
    "choose_messages",
    "layer_inputs",
    "opening",
    "row_count",
    "scoring",
]

Array = np.ndarray[Any, Any]


@functools.cache
def layer_inputs(sender: str, receiver: str) -> type[Any]:
    """Declare the message that tells how large an encoder's trained layers are."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="set-up")
    class LayerInputs:
        """How many inputs each trained layer of the sender's encoder has, for the guard, and how many columns.

        Reveals: these numbers.
        """

        widths: tuple[int, ...]
        columns: int

    return LayerInputs


@message(sender="source", receiver="target", protection=PLAIN, step="set-up")
class LabelledRows:
    """Which shared training rows lend their label to the loss, and how many scores a row has.

    Reveals: for which shared rows the sender uses a label, and the number of classes; no label.
    """

    rows: Array
    scores: int


@message(sender="source", receiver="target", protection=ENCRYPTED, step="Algorithm 1, step 1")
class SourceSignals:
    """What the target's gradient needs of the source: one row per shared row, and the translator's second moment.

    Reveals: nothing but the number of rows; it is under the sender's key.
    """

    rows: CipherArray
    moment: CipherArray


@message(sender="target", receiver="source", protection=ENCRYPTED, step="Algorithm 1, step 2")
class TargetSignals:
    """What the source's gradient needs of the target: the codes, their second moment, and a share of the loss.

    Reveals: nothing but the number of rows; it is under the sender's key.
    """

    codes: CipherArray
    moment: CipherArray
    remainder: CipherArray


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 1, step 1, protection = none")
class ClearSourceSignals:
    """The same as SourceSignals, in the clear, for research. Reveals: labels and codes of all shared rows."""

    rows: Array
    moment: Array


@message(sender="target", receiver="source", protection=PLAIN, step="Algorithm 1, step 2, protection = none")
class ClearTargetSignals:
    """The same as TargetSignals, in the clear, for research. Reveals: the codes of all shared rows."""

    codes: Array
    moment: Array
    remainder: Array


@functools.cache
def opening(asker: str, opener: str) -> tuple[type[Any], type[Any]]:
    """Declare the two messages by which a party has its gradient opened."""
    step, back = ("3", "5") if asker == "source" else ("4", "6")

    @message(sender=asker, receiver=opener, protection=MASKED, step=f"Algorithm 1, step {step}")
    class MaskedEncoderGradient:
        """The sender's gradient, under the receiver's key and behind a uniform mask. Reveals: nothing."""

        values: CipherArray

    @message(sender=opener, receiver=asker, protection=PLAIN, step=f"Algorithm 1, step {back}")
    class OpenedEncoderGradient:
        """The receiver's gradient, behind the receiver's own mask.

        Reveals: the receiver's own gradient: one linear equation per parameter about the sender's codes, or with reveal
        = rows these codes and row gradients themselves.
        """

        values: Array

    return MaskedEncoderGradient, OpenedEncoderGradient


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 1, step 6")
class Verdict:
    """Whether the loss is the lowest so far, whether to stop, and whether to go back. Reveals: how the loss moves."""

    is_best: bool
    is_last: bool
    goes_back: bool


@functools.cache
def scoring(asker: str, answerer: str) -> tuple[type[Any], type[Any], type[Any], type[Any]]:
    """Declare the messages by which one party's rows are scored with the other's translator."""

    @message(sender=asker, receiver=answerer, protection=ENCRYPTED, step="Algorithm 2, step 1")
    class SealedCodes:
        """Codes of rows to be scored, packed, under the sender's key. Reveals: how many rows."""

        values: CipherArray

    @message(sender=answerer, receiver=asker, protection=MASKED, step="Algorithm 2, step 2")
    class MaskedScores:
        """Scores under the receiver's key, behind a uniform mask. Reveals: nothing."""

        values: CipherArray

    @message(sender=asker, receiver=answerer, protection=PLAIN, step="Algorithm 2, step 3")
    class OpenedScores:
        """Scores behind the receiver's own mask. Reveals: the score of every row, in the sender's order, no id."""

        values: Array

    @message(sender=asker, receiver=answerer, protection=PLAIN, step="Algorithm 2, protection = none")
    class ClearCodes:
        """Codes of rows to be scored, in the clear, for research. Reveals: these codes."""

        values: Array

    return SealedCodes, MaskedScores, OpenedScores, ClearCodes


@functools.cache
def answers(answerer: str, asker: str) -> type[Any]:
    """Declare the message that gives labels, and no scores, back to the party that asked."""

    @message(sender=answerer, receiver=asker, protection=PLAIN, step="Algorithm 2, step 4")
    class PredictedLabels:
        """The predicted label of every row that was asked for.

        Reveals: one label per row; by very many of them the direction of the sender's translator.
        """

        values: Array
        labels: LabelText

    return PredictedLabels


@message(sender="target", receiver="source", protection=PLAIN, step="Algorithm 2", asks_for="count")
class RowsToScore:
    """How many rows are to be scored, which source gives the answer, and which others take part. Reveals: these."""

    count: int
    collector: str
    others: tuple[str, ...]
    is_summed: bool


@message(sender="source", receiver="source", protection=PLAIN, step="several sources, protection = none")
class ClearScores:
    """The sender's weighted scores, for the source that adds them up. Reveals: these scores."""

    values: Array


@message(sender="target", receiver="source", protection=PLAIN, step="several sources, protection = none")
class ClearOwnScores:
    """What regressions of the sender's own add to the scores. Reveals: these scores."""

    values: Array


@message(sender="source", receiver="source", protection=MASKED, step="several sources")
class ScoreMasks:
    """The masks of the sender's scores, for the source that adds all sources' scores up. Reveals: nothing by itself."""

    values: Array


@message(sender="target", receiver="source", protection=PLAIN, step="several sources")
class AnswerParts:
    """The sum of all sources' weighted scores, behind all their masks.

    Reveals: to the source that knows all masks, the weighted sum of the scores of every row.
    """

    values: Array


@message(sender="source", receiver="target", protection=ENCRYPTED, step="self-learning")
class SealedLabels:
    """The labels of labelled shared rows, under the sender's key. Reveals: nothing but their number."""

    values: CipherArray


@message(sender="target", receiver="source", protection=PLAIN, step="self-learning")
class ScoresAlone:
    """Scores of held-out rows by a fit to the labelled rows, under the receiver's key.

    Reveals: these scores, in the order of the shared rows.
    """

    values: CipherArray


@message(sender="target", receiver="source", protection=MASKED, step="self-learning")
class MaskedFit:
    """The fit's coefficients, under the receiver's key and behind a uniform mask. Reveals: nothing."""

    values: CipherArray


@message(sender="source", receiver="target", protection=PLAIN, step="self-learning")
class OpenedFit:
    """The fit's coefficients behind the receiver's own mask, where transfer does harm and the fit takes its place.

    Reveals: coefficients of the receiver's own columns: as many linear equations about the labels of labelled rows.
    """

    values: Array


@message(sender="source", receiver="target", protection=PLAIN, step="self-learning")
class OwnLabels:
    """What the labels are, for a target that scores by its own fit. Reveals: names of classes, or mean and scale."""

    labels: LabelText


@message(sender="source", receiver="target", protection=PLAIN, step="self-learning, protection = none")
class ClearLabels:
    """The labels of labelled shared rows, in the clear, for research. Reveals: these labels."""

    values: Array


@message(sender="target", receiver="source", protection=PLAIN, step="self-learning, protection = none")
class ClearScoresAlone:
    """The same as ScoresAlone, in the clear, for research. Reveals: these scores."""

    values: Array


@message(sender="source", receiver="target", protection=PLAIN, step="end of training")
class Choice:
    """Whether the target scores with the transferred model or with the regression. Reveals: which did better."""

    is_transfer: bool


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 3")
class FoldRows:
    """Which shared rows lend their label in this fold, and how many of the sender's rows do after roles are swapped.

    Reveals: these rows and that number; no label.
    """

    rows: Array
    count: int


@functools.cache
def row_count(asker: str, answerer: str) -> type[Any]:
    """Declare the message that says how many rows are to be scored while validating."""

    @message(sender=asker, receiver=answerer, protection=PLAIN, step="Algorithm 3", asks_for="count")
    class RowCount:
        """How many rows the sender has scored next. Reveals: that number."""

        count: int

    return RowCount


@message(sender="source", receiver="target", protection=ENCRYPTED, step="Algorithm 3, roles swapped")
class MirroredLossSignals:
    """The source's codes of shared rows, and sums over its labelled rows: what the target's gradient needs.

    Reveals: nothing but the number of rows; it is under the sender's key.
    """

    codes: CipherArray
    moment: CipherArray
    sums: CipherArray


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 3, roles swapped, protection = none")
class ClearLossSignals:
    """The same as MirroredLossSignals, in the clear, for research. Reveals: codes of all shared rows."""

    codes: Array
    moment: Array
    sums: Array


@message(sender="target", receiver="source", protection=PLAIN, step="Algorithm 3, roles swapped, protection = none")
class ClearTranslatorSignals:
    """The same as MirroredTranslatorSignals, in the clear. Reveals: codes of all shared rows and the translator."""

    rows: Array
    moment: Array
    translator: Array


@message(sender="target", receiver="source", protection=ENCRYPTED, step="Algorithm 3, roles swapped")
class MirroredTranslatorSignals:
    """The target's codes of shared rows, and its translator: what the source's gradient needs.

    Reveals: nothing but the number of rows; it is under the sender's key.
    """

    rows: CipherArray
    moment: CipherArray
    translator: CipherArray


_KEYS = (public_modulus("source", "target"), public_modulus("target", "source"))
_SIZES = (layer_inputs("source", "target"), layer_inputs("target", "source"), LabelledRows)
_OPENING = (*opening("source", "target"), *opening("target", "source"))
_SEALED_SCORES, _CLEAR_SCORES = scoring("target", "source")[:3], scoring("target", "source")[3:]
_SUMMED, _CLEAR_SUMMED = (ScoreMasks, AnswerParts), (ClearScores, ClearOwnScores)
_SELF = (SealedLabels, ScoresAlone, MaskedFit, OpenedFit, Choice, OwnLabels)
_CLEAR_SELF = (ClearLabels, ClearScoresAlone, Choice, OwnLabels)

_MIRRORED_SCORES = (*scoring("source", "target")[:3], answers("target", "source"))
_CLEAR_MIRRORED_SCORES = (*scoring("source", "target")[3:], answers("target", "source"))
_COUNTS = (row_count("source", "target"), row_count("target", "source"))
_VALIDATING = (FoldRows, *_COUNTS, MirroredLossSignals, MirroredTranslatorSignals, *_MIRRORED_SCORES)
_CLEAR_VALIDATING = (FoldRows, *_COUNTS, ClearLossSignals, ClearTranslatorSignals, *_CLEAR_MIRRORED_SCORES)

MESSAGES = (
    *_KEYS,
    *_SIZES,
    SourceSignals,
    TargetSignals,
    *_OPENING,
    Verdict,
    RowsToScore,
    *_SEALED_SCORES,
    answers("source", "target"),
    *_SUMMED,
    *_SELF,
    *_VALIDATING,
    ClearSourceSignals,
    ClearTargetSignals,
    *_CLEAR_SCORES,
    *_CLEAR_SUMMED,
    ClearLabels,
    ClearScoresAlone,
    ClearLossSignals,
    ClearTranslatorSignals,
    *scoring("source", "target")[3:],
)


def choose_messages(plan: RunPlan) -> tuple[type[Any], ...]:
    """Return what a run can send: never anything in the clear that its settings encrypt."""
    is_sealed, has_safeguard = plan.config["protection"] == "paillier", plan.config["safeguard"]
    keys = _KEYS if is_sealed else ()
    scores = _SEALED_SCORES if is_sealed else _CLEAR_SCORES
    if plan.stage == "predict":
        several: tuple[type[Any], ...] = ()
        if len(plan.roles.get("source", ())) > 1:
            several = _SUMMED if is_sealed else _CLEAR_SUMMED
        return (*keys, RowsToScore, *scores, answers("source", "target"), *several)
    signals = (SourceSignals, TargetSignals, *_OPENING) if is_sealed else (ClearSourceSignals, ClearTargetSignals)
    if plan.stage == "validate":
        more = (*_VALIDATING, *_SELF) if is_sealed else (*_CLEAR_VALIDATING, *_CLEAR_SELF)
        return (*keys, *_SIZES, *signals, Verdict, *scores, answers("source", "target"), *more)
    alone: tuple[type[Any], ...] = ()
    if has_safeguard:
        alone = _SELF if is_sealed else _CLEAR_SELF
    return (*keys, *_SIZES, *signals, Verdict, *scores, *alone)
