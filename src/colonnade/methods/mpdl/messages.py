"""What crosses in multi-party dual learning. The names in brackets are those of the method's sheet."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch

from colonnade.crypto import CipherArray
from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.masked_sums import masked_sum_messages
from colonnade.exchanges.public_keys import PublicModulus
from colonnade.exchanges.sealed_query import EncryptedQuery, QueryAnswer
from colonnade.exchanges.shared_sums import HiddenSums, SealedFeatures
from colonnade.messages import ENCRYPTED, NOISED, PLAIN, Carries, Sealed, Template, Warns, between, by, message, when
from colonnade.messages.rules import Between, Dims, Hex, Length, OneOf
from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, JOINT, LEMMA

__all__ = [
    "CENTRAL",
    "DUAL",
    "GRAPH",
    "MOST_ROWS",
    "PREDICT",
    "TRAIN",
    "AllowedRows",
    "AloneInputs",
    "AloneScores",
    "BlockGradient",
    "Choice",
    "Classes",
    "ColumnGradient",
    "ColumnNames",
    "Columns",
    "ConfusedFeatures",
    "ConfusedSums",
    "DualScalars",
    "FirstGradient",
    "FirstWeights",
    "FoldVerdict",
    "GeneratedColumns",
    "GraphSchedule",
    "KernelGradient",
    "LikelyLinks",
    "LogitGradient",
    "Logits",
    "ModelMark",
    "NoisyLinks",
    "ReleasedTable",
    "RowOrder",
    "RowsAlone",
    "Schedule",
    "ShippedRows",
]

MOST_ROWS = 10**8
_WIDEST = 2**16
_OPEN = {"none": PLAIN, **dict.fromkeys(("cell_ldp", "row_gaussian", *LEMMA), NOISED)}
_SEALED = {mechanism: Sealed(protection) for mechanism, protection in _OPEN.items()}

Count = Annotated[int, Between(0, MOST_ROWS)]
Width = Annotated[int, Between(1, _WIDEST)]
Names = Annotated[tuple[str, ...], Length(1, _WIDEST)]
Numbers = Annotated[np.ndarray[Any, Any], Dims("rows", "columns", kind="f")]
Scores = Annotated[torch.Tensor, Dims("rows", "outputs")]
FirstLayer = Annotated[torch.Tensor, Dims("rows", "first")]
"""For every row the first layer's units, or channels of a picture."""
Model = Annotated[str, OneOf(JOINT, COMPLETED)]
Mark = Annotated[str, Hex(8)]

# Between whom.
_HOLDERS = ("label_holder", "feature_holder")
_TWO_HOLDERS: Any = {"sender": _HOLDERS, "receiver": _HOLDERS}
_ALL_HOLDERS: Any = {**_TWO_HOLDERS, "same_role": True}
_TO_HOLDERS: Any = {"sender": COLLABORATOR, "receiver": _HOLDERS}
_TO_COLLABORATOR: Any = {"sender": "label_holder", "receiver": COLLABORATOR}
_TO_ALL: Any = {"sender": "label_holder", "receiver": ("feature_holder", COLLABORATOR)}


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up", carries=Carries.SIZE)
class Columns:
    """How many columns the sender brings, after encoding, and a digest of those that all holders have.

    Reveals: how many columns the sender brings, after encoding, and whether names, bounds and categories of common
    columns are the same as the receiver's.
    """

    own: Width
    common: Annotated[bytes, Length(32, 32)]


@message(**_TO_ALL, protection=PLAIN, step="set-up", carries=Carries.SIZE)
class Schedule:
    """How many rows there are of each kind, and how wide the first layer is.

    Reveals: how many rows all holders share, how many labelled ones only the sender has, and the number of classes.
    """

    shared: Annotated[int, Between(1, MOST_ROWS)]
    validation: Count
    test: Count
    own: Annotated[int, Between(0, "most_own")]
    hidden: Width
    outputs: Width


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up (fold_seed)")
class RowOrder:
    """The seed of folds and batches, which the collaborator must not know. Reveals: nothing about any table."""

    seed: Annotated[int, Between(0, 2**63 - 1)]


