"""Parties in homes of their own join a run, each in a thread here, over real doors on loopback."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.kills.harness import NAME, Homes, agreed

from colonnade.errors import (
    FrameRefused,
    HandshakeRefused,
    LeakRefused,
    PeerFailed,
    PeerLost,
    PolicyRefused,
    RunFolderError,
    UsageError,
)
from colonnade.launch import join as join_module
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.identity import own_certificate, paired, start_rotation
from colonnade.launch.join import Joining
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.status import Watcher
from colonnade.ledger import Ledger, compare
from colonnade.messages import declaration_of
from colonnade.session import RunPlan, read_json
from colonnade.session.control import CONTROL
from colonnade.settings import config_to_json
from colonnade.transport.grpc import Endpoint, GrpcLink
from colonnade.transport.grpc import link as link_module

pytestmark = pytest.mark.timeout(180)

BOTH = ("bank", "shop")
SESSION = {declaration_of(one).name for one in CONTROL}


class Listening(Watcher):
    """Keeps what a party was told about its partners."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.trouble: set[str] = set()

    def connecting(self, links: Mapping[str, GrpcLink], trouble: Mapping[str, str]) -> None:
        self.trouble |= set(trouble.values())

    def connected(self, links: Mapping[str, GrpcLink]) -> None:
        self.heard.append("connected")

    def interrupted(self, error: PeerFailed | PeerLost) -> None:
        self.heard.append(str(error))


@dataclass
class Group:
    """Homes of parties that can join a run together, again and again."""

    homes: Homes
    watchers: dict[str, Listening] = field(default_factory=dict)

    def home(self, party: str) -> Path:
        return self.homes.folder / party

    def folder(self, party: str) -> Path:
        return self.home(party) / "runs" / NAME

    def plan(self) -> RunPlan:
        return read_run_file(self.homes.folder / "run.toml")

    def joining(self, party: str, plan: RunPlan | None = None) -> Joining:
        agreed = (self.homes.folder / "run.toml").read_bytes()
        return Joining(plan or self.plan(), read_party_home(self.home(party)), RunFolder(self.folder(party), agreed))

    def take_part(self, party: str, plan: RunPlan | None = None, *, compare: bool = False) -> Run:
        """Do what the command does with --yes."""
        self.watchers[party] = Listening()
        joining = self.joining(party, plan)
        joining.watcher = self.watchers[party]
        with RunFolder(self.folder(party)).held():
            if joining.is_finished:
                return joining.complete()
            return agreed(joining).run(compare=compare)

    def all(self, plans: Mapping[str, RunPlan] | None = None, **others: Callable[[], Any]) -> dict[str, Any]:
        """Let all take part at once, or one do something else; return what each ends with."""
        return together(
            {
                party: others.get(party, lambda party=party: self.take_part(party, (plans or {}).get(party)))
                for party in self.homes.parties
            }
        )

    def ledger(self, party: str) -> Ledger:
        return Ledger.read(self.folder(party) / "ledger.jsonl")


