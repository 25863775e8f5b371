"""Parts of shared rows by which the two models are compared, and the rule that keeps the better one."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests import mpdl_reference as central
from tests.unit.methods.mpdl.worlds import COMPARED, Watched, fixed_secret, frames, run_of, settings, watched

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.methods.mpdl import dual
from colonnade.methods.mpdl.choice import Comparison

FEW: dict[str, Any] = {"epochs": 1, "batch_size": 64, "folds": 5, "fold_rounds": 4}


def parts_of(facts: Watched, party: str = "bank") -> list[np.ndarray]:
    """Return the parts that were tried: what each generator did not learn from."""
    every = np.arange(len(facts.tables[party].shared))
    return [np.setdiff1d(every, rows) for name, rows in facts.lessons[party] if name != "final"]


@pytest.fixture
def gains(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Let comparisons give these gains, whatever they are."""
    wanted: list[float] = []
    add = Comparison.add

    def added(self: Comparison, found: Any) -> float:
        add(self, found)
        return wanted[len(self.rounds) - 1]

    monkeypatch.setattr(Comparison, "add", added)
    return wanted


@pytest.mark.parametrize(
    ("told", "tried"),
    [
        ([0.2, 0.0, 0.0, 0.0], 1),
        ([0.15, 0.16, 0.0, 0.0], 2),
        ([-0.5, 0.15, float("nan"), 0.0], 4),
    ],
    ids=str,
)
def test_no_part_is_tried_after_the_first_gain_above_the_threshold(
    gains: list[float], told: list[float], tried: int
) -> None:
    gains += told
    with watched() as facts:
        run = run_of(frames(), settings(**FEW, fold_gain=0.15))
    assert len(parts_of(facts)) == tried
    assert len(run.findings["comparison"].values["rounds"]) == tried
    for party in ("bank", "shop"):
        assert [name for name, _ in facts.lessons[party]] == [*(f"fold {one + 1}" for one in range(tried)), "final"]
    assert {name for party, name in facts.trainings if party == "helper"} == {
        *(f"fold {one + 1}/{model}" for one in range(tried) for model in ("joint", "completed")),
        "joint",
        "completed",
    }


@pytest.mark.parametrize(("folds", "rounds"), [(3, 5), (4, 2)])
def test_no_row_is_held_out_twice(gains: list[float], folds: int, rounds: int) -> None:
    gains += [0.0] * rounds
    with watched() as facts:
        run_of(frames(), settings(epochs=1, batch_size=64, folds=folds, fold_rounds=rounds))
    parts = parts_of(facts)
    assert len(parts) == min(folds, rounds)
    together = np.concatenate(parts)
    assert len(np.unique(together)) == len(together)
    sizes = {len(part) for part in parts}
    assert max(sizes) - min(sizes) <= 1
    if rounds >= folds:
        assert len(together) == len(facts.tables["bank"].shared)
    for one, other in zip(parts, parts_of(facts, "shop"), strict=True):
        assert np.array_equal(one, other)


def test_another_seed_tries_other_parts() -> None:
    found = []
    for seed in (1, 2):
        with watched() as facts:
            run_of(frames(), settings(**FEW), seed=seed)
        found.append(np.concatenate(parts_of(facts)).tolist())
    assert found[0] != found[1]


def test_test_rows_are_in_no_part_and_nobody_learns_from_them() -> None:
    with watched() as facts:
        run_of(frames(), settings(**FEW))
    for table in facts.tables.values():
        assert not set(table.test) & set(table.shared)
        assert len(table.released) == len(table.shared)


# Which model is kept


def harmful() -> dict[str, pd.DataFrame]:
    """Return rows of which those that only the bank knows have wrong labels, and a shop whose columns are noise."""
    found = frames("binary", shared=100, own={"bank": 150, "shop": 10})
    bank, shop = found["bank"], found["shop"]
    alone = ~bank["id"].isin(shop["id"])
    bank.loc[alone, "y"] = 1 - bank.loc[alone, "y"]
    random = np.random.default_rng(1)
    for name in [name for name in shop if name.startswith("shop")]:
        shop[name] = random.normal(7.0, 5.0, len(shop))
    return found


LEARNING: dict[str, Any] = {
    "epochs": 8,
    "batch_size": 24,
    "folds": 3,
    "fold_rounds": 2,
    "learning_rate": 0.5,
    "completion": "ship",
    "augment": False,
    "mechanism": "none",
}


@functools.cache
def harmed() -> cn.Run:
    return run_of(harmful(), settings(**LEARNING))


def test_the_model_of_shared_rows_alone_is_kept_where_completed_rows_harm() -> None:
    run = harmed()
    assert {part.document["chosen"] for part in run.parts.values()} == {"joint"}
    rounds = run.findings["comparison"].values["rounds"]
    assert np.mean([one["completed"][0] - one["joint"][0] for one in rounds]) < -0.2
    assert run.metrics["accuracy"] > 0.6
    assert "shared rows only" in run.findings["comparison"].text


