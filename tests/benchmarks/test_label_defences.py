"""The benchmark of label defences: what a run measures keeps up with a real attacker that has columns."""

from __future__ import annotations

import hashlib
import json
import sys

import pytest
from benchmarks.form import main
from benchmarks.label_defences import measure, options

from colonnade.session import Session


def test_what_a_run_measures_is_not_below_a_real_attacker_with_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Noise is secret and would move figures across bars once in a while.
    monkeypatch.setattr(Session, "_durable_secret", lambda one: hashlib.sha256(one.party.encode()).digest())
    monkeypatch.setattr(sys, "argv", ["bench", "--json", "--quick"])
    with pytest.raises(SystemExit):
        main("x", measure, options)
    document = json.loads(capsys.readouterr().out)
    found = {name.split(": ", 1)[-1]: value for name, value in document["figures"].items()}
    assert found["releases and own columns"] > found["own meter, all releases"] + 0.1
    assert found["releases and own columns"] > found["bound of all releases"], "which is about gradients alone"
    assert found["own meter, all releases and columns"] >= found["releases and own columns"] - 0.02
    assert all(bar["holds"] for bar in document["bars"].values())
