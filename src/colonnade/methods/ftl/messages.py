"""What crosses in federated transfer learning."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.crypto import CipherArray
from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.secure_product import Opened
from colonnade.messages import (
    ENCRYPTED,
    MASKED,
    PLAIN,
    Between,
    Binds,
    Carries,
    Dims,
    Distinct,
    Length,
    OneOf,
    Sealed,
    Warns,
    by,
    message,
)

__all__ = [
    "AnswerParts",
    "Choice",
    "CodesToScore",
    "FoldRows",
    "LabelledRows",
    "LabelsToFit",
    "LayerInputs",
    "MaskedEncoderGradient",
    "MaskedFit",
    "MaskedScores",
    "MirroredSignals",
    "OpenedEncoderGradient",
    "OpenedFit",
    "OpenedScores",
    "OwnLabels",
    "PredictedLabels",
    "RowCount",
    "RowsToScore",
    "ScoreParts",
    "ScoresAlone",
    "SourceSignals",
    "TargetSignals",
    "Verdict",
]

_BOTH = ("source", "target")
_MOST_LAYERS, _MOST_INPUTS, _MOST_ROWS, _MOST_SOURCES = 63, 2**16, 2**40, 1024
# What is encrypted unless the settings say otherwise, and what crosses only where it is.
_SEALED = by("protection", paillier=ENCRYPTED, none=PLAIN)
_OWN_KEY = by("protection", paillier=Sealed(PLAIN), none=PLAIN)
_PARTS = by("protection", paillier=MASKED, none=PLAIN)
_MASKED, _OPENED = by("protection", paillier=MASKED), by("protection", paillier=PLAIN)

Array = np.ndarray[Any, Any]
Codes = Annotated[CipherArray | Array, Dims("rows", "width")]
Moment = Annotated[CipherArray | Array, Dims("moments")]
"""The upper triangle of a second moment."""
RowMask = Annotated[Array, Dims("rows", kind="b")]
Count = Annotated[int, Between(1, _MOST_ROWS)]


@message(sender=_BOTH, receiver=_BOTH, protection=PLAIN, step="set-up", carries=Carries.SIZE)
class LayerInputs:
    """How many inputs each trained layer of the sender has, for the guard, and how many columns.

    Reveals: how many inputs each trained layer of the sender has, and how many columns it brings.
    """

    widths: Annotated[tuple[int, ...], Length("fewest_layers", _MOST_LAYERS), Between(1, _MOST_INPUTS)]
    columns: Annotated[int, Between(1, _MOST_INPUTS)]


@message(sender="source", receiver="target", protection=PLAIN, step="set-up", carries=Carries.ROWS | Carries.SIZE)
class LabelledRows:
    """Which shared rows lend their label to the loss, and how many scores a row has.

    Reveals: which shared rows lend their label to the loss, and how many scores a row has; no label.
    """

    rows: RowMask
    scores: Annotated[int, Between(1, "most_scores"), Binds("scores")]


@message(
    sender="source",
    receiver="target",
    protection=_SEALED,
    step="Algorithm 1, step 1",
    carries=Carries.ROW_GRADIENT | Carries.ROW_CODE | Carries.WEIGHTS,
    warns=Warns.LABELS | Warns.COLUMNS,
)
class SourceSignals:
    """What the target's gradient needs of the source: one row per shared row, and the translator's second moment.

    Reveals: nothing but the number of rows. Reveals when PLAIN: labels and codes of all shared rows.
    """

    rows: Codes
    moment: Moment


@message(
    sender="target",
    receiver="source",
    protection=_SEALED,
    step="Algorithm 1, step 2",
    carries=Carries.ROW_CODE | Carries.SUM,
    warns=Warns.COLUMNS,
)
class TargetSignals:
    """What the source's gradient needs of the target: the codes, their second moment, and a share of the loss.

    Reveals: nothing but the number of rows. Reveals when PLAIN: the codes of all shared rows.
    """

    codes: Codes
    moment: Moment
    remainder: Annotated[CipherArray | Array, Dims(1)]


@message(sender=_BOTH, receiver=_BOTH, protection=_MASKED, step="Algorithm 1, steps 3 and 4", carries=Carries.WEIGHTS)
class MaskedEncoderGradient:
    """The sender's gradient, under the receiver's key and behind a uniform mask. Reveals: nothing."""

    values: Annotated[CipherArray, Dims(None)]


@message(sender=_BOTH, receiver=_BOTH, protection=_OPENED, step="Algorithm 1, steps 5 and 6", carries=Carries.WEIGHTS)
class OpenedEncoderGradient:
    """The receiver's gradient, behind the receiver's own mask.

    Reveals: the receiver's own gradient: one linear equation per parameter about the sender's codes, or with reveal =
    rows these codes and row gradients themselves.
    """

    values: Opened


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 1, step 6", carries=Carries.VERDICT)
class Verdict:
    """Whether the loss is the lowest so far, whether to stop, and whether to go back. Reveals: how the loss moves."""

    is_best: bool
    is_last: bool
    goes_back: bool


@message(
    sender=_BOTH,
    receiver=_BOTH,
    protection=_SEALED,
    step="Algorithm 2, step 1",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class CodesToScore:
    """Codes of rows to be scored.

    Reveals: how many rows are to be scored. Reveals when PLAIN: the codes of the rows to be scored.
    """

    values: Codes


@message(sender=_BOTH, receiver=_BOTH, protection=_MASKED, step="Algorithm 2, step 2", carries=Carries.ROW_SCORE)
class MaskedScores:
    """Scores under the receiver's key, behind a uniform mask. Reveals: nothing."""

    values: Annotated[CipherArray, Dims(None, "scores")]


