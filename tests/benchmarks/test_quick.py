"""Every benchmark has a quick form, which runs to its end; what does not depend on sizes must hold in it."""

from __future__ import annotations

import json
import math
import runpy
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCHMARKS = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for path in sorted((ROOT / "benchmarks").rglob("*.py"))
    if '\nif __name__ == "__main__":\n' in path.read_text(encoding="utf-8")
]


def test_the_folder_is_looked_into() -> None:
    assert {"benchmarks.overhead", "benchmarks.papers.prada"} <= set(BENCHMARKS)


@pytest.mark.parametrize("name", BENCHMARKS)
def test_the_quick_form_of_every_benchmark_runs_to_its_end(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: to load torch takes longer than most of them."""
    monkeypatch.setenv("COLONNADE_DATA", "/nowhere")
    monkeypatch.setattr(sys, "argv", [name, "--quick", "--json"])
    monkeypatch.chdir(ROOT)
    with warnings.catch_warnings(action="default"), pytest.raises(SystemExit) as ended:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    printed = capsys.readouterr()
    assert not ended.value.code, printed.out + printed.err
    document = json.loads(printed.out)
    assert set(document) == {"figures", "bars"}
    assert len(document["figures"]) > 1
    assert document["bars"]
    for bar in document["bars"].values():
        assert len(bar.keys() & {"at_least", "at_most"}) == 1
        assert math.isfinite(bar["value"])
        assert bar["holds"] in (True, None)
