"""A run folder deletes nothing that is not its own and loses no finished run."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import (
    CheckpointBroken,
    ConfigError,
    LedgerBroken,
    PolicyRefused,
    RunFolderError,
    TrainingFailed,
)
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.run_folder import RunFolder
from colonnade.ledger import Ledger, LedgerWriter
from colonnade.session import RunPlan, write_json

PLAN = RunPlan(
    name="churn",
    method="splitnn",
    roles={"label_holder": ("bank",), "feature_holder": ("shop",)},
    seed=9,
    config={"epochs": 3, "hidden": [4], "learning_rate": 1e-5},
)


def table() -> cn.PartyTable:
    return cn.PartyTable(pd.DataFrame({"id": range(9), "a": np.arange(9) % 7}), id="id")


def make_run(path: Path, mark: str) -> RunFolder:
    for party in PLAN.parties:
        PartyFolder(path / party).begin(PLAN, table())
        (path / party / "ledger.jsonl").write_text(mark)
    (path / "simulation.json").write_text(mark)
    (path / "report.html").write_text(mark)
    return RunFolder(path)


def content(path: Path) -> dict[str, str]:
    return {str(one.relative_to(path)): one.read_text() for one in path.rglob("*") if one.is_file()}


def fail_after_beginning(folder: RunFolder, error: BaseException, *, overwrite: bool, checkpoint: bool = False) -> None:
    with folder.held(overwrite=overwrite):
        make_run(folder.path, "second")
        if checkpoint:
            (folder.path / "bank" / "checkpoints").mkdir()
        raise error


def hold(folder: RunFolder, *, overwrite: bool = False) -> None:
    with folder.held(overwrite=overwrite):
        pass


def test_a_plan_round_trips(tmp_path: Path) -> None:
    folder = PartyFolder(tmp_path / "bank")
    assert not folder.holds_run
    folder.begin(PLAN, table())
    assert folder.holds_run
    assert folder.plan() == PLAN
    assert folder.plan().digest() == PLAN.digest()


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_or_empty_place_is_fine(tmp_path: Path, overwrite: bool) -> None:
    hold(RunFolder(tmp_path / "new"), overwrite=overwrite)
    hold(RunFolder(tmp_path), overwrite=overwrite)
    assert list(tmp_path.iterdir()) == [], "a folder of the user's own stays, one made for nothing goes"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_and_other_things_are_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"):
        hold(RunFolder(tmp_path / "file"), overwrite=overwrite)
    with pytest.raises(RunFolderError, match="holds other things"):
        hold(RunFolder(tmp_path), overwrite=overwrite)
    assert content(tmp_path) == {"file": "x"}


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x"}', '{"evaluate": 3}', "null"])
def test_a_plan_of_something_else_makes_no_run_folder(tmp_path: Path, text: str, overwrite: bool) -> None:
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "plan.json").write_text(text)
    with pytest.raises(RunFolderError, match="holds other things"):
        hold(RunFolder(tmp_path), overwrite=overwrite)
    assert content(tmp_path) == {"module/plan.json": text}


@pytest.mark.parametrize("name", ["run.toml", "simulation.json", "report.html", "predictions"])
def test_a_party_cannot_be_called_like_a_file_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=f"'{name}' of its own"):
        RunFolder(tmp_path).party(name)


def test_a_finished_run_is_refused_unless_it_is_overwritten(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    with pytest.raises(RunFolderError, match="finished run already"):
        hold(folder)
    assert content(folder.path) == before


def test_overwriting_leaves_what_is_not_part_of_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "scores.csv").write_text("mine")
    (folder.path / "notes").mkdir()
    (folder.path / "notes" / "a.txt").write_text("mine too")
    with folder.held(overwrite=True):
        left = {name for name in content(folder.path) if not name.startswith((".earlier", ".lock"))}
        assert left == {"scores.csv", "notes/a.txt"}
        make_run(folder.path, "second")
    assert content(folder.path)["scores.csv"] == "mine"
    assert content(folder.path)["notes/a.txt"] == "mine too"


@pytest.mark.parametrize("error", [None, ConfigError("wrong")])
def test_overwriting_follows_no_link_out_of_the_folder(tmp_path: Path, error: Exception | None) -> None:
    elsewhere = make_run(tmp_path / "elsewhere", "precious")
    before = content(elsewhere.path)
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "linked").symlink_to(elsewhere.path / "bank")
    with contextlib.suppress(ConfigError), folder.held(overwrite=True):
        make_run(folder.path, "second")
        (folder.path / "linked").symlink_to(elsewhere.path / "bank")
        if error is not None:
            raise error
    assert content(elsewhere.path) == before


def test_overwriting_keeps_the_new_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    with folder.held(overwrite=True):
        assert not (folder.path / "bank").exists()
        make_run(folder.path, "second")
    assert "first" not in content(folder.path).values()
    assert sorted(one.name for one in folder.path.iterdir()) == ["bank", "report.html", "shop", "simulation.json"]


@pytest.mark.parametrize("error", [ConfigError("wrong"), PolicyRefused("no"), OSError(28, "No space left on device")])
def test_overwriting_brings_the_earlier_run_back_when_the_new_one_cannot_begin(
    tmp_path: Path, error: Exception
) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    with pytest.raises(type(error)):
        fail_after_beginning(folder, error, overwrite=True)
    assert content(folder.path) == before


@pytest.mark.parametrize(
    "error", [ConfigError("wrong"), TrainingFailed("no number"), KeyboardInterrupt(), ZeroDivisionError()], ids=repr
)
def test_overwriting_brings_the_earlier_run_back_when_nothing_new_was_begun(
    tmp_path: Path, error: BaseException
) -> None:
    """Such as when the user interrupts the reading of the tables."""
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    with pytest.raises(type(error)), folder.held(overwrite=True):
        raise error
    assert content(folder.path) == before


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("file", ["table.json", "plan.json"])
def test_a_disk_that_is_full_at_the_very_beginning_costs_no_earlier_run_and_leaves_no_trace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str, file: str
) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)

    def full(path: Path, document: object) -> None:
        if path.parts[-2:] == (party, file):
            path.parent.mkdir(exist_ok=True)
            path.with_name(file + ".part").write_text("half")
            raise OSError(28, "No space left on device")
        write_json(path, document)

    monkeypatch.setattr("colonnade.launch.party_folder.write_json", full)
    with pytest.raises(OSError, match="No space"):
        fail_after_beginning(folder, AssertionError("not reached"), overwrite=True)
    assert content(folder.path) == before
    with pytest.raises(OSError, match="No space"):
        fail_after_beginning(RunFolder(tmp_path / "new"), AssertionError("not reached"), overwrite=False)
    assert not (tmp_path / "new").exists()


def test_overwriting_keeps_a_new_run_that_got_as_far_as_a_checkpoint(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    with pytest.raises(ConfigError):
        fail_after_beginning(folder, ConfigError("wrong"), overwrite=True, checkpoint=True)
    assert content(folder.path)["report.html"] == "second"


def test_the_trace_of_a_run_that_failed_in_training_is_kept(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(TrainingFailed):
        fail_after_beginning(folder, TrainingFailed("no number"), overwrite=False)
    assert content(folder.path)["bank/ledger.jsonl"] == "second"


def test_a_first_run_that_was_refused_leaves_no_trace(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ConfigError):
        fail_after_beginning(folder, ConfigError("wrong"), overwrite=False)
    assert not folder.path.exists()


def test_an_interrupted_run_that_is_resumed_is_never_touched(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "simulation.json").unlink()
    before = content(folder.path)
    with pytest.raises(RunFolderError), folder.held():
        raise RunFolderError("other settings")
    assert content(folder.path) == before


# Killed with an earlier run put aside

EVERYTHING = ("bank", "shop", "report.html", "simulation.json")


def put_aside(path: Path, where: str, names: tuple[str, ...]) -> None:
    """Leave a folder as a process does that was killed while it put these parts aside."""
    (path / where).mkdir()
    for name in names:
        (path / name).rename(path / where / name)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize(
    ("where", "names"),
    [
        *[(".earlier.part", EVERYTHING[:count]) for count in range(len(EVERYTHING) + 1)],
        (".earlier", EVERYTHING),
    ],
    ids=["none", "one", "two", "three", "all", "done"],
)
def test_a_run_put_aside_by_a_killed_process_comes_back(
    tmp_path: Path, where: str, names: tuple[str, ...], overwrite: bool
) -> None:
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "scores.csv").write_text("mine")
    before = content(folder.path)
    put_aside(folder.path, where, names)
    if overwrite:
        with pytest.raises(ConfigError):
            fail_after_beginning(folder, ConfigError("wrong"), overwrite=True)
    else:
        with pytest.raises(RunFolderError, match="finished run already"):
            hold(folder)
    assert content(folder.path) == before
    assert not any(one.name.startswith(".") for one in folder.path.iterdir())


def test_a_run_comes_back_also_when_the_bringing_back_was_killed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    put_aside(folder.path, ".earlier.part", ("shop", "simulation.json"))
    with pytest.raises(RunFolderError, match="finished run already"):
        hold(folder)
    assert content(folder.path) == before


def test_a_run_comes_back_although_its_successor_had_just_made_a_folder(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    put_aside(folder.path, ".earlier", EVERYTHING)
    (folder.path / "bank").mkdir()
    (folder.path / "bank" / "table.json").write_text("{}")
    with pytest.raises(RunFolderError, match="finished run already"):
        hold(folder)
    assert content(folder.path) == before


def test_a_successor_that_had_begun_is_resumed_and_the_earlier_run_is_gone(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    put_aside(folder.path, ".earlier", EVERYTHING)
    make_run(folder.path, "second")
    (folder.path / "simulation.json").unlink()
    before = {name: text for name, text in content(folder.path).items() if not name.startswith(".earlier")}
    hold(folder)
    assert content(folder.path) == before


def test_what_a_party_has_put_aside_in_its_own_folder_comes_back_too(tmp_path: Path) -> None:
    folder = PartyFolder(tmp_path / "run")
    folder.begin(PLAN, table())
    (folder.path / "model").mkdir()
    (folder.path / "model" / "part.json").write_text("first")
    before = content(folder.path)
    for where, names in (
        (".earlier.part", ("plan.json",)),
        (".earlier.part", ("plan.json", "model")),
        (".earlier", ("plan.json", "table.json", "model")),
    ):
        put_aside(folder.path, where, names)
        hold(RunFolder(folder.path))
        assert content(folder.path) == before


@pytest.mark.parametrize("error", [ConfigError("wrong"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("has_begun", [False, True])
def test_a_partys_own_earlier_run_comes_back_when_the_new_one_is_refused(
    tmp_path: Path, error: BaseException, has_begun: bool
) -> None:
    folder = PartyFolder(tmp_path / "run")
    folder.begin(PLAN, table())
    (folder.path / "ledger.jsonl").write_text("first")
    before = content(folder.path)
    with pytest.raises(type(error)), RunFolder(folder.path).held(overwrite=True):
        fail_in(folder, error, has_begun)
    if has_begun and not isinstance(error, ConfigError):
        assert "ledger.jsonl" not in content(folder.path), "what was begun and interrupted is there to be resumed"
    else:
        assert content(folder.path) == before


def fail_in(folder: PartyFolder, error: BaseException, has_begun: bool) -> None:
    assert not folder.holds_run
    if has_begun:
        folder.begin(PLAN, table())
    raise error


# Ledgers and facts


def test_a_missing_ledger_is_a_broken_one(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "")
    (folder.path / "simulation.json").unlink()
    (folder.path / "shop" / "ledger.jsonl").unlink()
    with pytest.raises(LedgerBroken, match="ledger of 'shop' is missing"):
        folder.ledgers()


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_party_whose_whole_folder_is_gone_is_known_from_the_others_plan(tmp_path: Path, party: str) -> None:
    folder = make_run(tmp_path / "run", "")
    (folder.path / "simulation.json").unlink()
    shutil.rmtree(folder.path / party)
    with pytest.raises(LedgerBroken, match=f"ledger of '{party}' is missing"):
        folder.ledgers()


@pytest.mark.parametrize("text", ["{}", "[1]", "3", "null", '{"heads": []}', '{"heads": null}', '{"parties": 3}'])
def test_facts_that_were_edited_are_no_facts(tmp_path: Path, text: str) -> None:
    folder = make_run(tmp_path / "run", "")
    (folder.path / "simulation.json").write_text(text)
    with pytest.raises(LedgerBroken, match=r"simulation\.json"):
        folder.ledgers()
    with pytest.raises(CheckpointBroken, match="incomplete or were changed"):
        folder.load()


def test_a_misspelt_run_is_suggested(tmp_path: Path) -> None:
    make_run(tmp_path / "churn", "first")
    with pytest.raises(RunFolderError, match=f"Did you mean '{re.escape(str(tmp_path))}/churn'"):
        RunFolder(tmp_path / "chrun").load()


def test_a_ledger_cut_back_to_an_earlier_end_is_found(tmp_path: Path) -> None:
    """A run resumed after its goodbye closes its ledger twice; cut back to the first end, the chain looks whole."""
    frame = pd.DataFrame({"id": range(60), "a": np.arange(60) % 7, "y": np.arange(60) % 2})
    both = {
        "bank": cn.PartyTable(frame, id="id", label="y"),
        "shop": cn.PartyTable(frame.drop(columns="y").assign(a=frame["a"] * 2), id="id"),
    }
    cn.simulate(cn.SplitNN(epochs=1, minimum_steps=0), both, folder=tmp_path / "run")
    first = (tmp_path / "run/bank/ledger.jsonl").read_bytes()
    (tmp_path / "run/simulation.json").unlink()
    cn.simulate(cn.SplitNN(epochs=1, minimum_steps=0), both, folder=tmp_path / "run")
    RunFolder(tmp_path / "run").ledgers()
    (tmp_path / "run/bank/ledger.jsonl").write_bytes(first)
    Ledger(first, "cut").verify()
    with pytest.raises(LedgerBroken, match="not the one the run ended with"):
        RunFolder(tmp_path / "run").ledgers()


def test_a_run_with_ids_of_several_columns_and_others_for_a_partner_is_kept(tmp_path: Path) -> None:
    bank = pd.DataFrame({"first": [f"p{row}" for row in range(60)], "born": np.arange(60) % 7 + 1990})
    bank = bank.assign(
        card=[f"{row:05d}" if row % 5 else None for row in range(60)], a=np.arange(60) % 7, y=bank.index % 2
    )
    shop = pd.DataFrame({"number": [f"{row:05d} " for row in range(60)], "b": np.arange(60) % 5})
    both = {
        "bank": cn.PartyTable(bank, id=["first", "born"], label="y", partner_ids={"shop": "card"}),
        "shop": cn.PartyTable(shop.iloc[::-1], id="number"),
    }
    run = cn.simulate(cn.SplitNN(epochs=1, minimum_steps=0), both, folder=tmp_path / "run")
    assert run.tables["bank"]["partner_ids"] == {"shop": {"id": "card", "missing": 12}}
    loaded = cn.load_run(tmp_path / "run")
    assert loaded.tables == run.tables
    scores = loaded.predict(both)
    expected = bank[bank["card"].notna()]
    assert list(scores.columns) == ["first", "born", "probability_1", "prediction"]
    assert scores["first"].tolist() == expected["first"].tolist()
    assert scores["born"].tolist() == expected["born"].tolist()


def test_two_processes_cannot_write_one_ledger(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger.jsonl"), pytest.raises(RunFolderError, match="Another process"):
        LedgerWriter(tmp_path / "ledger.jsonl")
    LedgerWriter(tmp_path / "ledger.jsonl").close()
