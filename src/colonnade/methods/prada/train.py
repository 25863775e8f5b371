"""Pre-train with sources and fine-tune with targets: all roles, lesson by lesson."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from colonnade.exchanges.holdings import scores_in_terms_of
from colonnade.methods.prada.bank import Bank
from colonnade.methods.prada.choice import JOINT, LOCAL, WITHOUT_SOURCE, choose_model
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.lessons import Course, lessons_for
from colonnade.methods.prada.messages import HOLDER, MARK_BYTES, Chosen, Turn, TurnSeen
from colonnade.methods.prada.school import Pupil, School
from colonnade.methods.prada.shift import Shift, shift_finding
from colonnade.session import Finding, Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "source", "target"]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]


def feature_holder(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the party whose groups of columns learn."""
    school = School(session, holding, config, session.stage)
    course = Course(session, lessons_for(session.plan, config, session.stage))
    # Before a checkpoint is taken up, so that the networks are those of the beginning.
    before = Shift.measure(school) if _draws(session, config) else None
    if session.resumed is not None:
        course.load_state(session.resumed.document["course"])
        school.load_state(session.resumed)
    _expect(session, school, config, course)
    for lesson in course.left():
        idle = [peer for peer in session.all_channels if peer.peer != lesson.party]

        def keep(is_over: bool = False, stops: bool = False, idle: Any = idle) -> None:
            for peer in idle:
                peer.send(Turn(session.step, is_over, stops))
            # Who only waits must not fall behind: a run is taken up at a step that all have kept.
            for peer in idle:
                peer.receive(TurnSeen, step=session.step)
            session.checkpoint(school.state(course))

        keep(is_over=True, stops=school.teach(course, lesson, keep))
    school.end_pretraining()
    findings = () if before is None else (shift_finding(before, Shift.measure(school), config.pictures),)
    chosen = {party: _close(school, pupil) for party, pupil in school.pupils.items()}
    return Result(school.part({"chosen": {party: model for party, model in chosen.items() if model}}), None, findings)


