"""Score rows that all holders know, and rows that only one of them knows."""

from __future__ import annotations

import numpy as np
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.answers import described, told_labels
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.exchanges.masked_sums import Collector, Contributor
from colonnade.methods.mpdl.asking import Asking
from colonnade.methods.mpdl.central import CollaboratorSide, HolderSide, asked_parts, receive_scores
from colonnade.methods.mpdl.completion import Completion
from colonnade.methods.mpdl.config import COLLABORATOR, COMPLETED, JOINT, MPDL
from colonnade.methods.mpdl.dual import Others
from colonnade.methods.mpdl.generators import empty_generator
from colonnade.methods.mpdl.messages import AllowedRows, AloneScores, Classes, Logits, ModelMark, RowsAlone
from colonnade.methods.mpdl.rows import Places, Scale, cell_release
from colonnade.methods.mpdl.units import UnitSpace
from colonnade.nn import tensors_under
from colonnade.nn.regression import scores_of
from colonnade.session import Holding, ModelPart, Result, Scores, Session

__all__ = ["collaborator", "feature_holder", "label_holder"]


def feature_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play a party that brings columns of new rows, and gets scores of those that only it knows."""
    part, peer, helper = own_part(session, holding), session.channel("label_holder"), session.channel(COLLABORATOR)
    mark = _told_mark(session, part)
    if mark.shared != len(holding.aligned):
        raise WrongContent(f"'{peer.peer}' announces other shared rows than were found together.")
    completion = _completion(session, holding, config, part)
    sides = _sides(session, config, part, completion, Contributor.agree(session))
    chosen = part.document["chosen"]
    sides[chosen].contribute(completion.whole_with(holding.aligned.positions, chosen))
    rest = holding.aligned.rest
    peer.send(RowsAlone(len(rest)))
    for other in session.channels("feature_holder"):
        # Others are asked to multiply, where they must; the label holder lends its labels' model in any case.
        other.send(RowsAlone(0 if config.completes_alone(session.role) else len(rest)))
    others = {one.peer: one.receive(RowsAlone).count for one in session.channels("feature_holder")}
    counts = {peer.peer: mark.own, session.party: len(rest)} | others
    # The label holder goes no further where it does not allow so many rows.
    about = told_labels(peer.receive(Classes).labels, peer, int(part.document["outputs"])) if len(rest) else None
    _score_alone(session, config, completion, sides, rest, counts)
    if about is None:
        return Result()
    outputs = int(part.document["outputs"])
    logits = helper.receive(AloneScores, rows=len(rest), outputs=outputs).values.double().numpy()
    values = scores_of(about.task, logits)
    scores = scores_in_terms_of(about, values, np.arange(len(rest)))
    known = (f"{session.party} only",) * len(rest)
    return Result(
        scores=Scores(scores.task, scores.rows, scores.values, classes=scores.classes, positions=rest, known_to=known)
    )


def label_holder(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that gets scores of all its rows."""
    part = own_part(session, holding)
    positions, rest = holding.aligned.positions, holding.aligned.rest
    for peer in session.all_channels:
        is_asked = peer.peer_role == COLLABORATOR or not config.completes_alone(session.role)
        own = len(rest) if is_asked else 0
        peer.send(ModelMark(part.document["mark"], part.document["chosen"], len(positions), own))
    completion = _completion(session, holding, config, part)
    sides = _sides(session, config, part, completion, Contributor.agree(session))
    encoder, outputs = LabelEncoder.from_json(part.document["label_encoder"]), int(part.document["outputs"])
    chosen = part.document["chosen"]
    sides[chosen].contribute(completion.whole_with(positions, chosen))
    shared = receive_scores(sides[chosen], outputs, len(positions))
    askers = session.channels("feature_holder")
    counts = {session.party: len(rest)} | {peer.peer: peer.receive(RowsAlone).count for peer in askers}
    # The collaborator scores what was allowed here, whatever a feature holder may tell it.
    session.channel(COLLABORATOR).send(AllowedRows(tuple(counts[peer.peer] for peer in askers)))
    for peer in askers:
        if counts[peer.peer]:
            peer.send(Classes(described(encoder, with_scale=True)))
    _score_alone(session, config, completion, sides, rest, counts)
    parts = None if config.completes_alone(session.role) else asked_parts(len(rest))
    logits = torch.cat([shared, receive_scores(sides[COMPLETED], outputs, len(rest), parts)]).numpy()
    values = scores_of(encoder.task, logits) if len(logits) else np.empty(0)
    rows = np.concatenate([positions, rest])
    scores = scores_in_terms_of(encoder, values, np.arange(len(rows)))
    known = ("all parties",) * len(positions) + (f"{session.party} only",) * len(rest)
    return Result(
        scores=Scores(scores.task, scores.rows, scores.values, classes=scores.classes, positions=rows, known_to=known)
    )


