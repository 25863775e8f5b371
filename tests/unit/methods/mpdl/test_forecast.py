"""Forecasts of multi-party dual learning against what really crosses: every message kind, its number and its bytes."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.unit.launch.test_forecast import crossed, expected
from tests.unit.methods.mpdl.worlds import COMPARED, frames, pictures, run_of, settings, tables_of

from colonnade import Launch
from colonnade.data import PartyTable
from colonnade.errors import ConfigError
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, key_of, without_costs
from colonnade.session import RunPlan

Frames = dict[str, pd.DataFrame]
Counts = dict[tuple[str, str, str], tuple[int, int]]
PICTURES: dict[str, Any] = {"image": (1, 6, 6), "channels": (2, 3), "kernel_size": 3, "dense": (5,)}


def forecast_of(plan: RunPlan, given: dict[str, PartyTable], **said: Any) -> RunForecast:
    return forecast_run(plan, gather_knowledge(plan, given, **said), without_costs(key_of(plan)))


def whatever_is_chosen(found: Counts) -> Counts:
    """Leave out how long the name of the chosen model is."""
    return {kind: (number, 0 if kind[2] == "Choice" else size) for kind, (number, size) in found.items()}


def with_towns(found: Frames) -> Frames:
    return found | {"shop": found["shop"].assign(town=["oslo", "rome", "oslo", "bern"] * 13)}


@pytest.mark.parametrize(
    ("changes", "world", "options"),
    [
        pytest.param({}, frames(), {}, id="as it is"),
        pytest.param({"folds": 3, "precision": "float32"}, frames("multiclass"), {}, id="folds"),
        pytest.param({"folds": 3, "hidden": None}, frames("regression", 3), {"evaluate": COMPARED}, id="three holders"),
        pytest.param({"completion": "ship"}, frames(common=2), {}, id="columns are sent"),
        pytest.param({"completion": "ship", "augment": False}, frames(parties=3), {}, id="only the label holder's"),
        pytest.param(
            {"generator": "mlp", "dual_weight": 0.1, "dual_consent": True, "folds": 3, "strict_folds": True},
            frames(),
            {},
            id="dual penalty",
        ),
        pytest.param({"levels": {"town": ("oslo", "rome", "bern", "wien")}}, with_towns(frames()), {}, id="categories"),
        pytest.param({"mechanism": "none"}, frames(), {}, id="no noise"),
        pytest.param({**PICTURES, "bounds": {"*": (0.0, 1.0)}}, pictures(), {}, id="pictures"),
        pytest.param({**PICTURES, "bounds": {"*": (0.0, 1.0)}, "kernels": "tied"}, pictures(), {}, id="tied kernels"),
        pytest.param({}, frames(), {"stage": "dual"}, id="generators by themselves"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(
    changes: dict[str, Any], world: Frames, options: dict[str, Any]
) -> None:
    run = run_of(world, settings(fold_gain=2.0, **changes), **options)
    found = forecast_of(run.plan, tables_of(world))
    assert whatever_is_chosen(expected(found)) == whatever_is_chosen(crossed(run))


def test_a_classifier_by_itself_is_foreseen() -> None:
    world, config = frames(), settings()
    run = run_of(world, config, stage="central", after=run_of(world, config, stage="dual", launch=Launch(name="first")))
    found = forecast_of(run.plan, tables_of(world))
    assert whatever_is_chosen(expected(found)) == whatever_is_chosen(crossed(run))


def test_columns_elsewhere_are_taken_to_have_names_of_eight_letters() -> None:
    world = frames(common=2)
    world["shop"] = world["shop"].rename(columns={f"shop{one}": f"shop___{one}" for one in range(3)})
    run = run_of(world, settings())
    found = forecast_of(run.plan, {"bank": tables_of(world)["bank"]}, shared_rows=40, columns={"shop": 5})
    sent, foreseen = crossed(run), expected(found)
    kinds = [kind for kind in sent if kind[2] in ("ReleasedTable", "MaskedValues", "FirstGradient")]
    assert len(kinds) == 6
    assert {kind: foreseen[kind] for kind in kinds} == {kind: sent[kind] for kind in kinds}


@pytest.mark.parametrize(
    "changes",
    [
        {"completion": "secure_block", "block_consent": True},
        {"exchange": "interactive", "generator": "mlp", "dual_consent": True},
    ],
)
def test_trainings_under_encryption_are_not_forecast_and_say_so(changes: dict[str, Any]) -> None:
    world = frames()
    run = run_of(world, settings())
    config = run.plan.config | changes
    with pytest.raises(ConfigError, match=r"are not forecast yet. With \w+ = '\w+' they are"):
        forecast_of(RunPlan(name="run", method="mpdl", roles=run.plan.roles, config=config), tables_of(world))
