"""What crosses in FairVFL. The names in brackets are those of the method's sheet.

Parties with rows are holders. Any of them may have sensitive columns; label holder and feature holders may have other
columns, which become codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import numpy as np
import torch

from colonnade.exchanges.group_counts import count_messages
from colonnade.exchanges.public_keys import public_modulus
from colonnade.messages import NOISED, PLAIN, Longest, message
from colonnade.methods.fairvfl.config import AGGREGATOR
from colonnade.session import RunPlan

__all__ = [
    "CODERS",
    "COUNTED",
    "HOLDERS",
    "MESSAGES",
    "Amounts",
    "TaskGradient",
    "TaskScoreGradient",
    "TaskScores",
    "adversarial_gradient",
    "attack_codes",
    "attack_result",
    "choose_messages",
    "count_request",
    "countable",
    "discriminator_gradient",
    "hides_labels",
    "local_code",
    "local_gradient",
    "mark",
    "offer",
    "protected_code",
    "protected_code_again",
    "removes",
    "trains_plain_model",
    "unified_code",
    "variant_codes",
]

HOLDERS = ("label_holder", "feature_holder", "attribute_holder")
CODERS = ("label_holder", "feature_holder")


@message(sender="label_holder", receiver=AGGREGATOR, protection=PLAIN, step="set-up")
class Amounts:
    """How much there is to do. Reveals: how many rows there are of each kind, and how many scores a row has."""

    train: int
    validation: int
    test: int
    outputs: int


@cache
def offer(sender: str) -> type[Any]:
    """Declare how a holder says what it brings."""

    @message(sender=sender, receiver=AGGREGATOR, protection=PLAIN, step="set-up")
    class Offer:
        """What the sender brings, and of which model it has a part.

        Reveals: whether it has columns, and which sensitive ones, by name.
        """

        has_columns: bool
        attributes: tuple[str, ...]
        model: str

    return Offer


@cache
def mark(receiver: str) -> type[Any]:
    """Declare by what all parts of one model know each other."""

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="end of training")
    class Mark:
        """A random name of the model. Reveals: nothing about any table."""

        name: str

    return Mark


@cache
def local_code(sender: str) -> type[Any]:
    """Declare what a holder's model makes of its columns."""

    @message(sender=sender, receiver=AGGREGATOR, protection=PLAIN, step="forward (local_repr)")
    class LocalCode:
        """The sender's code of every row of a batch, and of which rows it knows anything.

        Reveals: a learned summary of the sender's columns for every row, from which the receiver may infer column
        values it can guess the distribution of; and which rows have no value in any of them.
        """

        values: torch.Tensor
        is_there: np.ndarray[Any, Any]

    return LocalCode


@cache
def unified_code(is_noised: bool) -> type[Any]:
    """Declare the code from which the label holder predicts."""
    if is_noised:

        @message(sender=AGGREGATOR, receiver="label_holder", protection=NOISED, step="forward (unified_repr)")
        class NoisedUnifiedCode:
            """The code of all parties' columns of every row, narrow and behind noise.

            Reveals: what the task needs of them, and whatever else of them the code still carries; noise of known
            strength limits it, and the audit measures what is left of the attributes.
            """

            values: torch.Tensor

        return NoisedUnifiedCode

    @message(sender=AGGREGATOR, receiver="label_holder", protection=PLAIN, step="forward (unified_repr)")
    class UnifiedCode:
        """The code of all parties' columns of every row.

        Reveals: a learned summary of all columns, in full: a trained attacker reads attributes and columns from it.
        """

        values: torch.Tensor

    return UnifiedCode


@message(sender="label_holder", receiver=AGGREGATOR, protection=PLAIN, step="backward (task_grad)")
class TaskGradient:
    """The task's gradient at the code. Reveals: in most cases the label of every row of the batch."""

    values: torch.Tensor


@message(sender=AGGREGATOR, receiver="label_holder", protection=PLAIN, step="forward, task_cut = server")
class TaskScores:
    """The task's scores of every row. Reveals: these scores, and so the predictions."""

    values: torch.Tensor


@message(sender="label_holder", receiver=AGGREGATOR, protection=PLAIN, step="backward, task_cut = server")
class TaskScoreGradient:
    """The task's gradient at the scores. Reveals: the label of every row of the batch."""

    values: torch.Tensor


@cache
def protected_code(receiver: str, is_noised: bool) -> type[Any]:
    """Declare the protected code by which a holder's discriminator learns."""
    if is_noised:

        @message(sender=AGGREGATOR, receiver=receiver, protection=NOISED, step="adversary (protected_repr)")
        class NoisedProtectedCode:
            """A few numbers about every row, made for one attribute, behind noise.

            Reveals: evidence of that attribute, which the receiver has, and what little else so few numbers carry of
            all parties' columns; the audit measures it.
            """

            values: torch.Tensor

        return NoisedProtectedCode

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="adversary (protected_repr)")
    class ProtectedCode:
        """Numbers about every row, made for one attribute.

        Reveals: evidence of that attribute, which the receiver has, and of other columns as far as so many numbers
        carry it: the paper's contrastive step has not been seen to prevent that. The audit measures it.
        """

        values: torch.Tensor

    return ProtectedCode


