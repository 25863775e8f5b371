"""Where a stage looks for the model it goes on from, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from colonnade.data import PartyTable
from colonnade.errors import ConfigError, RunFolderError
from colonnade.launch.party_folder import PartyFolder, check_earlier, earlier_folder, earlier_folders
from colonnade.ledger import LedgerWriter
from colonnade.methods.prada import METHOD, PrADA
from colonnade.reports import PartyRun
from colonnade.session import ModelPart, RunPlan
from colonnade.settings import config_to_json

ROLES = {"target": ("bank",), "source": ("sister",), "feature_holder": ("data",)}


def plan(stage: str, **changes: Any) -> RunPlan:
    whole = RunPlan(name="census", method="prada", roles=ROLES, config=config_to_json(PrADA()), **changes)
    return METHOD.in_stage(whole, stage)


def keep(folder: Path, party: str, stage: str, value: float) -> None:
    """Write what a finished party leaves."""
    table = PartyTable(pd.DataFrame({"id": [1, 2], "age": [3, 4]}), id="id", name=party)
    own = PartyFolder(folder)
    own.begin(plan(stage), table)
    part = ModelPart({"weight": torch.tensor([value])}, {"method": "prada"})
    rows = {"train": 1, "validation": 0, "test": 1}
    about = table.describe() | {"shared_rows": 2}
    writer = LedgerWriter(own.ledger)
    writer.mark("opened")
    facts = {"party": party, "started": "2026-11-16T12:00:00", "seconds": 1.0, "alignment": "ecdh"}
    own.keep(PartyRun(**facts, rows=rows, table=about, part=part, ledger=writer.read()))


def test_a_stage_looks_where_the_same_file_put_the_one_before() -> None:
    assert plan("finetune").after == "census-pretrain"
    assert plan("explain").after == "census"
    assert plan("explain", after="census-finetune").after == "census-finetune"
    assert plan("train").after is None
    assert plan("pretrain", after="census").after is None, "it begins from nothing"
    assert "source" not in plan("finetune").roles


def test_each_party_takes_up_its_own_part(tmp_path: Path) -> None:
    for value, party in enumerate(("bank", "data")):
        keep(tmp_path / "census-pretrain" / party, party, "pretrain", float(value))
    found = earlier_folders(METHOD, plan("finetune"), tmp_path / "census-finetune")
    parts = {party: folder.load().part for party, folder in found.items()}
    assert {party: part and part.tensors["weight"].item() for party, part in parts.items()} == {
        "bank": 0.0,
        "data": 1.0,
    }


def test_a_home_has_its_part_in_the_run_folder_itself(tmp_path: Path) -> None:
    keep(tmp_path / "census-pretrain", "data", "pretrain", 5.0)
    folder = earlier_folder(METHOD, plan("finetune"), tmp_path, "data", is_apart=True)
    assert folder is not None
    part = folder.load().part
    assert part is not None
    assert part.tensors["weight"].item() == 5.0
    assert earlier_folder(METHOD, plan("train"), tmp_path, "data", is_apart=True) is None


def test_what_is_missing_or_of_another_stage_is_told(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"of the stage pretrain, and there is none in .*census-pretrain"):
        earlier_folders(METHOD, plan("finetune"), tmp_path / "census-finetune")
    keep(tmp_path / "census-pretrain", "data", "train", 5.0)
    with pytest.raises(ConfigError, match="goes on from its stage pretrain, not from the stage train"):
        earlier_folder(METHOD, plan("finetune"), tmp_path, "data", is_apart=True)


def test_simulations_are_told_what_to_pass() -> None:
    check_earlier(METHOD, plan("train"), None)
    check_earlier(METHOD, plan("finetune"), plan("pretrain"))
    with pytest.raises(ConfigError, match="Pass it as after"):
        check_earlier(METHOD, plan("finetune"), None)
    with pytest.raises(ConfigError, match="begins from nothing"):
        check_earlier(METHOD, plan("train"), plan("pretrain"))
    with pytest.raises(ConfigError, match="of splitnn"):
        check_earlier(METHOD, plan("finetune"), replace(plan("pretrain"), method="splitnn"))
