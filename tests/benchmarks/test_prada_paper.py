"""The page of the papers' benchmark of PrADA holds every number."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

import pytest
from benchmarks.papers import prada, prada_page


def test_the_page_shows_every_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    sizes = prada.Sizes(positives=(40,), seeds=(0, 1, 2), credit_seeds=(0, 1, 2), few=(0,))
    scores = {"scores": {"40": [83.21, 50.5]}, "domain_accuracy": [0.61, 0.58], "chosen": {"40": "transfer"}}
    scores["domains"] = {"groups": ["emp"], "before": [0.5], "after": [0.25]}
    scores["label protection"] = {
        "of_one_release": 0.6,
        "over_all_releases": 0.7,
        "bound": 0.719,
        "bound_over_all_releases": 0.84,
        "without_noise": 1.0,
    }
    names = (*prada_page.RIVALS, *prada_page.JOINED, *prada_page.HANDED)
    each: dict[str, Any] = {
        "adapted": scores,
        "network": {"scores": [77.0, 41.0]},
        "rivals": {"40": {name: [78.0, 42.0] for name in names}},
        "equality": {"networks_and_own_weights": 1e-9, "shared_weights": 2e-9},
        "pictures": {"explanation": []},
    }
    found = {prada.name_of(job): each[job[0]] for job in prada.jobs(sizes)}
    monkeypatch.setattr(prada, "keep_and_run", lambda *_: found)
    monkeypatch.setattr(prada, "Sizes", lambda: sizes)
    monkeypatch.setattr(prada_page, "DOCS", tmp_path)
    drawn: list[str] = []
    monkeypatch.setattr(prada_page, "draw_domains", lambda _, path: drawn.append(path.name))
    monkeypatch.setattr(prada_page, "draw_explanation", lambda _, path: drawn.append(path.name))
    findings = prada.measure(Namespace(quick=False, only=""))
    page = (tmp_path / "results-prada.md").read_text()
    assert findings.all_hold
    assert drawn == ["prada-domains.svg", "prada-explanation.svg"]
    assert all(f"| {row} |" in page for row in (*names, *prada_page.ADAPTED))
    assert "| PrADA | 83.2 ± 0.0 / 50.5 ± 0.0 | 79.17 / 44.92" in page
