"""What crosses in PrADA: always between the feature holder and a bank, which is a source or a target."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from colonnade.crypto import CipherArray
from colonnade.exchanges.public_keys import public_modulus
from colonnade.exchanges.secure_linear import LinearMessages, linear_messages
from colonnade.messages import MASKED, NOISED, PLAIN, message
from colonnade.session import RunPlan

__all__ = [
    "HOLDER",
    "MESSAGES",
    "BankMessages",
    "Chosen",
    "GroupLevels",
    "MaskedContributions",
    "ModelMark",
    "OpenedContributions",
    "bank_messages",
    "choose_messages",
]

Array = np.ndarray[Any, Any]

HOLDER = "feature_holder"


@dataclass(frozen=True)
class BankMessages:
    """The messages between the feature holder and one kind of bank."""

    bank: str
    linear: LinearMessages
    GroupNames: type[Any]
    LabelledRows: type[Any]
    Turn: type[Any]
    TurnSeen: type[Any]
    EpochEnd: type[Any]
    ClearStart: type[Any]
    ClearInputs: type[Any]
    ClearGradients: type[Any]
    ClearNoisedGradients: type[Any]


def bank_messages(bank: str, noised: bool) -> BankMessages:
    """Return the messages between the feature holder and one kind of bank; ``noised`` where gradients carry noise."""
    found = _declared(bank)
    return replace(found, linear=found.linear.noised, ClearGradients=found.ClearNoisedGradients) if noised else found


@functools.cache
def _declared(bank: str) -> BankMessages:

    @message(sender=HOLDER, receiver=bank, protection=PLAIN, step="set-up")
    class GroupNames:
        """The feature groups' names, how many numbers each gives per row, and groups with categories new to sources.

        Reveals: these names, and how many such categories a group has; not which.
        """

        names: tuple[str, ...]
        aggregate: int
        new: tuple[str, ...]

    @message(sender=bank, receiver=HOLDER, protection=PLAIN, step="set-up")
    class LabelledRows:
        """Which shared rows have a label, and how many scores a row has.

        Reveals: for which shared rows the sender has a label, and the number of classes; no label.
        """

        rows: Array
        scores: int

    @message(sender=HOLDER, receiver=bank, protection=PLAIN, step="while others learn")
    class Turn:
        """How far the run is while other banks learn. Reveals: how many steps they make, and so about how many rows."""

        step: int
        is_over: bool
        stops: bool

    @message(sender=bank, receiver=HOLDER, protection=PLAIN, step="while others learn")
    class TurnSeen:
        """That the sender has kept this step, so that a run can be taken up there. Reveals: nothing."""

        step: int

    @message(sender=bank, receiver=HOLDER, protection=PLAIN, step="end of epoch")
    class EpochEnd:
        """Whether to keep the weights of this epoch and whether to stop. Reveals: whether validation got better."""

        is_best: bool
        is_last: bool

    @message(sender=HOLDER, receiver=bank, protection=PLAIN, step="set-up, protection = none")
    class ClearStart:
        """The sender's part of the initial weights, in the clear, for research. Reveals: these numbers."""

        values: Array

    @message(sender=HOLDER, receiver=bank, protection=PLAIN, step="PrADA Alg. 4, protection = none")
    class ClearInputs:
        """What the groups give for every row, in the clear, for research. Reveals: these numbers."""

        values: Array

    @message(sender=bank, receiver=HOLDER, protection=PLAIN, step="PrADA Alg. 5, line 22, protection = none")
    class ClearGradients:
        """The gradient at the groups' numbers, in the clear, for research. Reveals: the label of every row."""

        values: Array

    @message(sender=bank, receiver=HOLDER, protection=NOISED, step="PrADA Alg. 5, line 22, protection = none")
    class ClearNoisedGradients:
        """The gradient at the groups' numbers, with noise, for research. Reveals: what NoisedGradients does."""

        values: Array

    return BankMessages(
        bank,
        linear_messages(HOLDER, bank),
        GroupNames,
        LabelledRows,
        Turn,
        TurnSeen,
        EpochEnd,
        ClearStart,
        ClearInputs,
        ClearGradients,
        ClearNoisedGradients,
    )


