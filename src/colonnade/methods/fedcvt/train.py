"""Train FedCVT and what it is compared with: both roles, one model after the other."""

from __future__ import annotations

import dataclasses
import secrets
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import ConfigError, did_you_mean
from colonnade.exchanges.course import Course
from colonnade.exchanges.epochs import EpochVerdict
from colonnade.exchanges.holdings import first_seeds, scores_in_terms_of
from colonnade.exchanges.labels import OwnLabels, check_scores, own_labels
from colonnade.methods.fedcvt.choice import Ways, budget_finding, choose, local_ways
from colonnade.methods.fedcvt.config import LOCAL, SCORES_ALONE, FedCVT
from colonnade.methods.fedcvt.guards import check_shared_rows
from colonnade.methods.fedcvt.messages import Choice, OwnRows, Schedule
from colonnade.methods.fedcvt.open_cut import OpenLabelSide, OpenPartnerSide, classes_to_hide
from colonnade.methods.fedcvt.rows import Batches, OwnTable, batch_rows, own_table, steps_of
from colonnade.methods.fedcvt.sealed_cut import SealedKeys, SealedLabelSide, SealedPartnerSide
from colonnade.metrics import area_under_roc
from colonnade.nn import row_losses
from colonnade.privacy import LeakMeter, new_key
from colonnade.session import Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "label_holder"]

Places = npt.NDArray[np.int64]


def feature_holder(session: Session, holding: Holding, config: FedCVT) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    _check_images(session, config)
    table = own_table(session, holding, config)
    peer.send(OwnRows(len(table.own)))
    schedule = peer.receive(Schedule)
    check_scores(peer, config.task, schedule.outputs)
    keys = SealedKeys.exchange(session, config) if config.is_sealed and config.joint_candidates else None
    shared, own = _shared_batches(session, config, table), _own_batches(session, config, table)
    check_shared_rows(session, config, shared, len(table.anchors), schedule.outputs, len(session.plan.parties))
    course = Course(session)
    session.expect_steps(schedule.steps * config.epochs * len(config.joint_candidates))
    sides: dict[str, OpenPartnerSide | SealedPartnerSide] = {}
    for name in config.joint_candidates:
        side = sides[name] = _partner_side(session, holding, config, name, table, schedule.outputs, keys)
        if course.is_done(name):
            course.restore(name, side)
            continue
        kept, epochs = course.begin(name, side, schedule.steps, config)
        while not epochs.is_over:
            for step in range(epochs.steps_done(session), schedule.steps):
                session.next_step()
                side.step(shared.at(epochs.epoch, step), own.at(epochs.epoch, step), epochs.epoch)
                epochs.keep_between_epochs(session, kept)
            side.validate()
            epochs.end_epoch(session, kept, peer.receive(EpochVerdict))
        course.end(name, side)
    for side in sides.values():
        side.finish()
    alone = {"", *SCORES_ALONE} & {"", *config.candidates}
    chosen = peer.receive(Choice, candidates=config.candidates, candidates_alone=alone)
    parts = {name: side.part() for name, side in sides.items()}
    document = _document(session, config, table, holding) | {
        "chosen": {"shared": chosen.shared, "alone": chosen.alone},
        "outputs": schedule.outputs,
        "parts": {name: own for name, (_, own) in parts.items()},
        "mark": chosen.mark,
        # Of the noise on codes that are scored later; it stays with this part.
        "noise_key": new_key().hex(),
    }
    tensors = {f"{name}/{key}": value for name, (found, _) in parts.items() for key, value in found.items()}
    return Result(ModelPart(tensors, document), findings=budget_finding(session, config, sides))


