"""`colonnade run` and `predict` in a party's home, and `doctor` and `status`, as an operator would use them.

The operator's command runs here; the partner is a thread.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.kills.harness import Homes, agreed
from tests.unit.launch.test_joining import BOTH, Group, edit, group_in, new_rows

from colonnade.errors import PolicyRefused, ProtocolError, UsageError
from colonnade.launch import doctor, join
from colonnade.launch.doctor import examine_peer
from colonnade.launch.lock import alone_in
from colonnade.ledger import Ledger
from colonnade.session import read_json

pytestmark = pytest.mark.timeout(180)

USAGE, POLICY, PEER, INTERRUPTED = UsageError.exit_code, PolicyRefused.exit_code, ProtocolError.exit_code, 130
BANK_SENDS = ("AlignmentOpening", "BlindedIds", "SharedRows", "CutGradient", "Verdict", "TrainedModel")
SHOP_SENDS = ("AlignmentOffer", "TwiceBlindedIds", "IdMarks", "CutWidth", "CutActivations", "HeldOutActivations")


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    made = group_in(tmp_path)
    monkeypatch.chdir(tmp_path / "bank")
    return made


@pytest.fixture(scope="module")
def finished_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = group_in(tmp_path_factory.mktemp("finished"))
    made.all()
    return made.homes.folder


@pytest.fixture
def finished(finished_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Group:
    shutil.copytree(finished_once, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path / "bank")
    return Group(Homes(tmp_path, BOTH, epochs=2))


@contextmanager
def partner(action: Callable[[], Any]) -> Iterator[list[Any]]:
    """Let the partner do its part meanwhile; what it ends with is in the list."""
    ended: list[Any] = []

    def act() -> None:
        try:
            ended.append(action())
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield ended
    thread.join(60)
    assert not thread.is_alive(), "the partner hangs"


def type_in(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Let a person at a terminal answer."""

    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return line

    monkeypatch.setattr(sys, "stdin", Terminal())


def open_no_door(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join, "Endpoint", lambda *_, **__: pytest.fail("a door was opened"))


# --- run ----------------------------------------------------------------------------------------------------------


def test_a_run_with_a_partner_from_consent_to_report(group: Group, colonnade: Any) -> None:
    with partner(lambda: group.take_part("shop")) as ended:
        outcome = colonnade("run", "--yes", "--no-compare", "../run.toml")
    assert outcome.code == 0, outcome.err
    assert "bank: 400 rows, 3 columns used (3 numbers), label label" in outcome.err
    assert "Consent: given by --yes." in outcome.err
    assert "Connected to shop." in outcome.err
    assert "label_holder" in outcome.out
    assert "shop" not in outcome.out, "the partner keeps its row"
    assert f"Report:  {Path('runs/churn/report.html')}" in outcome.out.replace("./", "")
    assert ended[0].folder == group.folder("shop")
    assert read_json(group.folder("bank") / "consent.json")["how"] == "given by --yes"

    again = colonnade("run", "--yes", "../run.toml")
    assert again.code == USAGE
    assert "holds a finished run already" in again.err
    (group.folder("bank") / "report.html").unlink()
    written = colonnade("run", "../run.toml", "--json")
    assert written.code == 0, written.err
    assert "its report is written again" in written.err
    assert list(written.json["parties"]) == ["bank"]
    assert (group.folder("bank") / "report.html").exists()


