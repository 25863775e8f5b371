"""Three homes and stages that go on from each other: the commands with adversarial domain adaptation."""

from __future__ import annotations

import io
import json
import shutil
import signal
import threading
import tomllib
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.kills.harness import agreed, free_ports

from colonnade.errors import LeakRefused, PolicyRefused, UsageError
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.identity import make_home, pin_partner
from colonnade.launch.join import Joining
from colonnade.launch.run_folder import RunFolder

pytestmark = pytest.mark.timeout(240)

USAGE, POLICY, LEAK = UsageError.exit_code, PolicyRefused.exit_code, LeakRefused.exit_code

RUN = """\
[run]
name = "census"
method = "prada"
roles = { target = "bank", source = "sister", feature_holder = "data" }
seed = 7

[config]
epochs = 1
fine_epochs = 2
batch_size = 64
fine_batch_size = 64
margin = 100.0
protection = "none"
explanations = true

[config.groups]
work = ["job", "hours"]
place = ["region", "house"]
"""
TABLES = {
    "bank": 'source = "clients.csv"\nid = "person"\nlabel = "income"\nunlabelled = true\n',
    "sister": 'source = "clients.csv"\nid = "person"\nlabel = "income"\n',
    "data": 'source = "people.csv"\nid = "person"\n',
}


class World:
    """A bank with few labels, its sister with many, and a company that knows the customers of both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self) -> World:
        random = np.random.default_rng(3)

        def people(count: int, start: int) -> tuple[pd.DataFrame, pd.DataFrame]:
            worth = random.normal(size=count)
            ids = [f"p{start + number:05d}" for number in range(count)]
            rich = np.where(worth + random.normal(0, 0.5, count) > 0, "rich", "poor").astype(object)
            bank = pd.DataFrame({"person": ids, "age": (40 + 9 * worth).round(3), "income": rich})
            data = pd.DataFrame({"person": ids, "job": np.where(worth > 0, "clerk", "driver")})
            data["hours"] = (38 + random.normal(worth)).round(3)
            data["region"] = random.choice(["north", "south"], count)
            return bank, data.assign(house=random.choice(["owner", "tenant"], count))

        (sister, first), (bank, second), (new, third) = people(200, 0), people(150, 1000), people(12, 2000)
        bank.loc[bank.index >= 110, "income"] = None
        files = {
            "sister/clients.csv": sister,
            "bank/clients.csv": bank,
            "bank/new.csv": new.drop(columns="income"),
            "data/people.csv": pd.concat([first, second]),
            "data/new.csv": third,
        }
        for file, frame in files.items():
            (self.folder / file).parent.mkdir(exist_ok=True)
            frame.to_csv(self.folder / file, index=False)
        for name, table in TABLES.items():
            home = self.folder / name
            if not (home / "party.toml").exists():
                (home / "party.toml").write_text(f'[party]\nname = "{name}"\n\n[table]\n{table}\n[policy]\n')
        (self.folder / "run.toml").write_text(RUN)
        return self

    def edit(self, file: str, old: str, new: str) -> World:
        path = self.folder / file
        text = path.read_text()
        assert text.count(old) == 1, text
        path.write_text(text.replace(old, new))
        return self


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.chdir(tmp_path)
    return World(tmp_path).write()


@pytest.fixture(scope="session")
def trained_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A world whose training is done, and what the command showed."""
    from colonnade.cli import main

    folder = tmp_path_factory.mktemp("census")
    World(folder).write()
    shown = io.StringIO()
    with chdir(folder), redirect_stdout(shown), pytest.raises(SystemExit) as ending:
        main(["run", "--simulate", "run.toml", "--quiet"])
    assert ending.value.code == 0
    return folder, shown.getvalue()


