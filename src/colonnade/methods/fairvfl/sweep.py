"""Train with several weights of removal, and show what removing attributes costs the task: all roles side by side.

Nothing is kept but the numbers. After each training the holders of attributes attack the code as the label holder sees
it, and tell how well they read it; decisions are not counted by group here, because counts of several models over the
same rows tell more about rows than those of one.
"""

from __future__ import annotations

from typing import Any

import torch

from colonnade.errors import ConfigError
from colonnade.methods.fairvfl.aggregator import send_in_use
from colonnade.methods.fairvfl.audit import (
    Audited,
    attack_attribute,
    checked_codes,
    send_result,
    told_countable,
    told_results,
)
from colonnade.methods.fairvfl.config import AGGREGATOR, FairVFL
from colonnade.methods.fairvfl.findings import trade_off_finding
from colonnade.methods.fairvfl.messages import COUNTED, attack_codes, countable
from colonnade.methods.fairvfl.sides import chunks, own_attributes
from colonnade.methods.fairvfl.train import (
    AggregatorTraining,
    HolderTraining,
    constant_quality,
    label_side,
    quality_of,
)
from colonnade.session import Holding, Result, Session

__all__ = ["aggregator", "attribute_holder", "feature_holder", "label_holder"]

# A sweep compares many models, and needs no more than one network each to do so.
_ATTACKERS = 1


def label_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party that learns how good the task is with each weight."""
    audited, having = _begin(session, holding, config), dict[str, tuple[str, ...]]()
    for peer in session.all_channels:
        if peer.peer_role in COUNTED:
            having[peer.peer] = told_countable(peer, config, having).attributes
    points: list[dict[str, Any]] = []
    for factor in config.sweep:
        variant = config.scaled(factor)
        holder, task = label_side(session, holding, variant)
        holder.train()
        if holder.code is not None:
            holder.code.send_all(audited.rows)
        logits, codes = holder.received(audited.rows)
        read = _attack(session, holding, variant, audited, codes)
        read |= told_results(session, variant, having)
        test = audited.divide(logits.double().numpy())[2]
        name, value = quality_of(task, torch.from_numpy(test), audited.test)
        constant = constant_quality(task, audited.test)
        points.append({"factor": factor, "quality": value, "constant": constant, "measure": name, "read": read})
        session.record(factor=factor, **{name: value})
    return Result(findings=(trade_off_finding(config, points),))


def feature_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party with columns, and sensitive ones if it has any."""
    return _holder(session, holding, config)


def attribute_holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play a party with sensitive columns."""
    return _holder(session, holding, config)


def aggregator(session: Session, holding: Holding, config: FairVFL) -> Result:
    """Play the party that makes one code of all codes, once for each weight."""
    session.checkpoints = None
    for factor in config.sweep:
        variant = config.scaled(factor)
        training = AggregatorTraining(session, variant)
        training.play()
        seen = []
        rows = min(training.amounts.train, config.audit_rows) + training.amounts.validation + training.amounts.test
        for part in chunks(rows):
            clear, noised = training.side.fusion.codes_in_use(part.stop - part.start)
            task = training.side.task
            send_in_use(session.channel("label_holder"), variant, task, clear, noised)
            with torch.no_grad():
                seen.append(noised if task is None else task(clear))
        for channel in session.all_channels:
            if training.offers[channel.peer].attributes and channel.peer_role != "label_holder":
                channel.send(attack_codes(channel.peer_role)(torch.cat(seen), ()))
    return Result()


def _begin(session: Session, holding: Holding, config: FairVFL) -> Audited:
    if not config.removed:
        raise ConfigError("The stage sweep varies the weights of removal. Name attributes whose weight is above 0.")
    # Several trainings after each other have no common checkpoint: an interrupted sweep begins anew.
    session.checkpoints = None
    return Audited.of(holding, config)


def _holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    audited, peer = _begin(session, holding, config), session.channel("label_holder")
    names = tuple(one.name for one in own_attributes(session, holding, config))
    peer.send(countable(session.role)(names, (1,) * len(names)))
    for factor in config.sweep:
        variant = config.scaled(factor)
        holder = HolderTraining(session, holding, variant)
        holder.train()
        if holder.code is not None:
            holder.code.send_all(audited.rows)
        if not names:
            continue
        received = session.channel(AGGREGATOR).receive(attack_codes(session.role)).unified
        for name, found in _attack(session, holding, variant, audited, received).items():
            send_result(peer, name, found)
    return Result()


def _attack(
    session: Session, holding: Holding, config: FairVFL, audited: Audited, codes: torch.Tensor
) -> dict[str, dict[str, Any]]:
    """Return what a strong attacker reads of this party's attributes."""
    values, seed = checked_codes(session, codes, len(audited.rows)), session.own_seed("attackers")
    return {
        one.name: attack_attribute(one, values, audited, seed, kinds=("strong",), members=_ATTACKERS)
        for one in own_attributes(session, holding, config)
    }
