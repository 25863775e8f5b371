"""Rows known to all parties, or to one only: the commands with cross-view training."""

from __future__ import annotations

import io
import shutil
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
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
name = "churn"
method = "fedcvt"
roles = { label_holder = "bank", feature_holder = "shop" }
seed = 7

[config]
epochs = 2
shared_width = 4
unique_width = 4
candidates = ["fedcvt", "local"]
"""
TABLES = {
    "bank": 'source = "customers.csv"\nid = "customer"\nlabel = "pays"\n',
    "shop": 'source = "baskets.csv"\nid = "customer"\n',
}
FOLDER = "runs/churn"
NEW = ("--table", "bank=bank/new.csv", "--table", "shop=shop/new.csv")


class Town:
    """A bank and a shop with some customers in common, and many of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self) -> Town:
        random = np.random.default_rng(3)
        worth = random.normal(size=330)
        ids = [f"cust-{number:05d}" for number in range(330)]
        bank = pd.DataFrame({"customer": ids, "income": worth + random.normal(0, 0.5, 330)})
        bank["pays"] = np.where(worth + random.normal(0, 0.3, 330) > 0, "pays", "does not")
        shop = pd.DataFrame({"customer": ids, "spent": worth + random.normal(0, 0.5, 330)})
        shop["visits"] = random.normal(size=330)
        # Of the new ones, both know ten, only the bank five and only the shop fifteen.
        files = {
            "bank/customers.csv": bank[:200],
            "shop/baskets.csv": shop[100:300],
            "bank/new.csv": bank[300:315].drop(columns="pays"),
            "shop/new.csv": shop[305:],
        }
        for file, frame in files.items():
            (self.folder / file).parent.mkdir(exist_ok=True)
            frame.round(5).to_csv(self.folder / file, index=False)
        for name, table in TABLES.items():
            home = self.folder / name
            if not (home / "party.toml").exists():
                (home / "party.toml").write_text(f'[party]\nname = "{name}"\n\n[table]\n{table}\n[policy]\n')
        (self.folder / "run.toml").write_text(RUN)
        return self

    def edit(self, file: str, old: str, new: str) -> Town:
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, text
        path.write_text(text.replace(old, new))
        return self

    def set(self, setting: str) -> Town:
        return self.edit("run.toml", "[config]\n", f"[config]\n{setting}\n")


