"""What every method must do, whatever it computes.

Each check takes a case, and most take a transport; each raises AssertionError.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from colonnade import alignment
from colonnade.errors import ColonnadeError, PeerFailed, PeerLost, ProtocolError, RoleFailed
from colonnade.launch.run import Run
from colonnade.launch.take_part import take_part
from colonnade.messages import ANYONE, HEADER_BYTES, declaration_of
from colonnade.session import CONTROL, Participant, Session
from colonnade.settings import config_to_json, validated
from colonnade.testing.cases import (
    Case,
    heard_in,
    heard_in_prediction,
    once,
    predict,
    secret_of,
    toy_tables,
    train,
)
from colonnade.testing.expect import raising, require
from colonnade.testing.hostile import Heard, faults_of, is_refused, lying
from colonnade.training.legacy import encoder_of

__all__ = [
    "check_config_round_trips",
    "check_every_declared_message_is_sent",
    "check_learns_on_toy_data",
    "check_ledgers_agree_and_verify",
    "check_lie_ends_a_run",
    "check_lies_end_a_run",
    "check_lies_would_be_refused",
    "check_nothing_undeclared_is_sent",
    "check_peer_loss_ends_cleanly",
    "check_predicts_new_rows",
    "check_raw_columns_never_cross",
    "check_resume_equals_undisturbed",
    "check_same_result_over_every_transport",
    "check_seed_repeats_the_run",
    "is_same_model",
    "lies_in",
]

_LONGEST_END = 30.0
"""Seconds after which a run that failed must have ended at every party, also on a busy machine."""


def check_every_declared_message_is_sent(case: Case, transport: str) -> None:
    """A declaration nobody uses would make the message table and the consent screen wrong."""
    run = once(case, transport)
    sent = {total.message for ledger in run.ledgers.values() for total in ledger.summary()}
    declared = {one.name for one in run.method.declarations_in(run.plan)}
    require(declared <= {one.name for one in run.method.declarations}, "What is in a run is among all declarations.")
    unsent = declared - set(case.may_be_missing) - sent
    require(not unsent, f"{', '.join(sorted(unsent))} should be sent: it is declared for these settings.")


def check_nothing_undeclared_is_sent(case: Case, transport: str) -> None:
    """Every frame a party received is in both ledgers, and is a declared message between the declared roles."""
    run = once(case, transport)
    declared = {(one.name, one.sender, one.receiver): one for one in run.method.declarations_in(run.plan)}
    aligning = {one.name: one for one in map(declaration_of, alignment.MESSAGES)}
    control = {declaration_of(cls).name for cls in CONTROL}
    for party, ledger in run.ledgers.items():
        received = [entry.content for entry in ledger.messages() if entry.kind == "received"]
        require(len(received) == len(run.views[party]), f"Every frame that {party} got should be in its ledger.")
        for about, (sender, frame) in zip(received, run.views[party], strict=True):
            name, is_alike = about["message"], (about["peer"], about["bytes"]) == (sender, len(frame) - HEADER_BYTES)
            require(is_alike, f"{party}'s ledger should say from whom {name} came, and how large it was.")
            if name in control:
                continue
            if name in aligning:
                one = aligning[name]
                is_due = alignment.sends(run.method, run.plan, one.cls, sender, party)
                require(is_due, f"{party} should have no part in finding shared rows by {name}.")
            else:
                key = (name, run.plan.role_of(sender), run.plan.role_of(party))
                require(key in declared, f"{name} crossed between roles for which it is not declared.")
                one = declared[key]
            require(one.protection == about["protection"], f"{name} should be recorded with its protection.")


def check_same_result_over_every_transport(case: Case, transport: str) -> None:
    """Results depend on the seed and on secrets, not on what carries the messages."""
    require(
        is_same_model(case, once(case), once(case, transport)), f"{transport} gives another model than memory does."
    )


def check_ledgers_agree_and_verify(case: Case, transport: str) -> None:
    """Both ends of every channel tell the same story, and both are closed."""
    run = once(case, transport)
    run.verify()
    for party, ledger in run.ledgers.items():
        is_whole = ledger.entries[0].content["party"] == party and ledger.entries[-1].kind == "closed"
        require(is_whole, f"{party}'s ledger should begin with its name and end closed.")


def check_raw_columns_never_cross(case: Case, transport: str) -> None:
    """No received byte string contains a cell, an encoded cell, an id or a label of another party."""
    run = once(case, transport)
    tables = toy_tables(case)
    for party, frames in run.views.items():
        seen = b"".join(frame[HEADER_BYTES:] for sender, frame in frames)
        for text in (b"canary", b"row-"):
            require(text not in seen, f"{party} got a text that stands in another party's table: {text.decode()}…")
        floats = _floats_in([frame[HEADER_BYTES:] for _, frame in frames])
        for other, table in tables.items():
            if other == party:
                continue
            encoder = encoder_of(run.parts[other])
            complete = [name for name in table.feature_names if _is_complete(table.values(name))]
            raw = np.concatenate([np.empty(0), *(table.values(name) for name in complete)])
            coded = [] if encoder is None else [encoder.transform(table, dtype=np.float64)[:, 0]]
            for values in (raw, *coded):
                for kind in (np.float32, np.float64):
                    hits = np.isin(values.astype(kind), floats[kind]).sum()
                    # Among a million bytes of ciphertext, one may look like a given float32 by chance; never three.
                    require(hits < 3, f"{hits} values of {other} reached {party} as {kind.__name__}.")


def check_seed_repeats_the_run(case: Case, transport: str) -> None:
    """The same seed gives the same model bit for bit, another seed another one; and other secrets, where it has any."""
    first = once(case, transport)
    is_repeated = is_same_model(case, first, train(case, transport))
    if case.draws_in_secret:
        require(not is_repeated, "A case that draws in secret should give another model every time.")
        return
    require(is_repeated, "The same seed should give the same model. Draw from session.seed and session.own_seed only.")
    is_blind = is_same_model(case, first, train(case, transport, seed=6))
    require(not is_blind, "Another seed should give another model.")


def check_peer_loss_ends_cleanly(case: Case, transport: str) -> None:
    """When a party of any role fails in mid-run, all others stop within seconds and learn who, when and why."""
    for *_, failing in case.parties.values():
        errors = _failures_when(case, transport, failing)
        require(errors.pop(failing) is RoleFailed, f"{failing} should fail by an error of its role.")
        others = set(errors.values()) - {PeerFailed, PeerLost}
        require(not others, f"Others should learn that {failing} stopped, and not fail by {others} themselves.")


def check_config_round_trips(case: Case, transport: str) -> None:
    """Settings survive the way through a file, and are compared field by field."""
    method = once(case, transport).method
    is_kept = validated(method.config, config_to_json(case.config), "config") == case.config
    require(is_kept, "Settings should be the same after they were written to a file and read.")
    is_frozen = dataclasses.is_dataclass(method.config) and method.config.__dataclass_params__.frozen  # type: ignore[attr-defined]
    require(is_frozen, "Settings should be a frozen dataclass.")


def check_learns_on_toy_data(case: Case, transport: str) -> None:
    """The model is better than chance by the margin the case states, and better than the label holder alone."""
    run = once(case, transport)
    reached = run.metrics["auc"]
    require(reached >= case.learns, f"The case promises an AUC of {case.learns}; the model has {reached:.3f}.")
    if "alone" in run.evaluations and case.beats_alone:
        alone = run.evaluations["alone"].metrics["auc"]
        require(reached > alone, f"The label holder alone has an AUC of {alone:.3f}, and together {reached:.3f}.")


def check_resume_equals_undisturbed(case: Case, transport: str) -> None:
    """A run interrupted halfway and begun again ends with the same model as one that was not, given its secrets."""
    whole = once(case, transport)
    first, last = whole.plan.parties[0], whole.plan.parties[-1]
    half = max(entry.content["step"] for entry in whole.ledgers[first].messages()) // 2 + 1
    with TemporaryDirectory() as folder, _beginning_with_the_same_secrets():
        with _failing_at(last, half), raising(ColonnadeError):
            train(case, transport, folder=Path(folder))
        resumed = train(case, transport, folder=Path(folder))
        kinds = [entry.kind for entry in resumed.ledgers[first].entries]
        require("resumed" in kinds, "A method makes checkpoints: all parties at the same steps, by session.checkpoint.")
        require(is_same_model(case, whole, resumed), "A run that was resumed should end with the same model.")
        resumed.verify()


def check_predicts_new_rows(case: Case, transport: str) -> None:
    """A loaded model scores new rows: as many as there are, for those who may know them."""
    run = once(case, transport)
    bringing = run.method.parties_with_rows(run.method.in_stage(run.plan, "predict"))
    tables = {party: table for party, table in toy_tables(case, with_label=False).items() if party in bringing}
    scores = run.predict(tables)
    is_known = scores["prediction"].isin(["label-canary-yes", "label-canary-no"]).all()
    require(is_known, "Predictions should be in the label's own terms.")
    known_rows = {party: run.tables[party]["shared_rows"] for party in bringing}
    rows, named = run.method.predicting.rows, "probability_label-canary-yes"
    if rows == "own":
        require(named not in scores, "Who gets predictions for its own rows should not be told how sure they are.")
        expected = sum(table.rows for table in tables.values())
    else:
        require(scores[named].dropna().between(0, 1).all(), "Scores of two classes should lie between 0 and 1.")
        told = len(scores)
        if rows == "shared and rest":
            lead, *others = bringing
            expected = tables[lead].rows + sum(tables[party].rows - known_rows[party] for party in others)
            told = told if case.tells_scores else tables[lead].rows
        elif rows == "pairwise":
            holding = {role.name for role in run.method.roles if role.has_label}
            expected = sum(known_rows[party] for party in bringing if run.plan.role_of(party) in holding)
        else:
            # Rows that only a party lacks that is not asked for are scored as well.
            expected = len(set.intersection(*(set(tables[party].ids) for party in bringing)))
        require(scores[named].notna().sum() == told, "Others get predictions without how sure they are.")
    require(len(scores) == expected, f"{expected} rows should be scored, and {len(scores)} are.")


def check_lies_would_be_refused(case: Case) -> None:
    """Every rule of every field, broken in a message that crossed, is seen by its receiver."""
    for heard in (*heard_in(case), *heard_in_prediction(case)):
        for rule, content in faults_of(heard):
            require(is_refused(heard, content), f"{heard.declaration.name} was accepted though it breaks {rule}.")


def check_lies_end_a_run(case: Case) -> None:
    """Of every message one that breaks a rule ends the run: its receiver says so, and nobody waits for ever."""
    for heard, carry_out in lies_in(case):
        check_lie_ends_a_run(heard, carry_out)


def lies_in(case: Case) -> Iterator[tuple[Heard, Callable[[], object]]]:
    """Give the first message of each class between two roles, of the method's own with rules, and what sends it."""
    for every, carry_out in ((heard_in(case), lambda: train(case)), (heard_in_prediction(case), lambda: predict(case))):
        seen = set()
        for heard in every:
            about = heard.declaration
            key = (about.cls, about.sender, about.receiver)
            if about.sender != ANYONE and key not in seen and next(faults_of(heard), None) is not None:
                seen.add(key)
                yield heard, carry_out


