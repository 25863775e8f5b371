"""A run that is cut off goes on to the same model, with the same noise, wherever it was cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.mpdl.worlds import TESTED, cut_at, fixed_secret, frames, overheard, run_of, settings
from tests.worlds import name_of, view

import colonnade as cn
from colonnade.errors import CheckpointBroken, ColonnadeError

PENALISED: dict[str, Any] = {
    "generator": "mlp",
    "generator_optimizer": "Adam",
    "generator_rate": 0.02,
    "dual_weight": 0.1,
    "dual_consent": True,
}
CASES: dict[str, dict[str, Any]] = {
    "ridge": {},
    "mlp, Adam, penalty": PENALISED,
    "mlp, strict parts": {**PENALISED, "strict_folds": True, "dual_form": "gaussian_conditional"},
    "momentum": {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}},
    "shipped": {"completion": "ship"},
    "noise on everything": {"dp_scope": "all", "generator": "mlp"},
    "interactive": {**PENALISED, "exchange": "interactive", "generator_epochs": 1, "fold_rounds": 1, "batch_size": 32},
    "under encryption": {
        "completion": "secure_block",
        "block_consent": True,
        "hidden": 2,
        "fold_rounds": 1,
        "epochs": 2,
    },
}
QUICK = ("mlp, Adam, penalty",)


def configured(case: str) -> cn.MPDL:
    return settings(**{"folds": 3, "fold_gain": 1.0, "checkpoint_every": 2, **CASES[case]})


def parts(run: cn.Run) -> dict[str, torch.Tensor]:
    return {f"{party}: {name}": one for party, part in run.parts.items() for name, one in part.tensors.items()}


def trainings(run: cn.Run) -> list[tuple[int, str]]:
    """Return the step at which each training of the bank ended."""
    return [(line["step"], line["phase"]) for line in run.history["bank"] if "phase" in line]


def same(one: cn.Run, other: cn.Run, limit: float = 0.0) -> bool:
    mine, theirs = parts(one), parts(other)
    return mine.keys() == theirs.keys() and all(
        bool((value - theirs[name]).abs().max() <= limit) for name, value in mine.items()
    )


@pytest.mark.parametrize("case", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_a_run_cut_in_its_second_part_or_its_last_phase_ends_alike(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed_secret(monkeypatch)
    found, config = frames(), configured(case)
    whole = run_of(found, config, folder=tmp_path / "whole")
    ends = trainings(whole)
    last = ends[-1][0]
    begun = [step for step, phase in ends if "fold 2" in phase] or [step for step, phase in ends if "fold 1" in phase]
    # After the first epoch of the second part's first model, at the end of its second, and twice in the last phase.
    cuts = [max(begun[0], 3), begun[-1], (begun[-1] + last) // 2, last]
    assert cuts == sorted(set(cuts))
    for number, step in enumerate(cuts):
        party = ("bank", "shop", "helper")[number % 3]
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, party, step)
            with pytest.raises(ColonnadeError):
                run_of(found, config, folder=tmp_path / "cut")
    again = run_of(found, config, folder=tmp_path / "cut")
    again.verify()
    assert sum(entry.kind == "resumed" for entry in again.ledgers["bank"].entries) == len(cuts)
    if case in ("under encryption", "interactive"):
        # Products under encryption are rounded, or blurred in digits beyond those that count.
        assert same(whole, again, 1e-6)
        return
    assert same(whole, again)
    assert whole.metrics == again.metrics
    assert whole.findings["comparison"] == again.findings["comparison"]


SHORT = settings(epochs=1, checkpoint_every=1)


def test_noise_is_drawn_once_however_often_a_run_is_taken_up(tmp_path: Path) -> None:
    found, config, seen = frames(), SHORT, []
    for step in (2, 5):
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, "shop", step)
            with overheard() as heard, pytest.raises(ColonnadeError):
                run_of(found, config, folder=tmp_path / "cut")
        seen.append(heard)
    with overheard() as heard:
        run_of(found, config, folder=tmp_path / "cut")
    seen.append(heard)
    for receiver in ("bank", "shop"):
        tables = [
            message.values
            for one in seen
            for party, _, message in one
            if party == receiver and name_of(message) == "ReleasedTable"
        ]
        assert len(tables) == 3
        assert all(np.array_equal(table, tables[0]) for table in tables)
    with overheard() as heard:
        run_of(found, config, folder=tmp_path / "another")
    (other,) = [one.values for party, _, one in heard if party == "shop" and name_of(one) == "ReleasedTable"]
    assert not np.array_equal(other, tables[0])


def test_no_mask_serves_twice_when_a_run_is_taken_up(tmp_path: Path) -> None:
    """Keys for masks are drawn anew; the same words behind the same mask could be compared."""
    found, config, keys = frames(), SHORT, []
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, "shop", 5)
        with overheard() as first, pytest.raises(ColonnadeError):
            run_of(found, config, folder=tmp_path / "cut")
    with overheard() as second:
        run_of(found, config, folder=tmp_path / "cut")
    for heard in (first, second):
        keys += [message.public for _, _, message in heard if name_of(message) == "MaskKey"]
    assert len(keys) == 4
    assert len(set(keys)) == 4


def test_a_lost_secret_is_not_replaced_by_another(tmp_path: Path) -> None:
    found, config = frames(), SHORT
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, "shop", 5)
        with pytest.raises(ColonnadeError):
            run_of(found, config, folder=tmp_path / "cut")
    (kept,) = (tmp_path / "cut").glob("**/shop/**/secret.key")
    kept.unlink()
    with pytest.raises(CheckpointBroken):
        run_of(found, config, folder=tmp_path / "cut")


def test_checkpoints_hold_nothing_of_other_parties_tables(tmp_path: Path) -> None:
    """A party's files hold its own weights; what others released is received again when a run is taken up."""
    run = run_of(frames(), SHORT, folder=tmp_path / "whole", evaluate=TESTED, launch=cn.Launch(keep_views=True))
    (released,) = [
        message for sender, message in view(run, "shop") if sender == "bank" and name_of(message) == "ReleasedTable"
    ]
    column = np.ascontiguousarray(released.values[:8])
    for file in (tmp_path / "whole").glob("**/shop/**/*"):
        if file.is_file():
            assert column.tobytes() not in file.read_bytes(), file
