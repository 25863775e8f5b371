"""`colonnade bench`: figures on stdout, talk on stderr, and an exit code that says whether every bar holds."""

from __future__ import annotations

from typing import Any

import pytest

import colonnade.cli.bench as command
from colonnade.crypto.bench.form import Findings
from colonnade.crypto.bench.speed import FULL, QUICK, Effort


@pytest.fixture
def efforts(monkeypatch: pytest.MonkeyPatch) -> list[Effort]:
    """Replace the measuring; a bar holds twice."""
    asked: list[Effort] = []

    def measure(effort: Effort, say: Any) -> Findings:
        asked.append(effort)
        say("round 1 of 1")
        found = Findings(figures={"encrypt_ms": 1.5})
        found.bar("encrypt_speedup", 400.0 if len(asked) < 3 else 2.0, at_least=300)
        return found

    monkeypatch.setitem(command._BENCHMARKS, "crypto", measure)
    return asked


def test_a_quick_benchmark_measures_for_real(colonnade: Any) -> None:
    shown = colonnade("bench", "crypto", "--quick", "--json")
    assert shown.code == 0, shown.err
    assert shown.json["figures"]["key_bits"] == 1024
    assert "round 1 of" in shown.err


def test_json_and_text_say_the_same(colonnade: Any, efforts: list[Effort]) -> None:
    as_json, as_text = colonnade("bench", "crypto", "--json"), colonnade("bench", "crypto")
    assert efforts == [FULL, FULL]
    assert (as_json.code, as_text.code) == (0, 0)
    assert as_json.json["bars"] == {"encrypt_speedup": {"value": 400.0, "at_least": 300, "holds": True}}
    assert as_json.json["figures"]["encrypt_ms"] == 1.5
    assert "encrypt_ms" in as_text.out
    assert "ok   encrypt_speedup" in as_text.out
    assert as_text.err == as_json.err == "round 1 of 1\n"


def test_a_bar_that_does_not_hold_is_told_by_the_exit_code(colonnade: Any, efforts: list[Effort]) -> None:
    efforts += [FULL, FULL]
    shown = colonnade("bench", "crypto")
    assert shown.code == 1
    assert "FAIL encrypt_speedup" in shown.out
    quick = colonnade("bench", "crypto", "--quick")
    assert efforts[2:] == [FULL, QUICK]
    assert quick.code == 0
    assert "(not judged)" in quick.out
