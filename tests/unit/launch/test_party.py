"""A party keeps its own result before it tells anyone, and its folder says so."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.session.trials import Trial

import colonnade as cn
from colonnade.errors import PeerFailed, RoleFailed
from colonnade.launch.folder import RunFolder
from colonnade.launch.party_folder import PartyFolder
from colonnade.session import Session


def crash_at_the_goodbye(monkeypatch: pytest.MonkeyPatch, party: str) -> None:
    play = sys.modules["colonnade.session.play"]
    real = play.say_goodbye

    def say_goodbye(session: Session) -> None:
        if session.party == party and session.all_channels:  # not where it trains alone, to compare
            raise ZeroDivisionError
        real(session)

    monkeypatch.setattr(play, "say_goodbye", say_goodbye)


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_result_outlives_a_crash_at_the_goodbye_and_the_run_goes_on_to_the_same_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, party: str
) -> None:
    undisturbed = Trial(tmp_path / "whole").run()
    trial = Trial(tmp_path / "run")
    with monkeypatch.context() as patched:
        crash_at_the_goodbye(patched, party)
        with pytest.raises(RoleFailed, match=f"'{party}' failed"):
            trial.run(compare=True)
    kept = {}
    for name in ("bank", "shop"):
        folder = PartyFolder(tmp_path / "run" / name)
        assert folder.keeps_result, "also at the party that was only told of the crash"
        assert not folder.is_finished
        kept[name] = folder.load().record
        assert kept[name].party == name
        assert kept[name].part is not None
    assert kept["bank"].evaluations.keys() == {"together", "alone"}
    assert kept["shop"].evaluations == {}
    assert not (tmp_path / "run" / "simulation.json").exists()

    resumed = trial.run(compare=True)
    resumed.verify()
    assert all(PartyFolder(tmp_path / "run" / name).is_finished for name in ("bank", "shop"))
    for name, part in resumed.parts.items():
        for other in (undisturbed.parts[name], kept[name].part):
            assert all(value.equal(other.tensors[key]) for key, value in part.tensors.items())
    assert RunFolder(tmp_path / "run").load().evaluations.keys() == {"together", "alone", "central"}


def test_a_party_that_is_told_of_a_failure_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_at_the_goodbye(monkeypatch, "shop")
    ended: list[Any] = []
    launched = sys.modules["colonnade.launch.party"]
    real = launched.play

    def play(session: Session, *rest: Any) -> Any:
        try:
            return real(session, *rest)
        except BaseException as error:
            ended.append((session.party, error))
            raise

    monkeypatch.setattr(launched, "play", play)
    with pytest.raises(RoleFailed):
        Trial(tmp_path / "run").run()
    told = dict(ended)["bank"]
    assert isinstance(told, PeerFailed)
    assert (told.party, told.cause) == ("shop", "an unforeseen ZeroDivisionError.")
    assert PartyFolder(tmp_path / "run" / "bank").keeps_result


@pytest.mark.parametrize("learning_rate", [0.01, 1e30])
def test_a_comparison_that_cannot_be_made_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, learning_rate: float
) -> None:
    """The label holder's only column says nothing, or its training alone runs away."""
    ids, random = np.arange(80), np.random.default_rng(0)
    own = np.ones(80) if learning_rate < 1 else random.normal(size=80)
    bank = pd.DataFrame({"id": ids, "own": own, "y": random.integers(0, 2, 80)})
    shop = pd.DataFrame({"id": ids, "theirs": random.normal(size=80)})
    tables = {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}
    baselines = sys.modules["colonnade.launch.baselines"]
    real = baselines.play

    def play(session: Session, prepare: Any, config: Any) -> Any:
        return real(session, prepare, dataclasses.replace(config, learning_rate=learning_rate, optimiser="SGD"))

    monkeypatch.setattr(baselines, "play", play)
    run = cn.simulate(cn.SplitNN(epochs=3), tables, compare=True)
    assert "together" in run.evaluations
    assert "alone" not in run.evaluations
    run.verify()
