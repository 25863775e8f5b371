"""Train with several weights of removal, and show what removing attributes costs the task: all roles side by side.

Weight 0 is the plain model. Decisions are not counted by group here, because counts of several models over the same
rows tell more about rows than those of one.
"""

from __future__ import annotations

from typing import Any

from colonnade.errors import ConfigError
from colonnade.methods.fairvfl.attacks import Audited, told_countable
from colonnade.methods.fairvfl.config import FairVFL
from colonnade.methods.fairvfl.findings import trade_off_finding
from colonnade.methods.fairvfl.messages import COUNTED, Countable
from colonnade.methods.fairvfl.sides import own_attributes
from colonnade.methods.fairvfl.variants import play_variant_aggregator, play_variant_holder, play_variant_label_holder
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
        found = play_variant_label_holder(session, holding, config.scaled(factor), audited, having, members=_ATTACKERS)
        points.append({"factor": factor, **vars(found)})
        if found.quality is not None:
            session.record(factor=factor, **{found.measure: found.quality})
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
        play_variant_aggregator(session, config.scaled(factor))
    return Result()


def _begin(session: Session, holding: Holding, config: FairVFL) -> Audited:
    if not config.removed:
        raise ConfigError("The stage sweep varies the weights of removal. Name attributes whose weight is above 0.")
    # Several trainings after each other have no common checkpoint: an interrupted sweep begins anew.
    session.checkpoints = None
    return Audited.of(holding, config)


def _holder(session: Session, holding: Holding, config: FairVFL) -> Result:
    audited = _begin(session, holding, config)
    names = tuple(one.name for one in own_attributes(session, holding, config))
    session.channel("label_holder").send(Countable(names, (1,) * len(names)))
    for factor in config.sweep:
        play_variant_holder(session, holding, config.scaled(factor), audited, members=_ATTACKERS)
    return Result()
