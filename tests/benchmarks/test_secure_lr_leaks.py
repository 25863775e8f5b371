"""The benchmark of what secure_lr gives away: its attacks fail against the guards and succeed without them."""

from __future__ import annotations

import hashlib
import json
import sys

import pytest
from benchmarks.form import Findings, main
from benchmarks.secure_lr_leaks import OF_LABELS, loaded, measure, options

from colonnade.session import Session


def test_attacks_fail_with_default_settings_and_succeed_without_guards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Noise is secret and would move figures across bars once in a while.
    monkeypatch.setattr(Session, "_durable_secret", lambda one: hashlib.sha256(one.party.encode()).digest())
    monkeypatch.setattr(sys, "argv", ["bench", "--json", "--quick"])
    with pytest.raises(SystemExit) as ended:
        main("x", measure, options)
    document = json.loads(capsys.readouterr().out)
    assert all(bar["holds"] for bar in document["bars"].values())
    assert ended.value.code == 0
    bars, figures = document["bars"], document["figures"]
    assert bars["breast_cancer cut: columns found, default settings"]["value"] == 0
    assert bars["breast_cancer cut: share found, epochs = rank"]["value"] > 0.5
    assert bars["breast_cancer: columns to read, unchanged shop"]["value"] == 0
    assert figures["breast_cancer: rows aimed at, 1 draws"] > 80
    assert figures["breast_cancer: label AUC, value 1, without noise"] > 0.99
    assert figures["breast_cancer: label AUC, value 1, with noise"] < 0.85


def test_a_data_set_that_is_not_there_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", "/nowhere")
    findings = Findings()
    assert list(loaded(findings, OF_LABELS, quick=False)) == ["breast_cancer"]
    assert list(findings.figures) == ["adult: left out", "default_credit: left out"]
