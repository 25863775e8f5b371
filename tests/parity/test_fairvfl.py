"""Federated equals central: FairVFL against `tests.fairvfl_reference`, where one process has all rows.

The two share nothing but facts: rows as they lie in the tables, weights as they were drawn, which rows each step takes,
randomised responses, and the seeds of dropout and of draws.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests import fairvfl_reference as central
from tests.unit.methods.fairvfl.parity_worlds import CODERS, SEED, Watched, frames, run_of, settings, watched

import colonnade as cn
from colonnade.privacy import LabelResponse, SecretNoise
from colonnade.session.seeds import derive_seed

STEPS = 20
OWNERS = {"gender": "registry", "age": "census"}
Frames = Mapping[str, pd.DataFrame]


# What the reference is given


def own_seed(party: str, purpose: str, counter: int) -> int:
    return derive_seed(SEED, f"{purpose}/{party}", counter)


def columns_of(frame: pd.DataFrame, holding: Any, bins: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return places in the table of embeddings, and of which rows anything is known."""
    aligned = frame.drop(columns="id").iloc[holding.aligned.positions].reset_index(drop=True)
    learned, first, places = aligned.iloc[holding.split.train], 0, []
    for name, values in aligned.items():
        known = learned[name].dropna()
        if values.dtype == float:
            # An edge may be a value itself, so that the shares must be rounded alike.
            edges = sorted(set(np.quantile(known, np.linspace(0, 1, bins + 1))[1:-1]))
            codes = [0 if np.isnan(one) else 1 + sum(edge <= one for edge in edges) for one in values]
            size = len(edges) + 2
        else:
            categories = sorted(set(known))
            codes = [1 + categories.index(one) if one in categories else 0 for one in values]
            size = len(categories) + 1
        places.append(torch.tensor(codes) + first)
        first += size
    return torch.stack(places, dim=1), torch.tensor(aligned.notna().any(axis=1).tolist())


def labels_of(frame: pd.DataFrame, holding: Any, task: str) -> torch.Tensor:
    values = frame["y"].to_numpy()[holding.aligned.positions]
    if task == "regression":
        learned = values[holding.split.train]
        return torch.from_numpy((values - learned.mean()) / learned.std())
    return torch.from_numpy(values.astype(np.int64))


def attribute_of(frame: pd.DataFrame, holding: Any, name: str, epsilon: float | None) -> central.Attribute:
    values = frame[name].iloc[holding.aligned.positions]
    is_known, learned = torch.tensor(values.notna().tolist()), values.iloc[holding.split.train].dropna()
    key = b"".join(own_seed(OWNERS[name], f"noise/{name}", one).to_bytes(8, "little") for one in range(4))
    if values.dtype == float:
        scaled = ((values - learned.mean()) / learned.std(ddof=0)).fillna(0.0).to_numpy()
        if epsilon is not None:
            # Numbers are kept within 3 deviations, so that one row's can differ by 6.
            scaled = scaled.clip(-3, 3) + 6 / epsilon * SecretNoise(key).laplace("answers", 0, scaled.shape)
        return central.Attribute(torch.from_numpy(scaled.copy()), is_known, OWNERS[name], epsilon)
    classes = sorted(set(learned))
    codes = np.array([classes.index(one) if one in classes else -1 for one in values])
    if epsilon is not None:
        ids = [str(one) for one in frame["id"].iloc[holding.aligned.positions]]
        codes = LabelResponse(epsilon, len(classes)).respond(codes, ids, SecretNoise(key))
    return central.Attribute(torch.from_numpy(codes), is_known, OWNERS[name], epsilon, len(classes))


def facts_of(found: Frames, seen: Watched, config: cn.FairVFL, task: str) -> central.Facts:
    train = seen.holdings["bank"].split.train
    steps = []
    for epoch in range(config.epochs):
        order = np.random.default_rng(derive_seed(SEED, "batches", epoch)).permutation(train)
        steps += [order[start : start + config.batch_size] for start in range(0, len(order), config.batch_size)]
    assert len(steps) == STEPS
    return central.Facts(
        {party: columns_of(found[party], seen.holdings[party], config.bins) for party in CODERS},
        labels_of(found["bank"], seen.holdings["bank"], task),
        {
            name: attribute_of(found[OWNERS[name]], seen.holdings[OWNERS[name]], name, config.label_epsilon)
            for name in config.attributes
        },
        [torch.from_numpy(one) for one in steps],
        STEPS // config.epochs,
        own_seed,
    )


