"""Forecasts of PrADA against what really crosses: every message kind, its number and its bytes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.launch.test_forecast import MACHINES, crossed, expected, seconds_of

from colonnade.data import PartyTable
from colonnade.errors import ConfigError
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, key_of, without_costs
from colonnade.launch.run import Run
from colonnade.launch.settings import config_to_json
from colonnade.launch.simulation import simulate
from colonnade.methods.prada import METHOD, PrADA
from colonnade.session import Machines, RunPlan

ROLES = {"target": "bank", "source": "sister", "feature_holder": "data"}
QUICK: dict[str, Any] = {
    "groups": {"work": ("job", "hours"), "place": ("region", "house")},
    "epochs": 2,
    "fine_epochs": 2,
    "batch_size": 32,
    "fine_batch_size": 32,
    "key_size": "insecure_test",
    "pictures": False,
}
BY_CHANCE = {"OpeningShare"}


def tables(classes: int = 2) -> dict[str, PartyTable]:
    random = np.random.default_rng(5)

    def people(count: int, start: int) -> tuple[pd.DataFrame, pd.DataFrame]:
        worth = random.normal(size=count)
        ids = [f"p{start + number:05d}" for number in range(count)]
        kind = np.digitize(worth + random.normal(0, 0.5, count), np.linspace(-0.5, 0.5, classes - 1))
        bank = pd.DataFrame(
            {"person": ids, "age": 40 + 9 * worth, "income": np.array(list("abcd"))[kind].astype(object)}
        )
        data = pd.DataFrame({"person": ids, "job": np.where(worth > 0, "clerk", "driver")})
        data["hours"], data["region"] = random.normal(worth), random.choice(["north", "south"], count)
        return bank, data.assign(house=random.choice(["owner", "tenant"], count))

    (source, first), (target, second) = people(150, 0), people(90, 1000)
    target.loc[target.index >= 60, "income"] = None
    label = {"id": "person", "label": "income"}
    return {
        "bank": PartyTable(target, **label, unlabelled=True, name="bank"),
        "sister": PartyTable(source, **label, name="sister"),
        "data": PartyTable(pd.concat([first, second]), id="person", name="data"),
    }


def forecast_of(run: Run, given: dict[str, PartyTable], key: str | None) -> RunForecast:
    return forecast_run(run.plan, gather_knowledge(run.plan, given), without_costs(key))


@pytest.mark.parametrize(
    ("settings", "stage"),
    [
        pytest.param({}, "train", id="nothing tuned"),
        pytest.param({"tune": "all", "defence": "none"}, "train", id="all tuned, no defence"),
        pytest.param({"compare": "vfl", "interactions": False, "fine_epochs": 1}, "train", id="compared"),
        pytest.param({"grouped": False, "epochs": 1}, "pretrain", id="one group, pre-training"),
        pytest.param({"protection": "none", "aggregate": 2, "tune": "unseen"}, "train", id="in the clear"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(settings: dict[str, Any], stage: str) -> None:
    given = tables()
    config = PrADA(**QUICK | settings)
    run = simulate(config, given, roles=ROLES, stage=stage)
    found = forecast_of(run, given, "insecure_test" if config.is_sealed else None)
    foreseen, happened = expected(found), crossed(run)
    assert foreseen.keys() == happened.keys()
    assert {kind: count for kind, (count, _) in foreseen.items()} == {kind: one for kind, (one, _) in happened.items()}
    for party in given:
        sent = sum(run.ledgers[party].bytes_sent().values())
        assert found.bytes_sent(party) == pytest.approx(sent, rel=0.01)


def test_fine_tuning_by_itself_is_forecast_without_the_source() -> None:
    given = tables(classes=3)
    config = PrADA(**QUICK | {"epochs": 1})
    first = simulate(config, given, roles=ROLES, stage="pretrain")
    run = simulate(config, given, roles=ROLES, stage="finetune", after=first)
    here = {party: given[party] for party in run.plan.parties}
    found = forecast_of(run, here, "insecure_test")
    assert expected(found).keys() == crossed(run).keys()
    for party in here:
        assert found.bytes_sent(party) == pytest.approx(sum(run.ledgers[party].bytes_sent().values()), rel=0.01)


def plan(stage: str = "train", **config: Any) -> RunPlan:
    roles = {"target": ("bank",), "source": ("sister",), "feature_holder": ("data",)}
    written = config_to_json(PrADA(**QUICK | config))
    return RunPlan(name="census", method="prada", roles=roles, config=written, stage=stage)


def forecast_for(rows: int = 500, machines: Machines = MACHINES, **config: Any) -> RunForecast:
    agreed = plan(**config)
    return forecast_run(agreed, gather_knowledge(agreed, {}, shared_rows=rows, classes=2), machines)


def test_more_of_anything_takes_longer_and_sends_more() -> None:
    base = forecast_for()
    three = {"a": ("x",), "b": ("y",), "c": ("z",)}
    for more in (forecast_for(rows=1000), forecast_for(epochs=4), forecast_for(tune="all"), forecast_for(groups=three)):
        assert seconds_of(more) > seconds_of(base)
        assert more.bytes_sent("data") > base.bytes_sent("data")
    assert seconds_of(
        forecast_for(machines=replace(MACHINES, workers={"bank": 4, "sister": 4, "data": 4}, cores=None))
    ) < (seconds_of(base))


def test_a_forecast_names_its_stages_and_what_it_takes_for_granted() -> None:
    found = forecast_for(groups={}, compare="vfl", novelties=2)
    names = [stage.name for stage in found.stages]
    assert "pre-training of sister, one epoch" in names
    assert "fine-tuning of bank, encrypting numbers" in names
    assert "training without a source of bank, one epoch" in names
    assert [stage.times for stage in found.stages if stage.name == "pre-training of sister, one epoch"] == [2]
    assert "networks take no time" in found.assumptions[-3]
    assert "proposes 4 groups" in found.assumptions[-2]
    assert "novelties" in found.assumptions[-1]


def test_in_the_clear_only_bytes_are_forecast() -> None:
    open_ = forecast_for(protection="none")
    assert open_.seconds is None
    assert open_.bytes_sent("data") < forecast_for().bytes_sent("data")
    assert key_of(plan(protection="none")) is None
    assert METHOD.forecast is not None
    assert METHOD.forecast.key(PrADA()) == "2048"


def test_an_explanation_is_not_forecast() -> None:
    with pytest.raises(ConfigError, match="the stage explain is not"):
        key_of(plan(stage="explain"))