def source(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play a bank with many labels, from which the groups learn."""
    bank = Bank(session, holding, config)
    _attend(bank)
    model = bank.model("pretrain")
    scores, findings = None, _protection(bank)
    if session.stage == "pretrain":
        logits = bank.logits(model, bank.test)
        scores = scores_in_terms_of(
            bank.labels.encoder, bank.labels.predicted(logits), bank.test, bank.truth[bank.test]
        )
    return Result(_part(bank, {"pretrain": model.head.state()}, model.own.tensors(), {}), scores, findings)


def target(session: Session, holding: Holding, config: PrADA) -> Result:
    """Play the bank that wants the model and has few labels."""
    if session.stage == "pretrain":
        return _wait_through(session, config)
    bank = Bank(session, holding, config)
    _attend(bank)
    held = np.concatenate([bank.validation, bank.test])
    logits = {phase: bank.logits(model, held) for phase, model in bank.models.items()}
    choice = choose_model(bank, logits)
    mark = _mark_of(bank)
    bank.peer.send(Chosen(choice.model, mark))
    scores = scores_in_terms_of(bank.labels.encoder, choice.test, bank.test, bank.truth[bank.test])
    findings = (*_protection(bank), *choice.findings)
    document = {"chosen": choice.model, "local": choice.local, "mark": mark}
    own = {f"{name}/{key}": value for name, one in bank.models.items() for key, value in one.own.tensors().items()}
    heads = {phase: one.head.state() for phase, one in bank.models.items()}
    return Result(_part(bank, heads, own, document), scores, findings)


def _close(school: School, pupil: Pupil) -> str:
    """Score a target's held-out rows once more, and learn which model it takes."""
    if pupil.peer.peer_role != "target":
        if school.session.stage == "pretrain":
            school.head(pupil, "pretrain").score(school.values("pretrain", school.extractors, pupil.rows("test")))
        return ""
    held = np.concatenate([pupil.rows("validation"), pupil.rows("test")])
    for phase, head in pupil.heads.items():
        uses_own = phase == "vfl" or school.config.tune != "nothing"
        extractors = school.own_extractors(pupil.peer.peer, phase) if uses_own else school.extractors
        with pupil.peer.openings.at(f"end of {phase}"):
            head.score(school.values(phase, extractors, held))
    compared = {"none": {JOINT}, "local": {JOINT, LOCAL}, "vfl": {JOINT, LOCAL, WITHOUT_SOURCE}}
    received = pupil.peer.receive(Chosen, models=compared[school.config.compare])
    pupil.mark = received.mark
    return received.model


def _attend(bank: Bank) -> None:
    """Take this bank's lessons, and wait while others take theirs."""
    session = bank.session
    course = Course(session, lessons_for(session.plan, bank.config, session.stage))
    if session.resumed is not None:
        course.load_state(session.resumed.document["course"])
        bank.load_state(session.resumed)
    _follow(session, course, bank, lambda: session.checkpoint(bank.state(course)))


def _wait_through(session: Session, config: PrADA) -> Result:
    """Be there for a stage in which this party has nothing to learn: only its rows, at the feature holder, matter."""
    course = Course(session, lessons_for(session.plan, config, session.stage))
    if session.resumed is not None:
        course.load_state(session.resumed.document["course"])
    _follow(session, course, None, lambda: session.checkpoint(ModelPart({}, {"course": course.state()})))
    return Result()


def _follow(session: Session, course: Course, bank: Bank | None, keep: Callable[[], None]) -> None:
    peer = session.channel(HOLDER)
    for lesson in course.left():
        if bank is not None and lesson.party == session.party:
            bank.learn(course, lesson, keep)
            keep()
            continue
        told = peer.receive(Turn, next_step=session.step + 1)
        session.step = told.step
        if told.is_over:
            course.finish(lesson, told.stops)
        keep()
        peer.send(TurnSeen(session.step))


def _expect(session: Session, school: School, config: PrADA, course: Course) -> None:
    total = 0
    for lesson in course.lessons:
        size = config.batch_size if lesson.phase == "pretrain" else config.fine_batch_size
        total += -(-len(school.pupils[lesson.party].places("train")) // size)
    session.expect_steps(total)


def _draws(session: Session, config: PrADA) -> bool:
    return session.stage != "finetune" and bool(session.plan.roles.get("source"))


def _mark_of(bank: Bank) -> str:
    """Return a digest by which this party's part of the model is known again."""
    whole = hashlib.sha256()
    for phase, model in bank.models.items():
        whole.update(json.dumps([phase, model.head.state()], sort_keys=True).encode())
        for name, value in model.own.tensors().items():
            whole.update(name.encode() + value.numpy().tobytes())
    return whole.hexdigest()[: 2 * MARK_BYTES]


def _protection(bank: Bank) -> tuple[Finding, ...]:
    found = bank.labels.finding(bank.peer.peer)
    return () if found is None else (found,)


def _part(bank: Bank, heads: dict[str, Any], own: dict[str, torch.Tensor], more: dict[str, Any]) -> ModelPart:
    document = {
        "method": "prada",
        "role": bank.session.role,
        "party": bank.session.party,
        "config": dataclasses.asdict(bank.config),
        "step_encoder": bank.encoder.to_json(),
        "types": bank.encoder.types,
        "label_encoder": bank.labels.encoder.to_json(),
        "groups": list(bank.groups),
        "new": list(bank.new),
        "heads": heads,
        "means": bank.columns[bank.training].mean(axis=0).tolist(),
    }
    disguise = bank.labels.disguise
    tensors = dict(own)
    if disguise is not None:
        tensors |= {f"disguise/{name}": value for name, value in disguise.state().items()}
    return ModelPart(tensors, document | more)