@message(
    **_ALL_HOLDERS,
    protection=by("exchange", release=by("mechanism", _OPEN)),
    step="dual learning (release_table)",
    carries=Carries.ROW_COLUMN,
    warns=Warns.COLUMNS,
)
class ReleasedTable:
    """The sender's columns of shared training rows; with a mechanism, each cell behind noise that is drawn once.

    Reveals: the sender's columns of shared training rows as they are, and the columns' names. Reveals when NOISED: a
    noisy copy of the sender's columns of shared training rows, as far as the ledger's epsilon says, and the columns'
    names.
    """

    names: Names
    # Cells that are missing are no numbers, and there are as many columns as names.
    values: Annotated[np.ndarray[Any, Any], Dims("rows", None, finite=False, kind="f")]


@message(**_TWO_HOLDERS, protection=by("exchange", interactive=PLAIN), step="dual learning", carries=Carries.NAME)
class ColumnNames:
    """Which columns the receiver's generator is to give.

    Reveals: the names of the columns that the receiver's generator is to give.
    """

    names: Names


def _dual_is_on(plan: Any) -> bool:
    return bool(plan.config["dual_weight"] > 0 or any(one > 0 for one in plan.config["dual_weights"].values()))


@message(
    **_TWO_HOLDERS,
    protection=when(_dual_is_on, by("exchange", release=PLAIN, interactive=ENCRYPTED)),
    step="dual learning (dual_scalar, enc_scalar)",
    carries=Carries.ROW_SCORE,
)
class DualScalars:
    """How much likelier real columns are than generated ones, for every row of a batch, clipped.

    Reveals: one number per row about how well the sender's generator fits it; no noise covers it where dp_scope is
    "targets". Reveals when ENCRYPTED: nothing but how many rows the batch has; the numbers are under the sender's own
    key.
    """

    # Ciphertexts stand in a column, to be multiplied; an array has no such dimension.
    values: Annotated[CipherArray | np.ndarray[Any, Any], Dims("rows", "column", kind="f"), Between("least", "most")]


