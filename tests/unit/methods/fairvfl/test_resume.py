"""A run that is cut off goes on to the same model, with the same noise and the same answers, wherever it was cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fairvfl.worlds import Heard, frames, overheard, run_of, settings, texts
from tests.unit.methods.mpdl.worlds import cut_at, fixed_secret
from tests.worlds import name_of

import colonnade as cn
from colonnade.errors import CheckpointBroken, ColonnadeError

CASES: dict[str, dict[str, Any]] = {
    "robust": {},
    "sequential, confusion": {"mapper_step": "sequential", "confusion": True},
    "merged, scores": {"mapper_step": "merged", "task_cut": "server"},
    "paper": {"removal": "paper", "label_epsilon": None, "protected_noise": 0.0, "mapper_step": "sequential"},
    "noise on gradients": {"label_epsilon": None, "gradient_clip": 0.1, "gradient_noise": 1.0, "adversary_every": 2},
    "momentum": {"optimizer": "SGD", "optimizer_options": {"momentum": 0.9}},
    "tabnet": {"local": "tabnet"},
    "ranking": {"task": "ranking", "local": "lstur"},
}
QUICK = ("robust",)
# Of two epochs of three steps each, after checkpoints at steps 2, 3, 4 and 6.
CUTS = (("one", 2), ("server", 3), ("state", 4), ("bank", 5), ("bureau", 6))


def configured(case: str) -> cn.FairVFL:
    return settings(**{"secret_start": True, "checkpoint_every": 2, **CASES[case]})


def world(case: str) -> dict[str, Any]:
    return texts(80) if case == "ranking" else frames()


def same(one: cn.Run, other: cn.Run) -> bool:
    mine, theirs = (
        {f"{party}: {name}": value for party, part in run.parts.items() for name, value in part.tensors.items()}
        for run in (one, other)
    )
    return mine.keys() == theirs.keys() and all(torch.equal(value, theirs[name]) for name, value in mine.items())


def losses(run: cn.Run) -> list[float]:
    return [line["training_loss"] for line in run.history["bank"] if "training_loss" in line]


@pytest.mark.parametrize("case", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_a_run_cut_at_any_party_ends_alike(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_secret(monkeypatch)
    found, config = world(case), configured(case)
    whole = run_of(found, config, folder=tmp_path / "whole")
    for party, step in CUTS:
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, party, step)
            with pytest.raises(ColonnadeError):
                run_of(found, config, folder=tmp_path / "cut")
    again = run_of(found, config, folder=tmp_path / "cut")
    again.verify()
    assert sum(entry.kind == "resumed" for entry in again.ledgers["bank"].entries) == len(CUTS) - 1
    assert same(whole, again)
    assert whole.metrics == again.metrics
    losses = [
        [line["training_loss"] for line in run.history["bank"] if "training_loss" in line] for run in (whole, again)
    ]
    assert losses[0] == losses[1]
    assert whole.findings == again.findings


def numbers(heard: Heard, receiver: str, name: str) -> list[np.ndarray]:
    return [one.values.detach().numpy() for party, _, one in heard if party == receiver and name_of(one) == name]


RELEASED = (
    ("bank", "UnifiedCode"),
    ("state", "ProtectedCode"),
    ("state", "ProtectedCodeAgain"),
    ("server", "DiscriminatorGradient"),
    ("server", "AdversarialGradient"),
)


def test_steps_that_are_done_again_release_nothing_new(tmp_path: Path) -> None:
    """Neither noise nor answers are drawn a second time: two draws would tell more than one."""
    found, config = frames(), configured("robust")
    with pytest.MonkeyPatch.context() as patch:
        # In the sixth step, although the last checkpoint is that of the fourth.
        cut_at(patch, "two", 6)
        with overheard() as first, pytest.raises(ColonnadeError):
            run_of(found, config, folder=tmp_path / "cut")
    with overheard() as second:
        run_of(found, config, folder=tmp_path / "cut")
    with overheard() as other:
        run_of(found, config)
    for receiver, name in RELEASED:
        before, after = numbers(first, receiver, name), numbers(second, receiver, name)
        per_step = 2 if receiver == "server" else 1
        again = before[4 * per_step : 5 * per_step]
        assert len(again) == per_step
        for one in again:
            assert any(np.array_equal(one, later) for later in after[:per_step]), name
        assert not np.array_equal(numbers(other, receiver, name)[0], before[0]), "another run draws for itself"


def test_a_lost_secret_is_not_replaced_by_another(tmp_path: Path) -> None:
    found, config = frames(), configured("robust")
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, "one", 5)
        with pytest.raises(ColonnadeError):
            run_of(found, config, folder=tmp_path / "cut")
    (kept,) = (tmp_path / "cut").glob("**/state/**/secret.key")
    kept.unlink()
    with pytest.raises(CheckpointBroken):
        run_of(found, config, folder=tmp_path / "cut")
