"""Forecasts of FairVFL against what really crosses: every message kind, its number and its bytes."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.unit.launch.test_forecast import crossed, expected
from tests.unit.methods.fairvfl.worlds import frames, run_of, settings, tables_of, texts

from colonnade.data import PartyTable
from colonnade.errors import ConfigError
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, without_costs
from colonnade.session import RunPlan

Frames = dict[str, pd.DataFrame]


def forecast_of(plan: RunPlan, given: dict[str, PartyTable], **said: Any) -> RunForecast:
    return forecast_run(plan, gather_knowledge(plan, given, **said), without_costs(None))


def with_own_columns(found: Frames) -> Frames:
    """Let the bank have columns too, and the first shop a sensitive one."""
    return {
        **{name: found[name] for name in ("two", "bureau")},
        "bank": found["bank"].assign(income=range(len(found["bank"]))),
        "one": found["one"].merge(found["state"], on="id"),
    }


@pytest.mark.parametrize(
    ("changes", "world"),
    [
        pytest.param({}, frames(), id="as it is"),
        pytest.param({"mapper_step": "merged", "precision": "float64"}, frames("multiclass"), id="merged steps"),
        pytest.param({"task_cut": "server", "adversary_every": 3}, frames("multiclass"), id="task at the server"),
        pytest.param({"adversary_every": 2, "batch_size": 24, "epochs": 3}, frames("regression"), id="not every step"),
        pytest.param(
            {"removal_weights": {"age": 0.0}, "label_epsilon": None, "protected_widths": {"gender": 2}},
            with_own_columns(frames()),
            id="columns and attributes at one party",
        ),
        pytest.param({"removal": "paper", "code_noise": 0.0, "protected_noise": 0.0}, frames(), id="without noise"),
        pytest.param(
            {"attributes": ()}, {k: v for k, v in frames().items() if k in ("bank", "one", "two")}, id="plain"
        ),
        pytest.param({"task": "ranking", "local": "nrms"}, texts(), id="ranking"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(changes: dict[str, Any], world: Frames) -> None:
    run = run_of(world, settings(**changes))
    assert expected(forecast_of(run.plan, tables_of(world))) == crossed(run)


def test_attributes_elsewhere_are_taken_to_lie_at_attribute_holders() -> None:
    world = frames()
    run = run_of(world, settings())
    here = {name: table for name, table in tables_of(world).items() if name not in ("state", "bureau")}
    assert expected(forecast_of(run.plan, here, shared_rows=80)) == crossed(run)


def test_a_label_holder_elsewhere_may_have_no_columns() -> None:
    world = frames()
    run = run_of(world, settings())
    here = {name: table for name, table in tables_of(world).items() if name != "bank"}
    said = {"shared_rows": 80, "classes": 2}
    found = forecast_of(run.plan, here, columns={"bank": 0}, **said)
    assert expected(found) == crossed(run)
    more = forecast_of(run.plan, here, columns={"bank": 3}, **said)
    assert more.bytes_sent("bank") > found.bytes_sent("bank") + 64 * 8 * 4


def test_attributes_that_nobody_can_have_are_refused() -> None:
    world = frames()
    run = run_of(world, settings())
    tables = tables_of(world | {"state": world["state"].rename(columns={"gender": "sex"})})
    with pytest.raises(ConfigError, match="names 'gender', which no party"):
        forecast_of(run.plan, tables)