def test_the_model_of_completed_rows_is_kept_where_they_help() -> None:
    found = frames("binary", shared=30, own={"bank": 300, "shop": 10}, noise=1.0)
    run = run_of(found, settings(**{**LEARNING, "epochs": 3}, fold_gain=1.0))
    assert {part.document["chosen"] for part in run.parts.values()} == {"completed"}


def test_scores_are_those_of_the_model_that_is_kept() -> None:
    """The same run with the other model in its place would score otherwise."""
    run = harmed()
    situations = run.findings["situations"].values["shared"]
    assert run.metrics["accuracy"] == pytest.approx(situations["joint"])
    assert situations["joint"] > situations["completed"] + 0.2


def quality(joint: tuple[float, float], completed: tuple[float, float]) -> Any:
    return {"joint": joint, "completed": completed}


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        ([], "completed"),
        ([quality((0.5, 1.0), (0.6, 1.0))], "completed"),
        ([quality((0.6, 1.0), (0.5, 0.1))], "joint"),
        ([quality((0.6, 1.0), (0.6, 0.9))], "completed"),
        ([quality((0.6, 1.0), (0.6, 1.0))], "joint"),
        ([quality((0.5, 1.0), (0.7, 1.0)), quality((0.9, 1.0), (0.6, 1.0))], "joint"),
        ([quality((0.5, 1.0), (float("nan"), float("nan")))], "joint"),
    ],
    ids=str,
)
def test_the_rule(rounds: list[Any], kept: str) -> None:
    assert Comparison(rounds).chosen == kept


def test_without_parts_validation_rows_decide() -> None:
    run = run_of(harmful(), settings(**{**LEARNING, "folds": 0}), evaluate=COMPARED)
    assert len(run.findings["comparison"].values["rounds"]) == 1
    assert run.parts["shop"].document["chosen"] == "joint"


def test_with_nothing_to_compare_by_completed_rows_are_used_and_that_is_said() -> None:
    run = run_of(frames(), settings(epochs=1))
    assert run.parts["helper"].document["chosen"] == "completed"
    assert "Nothing was held out" in run.findings["comparison"].text


@pytest.mark.parametrize("changes", [{"folds": 1}, {"folds": -1}, {"fold_rounds": 0}, {"fold_gain": -0.1}], ids=str)
def test_settings_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        settings(**changes)


# Whether generators go on


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, list[torch.nn.Module]]]:
    """Note every generator as it was drawn."""
    fixed_secret(monkeypatch)
    found: dict[str, list[torch.nn.Module]] = {}
    fresh = dual.DualLearning._fresh

    def noted(self: Any, counter: int) -> Any:
        generator = fresh(self, counter)
        found.setdefault(self._session.party, []).append(copy.deepcopy(generator.network))
        return generator

    monkeypatch.setattr(dual.DualLearning, "_fresh", noted)
    return found


def test_strict_parts_get_generators_that_never_saw_them(drawn: dict[str, list[torch.nn.Module]]) -> None:
    config = settings(
        generator="mlp", folds=3, fold_rounds=3, strict_folds=True, fold_gain=1.0, mechanism="none", epochs=1
    )
    with watched() as facts:
        run_of(frames(), config)
    lessons = [name for name, _ in facts.lessons["bank"]]
    assert len(lessons) == 4
    assert len({next(one.parameters()).sum().item() for one in drawn["bank"]}) == 4
    released = [facts.tables[party].released for party in ("bank", "shop")]
    inputs = [facts.tables[party].inputs(facts.tables[party].shared) for party in ("bank", "shop")]
    for place, name in enumerate(lessons):
        networks = [copy.deepcopy(drawn[party][place]) for party in ("bank", "shop")]
        optimizers = [torch.optim.SGD(one.parameters(), lr=config.generator_rate) for one in networks]
        steps = facts.steps["bank", name]
        central.train_generators(networks, inputs, released, steps, central.Dual(), optimizers)
        for party, network in zip(("bank", "shop"), networks, strict=True):
            for one, other in zip(network.parameters(), facts.learned[party, name].values(), strict=True):
                assert (one - other).abs().max() < 1e-10


def test_otherwise_they_go_on_and_the_report_says_so(drawn: dict[str, list[torch.nn.Module]]) -> None:
    config = settings(generator="mlp", folds=3, fold_rounds=2, fold_gain=1.0, epochs=1)
    with watched():
        run = run_of(frames(), config)
    assert len(drawn["bank"]) == 1
    assert "too good" in run.findings["comparison"].text
    assert isinstance(config, cn.MPDL)