@pytest.fixture
def trained(trained_once: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A copy of a world whose training is done."""
    shutil.copytree(trained_once[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return World(tmp_path)


# --- groups -------------------------------------------------------------------------------------------------------


def test_groups_are_proposed_as_a_table_for_run_toml(world: World, colonnade: Any) -> None:
    outcome = colonnade("groups", "data", "--count", "2")
    assert outcome.code == 0, outcome.err
    found = tomllib.loads(outcome.out)["config"]["groups"]
    assert list(found) == ["group1", "group2"]
    assert sorted(column for columns in found.values() for column in columns) == ["hours", "house", "job", "region"]
    assert "3 with their pairs" in outcome.err
    (world.folder / "run.toml").write_text(RUN[: RUN.index("[config.groups]")] + outcome.out)
    assert read_run_file(world.folder / "run.toml").config["groups"] == found
    told = colonnade("groups", "data/people.csv", "--id", "person", "--drop", "hours", "--json").json["groups"]
    assert [len(columns) for columns in told.values()] == [1, 1, 1], "never more groups than columns"


def test_long_groups_go_over_several_lines_and_names_are_quoted(world: World, colonnade: Any) -> None:
    names = [f'a "quoted" column, number {number}' for number in range(5)]
    frame = pd.DataFrame({"id": range(30), **{name: np.arange(30) % 7 for name in names}})
    frame.to_csv("odd.csv", index=False)
    outcome = colonnade("groups", "odd.csv", "--id", "id", "--count", "1")
    assert tomllib.loads(outcome.out)["config"]["groups"] == {"group1": names}
    assert len(outcome.out.splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["data", "--count", "9"], "--count must be from 1 to 4"),
        (["data", "--count", "0"], "--count must be from 1 to 4"),
        (["data", "--id", "person"], "a home says both in data/party.toml"),
        (["data/people.csv"], "Say which column of data/people.csv names the row"),
        (["nowhere"], "neither a party's home nor a table"),
        (["run.toml"], "neither a party's home nor a table"),
        (["data/people.csv", "--id", "prson"], "prson"),
    ],
)
def test_groups_say_what_is_wrong(world: World, colonnade: Any, words: list[str], told: str) -> None:
    outcome = colonnade("groups", *words)
    assert outcome.code == USAGE
    assert told in outcome.message


# --- stages -------------------------------------------------------------------------------------------------------


def test_a_training_shows_its_numbers_and_how_to_go_on(trained: World, trained_once: tuple[Path, str]) -> None:
    shown = trained_once[1]
    evaluation = json.loads((trained.folder / "runs/census/bank/evaluation.json").read_text())["together"]
    assert f"on {evaluation['rows']} held-out rows" in shown, "the bank's, not all that were held out"
    assert "--table bank=FILE --table data=FILE\n" in shown, "and no table of the sister's"
    assert "--stage explain goes on from here\n" in shown
    page = (trained.folder / "runs/census/report.html").read_text()
    assert "Not encrypted" in page
    assert "No gradient goes back from the labels of bank" in page
    assert "Labels can be read" not in page
    for part in ("pretrain of sister", "finetune of bank"):
        assert f"Loss, {part}." in page
    assert "work, before training: proxy A-distance" in page


@pytest.mark.parametrize("launch", ["--simulate", pytest.param("--local", marks=pytest.mark.slow)])
def test_stages_go_on_from_each_other(world: World, colonnade: Any, launch: str) -> None:
    world.edit("run.toml", "explanations = true", "explanations = true\npictures = false")
    first = colonnade("run", launch, "run.toml", "--stage", "pretrain", "--quiet")
    assert first.code == 0, first.err
    assert "Score:" not in first.out, "its model cannot score"
    assert "--stage finetune goes on from here\n" in first.out
    page = (world.folder / "runs/census-pretrain/report.html").read_text()
    assert "Together, bank, sister and data reach AUC" in page
    assert "What was trained, and by whom" in page

    second = colonnade("run", launch, "run.toml", "--stage", "finetune", "--quiet")
    assert second.code == 0, second.err
    assert "sister" not in second.out, "it takes no part"
    assert 'with after = "census-finetune" in run.toml' in second.out
    assert not (world.folder / "runs/census-finetune/sister").exists()

    world.edit("run.toml", "seed = 7", 'seed = 7\nafter = "census-finetune"')
    third = colonnade("run", launch, "run.toml", "--stage", "explain", "--quiet", "--json")
    assert third.code == 0, third.err
    (finding,) = third.json["findings"].values()
    assert {row[0] for row in finding["rows"]} == {"work", "place", "work-place", "age"}
    page = (world.folder / "runs/census-explain/report.html").read_text()
    assert "Explained:</strong> the target is shown" in page
    assert "row by row." in page

    stages = {one["stage"] for one in colonnade("status", "--json").json["runs"]}
    assert stages == {"pretrain", "finetune", "explain"}
    assert colonnade("audit", "verify", "runs/census-explain").code == 0
    for kept, code in (("census-finetune", 0), ("census-pretrain", USAGE), ("census-explain", USAGE)):
        words = ("--table", "bank=bank/new.csv", "--table", "data=data/new.csv")
        assert colonnade("predict", f"runs/{kept}", *words).code == code


def test_labels_that_could_be_read_are_told_first(world: World, colonnade: Any) -> None:
    world.edit("run.toml", "margin = 100.0", 'margin = 100.0\ndefence = "coae"\npictures = false')
    outcome = colonnade("run", "--simulate", "run.toml", "--quiet", "--stage", "pretrain")
    assert outcome.code == 0, outcome.err
    marks = " ".join(colonnade("report", "runs/census-pretrain", "--json").json["marks"])
    assert "Labels can be read: data gets GroupGradients from sister without protection" in marks
    assert "codes of classes (coae) hide little of it by themselves" in marks
    assert "No gradient goes back" not in marks, "nothing was fitted to the bank's labels"


# --- what goes wrong ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("launch", ["--simulate", pytest.param("--local", marks=pytest.mark.slow)])
def test_a_stage_without_the_one_before_it_is_refused(world: World, colonnade: Any, launch: str) -> None:
    told_by_stage = {"finetune": "the stage pretrain", "explain": "the stage train or finetune"}
    for stage, told in told_by_stage.items():
        if launch == "--local" and stage == "finetune":
            continue  # every party is a process that takes seconds to start, and one stage tells
        outcome = colonnade("run", launch, "run.toml", "--stage", stage, "--quiet")
        assert outcome.code == USAGE
        assert f"goes on from a finished run of {told}" in outcome.message
        assert "Run that first" in outcome.message


def test_a_stage_does_not_go_on_from_the_wrong_one(trained: World, colonnade: Any) -> None:
    trained.edit("run.toml", "seed = 7", 'seed = 7\nafter = "census"')
    outcome = colonnade("run", "--simulate", "run.toml", "--stage", "finetune", "--quiet")
    assert outcome.code == USAGE
    assert "goes on from its stage pretrain, not from the stage train of prada" in outcome.message


def test_explanations_need_everyones_agreement(trained: World, colonnade: Any) -> None:
    trained.edit("run.toml", "explanations = true", "explanations = false")
    outcome = colonnade("run", "--simulate", "run.toml", "--stage", "explain", "--quiet")
    assert outcome.code == LEAK
    assert "With explanations = true all parties accept that" in outcome.message


def test_mistakes_in_the_files_are_told(world: World, colonnade: Any) -> None:
    words = ("run", "--simulate", "run.toml", "--quiet")
    world.edit("run.toml", '"job"', '"jbo"')
    assert "names the column 'jbo'" in colonnade(*words).message
    world.edit("run.toml", '"jbo"', '"job"').edit("bank/party.toml", "unlabelled = true\n", "")
    assert "set unlabelled = true" in colonnade(*words).message
    world.edit("bank/party.toml", 'label = "income"\n', "")
    assert "'bank' is a target but its table has no label column" in colonnade(*words).message


def test_the_source_is_not_asked_for_new_rows(trained: World, colonnade: Any) -> None:
    words = ("predict", "runs/census", "--table", "bank=bank/new.csv")
    missing = colonnade(*words)
    assert missing.code == USAGE
    assert "No table was given for data" in missing.message
    odd = colonnade(*words, "--table", "data=data/new.csv", "--table", "sister=data/new.csv")
    assert odd.code == USAGE
    assert "'sister' is not a party of this run" in odd.message
    outcome = colonnade(*words, "--table", "data=data/new.csv", "--json")
    assert outcome.code == 0, outcome.err
    assert outcome.json["rows"] == 12
    assert set(outcome.json["scores"][0]) == {"person", "probability_rich", "prediction"}
    assert "12 rows scored; bank gave 12" in outcome.err


# --- before a run -------------------------------------------------------------------------------------------------


def test_the_method_and_its_settings_are_shown(world: World, colonnade: Any) -> None:
    shown = colonnade("methods", "prada")
    assert shown.code == 0, shown.err
    assert "Stages: train, pretrain, finetune, explain, predict" in shown.out
    assert "list of lists of texts" in shown.out
    assert "fine_start: number; default none" in shown.out


# --- joined -------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _same_signals() -> Iterator[None]:
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture
def paired(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """Three homes that can join a run; the banks know the company only."""
    ports = dict(zip(TABLES, free_ports(3), strict=True))
    for party, port in ports.items():
        make_home(tmp_path / party, party, f"127.0.0.1:{port}")
        settings = f'[party]\nname = "{party}"\nlisten = "127.0.0.1:{port}"\n\n[table]\n{TABLES[party]}\n[policy]\n'
        (tmp_path / party / "party.toml").write_text(settings)
    for bank in ("bank", "sister"):
        for party, peer in ((bank, "data"), ("data", bank)):
            certificate = (tmp_path / peer / "certificate.pem").read_bytes()
            pin_partner(tmp_path / party, certificate, f"127.0.0.1:{ports[peer]}")
    monkeypatch.chdir(tmp_path / "bank")
    return World(tmp_path).write()


def joining(world: World, party: str, stage: str) -> Joining:
    plan = read_run_file(world.folder / "run.toml", stage)
    folder = RunFolder(world.folder / party / "runs" / plan.folder_name)
    return agreed(Joining(plan, read_party_home(world.folder / party), folder))


def take_part(world: World, party: str, stage: str) -> Any:
    mine = joining(world, party, stage)
    return mine.run()


@contextmanager
def partners(*actions: Callable[[], Any]) -> Iterator[list[Any]]:
    """Let the partners do their part meanwhile; what goes wrong is in the list."""
    failed: list[Any] = []

    def act(action: Callable[[], Any]) -> None:
        try:
            action()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=act, args=(action,), daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    yield failed
    for thread in threads:
        thread.join(90)
        assert not thread.is_alive(), "a partner hangs"


def test_joined_homes_pretrain_finetune_and_explain(
    paired: World, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    paired.edit("run.toml", "explanations = true", "explanations = true\npictures = false")
    for stage, others in (("pretrain", ("sister", "data")), ("finetune", ("data",))):
        with partners(
            *(lambda party=party, stage=stage: take_part(paired, party, stage) for party in others)
        ) as failed:
            outcome = colonnade("run", "--yes", "../run.toml", "--stage", stage, "--quiet")
        assert outcome.code == 0, outcome.err
        assert failed == []
    assert "held-out rows" in outcome.out
    report = (paired.folder / "data/runs/census-finetune/report.html").read_text()
    assert "only bank can tell" in report, "the company has no score of its own"

    paired.edit("run.toml", "seed = 7", 'seed = 7\nafter = "census-finetune"')
    with partners(lambda: take_part(paired, "data", "explain")) as failed:
        outcome = colonnade("run", "--yes", "../run.toml", "--stage", "explain", "--quiet")
    assert outcome.code == 0, outcome.err
    assert failed == []
    assert "What moves the score" in outcome.out

    monkeypatch.chdir(paired.folder / "sister")
    for stage in ("finetune", "explain"):
        refused = colonnade("run", "--yes", "../run.toml", "--stage", stage)
        assert refused.code == USAGE
        assert f"'sister' has nothing to do in the stage {stage}" in refused.message
        assert "give this command" in refused.message


def test_an_operator_sees_what_a_stage_will_send(paired: World, colonnade: Any) -> None:
    asked = colonnade("run", "../run.toml", "--stage", "pretrain")
    assert asked.code == POLICY
    assert "The stage pretrain of the run 'census' (prada) will send from 'bank'" in asked.err
    assert "LabelledRows" not in asked.err, "a target only waits"
