"""What the paper's benchmark is made of: rivals, and what is to be done."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.papers.fairvfl import FULL, QUICK, field_classes, jobs
from benchmarks.papers.fairvfl_rivals import RIVALS, Rival
from benchmarks.papers.fairvfl_world import World, made_up_world, read_attribute

from colonnade import FairVFL

SMALL: dict[str, Any] = {
    "attributes": ("gender", "age"),
    "width": 16,
    "heads": 2,
    "embedding": 8,
    "bins": 10,
    "batch_size": 50,
    "learning_rate": 2e-3,
    "secret_start": False,
}


def world() -> World:
    torch.set_num_threads(1)
    return made_up_world(8, 600)


def test_adversaries_of_each_rival_see_what_it_says() -> None:
    here, codes = world(), torch.randn(5, 16)
    config = FairVFL(**SMALL | {"removal": "paper", "epochs": 1})
    seen = {kind: Rival(kind, here, config, 1) for kind in RIVALS}
    for rival in seen.values():
        rival.filters.eval()
    own = {name: one(codes) for name, one in seen["FairGo"].filters.items()}
    mean = (own["gender"] + own["age"]) / 2
    found = seen["FairGo"]._hidden(codes)
    assert all(torch.equal(found[name], mean) for name in ("gender", "age", "code"))
    found = seen["FairSM"]._hidden(codes)
    assert all(torch.equal(found[name], own[name]) for name in own)
    assert torch.equal(found["code"], mean)
    for kind in ("central", "FairRec"):
        assert all(one is codes for one in seen[kind]._hidden(codes).values())
    assert seen["central"].against is None
    assert seen["FairRec"].second is not None


def test_filters_of_fairsm_do_not_learn_from_their_average() -> None:
    rival = Rival("FairSM", world(), FairVFL(**SMALL | {"removal": "paper", "epochs": 1}), 1)
    rival.task.eval()
    codes, rows = torch.randn(5, 16), torch.arange(5)
    hidden = rival._hidden(codes)
    whole = rival._task_loss(codes, hidden, rows)
    apart = rival._task_loss(codes, {**hidden, "code": torch.zeros(5, 16)}, rows)
    parameters = list(rival.filters.parameters())
    found = [torch.autograd.grad(loss, parameters, retain_graph=True) for loss in (whole, apart)]
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["FairGo", "FairSM", "FairRec"])
def test_rivals_learn_the_task_and_hide_gender(kind: str) -> None:
    here = world()
    labels = here.tables["task"].labels
    assert labels is not None
    truth = labels[here.split.test] == "low"

    def trained(weight: float) -> tuple[float, float]:
        weights = {"gender": weight, "age": weight / 5}
        config = FairVFL(**SMALL | {"removal": "paper", "epochs": 12, "removal_weights": weights})
        found = Rival(kind, here, config, 2).train()
        read = read_attribute(here, found.codes, "gender", ("linear",), 1)["linear"]["auc"]
        return read, float(((found.logits[here.split.test, 0] > 0).numpy() == truth).mean())

    # With a weight of nothing, an adversary learns and is not listened to.
    (open_auc, open_accuracy), (hidden_auc, _) = trained(1e-6), trained(1.0)
    assert open_auc > 0.7
    assert hidden_auc < open_auc - 0.08
    # FairRec learns the task from two models and uses one.
    assert open_accuracy > (0.5 if kind == "FairRec" else 0.75)


def test_every_job_has_a_name_of_its_own_and_the_quick_ones_are_few() -> None:
    every = jobs(FULL)
    assert len(set(every)) == len(every)
    assert 0 < len(jobs(QUICK)) < 20


def test_fields_become_few_classes() -> None:
    train = np.arange(8)
    numbers = np.array([0.0, 0, 0, 0, 0, 0, 5, 6, 7])
    assert field_classes(numbers, train).tolist() == [0] * 6 + [1, 1, 1]
    words = np.array(["a", "a", "b", "b", "c", "d", "e", "f", "new"], object)
    found = field_classes(words, train, most=3)
    assert len(set(found[[0, 2, 4]])) == 3
    assert len(set(found[4:])) == 1
