"""Benchmarks share one form, and their exit status tells whether every bar holds."""

from __future__ import annotations

import json
import sys

import pytest
from benchmarks.form import Findings, main


def findings(ratio: float) -> Findings:
    found = Findings(figures={"seconds": 1.5})
    found.bar("ratio", ratio, at_most=1.8)
    found.bar("speed", 3.0, at_least=2.0)
    return found


@pytest.mark.parametrize(("ratio", "code"), [(1.8, 0), (1.81, 1)])
def test_exit_status_is_zero_only_when_every_bar_holds(
    ratio: float, code: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--json"])
    with pytest.raises(SystemExit) as ending:
        main("x", lambda _: findings(ratio))
    assert ending.value.code == code
    document = json.loads(capsys.readouterr().out)
    assert document["figures"]["seconds"] == 1.5
    assert document["bars"]["ratio"] == {"value": ratio, "at_most": 1.8, "holds": code == 0}
    assert document["bars"]["speed"] == {"value": 3.0, "at_least": 2.0, "holds": True}


def test_a_bar_needs_exactly_one_limit() -> None:
    with pytest.raises(ValueError, match="one limit"):
        Findings().bar("x", 1.0)


def test_overhead_trains_the_same_network_on_both_sides() -> None:
    from benchmarks.overhead import make_frames, train_federated, train_plain

    frames = make_frames(8000)
    assert train_federated(frames, 8) == pytest.approx(train_plain(frames, 8), abs=0.03)


def test_overhead_prints_one_json_object(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.overhead import add_arguments, measure

    words = ["bench", "--json", "--rows", "2000", "--epochs", "1", "--repetitions", "1"]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as ending:
        main("x", measure, add_arguments)
    document = json.loads(capsys.readouterr().out)
    assert set(document) == {"figures", "bars"}
    assert ending.value.code == (0 if all(bar["holds"] for bar in document["bars"].values()) else 1)
    assert {"time_ratio", "peak_memory_ratio"} == set(document["bars"])