def reference_settings(config: cn.FairVFL, task: str) -> central.Settings:
    is_robust = config.removal == "robust"
    weights = {name: config.removal_weights.get(name, config.removal_weight) for name in config.attributes}
    return central.Settings(
        lambdas={name: weight for name, weight in weights.items() if weight},
        gamma=config.contrastive_weight,
        mapper_step=config.mapper_step,
        confusion=config.confusion,
        nearest=config.nearest,
        relevance=config.relevance,
        every=config.adversary_every,
        warm_up=config.warm_up,
        cool_down=config.cool_down,
        rate=config.learning_rate,
        bias_rate=config.learning_rate * (config.discriminator_rate if is_robust else 1.0),
        bias_steps=config.discriminator_steps if is_robust else 1,
        clip=config.clip_gradient,
        dropout=config.dropout,
        is_narrow=is_robust,
        heads=config.heads,
        is_scaled=config.scale,
        is_attention=config.aggregation == "attention",
        task=task,
        task_at_server=config.task_cut == "server",
    )


def trained(found: Frames, config: cn.FairVFL) -> Watched:
    with watched() as seen:
        run_of(found, config)
    return seen


def only(found: Mapping[str, Any], *left_out: str) -> dict[str, Any]:
    return {party: one for party, one in found.items() if party not in left_out}


def centrally(found: Frames, seen: Watched, config: cn.FairVFL, task: str) -> central.Central:
    return central.Central(seen.begun, facts_of(found, seen, config, task), reference_settings(config, task))


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, float]:
    """Return by party and tensor how far two models are from each other; they must have the same tensors."""
    assert {party: list(several) for party, several in one.items()} == {
        party: list(several) for party, several in other.items()
    }
    return {
        f"{party}/{name}": float((value - other[party][name]).abs().max())
        for party, several in one.items()
        for name, value in several.items()
    }


def check(config: cn.FairVFL, task: str = "binary", limit: float = 1e-9, **kinds: Any) -> None:
    found = frames(task, **kinds)
    seen = trained(found, config)
    expected = centrally(found, seen, config, task)
    expected.train()
    # Equality of weights that stayed where they were would say nothing. Offsets of what compares two codes cancel out.
    moved = differences(seen.begun, seen.ended)
    still = {name for name, one in moved.items() if one < 5e-4}
    assert all("contrastive" in name and name.endswith(".bias") for name in still), still
    wrong = differences(central.weights_of(expected), seen.ended)
    for name in [one for one in wrong if is_idle(one, wrong)]:
        # The gradient of the last of them is nothing but rounding, which Adam divides by its own size.
        assert moved[name] < 1e-6
        assert wrong.pop(name) < 1e-6
    assert max(wrong.values()) < limit, {name: one for name, one in wrong.items() if one >= limit}


def is_idle(name: str, names: Collection[str]) -> bool:
    """Tell whether a tensor is the last offset of a contrastive discriminator."""
    kind, _, place = name.removesuffix(".bias").rpartition(".")
    return (
        "/contrastive/" in name
        and name.endswith(".bias")
        and f"{kind}.{int(place) + 2}.weight" not in names
        and f"{kind}.{int(place) + 3}.weight" not in names
    )


PAPER: dict[str, Any] = {"removal": "paper", "scale": False, "relevance": "dot", "removal_weight": 3.0}
CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "joint": ("binary", {}, {}),
    "sequential": ("binary", {"mapper_step": "sequential"}, {}),
    "merged": ("binary", {"mapper_step": "merged"}, {}),
    "paper, joint": ("binary", PAPER, {}),
    "paper, sequential": ("binary", PAPER | {"mapper_step": "sequential"}, {}),
    "paper, merged": ("binary", PAPER | {"mapper_step": "merged"}, {}),
    "concatenation": ("binary", {"aggregation": "concat_mlp"}, {}),
    "paper, concatenation, sequential": (
        "binary",
        PAPER | {"aggregation": "concat_mlp", "mapper_step": "sequential"},
        {},
    ),
    "task at the aggregator": ("binary", {"task_cut": "server"}, {}),
    "task at the aggregator, classes, merged": ("multiclass", {"task_cut": "server", "mapper_step": "merged"}, {}),
    "confusion": ("binary", {"confusion": True}, {}),
    "confusion, sequential": ("binary", {"confusion": True, "mapper_step": "sequential"}, {}),
    "classes, sequential": ("multiclass", {"mapper_step": "sequential"}, {}),
    "numbers, and a sensitive number": ("regression", {"protected_widths": {"age": 2}}, {"age": "numbers"}),
    "every other step": ("binary", {"adversary_every": 2, "removal_weights": {"age": 0.3}}, {}),
    "long warm-up, three steps of adversaries": (
        "binary",
        {"warm_up": 3.5, "discriminator_steps": 3, "discriminator_rate": 7.0},
        {},
    ),
    "no warm-up": ("binary", {"warm_up": 0.0}, {}),
    "no cool-down": ("binary", {"cool_down": 0.0}, {}),
    "cooling down all along": ("binary", {"cool_down": 1.0}, {}),
    "gradients shortened": ("binary", {"clip_gradient": 0.05, "mapper_step": "sequential"}, {}),
    "gradients not shortened, large weight": ("binary", {"clip_gradient": 0.0, "removal_weight": 20.0}, {}),
    "without contrastive term": ("binary", {"contrastive_weight": 0.0}, {}),
    "batches of two rows at the end": ("binary", {"mapper_step": "sequential"}, {"rows": 62}),
    "randomised answers": ("binary", {"label_epsilon": 1.5}, {}),
    "randomised answers, a sensitive number": ("binary", {"label_epsilon": 2.0}, {"age": "numbers"}),
    "randomised answers, sequential, confusion": (
        "binary",
        {"label_epsilon": 1.0, "mapper_step": "sequential", "confusion": True},
        {},
    ),
}
# One of each pair is enough for every day.
LATER = {"paper, merged", "confusion, sequential", "no warm-up", "randomised answers, sequential, confusion"}


