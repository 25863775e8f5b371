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


def test_a_quick_run_judges_what_holds_at_any_size_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(off: float) -> int:
        found = findings(5.0)
        found.bar("off", off, at_most=0.1, at_any_size=True)
        with pytest.raises(SystemExit) as ending:
            main("x", lambda arguments: found if arguments.quick else Findings())
        return int(ending.value.code or 0)

    monkeypatch.setattr(sys, "argv", ["bench", "--json", "--quick"])
    assert (measured(0.1), measured(0.2)) == (0, 1)
    *_, last = capsys.readouterr().out.splitlines()
    assert {name: bar["holds"] for name, bar in json.loads(last)["bars"].items()} == {
        "ratio": None,
        "speed": None,
        "off": False,
    }


def test_a_bar_needs_exactly_one_limit() -> None:
    with pytest.raises(ValueError, match="one limit"):
        Findings().bar("x", 1.0)


def test_overhead_trains_the_same_network_on_both_sides() -> None:
    from benchmarks.overhead import make_frames, train_federated, train_plain

    frames = make_frames(8000)
    assert train_federated(frames, 8)[1] == pytest.approx(train_plain(frames, 8)[1], abs=0.03)
