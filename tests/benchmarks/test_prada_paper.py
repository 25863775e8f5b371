"""The papers' benchmark of PrADA: its rows are played as the product plays them, and its page holds every number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from benchmarks.papers import prada, prada_page
from benchmarks.papers.prada_world import SOURCE, TARGET, Rows, World, as_one, parts_of, play_stage

from colonnade import PartyTable, PrADA


@pytest.fixture(scope="module")
def world() -> World:
    random = np.random.default_rng(0)
    latent = random.normal(size=240)
    company = pd.DataFrame({"id": np.arange(240), "kind": np.where(latent > 0, "a", "b")})
    company["other"] = random.choice(["c", "d", "e"], 240)
    bank = pd.DataFrame({"id": np.arange(240), "age": random.normal(size=240)})
    bank["label"] = (latent + 0.3 * random.normal(size=240) > 0).astype(float)
    target = bank[160:].copy()
    target.loc[target.index[30:50], "label"] = np.nan
    ids = np.arange(240)
    return World(
        PartyTable(company, id="id"),
        {
            TARGET: PartyTable(target, id="id", label="label", unlabelled=True),
            SOURCE: PartyTable(bank[:160], id="id", label="label"),
        },
        {SOURCE: Rows(ids[:140], ids[140:160], ids[:0]), TARGET: Rows(ids[160:210], ids[210:225], ids[225:])},
    )


def quick(**more: Any) -> PrADA:
    settings = {"protection": "none", "pictures": False, "epochs": 1, "fine_epochs": 1, "compare": "none"}
    return PrADA(groups={"one": ("kind",), "two": ("other",)}, batch_size=64, **(settings | more))


def test_stages_follow_each_other_on_rows_that_are_given(world: World) -> None:
    config = quick(explanations=True)
    before = play_stage(world, config, "pretrain", seed=0)
    after = play_stage(world, config, "finetune", seed=0, parts=parts_of(before), banks=(TARGET,))
    told = play_stage(world, config, "explain", seed=0, parts=parts_of(after), banks=(TARGET,))
    assert len(after[TARGET].scores.values) == 15
    assert np.array_equal(after[TARGET].scores.truth, world.banks[TARGET].labels[65:])
    assert prada.finding_of(told, "explanation").values["names"] == ["one", "two", "one-two", "age"]


def test_both_banks_as_one_have_all_labelled_rows(world: World) -> None:
    both = as_one(world)
    assert both.banks[TARGET].rows == 240
    config = quick(adaptation=False, tune="all")
    assert play_stage(both, config, "train", seed=0, banks=(TARGET,))[TARGET].scores is not None


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
        "network": [77.0, 41.0],
        "rivals": {"40": {name: [78.0, 42.0] for name in names}},
        "equality": {"networks_and_own_weights": 1e-9, "shared_weights": 2e-9},
        "pictures": None,
    }
    found = {prada.name_of(job): each[job[0]] for job in prada.jobs(sizes)}
    monkeypatch.setattr(prada, "run_all", lambda *_: found)
    monkeypatch.setattr(prada, "Sizes", lambda: sizes)
    monkeypatch.setattr(prada_page, "DOCS", tmp_path)
    drawn: list[str] = []
    monkeypatch.setattr(prada_page, "draw_domains", lambda _, path: drawn.append(path.name))
    monkeypatch.setattr(prada_page, "draw_explanation", lambda _, path: drawn.append(path.name))
    monkeypatch.setitem(found, "pictures/0", {"explanation": []})
    arguments = type("Arguments", (), {"quick": False, "workers": 1, "keep": None})()
    findings = prada.measure(arguments)  # type: ignore[arg-type]
    page = (tmp_path / "results-prada.md").read_text()
    assert findings.all_hold
    assert drawn == ["prada-domains.svg", "prada-explanation.svg"]
    assert all(f"| {row} |" in page for row in (*names, *prada_page.ADAPTED))
    assert "| PrADA | 83.2 ± 0.0 / 50.5 ± 0.0 | 79.17 / 44.92" in page
