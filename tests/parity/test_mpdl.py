"""Federated equals central: multi-party dual learning against `tests.mpdl_reference`, where one process has all rows.

The two share nothing but facts: columns as they lie in the tables, released copies as they were received, weights as
they were drawn, and which rows each step takes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests import mpdl_reference as central
from tests.unit.methods.mpdl.worlds import (
    HIGH,
    LOW,
    SEED,
    Watched,
    fixed_secret,
    frames,
    pictures,
    run_of,
    settings,
    watched,
)
from tests.worlds import received
from torch import nn

import colonnade as cn
from colonnade.methods.mpdl.duality import Judge, dual_gradient
from colonnade.session.seeds import derive_seed

F64 = torch.float64
Frames = Mapping[str, pd.DataFrame]


@pytest.fixture(autouse=True)
def _alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw the same noise in every run."""
    fixed_secret(monkeypatch)


# What the reference is given


def holder_of(frame: pd.DataFrame, table: Any, bounds: tuple[float, float]) -> central.Holder:
    columns = [name for name in frame.columns if name not in ("id", "y")]
    common = sorted(name for name in columns if name.startswith("common"))
    own = [name for name in columns if name not in common]
    units = central.in_unit_space(torch.tensor(frame[[*own, *common]].to_numpy(float)), *bounds)
    return central.Holder(units, len(own), torch.from_numpy(table.shared), torch.from_numpy(table.own))


def holders_of(found: Frames, facts: Watched, bounds: tuple[float, float] = (LOW, HIGH)) -> list[central.Holder]:
    return [holder_of(found[party], facts.tables[party], bounds) for party in found]


def released_to(run: cn.Run, party: str) -> torch.Tensor:
    """Return all tables that a party received, side by side in the order of parties."""
    tables = [received(run, party, "ReleasedTable", other) for other in run.plan.parties if other != party]
    return torch.from_numpy(np.concatenate([one.values for several in tables for one in several], axis=1))


def ridges(
    run: cn.Run, found: Frames, holders: list[central.Holder], rows: torch.Tensor, config: cn.MPDL
) -> list[central.Generate]:
    generators = []
    for party, holder in zip(found, holders, strict=True):
        inputs = central.standardised(holder.units[holder.shared][rows], holder.scale)
        order = np.random.default_rng(derive_seed(SEED, f"ridge/{party}", 0)).permutation(len(rows))
        targets = released_to(run, party)[rows]
        generators.append(central.ridge(inputs, targets, config.penalties, torch.from_numpy(order)))
    return generators


def labels_of(run: cn.Run, frame: pd.DataFrame) -> torch.Tensor:
    about = run.parts["bank"].document["label_encoder"]
    if about["task"] == "regression":
        return torch.tensor((frame["y"].to_numpy() - about["mean"]) / about["scale"])
    codes = torch.from_numpy(np.searchsorted(about["classes"], frame["y"].to_numpy()))
    return codes if about["task"] == "multiclass" else codes.double()


