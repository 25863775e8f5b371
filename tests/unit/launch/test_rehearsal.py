"""A rehearsal says which messages a run sends: as many of each, and of the same size."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.recorder.variants import VARIANTS, Variant

import colonnade as cn
from colonnade.engine import EngineSettings
from colonnade.launch import rehearsal
from colonnade.launch.made_up import World
from colonnade.launch.rehearsal import Rehearsal, rehearse
from colonnade.methods import method_for
from colonnade.session import Alignment, RunPlan
from colonnade.settings import config_to_json

# Each method with each of its protections, in one of its stages.
PLAYED = {
    "splitnn: in the clear": "predict",
    "secure_lr: no noise": "train",
    "ftl: paillier": "train",
    "prada: paillier, two stages": "finetune",
    "fedcvt: level 2": "train",
    "mpdl: step by step with dual penalty": "train",
    "mpdl: graph under encryption": "graph",
    "fairvfl: robust": "audit",
    "fairvfl: ranking of texts": "train",
}
PLAYED_SLOWLY = {
    "splitnn: three parties, dropout": "train",
    "splitnn: marvell": "train",
    "ftl: in the clear": "validate",
    "ftl: paillier, rows revealed": "train",
    "ftl: paillier, noise": "train",
    "prada: in the clear": "explain",
    "prada: paillier": "train",
    "fedcvt: level 0": "train",
    "fedcvt: level 1": "train",
    "mpdl: noise by cell": "train",
    "mpdl: noise by row, folds, three parties": "train",
    "mpdl: secure block": "train",
    "mpdl: two stages": "central",
    "fairvfl: paper": "train",
    "fairvfl: sweep": "sweep",
}

ENGINE = EngineSettings(kind="inline")


def unhurried(config: Any) -> Any:
    """Return settings with more passes, with which no run stops early."""
    changes = {}
    for one in dataclasses.fields(config):
        value, (least, most) = getattr(config, one.name), one.metadata.get("within") or (None, None)
        if least is not None:
            changes[one.name] = type(value)(min(max(value, least), most))
        if one.metadata.get("passes") and value:
            changes[one.name] = value + 3
    return dataclasses.replace(config, **changes)


def crossed(run: cn.Run) -> dict[tuple[str, str, str], tuple[int, int]]:
    return {
        (party, one.peer, one.message): (one.count, one.bytes)
        for party, ledger in run.ledgers.items()
        for one in ledger.summary()
        if one.direction == "sent"
    }


def planned(found: Rehearsal) -> dict[tuple[str, str, str], tuple[int, int]]:
    names = ("sender", "receiver", "message")
    return {tuple(one[name] for name in names): (one["count"], one["bytes"]) for one in found.messages}  # type: ignore[misc]


def plan_of(variant: Variant, config: Any, stage: str) -> RunPlan:
    method = method_for(config)
    plan = RunPlan(
        name="rehearsed",
        method=method.name,
        roles=variant.roles_in(stage),
        seed=11,
        config=config_to_json(config),
        evaluate=variant.evaluate,
        stage=stage,
    )
    return method.in_stage(plan, stage)


@pytest.mark.parametrize(
    ("name", "stage"),
    [*PLAYED.items(), *(pytest.param(*one, marks=pytest.mark.slow) for one in PLAYED_SLOWLY.items())],
    ids=str,
)
def test_messages_are_those_of_the_run(name: str, stage: str) -> None:
    (variant,) = (one for one in VARIANTS if str(one) == name)
    config = unhurried(variant.config)
    stages = [*method_for(config).stages_before(stage), stage]
    plans = [plan_of(variant, config, one) for one in stages]
    found = rehearse(plans, World.of(plans[0], variant.tables(stages[0]), {}, None, None), ENGINE)
    assert found.rows == found.of_rows
    run: cn.Run | None = None
    for one in stages:
        if one == "predict":
            return  # what it sends depends on nothing but rows, and is compared below
        settings = {"roles": variant.roles_in(one), "evaluate": variant.evaluate, "seed": 11}
        run = cn.simulate(config, variant.tables(one), stage=one, after=run, **settings)
    assert run is not None
    sent, expected = crossed(run), planned(found)
    assert Counter({way: count for way, (count, _) in expected.items()}) == Counter(
        {way: count for way, (count, _) in sent.items()}
    )
    total = sum(size for _, size in sent.values())
    assert sum(size for _, size in expected.values()) == pytest.approx(total, rel=0.01)
    for party in plans[-1].parties:
        own = sum(one["times"] * one["bytes_sent"][party] for one in found.parts)
        assert own == pytest.approx(sum(size for way, (_, size) in sent.items() if way[0] == party), rel=0.015)


def frames(shared: int, own: int) -> dict[str, pd.DataFrame]:
    random, found = np.random.default_rng(2), {}
    for place, party in enumerate(("bank", "shop")):
        ids = np.concatenate([np.arange(shared), np.arange(own) + shared + place * own])
        frame = pd.DataFrame(random.normal(7.0, 3.0, (len(ids), 3)), columns=[f"{party}{one}" for one in range(3)])
        frame["kind"] = np.where(frame[f"{party}0"] > 7.0, "first-secret", "second-secret")
        frame.loc[::9, f"{party}1"] = np.nan
        found[party] = frame.assign(id=ids)
    found["bank"]["y"] = (found["bank"]["bank0"] > 7.0).astype(int)
    return found


def tables(shared: int = 2000, own: int = 300) -> dict[str, cn.PartyTable]:
    found = frames(shared, own)
    return {
        party: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None, name=party)
        for party, frame in found.items()
    }


def joint_plan(config: Any) -> RunPlan:
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    method = method_for(config)
    return RunPlan(name="joint", method=method.name, roles=roles, seed=3, config=config_to_json(config))


SPLIT = cn.SplitNN(epochs=9, batch_size=64, patience=0, hidden=(4,), cut_width=4)
TRAINED = cn.FedCVT(epochs=5, patience=0, shared_width=4, unique_width=4, batch_size=64, own_batch_size=32, anchors=32)
SEALED = cn.SecureLR(key_size="insecure_test", epochs=3, allow_leak=True)


@pytest.mark.parametrize("config", [SPLIT, TRAINED, SEALED])
def test_a_large_run_follows_from_two_small_ones(config: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With little time only parts of the rows are played; where keys are long, some with others to compare."""
    monkeypatch.setattr(rehearsal, "_BUDGET", 0.0)
    monkeypatch.setattr(rehearsal, "_SMALL", 0.0)
    begin, is_sealed = rehearsal._Player.__init__, config is SEALED

    def begins(player: Any, *given: Any) -> None:
        begin(player, *given)
        player._has_long_keys = is_sealed

    monkeypatch.setattr(rehearsal._Player, "__init__", begins)
    plan, found = joint_plan(config), tables()
    said: list[str] = []
    expected = rehearse([plan], World.of(plan, found, {}, None, None), ENGINE, said.append)
    assert [one for one in said if "small keys" not in one] == (said[-1:] if is_sealed else said)
    assert expected.rows < 0.7 * expected.of_rows
    sent = crossed(cn.simulate(config, found, seed=3))
    for party in found:
        total = sum(size for way, (_, size) in sent.items() if way[0] == party)
        own = sum(size for way, (_, size) in planned(expected).items() if way[0] == party)
        assert own == pytest.approx(total, rel=0.02)
    assert {way: count for way, (count, _) in planned(expected).items()} == {
        way: count for way, (count, _) in sent.items()
    }


