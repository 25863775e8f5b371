"""A party keeps its own result before it tells anyone, and its folder says so."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.session.trials import Trial, tables

import colonnade as cn
from colonnade.engine import Engine, EngineSettings, Work, open_engine
from colonnade.errors import EngineFailed, PeerFailed, RoleFailed
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.take_part import take_part
from colonnade.session import Participant, Session


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
        kept[name] = folder.load()
        assert kept[name].party == name
        assert kept[name].part is not None
    assert kept["bank"].evaluations.keys() >= {"together", "alone"}
    assert kept["shop"].evaluations == {}
    assert not (tmp_path / "run" / "simulation.json").exists()

    resumed = trial.run(compare=True)
    resumed.verify()
    assert all(PartyFolder(tmp_path / "run" / name).is_finished for name in ("bank", "shop"))
    for name, part in resumed.parts.items():
        for other in (undisturbed.parts[name], kept[name].part):
            assert all(value.equal(other.tensors[key]) for key, value in part.tensors.items())
    assert RunFolder(tmp_path / "run").load().evaluations.keys() >= {"together", "alone", "central"}


def test_a_party_that_is_told_of_a_failure_keeps_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    crash_at_the_goodbye(monkeypatch, "shop")
    ended: list[Any] = []
    launched = sys.modules["colonnade.launch.simulation"]
    real = launched.take_part

    def noted(party: Participant, *rest: Any, **options: Any) -> Any:
        try:
            return real(party, *rest, **options)
        except BaseException as error:
            ended.append((party.name, error))
            raise

    monkeypatch.setattr(launched, "take_part", noted)
    with pytest.raises(RoleFailed):
        Trial(tmp_path / "run").run()
    told = dict(ended)["bank"]
    assert isinstance(told, PeerFailed)
    assert (told.party, told.cause) == ("shop", "an unforeseen ZeroDivisionError.")
    assert PartyFolder(tmp_path / "run" / "bank").keeps_result


@pytest.mark.parametrize(("learning_rate", "missing"), [(0.01, "alone"), (1e30, "central")])
def test_a_comparison_that_cannot_be_made_does_not_cost_the_run(
    monkeypatch: pytest.MonkeyPatch, learning_rate: float, missing: str
) -> None:
    """The label holder's only column says nothing, or training with all columns in one place runs away."""
    ids, random = np.arange(80), np.random.default_rng(0)
    own = np.ones(80) if learning_rate < 1 else random.normal(size=80)
    bank = pd.DataFrame({"id": ids, "own": own, "y": random.integers(0, 2, 80)})
    shop = pd.DataFrame({"id": ids, "theirs": random.normal(size=80)})
    tables = {"bank": cn.PartyTable(bank, id="id", label="y"), "shop": cn.PartyTable(shop, id="id")}
    baselines = sys.modules["colonnade.launch.baselines"]
    real = baselines.play

    def play(session: Session, holding: Any, config: Any) -> Any:
        return real(session, holding, dataclasses.replace(config, learning_rate=learning_rate, optimizer="SGD"))

    monkeypatch.setattr(baselines, "play", play)
    run = cn.simulate(cn.SplitNN(epochs=3, minimum_steps=0), tables, compare=True)
    assert {"together", "alone", "central"} - run.evaluations.keys() == {missing}
    run.verify()


PROBE = Work("colonnade.engine.probe:echo", "colonnade.engine.probe:prepare", b"")


def note_engines(monkeypatch: pytest.MonkeyPatch, error: type[Exception] | None = None) -> list[Engine]:
    """Use every session's engine where its role would be played."""
    launched = sys.modules["colonnade.launch.take_part"]
    real = launched.play
    found: list[Engine] = []

    def play(session: Session, *rest: Any) -> Any:
        found.append(session.engine)
        assert session.engine.map(PROBE, [b"1", b"2"]) == [b"1", b"2"]
        if error is not None:
            raise error
        return real(session, *rest)

    monkeypatch.setattr(launched, "play", play)
    return found


def is_closed(engine: Engine) -> bool:
    try:
        engine.map(PROBE, [b"1", b"2"])
    except EngineFailed as error:
        return "closed" in str(error)
    return False


def test_simulated_parties_share_one_engine_that_is_closed_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    found = note_engines(monkeypatch)
    run = Trial(None).run(launch=cn.Launch(engine="pool"))
    assert len(found) == 2
    assert found[0] is found[1]
    assert found[0].name == "pool"
    assert is_closed(found[0])
    assert len(run.predict(tables(), engine="pool")) == 48
    assert found[2] is found[3]
    assert is_closed(found[3])


def test_an_engine_that_is_lent_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine("pool", 2) as engine:
        found = note_engines(monkeypatch, ZeroDivisionError)
        with pytest.raises(RoleFailed):
            Trial(None).run(launch=cn.Launch(engine=engine))
        assert found
        assert all(one is engine for one in found)
        assert not is_closed(engine)


def test_a_party_opens_its_own_engine_and_closes_it_also_after_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    trial = Trial(None)
    run = trial.run()
    found = note_engines(monkeypatch, ZeroDivisionError)
    alone = dataclasses.replace(run.plan, roles={"label_holder": ("bank",)})
    bank = Participant("bank", table=tables()["bank"], engine=EngineSettings(kind="pool", workers=2))
    with pytest.raises(RoleFailed):
        take_part(bank, alone, {})
    (engine,) = found
    assert (engine.name, engine.workers) == ("pool", 2)
    assert is_closed(engine)
