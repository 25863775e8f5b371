"""What a party at work says of itself, and what its folder says when it cannot speak any more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from colonnade.data import PartyTable
from colonnade.errors import PeerLost
from colonnade.launch import status as status_module
from colonnade.launch.lock import alone_in, is_held
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.status import RunStatus, StatusFile, Watcher, runs_in
from colonnade.ledger import Ledger, LedgerWriter
from colonnade.session import Progress, RunPlan, write_json
from colonnade.transport.grpc import GrpcLink

PLAN = RunPlan(name="churn", method="splitnn", roles={"label_holder": ("bank",), "feature_holder": ("shop",)})


class Peer:
    """A line as a watcher sees it."""

    def __init__(self, is_up: bool, silence_seconds: float = 0.0) -> None:
        self.is_up, self.silence_seconds = is_up, silence_seconds


def table() -> PartyTable:
    return PartyTable(pd.DataFrame({"id": range(9), "age": range(9)}), id="id", name="bank")


def begin(folder: Path, plan: RunPlan = PLAN) -> Path:
    PartyFolder(folder).begin(plan, table())
    return folder


def finish(folder: Path) -> Path:
    with LedgerWriter(folder / "ledger.jsonl") as ledger:
        ledger.mark("opened", party="bank", digest=PLAN.digest())
        ledger.mark("closed", step=9)
    write_json(folder / "outcome.json", {})
    return folder


def say(folder: Path, **facts: Any) -> None:
    (folder / "status.json").write_text(json.dumps({"party": "bank", "role": "label_holder", **facts}))


def only(runs: Path) -> RunStatus:
    (found,) = runs_in(runs)
    return found


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    return tmp_path / "runs"


def test_a_home_without_runs_has_none(runs: Path) -> None:
    assert runs_in(runs) == []
    runs.mkdir()
    (runs / "notes").mkdir()
    (runs / "a file").write_text("hello")
    (runs / "notes" / "more").mkdir()
    assert runs_in(runs) == []


def test_a_running_run_says_how_far_it_is(runs: Path) -> None:
    heard = (datetime.now(UTC) - timedelta(seconds=30)).isoformat()
    facts = {"state": "running", "step": 40, "total": 100, "steps_per_second": 2.0, "seconds_left": 30.0}
    with alone_in(begin(runs / "churn")):
        say(runs / "churn", **facts, bytes_sent=10, bytes_received=20, last_contact={"shop": heard, "telco": None})
        found = only(runs)
    assert (found.name, found.party, found.role, found.state) == ("churn", "bank", "label_holder", "running")
    assert (found.step, found.total, found.steps_per_second, found.seconds_left) == (40, 100, 2.0, 30.0)
    assert (found.bytes_sent, found.bytes_received) == (10, 20)
    assert found.last_contact_seconds["telco"] is None
    assert 30 <= (found.last_contact_seconds["shop"] or 0) < 60


def test_a_run_that_waits_says_for_whom_and_why(runs: Path) -> None:
    with alone_in(begin(runs / "churn")):
        say(runs / "churn", state="waiting", waiting_for=["shop"], reason="'shop' was restarted.")
        found = only(runs)
    assert (found.state, found.waiting_for, found.reason) == ("waiting", ["shop"], "'shop' was restarted.")


def test_a_run_that_has_said_nothing_yet_is_running_while_it_is_held(runs: Path) -> None:
    with alone_in(begin(runs / "churn")):
        assert only(runs).state == "running"
    assert only(runs).state == "stopped"


@pytest.mark.parametrize("state", ["starting", "waiting", "running"])
def test_a_run_whose_process_is_gone_is_stopped_whatever_it_said(runs: Path, state: str) -> None:
    say(begin(runs / "churn"), state=state, step=40, total=100, steps_per_second=2.0, seconds_left=30.0)
    found = only(runs)
    assert found.state == "stopped"
    assert found.step == 40
    assert (found.steps_per_second, found.seconds_left) == (None, None), "what is dead has no speed"


def test_the_lock_of_a_killed_process_does_not_count(runs: Path) -> None:
    folder = begin(runs / "churn")
    code = (
        "import fcntl, os, sys, time\n"
        "file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)\n"
        "fcntl.flock(file, fcntl.LOCK_EX)\n"
        "print('held', flush=True)\n"
        "time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code, folder / ".lock"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        say(folder, state="running")
        assert is_held(folder)
        assert only(runs).state == "running"
        process.kill()
        process.wait()
    assert (folder / ".lock").exists()
    assert only(runs).state == "stopped"


@pytest.mark.parametrize("state", ["interrupted", "failed"])
def test_a_run_that_ended_early_says_how(runs: Path, state: str) -> None:
    say(begin(runs / "churn"), state=state, step=4, seconds_left=3.0)
    found = only(runs)
    assert (found.state, found.step, found.seconds_left) == (state, 4, None)


@pytest.mark.parametrize("said", ["finished", "running", None])
def test_a_finished_run_is_known_by_its_closed_ledger(runs: Path, said: str | None) -> None:
    """Also if the process was killed between the last line of the ledger and its last word."""
    folder = finish(begin(runs / "churn"))
    if said:
        say(folder, state=said, seconds_left=3.0)
    found = only(runs)
    assert (found.state, found.seconds_left) == ("finished", None)


def test_parties_side_by_side_are_one_run(runs: Path) -> None:
    begin(runs / "churn" / "bank")
    begin(runs / "churn" / "shop")
    with alone_in(runs / "churn"):
        assert only(runs).state == "running"
    assert only(runs).state == "stopped"
    write_json(runs / "churn" / "simulation.json", {})
    found = only(runs)
    assert (found.state, found.name, found.party) == ("finished", "churn", None)


DAMAGED = {
    "empty": "",
    "half": '{"state": "runn',
    "not an object": "[1, 2]",
    "null": "null",
    "no text": "\x00\xff",
    "contacts of another kind": '{"state": "running", "last_contact": 5}',
    "contact that is no time": '{"state": "running", "last_contact": {"shop": "yesterday"}}',
    "contact without a zone": '{"state": "running", "last_contact": {"shop": "2026-01-01T00:00:00"}}',
    "contact that is a number": '{"state": "running", "last_contact": {"shop": 7}}',
    "waits for a number": '{"state": "running", "waiting_for": 5}',
    "state that is a list": '{"state": ["finished"]}',
    "state nobody knows": '{"state": "dancing"}',
}


@pytest.mark.parametrize("kind", DAMAGED)
def test_a_damaged_status_is_no_reason_to_hide_the_runs(runs: Path, kind: str) -> None:
    (begin(runs / "churn") / "status.json").write_text(DAMAGED[kind], encoding="latin-1")
    begin(runs / "other")
    states = {Path(one.folder).name: one.state for one in runs_in(runs)}
    assert states == {"churn": "stopped", "other": "stopped"}
    with alone_in(runs / "churn"):
        assert {one.state for one in runs_in(runs) if one.folder.endswith("churn")} == {"running"}


def test_a_damaged_plan_hides_that_run_only(runs: Path) -> None:
    begin(runs / "other")
    (begin(runs / "churn") / "plan.json").write_text("{")
    assert [Path(one.folder).name for one in runs_in(runs)] == ["other"]


def test_the_last_touched_comes_first_and_json_is_json(runs: Path) -> None:
    for place, name in enumerate(["first", "second", "third"]):
        os.utime(begin(runs / name), (1000 + place, 1000 + place))
    found = runs_in(runs)
    assert [Path(one.folder).name for one in found] == ["third", "second", "first"]
    assert json.loads(json.dumps(asdict(found[0])))["state"] == "stopped"


# --- the file itself ----------------------------------------------------------------------------------------------


class Overhearing(Watcher):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def connecting(self, links: Mapping[str, GrpcLink], trouble: Mapping[str, str]) -> None:
        self.heard.append("connecting")

    def connected(self, links: Mapping[str, GrpcLink]) -> None:
        self.heard.append("connected")

    def interrupted(self, error: Exception) -> None:
        self.heard.append("interrupted")


def progress(step: int, **changed: Any) -> Progress:
    facts = {"party": "bank", "role": "label_holder", "stage": "training", "step": step, "total": 100}
    return Progress(**{**facts, "bytes_sent": step, "bytes_received": 2 * step, "latest": {}, **changed})


def test_the_file_follows_a_run_from_its_first_wait_to_its_end(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "_WRITE_SECONDS", 0.0)
    folder = begin(runs / "churn")
    watcher, seen = Overhearing(), []
    status = StatusFile(folder, "bank", watcher=watcher, observer=seen.append)
    with alone_in(folder):
        status.connecting({"shop": Peer(False), "telco": Peer(True, 5.0)}, {})
        found = only(runs)
        assert (found.state, found.waiting_for) == ("waiting", ["shop"])
        assert found.last_contact_seconds["shop"] is None
        assert 4 <= (found.last_contact_seconds["telco"] or 0) < 30
        status.connected({"shop": Peer(True), "telco": Peer(True)})
        assert (only(runs).state, only(runs).waiting_for) == ("running", [])
        for step in (1, 2, 3):
            status.observe(progress(step))
        found = only(runs)
        assert (found.step, found.total, found.bytes_sent, found.bytes_received) == (3, 100, 3, 6)
        assert (found.steps_per_second or 0) > 0
        assert (found.seconds_left or 0) > 0
        status.interrupted(PeerLost("'shop' was restarted."))
        assert (only(runs).state, only(runs).reason) == ("waiting", "'shop' was restarted.")
        status.connected({"shop": Peer(True), "telco": Peer(True)})
        # After a resume the step goes back, and the rate must not become negative.
        status.observe(progress(1))
        status.observe(progress(2))
        assert (only(runs).steps_per_second or 0) > 0
    for state, error in (("finished", None), ("interrupted", KeyboardInterrupt), ("failed", PeerLost)):
        with suppress(KeyboardInterrupt, PeerLost), status.ended():
            if error is not None:
                raise error
        assert only(runs).state == state
    assert watcher.heard == ["connecting", "connected", "interrupted", "connected"]
    assert [one.step for one in seen] == [1, 2, 3, 1, 2]


def test_what_a_run_came_to_is_told_by_its_ledger_and_not_by_what_was_observed_last(runs: Path) -> None:
    folder = begin(runs / "churn")
    status = StatusFile(folder, "bank", watcher=Watcher(), observer=None)
    with alone_in(folder), status.ended():
        assert only(runs).state == "starting", "whatever an earlier attempt said"
        status.connected({"shop": Peer(True)})
        status.observe(progress(3))
        ledger = Ledger.read(finish(folder) / "ledger.jsonl")
        status.complete(ledger)
    found = only(runs)
    assert (found.state, found.step, found.total) == ("finished", 9, None)
    assert (found.bytes_sent, found.bytes_received) == (0, 0)
    assert found.last_contact_seconds == {}, "who is through is not waited for"


def test_a_run_that_failed_says_why(runs: Path) -> None:
    folder = begin(runs / "churn")
    status = StatusFile(folder, "bank", watcher=Watcher(), observer=None)
    with suppress(PeerLost), status.ended():
        raise PeerLost("'shop' went away.")
    assert (only(runs).state, only(runs).reason) == ("failed", "'shop' went away.")


def test_a_reason_to_wait_is_forgotten_when_the_run_goes_on(runs: Path) -> None:
    folder = begin(runs / "churn")
    status = StatusFile(folder, "bank", watcher=Watcher(), observer=None)
    with alone_in(folder):
        status.interrupted(PeerLost("'shop' was restarted."))
        assert only(runs).reason is not None
        status.connected({"shop": Peer(True)})
        assert only(runs).reason is None


def test_the_file_is_written_once_a_second_at_most_but_every_change_of_state(
    runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_module, "_WRITE_SECONDS", 1000.0)
    folder = begin(runs / "churn")
    status = StatusFile(folder, "bank", watcher=Watcher(), observer=None)
    with alone_in(folder):
        status.connected({"shop": Peer(True)})
        for step in range(50):
            status.observe(progress(step))
        assert only(runs).step is None
        status.interrupted(PeerLost("gone"))
        assert (only(runs).state, only(runs).step) == ("waiting", 49)
    assert not (folder / "status.json.part").exists()