def collaborator(session: Session, holding: Holding, config: MPDL) -> Result:
    """Play the party that has the upper layers."""
    part, label_holder = own_part(session, holding), session.channel("label_holder")
    mark = _told_mark(session, part)
    chosen, collector = part.document["chosen"], Collector(session)
    sides = {model: _upper(session, config, part, model, collector) for model in (JOINT, COMPLETED)}
    sides[chosen].send_scores(mark.shared)
    askers = session.channels("feature_holder")
    allowed = label_holder.receive(AllowedRows, askers=len(askers)).counts
    counts = {label_holder.peer: mark.own} | {peer.peer: count for peer, count in zip(askers, allowed, strict=True)}
    side = sides[COMPLETED]
    for peer in session.all_channels:
        count = counts[peer.peer]
        is_alone = config.completes_alone(peer.peer_role)
        found = list(side.score_alone(peer, count) if is_alone else side.score_together(count))
        if peer == label_holder:
            for logits in found:
                label_holder.send(Logits(logits))
        elif found:
            peer.send(AloneScores(torch.cat(found)))
    return Result()


def _completion(session: Session, holding: Holding, config: MPDL, part: ModelPart) -> Completion:
    """Return a holder's new rows as its blocks take them."""
    space = UnitSpace.from_json(part.document["space"])
    units = space.transform(holding.table, np.arange(holding.table.rows))
    if config.dp_scope == "all":
        # By the table: the same noise on two tables would cancel in their difference.
        purpose = f"new cells/{holding.table.digest()}"
        units = cell_release(session, space, config, with_common=True).perturb(units, purpose)
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


def _score_alone(
    session: Session,
    config: MPDL,
    completion: Completion,
    sides: dict[str, HolderSide],
    rest: Places,
    counts: dict[str, int],
) -> None:
    """Give the collaborator rows that one holder knows, each holder's in turn; the others multiply where they must."""
    role_of = session.plan.role_of
    is_asked = any(count and not config.completes_alone(role_of(party)) for party, count in counts.items())
    side = sides[COMPLETED]
    asking = Asking.prepare(session, config, completion, side.shape[0]) if is_asked else None
    for party in (one for one in session.plan.parties if one in counts):
        if config.completes_alone(role_of(party)):
            if party == session.party:
                side.contribute_alone(completion.alone(rest, COMPLETED))
            continue
        for chunk in asked_parts(counts[party]):
            if asking is not None and party == session.party:
                words = asking.ask(completion.generated(rest[chunk]).double(), f"rows from {chunk.start}")
                side.contribute(completion.whole_with(rest[chunk], COMPLETED), words)
            elif asking is not None:
                side.contribute_words(asking.answer(party, side, chunk.stop - chunk.start))


def _upper(session: Session, config: MPDL, part: ModelPart, model: str, collector: Collector) -> CollaboratorSide:
    hidden, outputs = int(part.document["hidden"]), int(part.document["outputs"])
    side = CollaboratorSide(session, config, hidden, outputs, collector, 0)
    side.learner.load_weights(tensors_under(f"{model}/", part.tensors))
    return side


def _told_mark(session: Session, part: ModelPart) -> ModelMark:
    peer = session.channel("label_holder")
    found = peer.receive(ModelMark)
    if (found.mark, found.model) != (part.document["mark"], part.document["chosen"]):
        raise ConfigError(
            f"'{peer.peer}' has its part of the model from another training than '{session.party}'. All must use the "
            "run folders of one training."
        )
    return found
