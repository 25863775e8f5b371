"""Forecasts against what really crosses: every message kind, its number and its bytes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.crypto.calibration import CryptoCosts, measure_costs, measure_speedup
from colonnade.data import PartyTable
from colonnade.engine import EngineSettings
from colonnade.errors import ConfigError
from colonnade.launch import forecast
from colonnade.launch.forecast import RunForecast, forecast_run, gather_knowledge, measure_machines, without_costs
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate
from colonnade.methods.secure_lr import SecureLR
from colonnade.methods.splitnn import SplitNN
from colonnade.session import Evaluate, Line, Machines, RunPlan

COSTS = CryptoCosts(
    key_bits=1024,
    key_generation=0.1,
    owner_tables=0.1,
    owner_encryption=0.001,
    tables=0.2,
    encryption=0.002,
    decryption=0.004,
    check=1e-5,
    multiplication=1e-5,
    packing=1e-6,
    term=1e-7,
)
MACHINES = Machines(line=Line(message_seconds=0.001), costs=COSTS, cores=2)
# Hidden numbers that happen to be small take a byte less.
BY_CHANCE = {"OpeningShare", "PartnerShare", "NoisedShare"}


def tables(rows: int = 150, classes: int = 2, parties: tuple[str, ...] = ("bank", "shop")) -> dict[str, PartyTable]:
    random = np.random.default_rng(5)
    ids = [f"c{row:04}" for row in range(rows)]
    made = {}
    for place, party in enumerate(parties):
        columns = {f"{party}_{one}": random.normal(size=rows) for one in range(3 + 4 * place)}
        frame = pd.DataFrame({"id": ids, **columns, f"{party}_town": random.choice(["A", "B", "C"], rows)})
        if party == parties[0]:
            frame["label"] = random.integers(0, classes, rows)
        # A few rows of each are not shared.
        made[party] = PartyTable(frame.iloc[place : rows - 2 * place], id="id", label="label" if not place else None)
    return made


def forecast_of(run: Run, given: dict[str, PartyTable], machines: Machines | None = None) -> RunForecast:
    return forecast_run(run.plan, gather_knowledge(run.plan, given), machines or without_costs("insecure_test"))


def crossed(run: Run) -> dict[tuple[str, str, str], tuple[int, int]]:
    return {
        (party, total.peer, total.message): (total.count, total.bytes)
        for party, ledger in run.ledgers.items()
        for total in ledger.summary()
        if total.direction == "sent"
    }


def expected(found: RunForecast) -> dict[tuple[str, str, str], tuple[int, int]]:
    counts: Counter[tuple[str, str, str]] = Counter()
    sizes: Counter[tuple[str, str, str]] = Counter()
    for stage in found.stages:
        for one in stage.sent:
            kind = (one.sender, one.receiver, one.message)
            counts[kind] += one.count * stage.times
            sizes[kind] += one.bytes * stage.times
    return {kind: (counts[kind], sizes[kind]) for kind in counts}


SECURE = {"epochs": 3, "batch_size": 32, "allow_leak": True, "key_size": "insecure_test"}


@pytest.mark.parametrize(
    ("config", "given", "evaluate"),
    [
        pytest.param(SecureLR(**SECURE), tables(), Evaluate(), id="secure_lr"),
        pytest.param(SecureLR(key_size="insecure_test"), tables(), Evaluate(), id="secure_lr, defaults"),
        pytest.param(SecureLR(**SECURE), tables(classes=3), Evaluate(), id="secure_lr, three classes"),
        pytest.param(
            SecureLR(**SECURE),
            tables(parties=("bank", "shop", "telco")),
            Evaluate(validation_fraction=0.0, test_fraction=0.0),
            id="secure_lr, three parties, nothing held out",
        ),
        pytest.param(SplitNN(epochs=2, batch_size=32, patience=0), tables(), Evaluate(), id="splitnn"),
    ],
)
def test_every_message_is_foreseen_in_number_and_size(
    config: Any, given: dict[str, PartyTable], evaluate: Evaluate
) -> None:
    run = simulate(config, given, evaluate=evaluate)
    foreseen, happened = expected(forecast_of(run, given)), crossed(run)
    assert foreseen.keys() == happened.keys()
    assert {kind: count for kind, (count, _) in foreseen.items()} == {k: count for k, (count, _) in happened.items()}
    differing = {kind for kind in foreseen if foreseen[kind] != happened[kind]}
    assert {message for _, _, message in differing} <= BY_CHANCE | {"IdMarks"}
    for party in given:
        sent = sum(run.ledgers[party].bytes_sent().values())
        assert forecast_of(run, given).bytes_sent(party) == pytest.approx(sent, rel=0.02)


def test_early_stopping_only_makes_it_less() -> None:
    given = tables()
    config = SecureLR(
        epochs=30, batch_size=64, patience=1, learning_rate=2.0, allow_leak=True, key_size="insecure_test"
    )
    run = simulate(config, given)
    found = forecast_of(run, given)
    assert len(run.history["bank"]) < 30
    for party in given:
        assert sum(run.ledgers[party].bytes_sent().values()) < found.bytes_sent(party)


def plan(**config: Any) -> RunPlan:
    from colonnade.launch.settings import config_to_json

    settings = SecureLR(**{"key_size": "insecure_test", **config})
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    return RunPlan(name="churn", method="secure_lr", roles=roles, config=config_to_json(settings))


def forecast_for(rows: int = 1000, columns: int = 10, machines: Machines = MACHINES, **config: Any) -> RunForecast:
    agreed = plan(**config)
    known = gather_knowledge(agreed, {}, columns={"shop": columns}, shared_rows=rows, classes=2)
    return forecast_run(agreed, known, machines)


def seconds_of(found: RunForecast) -> float:
    assert found.seconds is not None
    return found.seconds


def test_more_of_anything_takes_longer_and_sends_more() -> None:
    base = forecast_for()
    for more in (forecast_for(rows=2000), forecast_for(columns=40), forecast_for(epochs=40)):
        assert seconds_of(more) > seconds_of(base)
        assert more.bytes_sent("shop") > base.bytes_sent("shop")
    by_epochs = [stage.seconds for stage in base.stages if stage.times > 1]
    assert len(by_epochs) == 1


def test_times_add_up_over_stages_and_epochs() -> None:
    found = forecast_for()
    assert seconds_of(found) == pytest.approx(sum((stage.seconds or 0.0) * stage.times for stage in found.stages))
    # Two parties that take turns: neither is busy while the other is, and messages come on top.
    assert found.busy("bank") + found.busy("shop") <= seconds_of(found)


def test_a_line_costs_its_latency_and_its_bytes() -> None:
    base = forecast_for()
    far = forecast_for(machines=replace(MACHINES, line=Line(message_seconds=0.001, latency_seconds=0.05)))
    steps = 20 * -(-base.facts.training // 128)
    assert seconds_of(far) - seconds_of(base) > 4 * 0.05 * steps
    narrow = forecast_for(machines=replace(MACHINES, line=Line(message_seconds=0.001, bytes_per_second=1e5)))
    every = base.bytes_sent("bank") + base.bytes_sent("shop")
    assert seconds_of(narrow) - seconds_of(base) >= every / 1e5 * 0.99


def test_several_cores_share_what_can_be_divided() -> None:
    wide = replace(MACHINES, workers={"bank": 4, "shop": 4}, cores=None)
    assert seconds_of(forecast_for(machines=wide)) < seconds_of(forecast_for())
    assert forecast_for(machines=wide).bytes_sent("shop") == forecast_for().bytes_sent("shop")


def test_feature_holders_work_at_the_same_time_as_far_as_there_are_cores() -> None:
    apart = replace(MACHINES, cores=None)
    assert apart.side_by_side([1.0, 2.0, 3.0]) == 3.0
    assert MACHINES.side_by_side([2.0, 2.0, 2.0]) == 3.0
    # The second is asked while the first computes.
    assert apart.one_after_another([1.0, 1.0], [5.0, 5.0]) == 7.0
    assert MACHINES.one_after_another([1.0, 1.0], [5.0, 5.0]) == 7.0


def test_homes_that_are_here_tell_the_shared_rows_and_the_encoded_columns() -> None:
    given = tables()
    known = gather_knowledge(plan(), given)
    assert known.shared == 150 - 3
    # Three or seven numbers, and three towns.
    assert known.columns == {"bank": 6, "shop": 10}
    assert (known.task, known.classes) == ("binary", 2)
    assert known.assumptions == ()


def test_a_home_elsewhere_is_replaced_by_what_the_user_says() -> None:
    given = {"bank": tables()["bank"]}
    known = gather_knowledge(plan(), given, columns={"shop": 12})
    assert (known.shared, known.columns["shop"], known.rows["shop"]) == (150, 12, 150)
    assert "--shared-rows" in known.assumptions[0]
    assert gather_knowledge(plan(), given, columns={"shop": 12}, shared_rows=80).shared == 80


def test_what_is_missing_is_asked_for() -> None:
    with pytest.raises(ConfigError, match="--shared-rows N"):
        gather_knowledge(plan(), {})
    with pytest.raises(ConfigError, match="150 rows of 'bank'"):
        gather_knowledge(plan(), {"bank": tables()["bank"]}, shared_rows=151)
    without_columns = gather_knowledge(plan(), {"bank": tables()["bank"]})
    with pytest.raises(ConfigError, match="--columns shop=N"):
        forecast_run(plan(), without_columns, MACHINES)
    without_label = gather_knowledge(plan(), {"shop": tables()["shop"]})
    with pytest.raises(ConfigError, match="--classes N"):
        forecast_run(plan(), without_label, MACHINES)
    settled = plan(task="regression")
    assert forecast_run(settled, gather_knowledge(settled, {"shop": tables()["shop"]}), MACHINES).seconds


def test_a_pool_is_never_slower_than_one_process() -> None:
    assert measure_speedup("insecure_test", 2) >= 1.0


def test_the_machine_is_measured_with_the_key_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    found = measure_costs("insecure_test", rounds=1)
    assert found.key_bits == 1024
    times = vars(found)
    assert all(seconds >= 0 for seconds in times.values())
    assert min(times[name] for name in ("encryption", "owner_encryption", "decryption", "multiplication")) > 0
    monkeypatch.setattr(forecast, "measure_costs", lambda key: COSTS)
    monkeypatch.setattr(forecast, "measure_speedup", lambda key, workers: 0.8 * workers)
    monkeypatch.setattr(forecast.os, "sched_getaffinity", lambda process: {0, 1, 2, 3})
    said: list[str] = []
    engines = {"bank": EngineSettings(kind="inline"), "shop": EngineSettings(kind="pool", workers=3)}
    machines = measure_machines(plan(), "insecure_test", engines, is_local=False, say=said.append)
    assert machines.workers == {"bank": 1, "shop": 3}
    assert machines.speedups == {3: pytest.approx(2.4)}
    assert machines.divided("shop", 100, 0.024) == pytest.approx(1.0)
    assert machines.divided("bank", 100, 0.024) == pytest.approx(2.4)
    assert machines.cores is None
    assert machines.line.message_seconds > 0
    assert len(said) == 3