def label_holder(session: Session, holding: Holding, config: FedCVT) -> Result:
    """Play the party that brings the labels."""
    peers = session.channels("feature_holder")
    _check_images(session, config)
    table = own_table(session, holding, config)
    labels = own_labels(
        session,
        holding,
        config.task,
        config.precision,
        np.concatenate([table.train, table.own]),
        np.concatenate([table.validation, table.test]),
    )
    own_rows = [peer.receive(OwnRows).count for peer in peers]
    shared, own = _shared_batches(session, config, table), _own_batches(session, config, table)
    check_shared_rows(session, config, shared, len(table.anchors), labels.outputs, 1 + len(peers))
    steps = steps_of(config, len(table.train), [len(table.own), *own_rows])
    for peer in peers:
        peer.send(Schedule(steps, labels.outputs))
    joint = config.joint_candidates if peers else ()
    keys = SealedKeys.exchange(session, config) if config.is_sealed and joint else None
    course = Course(session)
    session.expect_steps(steps * config.epochs * len(joint))
    sides: dict[str, OpenLabelSide | SealedLabelSide] = {}
    # Every candidate releases gradients of the same rows, so that what they give away adds up.
    meters = [_meter(labels) for _ in peers] if config.defence == "marvell" else []
    for name in joint:
        side = sides[name] = _label_side(session, holding, config, name, table, labels, keys, meters)
        if course.is_done(name):
            course.restore(name, side)
            continue
        kept, epochs = course.begin(name, side, steps, config)
        while not epochs.is_over:
            for step in range(epochs.steps_done(session), steps):
                session.next_step()
                counts = [batch_rows(count, config.own_batch_size, step) for count in own_rows]
                epochs.loss_so_far += side.step(
                    shared.at(epochs.epoch, step), own.at(epochs.epoch, step), counts, epochs.epoch
                )
                epochs.keep_between_epochs(session, kept)
            outputs = side.validate()
            verdict = epochs.judge(
                session,
                epochs.loss_so_far / steps,
                _loss(labels, outputs, table),
                phase=name,
                **side.watch.end_epoch(epochs.epoch),
            )
            for peer in peers:
                peer.send(verdict)
            epochs.end_epoch(session, kept, verdict)
        course.end(name, side)
    ways: dict[str, Ways] = {}
    for name, side in sides.items():
        for situation, found in side.finish().items():
            ways.setdefault(situation, {}).update({way: (name, *outputs) for way, outputs in found.items()})
    local = None
    if LOCAL in config.candidates or not joint:
        local, scored = local_ways(session, holding, config, table, labels, steps)
        for situation in ("shared", session.party):
            ways.setdefault(situation, {})[LOCAL] = (LOCAL, *scored)
    choice = choose(config, table, labels, ways, sides)
    mark = secrets.token_hex(8)
    for peer in peers:
        alone = choice.ways.get(peer.peer)
        peer.send(Choice(choice.ways["shared"].model, "" if alone is None else alone.model, mark))
    parts = {name: side.part() for name, side in sides.items()}
    tensors = {f"{name}/{key}": value for name, (found, _) in parts.items() for key, value in found.items()}
    if local is not None:
        tensors |= {f"{LOCAL}/{key}": value for key, value in local.items()}
    document = _document(session, config, table, holding) | {
        "label_encoder": labels.encoder.to_json(),
        "chosen": {situation: dataclasses.asdict(way) for situation, way in choice.ways.items()},
        "outputs": labels.outputs,
        "parties": [session.party, *(peer.peer for peer in peers)],
        "parts": {name: own for name, (_, own) in parts.items()},
        "mark": mark,
    }
    test = holding.split.test
    truth = labels.values[table.test]
    scores = scores_in_terms_of(labels.encoder, choice.test, test, truth)
    last = sides[joint[-1]] if joint else None
    protection = last.protection() if isinstance(last, OpenLabelSide) else ()
    return Result(ModelPart(tensors, document), scores, (*choice.findings, *protection))


def _shared_batches(session: Session, config: FedCVT, table: OwnTable) -> Batches:
    return Batches(table.train, config.batch_size, lambda epoch: session.seed("batches", epoch))


def _own_batches(session: Session, config: FedCVT, table: OwnTable) -> Batches:
    seed = first_seeds(session, config.secret_start)
    return Batches(table.own, config.own_batch_size, lambda epoch: seed("own batches", epoch))


def _partner_side(
    session: Session,
    holding: Holding,
    config: FedCVT,
    name: str,
    table: OwnTable,
    outputs: int,
    keys: SealedKeys | None,
) -> OpenPartnerSide | SealedPartnerSide:
    variant = config.variant(name)
    if keys is not None:
        return SealedPartnerSide(session, config, variant, table, outputs, keys, holding.module)
    return OpenPartnerSide(session, config, variant, table, holding.module)


def _label_side(
    session: Session,
    holding: Holding,
    config: FedCVT,
    name: str,
    table: OwnTable,
    labels: OwnLabels,
    keys: SealedKeys | None,
    meters: Sequence[LeakMeter],
) -> OpenLabelSide | SealedLabelSide:
    variant = config.variant(name)
    if keys is not None:
        return SealedLabelSide(session, config, variant, table, labels, keys, holding.module)
    return OpenLabelSide(session, config, variant, table, labels, holding.module, meters)


def _meter(labels: OwnLabels) -> LeakMeter:
    classes = classes_to_hide(labels)
    return LeakMeter(labels.targets.numpy().astype(np.int64 if classes else np.float64), classes, area_under_roc)


def _loss(labels: OwnLabels, outputs: torch.Tensor, table: OwnTable) -> float | None:
    if not len(table.validation):
        return None
    targets = labels.targets[torch.from_numpy(table.validation)]
    return float(row_losses(labels.task, outputs, targets).mean().item())


def _check_images(session: Session, config: FedCVT) -> None:
    for party in config.images:
        if party not in session.plan.parties:
            raise ConfigError(f"config.images is for '{party}', no party. {did_you_mean(party, session.plan.parties)}")


def _document(session: Session, config: FedCVT, table: OwnTable, holding: Holding) -> dict[str, Any]:
    return {
        "method": "fedcvt",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
        "table_encoder": table.encoder.to_json(),
        "is_custom": holding.module is not None,
    }
