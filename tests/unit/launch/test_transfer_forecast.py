"""Forecasts of federated transfer learning against what really crosses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tests.unit.launch.test_forecast import MACHINES, crossed, expected, forecast_of, seconds_of, tables

from colonnade.errors import ConfigError
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, key_of
from colonnade.launch.settings import config_to_json
from colonnade.launch.simulation import simulate
from colonnade.methods.ftl import FTL, METHOD
from colonnade.session import Evaluate, Machines, RunPlan

QUICK: dict[str, Any] = {"width": 2, "iterations": 2, "key_size": "insecure_test", "allow_leak": True, "margin": -1.0}
THREE = ("bank", "shop", "club")
BY_CHANCE = {"OpeningShare"}


@pytest.mark.parametrize(
    ("settings", "given"),
    [
        pytest.param({}, tables(), id="one layer"),
        pytest.param({"hidden": (3,), "safeguard": False}, tables(), id="two layers"),
        pytest.param({"hidden": (3, 4), "trained_layers": 1, "safeguard": False}, tables(), id="one of three layers"),
        pytest.param({"reveal": "rows", "safeguard": False}, tables(), id="rows revealed"),
        pytest.param({"loss_every": 2, "batch_size": 60, "labelled_rows": 50}, tables(), id="batches"),
        pytest.param({"loss_every": 0, "safeguard": False}, tables(), id="no loss"),
        pytest.param({"iterations": 1}, tables(classes=3), id="three classes"),
        pytest.param({"protection": "none"}, tables(), id="in the clear"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(settings: dict[str, Any], given: Any) -> None:
    run = simulate(FTL(**QUICK | settings), given)
    foreseen, happened = expected(forecast_of(run, given)), crossed(run)
    assert foreseen.keys() == happened.keys()
    differing = {kind for kind in foreseen if foreseen[kind] != happened[kind]}
    assert {message for _, _, message in differing} <= BY_CHANCE
    for party in given:
        sent = sum(run.ledgers[party].bytes_sent().values())
        assert forecast_of(run, given).bytes_sent(party) == pytest.approx(sent, rel=0.01)


def test_several_targets_are_forecast_by_the_link_that_shares_most() -> None:
    given = tables(parties=THREE)
    run = simulate(FTL(**QUICK | {"safeguard": False}), given)
    known = gather_knowledge(run.plan, given)
    assert "share as many rows as those that share the most" in known.assumptions[0]
    assert expected(forecast_of(run, given)).keys() == crossed(run).keys()
    for party in given:
        sent = sum(run.ledgers[party].bytes_sent().values())
        assert forecast_of(run, given).bytes_sent(party) == pytest.approx(sent, rel=0.1)


def test_targets_that_share_no_row_with_one_another_are_no_trouble() -> None:
    given = tables(parties=THREE)
    given["shop"], given["club"] = given["shop"].take(np.arange(60)), given["club"].take(np.arange(70, 130))
    run = simulate(FTL(**QUICK | {"safeguard": False, "iterations": 1}), given)
    assert gather_knowledge(run.plan, given).shared == 60
    assert forecast_of(run, given).bytes_sent("shop") > 0


def test_what_is_kept_out_of_training_is_kept_out_of_the_encoders() -> None:
    """A category of one row is a column only if that row is not held out."""
    given = tables()
    held = simulate(FTL(**QUICK | {"safeguard": False, "protection": "none"}), given, evaluate=Evaluate())
    widths = {party: part.document["table_encoder"] for party, part in held.parts.items()}
    known = gather_knowledge(held.plan, given)
    assert set(known.columns) == set(widths)
    assert known.columns == {"bank": 6, "shop": 10}


def plan(stage: str = "train", **config: Any) -> RunPlan:
    settings = FTL(**QUICK | config)
    roles = {"source": ("bank",), "target": ("shop",)}
    return RunPlan(name="credit", method="ftl", roles=roles, config=config_to_json(settings), stage=stage)


def forecast_for(rows: int = 500, columns: int = 10, machines: Machines = MACHINES, **config: Any) -> RunForecast:
    agreed = plan(**config)
    widths = {"bank": columns, "shop": columns}
    return forecast_run(agreed, gather_knowledge(agreed, {}, columns=widths, shared_rows=rows, classes=2), machines)


def test_more_of_anything_takes_longer_and_sends_more() -> None:
    base = forecast_for(width=8)
    more = [forecast_for(rows=1000, width=8), forecast_for(columns=40, width=8), forecast_for(width=16)]
    more += [forecast_for(width=8, iterations=4), forecast_for(width=8, hidden=(8,))]
    for one in more:
        assert seconds_of(one) > seconds_of(base)
        assert one.bytes_sent("shop") > base.bytes_sent("shop")
    without = forecast_for(width=8, safeguard=False)
    assert "learning alone" not in [stage.name for stage in without.stages]
    assert seconds_of(without) < seconds_of(base)


def test_a_step_costs_in_proportion_to_its_rows_and_divides_among_workers() -> None:
    def step(rows: int, machines: Machines = MACHINES) -> float:
        found = forecast_for(rows=rows, width=8, machines=machines)
        return next(stage.seconds for stage in found.stages if "iteration" in stage.name) or 0.0

    assert step(4000) == pytest.approx(2 * step(2000), rel=0.15)
    wide = replace(MACHINES, workers={"bank": 4, "shop": 4}, cores=None)
    assert step(2000, wide) < step(2000) / 2


def test_in_the_clear_only_bytes_are_forecast() -> None:
    open_ = forecast_for(protection="none")
    assert open_.seconds is None
    assert open_.bytes_sent("shop") < forecast_for().bytes_sent("shop")
    assert METHOD.forecast is not None
    assert METHOD.forecast.key(FTL(protection="none")) is None
    assert METHOD.forecast.key(FTL()) == "2048"


def test_only_a_training_is_forecast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with pytest.raises(ConfigError, match="the stage validate is not"):
        key_of(plan("validate"))