def check_lie_ends_a_run(heard: Heard, carry_out: Callable[[], object]) -> None:
    """Carry out a run in which one message breaks a rule, and see that its receiver refuses it."""
    began, name = time.monotonic(), heard.declaration.name
    with lying(heard) as told, raising(ProtocolError, "refused"):
        carry_out()
    require(told, f"{heard.sender} should send {name}.")
    require(time.monotonic() - began < _LONGEST_END, f"The run should end at once when {name} breaks {told[0]}.")


@contextmanager
def _beginning_with_the_same_secrets() -> Iterator[None]:
    durable = Session._durable_secret

    def secret(session: Session) -> bytes:
        file = session._secret_file
        if file is not None and not file.exists() and session.resumed is None:
            file.write_bytes(secret_of(session))
        return durable(session)

    with patch.object(Session, "_durable_secret", secret):
        yield


def is_same_model(case: Case, first: Run, second: Run) -> bool:
    """Tell whether two runs ended with the same model at every party, as nearly as the case asks."""
    return all(
        first.parts[party].tensors.keys() == second.parts[party].tensors.keys()
        and all(
            torch.equal(value, second.parts[party].tensors[key])
            or (
                value.shape == second.parts[party].tensors[key].shape
                and bool((value - second.parts[party].tensors[key]).abs().max() <= case.repeats_within)
            )
            for key, value in first.parts[party].tensors.items()
        )
        # A party without rows may have no part of the model.
        for party in {*first.parts, *second.parts, *first.method.parties_with_rows(first.plan)}
    )


