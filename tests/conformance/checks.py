"""What every method must do, whatever it computes.

Each check takes a case and a transport, and raises AssertionError.
"""

from __future__ import annotations

import dataclasses
import hashlib
import time
from pathlib import Path

import numpy as np
import pytest
import torch

import colonnade as cn
from colonnade import alignment
from colonnade.data import TableEncoder
from colonnade.errors import ColonnadeError, PeerFailed, PeerLost, RoleFailed
from colonnade.launch.settings import config_from_json, config_to_json
from colonnade.messages import HEADER_BYTES, declaration_of
from colonnade.session import CONTROL, Session
from tests.conformance.cases import Case, parties_of, toy_tables, train

_KNOWN: dict[tuple[str, str], cn.Run] = {}


def once(case: Case, transport: str) -> cn.Run:
    """Return a run that other checks look at too."""
    key = (str(case), transport)
    if key not in _KNOWN:
        _KNOWN[key] = train(case, launch=cn.Launch(transport=transport, keep_views=True), compare=True)
    return _KNOWN[key]


def check_every_declared_message_is_sent(case: Case, transport: str) -> None:
    """A declaration nobody uses would make the message table and the consent screen wrong."""
    run = once(case, transport)
    sent = {total.message for ledger in run.ledgers.values() for total in ledger.summary()}
    declared = {one.name for one in run.method.declarations_in(run.plan)}
    assert declared <= {one.name for one in run.method.declarations}
    assert declared - set(case.may_be_missing) <= sent


def check_nothing_undeclared_is_sent(case: Case, transport: str) -> None:
    """Every frame a party received is in both ledgers, and is a declared message between the declared roles."""
    run = once(case, transport)
    declared = {(one.name, one.sender, one.receiver): one for one in run.method.declarations_in(run.plan)}
    aligning = {one.name: one for one in map(declaration_of, alignment.MESSAGES)}
    control = {declaration_of(cls).name for cls in CONTROL}
    lead, with_rows = run.method.leader_of(run.plan), set(run.method.parties_with_rows(run.plan))
    for party, ledger in run.ledgers.items():
        received = [entry.content for entry in ledger.messages() if entry.kind == "received"]
        assert len(received) == len(run.views[party])
        for about, (sender, frame) in zip(received, run.views[party], strict=True):
            assert (about["peer"], about["bytes"]) == (sender, len(frame) - HEADER_BYTES)
            if about["message"] in aligning:
                one = aligning[about["message"]]
                assert lead in (party, sender)
                assert {party, sender} <= with_rows, "who brings no rows has no part in finding shared ones"
                assert alignment.sends(one.name, run.plan.alignment, is_lead=sender == lead)
                assert one.protection == about["protection"]
            elif about["message"] not in control:
                one = declared[about["message"], run.plan.role_of(sender), run.plan.role_of(party)]
                assert one.protection == about["protection"]


def check_same_result_over_every_transport(case: Case, transport: str) -> None:
    """Results depend on the seed, not on what carries the messages."""
    if case.draws_in_secret:
        return
    assert same_model(case, once(case, "memory"), once(case, transport))


def check_ledgers_agree_and_verify(case: Case, transport: str) -> None:
    """Both ends of every channel tell the same story, and both are closed."""
    run = once(case, transport)
    run.verify()
    for party, ledger in run.ledgers.items():
        assert ledger.entries[0].content["party"] == party
        assert ledger.entries[-1].kind == "closed"


def check_raw_columns_never_cross(case: Case, transport: str) -> None:
    """No received byte string contains a cell, an encoded cell, an id or a label of another party."""
    run = once(case, transport)
    tables = toy_tables(case)
    for party, frames in run.views.items():
        seen = b"".join(frame[HEADER_BYTES:] for sender, frame in frames)
        assert b"canary" not in seen
        assert b"row-" not in seen
        floats = _floats_in([frame[HEADER_BYTES:] for _, frame in frames])
        for other, table in tables.items():
            if other == party:
                continue
            encoder = run.parts[other].document.get("table_encoder")
            numbers = [name for name in ("c0", "c1", "c2", "s1") if name in table.feature_names]
            raw = np.concatenate([np.empty(0), *(table.values(name) for name in numbers)])
            coded = (
                [] if encoder is None else [TableEncoder.from_json(encoder).transform(table, dtype=np.float64)[:, 0]]
            )
            for values in (raw, *coded):
                for kind in (np.float32, np.float64):
                    hits = np.isin(values.astype(kind), floats[kind]).sum()
                    # Among a million bytes of ciphertext, one may look like a given float32 by chance; never three.
                    assert hits < 3, f"{hits} values of {other} reached {party} as {kind.__name__}"