@pytest.fixture
def town(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    monkeypatch.chdir(tmp_path)
    return Town(tmp_path).write()


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    from colonnade.cli import main

    folder = tmp_path_factory.mktemp("churn")
    Town(folder).write()
    shown = io.StringIO()
    with chdir(folder), redirect_stdout(shown), pytest.raises(SystemExit) as ending:
        main(["run", "--simulate", "run.toml", "--quiet"])
    assert ending.value.code == 0
    return folder, shown.getvalue()


@pytest.fixture
def trained(trained_once: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """A copy of a town whose training is done."""
    shutil.copytree(trained_once[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Town(tmp_path)


# --- before a run -------------------------------------------------------------------------------------------------


def test_the_method_and_its_settings_are_shown(colonnade: Any) -> None:
    shown = colonnade("methods", "fedcvt")
    assert shown.code == 0, shown.err
    assert 'list of "fedcvt", "vanilla", "wide", "mean_fill", "mftl", "ftl", "local"' in shown.out
    for level in ("Codes", "HeldOutCodes", "SealedCodes"):
        assert f"{level}: feature_holder → label_holder" in shown.out


# --- runs and reports ---------------------------------------------------------------------------------------------


def test_a_training_shows_each_situation_and_how_to_score(trained_once: tuple[Path, str]) -> None:
    folder, shown = trained_once
    assert "Who knows a row, and how well it is scored" in shown
    for who in ("all parties", "bank only", "shop only"):
        assert who in shown
    assert "Labels given to rows that only a partner knows" in shown
    assert "central (shared rows, all columns in one place)" in shown, "the others cannot be put together"
    assert "--table bank=FILE --table shop=FILE\n" in shown
    page = (folder / FOLDER / "report.html").read_text()
    assert "Columns in effect:</strong> bank gets Codes from shop without protection." in page
    assert "Labels can be read:</strong> shop gets CodeGradient from bank without protection." in page
    assert "Loss, fedcvt of bank." in page


def test_a_report_says_what_noise_adds_up_to_and_that_gradients_had_some(town: Town, colonnade: Any) -> None:
    town.set('level = 1\ndefence = "marvell"')
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare")
    assert outcome.code == 0, outcome.err
    assert "What codes with noise add up to" in outcome.out
    told = colonnade("report", FOLDER, "--json").json
    marks = " ".join(told["marks"])
    (budget,) = [one for one in told["findings"] if one["name"] == "privacy budget"]
    assert "Level 1: codes cross clipped and with noise." in marks
    assert budget["values"]["epsilon"] > 0
    assert "can be read" not in marks
    assert "Columns in effect" not in marks


def test_a_report_says_that_encryption_leaves_scores_and_labels(town: Town, colonnade: Any) -> None:
    settings = 'level = 2\nkey_size = "insecure_test"\nsealed_pull = "one_sided"\nanchors = 20'
    town.set(settings).edit("run.toml", "epochs = 2", "epochs = 1")
    outcome = colonnade("run", "--simulate", "run.toml", "--no-compare")
    assert outcome.code == 0, outcome.err
    assert "Warning: key_size = 'insecure_test' can be broken" in outcome.err
    marks = " ".join(colonnade("report", FOLDER, "--json").json["marks"])
    assert "Insecure test keys" in marks
    assert "Level 2: codes cross encrypted only." in marks
    assert "Codes with noise: shared codes also cross" in marks
    assert "Labels can be read: shop gets SealedCodeGradient from bank" in marks
    assert "Encryption does not hide labels" in marks


def test_nothing_is_said_about_codes_where_none_crossed(town: Town, colonnade: Any) -> None:
    town.edit("run.toml", '["fedcvt", "local"]', '["local"]')
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare")
    assert outcome.code == 0, outcome.err
    marks = " ".join(colonnade("report", FOLDER, "--json").json["marks"])
    assert "Level" not in marks
    assert "Labels can be read" not in marks


# --- scoring ------------------------------------------------------------------------------------------------------


def check_scores(scores: pd.DataFrame) -> None:
    assert list(scores.columns) == ["party", "customer", "known to", "probability_pays", "prediction"]
    count = scores.groupby(["party", "known to"]).size().to_dict()
    assert count == {("bank", "all parties"): 10, ("bank", "bank only"): 5, ("shop", "shop only"): 15}
    assert scores[scores["party"] == "shop"]["probability_pays"].isna().all(), "it may not know how sure they are"
    assert scores[scores["party"] == "bank"]["probability_pays"].between(0, 1).all()
    assert set(scores["prediction"]) <= {"pays", "does not"}


def test_rows_of_all_three_situations_are_scored(trained: Town, colonnade: Any) -> None:
    outcome = colonnade("predict", FOLDER, *NEW)
    assert outcome.code == 0, outcome.err
    check_scores(pd.read_csv(io.StringIO(outcome.out)))
    assert "bank gave 15 rows: 15 scored, 10 that all parties know and 5 that only bank knows." in outcome.err
    assert "shop gave 25 rows: 15 that only shop knows got predictions, without scores." in outcome.err
    assert "Scores of rows that all parties know went to bank." in outcome.err
    assert "only rows that all parties know have a score" not in outcome.err


def test_rows_of_one_side_only_are_scored_where_none_are_shared(trained: Town, colonnade: Any) -> None:
    shop = pd.read_csv("shop/new.csv")
    shop[shop["customer"] >= "cust-00315"].to_csv("shop/new.csv", index=False)
    outcome = colonnade("predict", FOLDER, *NEW, "--output", "scores.csv")
    assert outcome.code == 0, outcome.err
    assert "bank gave 15 rows: 15 scored, 0 that all parties know and 15 that only bank knows." in outcome.err
    assert set(pd.read_csv("scores.csv")["known to"]) == {"bank only", "shop only"}


def test_a_partner_that_may_know_nothing_gets_nothing(town: Town, colonnade: Any) -> None:
    town.set('partner_answers = "none"').edit("run.toml", "epochs = 2", "epochs = 1")
    assert colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare").code == 0
    outcome = colonnade("predict", FOLDER, *NEW, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["rows"] == 15
    assert "party" not in outcome.json["scores"][0], "they are all the bank's"
    assert "shop gave 25 rows: " in outcome.err
    assert "that only shop knows got no prediction (partner_answers = 'none')" in outcome.err


def test_a_model_of_shared_rows_leaves_others_without_a_score(town: Town, colonnade: Any) -> None:
    town.edit("run.toml", '["fedcvt", "local"]', '["vanilla"]').edit("run.toml", "epochs = 2", "epochs = 1")
    assert colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare").code == 0
    outcome = colonnade("predict", FOLDER, *NEW, "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["rows"] == 10
    assert "the other 5 have no score, as this run's model scores shared rows only" in outcome.err
    marks = " ".join(colonnade("report", FOLDER, "--json").json["marks"])
    assert "where unmatched rows take part" in marks, "they took no part"


def test_a_limit_on_predictions_counts_rows_that_only_the_partner_knows(trained: Town, colonnade: Any) -> None:
    trained.edit("bank/party.toml", "[policy]\n", "[policy]\npredictions_per_day = 20\n")
    assert colonnade("predict", FOLDER, *NEW).code == 0
    again = colonnade("predict", FOLDER, *NEW)
    assert again.code == POLICY
    assert "15 were scored and 15 more are asked for" in again.message


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "told"),
    [
        ("level = 3", ("config.level", "0, 1 or 2", "Got 3")),
        ('level = "2"', ("config.level", "0, 1 or 2")),
        ("images = { shop = [1, 3, 3] }", ("images of 1x3x3 numbers", "its rows have 2")),
        ("images = { shpo = [1, 1, 2] }", ("config.images is for 'shpo'", "Did you mean 'shop'?")),
        ("images = { shop = [1, 2] }", ("config.images.shop",)),
        ("level = 2\nmemory_bank = 9", ("config.memory_bank", "level = 2")),
        ('level = 2\ndefence = "marvell"', ("config.defence", "levels 0 and 1")),
        ("threshold = 1.0", ("config.threshold", "below 1")),
        ("pul = 0.2", ("'pul'", "Did you mean 'pull'?")),
    ],
)
def test_wrong_settings_are_told(town: Town, colonnade: Any, setting: str, told: tuple[str, ...]) -> None:
    outcome = colonnade("run", "--simulate", town.set(setting).folder / "run.toml", "--quiet")
    assert outcome.code == USAGE
    for words in told:
        assert words in outcome.message


@pytest.mark.parametrize(
    ("candidates", "told"),
    [
        ('["fedcvt", "vanila"]', "Did you mean 'vanilla'?"),
        ("[]", "config.candidates must name models"),
        ('["local", "local"]', "each once"),
    ],
)
def test_candidates_that_cannot_be_are_told(town: Town, colonnade: Any, candidates: str, told: str) -> None:
    town.edit("run.toml", '["fedcvt", "local"]', candidates)
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert outcome.code == USAGE
    assert told in outcome.message


def test_tables_without_a_shared_row_are_told(town: Town, colonnade: Any) -> None:
    shop = pd.read_csv("shop/baskets.csv")
    shop.assign(customer="other-" + shop["customer"]).to_csv("shop/baskets.csv", index=False)
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert outcome.code == USAGE
    assert "The parties share no row" in outcome.message


def test_a_policy_may_forbid_single_messages(town: Town, colonnade: Any) -> None:
    town.edit("shop/party.toml", "[policy]\n", '[policy]\nnever_send = ["PLAIN Codes", "PLAIN HeldOutCodes"]\n')
    refused = colonnade("run", "--simulate", "run.toml", "--quiet")
    assert refused.code == POLICY
    assert "policy.never_send" in refused.message
    assert "party.toml, line 9): the message PLAIN Codes is in its list" in refused.message
    assert not (town.folder / FOLDER).exists()
    town.set("level = 1")
    assert colonnade("run", "--simulate", "run.toml", "--quiet", "--no-compare").code == 0
    assert colonnade("predict", FOLDER, *NEW).code == 0
    town.edit("shop/party.toml", 'HeldOutCodes"', 'HeldOutCode"')
    slip = colonnade("run", "--simulate", "run.toml", "--quiet", "--overwrite")
    assert slip.code == USAGE
    assert "Did you mean 'HeldOutCodes'?" in slip.message


# --- processes of their own ---------------------------------------------------------------------------------------


def test_two_homes_train_and_score_on_one_machine(town: Town, colonnade: Any) -> None:
    town.edit("run.toml", "epochs = 2", "epochs = 1")
    outcome = colonnade("run", "--local", "run.toml", "--quiet", "--no-compare")
    assert outcome.code == 0, outcome.err
    assert "Who knows a row" in outcome.out
    outcome = colonnade("predict", FOLDER, *NEW, "--output", "scores.csv")
    assert outcome.code == 0, outcome.err
    check_scores(pd.read_csv("scores.csv"))
    assert colonnade("audit", "verify", FOLDER).code == 0


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Town:
    """Two homes that can join a run."""
    ports = dict(zip(TABLES, free_ports(2), strict=True))
    for party, port in ports.items():
        make_home(tmp_path / party, party, f"127.0.0.1:{port}")
        settings = f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n\n[table]\n{TABLES[party]}\n[policy]\n'
        (tmp_path / party / "party.toml").write_text(settings)
    for party, peer in (("bank", "shop"), ("shop", "bank")):
        certificate = (tmp_path / peer / "certificate.pem").read_bytes()
        pin_partner(tmp_path / party, certificate, f"127.0.0.1:{ports[peer]}")
    monkeypatch.chdir(tmp_path / "shop")
    return Town(tmp_path).write()


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


def joining(town: Town, party: str, stage: str = "train") -> Joining:
    plan = replace(read_run_file(town.folder / "run.toml"), stage=stage)
    return agreed(Joining(plan, read_party_home(town.folder / party), RunFolder(town.folder / party / FOLDER)))


def take_part(town: Town, party: str) -> Any:
    mine = joining(town, party)
    return mine.run()


def score(town: Town, party: str) -> Any:
    return joining(town, party, "predict").predict(str(town.folder / party / "new.csv"))


def test_joined_homes_each_get_what_they_may_know(
    paired: Town, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = colonnade("run", "../run.toml")
    assert asked.code == POLICY
    assert "HeldOutCodes" in asked.err
    assert "SealedCodes" not in asked.err, "the level does not send them"
    with partner(lambda: take_part(paired, "bank")) as ended:
        outcome = colonnade("run", "--yes", "../run.toml", "--quiet", "--no-compare")
    assert outcome.code == 0, outcome.err
    assert "situations" in ended[0].findings
    assert "Who knows a row" not in outcome.out, "only the bank can tell"
    page = (paired.folder / "shop" / FOLDER / "report.html").read_text()
    assert "Columns in effect:</strong> bank gets Codes from shop without protection." in page
    for party in TABLES:
        sent = Ledger.read(paired.folder / party / FOLDER / "ledger.jsonl").summary()
        known = {one.name for one, _ in joining(paired, party).sends()}
        ours = {one.message for one in sent if one.direction == "sent"}
        assert ours - known <= {"Hello", "HeldCheckpoints", "ResumeFrom", "Finished", "Goodbye"}, "all was announced"

    with partner(lambda: score(paired, "bank")) as ended:
        outcome = colonnade("predict", FOLDER, "--table", "new.csv", "--yes", "--output", "mine.csv")
    assert outcome.code == 0, outcome.err
    assert "shop: 15 that only shop knows got predictions, without scores." in outcome.err
    assert "went to bank" in outcome.err
    mine = pd.read_csv("mine.csv")
    assert list(mine.columns) == ["customer", "known to", "prediction"]
    assert set(mine["known to"]) == {"shop only"}
    assert len(mine) == 15
    assert set(ended[0]["known to"]) == {"all parties", "bank only"}

    monkeypatch.chdir(paired.folder / "bank")
    with partner(lambda: score(paired, "shop")) as ended:
        outcome = colonnade("predict", FOLDER, "--table", "new.csv", "--yes", "--json")
    assert outcome.code == 0, outcome.err
    assert "bank: 15 scored, 10 that all parties know and 5 that only bank knows." in outcome.err
    assert set(outcome.json["scores"][0]) == {"customer", "known to", "probability_pays", "prediction"}
    assert len(ended[0]) == 15

    shared = pd.read_csv(paired.folder / "shop" / "new.csv").head(10)
    shared.to_csv(paired.folder / "shop" / "new.csv", index=False)
    monkeypatch.chdir(paired.folder / "shop")
    with partner(lambda: score(paired, "bank")):
        outcome = colonnade("predict", FOLDER, "--table", "new.csv", "--yes", "--output", "none.csv")
    assert outcome.code == 0, outcome.err
    assert "Done; the scores went to bank. Nothing was written to none.csv." in outcome.err
    assert not Path("none.csv").exists()
