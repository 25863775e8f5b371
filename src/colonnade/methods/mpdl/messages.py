"""What crosses in multi-party dual learning. The names in brackets are those of the method's sheet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import torch

from colonnade.crypto import CipherArray
from colonnade.exchanges.answers import LabelText
from colonnade.exchanges.masked_sums import masked_sum_messages
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.sealed_query import query_messages
from colonnade.messages import ENCRYPTED, NOISED, PLAIN, message
from colonnade.methods.mpdl.config import COLLABORATOR
from colonnade.methods.mpdl.graph_messages import GRAPH_MESSAGES, graph_messages
from colonnade.session import RunPlan

__all__ = [
    "MESSAGES",
    "AllowedRows",
    "AloneScores",
    "Classes",
    "Columns",
    "LogitGradient",
    "Logits",
    "RowOrder",
    "alone_inputs",
    "block_gradient",
    "choice",
    "choose_messages",
    "column_names",
    "dual_scalars",
    "encrypted_gradient",
    "encrypted_scalars",
    "first_gradient",
    "fold_verdict",
    "kernel_gradient",
    "model_mark",
    "open_table",
    "predictions",
    "released_table",
    "rows_alone",
    "schedule",
    "shipped_rows",
    "table_message",
]

HOLDERS = ("label_holder", "feature_holder")
_PAIRS = (("label_holder", "feature_holder"), ("feature_holder", "label_holder"), ("feature_holder", "feature_holder"))


@message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="set-up")
class Columns:
    """How many columns the sender brings, after encoding, and a digest of those that all holders have.

    Reveals: that number, and whether names, bounds and categories of common columns are the same as the receiver's.
    """

    own: int
    common: bytes


@cache
def schedule(receiver: str) -> type[Any]:
    """Declare how the label holder says how much there is to do."""

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="set-up")
    class Schedule:
        """How many rows there are of each kind, and how wide the first layer is.

        Reveals: how many rows all holders share, how many labelled ones only the sender has, and the number of classes.
        """

        shared: int
        validation: int
        test: int
        own: int
        hidden: int
        outputs: int

    return Schedule


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="set-up (fold_seed)")
class RowOrder:
    """The seed of folds and batches, which the collaborator must not know. Reveals: nothing about any table."""

    seed: int


@cache
def column_names(sender: str, receiver: str) -> type[Any]:
    """Declare the message that names columns where no table is released."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="dual learning, interactive")
    class ColumnNames:
        """Which columns the receiver's generator is to give. Reveals: their names."""

        names: tuple[str, ...]

    return ColumnNames


@cache
def released_table(sender: str, receiver: str) -> type[Any]:
    """Declare the message by which one holder lets another learn from its columns of shared rows."""

    @message(sender=sender, receiver=receiver, protection=NOISED, step="dual learning (release_table)")
    class ReleasedTable:
        """The sender's columns of shared training rows, each cell behind noise that is drawn once.

        Reveals: a noisy copy of these columns, as far as the ledger's epsilon says, and the columns' names.
        """

        names: tuple[str, ...]
        values: np.ndarray[Any, Any]

    return ReleasedTable


@cache
def open_table(sender: str, receiver: str) -> type[Any]:
    """Declare the same without noise, where the settings ask for none."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="dual learning, mechanism = none (release_table)")
    class OpenTable:
        """The sender's raw table columns of shared training rows, without noise.

        Reveals: these columns, and their names.
        """

        names: tuple[str, ...]
        values: np.ndarray[Any, Any]

    return OpenTable


def table_message(mechanism: str, sender: str, receiver: str) -> type[Any]:
    """Return the message that carries released columns."""
    return (open_table if mechanism == "none" else released_table)(sender, receiver)


@cache
def dual_scalars(sender: str, receiver: str) -> type[Any]:
    """Declare the sender's part of the dual penalty."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="dual learning (dual_scalar)")
    class DualScalars:
        """How much likelier real columns are than generated ones, for every row of a batch, clipped.

        Reveals: one number per row about how well the sender's generator fits it; no noise covers it where dp_scope is
        "targets".
        """

        values: np.ndarray[Any, Any]

    return DualScalars


@cache
def predictions(sender: str, receiver: str) -> type[Any]:
    """Declare generated columns that the receiver compares with its own."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="dual learning, interactive (pred)")
    class GeneratedColumns:
        """The receiver's columns of a batch as the sender's generator gives them.

        Reveals: a function of the sender's columns for every shared row of the batch.
        """

        values: np.ndarray[Any, Any]

    return GeneratedColumns


@cache
def encrypted_scalars(sender: str, receiver: str) -> type[Any]:
    """Declare the sender's part of the dual penalty, under its own key."""

    @message(sender=sender, receiver=receiver, protection=ENCRYPTED, step="dual learning, interactive (enc_scalar)")
    class SealedScalars:
        """The sender's part of the dual penalty of a batch, under its own key. Reveals: nothing but its size."""

        values: CipherArray

    return SealedScalars