@pytest.mark.parametrize("case", [pytest.param(one, marks=pytest.mark.slow) if one in LATER else one for one in CASES])
def test_all_weights_of_all_parties_are_those_of_one_process(case: str) -> None:
    task, changes, kinds = CASES[case]
    check(settings(**changes), task, **kinds)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"mapper_step": "sequential"}, marks=pytest.mark.slow),
        pytest.param({"mapper_step": "merged"}, marks=pytest.mark.slow),
        {"aggregation": "concat_mlp", "task_cut": "server"},
    ],
)
def test_with_the_same_masks_of_dropout_weights_are_those_of_one_process(changes: dict[str, Any]) -> None:
    # With few units some rows lose all of them. Their protected codes are the same then, and any one may be nearest.
    check(settings(dropout=0.3, mapper_hidden=(24, 16), **changes), limit=1e-6)


# Nothing to remove


@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("task_cut", ["label_holder", pytest.param("server", marks=pytest.mark.slow)])
def test_without_weight_of_removal_the_model_is_a_plain_vertical_one(dropout: float, task_cut: str) -> None:
    found = frames()
    config = settings(removal_weight=0.0, dropout=dropout, task_cut=task_cut)
    seen = trained(found, config)
    bare = trained(only(found, "registry", "census"), settings(attributes=(), dropout=dropout, task_cut=task_cut))
    assert seen.ended["registry"] == seen.ended["census"] == {}
    # To the bit: nothing of the attributes has touched anything.
    assert max(differences(only(seen.ended, "registry", "census"), bare.ended).values()) == 0.0
    expected = centrally(found, seen, config, "binary")
    central.train_plain(expected)
    assert min(differences(seen.begun, seen.ended).values()) > 1e-3
    assert max(differences(central.weights_of(expected), seen.ended).values()) < 1e-9


def test_an_attribute_of_weight_0_leaves_no_trace() -> None:
    """Removal of one attribute is the same whether another is only measured or nobody speaks of it."""
    found = frames()
    both = trained(found, settings(removal_weights={"age": 0.0}))
    one = trained(only(found, "census"), settings(attributes=("gender",)))
    assert both.ended["census"] == {}
    assert max(differences(only(both.ended, "census"), one.ended).values()) == 0.0


# Who may have what


def test_it_does_not_matter_to_the_model_who_has_an_attribute() -> None:
    """Label holder and a feature holder have the attributes; only seeds differ, which follow the party's name."""
    found = frames()
    moved = only(found, "registry", "census")
    moved["bank"] = found["bank"].merge(found["registry"], on="id")
    moved["shop"] = found["shop"].merge(found["census"], on="id")
    config = settings()
    seen = trained(moved, config)
    owners = {"gender": "bank", "age": "shop"}
    weights = {party: dict(several) for party, several in seen.begun.items()}
    ended = {party: dict(several) for party, several in seen.ended.items()}
    for name, party in owners.items():
        # The reference keeps the discriminators apart, as if others had them.
        for several in (weights, ended):
            own = {key: one for key, one in several[party].items() if key.startswith("bias/")}
            several[OWNERS[name]] = own
            several[party] = {key: one for key, one in several[party].items() if key not in own}
    holdings = seen.holdings | {OWNERS[name]: seen.holdings[party] for name, party in owners.items()}
    tables = dict(found) | {OWNERS[name]: moved[party][["id", name]] for name, party in owners.items()}
    facts = facts_of(tables, Watched(weights, holdings), config, "binary")
    expected = central.Central(weights, facts, reference_settings(config, "binary"))
    expected.train()
    assert max(differences(central.weights_of(expected), ended).values()) < 1e-9