def check_seed_repeats_the_run(case: Case, transport: str) -> None:
    """The same seed gives the same model bit for bit; another seed another one."""
    first = once(case, transport)
    assert same_model(case, first, train(case, transport)) is not case.draws_in_secret
    assert not same_model(case, first, train(case, transport, seed=6))


def check_peer_loss_ends_cleanly(case: Case, transport: str) -> None:
    """When any party fails in mid-run, all others stop within seconds and learn who, when and why; no secret leaks."""
    for failing in (name for parties in parties_of(case).values() for name in parties):
        with pytest.MonkeyPatch.context() as patch:
            errors = _failures_when(patch, case, transport, failing)
        assert errors.pop(failing) is RoleFailed
        assert set(errors.values()) <= {PeerFailed, PeerLost}


def check_config_round_trips(case: Case, transport: str) -> None:
    """Settings survive the way through a file, and are compared field by field."""
    method = once(case, transport).method
    assert config_from_json(method, config_to_json(case.config)) == case.config
    assert dataclasses.is_dataclass(method.config)
    assert method.config.__dataclass_params__.frozen


def check_learns_on_toy_data(case: Case, transport: str) -> None:
    """The model is better than chance by the margin the case states, and better than the label holder alone."""
    if case.draws_in_secret:
        # Some draws learn little from so few rows; these are always the same.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Session, "_durable_secret", _secret_of)
            run = train(case, transport)
    else:
        run = once(case, transport)
    assert run.metrics["auc"] >= case.learns
    if "alone" in run.evaluations and case.beats_alone:
        assert run.metrics["auc"] > run.evaluations["alone"].metrics["auc"]


def check_resume_equals_undisturbed(case: Case, transport: str, folder: Path) -> None:
    """A run interrupted after its first checkpoint ends with the same model as one that was not.

    Both begin with the same secrets in the parties' run folders, as otherwise no two runs are alike.
    """
    with pytest.MonkeyPatch.context() as patch:
        _begin_with_the_same_secrets(patch)
        _resume(case, transport, folder)


def _secret_of(session: Session) -> bytes:
    return hashlib.sha256(session.party.encode()).digest()


def _begin_with_the_same_secrets(patch: pytest.MonkeyPatch) -> None:
    durable = Session._durable_secret

    def secret(session: Session) -> bytes:
        assert session._secret_file is not None
        if not session._secret_file.exists() and session.resumed is None:
            session._secret_file.write_bytes(_secret_of(session))
        return durable(session)

    patch.setattr(Session, "_durable_secret", secret)