@cache
def encrypted_gradient(sender: str, receiver: str) -> type[Any]:
    """Declare the gradient at generated columns, under the key of the party that generated them."""

    @message(sender=sender, receiver=receiver, protection=ENCRYPTED, step="dual learning, interactive (enc_grad)")
    class SealedGradient:
        """The gradient at the receiver's generated columns, added up under its key so that parts stay together.

        Reveals: with the receiver's own predictions, the sender's released columns to within the dual term.
        """

        values: CipherArray

    return SealedGradient


@cache
def shipped_rows(sender: str, receiver: str) -> type[Any]:
    """Declare generated columns that the owner of such columns trains on."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="completion = ship")
    class ShippedRows:
        """Generated columns of rows that only the sender knows, or of shared ones as if only it knew them.

        Reveals: a function of the sender's columns for every such row, anew for every generator that was trained; of
        shared rows the receiver knows whose they are, of the others not.
        """

        values: np.ndarray[Any, Any]

    return ShippedRows


@cache
def block_gradient(sender: str, receiver: str) -> type[Any]:
    """Declare what a holder's weights learn from rows that another holder completed under encryption."""

    @message(sender=sender, receiver=receiver, protection=PLAIN, step="completion = secure_block")
    class BlockGradient:
        """The gradient of the receiver's weights from the sender's completed rows of a batch.

        Reveals: sums over these rows; with as many hidden units and steps as rows they can be solved for the generated
        columns.
        """

        values: torch.Tensor

    return BlockGradient


@message(sender=COLLABORATOR, receiver="label_holder", protection=PLAIN, step="central training (logits)")
class Logits:
    """The model's scores of a batch. Reveals: these scores."""

    values: torch.Tensor


@message(sender="label_holder", receiver=COLLABORATOR, protection=PLAIN, step="central training (logit_grad)")
class LogitGradient:
    """The loss's gradient at the scores of a batch.

    Reveals: in effect the label of every row of the batch; the collaborator does not know who these are.
    """

    values: torch.Tensor


@cache
def first_gradient(receiver: str) -> type[Any]:
    """Declare the gradient that goes back to a holder."""

    @message(sender=COLLABORATOR, receiver=receiver, protection=PLAIN, step="central training (z_grad)")
    class FirstGradient:
        """The loss's gradient at the first layer's outputs, for a batch.

        Reveals: a summary of the errors of every row, from which labels can often be told once the scores are known.
        """

        values: torch.Tensor

    return FirstGradient


@cache
def kernel_gradient(receiver: str) -> type[Any]:
    """Declare the gradient of kernels that all holders share."""

    @message(sender=COLLABORATOR, receiver=receiver, protection=PLAIN, step="central training, kernels = tied")
    class KernelGradient:
        """The gradient of the first layer's kernels, added up over all holders. Reveals: that sum."""

        values: torch.Tensor

    return KernelGradient


@cache
def fold_verdict(receiver: str) -> type[Any]:
    """Declare the end of one comparison."""

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="dual cross-validation")
    class FoldVerdict:
        """Whether no further part need be tried. Reveals: whether completed rows gained more than agreed."""

        is_enough: bool

    return FoldVerdict


@cache
def choice(receiver: str) -> type[Any]:
    """Declare which of the two models is used."""

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="negative-transfer rule")
    class Choice:
        """Which model scores rows that all holders know, and the mark of this training.

        Reveals: whether completed rows helped.
        """

        model: str
        mark: str

    return Choice


@cache
def model_mark(receiver: str) -> type[Any]:
    """Declare the mark by which parts of one model are known to belong together."""
    asks_for = None if receiver == COLLABORATOR else "own"

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="prediction", asks_for=asks_for)
    class ModelMark:
        """Which training and which of its models are used, and how many rows the receiver helps to score: those that
        all know, and those that only the sender does. Reveals: these.
        """

        mark: str
        model: str
        shared: int
        own: int

    return ModelMark


@cache
def alone_inputs(sender: str) -> type[Any]:
    """Declare a holder's whole part of the first layer, for rows that only it knows."""

    @message(sender=sender, receiver=COLLABORATOR, protection=PLAIN, step="rows that one holder knows (z_masked)")
    class AloneInputs:
        """The first layer's inputs of rows to which only the sender contributes, so that no mask could hide them.

        Reveals: a linear summary of the sender's columns, its own and generated ones, for every such row; not who these
        are. In training these are the test rows, whose sums over all holders the receiver knows too.
        """

        values: torch.Tensor

    return AloneInputs


@cache
def rows_alone(receiver: str) -> type[Any]:
    """Declare how a feature holder says how many rows it wants scored."""

    @message(sender="feature_holder", receiver=receiver, protection=PLAIN, step="prediction", asks_for="count")
    class RowsAlone:
        """How many rows that only the sender knows the receiver helps to score. Reveals: that number."""

        count: int

    return RowsAlone


@message(sender="label_holder", receiver=COLLABORATOR, protection=PLAIN, step="prediction")
class AllowedRows:
    """How many rows of each feature holder may be scored, in the agreed order. Reveals: these numbers."""

    counts: tuple[int, ...]


