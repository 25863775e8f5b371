"""What crosses in FedCVT, by level. The names in brackets are those of the method's sheet."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch

from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.split_linear import SealedArray, SealedByKind
from colonnade.messages import ENCRYPTED, NOISED, PLAIN, Between, Carries, Dims, Hex, OneOf, Warns, by, message

__all__ = [
    "MOST_ROWS",
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
    "OwnRows",
    "RowsAlone",
    "Schedule",
    "SharedCodes",
]

MOST_ROWS = 2**31

_HOLDER, _LABELS = "feature_holder", "label_holder"
_CODES: Any = {
    "sender": _HOLDER,
    "receiver": _LABELS,
    "protection": by("level", {0: PLAIN, 1: NOISED}),
    "carries": Carries.ROW_CODE,
    "warns": Warns.COLUMNS,
}
# At level 2: under the sender's key, or under the receiver's.
_SEALED: Any = {"sender": _LABELS, "receiver": _HOLDER, "protection": by("level", {2: ENCRYPTED})}
_OPENED: Any = {"sender": _HOLDER, "receiver": _LABELS, "protection": by("level", {2: PLAIN})}

Values = Annotated[torch.Tensor, Dims("rows", "width")]
Mark = Annotated[str, Hex(8)]


@message(sender=_HOLDER, receiver=_LABELS, protection=PLAIN, step="set-up", carries=Carries.SIZE)
class OwnRows:
    """How many rows the sender has beside the shared ones.

    Reveals: how many rows the sender has beside the shared ones.
    """

    count: Annotated[int, Between(0, MOST_ROWS)]


@message(sender=_LABELS, receiver=_HOLDER, protection=PLAIN, step="set-up", carries=Carries.SIZE)
class Schedule:
    """How many steps an epoch has, and how many scores a row.

    Reveals: about how many rows the sender has beside the shared ones, if it has more than all others; and the number
    of classes.
    """

    steps: Annotated[int, Between(1, 10**7)]
    outputs: Annotated[int, Between(1, 4096)]


@message(**_CODES, step="levels 0 and 1 (repr_fwd)")
class Codes:
    """The sender's codes of a batch: shared rows, then rows that only the sender knows.

    Reveals: a learned summary of the sender's columns for every row of the batch, where unmatched rows take part also
    for people whom the receiver does not know; not who these are.
    Reveals when NOISED: a blurred summary of the sender's columns for every row; every epoch is a further release.
    """

    values: Values


@message(
    sender=_LABELS,
    receiver=_HOLDER,
    protection=by("defence", none=PLAIN, marvell=NOISED),
    step="levels 0 and 1 (repr_grad)",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class CodeGradient:
    """The loss's gradient at the receiver's codes.

    Reveals: for most labels, the label of every shared row of the batch; where unmatched rows take part also which of
    the receiver's own rows got a label, and often which.
    Reveals when NOISED: a hint at the label of every shared row and at which own rows got a label; hints of one row add
    up over the epochs.
    """

    values: Values


@message(**_CODES, step="evaluation, levels 0 and 1 (eval_fwd)")
class HeldOutCodes:
    """The sender's codes of rows that are scored or looked up, not learned from.

    Reveals: a learned summary of the sender's columns for every row that is scored or looked up. The receiver keeps the
    codes of some shared training rows with the model, to estimate views by them. Reveals when NOISED: a blurred summary
    of the sender's columns for every row that is scored or looked up.
    """

    values: Values


@message(**_SEALED, step="level 2, 4 (he_al_logit)", carries=Carries.ROW_SCORE)
class AlignedLogits:
    """What the other parties' codes of shared rows add to scores, under the sender's key.

    Reveals: nothing but the number of rows and scores.
    """

    values: SealedArray


@message(**_OPENED, step="level 2, 5 (he_est_logit)", carries=Carries.ROW_SCORE)
class EstimatedLogits:
    """What the other parties' estimated codes add to the scores of rows, under the receiver's key.

    Reveals: what estimated codes of the other parties add to the scores of rows: averages of scores of shared rows that
    the receiver knows, each over as many rows as least_keys asks for or more.
    """

    values: SealedArray


@message(**_SEALED, step="level 2, 6 (he_est_grad)", carries=Carries.ROW_GRADIENT)
class EstimateGradient:
    """The loss's gradient at estimated scores, under the sender's key. Reveals: nothing but the number of rows."""

    values: SealedArray


@message(**_OPENED, step="level 2, 7 (he_al_grad)", carries=Carries.SUM)
class AlignedGradient:
    """The same gradient carried back to the shared rows, under the receiver's key.

    Reveals: sums, over the sender's own rows, of gradients that the receiver knows, weighted by attention: about which
    shared rows those rows are like that got a label. It is not exact, as more rows take part than there are equations.
    """

    values: SealedArray


@message(**_SEALED, step="level 2, fit term", carries=Carries.ROW_CODE)
class FitCodes:
    """The sender's codes of shared rows, under its own key. Reveals: nothing but the number of rows."""

    values: SealedByKind


@message(**_OPENED, step="level 2, fit term", carries=Carries.SUM)
class FitGradient:
    """How estimates of the receiver's codes of shared rows miss them, carried back, under the receiver's key.

    Reveals: products of the receiver's codes with the sender's attention among shared rows: much of how alike it finds
    them. It is sent only where shared rows are more than twice as many as a code's numbers, so that attention does not
    follow from it alone.
    """

    values: SealedByKind


@message(
    sender=_HOLDER,
    receiver=_LABELS,
    protection=by("sealed_pull", one_sided=NOISED),
    step="level 2 (shared_code)",
    carries=Carries.ROW_CODE,
)
class SharedCodes:
    """The sender's shared codes of shared rows, clipped and with noise.

    Reveals: a blurred summary of the sender's columns for every shared row; every epoch is a further release.
    """

    values: Values


@message(sender=_LABELS, receiver=_HOLDER, protection=PLAIN, step="after training", carries=Carries.VERDICT)
class Choice:
    """Which model serves rows known to all, which serves rows that only the receiver knows, and a mark of the training.

    Reveals: which of the models did best on validation rows.
    """

    shared: Annotated[str, OneOf(given="candidates")]
    alone: Annotated[str, OneOf(given="candidates_alone")]
    mark: Mark


@message(sender=_LABELS, receiver=_HOLDER, protection=PLAIN, step="prediction")
class ModelMark:
    """A mark of the training that made the model. Reveals: nothing but which training made the model."""

    mark: Mark


@message(sender=_HOLDER, receiver=_LABELS, protection=PLAIN, step="prediction", carries=Carries.SIZE, asks_for="count")
class RowsAlone:
    """How many rows only the sender knows that shall be scored.

    Reveals: how many rows only the sender knows that shall be scored.
    """

    count: Annotated[int, Between(0, "most_alone")]


@message(
    sender=_LABELS, receiver=_HOLDER, protection=PLAIN, step="prediction", carries=Carries.ROW_SCORE | Carries.NAME
)
class AnswersAlone:
    """Predictions for rows that only the receiver knows, without how sure they are.

    Reveals: the predicted class or number of every scored row that only the receiver knows, and the names of the
    classes.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("rows")]
    labels: LabelText