def _resume(case: Case, transport: str, folder: Path) -> None:
    whole = train(case, transport, folder=folder / "whole")
    marks = [entry for entry in whole.ledgers[whole.plan.parties[0]].entries if entry.kind == "checkpoint"]
    assert marks, "a method makes checkpoints"
    target = marks[len(marks) // 2].content["step"] + 1
    with pytest.MonkeyPatch.context() as patch:
        _fail_at(patch, whole.plan.parties[-1], target)
        with pytest.raises(ColonnadeError):
            train(case, transport, folder=folder / "cut")
    resumed = train(case, transport, folder=folder / "cut")
    kinds = [entry.kind for entry in resumed.ledgers[whole.plan.parties[0]].entries]
    assert "resumed" in kinds
    assert same_model(case, whole, resumed)
    resumed.verify()


def check_predicts_new_rows(case: Case, transport: str) -> None:
    """A loaded model scores new rows; its scores for known rows are those it gave before."""
    run = once(case, transport)
    bringing = run.method.parties_with_rows(run.method.in_stage(run.plan, "predict"))
    tables = {party: table for party, table in toy_tables(case, with_label=False).items() if party in bringing}
    scores = run.predict(tables)
    assert scores["prediction"].isin(["label-canary-yes", "label-canary-no"]).all()
    if run.method.predicting.rows == "shared and rest":
        lead, *others = bringing
        assert scores["score"].dropna().between(0, 1).all()
        alone = {party: tables[party].rows - run.tables[party]["shared_rows"] for party in others}
        assert len(scores) == tables[lead].rows + sum(alone.values())
        told = len(scores) if case.tells_scores else tables[lead].rows
        assert scores["score"].notna().sum() == told, "others get predictions without how sure they are"
    elif run.method.predicting.rows != "own":
        assert scores["score"].between(0, 1).all()
        scored = [run.plan.parties[0]]
        if run.method.is_pairwise:
            holding = {role.name for role in run.method.roles if role.has_label}
            scored = [party for party in bringing if run.plan.role_of(party) in holding]
        if set(bringing) < set(run.method.parties_with_rows(run.plan)) and not run.method.is_pairwise:
            # Rows that only a party lacks that is not asked for are scored as well.
            assert len(scores) == len(set.intersection(*(set(tables[party].ids) for party in bringing)))
        else:
            assert len(scores) == sum(run.tables[party]["shared_rows"] for party in scored)
    else:
        assert "score" not in scores
        assert len(scores) == sum(table.rows for table in tables.values())


CHECKS = [
    check_every_declared_message_is_sent,
    check_nothing_undeclared_is_sent,
    check_same_result_over_every_transport,
    check_ledgers_agree_and_verify,
    check_raw_columns_never_cross,
    check_seed_repeats_the_run,
    check_peer_loss_ends_cleanly,
    check_config_round_trips,
    check_learns_on_toy_data,
    check_predicts_new_rows,
]


def same_model(case: Case, first: cn.Run, second: cn.Run) -> bool:
    return all(
        first.parts[party].tensors.keys() == second.parts[party].tensors.keys()
        and all(
            torch.equal(value, second.parts[party].tensors[key])
            or (value - second.parts[party].tensors[key]).abs().max() <= case.repeats_within
            for key, value in first.parts[party].tensors.items()
        )
        # A party without rows may have no part of the model.
        for party in {*first.parts, *second.parts, *first.method.parties_with_rows(first.plan)}
    )


def _floats_in(bodies: list[bytes]) -> dict[type, np.ndarray]:
    """Return every float that some aligned run of bytes could be read as."""
    found: dict[type, list[np.ndarray]] = {np.float32: [], np.float64: []}
    for body in bodies:
        for kind, values in found.items():
            size = np.dtype(kind).itemsize
            for offset in range(0, size, 4):
                usable = (len(body) - offset) // size * size
                values.append(np.frombuffer(body[offset : offset + max(usable, 0)], kind))
    return {kind: np.concatenate(values) for kind, values in found.items()}


def _fail_at(patch: pytest.MonkeyPatch, party: str, step: int) -> list[int]:
    """Let a party fail in a step, or in the first after it if others make that one; return a list to hold the step."""
    original = Session.next_step
    failed: list[int] = []

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step >= step:
            failed.append(session.step)
            raise ZeroDivisionError("secret-cell-4711")

    patch.setattr(Session, "next_step", next_step)
    return failed


def _failures_when(
    patch: pytest.MonkeyPatch, case: Case, transport: str, failing: str
) -> dict[str, type[BaseException]]:
    """Let one party fail in its second step, or its first after that, and return what every party ended with."""
    import colonnade.launch.take_part as launched

    failed = _fail_at(patch, failing, 2)
    ended: dict[str, BaseException] = {}
    original = launched.play

    def play(session: Session, *rest: object) -> object:
        try:
            return original(session, *rest)  # type: ignore[arg-type]
        except BaseException as error:
            ended[session.party] = error
            raise

    patch.setattr(launched, "play", play)
    started = time.monotonic()
    with pytest.raises(RoleFailed, match=failing):
        train(case, transport)
    assert time.monotonic() - started < 10
    for party, error in ended.items():
        assert "secret-cell-4711" not in str(error)
        if party != failing:
            assert failing in str(error)
            assert f"step {failed[0]}" in str(error) or isinstance(error, PeerLost)
    return {party: type(error) for party, error in ended.items()}