def upper_of(weights: Mapping[str, torch.Tensor]) -> nn.Module:
    """Return dense layers with the weights that the collaborator drew."""
    places = sorted({int(key.split(".")[1]) for key in weights if key.endswith("weight")})
    layers: list[nn.Module] = []
    for place in places:
        weight, bias = weights[f"upper.{place}.weight"], weights[f"upper.{place}.bias"]
        layer = nn.Linear(weight.shape[1], weight.shape[0], dtype=F64)
        layer.load_state_dict({"weight": weight, "bias": bias})
        layers += [layer, nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def differences(
    run: cn.Run, facts: Watched, found: Frames, world: central.World, config: cn.MPDL, name: str, above: Any = upper_of
) -> dict[str, float]:
    """Train one classifier in one place, and return how far the federated one is from it."""
    model = name.rpartition("/")[2]
    begun = {party: facts.trainings[party, name].begun for party in (*found, "helper")}
    network = central.Classifier(
        [begun[party]["block.weight"] for party in found],
        begun["helper"]["upper.0.values"],
        above(begun["helper"]),
        is_tied=world.is_tied,
    )
    rows, labelled = world.rows(model)
    targets = labels_of(run, found["bank"])[torch.cat(labelled)]
    orders = [torch.from_numpy(one) for one in facts.trainings["bank", name].orders]
    assert len(orders) == config.epochs
    assert {len(one) for one in orders} == {len(targets)}
    central.train_classifier(
        network,
        rows,
        targets,
        run.parts["bank"].document["label_encoder"]["task"],
        orders,
        config.batch_size,
        rate=config.learning_rate,
        clip=config.clip_gradient,
        optimizer=config.optimizer,
    )
    blocks = list(network.blocks) * (len(found) if world.is_tied else 1)
    expected = {party: [block] for party, block in zip(found, blocks, strict=True)}
    expected["helper"] = [network.offset, *network.above.parameters()]
    return {
        f"{party}/{place}": float((one.detach() - other).abs().max())
        for party, several in expected.items()
        for place, (one, other) in enumerate(zip(several, facts.trainings[party, name].ended.values(), strict=True))
    }


def moved(facts: Watched, name: str) -> float:
    """Return how far training went: parity of weights that stayed where they were would say nothing."""
    one = facts.trainings["bank", name]
    return float((one.ended["block.weight"] - one.begun["block.weight"]).abs().max())


# Tables

CASES: dict[str, tuple[str, int, dict[str, Any], dict[str, Any]]] = {
    "two classes": ("binary", 2, {}, {}),
    "classes": ("multiclass", 2, {}, {}),
    "numbers": ("regression", 2, {"learning_rate": 0.05}, {}),
    "not augmented": ("binary", 2, {"augment": False}, {}),
    "shipped": ("multiclass", 2, {"completion": "ship"}, {}),
    "shipped, not augmented": ("regression", 2, {"completion": "ship", "augment": False}, {}),
    "three holders": ("binary", 3, {}, {}),
    "three holders, shipped": ("multiclass", 3, {"completion": "ship"}, {}),
    "common columns": ("binary", 2, {"common_columns": ("common*",)}, {"common": 2}),
    "three holders, common columns, shipped": (
        "binary",
        3,
        {"common_columns": ("common*",), "completion": "ship"},
        {"common": 1},
    ),
    "further layers, Adam, no clipping": (
        "binary",
        2,
        {"dense": (6, 4), "optimizer": "Adam", "learning_rate": 0.02, "clip_gradient": 0.0},
        {},
    ),
    "gradients shortened": ("regression", 2, {"clip_gradient": 0.05}, {}),
    "without noise": ("multiclass", 2, {"mechanism": "none"}, {}),
    "parts of shared rows": ("binary", 2, {"folds": 3, "fold_rounds": 2, "fold_gain": 1.0}, {}),
}


@pytest.mark.parametrize("case", CASES)
def test_all_classifiers_are_those_of_one_process(case: str) -> None:
    task, parties, changes, kinds = CASES[case]
    config, found = settings(**changes), frames(task, parties, **kinds)
    with watched() as facts:
        run = run_of(found, config, launch=cn.Launch(keep_views=True))
    bounds = (LOW, HIGH)
    holders = holders_of(found, facts, bounds)
    lessons = {name: torch.from_numpy(rows) for name, rows in facts.lessons["bank"]}
    names = {name for _, name in facts.trainings}
    assert len(names) == 2 * len(lessons)
    for name in sorted(names):
        learned = lessons[name.rpartition("/")[0] or "final"]
        generators = ridges(run, found, holders, learned, config)
        world = central.World(holders, generators, learned, config.completion, config.augment)
        assert moved(facts, name) > 1e-3
        wrong = differences(run, facts, found, world, config, name)
        # Contributions are rounded to 2**-40 on their way to the sum.
        assert max(wrong.values()) < 1e-9, (name, wrong)


def test_columns_without_noise_are_scaled_by_what_the_rows_have() -> None:
    found = frames("binary")
    config = settings(mechanism="none", bounds={})
    with watched() as facts:
        run = run_of(found, config, launch=cn.Launch(keep_views=True))
    for party, frame in found.items():
        table = facts.tables[party]
        known = frame.iloc[np.concatenate([table.shared, table.own])]
        columns = [name for name in frame if name not in ("id", "y")]
        low, high = known[columns].min(), known[columns].max()
        expected = ((frame[columns] - low) / (high - low)).clip(0, 1).to_numpy()
        assert np.abs(table.units.numpy() - expected).max() < 1e-12
    assert run.rows


@pytest.mark.parametrize("parties", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("augment", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_weights_under_encryption_are_those_of_shipped_rows(parties: int, augment: bool) -> None:
    """Products under encryption are rounded to 2**-20 on both sides."""
    found = frames("binary", parties, shared=24, own={"bank": 10})
    options = {"augment": augment, "epochs": 2, "batch_size": 12}
    with watched() as shipped:
        run_of(found, settings(completion="ship", **options))
    with watched() as sealed:
        run_of(found, settings(completion="secure_block", block_consent=True, **options))
    assert shipped.trainings.keys() == sealed.trainings.keys()
    for key, one in shipped.trainings.items():
        limit = 1e-5 if key[1] == "completed" else 1e-12
        for name, value in one.ended.items():
            assert (value - sealed.trainings[key].ended[name]).abs().max() < limit, (key, name)
        assert key[0] == "helper" or moved(shipped, key[1]) > 1e-3


# Pictures


def picture_above(config: cn.MPDL) -> Any:
    def above(weights: Mapping[str, torch.Tensor]) -> nn.Module:
        """Return what the sheet puts above the first convolution: pool, convolve, pool, dense."""
        _, height, _ = config.image or (0, 0, 0)
        side = height // 2 // 2
        layers = nn.Sequential(
            nn.MaxPool2d(2),
            nn.Conv2d(config.channels[0], config.channels[1], config.kernel_size, padding="same", dtype=F64),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(config.channels[1] * side * side, config.dense[0], dtype=F64),
            nn.ReLU(),
            nn.Linear(config.dense[0], 3, dtype=F64),
        )
        drawn = [value for key, value in weights.items() if key != "upper.0.values"]
        for parameter, value in zip(layers.parameters(), drawn, strict=True):
            parameter.data.copy_(value)
        return layers

    return above


@pytest.mark.parametrize("completion", ["own_copy", "ship"])
@pytest.mark.parametrize("kernels", ["untied", "tied"])
def test_convolutions_are_those_of_one_process(kernels: str, completion: str) -> None:
    found = pictures()
    config = settings(
        bounds={"*": (0.0, 1.0)},
        image=(1, 6, 6),
        channels=(3, 2),
        kernel_size=3,
        dense=(5,),
        kernels=kernels,
        completion=completion,
        augment=completion == "own_copy",
    )
    with watched() as facts:
        run = run_of(found, config, launch=cn.Launch(keep_views=True))
    holders = holders_of(found, facts, (0.0, 1.0))
    learned = torch.arange(len(facts.tables["bank"].shared))
    places = [
        torch.tensor([int(name[2:]) for name in frame.columns if name.startswith("p_")]) for frame in found.values()
    ]
    world = central.World(
        holders,
        ridges(run, found, holders, learned, config),
        learned,
        completion,
        config.augment,
        central.Picture((1, 6, 6), places),
        is_tied=kernels == "tied",
    )
    for name in ("joint", "completed"):
        assert moved(facts, name) > 1e-4
        wrong = differences(run, facts, found, world, config, name, picture_above(config))
        assert max(wrong.values()) < 1e-9, (name, wrong)
    if kernels == "tied":
        ends = [facts.trainings[party, "joint"].ended["block.weight"] for party in found]
        assert torch.equal(ends[0], ends[1])


# Generators

DUALS: dict[str, dict[str, Any]] = {
    "no penalty": {},
    "a penalty": {"dual_weight": 0.3},
    "a penalty, conditional": {"dual_weight": 0.05, "dual_form": "gaussian_conditional"},
    "a penalty, raw": {"dual_weight": 0.002, "dual_scale": "raw", "dual_clip": 1e6},
    "a penalty on one side": {"dual_weights": {"shop": 0.4}},
    "different penalties, Adam": {
        "dual_weights": {"shop": 0.4, "bank": 0.1},
        "generator_optimizer": "Adam",
        "generator_rate": 0.02,
    },
    "parts of shared rows": {"dual_weight": 0.3, "folds": 3, "fold_gain": 1.0},
}


def dual_settings(exchange: str, case: str, **changes: Any) -> cn.MPDL:
    return settings(**{"generator": "mlp", "exchange": exchange, "dual_consent": True, **DUALS[case], **changes})


@pytest.mark.parametrize("case", DUALS)
def test_generators_are_those_of_one_process(case: str) -> None:
    config, found = dual_settings("release", case), frames("binary")
    with watched() as facts:
        run = run_of(found, config, launch=cn.Launch(keep_views=True))
    holders = holders_of(found, facts)
    networks = [copy.deepcopy(facts.generators[party]) for party in found]
    inputs = [central.standardised(one.units[one.shared], one.scale) for one in holders]
    released = [released_to(run, "shop"), released_to(run, "bank")]
    weights = tuple(config.dual_weights.get(party, config.dual_weight) for party in found)
    dual = central.Dual(
        (weights[0], weights[1]), config.dual_form, config.dual_scale == "raw", clip=config.clip_gradient
    )
    kind = getattr(torch.optim, config.generator_optimizer)
    optimizers = [kind(one.parameters(), lr=config.generator_rate) for one in networks]
    for name, _ in facts.lessons["bank"]:
        steps = facts.steps["bank", name]
        assert all(torch.equal(*pair) for pair in zip(steps, facts.steps["shop", name], strict=True))
        central.train_generators(networks, inputs, released, steps, dual, optimizers)
        for party, network in zip(found, networks, strict=True):
            for one, other in zip(network.parameters(), facts.learned[party, name].values(), strict=True):
                assert (one - other).abs().max() < 1e-10, (party, name)
            begun = next(facts.generators[party].parameters())
            assert (next(network.parameters()) - begun).abs().max() > 1e-3


@pytest.mark.parametrize(
    "case",
    [
        "no penalty",
        "a penalty, conditional",
        pytest.param("a penalty", marks=pytest.mark.slow),
        pytest.param("different penalties, Adam", marks=pytest.mark.slow),
    ],
)
def test_both_exchanges_give_the_same_generators(case: str) -> None:
    """Check 3 of the sheet: the released copy is the target in both."""
    found, ends = frames("binary", shared=24, own={"bank": 8, "shop": 4}), []
    for exchange in ("release", "interactive"):
        with watched() as facts:
            run_of(found, dual_settings(exchange, case, generator_epochs=2, epochs=1))
        ends.append(facts)
    for party in found:
        for name, value in ends[0].learned[party, "final"].items():
            assert (value - ends[1].learned[party, "final"][name]).abs().max() < 1e-6
        begun = next(ends[0].generators[party].parameters())
        assert (next(iter(ends[0].learned[party, "final"].values())) - begun).abs().max() > 1e-3


@pytest.mark.parametrize("form", ["kde_generated", "gaussian_conditional"])
@pytest.mark.parametrize("scale", ["raw", "per_dim"])
def test_the_gradient_of_the_penalty_is_that_of_autograd(form: Any, scale: Any) -> None:
    """Check 2 of the sheet: both outputs, the factor 2 and the signs."""
    torch.manual_seed(4)
    released = [torch.rand(30, 4, dtype=F64), torch.rand(30, 3, dtype=F64)]
    rows = torch.arange(9)
    config = settings(
        dual_weight=1.0, dual_form=form, dual_scale=scale, dual_clip=1e9, generator="mlp", dual_consent=True
    )
    judges = [Judge(config, table, sign, 7, 0) for table, sign in zip(released, (1.0, -1.0), strict=True)]
    generated = [(table[rows] + 0.3 * torch.randn(9, table.shape[1], dtype=F64)).requires_grad_() for table in released]
    dual = central.Dual((1.0, 1.0), form, scale == "raw")
    _, parts = central.dual_losses(generated, released, rows, dual, [float("nan")] * 2)
    loss = ((parts[0] + parts[1]) ** 2).mean()
    expected = torch.autograd.grad(loss, generated)
    parts = [one.detach() for one in parts]
    found = [judge.penalty(one.detach(), rows) for judge, one in zip(judges, generated, strict=True)]
    for place in (0, 1):
        assert (found[place][0] - parts[place]).abs().max() < 1e-9 * max(1.0, float(parts[place].abs().max()))
        by_hand = dual_gradient(1.0, found[place][0], found[1 - place][0], found[place][1])
        assert expected[place].abs().max() > 1e-3
        assert ((by_hand - expected[place]) / expected[place].abs().max()).abs().max() < 1e-9
