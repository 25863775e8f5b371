"""Forecasts of FedCVT against what really crosses: every message kind, its number and its bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.launch.test_forecast import MACHINES, crossed, expected, seconds_of

from colonnade.data import PartyTable
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, key_of, without_costs
from colonnade.launch.settings import config_to_json
from colonnade.launch.simulation import simulate
from colonnade.methods.fedcvt import METHOD, FedCVT
from colonnade.session import Evaluate, Machines, RunPlan

TWO, THREE = ("bank", "shop"), ("bank", "shop", "club")
SMALL: dict[str, Any] = {
    "candidates": ("fedcvt",),
    "shared_width": 3,
    "unique_width": 2,
    "orthogonality": "dsn",
    "epochs": 2,
    "batch_size": 24,
    "own_batch_size": 16,
    "patience": 0,
    "anchors": 20,
    "key_size": "insecure_test",
}
# Hidden numbers that happen to be small take a byte less, and so do marks of ids.
BY_CHANCE = {"OpeningShares", "IdMarks"}


def tables(parties: tuple[str, ...] = TWO, classes: int = 2, only: int = 21) -> dict[str, PartyTable]:
    """Return parties that share 60 rows, each with rows of its own, every party with a few more than the one before."""
    random = np.random.default_rng(3)
    made = {}
    for place, party in enumerate(parties):
        own = [f"{party}{row:03}" for row in range(only + 19 * place if only else 0)]
        ids = [f"c{row:03}" for row in range(60)] + own
        frame = pd.DataFrame({"id": ids, **{f"{party}_{one}": random.normal(size=len(ids)) for one in range(3)}})
        if place == 0:
            frame["label"] = random.integers(0, classes, len(ids)) if classes else random.normal(size=len(ids))
        made[party] = PartyTable(frame, id="id", label=None if place else "label", name=party)
    return made


def forecast_of(plan: RunPlan, given: dict[str, PartyTable]) -> RunForecast:
    return forecast_run(plan, gather_knowledge(plan, given), without_costs(key_of(plan)))


@pytest.mark.parametrize("parties", [TWO, THREE], ids=len)
@pytest.mark.parametrize("level", [0, 1, 2])
@pytest.mark.parametrize(
    ("settings", "world"),
    [
        pytest.param({}, {}, id="as it is"),
        pytest.param({"warmup_epochs": 0, "epochs": 1, "sealed_fit": "off", "pull": 0.0}, {"classes": 3}, id="classes"),
        pytest.param({"codes": "shared", "sealed_pull": "one_sided"}, {"classes": 0}, id="numbers"),
        pytest.param({"pseudo_labels": False, "epochs": 1, "precision": "float64"}, {}, id="no labels for partners"),
        pytest.param({"estimate": False, "epochs": 1, "own_fit": 0.0}, {"only": 0}, id="shared rows only"),
        pytest.param({"candidates": ("fedcvt", "vanilla", "wide", "local")}, {}, id="candidates"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(
    settings: dict[str, Any], world: dict[str, Any], level: int, parties: tuple[str, ...]
) -> None:
    given = tables(parties, **world)
    run = simulate(FedCVT(**SMALL | {"level": level} | settings), given)
    foreseen, happened = expected(forecast_of(run.plan, given)), crossed(run)
    assert foreseen.keys() == happened.keys()
    differing = {message for kind in foreseen for message in kind[2:] if foreseen[kind] != happened[kind]}
    # Which of several models is chosen, and so the length of its name, is not known before.
    assert differing <= BY_CHANCE | ({"Choice"} if len(run.plan.config["candidates"]) > 1 else set())
    assert {kind: count for kind, (count, _) in foreseen.items()} == {kind: one for kind, (one, _) in happened.items()}


@pytest.mark.parametrize("level", [0, 1])
def test_models_that_need_codes_are_foreseen_too(level: int) -> None:
    given = tables(THREE, classes=3)
    candidates = ("mean_fill", "mftl", "ftl")
    run = simulate(FedCVT(**SMALL | {"level": level, "candidates": candidates, "defence": "marvell"}), given)
    foreseen, happened = expected(forecast_of(run.plan, given)), crossed(run)
    differing = {message for kind in foreseen for message in kind[2:] if foreseen[kind] != happened[kind]}
    assert foreseen.keys() == happened.keys()
    assert differing <= {"Choice", "IdMarks"}


def test_a_label_holder_alone_sends_nothing() -> None:
    agreed = plan()
    alone = replace(agreed, roles={"label_holder": ("bank",)})
    found = forecast_run(alone, gather_knowledge(alone, {}, shared_rows=100, classes=2), MACHINES)
    assert found.bytes_sent("bank") == 0


def test_runs_without_validation_rows_are_foreseen() -> None:
    given = tables()
    evaluate = Evaluate(test_fraction=0.4, validation_fraction=0.0)
    run = simulate(FedCVT(**SMALL | {"epochs": 1, "level": 2, "batch_size": 64}), given, evaluate=evaluate)
    foreseen, happened = expected(forecast_of(run.plan, given)), crossed(run)
    assert {kind[2] for kind in foreseen if foreseen[kind] != happened[kind]} <= BY_CHANCE


def plan(**config: Any) -> RunPlan:
    written = config_to_json(FedCVT(**SMALL | {"level": 2, "epochs": 3, "own_batch_size": 32} | config))
    return RunPlan(
        name="few", method="fedcvt", roles={"label_holder": ("bank",), "feature_holder": ("shop",)}, config=written
    )


def forecast_for(own: int = 200, machines: Machines = MACHINES, classes: int = 2, **config: Any) -> RunForecast:
    agreed = plan(**config)
    known = gather_knowledge(agreed, {}, shared_rows=200, classes=classes)
    known = replace(known, rows={"bank": 200 + own, "shop": 200 + own})
    return forecast_run(agreed, known, machines)


def test_more_of_anything_takes_longer_and_sends_more() -> None:
    base = forecast_for()
    for more in (
        forecast_for(own=400),
        forecast_for(epochs=6),
        forecast_for(warmup_epochs=0),
        forecast_for(classes=5),
        forecast_for(unique_width=10),
        forecast_for(candidates=("fedcvt", "wide")),
    ):
        assert seconds_of(more) > seconds_of(base)
        assert more.bytes_sent("shop") > base.bytes_sent("shop")
    for less in (forecast_for(pseudo_labels=False), forecast_for(estimate=False), forecast_for(sealed_fit="off")):
        assert seconds_of(less) < seconds_of(base)
        assert less.bytes_sent("bank") < base.bytes_sent("bank")
    wide = forecast_for(machines=replace(MACHINES, workers={"bank": 4, "shop": 4}, cores=None))
    assert seconds_of(wide) < seconds_of(base)


def test_parties_that_take_turns_are_never_busy_at_once() -> None:
    found = forecast_for()
    every = [stage for stage in found.stages if "one epoch" in stage.name]
    assert [stage.name for stage in every] == ["warm-up of fedcvt, one epoch", "training of fedcvt, one epoch"]
    assert [stage.times for stage in every] == [1, 2]
    for stage in every:
        assert stage.seconds is not None
        assert sum(stage.busy.values()) < stage.seconds < 1.5 * sum(stage.busy.values())


def test_a_forecast_says_what_it_takes_for_granted() -> None:
    assert "networks take no time of their own" in forecast_for().assumptions
    assert "all rows of the label holder have a label" in forecast_for(level=0).assumptions
    assert any("gets a label" in one for one in forecast_for().assumptions)
    assert not any("gets a label" in one for one in forecast_for(pseudo_labels=False).assumptions)


def test_in_the_clear_only_bytes_are_forecast() -> None:
    open_ = forecast_for(level=0)
    assert open_.seconds is None
    assert open_.bytes_sent("shop") < forecast_for().bytes_sent("shop")
    assert METHOD.forecast is not None
    assert METHOD.forecast.key(FedCVT()) is None
    assert METHOD.forecast.key(FedCVT(level=2)) == "2048"
    assert METHOD.forecast.key(FedCVT(level=2, candidates=("local",))) is None