def _is_complete(values: np.ndarray[Any, Any]) -> bool:
    return values.dtype.kind == "f" and not np.isnan(values).any()


def _floats_in(bodies: list[bytes]) -> dict[type, np.ndarray[Any, Any]]:
    """Return every float that some aligned run of bytes could be read as."""
    found: dict[type, list[np.ndarray[Any, Any]]] = {np.float32: [], np.float64: []}
    for body in bodies:
        for kind, values in found.items():
            size = np.dtype(kind).itemsize
            for offset in range(0, size, 4):
                usable = (len(body) - offset) // size * size
                values.append(np.frombuffer(body[offset : offset + max(usable, 0)], kind))
    return {kind: np.concatenate(values) for kind, values in found.items()}


@contextmanager
def _failing_at(party: str, step: int) -> Iterator[list[int]]:
    """Let a party fail in a step, or in the first after it if others make that one; give a list to hold the step."""
    original = Session.next_step
    failed: list[int] = []

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step >= step:
            failed.append(session.step)
            raise ZeroDivisionError("secret-cell-4711")

    with patch.object(Session, "next_step", next_step):
        yield failed


def _failures_when(case: Case, transport: str, failing: str) -> dict[str, type[BaseException]]:
    """Let one party fail in its second step, or its first after that, and return what every party ended with."""
    ended: dict[str, BaseException] = {}

    def noting(party: Participant, *rest: Any, **options: Any) -> Any:
        try:
            return take_part(party, *rest, **options)
        except BaseException as error:
            ended[party.name] = error
            raise

    began = time.monotonic()
    told = patch("colonnade.launch.simulation.take_part", noting)
    with _failing_at(failing, 2) as failed, told, raising(RoleFailed, failing):
        train(case, transport)
    require(time.monotonic() - began < _LONGEST_END, f"All should stop at once when {failing} fails.")
    for party, error in ended.items():
        said = str(error)
        require("secret-cell-4711" not in said, f"{party} learns what only {failing} should see.")
        is_told = failing in said and (f"step {failed[0]}" in said or isinstance(error, PeerLost))
        require(party == failing or is_told, f"{party} should be told who failed, and at which step.")
    return {party: type(error) for party, error in ended.items()}
