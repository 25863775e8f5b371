"""A run that was cut short goes on to the same parameters, bit for bit; and when training stops by itself."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from tests.unit.methods.ftl.worlds import assert_same_parameters, frames, run_of, settings
from tests.worlds import integers_for_ciphertexts

from colonnade.errors import RoleFailed
from colonnade.methods.ftl import steps
from colonnade.methods.ftl.messages import Verdict
from colonnade.methods.ftl.steps import StopRule, apply_verdict
from colonnade.nn import Learner
from colonnade.session import Session


@pytest.fixture(autouse=True)
def _without_encryption() -> Iterator[None]:
    with integers_for_ciphertexts():
        yield


def cut_at(patch: pytest.MonkeyPatch, party: str, step: int) -> None:
    original = Session.next_step

    def next_step(session: Session) -> None:
        original(session)
        if session.party == party and session.step == step:
            raise ZeroDivisionError

    patch.setattr(Session, "next_step", next_step)


WORLDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as it is": ({}, {"iterations": 20}),
    "batches and two layers": ({}, {"batch_size": 24, "hidden": (2,)}),
    "pre-trained, few checkpoints": ({}, {"pretrain_epochs": 2, "checkpoint_every": 3}),
    "two targets": ({"targets": 2}, {}),
    "two sources": ({"sources": 2}, {}),
}

QUICK = ("as it is", "batches and two layers")


@pytest.mark.parametrize(
    "name", [*QUICK, *[pytest.param(name, marks=pytest.mark.slow) for name in WORLDS if name not in QUICK]]
)
def test_a_run_cut_at_iteration_7_ends_with_the_same_parameters(name: str, tmp_path: Path) -> None:
    world, changes = WORLDS[name]
    found, config = frames(**world), settings(**{"iterations": 9, "tolerance": 0.0, **changes})
    whole = run_of(found, config)
    for party in found if name == "as it is" else list(found)[-1:]:
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, party, 8)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=tmp_path / party)
        resumed = run_of(found, config, folder=tmp_path / party)
        marks = [entry.content for entry in resumed.ledgers[party].entries if entry.kind == "resumed"]
        assert [mark["step"] for mark in marks] == [7 // config.checkpoint_every * config.checkpoint_every]
        assert_same_parameters(whole, resumed)
        resumed.verify()


def test_two_cuts_in_one_run_change_nothing_and_the_stop_rule_remembers(tmp_path: Path) -> None:
    """With this tolerance training ends early, at a step that depends on all losses before."""
    found, config = frames(), settings(iterations=40, tolerance=2e-3, learning_rate=0.03)
    whole = run_of(found, config)
    last = max(line["step"] for line in whole.history["bank0"])
    assert 5 < last < 40
    for party, step in (("bank0", 3), ("shop0", last)):
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, party, step)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=tmp_path / "cut")
    resumed = run_of(found, config, folder=tmp_path / "cut")
    assert_same_parameters(whole, resumed)
    losses = [[line.get("training_loss") for line in run.history["bank0"]] for run in (whole, resumed)]
    assert losses[0] == losses[1]


def test_a_source_that_is_done_early_does_not_disturb_the_resumption_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first source stops after 2 iterations, the second goes on; the cut comes much later."""
    train = steps.SourceTrainer.train

    def shorter(trainer: Any, *rest: Any) -> None:
        if trainer._session.party == "bank0":
            trainer._config = dataclasses.replace(trainer._config, iterations=2)
        train(trainer, *rest)

    monkeypatch.setattr(steps.SourceTrainer, "train", shorter)
    found, config = frames(sources=2), settings(iterations=12, tolerance=0.0)
    whole = run_of(found, config)
    assert max(line["epoch"] for line in whole.history["bank0"] if "epoch" in line) == 2
    assert max(line["epoch"] for line in whole.history["bank1"] if "epoch" in line) == 12
    for cut in (10,):
        folder = tmp_path / str(cut)
        with pytest.MonkeyPatch.context() as patch:
            cut_at(patch, "bank1", cut)
            with pytest.raises(RoleFailed):
                run_of(found, config, folder=folder)
        assert_same_parameters(whole, run_of(found, config, folder=folder))


def test_checkpoints_hold_no_key_no_mask_and_nothing_of_the_other_party(tmp_path: Path) -> None:
    found, config = frames(), settings(iterations=3)
    with pytest.MonkeyPatch.context() as patch:
        cut_at(patch, "bank0", 3)
        with pytest.raises(RoleFailed):
            run_of(found, config, folder=tmp_path / "run")
    for party, own in (
        ("bank0", ("now.", "best.", "optimizer.")),
        ("shop0", ("bank0/now.", "bank0/best.", "bank0/op")),
    ):
        kept = sorted((tmp_path / "run").rglob(f"{party}/checkpoints/train/*.safetensors"))
        assert kept
        for path in kept:
            for name, value in safetensors.torch.load_file(path).items():
                assert name.startswith(own), name
                assert value.numel() < 40, "no row, no ciphertext"


def said(rule: StopRule, loss: float, is_last: bool = False) -> tuple[bool, bool, bool]:
    verdict = rule.judge(loss, is_last)
    return verdict.is_best, verdict.is_last, verdict.goes_back


def test_the_rule_stops_when_the_loss_is_calm_three_times() -> None:
    rule = StopRule(tolerance=0.01)
    losses = [5.0, 4.0, 3.999, 3.5, 3.499, 3.498, 3.497]
    assert [rule.judge(loss, False).is_last for loss in losses] == [False] * 6 + [True]
    rule = StopRule(tolerance=0.01)
    assert said(rule, 1.0, True) == (True, True, False)


def test_the_rule_goes_back_to_the_best_weights_when_the_loss_rises_ten_times() -> None:
    rule = StopRule(tolerance=0.0)
    assert said(rule, 1.0) == (True, False, False)
    assert said(rule, 0.5) == (True, False, False)
    found = [said(rule, 0.5 + 0.1 * number) for number in range(1, 11)]
    assert found == [(False, False, False)] * 9 + [(False, True, True)]

    linear = torch.nn.Linear(1, 1)
    learner = Learner({"one": linear}, "SGD", 1.0, {})
    with torch.no_grad():
        linear.weight.fill_(2.0)
    linear.weight.grad = torch.ones(1, 1)
    linear.bias.grad = torch.zeros(1)
    apply_verdict(learner, Verdict(True, False, False))
    assert linear.weight.item() == 1.0, "the best is kept as it was before the step"
    apply_verdict(learner, Verdict(False, True, True))
    assert linear.weight.item() == 2.0