@message(sender="target", receiver=HOLDER, protection=PLAIN, step="end of training")
class Chosen:
    """Which model the sender will use, and a digest of its part. Reveals: whether transfer held its own."""

    model: str
    mark: str


@message(sender="target", receiver=HOLDER, protection=PLAIN, step="before rows are scored")
class ModelMark:
    """The digest of the sender's part, so that both use parts of one model. Reveals: which training it is of."""

    mark: str


@message(sender="target", receiver=HOLDER, protection=MASKED, step="explanation")
class MaskedContributions:
    """The sender's part of what each group adds to each score, behind a uniform mask. Reveals: nothing."""

    values: CipherArray


@message(sender=HOLDER, receiver="target", protection=PLAIN, step="explanation")
class OpenedContributions:
    """What each group adds to each row's score, behind the receiver's own mask.

    Reveals: for every explained row and group, the group's number times its weight, beyond their mean.
    """

    values: Array


@message(sender=HOLDER, receiver="target", protection=PLAIN, step="explanation")
class GroupLevels:
    """In which fifth of all explained rows each row lies, group by group, to colour a figure. Reveals: these levels."""

    levels: Array


def choose_messages(plan: RunPlan) -> tuple[type, ...]:
    """Return the messages that a run can send with its settings, in its stage."""
    return tuple(dict.fromkeys(_chosen(plan)))


def _chosen(plan: RunPlan) -> Iterator[type]:
    config, stage = plan.config, plan.stage
    noised, is_sealed = "marvell" in config["defence"], config["protection"] != "none"
    if stage in ("train", "pretrain"):
        yield from _learning(bank_messages("source", noised), is_sealed, trains_inputs=True)
    if stage == "pretrain":
        # The target only waits; the feature holder learns from it which rows are its own, by aligning with it.
        yield from (bank_messages("target", noised).Turn, bank_messages("target", noised).TurnSeen)
    if stage in ("train", "finetune"):
        target = bank_messages("target", noised)
        compares = config["compare"] == "vfl"
        if config["tune"] == "nothing" or compares:
            yield from _learning(target, is_sealed, trains_inputs=False)
        if config["tune"] != "nothing" or compares:
            yield from _learning(target, is_sealed, trains_inputs=True)
        yield Chosen
    if stage in ("predict", "explain"):
        target = bank_messages("target", noised)
        yield ModelMark
        yield from _scoring(target, is_sealed)
    if stage == "explain":
        yield from (MaskedContributions, OpenedContributions, GroupLevels) if is_sealed else (GroupLevels,)


def _scoring(bank: BankMessages, is_sealed: bool) -> Iterator[type]:
    if is_sealed:
        linear = bank.linear
        yield from (public_modulus(HOLDER, bank.bank), linear.SealedInputs, linear.MaskedLogits, linear.OpenedLogits)
    else:
        yield bank.ClearInputs


def _learning(bank: BankMessages, is_sealed: bool, trains_inputs: bool) -> Iterator[type]:
    yield from (bank.GroupNames, bank.LabelledRows, bank.Turn, bank.TurnSeen, bank.EpochEnd)
    yield from _scoring(bank, is_sealed)
    if not is_sealed:
        yield bank.ClearStart
        yield from (bank.ClearGradients,) if trains_inputs else ()
        return
    linear = bank.linear
    yield from (linear.OpeningShare, linear.ShareUpdate)
    yield from (linear.TrainedInputs, linear.TrainedGradients) if trains_inputs else (linear.MaskedGradient,)


def _every() -> Iterator[type]:
    for noised in (False, True):
        for bank in ("source", "target"):
            for is_sealed in (True, False):
                for trains_inputs in (True, False):
                    yield from _learning(bank_messages(bank, noised), is_sealed, trains_inputs)
    yield from (Chosen, ModelMark, MaskedContributions, OpenedContributions, GroupLevels)


MESSAGES = tuple(dict.fromkeys(_every()))
