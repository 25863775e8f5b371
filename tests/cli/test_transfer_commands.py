"""Stages, findings, and rows that only one party knows: the commands with federated transfer learning."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.kills.harness import agreed, free_ports

from colonnade.errors import PolicyRefused, ProtocolError, UsageError
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.identity import make_home, pin_partner
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import RunFolder
from colonnade.ledger import Ledger

pytestmark = pytest.mark.timeout(180)

USAGE, POLICY, PEER = UsageError.exit_code, PolicyRefused.exit_code, ProtocolError.exit_code

RUN = """\
[run]
name = "credit"
method = "ftl"
roles = { source = "bank", target = "shop" }
seed = 7

[config]
width = 2
iterations = 2
folds = 2
protection = "none"
margin = -1.0
"""
TABLES = {
    "bank": 'source = "customers.csv"\nid = "customer"\nlabel = "pays"\n',
    "shop": 'source = "baskets.csv"\nid = "customer"\n',
}
FOLDER = "runs/credit"


class Market:
    """A bank with labels and a shop with other customers too."""

    def __init__(self, folder: Path, parties: tuple[str, ...] = ("bank", "shop")) -> None:
        self.folder, self.parties = folder, parties

    def write(self) -> Market:
        random = np.random.default_rng(3)
        worth = random.normal(size=300)
        ids = [f"cust-{number:05d}" for number in range(300)]
        bank = pd.DataFrame({"customer": ids, "income": worth + random.normal(0, 0.5, 300)})
        bank["pays"] = np.where(worth + random.normal(0, 0.3, 300) > 0, "pays", "does not")
        shop = pd.DataFrame({"customer": ids, "spent": worth + random.normal(0, 0.7, 300)})
        shop["visits"] = random.normal(size=300)
        self.frames = {"bank": bank[:220].round(5), "shop": shop[100:].round(5)}
        for name, file in (("bank", "customers.csv"), ("shop", "baskets.csv")):
            home = self.folder / name
            home.mkdir(exist_ok=True)
            self.frames[name].to_csv(home / file, index=False)
            if not (home / "party.toml").exists():
                (home / "party.toml").write_text(f'[party]\nname = "{name}"\n\n[table]\n{TABLES[name]}\n[policy]\n')
        self.frames["shop"].tail(12).to_csv(self.folder / "shop" / "new.csv", index=False)
        (self.folder / "run.toml").write_text(RUN)
        return self

    def edit(self, file: str, old: str, new: str) -> Market:
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, text
        path.write_text(text.replace(old, new))
        return self

    def queries(self, folder: str) -> list[dict[str, Any]]:
        lines = (self.folder / folder / "queries.jsonl").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    monkeypatch.chdir(tmp_path)
    return Market(tmp_path).write()


@pytest.fixture
def trained(market: Market, colonnade: Any) -> Market:
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert outcome.code == 0, outcome.err
    return market


# --- findings -----------------------------------------------------------------------------------------------------


def test_findings_are_shown_told_and_reported(market: Market, colonnade: Any) -> None:
    shown = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert shown.code == 0, shown.err
    assert "Transfer against learning alone" in shown.out
    assert shown.out.index("held-out rows") < shown.out.index("Transfer against") < shown.out.index("Report:")
    assert "self-learning" in shown.out
    told = colonnade("run", "--simulate", "run.toml", "--quiet", "--overwrite", "--json").json
    assert told["stage"] == "train"
    found = told["findings"]["safeguard"]
    assert found["columns"][0] == "target"
    assert [row[0] for row in found["rows"]] == ["shop", "shop"]
    assert found["values"]["shop"]["chosen"] in ("transfer", "self-learning")
    report = json.loads(colonnade("report", FOLDER, "--json").out)
    assert [one["title"] for one in report["findings"]] == [found["title"]]
    page = (market.folder / FOLDER / "report.html").read_text()
    assert 'id="findings"' in page
    assert found["title"] in page
    assert found["rows"][0][3] in page


# --- stages -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", ["--simulate", pytest.param("--local", marks=pytest.mark.slow)])
def test_a_validation_has_a_folder_of_its_own_and_no_model(market: Market, colonnade: Any, launch: str) -> None:
    outcome = colonnade("run", launch, "run.toml", "--stage", "validate", "--quiet")
    assert outcome.code == 0, outcome.err
    assert "Validation of transfer" in outcome.out
    assert "Score:" not in outcome.out, "there is nothing to score with"
    folder = market.folder / "runs" / "credit-validate"
    assert json.loads((folder / "bank" / "plan.json").read_text())["stage"] == "validate"
    assert not list(folder.glob("*/model"))
    assert (folder / "bank" / "findings.json").exists()
    assert not (folder / "shop" / "findings.json").exists(), "only who has labels knows how good transfer is"

    assert colonnade("audit", "verify", "runs/credit-validate").code == 0
    assert colonnade("report", "runs/credit-validate").code == 0
    assert "which makes no model" in (folder / "report.html").read_text()
    (status,) = colonnade("status", "--json").json["runs"]
    assert (status["name"], status["stage"], status["state"]) == ("credit", "validate", "finished")
    assert "credit (validate)" in colonnade("status").out
    refused = colonnade("predict", "runs/credit-validate", "--table", "shop=shop/new.csv")
    assert refused.code == USAGE
    assert "the stage validate, which makes no model" in refused.message
    assert "Train first" in refused.message


def test_the_stage_may_stand_in_the_file_and_the_option_goes_before_it(market: Market, colonnade: Any) -> None:
    market.edit("run.toml", "seed = 7", 'seed = 7\nstage = "validate"')
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--json")
    assert outcome.json["stage"] == "validate"
    assert outcome.json["folder"].endswith("credit-validate")
    assert outcome.json["metrics"] == {}
    assert list(outcome.json["findings"]) == ["validation of shop"]
    trained = colonnade("run", "--simulate", "run.toml", "--stage", "train", "--quiet", "--json")
    assert trained.code == 0, trained.err
    assert "safeguard" in trained.json["findings"]


@pytest.mark.parametrize("launch", [["--simulate"], ["--local"], ["--yes", "--home", "bank"]])
def test_a_stage_that_does_not_exist_is_refused_before_anything_is_done(
    market: Market, colonnade: Any, launch: list[str]
) -> None:
    for stage, words in (
        ("validat", "The method ftl has no stage 'validat'. Did you mean 'validate'?"),
        ("predict", "Score rows with 'colonnade predict FOLDER'"),
        ("align", "Find shared rows with 'colonnade align run.toml'"),
    ):
        outcome = colonnade("run", *launch, "run.toml", "--stage", stage)
        assert outcome.code == USAGE
        assert words in outcome.message
    market.edit("run.toml", "seed = 7", 'seed = 7\nstage = "valid"')
    outcome = colonnade("run", *launch, "run.toml")
    assert outcome.code == USAGE
    assert "run.toml: The method ftl has no stage 'valid'" in outcome.message
    assert not (market.folder / "runs").exists()
    assert "validate" in colonnade("methods", "ftl").out
    assert colonnade("methods", "ftl", "--json").json[0]["stages"] == ["train", "validate", "predict"]


# --- predictions, all parties here --------------------------------------------------------------------------------


def test_only_the_target_gives_rows_and_it_gets_predictions_only(trained: Market, colonnade: Any) -> None:
    outcome = colonnade("predict", FOLDER, "--table", "shop=shop/new.csv", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["rows"] == 12
    assert set(outcome.json["scores"][0]) == {"customer", "prediction"}, "no score leaves the source"
    assert [one["customer"] for one in outcome.json["scores"]] == list(trained.frames["shop"].customer.tail(12))
    assert "12 rows scored: all that shop gave." in outcome.err
    ledger = Ledger.read(trained.folder / FOLDER / "predictions" / "0001" / "shop" / "ledger.jsonl")
    assert not any("Alignment" in total.message or "Ids" in total.message for total in ledger.summary())

    given = colonnade("predict", FOLDER, "--table", "shop=shop/new.csv", "--table", "bank=shop/new.csv")
    assert given.code == USAGE
    assert "'bank' is the source of this run and brings no rows to be scored: shop does." in given.message
    nothing = colonnade("predict", FOLDER)
    assert nothing.code == USAGE
    assert "No table was given for shop. Add --table shop=FILE." in nothing.message


def test_the_outcome_says_how_to_score(market: Market, colonnade: Any) -> None:
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert f"predict {FOLDER} --table shop=FILE\n" in outcome.out, "and no table of the bank's"


def test_a_source_scores_no_more_rows_a_day_than_its_policy_allows(trained: Market, colonnade: Any) -> None:
    trained.edit("bank/party.toml", "[policy]\n", "[policy]\npredictions_per_day = 20\n")
    words = ("predict", FOLDER, "--table", "shop=shop/new.csv", "--output", "scores.csv")
    assert colonnade(*words).code == 0
    refused = colonnade(*words)
    assert refused.code == POLICY
    assert "it helps to score at most 20 rows for 'shop' within 24 hours; 12 were scored" in refused.message
    assert "policy.predictions_per_day (" in refused.message
    assert "bank/party.toml, line " in refused.message
    found = trained.queries("bank")
    assert [(one["event"], one["partner"], one["rows"]) for one in found] == [
        ("scored", "shop", 12),
        ("refused", "shop", 12),
    ]
    trained.frames["shop"].tail(8).to_csv(trained.folder / "shop" / "new.csv", index=False)
    assert colonnade(*words).code == 0, "what was refused does not count"
    trained.frames["shop"].tail(1).to_csv(trained.folder / "shop" / "new.csv", index=False)
    assert colonnade(*words).code == POLICY
    old = [{**one, "time": "2001-01-01T00:00:00+00:00"} for one in trained.queries("bank")]
    (trained.folder / "bank" / "queries.jsonl").write_text("".join(json.dumps(one) + "\n" for one in old))
    assert colonnade(*words).code == 0, "yesterday's do not count"


# --- joined -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    """Two homes that can join a run."""
    ports = dict(zip(("bank", "shop"), free_ports(2), strict=True))
    for party, port in ports.items():
        make_home(tmp_path / party, party, f"127.0.0.1:{port}")
        settings = f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n\n[table]\n{TABLES[party]}\n[policy]\n'
        (tmp_path / party / "party.toml").write_text(settings)
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        certificate = (tmp_path / peer / "certificate.pem").read_bytes()
        pin_partner(tmp_path / party, certificate, f"127.0.0.1:{ports[peer]}")
    monkeypatch.chdir(tmp_path / "shop")
    return Market(tmp_path).write()


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


def joining(market: Market, party: str, stage: str = "train") -> Joining:
    plan = read_run_file(market.folder / "run.toml")
    name = "credit" if stage in ("train", "predict") else f"credit-{stage}"
    folder = RunFolder(market.folder / party / "runs" / name)
    return agreed(Joining(replace(plan, stage=stage), read_party_home(market.folder / party), folder))


def take_part(market: Market, party: str, stage: str = "train") -> Any:
    mine = joining(market, party, stage)
    return mine.run()


def score(market: Market, party: str, table: str | None) -> Any:
    return joining(market, party, "predict").predict(table)


def test_joined_homes_train_and_score_rows_of_the_target(
    paired: Market, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with partner(lambda: take_part(paired, "bank")) as ended:
        outcome = colonnade("run", "--yes", "../run.toml", "--quiet")
    assert outcome.code == 0, outcome.err
    assert f"predict {FOLDER} --table FILE\n" in outcome.out.replace("./", "")
    assert "safeguard" in ended[0].findings
    for party in ("bank", "shop"):
        sent = Ledger.read(paired.folder / party / FOLDER / "ledger.jsonl").summary()
        known = {one.name for one, _ in joining(paired, party).sends()}
        ours = {one.message for one in sent if one.direction == "sent"}
        assert ours - known <= {"Hello", "HeldCheckpoints", "ResumeFrom", "Finished", "Goodbye"}, "all was announced"

    asked = colonnade("predict", FOLDER, "--table", "new.csv")
    assert asked.code == POLICY
    assert "RowsToScore" in asked.err
    assert "Ids" not in asked.err, "no row is looked for"
    with partner(lambda: score(paired, "bank", None)) as ended:
        outcome = colonnade("predict", FOLDER, "--table", "new.csv", "--yes", "--json")
    assert outcome.code == 0, outcome.err
    assert ended == [None]
    assert "12 rows scored: all that were given." in outcome.err
    assert set(outcome.json["scores"][0]) == {"customer", "prediction"}

    monkeypatch.chdir(paired.folder / "bank")
    told = colonnade("predict", FOLDER, "--table", "customers.csv", "--yes")
    assert told.code == USAGE
    assert "'bank' is the source of this run and brings no rows" in told.message
    with partner(lambda: score(paired, "shop", str(paired.folder / "shop" / "new.csv"))) as ended:
        outcome = colonnade("predict", FOLDER, "--yes")
    assert outcome.code == 0, outcome.err
    assert outcome.out == ""
    assert "Done; the predictions went to shop." in outcome.err
    assert len(ended[0]) == 12
    assert [one["rows"] for one in paired.queries("bank")] == [12, 12]

    paired.edit("bank/party.toml", "[policy]\n", "[policy]\npredictions_per_day = 30\n")
    with partner(lambda: score(paired, "shop", str(paired.folder / "shop" / "new.csv"))) as ended:
        outcome = colonnade("predict", FOLDER, "--yes")
    assert outcome.code == POLICY
    assert "24 were scored" in outcome.message
    assert "its policy refuses this run" in str(ended[0]), "and not which rule"
    monkeypatch.chdir(paired.folder / "shop")
    with partner(lambda: score(paired, "bank", None)):
        outcome = colonnade("predict", FOLDER, "--table", "new.csv", "--yes")
    assert outcome.code == PEER
    assert [one["event"] for one in paired.queries("bank")] == ["scored", "scored", "refused", "refused"]


def test_joined_homes_validate_and_only_the_source_learns_how_good_it_is(paired: Market, colonnade: Any) -> None:
    with partner(lambda: take_part(paired, "bank", "validate")) as ended:
        outcome = colonnade("run", "--yes", "../run.toml", "--stage", "validate", "--quiet")
    assert outcome.code == 0, outcome.err
    assert list(ended[0].findings) == ["validation of shop"]
    assert "Validation" not in outcome.out
    assert "Score:" not in outcome.out
    page = (paired.folder / "shop" / "runs" / "credit-validate" / "report.html").read_text()
    assert "What it finds out, bank has." in page
    consent = json.loads((paired.folder / "shop" / "runs" / "credit-validate" / "consent.json").read_text())
    assert consent["how"] == "given by --yes"
    again = colonnade("run", "--yes", "../run.toml", "--stage", "validate")
    assert again.code == USAGE
    assert "holds a finished run already" in again.message


def test_an_operator_is_asked_for_the_stage_by_name(paired: Market, colonnade: Any) -> None:
    outcome = colonnade("run", "../run.toml", "--stage", "validate")
    assert outcome.code == POLICY
    assert "The stage validate of the run 'credit' (ftl) will send from 'shop'" in outcome.err
    assert "MirroredSignals" in outcome.err


def test_parties_that_name_different_stages_are_told(paired: Market, colonnade: Any) -> None:
    with partner(lambda: take_part(paired, "bank")) as ended:
        outcome = colonnade("run", "--yes", "../run.toml", "--stage", "validate", "--quiet")
    assert outcome.code == PEER
    assert "(validate)" in outcome.message
    assert "(train)" in outcome.message
    assert "(validate)" in str(ended[0])


def test_a_validation_that_was_interrupted_is_taken_up_by_the_same_command(
    market: Market, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("run", "--simulate", "run.toml", "--stage", "validate", "--quiet")
    with monkeypatch.context() as patched:

        def interrupted(*_: Any, **__: Any) -> None:
            raise KeyboardInterrupt

        patched.setattr("colonnade.launch.simulation.play_in_threads", interrupted)
        stopped = colonnade(*words)
    assert stopped.code == 130
    assert "run the same command again" in stopped.message
    market.edit("run.toml", "seed = 7", "seed = 8")
    other = colonnade(*words)
    assert other.code == USAGE
    assert "an interrupted run with other settings (run.seed)" in other.message
    market.edit("run.toml", "seed = 8", "seed = 7")
    assert colonnade(*words).code == 0
    done = colonnade(*words)
    assert done.code == USAGE
    assert "holds a finished run already" in done.message
    assert colonnade(*words, "--overwrite").code == 0


def test_policies_hold_for_a_validation_as_for_a_training(trained: Market, colonnade: Any) -> None:
    words = ("run", "--simulate", "run.toml", "--stage", "validate", "--quiet")
    for rule in ('methods = ["secure_lr"]', 'never_send = ["PLAIN"]', "minimum_shared_rows = 5000", "maximum_runs = 1"):
        trained.edit("bank/party.toml", "[policy]\n", f"[policy]\n{rule}\n")
        refused = colonnade(*words)
        assert refused.code == POLICY, rule
        assert f"policy.{rule.split()[0]}" in refused.message
        assert not (trained.folder / "runs" / "credit-validate").exists()
        trained.edit("bank/party.toml", f"{rule}\n", "")
    assert colonnade(*words).code == 0