@cache
def protected_code_again(receiver: str, is_noised: bool) -> type[Any]:
    """Declare the protected code after the mapper's step, from which the code learns."""
    if is_noised:

        @message(sender=AGGREGATOR, receiver=receiver, protection=NOISED, step="removal (protected_repr2)")
        class NoisedProtectedCodeAgain:
            """The protected code once more, behind new noise, after its mapper has learned.

            Reveals: the same as before, a second time.
            """

            values: torch.Tensor

        return NoisedProtectedCodeAgain

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="removal (protected_repr2)")
    class ProtectedCodeAgain:
        """The protected code once more, after its mapper has learned. Reveals: the same as before, a second time."""

        values: torch.Tensor

    return ProtectedCodeAgain


@cache
def discriminator_gradient(sender: str, is_noised: bool) -> type[Any]:
    """Declare from what a mapper learns."""
    if is_noised:

        @message(sender=sender, receiver=AGGREGATOR, protection=NOISED, step="adversary (disc_grad)")
        class NoisedDiscriminatorGradient:
            """The discriminator's gradient at the protected code, of randomised answers or behind noise.

            Reveals: the randomised answer of every row, which is the attribute's value as often as the privacy loss
            allows, or that value as far as noise lets it be read.
            """

            values: torch.Tensor

        return NoisedDiscriminatorGradient

    @message(sender=sender, receiver=AGGREGATOR, protection=PLAIN, step="adversary (disc_grad)")
    class DiscriminatorGradient:
        """The discriminator's gradient at the protected code.

        Reveals: the attribute's value of every row of the batch, to a receiver that groups directions.
        """

        values: torch.Tensor

    return DiscriminatorGradient


@cache
def adversarial_gradient(sender: str, is_noised: bool) -> type[Any]:
    """Declare from what the code learns to hide an attribute."""
    if is_noised:

        @message(sender=sender, receiver=AGGREGATOR, protection=NOISED, step="removal (adv_grad)")
        class NoisedAdversarialGradient:
            """The discriminator's gradient at the protected code, of randomised answers or behind noise, for the code.

            Reveals: the same as the one before it.
            """

            values: torch.Tensor

        return NoisedAdversarialGradient

    @message(sender=sender, receiver=AGGREGATOR, protection=PLAIN, step="removal (adv_grad)")
    class AdversarialGradient:
        """The discriminator's gradient at the protected code, for the code. Reveals: the same as the one before it."""

        values: torch.Tensor

    return AdversarialGradient


@cache
def local_gradient(receiver: str) -> type[Any]:
    """Declare from what a holder's model learns."""

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="backward (local_grad)")
    class LocalGradient:
        """The gradient at the receiver's code of every row of a batch.

        Reveals: hints at labels and attributes of the rows, mixed: both losses pull at the code.
        """

        values: torch.Tensor

    return LocalGradient


@cache
def attack_codes(receiver: str) -> type[Any]:
    """Declare what attackers of the audit are given."""

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="audit")
    class AttackCodes:
        """The code as the label holder sees it, and protected codes, of rows that are kept or held out.

        Reveals: to a party that did not have it, the whole of what the label holder can read of these rows. That is
        the purpose: the receiver tries what can be inferred.
        """

        unified: torch.Tensor
        protected: tuple[torch.Tensor, ...]

    return AttackCodes


@cache
def variant_codes(receiver: str, is_plain: bool) -> type[Any]:
    """Declare what attackers are given of a model that was trained only to be compared with."""

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="comparison")
    class VariantCodes:
        """The code of a model with other weights of removal as the label holder sees it, of the rows of an audit.

        Reveals: to a party that did not have it, the whole of what the label holder can read of these rows.
        """

        values: torch.Tensor

    @message(sender=AGGREGATOR, receiver=receiver, protection=PLAIN, step="comparison")
    class PlainCodes:
        """The code of a plain model as the label holder sees it, of the rows of an audit.

        Reveals: what all parties' columns of these rows tell about the task, and much else of them: the code is whole,
        without noise, and nothing was removed from it.
        """

        values: torch.Tensor

    return PlainCodes if is_plain else VariantCodes


@cache
def attack_result(sender: str) -> type[Any]:
    """Declare how the holder of an attribute tells what attackers read."""

    @message(sender=sender, receiver="label_holder", protection=PLAIN, step="audit")
    class AttackResult:
        """What attackers read of one attribute, as JSON. Reveals: how well each of them can read it."""

        attribute: str
        found: Annotated[str, Longest(20_000)]

    return AttackResult


