"""Shared rows are divided with classes alike in all parts, by one small number that the label holder tells."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.parties import with_policies
from tests.unit.methods.ftl import worlds as ftl

import colonnade as cn
from colonnade.alignment import SplitNumber, tells_split
from colonnade.data import Split
from colonnade.errors import PolicyRefused
from colonnade.methods import METHODS
from colonnade.session import SPLITS, RunPlan

RARE = 6


def plan_of(method: str = "splitnn", stage: str = "train", **changes: Any) -> RunPlan:
    roles: Any = {"label_holder": ("bank",), "feature_holder": ("shop", "telco")}
    return RunPlan(**{"name": "x", "method": method, "roles": roles, "seed": 4, "stage": stage} | changes)


def counts(split: Split, classes: np.ndarray) -> list[list[int]]:
    return [np.bincount(classes[part]).tolist() for part in (split.train, split.validation, split.test)]


def test_the_chosen_split_has_every_share_and_a_rare_class_above_all_in_training() -> None:
    plan, random = plan_of(), np.random.default_rng(2)
    classes = random.permutation(np.repeat([0, 1, 2], [170, 28, 2]))
    number = plan.most_even_split(classes)
    training, validation, test = counts(plan.split(200, number), classes)
    assert number == plan.most_even_split(classes) < SPLITS
    assert training[2] >= 1
    assert abs(validation[1] - 2.8) < 1
    assert abs(test[1] - 5.6) < 1
    sizes = {tuple(map(sum, counts(plan.split(200, one), classes))) for one in range(3)}
    assert len(sizes) == 1


def told(run: cn.Run) -> Counter[tuple[str, str]]:
    return Counter({(one.sender, one.receiver): one.count for one in run.crossed if one.message == "SplitNumber"})


def tables(labels: np.ndarray) -> dict[str, cn.PartyTable]:
    random, rows = np.random.default_rng(5), len(labels)
    bank = pd.DataFrame({"id": range(rows), "income": random.normal(size=rows), "y": labels})
    shop = pd.DataFrame({"id": range(rows), "spent": random.normal(size=rows)})
    return {
        "bank": cn.PartyTable(bank, id="id", label="y", name="bank"),
        "shop": cn.PartyTable(shop, id="id", name="shop"),
    }


QUICK = {"epochs": 1, "hidden": (2,), "cut_width": 2, "minimum_steps": 0, "secret_start": False}


def test_held_out_rows_hold_the_rare_class_at_every_party_alike() -> None:
    labels = np.r_[np.ones(RARE, int), np.zeros(54, int)]
    found = {}
    for stratify in (True, False):
        evaluate = cn.Evaluate(test_fraction=1 / 3, validation_fraction=1 / 6, stratify=stratify)
        run = cn.simulate(cn.SplitNN(**QUICK), tables(labels), seed=3, evaluate=evaluate, compare=True)
        run.verify()
        found[stratify] = [one.operating.positives for one in run.evaluations.values()]
        assert told(run) == ({("bank", "shop"): 1} if stratify else {})
    assert set(found[True]) == {2}, "and so in the model alone, and with all columns in one place"
    assert set(found[False]) != {2}


def test_numbers_to_predict_are_divided_as_without_labels() -> None:
    labels = np.random.default_rng(1).normal(size=40)
    run = cn.simulate(cn.SplitNN(task="regression", **QUICK), tables(labels), seed=3)
    assert not told(run)
    with_number = cn.simulate(cn.SplitNN(**QUICK), tables(labels), seed=3)
    assert told(with_number) == {("bank", "shop"): 1}, "a partner that does not know the task must be told"
    assert with_number.metrics == run.metrics


def test_rows_shared_pair_by_pair_are_divided_pair_by_pair() -> None:
    config = ftl.settings(iterations=1, protection="none")
    run = ftl.run_of(ftl.frames(targets=2, shared=20, own=4), config, evaluate=cn.Evaluate())
    assert told(run) == {("bank0", "shop0"): 1, ("bank0", "shop1"): 1}


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
def test_only_a_party_with_labels_tells_and_everyone_else_with_rows_hears(method: Any) -> None:
    roles = {role.name: (role.name, f"{role.name}2")[: role.at_most or 2] for role in method.roles}
    if method.name == "ftl":
        roles["source"] = ("source",)
    plan = plan_of(method.name, roles=roles)
    parties = method.parties_with_rows(plan)
    telling = {pair for pair in permutations(plan.parties, 2) if tells_split(method, plan, *pair)}
    labelled = {one for one in parties if method.has_label(plan.role_of(one))}
    assert {one for one, _ in telling} == labelled
    assert {other for _, other in telling} == {*parties} - labelled
    for other in (replace(plan, stage="predict"), replace(plan, config={"task": "regression"})):
        assert not any(tells_split(method, other, *pair) for pair in permutations(other.parties, 2))


def test_a_policy_that_forbids_the_number_refuses_until_rows_are_divided_without() -> None:
    party = with_policies(tables(np.arange(40) % 2), {"bank": cn.Policy(never_send=(SplitNumber.__name__,))})
    with pytest.raises(PolicyRefused, match="the message SplitNumber is in its list"):
        cn.simulate(cn.SplitNN(**QUICK), party)
    cn.simulate(cn.SplitNN(**QUICK), party, evaluate=cn.Evaluate(stratify=False))
