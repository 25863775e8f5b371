"""The benchmark of what secure_lr gives away can do with the data that is there."""

from __future__ import annotations

import pytest
from benchmarks.form import Findings
from benchmarks.secure_lr_leaks import OF_LABELS, loaded


def test_a_data_set_that_is_not_there_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", "/nowhere")
    findings = Findings()
    assert list(loaded(findings, OF_LABELS, quick=False)) == ["breast_cancer"]
    assert list(findings.figures) == ["adult: left out", "default_credit: left out"]