@cache
def countable(sender: str) -> type[Any]:
    """Declare how a holder says by what it can count."""

    @message(sender=sender, receiver="label_holder", protection=PLAIN, step="audit")
    class Countable:
        """By which attributes the sender can count. Reveals: their names, and how many groups each has."""

        attributes: tuple[str, ...]
        groups: tuple[int, ...]

    return Countable


@cache
def count_request(receiver: str) -> type[Any]:
    """Declare how the label holder says whether it has decisions to be counted."""

    @message(sender="label_holder", receiver=receiver, protection=PLAIN, step="audit")
    class CountRequest:
        """Whether decisions are to be counted. Reveals: whether the task has two classes."""

        is_wanted: bool

    return CountRequest


COUNTED = ("feature_holder", "attribute_holder")
"""Who may have groups that are counted for the label holder."""


def counting_messages(role: str, is_noised: bool) -> tuple[type[Any], ...]:
    """Return what crosses where the label holder's decisions are counted by a holder's groups."""
    counts = count_messages("label_holder", role, is_noised=is_noised)
    own = (countable(role), count_request(role), attack_result(role))
    return *own, public_modulus("label_holder", role), counts.SealedColumns, counts.CountsByGroup


def _adversary(holder: str, is_noised: bool, hides_labels: bool) -> tuple[type[Any], ...]:
    return (
        protected_code(holder, is_noised),
        protected_code_again(holder, is_noised),
        discriminator_gradient(holder, hides_labels),
        adversarial_gradient(holder, hides_labels),
    )


MESSAGES: tuple[type[Any], ...] = (
    Amounts,
    TaskGradient,
    TaskScores,
    TaskScoreGradient,
    unified_code(False),
    unified_code(True),
    *(declared(holder) for holder in HOLDERS for declared in (offer, mark, attack_codes)),
    *(variant_codes(holder, is_plain) for holder in COUNTED for is_plain in (False, True)),
    *(declared(coder) for coder in CODERS for declared in (local_code, local_gradient)),
    *(one for holder in HOLDERS for noised in (False, True) for one in _adversary(holder, noised, noised)),
    *dict.fromkeys(one for role in COUNTED for noised in (False, True) for one in counting_messages(role, noised)),
)


def hides_labels(config: Mapping[str, Any]) -> bool:
    """Tell whether gradients of discriminators are of randomised answers, or behind noise."""
    return bool(config["label_epsilon"]) or config["gradient_noise"] > 0


def removes(config: Mapping[str, Any]) -> bool:
    """Tell whether anything is removed at all."""
    return any(config["removal_weights"].get(one, config["removal_weight"]) for one in config["attributes"])


def trains_plain_model(stage: str, config: Mapping[str, Any]) -> bool:
    """Tell whether a stage trains a plain model to compare with."""
    if stage == "sweep":
        return not all(config["sweep"])
    return stage == "audit" and config["audit_plain"] and removes(config)


def choose_messages(plan: RunPlan) -> tuple[type[Any], ...]:
    """Return what can cross at all in a stage, with a run's settings."""
    config = plan.config
    roles = [role for role in HOLDERS if plan.roles.get(role)]
    coders = [role for role in CODERS if plan.roles.get(role)]
    found: list[type[Any]] = [Amounts, *map(local_code, coders), *map(offer, roles)]
    is_noised = config["removal"] == "robust" and config["code_noise"] > 0
    found += [TaskScores] if config["task_cut"] == "server" else [unified_code(is_noised)]
    counted = [role for role in COUNTED if plan.roles.get(role)]
    if plan.stage == "audit":
        found += map(attack_codes, roles)
        for role in counted:
            found += counting_messages(role, bool(config["count_epsilon"]))
    if plan.stage == "sweep":
        found += [variant_codes(role, False) for role in counted if any(config["sweep"])]
        found += [one(role) for role in counted for one in (countable, attack_result)]
    trains_plain = trains_plain_model(plan.stage, config)
    if trains_plain:
        found += [variant_codes(role, True) for role in counted]
        found += [unified_code(False)] if is_noised and config["task_cut"] != "server" else []
    if plan.stage in ("train", "sweep") or trains_plain:
        found += [TaskScoreGradient if config["task_cut"] == "server" else TaskGradient]
        found += [*map(mark, roles), *map(local_gradient, coders)]
        if removes(config) and plan.stage != "audit":
            noised = config["protected_noise"] > 0
            for holder in roles:
                first, again, learned, removed = _adversary(holder, noised, hides_labels(config))
                found += [first, learned]
                found += [again, removed] if config["mapper_step"] != "merged" else []
    return tuple(found)