@message(sender=_BOTH, receiver=_BOTH, protection=_OPENED, step="Algorithm 2, step 3", carries=Carries.ROW_SCORE)
class OpenedScores:
    """Scores behind the receiver's own mask. Reveals: the score of every row, in the sender's order, no id."""

    values: Opened


@message(sender=_BOTH, receiver=_BOTH, protection=PLAIN, step="Algorithm 2, step 4", carries=Carries.ROW_SCORE)
class PredictedLabels:
    """Predicted labels of rows that were asked for.

    Reveals: the predicted label of every row that was asked for; by very many of them, the translator's direction.
    """

    values: Annotated[Array, Dims("rows", kind="if")]
    labels: LabelText


@message(
    sender="target", receiver="source", protection=PLAIN, step="Algorithm 2", carries=Carries.SIZE, asks_for="count"
)
class RowsToScore:
    """How many rows are to be scored, which source gives the answer, and which others take part.

    Reveals: how many rows are to be scored, which source gives the answer, and which others take part.
    """

    count: Count
    collector: Annotated[str, OneOf(given="sources")]
    others: Annotated[tuple[str, ...], Length(0, _MOST_SOURCES), OneOf(given="other_sources"), Distinct()]
    is_summed: bool


@message(sender="source", receiver="source", protection=_PARTS, step="several sources", carries=Carries.ROW_SCORE)
class ScoreParts:
    """Masks of the sender's scores, for the source that adds up.

    Reveals: nothing. Reveals when PLAIN: the sender's scores of the rows.
    """

    values: Annotated[Array, Dims("parts", "part_width")]


@message(sender="target", receiver="source", protection=PLAIN, step="several sources", carries=Carries.ROW_SCORE)
class AnswerParts:
    """All sources' scores added up, behind all masks; in the clear the sender's own.

    Reveals: with all sources' masks, the sum of all scores of every row; without protection the sender's own score of
    it.
    """

    values: Annotated[Array, Dims("parts", "part_width")]


@message(
    sender="source",
    receiver="target",
    protection=_SEALED,
    step="self-learning",
    carries=Carries.ROW_LABEL,
    warns=Warns.LABELS,
)
class LabelsToFit:
    """The labels of labelled shared rows.

    Reveals: nothing but how many shared rows are labelled. Reveals when PLAIN: the labels of labelled shared rows.
    """

    values: Annotated[CipherArray | Array, Dims("rows", "scores")]


@message(sender="target", receiver="source", protection=_OWN_KEY, step="self-learning", carries=Carries.ROW_SCORE)
class ScoresAlone:
    """Scores of held-out rows by a fit to the labelled rows.

    Reveals: the score of every held-out row by a fit to the labelled rows, in the order of the shared rows.
    """

    values: Annotated[CipherArray | Array, Dims("numbers")]


@message(sender="target", receiver="source", protection=_MASKED, step="self-learning", carries=Carries.WEIGHTS)
class MaskedFit:
    """The fit's coefficients, under the receiver's key and behind a uniform mask. Reveals: nothing."""

    values: Annotated[CipherArray, Dims(None)]


@message(sender="source", receiver="target", protection=_OPENED, step="self-learning", carries=Carries.WEIGHTS)
class OpenedFit:
    """The fit's coefficients behind the receiver's mask.

    Reveals: the coefficients of a fit to the labelled rows: as many linear equations about the labels it used.
    """

    values: Opened


@message(sender="source", receiver="target", protection=PLAIN, step="self-learning", carries=Carries.NAME)
class OwnLabels:
    """What the labels are, for a target that scores by its own fit.

    Reveals: the names of the classes, or the labels' mean and scale.
    """

    labels: LabelText


@message(sender="source", receiver="target", protection=PLAIN, step="end of training", carries=Carries.VERDICT)
class Choice:
    """Whether the target scores with the transferred model or with the regression.

    Reveals: whether the transferred model or the regression did better.
    """

    is_transfer: bool


@message(sender="source", receiver="target", protection=PLAIN, step="Algorithm 3", carries=Carries.ROWS | Carries.SIZE)
class FoldRows:
    """Which shared rows lend their label in a fold, and how many do with roles swapped.

    Reveals: which shared rows lend their label in a fold, and how many do with roles swapped; no label.
    """

    rows: RowMask
    count: Count


@message(sender=_BOTH, receiver=_BOTH, protection=PLAIN, step="Algorithm 3", carries=Carries.SIZE, asks_for="count")
class RowCount:
    """How many rows the sender has scored next. Reveals: how many rows the sender has scored next."""

    count: Count


@message(
    sender=_BOTH,
    receiver=_BOTH,
    protection=_SEALED,
    step="Algorithm 3, roles swapped",
    carries=Carries.ROW_CODE | Carries.SUM | Carries.WEIGHTS,
    warns=Warns.COLUMNS,
)
class MirroredSignals:
    """The sender's codes of shared rows, and sums over the source's labelled rows or the target's translator.

    Reveals: nothing but the number of rows. Reveals when PLAIN: the codes of all shared rows, and sums over the
    source's labelled rows or the target's translator.
    """

    codes: Codes
    moment: Moment
    sums: Annotated[CipherArray | Array, Dims("sums")]