@message(
    **_TWO_HOLDERS,
    protection=by("exchange", interactive=PLAIN),
    step="dual learning (pred)",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class GeneratedColumns:
    """The receiver's columns of a batch, generated.

    Reveals: a function of the sender's columns for every row of the batch.
    """

    values: Numbers


@message(
    **_TWO_HOLDERS,
    protection=by("exchange", interactive=by("mechanism", _SEALED)),
    step="dual learning (enc_grad)",
    carries=Carries.ROW_COLUMN,
    warns=Warns.COLUMNS,
)
class ColumnGradient:
    """The gradient at the receiver's generated columns, added up under its key so that parts stay together.

    Reveals: with the receiver's own predictions, the sender's columns as they are, to within the dual term.
    Reveals when NOISED: with the receiver's own predictions, a noisy copy of the sender's columns, as far as the
    ledger's epsilon says, to within the dual term.
    """

    values: Annotated[CipherArray, Dims("cells")]


@message(
    **_ALL_HOLDERS,
    protection=by("completion", ship=PLAIN),
    step="completion",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class ShippedRows:
    """Generated columns of rows that only the sender knows, or of shared ones as if only it knew them.

    Reveals: a function of the sender's columns for every row that is completed, anew for every generator that was
    trained; of shared rows the receiver knows whose they are, of the others not.
    """

    values: Numbers


@message(
    **_ALL_HOLDERS,
    protection=by("completion", secure_block=PLAIN),
    step="completion",
    carries=Carries.WEIGHTS,
    warns=Warns.COLUMNS,
)
class BlockGradient:
    """The gradient of the receiver's weights from the sender's completed rows of a batch.

    Reveals: sums over the sender's completed rows of a batch; as many hidden units and steps as rows let the receiver
    solve them for the generated columns.
    """

    values: Annotated[torch.Tensor, Dims("columns", "hidden")]


@message(sender=COLLABORATOR, receiver="label_holder", protection=PLAIN, step="logits", carries=Carries.ROW_SCORE)
class Logits:
    """The model's scores of a batch. Reveals: the model's scores of every row of the batch."""

    values: Scores


@message(
    **_TO_COLLABORATOR, protection=PLAIN, step="training (logit_grad)", carries=Carries.ROW_GRADIENT, warns=Warns.LABELS
)
class LogitGradient:
    """The loss's gradient at the scores of a batch.

    Reveals: in effect the label of every row of the batch. The collaborator does not know who these are, and must not
    side with a holder.
    """

    values: Scores


@message(**_TO_HOLDERS, protection=PLAIN, step="training (z_grad)", carries=Carries.ROW_GRADIENT, warns=Warns.LABELS)
class FirstGradient:
    """The loss's gradient at the first layer's outputs, for a batch.

    Reveals: a summary of the errors of every row, from which labels can often be told once the scores are known.
    """

    values: FirstLayer


@message(**_TO_HOLDERS, protection=by("kernels", tied=PLAIN), step="training", carries=Carries.WEIGHTS)
class KernelGradient:
    """The gradient of the first layer's kernels, added up over all holders.

    Reveals: the gradient of the first layer's kernels, added up over all holders.
    """

    values: Annotated[torch.Tensor, Dims("kernels")]


@message(
    sender=_HOLDERS,
    receiver=COLLABORATOR,
    protection=by("completion", own_copy=PLAIN),
    step="rows that one holder knows (z_masked)",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class AloneInputs:
    """The first layer's inputs of rows to which only the sender contributes, so that no mask could hide them.

    Reveals: a linear summary of the sender's columns, its own and generated ones, for every row to which only the
    sender contributes; not who these are. In training these are the test rows, whose sums over all holders the receiver
    knows too.
    """

    values: FirstLayer


@message(**_TO_ALL, protection=when("folds", PLAIN), step="dual cross-validation", carries=Carries.VERDICT)
class FoldVerdict:
    """Whether no further part need be tried. Reveals: whether completed rows gained more than agreed."""

    is_enough: bool


@message(**_TO_ALL, protection=PLAIN, step="negative-transfer rule", carries=Carries.VERDICT)
class Choice:
    """Which model scores rows that all know, and the mark of this training. Reveals: whether completed rows helped."""

    model: Model
    mark: Mark


@message(**_TO_ALL, protection=PLAIN, step="prediction", carries=Carries.SIZE, asks_for="own")
class ModelMark:
    """Which training and which of its models are used, and how many rows the receiver helps to score: those that all
    know, and those that only the sender does.

    Reveals: which training and which of its models are used, and how many rows the receiver helps to score: those that
    all know, and those that only the sender does.
    """

    mark: Mark
    model: Model
    shared: Count
    own: Count


@message(
    sender="feature_holder",
    receiver=_HOLDERS,
    same_role=True,
    protection=PLAIN,
    step="prediction; graph: set-up",
    carries=Carries.SIZE,
    asks_for="count",
)
class RowsAlone:
    """How many rows that only the sender knows the receiver helps to score.

    Reveals: how many rows that only the sender knows the receiver helps to score.
    """

    count: Count


@message(**_TO_COLLABORATOR, protection=PLAIN, step="prediction", carries=Carries.SIZE)
class AllowedRows:
    """How many rows of each feature holder may be scored, in the agreed order.

    Reveals: how many rows of each feature holder may be scored.
    """

    counts: Annotated[tuple[int, ...], Length("askers", "askers"), Between(0, MOST_ROWS)]


@message(sender=COLLABORATOR, receiver="feature_holder", protection=PLAIN, step="score", carries=Carries.ROW_SCORE)
class AloneScores:
    """Scores of rows that only the receiver knows. Reveals: the scores of rows that only the receiver knows."""

    values: Scores


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="prediction", carries=Carries.NAME)
class Classes:
    """What the labels are. Reveals: the task and the names of its classes; of numbers, their mean and spread."""

    labels: LabelText


@message(**_TO_ALL, protection=PLAIN, step="graph: set-up", carries=Carries.SIZE)
class GraphSchedule:
    """How many nodes there are, in the order of all messages: shared ones to learn from, the label holder's own with a
    label, held-out shared ones, and the other holder's own; and how wide the first layer is.

    Reveals: how many people of each kind there are (shared, labelled, held out, known to one holder only), how wide the
    first layer is, and the number of classes.
    """

    learned: Annotated[int, Between(1, MOST_ROWS)]
    own: Count
    test: Count
    alone: Count
    hidden: Width
    outputs: Width

    @property
    def trained(self) -> int:
        """Return how many have a label to learn from."""
        return self.learned + self.own


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="graph", carries=Carries.WEIGHTS)
class FirstWeights:
    """First weights, random and never trained, which the collaborator must not get. Reveals: nothing of any table."""

    values: Annotated[np.ndarray[Any, Any], Dims("columns", "hidden", kind="f"), Between(-1, 1)]


@message(**_TWO_HOLDERS, protection=by("links", edge_ldp=NOISED), step="graph: noised links", carries=Carries.LINK)
class NoisyLinks:
    """Whether its own people and shared ones are linked, or a lie. Reveals: each link as far as link_epsilon says."""

    values: Annotated[np.ndarray[Any, Any], Dims("rows", "bytes", kind="u"), Between(0, 255)]


_CONFUSION: Any = {**_TWO_HOLDERS, "protection": by("links", confusion=PLAIN), "step": "graph: confusion (paper)"}


@message(**_CONFUSION, carries=Carries.ROW_COLUMN, warns=Warns.COLUMNS)
class ConfusedFeatures:
    """Columns of shared people times a secret matrix.

    Reveals: the space that the sender's columns of shared people span, and which columns are equal or empty.
    """

    values: Numbers


@message(**_CONFUSION, carries=Carries.LINK, warns=Warns.LINKS)
class ConfusedSums:
    """The receiver's columns, added up along links.

    Reveals: in effect the sender's links, which a linear programme finds.
    """

    values: Numbers


@message(**_TO_HOLDERS, protection=when("suggested_links", PLAIN), step="graph: links", carries=Carries.ROW_SCORE)
class LikelyLinks:
    """Pairs of people whose neighbours are most alike, the likeliest first, by their places in messages.

    Reveals: which of the receiver's own people are like which of the other holder's own, not who these are.
    """

    pairs: Annotated[np.ndarray[Any, Any], Dims("suggested", 2, kind="i"), Between(0, MOST_ROWS)]


# By stage

StageMessages = tuple[type | Template, ...]


def _where(condition: Callable[[Any], bool], roles: Any, *messages: type) -> tuple[Template, ...]:
    """Return an exchange's messages between holders, where a run needs it."""
    return tuple(between(one, **roles).where(condition) for one in messages)


_SUMS = masked_sum_messages(_HOLDERS)
_KEYS = _where(lambda plan: plan.config["exchange"] == "interactive", _TWO_HOLDERS, PublicModulus)
_GENERATORS: StageMessages = (ReleasedTable, ColumnNames, *_KEYS, GeneratedColumns, DualScalars, ColumnGradient)
_QUERIES = (PublicModulus, EncryptedQuery, QueryAnswer)
_BLOCKS = _where(lambda plan: plan.config["completion"] == "secure_block", _ALL_HOLDERS, *_QUERIES)
_ALONE = (
    between(AloneInputs, "label_holder", COLLABORATOR),
    between(AloneInputs, "feature_holder", COLLABORATOR).where(lambda plan: plan.config["augment"]),
)
_GRADIENTS = (
    between(FirstGradient, COLLABORATOR, "feature_holder"),
    # Whoever has the labels learns none from it.
    replace(
        between(FirstGradient, COLLABORATOR, "label_holder"),
        reveals={None: "what the upper layers make of the errors of every row."},
        carries=Carries.ROW_SCORE,
        warns={},
    ),
)
_CLASSIFIER: StageMessages = (*_SUMS, Logits, LogitGradient, *_GRADIENTS, KernelGradient, *_ALONE, Choice)

DUAL: StageMessages = (Columns, between(Schedule, "label_holder", "feature_holder"), *_GENERATORS)
CENTRAL: StageMessages = (Columns, Schedule, RowOrder, ShippedRows, *_BLOCKS, BlockGradient, *_CLASSIFIER)
TRAIN: StageMessages = (*CENTRAL, *_GENERATORS, FoldVerdict)
PREDICT: StageMessages = (
    between(ModelMark, "label_holder", "feature_holder"),
    # The collaborator counts no rows: the label holder says how many it scores for whom.
    replace(between(ModelMark, "label_holder", COLLABORATOR), asks_for=None),
    *(*_SUMS, Logits, RowsAlone, AllowedRows, Classes, AloneScores, *_ALONE),
    *_where(
        lambda plan: plan.config["completion"] != "own_copy" or not plan.config["augment"], _ALL_HOLDERS, *_QUERIES
    ),
)
_SHARES = (PublicModulus, SealedFeatures, HiddenSums)
GRAPH: StageMessages = (
    *(Columns, between(RowsAlone, "feature_holder", "label_holder"), GraphSchedule, *_SUMS, *_GENERATORS, FirstWeights),
    *_where(lambda plan: plan.config["links"] == "he_share", _TWO_HOLDERS, *_SHARES),
    *(NoisyLinks, ConfusedFeatures, ConfusedSums, Classes, Logits, LogitGradient, AloneScores, LikelyLinks),
)
