"""Score rows that all holders know, and rows that only one of them knows."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, TableError, WrongContent
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.exchanges.masked_sums import Collector, Contributor
from colonnade.methods.mpdl.central import CollaboratorSide, HolderSide, receive_scores
from colonnade.methods.mpdl.choice import SHARED
from colonnade.methods.mpdl.completion import Completion
from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, JOINT, MPDL
from colonnade.methods.mpdl.dual import Others
from colonnade.methods.mpdl.generators import empty_generator
from colonnade.methods.mpdl.messages import AloneScores, Classes, RowsAlone, model_mark
from colonnade.methods.mpdl.rows import Scale, cell_release
from colonnade.methods.mpdl.units import UnitSpace
from colonnade.nn import tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Channel, Holding, ModelPart, Result, Scores, Session

__all__ = ["collaborator", "feature_holder", "label_holder"]

_MOST_ROWS = 2**31


def feature_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play a party that brings columns of new rows, and gets scores of those that only it knows."""
    part, peer, helper = own_part(session, holding), session.channel("label_holder"), session.channel(COLLABORATOR)
    mark = _told_mark(session, part)
    if mark.shared != len(holding.aligned):
        raise WrongContent(f"'{peer.peer}' announces other shared rows than were found together.")
    completion = _completion(session, holding, config, part)
    sides = _sides(session, config, part, completion, Contributor.agree(session))
    shared, alone = part.document["chosen"][SHARED], part.document["chosen"]["alone"][session.party]
    sides[shared].contribute(completion.whole_with(holding.aligned.positions, shared))
    rest = holding.aligned.rest
    helper.send(RowsAlone(len(rest)))
    about = _told_labels(peer)
    sides[alone].contribute_alone(completion.alone(rest, alone))
    outputs = int(part.document["outputs"])
    logits = np.empty((0, outputs))
    if len(rest):
        logits = helper.receive(AloneScores, values=(len(rest), outputs)).values.double().numpy()
    values = scores_of(about.task, logits) if len(logits) else np.empty(0)
    scores = scores_in_terms_of(about, values, np.arange(len(rest)))
    known = (f"'{session.party}' only",) * len(rest)
    return Result(
        scores=Scores(scores.task, scores.rows, scores.values, classes=scores.classes, positions=rest, known_to=known)
    )


def label_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that gets scores of all its rows."""
    part = own_part(session, holding)
    positions, rest = holding.aligned.positions, holding.aligned.rest
    for peer in session.all_channels:
        peer.send(model_mark(peer.peer_role)(part.document["mark"], len(positions), len(rest)))
    completion = _completion(session, holding, config, part)
    sides = _sides(session, config, part, completion, Contributor.agree(session))
    encoder, outputs = LabelEncoder.from_json(part.document["label_encoder"]), int(part.document["outputs"])
    for peer in session.channels("feature_holder"):
        peer.send(Classes(json.dumps(encoder.to_json())))
    chosen, alone = part.document["chosen"][SHARED], part.document["chosen"]["alone"][session.party]
    sides[chosen].contribute(completion.whole_with(positions, chosen))
    shared = receive_scores(sides[chosen], outputs, len(positions))
    sides[alone].contribute_alone(completion.alone(rest, alone))
    logits = torch.cat([shared, receive_scores(sides[alone], outputs, len(rest))]).numpy()
    values = scores_of(encoder.task, logits) if len(logits) else np.empty(0)
    rows = np.concatenate([positions, rest])
    scores = scores_in_terms_of(encoder, values, np.arange(len(rows)))
    known = ("all parties",) * len(positions) + (f"'{session.party}' only",) * len(rest)
    return Result(
        scores=Scores(scores.task, scores.rows, scores.values, classes=scores.classes, positions=rows, known_to=known)
    )


def collaborator(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that has the upper layers."""
    part, label_holder = own_part(session, holding), session.channel("label_holder")
    mark = _told_mark(session, part)
    chosen, collector = part.document["chosen"], Collector(session)
    sides = {model: _upper(session, config, part, model, collector) for model in (JOINT, COMPLETED)}
    sides[chosen[SHARED]].send_scores(mark.shared)
    sides[chosen["alone"][label_holder.peer]].send_scores_alone(label_holder, mark.own)
    for peer in session.channels("feature_holder"):
        count = _checked_count(peer.receive(RowsAlone).count, peer.peer)
        found = list(sides[chosen["alone"][peer.peer]].score_alone(peer, count))
        if found:
            peer.send(AloneScores(torch.cat(found)))
    return Result()


def _completion(session: Session, holding: Holding, config: MPDL, part: ModelPart) -> Completion:
    """Return a holder's new rows as its blocks take them."""
    space = UnitSpace.from_json(part.document["space"])
    units = space.transform(holding.table, np.arange(holding.table.rows))
    if config.dp_scope == "all":
        units = cell_release(session, space, config, with_common=True).perturb(units, "new cells")
    scale = Scale(part.tensors["scale/mean"], part.tensors["scale/spread"])
    peers = [channel.peer for channel in session.all_channels if channel.peer_role != COLLABORATOR]
    others = Others(tuple(peers), tuple(tuple(names) for names in part.document["others"]), None)
    generator = empty_generator(config, space.width, others.width)
    generator.load(tensors_under("generator/", part.tensors))
    completion = Completion(session, config, space, torch.from_numpy(units), scale, others, generator)
    completion.generated_scale = Scale(part.tensors["generated/mean"], part.tensors["generated/spread"])
    return completion


def _sides(
    session: Session, config: MPDL, part: ModelPart, completion: Completion, contributor: Contributor
) -> dict[str, HolderSide]:
    """Return a holder's blocks of both models."""
    sides = {}
    for model in (JOINT, COMPLETED):
        nothing = completion.whole_with(np.empty(0, np.int64), model)
        side = sides[model] = HolderSide(session, config, nothing, int(part.document["hidden"]), contributor, 0)
        side.learner.load_weights(tensors_under(f"{model}/", part.tensors))
    return sides


def _upper(session: Session, config: MPDL, part: ModelPart, model: str, collector: Collector) -> CollaboratorSide:
    hidden, outputs = int(part.document["hidden"]), int(part.document["outputs"])
    side = CollaboratorSide(session, config, hidden, outputs, collector, 0)
    side.learner.load_weights(tensors_under(f"{model}/", part.tensors))
    return side


def _told_mark(session: Session, part: ModelPart) -> Any:
    peer = session.channel("label_holder")
    found = peer.receive(model_mark(session.role))
    if found.mark != part.document["mark"]:
        raise ConfigError(
            f"'{peer.peer}' has its part of the model from another training than '{session.party}'. All must use the "
            "run folders of one training."
        )
    _checked_count(found.shared, peer.peer)
    _checked_count(found.own, peer.peer)
    return found


def _checked_count(count: int, peer: str) -> int:
    if not 0 <= count <= _MOST_ROWS:
        raise WrongContent(f"'{peer}' announces {count} rows.")
    return count


def _told_labels(peer: Channel) -> LabelEncoder:
    """Read what the label holder says about its labels, which may be anything."""
    try:
        return LabelEncoder.from_json(json.loads(peer.receive(Classes).labels))
    except (ValueError, KeyError, TypeError, RecursionError, TableError):
        raise WrongContent(f"'{peer.peer}' describes its labels in a way no version of colonnade does.") from None
