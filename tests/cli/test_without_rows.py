"""The commands, with a party whose role holds no table."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests import tally
from tests.cli.conftest import Outcome
from tests.kills.harness import agreed
from tests.unit.launch.test_without_rows import homes_in

from colonnade.errors import UsageError
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import RunFolder

Command = Callable[..., Outcome]


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Homes of all parties, of which the helper's has no table."""
    tally.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    homes_in(tmp_path)
    return tmp_path


@contextmanager
def partners(folder: Path, act: Callable[[str, Joining], Any], stage: str = "train") -> Iterator[None]:
    """Let bank and shop take part, each in a thread, while the operator of the helper gives a command."""
    plan = tally.METHOD.in_stage(read_run_file(folder / "run.toml"), stage)

    def take_part(party: str) -> None:
        with RunFolder(folder / party / "runs" / "count").held() if stage == "train" else nullcontext():
            home = read_party_home(folder / party)
            act(party, agreed(Joining(plan, home, RunFolder(folder / party / "runs" / "count", b""))))

    threads = [threading.Thread(target=take_part, args=(party,), daemon=True) for party in ("bank", "shop")]
    for thread in threads:
        thread.start()
    yield
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_init_makes_a_home_without_a_table(colonnade: Command, project: Path) -> None:
    assert colonnade("init", "judge", "--no-table").code == 0
    assert not read_party_home(project / "judge").has_table
    assert "[table]" in (project / "judge" / "party.toml").read_text(), "it says what is missing, and why"


@pytest.mark.parametrize("option", [("--table", "t.csv"), ("--id", "id"), ("--label", "left")])
def test_init_refuses_a_table_and_none(colonnade: Command, option: tuple[str, str], project: Path) -> None:
    outcome = colonnade("init", "judge", "--no-table", *option)
    assert outcome.code == UsageError.exit_code
    assert "--no-table excludes" in outcome.err
    assert not (project / "judge").exists()


def test_run_shows_that_it_brings_no_table_and_predict_asks_for_none(colonnade: Command) -> None:
    outcome = colonnade("run", "--simulate", "run.toml")
    assert outcome.code == 0, outcome.err
    assert "helper: brings no table" in outcome.err
    (line,) = [line for line in outcome.out.splitlines() if line.startswith("helper")]
    assert line.split()[1:5] == ["collaborator", "—", "—", "—"]
    assert "--table bank=FILE --table shop=FILE\n" in outcome.out

    given = ("--table", "bank=bank/t.csv", "--table", "shop=shop/t.csv")
    scored = colonnade("predict", "runs/count", *given)
    assert (scored.code, len(scored.out.splitlines())) == (0, 101)
    refused = colonnade("predict", "runs/count", *given, "--table", "helper=shop/t.csv")
    assert refused.code == UsageError.exit_code
    assert "'helper' is the collaborator of this run and brings no rows to be scored: bank and shop do." in refused.err


def test_run_as_json_has_no_counts_of_it(colonnade: Command) -> None:
    outcome = colonnade("run", "--simulate", "run.toml", "--json", "--quiet")
    assert outcome.json["parties"]["helper"]["rows"] is None
    assert outcome.json["parties"]["helper"]["shared_rows"] is None
    assert outcome.json["parties"]["shop"]["shared_rows"] == 100


def test_a_role_that_needs_a_table_is_refused_in_a_home_without_one(colonnade: Command, project: Path) -> None:
    (project / "shop" / "party.toml").write_text('[party]\nname = "shop"\n')
    outcome = colonnade("run", "--simulate", "run.toml")
    assert outcome.code == UsageError.exit_code
    assert "'shop' plays feature_holder" in outcome.err
    assert "party.toml has no [table]" in outcome.err


def test_its_operator_runs_and_predicts_from_its_own_home(
    colonnade: Command, monkeypatch: pytest.MonkeyPatch, project: Path
) -> None:
    monkeypatch.chdir(project / "helper")
    handler = signal.getsignal(signal.SIGTERM)
    with partners(project, lambda party, joining: joining.run()):
        ran = colonnade("run", "../run.toml", "--yes")
    signal.signal(signal.SIGTERM, handler)
    assert ran.code == 0, ran.err
    assert "helper: brings no table" in ran.err
    assert "predict runs/count\n" in ran.out, "with nothing to give"

    def score(party: str, joining: Joining) -> None:
        joining.predict(str(project / party / "t.csv"))

    refused = colonnade("predict", "runs/count", "--table", "t.csv", "--yes")
    assert "brings no rows to be scored: bank and shop do" in refused.err
    with partners(project, score, stage="predict"):
        predicted = colonnade("predict", "runs/count", "--yes")
    assert predicted.code == 0, predicted.err
    assert "the scores went to bank" in predicted.err


def test_align_is_for_parties_with_rows(colonnade: Command, monkeypatch: pytest.MonkeyPatch, project: Path) -> None:
    tally.install_in_processes(monkeypatch, project)
    outcome = colonnade("align", "--local", "run.toml", "--json", "--home", "helper=helper", "--home", "shop=shop")
    assert outcome.code == 0, outcome.err
    assert set(outcome.json["parties"]) == {"bank", "shop"}
    monkeypatch.chdir(project / "helper")
    refused = colonnade("align", "../run.toml", "--yes")
    assert refused.code == UsageError.exit_code
    assert "'helper' has nothing to do in an alignment" in refused.err
    assert "Only bank and shop give this command" in refused.err


def test_doctor_and_methods_and_status_know_of_it(colonnade: Command) -> None:
    seen = colonnade("doctor", "--home", "helper").out
    assert "roles that hold no table" in seen
    assert "nothing: it adds up" in colonnade("methods", "tally").out
    colonnade("run", "--simulate", "run.toml", "--quiet")
    assert "count" in colonnade("status", "--home", ".").out
    assert colonnade("report", "runs/count").code == 0
    assert colonnade("audit", "verify", "runs/count").code == 0