def test_without_a_terminal_and_without_yes_nothing_is_sent(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    outcome = colonnade("run", "../run.toml")
    assert outcome.code == POLICY
    assert "nothing was sent" in outcome.message
    assert "--yes" in outcome.message
    assert 'consent = "policy"' in outcome.message
    for name in BANK_SENDS:
        assert name in outcome.err
    assert not any(name in outcome.err for name in SHOP_SENDS), "what others send is their operators' business"
    assert "PLAIN" in outcome.err
    assert "the label of every row" in " ".join(outcome.err.split()), "what it reveals, in the declaration's words"
    assert not group.folder("bank").exists(), "no ledger, no consent, no folder"


@pytest.mark.parametrize("answer", ["n\n", "\n", "", "perhaps\n"])
def test_who_does_not_say_yes_sends_nothing(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    open_no_door(monkeypatch)
    type_in(monkeypatch, answer)
    outcome = colonnade("run", "../run.toml")
    assert outcome.code == INTERRUPTED
    assert "Nothing was sent." in outcome.err
    assert not (group.folder("bank") / "consent.json").exists()
    assert not (group.folder("bank") / "ledger.jsonl").exists()


def test_an_operator_at_a_terminal_says_yes_and_json_stays_json(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    type_in(monkeypatch, "y\n")
    edit(Path("../run.toml"), "[run]\n", '[run]\npurpose = "Keep <our> clients."\nretention = "Until 2020-02-29."\n')
    edit(Path("party.toml"), "[policy]\n", "[policy]\nminimum_shared_rows = 7\n")
    with partner(lambda: group.take_part("shop")):
        outcome = colonnade("run", "--no-compare", "../run.toml", "--json")
    assert outcome.code == 0, outcome.err
    assert "Purpose: Keep <our> clients." in outcome.err
    assert "Retention: Until 2020-02-29." in outcome.err
    assert "Send these? [y/N]" in outcome.err
    assert outcome.json["run"] == "churn"
    kept = read_json(group.folder("bank") / "consent.json")
    assert kept["how"] == "given at the terminal"
    assert kept["digest"] == outcome.json["digest"]

    page = (group.folder("bank") / "report.html").read_text()
    for said in (
        "given at the terminal",
        kept["when"][:10],
        kept["account"],
        "Keep &lt;our&gt; clients.",
        "known there only",
    ):
        assert said in page
    told = colonnade("report", str(group.folder("bank")), "--json").json
    assert told["purpose"] == "Keep <our> clients."
    assert told["consents"] == {"bank": kept}, "what the partner agreed to, it alone knows"
    assert told["policies"]["bank"]["minimum_shared_rows"] == 7
    assert list(told["policies"]) == ["bank"]
    assert told["gains"]["auc"]["low"] < told["gains"]["auc"]["value"] < told["gains"]["auc"]["high"]
    assert "Retention is over" in page
    assert "Delete" in colonnade("status").out
    assert "kept until 2020-02-29" in colonnade("status").out


def test_a_policy_may_speak_for_the_operator(group: Group, colonnade: Any) -> None:
    edit(group.home("bank") / "party.toml", "[policy]\n", '[policy]\nconsent = "policy"\n')
    with partner(lambda: group.take_part("shop")):
        outcome = colonnade("run", "--no-compare", "../run.toml")
    assert outcome.code == 0, outcome.err
    assert "Consent: given by policy.consent in party.toml." in outcome.err


def test_consent_is_remembered_after_an_interrupt_but_not_for_another_run(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(join, "take_part_remotely", interrupted)
        outcome = colonnade("run", "--yes", "../run.toml")
    assert outcome.code == INTERRUPTED
    assert "run the same command again" in outcome.err
    (found,) = colonnade("status", "--json").json["runs"]
    assert found["state"] == "interrupted"

    with monkeypatch.context() as patched:
        patched.setattr(join, "take_part_remotely", interrupted)
        patched.setattr("colonnade.cli.run.ask_consent", lambda _: pytest.fail("asked again"))
        outcome = colonnade("run", "../run.toml")
    assert "Consent: given by --yes, before this run was interrupted." in outcome.err

    open_no_door(monkeypatch)
    edit(group.homes.folder / "run.toml", "seed = 7", "seed = 8")
    outcome = colonnade("run", "../run.toml")
    assert outcome.code == POLICY, "another agreement needs another word"
    outcome = colonnade("run", "--yes", "../run.toml")
    assert outcome.code == USAGE
    assert "run.seed" in outcome.message


def test_a_run_file_that_differs_is_named_at_both(group: Group, colonnade: Any) -> None:
    other = replace(group.plan(), seed=8)
    with partner(lambda: group.take_part("shop", other)) as ended:
        outcome = colonnade("run", "--yes", "../run.toml")
    assert outcome.code == PEER
    assert "'bank' and 'shop' disagree on run.seed. Use the same run.toml at both parties." in outcome.err
    assert "disagree on run.seed" in str(ended[0])


def test_a_partner_whose_policy_refuses_is_told_apart(group: Group, colonnade: Any) -> None:
    edit(group.home("shop") / "party.toml", "[policy]\n", '[policy]\npartners = ["telco"]\n')
    with partner(lambda: group.take_part("shop")) as ended:
        outcome = colonnade("run", "--yes", "../run.toml")
    assert outcome.code == PEER
    assert "'shop' stopped at step 0: its policy refuses this run." in outcome.err
    assert isinstance(ended[0], PolicyRefused)


def test_what_keeps_a_party_from_joining_is_said_before_a_door_opens(
    group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    elsewhere = colonnade("run", "--yes", "--home", str(group.homes.folder), "../run.toml")
    assert elsewhere.code == USAGE
    assert "is no party's home" in elsewhere.message
    assert "--local" in elsewhere.message
    (group.home("bank") / "partners" / "shop.pem").unlink()
    unpaired = colonnade("run", "--yes", "../run.toml")
    assert unpaired.code == USAGE
    assert "'shop' is not paired with this party" in unpaired.message
    edit(group.homes.folder / "run.toml", '"bank"', '"telco"')
    absent = colonnade("run", "--yes", "../run.toml")
    assert absent.code == USAGE
    assert "'bank' plays no role" in absent.message


def test_a_run_that_is_under_way_is_not_begun_twice(group: Group, colonnade: Any) -> None:
    with alone_in(group.folder("bank")):
        outcome = colonnade("run", "--yes", "../run.toml")
    assert outcome.code == USAGE
    assert "Another process is at work" in outcome.message


# --- predict ------------------------------------------------------------------------------------------------------


def test_scores_go_to_the_label_holder(finished: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    files = new_rows(finished)
    plan = replace(finished.plan(), stage="predict")

    def score(party: str) -> Any:
        return agreed(finished.joining(party, plan)).predict(files[party])

    with partner(lambda: score("shop")) as ended:
        outcome = colonnade("predict", "runs/churn", "--table", "new.csv", "--yes", "--json")
    assert outcome.code == 0, outcome.err
    assert ended == [None]
    assert outcome.json["rows"] == 6
    assert "6 rows scored" in outcome.err

    monkeypatch.chdir(finished.home("shop"))
    with partner(lambda: score("bank")) as ended:
        outcome = colonnade("predict", "runs/churn", "--table", "new.csv", "--yes")
    assert outcome.code == 0, outcome.err
    assert outcome.out == "", "no score leaves the label holder"
    assert "the scores went to bank" in outcome.err
    assert len(ended[0]) == 6


def test_a_prediction_asks_too_and_harms_no_finished_run(
    finished: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_no_door(monkeypatch)
    new_rows(finished)
    outcome = colonnade("predict", "runs/churn", "--table", "new.csv")
    assert outcome.code == POLICY
    assert "nothing was sent" in outcome.message
    assert (finished.folder("bank") / "model").exists()
    Ledger.read(finished.folder("bank") / "ledger.jsonl").verify()


# --- doctor -------------------------------------------------------------------------------------------------------


def test_the_doctor_passes_a_good_home(group: Group, colonnade: Any) -> None:
    outcome = colonnade("doctor")
    assert outcome.code == 0
    assert outcome.out.count("PASS") == 8
    assert "FAIL" not in outcome.out
    assert "All is well." in outcome.err
    told = colonnade("doctor", "--json")
    assert told.code == 0
    assert told.json["passed"] is True
    assert {one["check"] for one in told.json["findings"]} >= {"key", "table", "port"}


def test_the_doctor_fails_a_broken_home_and_says_what_to_do(group: Group, colonnade: Any) -> None:
    (group.home("bank") / "key.pem").chmod(0o644)
    (group.home("bank") / "table.csv").unlink()
    outcome = colonnade("doctor", "--home", str(group.home("bank")))
    assert outcome.code == 1
    assert outcome.out.count("FAIL") == 2
    assert "chmod 600" in outcome.out
    assert "2 of 8 checks failed." in outcome.err
    told = colonnade("doctor", "--json")
    assert told.code == 1
    assert told.json["passed"] is False
    assert [one["check"] for one in told.json["findings"] if not one["passed"]] == ["key", "table"]
    nowhere = colonnade("doctor", "--home", "nowhere", "--json")
    assert nowhere.code == 1
    assert "colonnade init" in nowhere.json["findings"][0]["fix"]


def test_the_doctor_talks_to_a_partner(group: Group, colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with partner(lambda: list(examine_peer(group.home("shop"), "bank"))) as ended:
        outcome = colonnade("doctor", "--peer", "shop", "--json")
    assert outcome.code == 0, outcome.out
    assert [one["check"] for one in outcome.json["findings"]][-1] == "other direction"
    assert all(one.passed for one in ended[0])

    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 1.0)
    absent = colonnade("doctor", "--peer", "shop")
    assert absent.code == 1
    assert "FAIL  connection: 'shop' did not answer" in absent.out
    assert "colonnade doctor --peer bank" in absent.out
    unknown = colonnade("doctor", "--peer", "shpo", "--json")
    assert unknown.code == 1
    assert "Did you mean 'shop'" in unknown.json["findings"][-1]["seen"]


# --- status -------------------------------------------------------------------------------------------------------


def test_status_without_runs(group: Group, colonnade: Any) -> None:
    outcome = colonnade("status")
    assert (outcome.code, outcome.out) == (0, "")
    assert "There are no runs" in outcome.err
    assert colonnade("status", "--json").json == {"runs": []}
    nowhere = colonnade("status", "--home", "nowhere")
    assert nowhere.code == USAGE
    assert "There is no folder nowhere" in nowhere.message


def test_status_shows_every_run_and_how_far_it_is(finished: Group, colonnade: Any) -> None:
    running = finished.home("bank") / "runs" / "second"
    shutil.copytree(finished.folder("bank"), running)
    (running / "outcome.json").unlink()
    facts = {"state": "running", "party": "bank", "step": 40, "total": 100, "steps_per_second": 2.0}
    facts |= {"seconds_left": 75.0, "bytes_sent": 2048, "bytes_received": 10, "last_contact": {"shop": None}}
    (running / "status.json").write_text(json.dumps(facts))
    with alone_in(running):
        outcome = colonnade("status")
        told = {one["folder"]: one for one in colonnade("status", "--json").json["runs"]}
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].split()[:4] == ["run", "party", "state", "step"]
    (line,) = [one for one in lines if "40 of 100" in one]
    for word in ("bank", "running", "2.0", "1 min 15 s", "2.0 KiB", "10 B", "shop never"):
        assert word in line
    (line,) = [one for one in lines if "finished" in one]
    assert "ago" not in line, "who is through is not waited for"
    ledger = Ledger.read(finished.folder("bank") / "ledger.jsonl")
    of_all = {one["folder"]: one for one in told.values()}[str(Path("runs/churn"))]
    assert of_all["bytes_sent"] == sum(ledger.bytes_sent().values())
    assert of_all["total"] is None
    assert {Path(folder).name: one["state"] for folder, one in told.items()} == {
        "second": "running",
        "churn": "finished",
    }
    stopped = colonnade("status", "--json").json["runs"]
    assert {one["state"] for one in stopped} == {"stopped", "finished"}
