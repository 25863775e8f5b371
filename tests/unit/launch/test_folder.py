"""A run folder deletes nothing that is not its own and loses no finished run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import ConfigError, LedgerBroken, PolicyRefused, RunFolderError, TrainingFailed
from colonnade.launch.folder import RunFolder, plan_from_json, plan_to_json
from colonnade.ledger import Ledger, LedgerWriter
from colonnade.session import RunPlan

PLAN = RunPlan(name="churn", method="splitnn", roles={"label_holder": ("bank",), "feature_holder": ("shop",)})


def make_run(path: Path, mark: str) -> RunFolder:
    for party in PLAN.parties:
        (path / party).mkdir(parents=True)
        (path / party / "plan.json").write_text(json.dumps(plan_to_json(PLAN)))
        (path / party / "ledger.jsonl").write_text(mark)
    (path / "simulation.json").write_text(mark)
    (path / "report.html").write_text(mark)
    return RunFolder(path)


def content(path: Path) -> dict[str, str]:
    return {str(one.relative_to(path)): one.read_text() for one in path.rglob("*") if one.is_file()}


def fail_after_beginning(folder: RunFolder, error: Exception, *, overwrite: bool, checkpoint: bool = False) -> None:
    with folder.replacing(overwrite=overwrite):
        make_run(folder.path, "second")
        if checkpoint:
            (folder.path / "bank" / "checkpoints").mkdir()
        raise error


def test_a_plan_round_trips() -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(PLAN)))) == PLAN


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_new_or_empty_place_is_fine(tmp_path: Path, overwrite: bool) -> None:
    RunFolder(tmp_path / "new").check_place(overwrite=overwrite)
    RunFolder(tmp_path).check_place(overwrite=overwrite)


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_and_other_things_are_refused(tmp_path: Path, overwrite: bool) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"):
        RunFolder(tmp_path / "file").check_place(overwrite=overwrite)
    with pytest.raises(RunFolderError, match="holds other things"):
        RunFolder(tmp_path).check_place(overwrite=overwrite)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"name": "x"}', '{"evaluate": 3}', "null"])
def test_a_plan_of_something_else_makes_no_run_folder(tmp_path: Path, text: str) -> None:
    (tmp_path / "module").mkdir()
    (tmp_path / "module" / "plan.json").write_text(text)
    with pytest.raises(RunFolderError, match="holds other things"):
        RunFolder(tmp_path).discard()
    assert (tmp_path / "module" / "plan.json").read_text() == text


def test_a_finished_run_is_refused_unless_it_is_overwritten(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    with pytest.raises(RunFolderError, match="finished run already"):
        folder.check_place(overwrite=False)
    folder.check_place(overwrite=True)


def test_discard_leaves_what_is_not_part_of_the_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "scores.csv").write_text("mine")
    folder.discard()
    assert content(folder.path) == {"scores.csv": "mine"}


def test_discard_removes_a_folder_that_held_the_run_only(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    folder.discard()
    assert not folder.path.exists()
    folder.discard()


def test_discard_follows_no_link_out_of_the_folder(tmp_path: Path) -> None:
    elsewhere = make_run(tmp_path / "elsewhere", "precious")
    folder = make_run(tmp_path / "run", "first")
    (folder.path / "linked").symlink_to(elsewhere.path / "bank")
    folder.discard()
    assert "bank/plan.json" in content(elsewhere.path)


def test_replacing_keeps_the_new_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    with folder.replacing(overwrite=True):
        assert not (folder.path / "bank").exists()
        make_run(folder.path, "second")
    assert set(content(folder.path).values()) == {"second", json.dumps(plan_to_json(PLAN))}
    assert sorted(one.name for one in folder.path.iterdir()) == ["bank", "report.html", "shop", "simulation.json"]


@pytest.mark.parametrize("error", [ConfigError("wrong"), PolicyRefused("no"), OSError(28, "No space left on device")])
def test_replacing_brings_the_earlier_run_back_when_the_new_one_cannot_begin(tmp_path: Path, error: Exception) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    with pytest.raises(type(error)):
        fail_after_beginning(folder, error, overwrite=True)
    assert content(folder.path) == before


def test_replacing_keeps_a_new_run_that_got_as_far_as_a_checkpoint(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    with pytest.raises(ConfigError):
        fail_after_beginning(folder, ConfigError("wrong"), overwrite=True, checkpoint=True)
    assert content(folder.path)["report.html"] == "second"


def test_replacing_keeps_the_trace_of_a_run_that_failed_in_training(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(TrainingFailed):
        fail_after_beginning(folder, TrainingFailed("no number"), overwrite=False)
    assert content(folder.path)["bank/ledger.jsonl"] == "second"


def test_replacing_leaves_no_trace_of_a_first_run_that_was_refused(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(ConfigError):
        fail_after_beginning(folder, ConfigError("wrong"), overwrite=False)
    assert not folder.path.exists()


def test_replacing_never_touches_an_interrupted_run_that_is_resumed(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "first")
    before = content(folder.path)
    with pytest.raises(RunFolderError), folder.replacing(overwrite=False):
        raise RunFolderError("other settings")
    assert content(folder.path) == before


def test_a_missing_ledger_is_a_broken_one(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", "")
    (folder.path / "shop" / "ledger.jsonl").unlink()
    with pytest.raises(LedgerBroken, match="ledger of 'shop' is missing"):
        folder.ledgers()


def test_a_misspelt_run_is_suggested(tmp_path: Path) -> None:
    make_run(tmp_path / "churn", "first")
    with pytest.raises(RunFolderError, match="Did you mean 'churn'"):
        RunFolder(tmp_path / "chrun").load()


def test_a_ledger_cut_back_to_an_earlier_end_is_found(tmp_path: Path) -> None:
    """A run resumed after its goodbye closes its ledger twice; cut back to the first end, the chain looks whole."""
    frame = pd.DataFrame({"id": range(60), "a": np.arange(60) % 7, "y": np.arange(60) % 2})
    both = {
        "bank": cn.PartyTable(frame, id="id", label="y"),
        "shop": cn.PartyTable(frame.drop(columns="y").assign(a=frame["a"] * 2), id="id"),
    }
    cn.simulate(cn.SplitNN(epochs=1), both, folder=tmp_path / "run")
    first = (tmp_path / "run/bank/ledger.jsonl").read_bytes()
    (tmp_path / "run/simulation.json").unlink()
    cn.simulate(cn.SplitNN(epochs=1), both, folder=tmp_path / "run")
    RunFolder(tmp_path / "run").ledgers()
    (tmp_path / "run/bank/ledger.jsonl").write_bytes(first)
    Ledger(first, "cut").verify()
    with pytest.raises(LedgerBroken, match="not the one the run ended with"):
        RunFolder(tmp_path / "run").ledgers()


def test_two_processes_cannot_write_one_ledger(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger.jsonl"), pytest.raises(RunFolderError, match="Another process"):
        LedgerWriter(tmp_path / "ledger.jsonl")
    LedgerWriter(tmp_path / "ledger.jsonl").close()
