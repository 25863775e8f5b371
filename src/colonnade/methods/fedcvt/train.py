"""Train FedCVT and what it is compared with: both roles, one model after the other."""

from __future__ import annotations

import dataclasses
import re
import secrets
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from colonnade.errors import ConfigError, WrongContent, did_you_mean
from colonnade.exchanges.epochs import Epochs, EpochVerdict
from colonnade.exchanges.holdings import scores_in_terms_of
from colonnade.methods.fedcvt.choice import Ways, budget_finding, choose, local_ways
from colonnade.methods.fedcvt.config import LOCAL, SCORES_ALONE, FedCVT
from colonnade.methods.fedcvt.guards import check_shared_rows
from colonnade.methods.fedcvt.messages import Choice, OwnRows, Schedule
from colonnade.methods.fedcvt.objective import row_losses
from colonnade.methods.fedcvt.open_cut import OpenLabelSide, OpenPartnerSide
from colonnade.methods.fedcvt.rows import (
    Batches,
    OwnLabels,
    OwnTable,
    batch_rows,
    own_labels,
    own_table,
    secret_or_own_seed,
    steps_of,
)
from colonnade.methods.fedcvt.sealed_cut import SealedKeys, SealedLabelSide, SealedPartnerSide
from colonnade.nn import tensors_under
from colonnade.privacy import new_key
from colonnade.session import Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "label_holder"]

Places = npt.NDArray[np.int64]

_MOST_ROWS = 2**31
_MOST_STEPS = 10**7
_MOST_OUTPUTS = 4096
_MARK = re.compile("[0-9a-f]{16}")


class Side(Protocol):
    """One party with one candidate under training."""

    def open(self) -> None: ...
    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]: ...
    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None: ...
    def keep_best(self) -> None: ...
    def part(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]: ...


class Course:
    """The trainings of a run in their order, of which a checkpoint holds the finished ones too."""

    def __init__(self, session: Session, config: FedCVT, steps: int) -> None:
        self._session, self._config, self._steps = session, config, steps
        self._done: dict[str, tuple[dict[str, torch.Tensor], dict[str, Any]]] = {}
        self._resumed = session.resumed
        self._current = config.joint_candidates[0] if config.joint_candidates else ""
        if self._resumed is not None:
            self._current = self._resumed.document["phase"]
            for name, document in self._resumed.document["done"].items():
                self._done[name] = (tensors_under(f"done/{name}/", self._resumed.tensors), document)
        session.expect_steps(steps * config.epochs * len(config.joint_candidates))

    def is_done(self, name: str) -> bool:
        """Tell whether a candidate was trained before the run was taken up again."""
        return name in self._done

    def begin(self, name: str, side: Side) -> tuple[_Kept, Epochs]:
        """Start a candidate's training, or take it up where its checkpoint left off."""
        resumed = self._resumed if name == self._current else None
        self._current, self._resumed = name, None
        kept = _Kept(self, side)
        if resumed is None:
            side.open()
        return kept, Epochs.begin_phase(self._session, kept, self._steps, self._config, resumed)

    def restore(self, name: str, side: Side) -> None:
        """Give a side the state in which its training ended."""
        tensors, document = self._done[name]
        side.load_state(tensors, document)

    def end(self, name: str, side: Side) -> None:
        """Note that a candidate is trained."""
        self._done[name] = side.state()

    def around(
        self, tensors: dict[str, torch.Tensor], document: dict[str, Any]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Add the finished trainings to the state of the present one."""
        for name, (done, _) in self._done.items():
            tensors = tensors | {f"done/{name}/{key}": value for key, value in done.items()}
        finished = {name: own for name, (_, own) in self._done.items()}
        return tensors, document | {"phase": self._current, "done": finished}


class _Kept:
    """A side whose checkpoints hold the finished trainings too."""

    def __init__(self, course: Course, side: Side) -> None:
        self._course, self._side = course, side

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        return self._course.around(*self._side.state())

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        own = {name: value for name, value in tensors.items() if not name.startswith("done/")}
        self._side.load_state(own, document)

    def keep_best(self) -> None:
        self._side.keep_best()


def feature_holder(session: Session, holding: Holding, config: FedCVT) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    _check_images(session, config)
    table = own_table(session, holding, config)
    peer.send(OwnRows(len(table.own)))
    schedule = peer.receive(Schedule)
    if not 1 <= schedule.steps <= _MOST_STEPS or not 1 <= schedule.outputs <= _MOST_OUTPUTS:
        raise WrongContent(f"'{peer.peer}' announces {schedule.steps} steps and {schedule.outputs} scores per row.")
    keys = SealedKeys.exchange(session, config) if config.is_sealed and config.joint_candidates else None
    shared, own = _shared_batches(session, config, table), _own_batches(session, config, table)
    check_shared_rows(session, config, shared, len(table.anchors), schedule.outputs, len(session.plan.parties))
    course = Course(session, config, schedule.steps)
    sides: dict[str, OpenPartnerSide | SealedPartnerSide] = {}
    for name in config.joint_candidates:
        side = sides[name] = _partner_side(session, holding, config, name, table, schedule.outputs, keys)
        if course.is_done(name):
            course.restore(name, side)
            continue
        kept, epochs = course.begin(name, side)
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
    chosen = peer.receive(Choice)
    alone = [name for name in config.candidates if name in SCORES_ALONE]
    if chosen.shared not in config.candidates or chosen.alone not in (*alone, "") or not _MARK.fullmatch(chosen.mark):
        raise WrongContent(f"'{peer.peer}' chose a model that was not trained, or that cannot score such rows.")
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
    labels = own_labels(session, holding, config, table)
    own_rows = []
    for peer in peers:
        count = peer.receive(OwnRows).count
        if not 0 <= count <= _MOST_ROWS:
            raise WrongContent(f"'{peer.peer}' announces {count} rows of its own.")
        own_rows.append(count)
    shared, own = _shared_batches(session, config, table), _own_batches(session, config, table)
    check_shared_rows(session, config, shared, len(table.anchors), labels.outputs, 1 + len(peers))
    steps = steps_of(config, len(table.train), [len(table.own), *own_rows])
    for peer in peers:
        peer.send(Schedule(steps, labels.outputs))
    joint = config.joint_candidates if peers else ()
    keys = SealedKeys.exchange(session, config) if config.is_sealed and joint else None
    course = Course(session, config, steps)
    sides: dict[str, OpenLabelSide | SealedLabelSide] = {}
    for name in joint:
        side = sides[name] = _label_side(session, holding, config, name, table, labels, keys)
        if course.is_done(name):
            course.restore(name, side)
            continue
        kept, epochs = course.begin(name, side)
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
    return Result(ModelPart(tensors, document), scores, choice.findings)


def _shared_batches(session: Session, config: FedCVT, table: OwnTable) -> Batches:
    return Batches(table.train, config.batch_size, lambda epoch: session.seed("batches", epoch))


def _own_batches(session: Session, config: FedCVT, table: OwnTable) -> Batches:
    seed = secret_or_own_seed(session, config)
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
) -> OpenLabelSide | SealedLabelSide:
    variant = config.variant(name)
    if keys is not None:
        return SealedLabelSide(session, config, variant, table, labels, keys, holding.module)
    return OpenLabelSide(session, config, variant, table, labels, holding.module)


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