@message(sender=COLLABORATOR, receiver="feature_holder", protection=PLAIN, step="prediction (score)")
class AloneScores:
    """Scores of rows that only the receiver knows. Reveals: these scores."""

    values: torch.Tensor


@message(sender="label_holder", receiver="feature_holder", protection=PLAIN, step="prediction")
class Classes:
    """What the labels are, for a receiver that gets scores.

    Reveals: the task and the names of its classes; of labels that are numbers, their mean and spread.
    """

    labels: LabelText


def _between(declare: Callable[[str, str], type[Any]]) -> tuple[type[Any], ...]:
    """Return a message between every two roles that bring columns."""
    return tuple(declare(sender, receiver) for sender, receiver in _PAIRS)


def _between_two(declare: Callable[[str, str], type[Any]]) -> tuple[type[Any], ...]:
    """Return a message that only two holders exchange, one of them with the labels."""
    return tuple(declare(sender, receiver) for sender, receiver in _PAIRS[:2])


def _to_all(declare: Callable[[str], type[Any]]) -> tuple[type[Any], ...]:
    return (declare("feature_holder"), declare(COLLABORATOR))


def _to_holders(declare: Callable[[str], type[Any]]) -> tuple[type[Any], ...]:
    return tuple(declare(role) for role in HOLDERS)


_RELEASE = (*_between(released_table), *_between(open_table))
_INTERACTIVE = (
    *_between_two(column_names),
    *_between(public_modulus),
    *_between_two(predictions),
    *_between_two(encrypted_scalars),
    *_between_two(encrypted_gradient),
)
_CENTRAL = (
    *masked_sum_messages(HOLDERS, COLLABORATOR),
    Logits,
    LogitGradient,
    *_to_holders(first_gradient),
)
_QUERIES = (
    *_between(public_modulus),
    *(one for pair in _PAIRS for one in query_messages(*pair).all),
)
_SET_UP = (Columns, schedule("feature_holder"), schedule(COLLABORATOR), RowOrder)
_CHOICE = (*_to_all(choice),)
_PREDICTION = (
    *_to_all(model_mark),
    *_to_holders(rows_alone),
    AllowedRows,
    AloneScores,
    Classes,
)

MESSAGES: tuple[type, ...] = (
    *_SET_UP,
    *_RELEASE,
    *_between_two(dual_scalars),
    *_INTERACTIVE,
    *_between(shipped_rows),
    *(one for pair in _PAIRS for one in query_messages(*pair).all),
    *_between(block_gradient),
    *_CENTRAL,
    *_to_holders(alone_inputs),
    *_to_holders(kernel_gradient),
    *_to_all(fold_verdict),
    *_CHOICE,
    *_PREDICTION,
    *GRAPH_MESSAGES,
)


def choose_messages(plan: RunPlan) -> tuple[type, ...]:
    """Return what can cross at all in a stage, with a run's settings."""
    config, stage = plan.config, plan.stage
    if stage == "predict":
        sums = masked_sum_messages(HOLDERS, COLLABORATOR)
        queries = () if config["completion"] == "own_copy" and config["augment"] else _QUERIES
        return (*_PREDICTION, *sums, *_alone(config), *queries, Logits)
    if stage == "graph":
        learned = dict.fromkeys((*_dual_messages(config), *graph_messages(config)))
        return (Columns, *learned, Logits, LogitGradient, AloneScores, Classes)
    found: list[type] = [Columns, schedule("feature_holder")]
    if stage in ("train", "dual"):
        found += _dual_messages(config)
    if stage in ("train", "central"):
        found += [schedule(COLLABORATOR), RowOrder, *_CENTRAL, *_alone(config), *_CHOICE]
        found += _to_holders(kernel_gradient) if config["kernels"] == "tied" else ()
        found += _between(shipped_rows) if config["completion"] == "ship" else ()
        found += [*_QUERIES, *_between(block_gradient)] if config["completion"] == "secure_block" else ()
        found += _to_all(fold_verdict) if config["folds"] and stage == "train" else ()
    return tuple(found)


def _alone(config: Mapping[str, Any]) -> tuple[type, ...]:
    """Return what holders send that need no other to score their own rows."""
    if config["completion"] != "own_copy":
        return ()
    return tuple(alone_inputs(role) for role in HOLDERS if role == "label_holder" or config["augment"])


def _dual_messages(config: Mapping[str, Any]) -> list[type]:
    has_penalty = config["dual_weight"] > 0 or any(one > 0 for one in config["dual_weights"].values())
    if config["exchange"] == "release":
        table = _between(open_table if config["mechanism"] == "none" else released_table)
        return [*table, *(_between_two(dual_scalars) if has_penalty else ())]
    sealed = _between_two(encrypted_scalars) if has_penalty else ()
    return [
        *_between_two(column_names),
        *_between_two(public_modulus),
        *_between_two(predictions),
        *sealed,
        *_between_two(encrypted_gradient),
    ]
