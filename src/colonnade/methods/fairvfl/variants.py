"""Train a model with other weights of removal, or a plain one, only to see what can be read from its code.

Nothing is kept of it but the numbers. The holders of attributes attack the code as the label holder sees it, with
strong networks, and tell how well they read it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from colonnade.methods.fairvfl.aggregator import send_in_use
from colonnade.methods.fairvfl.attacks import Audited, attack_attribute, checked_codes, send_result, told_results
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.messages import PlainCodes, VariantCodes
from colonnade.methods.fairvfl.sides import chunks, own_attributes
from colonnade.methods.fairvfl.train import (
    AggregatorTraining,
    HolderTraining,
    constant_quality,
    label_side,
    quality_of,
)
from colonnade.session import Holding, Session

__all__ = ["Variant", "play_variant_aggregator", "play_variant_holder", "play_variant_label_holder"]


@dataclass(frozen=True)
class Variant:
    """What the label holder learns of a model that is not kept."""

    measure: str
    quality: float | None
    constant: float
    """The measure of one answer for all rows."""
    read: dict[str, dict[str, Any]]
    """What strong attackers read, by attribute."""


def play_variant_label_holder(
    session: Session,
    holding: Holding,
    variant: FairVFL,
    audited: Audited,
    having: dict[str, tuple[str, ...]],
    *,
    members: int,
) -> Variant:
    """Play the party that learns how good the task is, and what is read; ``having`` says who has which attributes."""
    holder, task = label_side(session, holding, variant)
    holder.train()
    if holder.code is not None:
        holder.code.send_all(audited.rows)
    logits, codes = holder.received(audited.rows)
    read = _attack(session, holding, variant, audited, codes, members) | told_results(session, variant, having)
    test = torch.from_numpy(audited.divide(logits.double().numpy())[2])
    measure, quality = quality_of(task, test, audited.test)
    return Variant(measure, quality, constant_quality(task, audited.test), read)


def play_variant_holder(
    session: Session, holding: Holding, variant: FairVFL, audited: Audited, *, members: int
) -> None:
    """Play a party with columns, or with attributes."""
    holder = HolderTraining(session, holding, variant)
    holder.train()
    if holder.code is not None:
        holder.code.send_all(audited.rows)
    if not own_attributes(session, holding, variant):
        return
    message = _message(variant)
    codes = session.channel(AGGREGATOR).receive(message, rows=len(audited.rows), width=None).values
    for name, found in _attack(session, holding, variant, audited, codes, members).items():
        send_result(session.channel("label_holder"), name, found)


def play_variant_aggregator(session: Session, variant: FairVFL) -> None:
    """Play the party that makes one code of all codes, and hands it out to those who have attributes."""
    training = AggregatorTraining(session, variant)
    training.play()
    seen = []
    rows = min(training.amounts.train, variant.audit_rows) + training.amounts.validation + training.amounts.test
    for part in chunks(rows):
        clear, noised = training.side.fusion.codes_in_use(part.stop - part.start)
        task = training.side.task
        send_in_use(session.channel("label_holder"), training.side.code_message, task, clear, noised)
        with torch.no_grad():
            seen.append(noised if task is None else task(clear))
    for channel in session.all_channels:
        if training.offers[channel.peer].attributes and channel.peer_role != "label_holder":
            channel.send(_message(variant)(torch.cat(seen)))


def _message(variant: FairVFL) -> type[PlainCodes | VariantCodes]:
    return PlainCodes if variant.is_plain else VariantCodes


def _attack(
    session: Session, holding: Holding, variant: FairVFL, audited: Audited, codes: torch.Tensor, members: int
) -> dict[str, dict[str, Any]]:
    """Return what a strong attacker reads of this party's attributes."""
    values, seed = checked_codes(session, codes), session.own_seed("attackers")
    return {
        one.name: attack_attribute(one, values, audited, seed, kinds=("strong",), members=members)
        for one in own_attributes(session, holding, variant)
    }