def together(actions: Mapping[str, Callable[[], Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def act(name: str) -> None:
        try:
            found[name] = actions[name]()
        except BaseException as error:
            found[name] = error

    threads = [threading.Thread(target=act, args=(name,), name=name, daemon=True) for name in actions]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + 60
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), f"a party hangs; ended: {found}"
    return found


def group_in(folder: Path, parties: tuple[str, ...] = BOTH) -> Group:
    homes = Homes(folder, parties, epochs=2)
    homes.make()
    return Group(homes)


@pytest.fixture
def group(tmp_path: Path) -> Group:
    return group_in(tmp_path)


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = group_in(tmp_path_factory.mktemp("finished"))
    outcomes = made.all()
    assert all(isinstance(one, Run) for one in outcomes.values()), outcomes
    return made.homes.folder


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path) -> Group:
    """A copy of homes whose run is done, to change at will."""
    shutil.copytree(finished_once, tmp_path, dirs_exist_ok=True)
    return Group(Homes(tmp_path, BOTH, epochs=2))


def has_finished(outcomes: Mapping[str, Any]) -> None:
    for party, outcome in outcomes.items():
        assert isinstance(outcome, Run), (party, repr(outcome))


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1, text
    path.write_text(text.replace(old, new))


# --- the whole way ------------------------------------------------------------------------------------------------


def test_two_parties_train_and_each_has_its_own_report(finished: Group) -> None:
    for party in BOTH:
        folder = finished.folder(party)
        for file in ("report.html", "run.toml", "outcome.json", "ledger.jsonl", "model"):
            assert (folder / file).exists(), (party, file)
        assert read_json(folder / "status.json")["state"] == "finished"
        finished.ledger(party).verify()
    compare(finished.ledger("bank"), finished.ledger("shop"))
    assert (finished.folder("bank") / "evaluation.json").exists()
    assert not (finished.folder("shop") / "evaluation.json").exists(), "only who has the label may know"


def test_three_parties_train(tmp_path: Path) -> None:
    group = group_in(tmp_path, ("bank", "shop", "telco"))
    has_finished(group.all())
    group.homes.check_ledgers()


def test_a_report_names_the_others_and_holds_nothing_of_theirs(finished: Group) -> None:
    cells = {
        party: {
            cell
            for line in (finished.home(party) / "table.csv").read_text().splitlines()[1:]
            for cell in line.split(",")
            if len(cell) >= 8
        }
        for party in BOTH
    }
    for party, other in (BOTH, BOTH[::-1]):
        report = (finished.folder(party) / "report.html").read_text()
        assert other in report
        assert "not known here" in report
        everything = b"".join(path.read_bytes() for path in finished.folder(party).rglob("*") if path.is_file())
        assert not any(cell.encode() in everything for cell in cells[other]), "a cell of the other party's table"
        for column in (f"{other}_{place}" for place in range(3)):
            assert column not in report, "a column name of the other party"


@pytest.mark.parametrize("party", BOTH)
def test_what_the_operator_is_shown_is_what_the_ledger_records(finished: Group, party: str) -> None:
    announced = {(one.name, peer, one.protection.value) for one, peer in finished.joining(party).sends()}
    totals = [one for one in finished.ledger(party).summary() if one.direction == "sent"]
    sent = {(one.message, one.peer, one.protection) for one in totals if one.message not in SESSION}
    assert announced == sent
    assert all(one.reveals for one, _ in finished.joining(party).sends())


def test_what_the_operator_is_shown_names_each_receiver(tmp_path: Path) -> None:
    group = group_in(tmp_path, ("bank", "shop", "telco"))
    assert {peer for _, peer in group.joining("bank").sends()} == {"shop", "telco"}
    assert {peer for _, peer in group.joining("shop").sends()} == {"bank"}, "there is no line to telco"


def test_what_must_be_believed_of_the_lead_is_said_where_there_are_three_with_rows(tmp_path: Path) -> None:
    for name, parties in (
        ("two", BOTH),
        ("three", ("bank", "shop", "telco")),
        ("four", ("bank", "shop", "telco", "x")),
    ):
        (tmp_path / name).mkdir()
        group = group_in(tmp_path / name, parties)
        said = {party: group.joining(party).taken_on_trust() for party in parties}
        assert said.pop("bank") is None, "it knows what it found"
        if name == "two":
            assert said == {"shop": None}
            continue
        assert said["shop"] is not None
        assert f"That {'telco has' if name == 'three' else 'telco and x have'} them as well" in said["shop"]
        for changes in ({"mode": "one_learns"}, {"mode": "size_only"}, {"protocol": "given"}):
            rule = replace(group.plan().alignment, **changes)
            assert group.joining("shop", replace(group.plan(), alignment=rule)).taken_on_trust() is None


# --- once more ----------------------------------------------------------------------------------------------------


def test_a_finished_run_is_not_run_again(finished: Group) -> None:
    for party in BOTH:
        with pytest.raises(RunFolderError, match="holds a finished run already"):
            finished.take_part(party)
        with pytest.raises(RunFolderError, match="finished run with other settings"):
            finished.take_part(party, replace(finished.plan(), seed=8))


@pytest.mark.parametrize("party", BOTH)
def test_a_report_that_is_gone_is_written_again_without_the_partner(finished: Group, party: str) -> None:
    report = finished.folder(party) / "report.html"
    before = report.read_text()
    report.unlink()
    (finished.folder(party) / "run.toml").unlink()
    run = finished.take_part(party)
    assert run.plan.name == NAME
    assert report.read_text() == before
    assert (finished.folder(party) / "run.toml").read_text() == (finished.homes.folder / "run.toml").read_text()


@pytest.mark.parametrize("party", BOTH)
def test_a_party_that_keeps_its_result_does_not_wait_for_ever(
    finished: Group, party: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed between its result and the last goodbye, and the others have gone home."""
    monkeypatch.setattr(join_module, "_FAREWELL_SECONDS", 0.5)
    path = finished.folder(party) / "ledger.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    while b'"message":"Goodbye"' in b"".join(lines) or b'"kind":"complete"' in b"".join(lines):
        lines.pop()
    path.write_bytes(b"".join(lines))
    (finished.folder(party) / "report.html").unlink()
    before = {file: file.read_bytes() for file in (finished.folder(party) / "model").iterdir()}

    run = finished.take_part(party)
    ledger = finished.ledger(party)
    ledger.verify()
    assert [entry.kind for entry in ledger.entries][-2:] == ["unconfirmed", "closed"]
    assert run.parts[party] is not None
    assert {file: file.read_bytes() for file in (finished.folder(party) / "model").iterdir()} == before
    assert (finished.folder(party) / "report.html").exists()
    assert read_json(finished.folder(party) / "status.json")["state"] == "finished"
    with pytest.raises(RunFolderError, match="finished run already"):
        finished.take_part(party)


# --- agreement ----------------------------------------------------------------------------------------------------

CHANGES: dict[str, tuple[Callable[[RunPlan], RunPlan], str]] = {
    "seed": (lambda plan: replace(plan, seed=8), "disagree on run.seed"),
    "epochs": (lambda plan: replace(plan, config={**plan.config, "epochs": 3}), "disagree on config.epochs"),
    "fraction": (
        lambda plan: replace(plan, evaluate=replace(plan.evaluate, test_fraction=0.3)),
        "disagree on evaluate.test_fraction",
    ),
    "order": (lambda plan: replace(plan, roles=dict(reversed(plan.roles.items()))), "disagree on run.roles"),
    "name": (lambda plan: replace(plan, name="other"), "in run 'other'"),
    "stage": (lambda plan: replace(plan, stage="predict"), "(predict)"),
}


@pytest.mark.parametrize("kind", CHANGES)
def test_a_run_file_that_differs_stops_both_and_names_the_field(group: Group, kind: str) -> None:
    change, words = CHANGES[kind]
    for party, error in group.all({"shop": change(group.plan())}).items():
        assert type(error) is HandshakeRefused, (party, repr(error))
        assert words in str(error)
        sent = {one.message for one in group.ledger(party).summary()}
        assert sent <= SESSION, "nothing of a table has crossed"
        assert read_json(group.folder(party) / "status.json")["state"] == "failed"
        assert group.watchers[party].heard == ["connected"], "and nobody waits for it to change by itself"


def test_another_version_of_the_transport_stops_who_sees_it(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """To wait for it would be to wait for ever."""
    real = GrpcLink.outgoing

    def outgoing(link: GrpcLink, stream: int) -> Iterator[bytes]:
        for place, chunk in enumerate(real(link, stream)):
            yield chunk[:1] + b"\x09" + chunk[2:] if place == 0 else chunk

    # Who stops first may be gone before the other has seen anything of it; that one would wait, as for any partner.
    stopped = threading.Event()
    waits = Listening.connecting

    def connecting(self: Listening, *facts: Any) -> None:
        waits(self, *facts)
        if stopped.wait(0.1):
            raise KeyboardInterrupt

    def until_refused(party: str) -> Run:
        try:
            return group.take_part(party)
        finally:
            stopped.set()

    monkeypatch.setattr(Listening, "connecting", connecting)
    monkeypatch.setattr(GrpcLink, "outgoing", outgoing)
    ended = together({party: lambda party=party: until_refused(party) for party in BOTH})
    refused = [error for error in ended.values() if type(error) is FrameRefused]
    assert refused
    assert all("speaks version 9, ours 1. Update both." in str(error) for error in refused)
    assert {type(error) for error in ended.values()} <= {FrameRefused, KeyboardInterrupt}, ended


def test_a_policy_that_refuses_stops_both_and_only_its_owner_learns_the_rule(group: Group) -> None:
    edit(group.home("shop") / "party.toml", "[policy]\n", '[policy]\nnever_send = ["PLAIN"]\n')
    outcomes = group.all()
    assert type(outcomes["shop"]) is PolicyRefused
    assert "policy.never_send" in str(outcomes["shop"])
    assert type(outcomes["bank"]) is PeerFailed
    assert "'shop' stopped" in str(outcomes["bank"])
    assert "its policy refuses this run" in str(outcomes["bank"])
    assert "never_send" not in str(outcomes["bank"])


def test_a_table_that_cannot_be_used_stops_before_a_door_opens(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    (group.home("bank") / "table.csv").unlink()
    monkeypatch.setattr(Endpoint, "open", lambda _: pytest.fail("a door was opened"))
    with pytest.raises(Exception, match=r"table\.csv"):
        group.take_part("bank")


# --- partners that come and go ------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", BOTH)
def test_a_party_that_was_lost_comes_back_and_the_run_completes(
    group: Group, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, cut = join_module.take_part, []

    def once_lost(party: Any, *facts: Any, **named: Any) -> Any:
        if party.name == lost and not cut:
            cut.append(party.name)
            raise PeerLost("The line was cut.")
        return real(party, *facts, **named)

    monkeypatch.setattr(join_module, "take_part", once_lost)
    has_finished(group.all())
    assert cut == [lost]
    assert group.watchers[lost].heard == ["connected", "The line was cut.", "connected"]
    group.homes.check_ledgers()


@pytest.mark.parametrize(
    ("victim", "how"),
    [
        ("bank", "interrupted"),
        ("shop", "killed"),
        pytest.param("bank", "killed", marks=pytest.mark.slow),
        pytest.param("shop", "interrupted", marks=pytest.mark.slow),
    ],
)
def test_a_party_that_stops_in_training_resumes_to_the_same_model(
    group: Group, finished_once: Path, victim: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command again goes on from the last checkpoint; the other has waited."""
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 2.0)
    real, stopped = GrpcLink.receive, []

    def be_dead(*_: object, **__: object) -> None:
        raise PeerLost("The dead neither speak nor hear.")

    def stop_once(link: GrpcLink, *facts: Any, **named: Any) -> Any:
        if link.party == victim and not stopped and any((group.folder(victim) / "checkpoints").glob("*")):
            stopped.append(victim)
            if how == "killed":  # without last words
                monkeypatch.setattr(link, "send", be_dead)
                monkeypatch.setattr(link, "receive", be_dead)
                monkeypatch.setattr(link, "close", lambda *_: None)
            raise KeyboardInterrupt
        return real(link, *facts, **named)

    def twice() -> Run:
        with pytest.raises(KeyboardInterrupt):
            group.take_part(victim)
        assert read_json(group.folder(victim) / "status.json")["state"] == "interrupted"
        return group.take_part(victim)

    monkeypatch.setattr(GrpcLink, "receive", stop_once)
    has_finished(group.all(**{victim: twice}))
    group.homes.check_ledgers()
    assert group.homes.models() == Homes(finished_once, BOTH).models()
    other = "shop" if victim == "bank" else "bank"
    kinds = [entry.kind for entry in group.ledger(other).entries]
    assert "resumed" in kinds, "from a checkpoint, not from the beginning"
    heard = group.watchers[other].heard
    assert (heard[0], heard[-1]) == ("connected", "connected")
    words = f"'{victim}' stopped at step" if how == "interrupted" else f"'{victim}' was"
    assert any(words in one for one in heard), heard


def test_a_partner_that_comes_late_is_waited_for_with_its_reason(group: Group) -> None:
    def late() -> Run:
        limit = time.monotonic() + 30
        while "nothing listens there yet" not in group.watchers.get("bank", Listening()).trouble:
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert read_json(group.folder("bank") / "status.json")["waiting_for"] == ["shop"]
        return group.take_part("shop")

    has_finished(group.all(shop=late))


def test_a_key_is_renewed_by_runs_alone(group: Group) -> None:
    following = start_rotation(group.home("shop"))[0].fingerprint
    has_finished(group.all())
    assert paired(group.home("bank"))["shop"].fingerprint == following
    for party in BOTH:
        shutil.rmtree(group.folder(party))
    has_finished(group.all())
    assert own_certificate(group.home("shop")).fingerprint == following


# --- consent ------------------------------------------------------------------------------------------------------


def test_consent_must_be_given_once_for_each_agreement(group: Group) -> None:
    group.folder("bank").mkdir(parents=True)
    assert group.joining("bank").agree(None) is None
    assert not (group.folder("bank") / "consent.json").exists()
    assert group.joining("bank").agree("given by --yes") == "given by --yes"
    assert group.joining("bank").agree(None) == "given by --yes, before this run was interrupted"
    other = group.joining("bank", replace(group.plan(), seed=8))
    assert other.agree(None) is None, "another agreement needs another word"
    predicting = group.joining("bank", replace(group.plan(), stage="predict"))
    assert predicting.agree(None) is None


def test_a_policy_may_consent(group: Group) -> None:
    group.folder("bank").mkdir(parents=True)
    edit(group.home("bank") / "party.toml", "[policy]\n", '[policy]\nconsent = "policy"\n')
    assert group.joining("bank").agree(None) == "given by policy.consent in party.toml"
    assert group.joining("shop").agree(None) is None, "one party's policy binds nobody else"


def test_an_operators_word_is_kept_with_the_run(group: Group) -> None:
    group.folder("bank").mkdir(parents=True)
    assert group.joining("bank").agree(lambda joining: "given at the terminal") == "given at the terminal"
    assert group.joining("bank").agree(None) == "given at the terminal, before this run was interrupted"


# --- prediction ---------------------------------------------------------------------------------------------------


def new_rows(group: Group) -> dict[str, str]:
    """Rows nobody has seen: ten at the bank, the middle six also at the shop, in another order."""
    generator = np.random.default_rng(5)
    files = {}
    for party, ids in (("bank", range(1000, 1010)), ("shop", range(1007, 1001, -1))):
        frame = pd.DataFrame(generator.normal(size=(len(ids), 3)), columns=[f"{party}_{place}" for place in range(3)])
        frame.insert(0, "id", list(ids))
        files[party] = str(group.home(party) / "new.csv")
        frame.to_csv(files[party], index=False)
    return files


def test_the_label_holder_gets_the_scores_and_nobody_else(finished: Group) -> None:
    files = new_rows(finished)
    plan = replace(finished.plan(), stage="predict")

    def score(party: str) -> Any:
        return agreed(finished.joining(party, plan)).predict(files[party])

    outcomes = together({party: lambda party=party: score(party) for party in BOTH})
    assert outcomes["shop"] is None
    scores = outcomes["bank"]
    assert isinstance(scores, pd.DataFrame), repr(scores)
    assert list(scores["id"]) == list(range(1002, 1008)), "the shared rows, in the order of the bank's own table"
    assert scores["probability_yes"].between(0, 1).all()
    assert set(scores["prediction"]) <= {"yes", "no"}
    for party in BOTH:
        ledger = Ledger.read(finished.folder(party) / "predictions" / "0001" / "ledger.jsonl")
        ledger.verify()
        finished.ledger(party).verify()
    again = together({party: lambda party=party: score(party) for party in BOTH})
    pd.testing.assert_frame_equal(again["bank"], scores)
    assert (finished.folder("shop") / "predictions" / "0002").exists()


def test_a_model_that_is_refused_scores_nothing_and_the_partner_is_told(finished: Group) -> None:
    files = new_rows(finished)
    plan = replace(finished.plan(), stage="predict")
    own = PartyFolder(finished.folder("bank"))

    def predict() -> dict[str, Any]:
        return together(
            {party: lambda party=party: agreed(finished.joining(party, plan)).predict(files[party]) for party in BOTH}
        )

    own.refuse("train", "It was useless.")
    own.refuse("audit", "It gave too much away.")
    outcomes = predict()
    assert isinstance(outcomes["bank"], UsageError)
    assert str(outcomes["bank"]) == "It was useless. It gave too much away."
    assert isinstance(outcomes["shop"], PeerFailed)
    assert "too much away" in str(outcomes["shop"])
    own.refuse("audit", "")
    assert own.load().refusals == {"train": "It was useless."}
    own.refuse("train", "")
    assert not (own.path / "refusal.json").exists()
    assert isinstance(predict()["bank"], pd.DataFrame)


def test_a_prediction_needs_a_model(group: Group) -> None:
    plan = replace(group.plan(), stage="predict")
    with pytest.raises(RunFolderError, match="holds no finished run"):
        agreed(group.joining("bank", plan)).predict("new.csv")


def test_training_and_scoring_do_not_meet(finished: Group) -> None:
    """One party scores, the other has begun the run anew: both are told."""
    files = new_rows(finished)
    shutil.rmtree(finished.folder("shop"))
    plan = replace(finished.plan(), stage="predict")
    outcomes = finished.all(bank=lambda: agreed(finished.joining("bank", plan)).predict(files["bank"]))
    for error in outcomes.values():
        assert type(error) is HandshakeRefused, repr(error)
        assert "(train)" in str(error)
        assert "(predict)" in str(error)


def test_every_prediction_asks_anew_and_leaves_the_runs_own_consent_alone(finished: Group) -> None:
    training = finished.joining("bank")
    training.agree(lambda joining: "given at the terminal")
    kept = (finished.folder("bank") / "consent.json").read_bytes()
    scoring = Joining(replace(training.plan, stage="predict"), training.home, RunFolder(finished.folder("bank")))
    assert scoring.agree("given by --yes") == "given by --yes"
    assert scoring.agree(None) is None
    assert (finished.folder("bank") / "consent.json").read_bytes() == kept


def test_a_party_killed_right_after_its_consent_can_begin(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "consent.json").write_text("{}")
    with RunFolder(tmp_path / "run").held():
        pass


def test_what_a_party_has_opened_to_a_partner_is_counted_over_its_runs(group: Group) -> None:
    from colonnade.methods.secure_lr import SecureLR

    config = SecureLR(epochs=2, key_size="insecure_test")
    first, second = (
        replace(group.plan(), method="secure_lr", config=config_to_json(config), seed=seed) for seed in (1, 2)
    )
    has_finished(group.all(dict.fromkeys(BOTH, first)))
    kept = group.home("shop") / "contributions.jsonl"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert not (group.home("bank") / "contributions.jsonl").exists(), "the label holder opens nothing"
    for party in BOTH:
        shutil.rmtree(group.folder(party))
    outcomes = group.all(dict.fromkeys(BOTH, second))
    assert isinstance(outcomes["shop"], LeakRefused)
    assert ", after 2 opened before. " in str(outcomes["shop"])
    assert isinstance(outcomes["bank"], PeerFailed)