def test_what_a_guard_refuses_a_rehearsal_refuses_too() -> None:
    plan, found = joint_plan(cn.SecureLR(key_size="insecure_test")), tables(80, 0)
    found["shop"] = cn.PartyTable(frames(80, 0)["shop"][["id", "shop0"]], id="id", name="shop")
    with pytest.raises(cn.errors.LeakRefused, match=r"This would open \d+ numbers"):
        rehearse([plan], World.of(plan, found, {}, None, None), ENGINE)


def test_made_up_tables_have_the_shapes_of_real_ones_and_none_of_their_values() -> None:
    plan = joint_plan(cn.SplitNN())
    real = tables(200, 50)
    made = World.of(plan, real, {}, None, None).tables()
    for party, table in real.items():
        other = made[party]
        assert [(one.name, one.kind, one.missing) for one in other.columns] == [
            (one.name, one.kind, one.missing) for one in table.columns
        ]
        for column in table.feature_names:
            known = set(pd.unique(table.values(column))) - {None}
            assert not {one for one in known if one == one} & set(pd.unique(other.values(column)))
        counts = sorted(pd.Series(table.values("kind")).value_counts())
        assert sorted(pd.Series(other.values("kind")).value_counts()) == counts
    assert len(np.intersect1d(*(made[party].ids.astype(int) for party in real))) == 200
    assert made["bank"].labels is not None


def test_what_settings_name_keeps_its_name() -> None:
    config = cn.MPDL(levels={"kind": ("first-secret", "second-secret")}, bounds={"*": (-9.0, 20.0)})
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",), "collaborator": ("helper",)}
    plan = RunPlan(name="named", method="mpdl", roles=roles, config=config_to_json(config))
    made = World.of(plan, tables(80, 10), {}, None, None).tables()
    assert set(made["shop"].values("kind")) == {"first-secret", "second-secret"}


def test_rows_that_another_tool_matched_are_shared() -> None:
    found = tables(60, 0)
    plan = dataclasses.replace(joint_plan(cn.SplitNN(epochs=2)), alignment=Alignment(protocol="given"))
    assert dict(World.of(plan, found, {}, None, None).groups) == {("bank", "shop"): 60}


def test_tables_elsewhere_are_as_the_user_says() -> None:
    plan, here = joint_plan(cn.SplitNN()), {"bank": tables(90, 10)["bank"]}
    world = World.of(plan, here, {"shop": ["a", "b"]}, 40, None)
    assert dict(world.groups) == {("bank", "shop"): 40, ("bank",): 60}
    assert world.tables()["shop"].feature_names == ("a", "b")
    assert World.of(plan, here, {"shop": ["a"]}, None, None).assumed
    nothing = World.of(plan, {}, {"bank": [], "shop": ["a"]}, 50, 3)
    assert len(set(np.asarray(nothing.tables()["bank"].labels))) == 3
    with pytest.raises(cn.errors.ConfigError, match="--classes"):
        World.of(plan, {}, {"bank": [], "shop": ["a"]}, 50, None)
