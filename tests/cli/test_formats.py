"""Run folders of other versions: read by `report` and `audit`, refused by all that would go on from them.

``format_1`` was made by the last version that wrote no number: a simulation of splitnn with 24 made-up rows.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import RunFolderError
from colonnade.launch.party_folder import PartyFolder, earlier_folder
from colonnade.launch.run_folder import RunFolder
from colonnade.methods.fairvfl import METHOD
from colonnade.reports import FORMAT
from colonnade.session import RunPlan, parties_of, read_json

PARTIES = ("bank", "shop")
ROLES = {"label_holder": ("bank",), "feature_holder": ("shop",), "aggregator": ("helper",)}


@pytest.fixture
def first(tmp_path: Path) -> Path:
    shutil.copytree(Path(__file__).parent / "format_1", tmp_path / "churn")
    return tmp_path / "churn"


@pytest.fixture
def newer(first: Path) -> Path:
    """As a version might write it that has more to agree on."""
    for party in PARTIES:
        path = first / party / "plan.json"
        plan = read_json(path)
        path.write_text(json.dumps({**plan, "format": FORMAT + 1, "purpose": "x", "evaluate": {"folds": 3}}))
    return first


def tables() -> dict[str, cn.PartyTable]:
    ids, random = [f"c{number}" for number in range(24)], np.random.default_rng(2)
    bank = pd.DataFrame({"id": ids, "age": random.normal(size=24), "left": ["yes", "no"] * 12})
    shop = pd.DataFrame({"id": ids, "spent": random.normal(size=24)})
    return {"bank": cn.PartyTable(bank, id="id", label="left"), "shop": cn.PartyTable(shop, id="id")}


def test_every_new_run_says_its_format(tmp_path: Path) -> None:
    run = cn.simulate(cn.SplitNN(epochs=1, minimum_steps=0), tables(), folder=tmp_path / "run")
    assert [read_json(tmp_path / "run" / party / "plan.json")["format"] for party in PARTIES] == [FORMAT] * 2
    loaded = cn.load_run(tmp_path / "run")
    assert loaded.format == run.format == FORMAT
    assert not any("Another version" in mark for mark in loaded.marks)


def test_an_older_run_is_still_reported_and_audited(first: Path, colonnade: Any) -> None:
    run = cn.load_run(first)
    run.verify()
    assert (run.format, run.plan.name, set(run.parts)) == (1, "churn", set(PARTIES))
    assert "kept in format 1" in run.marks[0]
    assert "kept in format 1" in run.report().read_text()
    assert colonnade("report", str(first), "--json").json["name"] == "churn"
    assert colonnade("audit", "verify", str(first)).code == 0
    assert [one["name"] for one in _status(colonnade, first)] == ["churn"]


def _status(colonnade: Any, folder: Path) -> list[dict[str, Any]]:
    shutil.copytree(folder, folder.parent / "home" / "runs" / "churn")
    found: list[dict[str, Any]] = colonnade("status", "--home", str(folder.parent / "home"), "--json").json["runs"]
    return found


def test_settings_that_an_older_run_lacks_do_not_stop_its_report(first: Path) -> None:
    for party in PARTIES:
        path = first / party / "plan.json"
        path.write_text(json.dumps({**read_json(path), "config": {}}))
    assert "Simulation" in " ".join(cn.load_run(first).marks)


@pytest.mark.parametrize(("made", "words"), [("first", "format 1, which an older"), ("newer", "Install the newer")])
def test_nothing_goes_on_from_another_format(made: str, words: str, request: Any, colonnade: Any) -> None:
    folder = request.getfixturevalue(made)
    run = cn.load_run(folder)
    with pytest.raises(RunFolderError, match=words):
        run.predict(tables())
    with pytest.raises(RunFolderError, match=words):
        cn.simulate(cn.FairVFL(), tables(), roles=ROLES, stage="audit", after=run)
    outcome = colonnade("predict", str(folder), "--table", "bank=t.csv", "--table", "shop=t.csv")
    assert outcome.code != 0
    assert words in outcome.message
    plan = METHOD.in_stage(RunPlan(name="churn", method="fairvfl", roles=ROLES), "audit")
    _pass_for(folder / "bank", "fairvfl")
    with pytest.raises(RunFolderError, match=words):
        earlier_folder(METHOD, plan, folder.parent, "bank", is_apart=False)


def _pass_for(folder: Path, method: str) -> None:
    path = folder / "plan.json"
    path.write_text(json.dumps({**read_json(path), "method": method}))


@pytest.mark.parametrize(("made", "words"), [("first", "train anew"), ("newer", "Install the newer")])
def test_an_interrupted_run_of_another_format_is_not_resumed(made: str, words: str, request: Any) -> None:
    from colonnade.launch.simulation import simulate_plan

    folder = request.getfixturevalue(made)
    (folder / "simulation.json").unlink()
    with RunFolder(folder).held() as held, pytest.raises(RunFolderError, match=words):
        simulate_plan(PartyFolder(folder / "bank").plan(), parties_of(tables()), folder=held)
    assert (folder / "bank" / "model").exists(), "what is there stays"
