"""A model whose task was destroyed is refused, and which weight of removal lets a model be called fair."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.methods.fairvfl.worlds import frames, run_of, scored, settings

from colonnade.data import LabelEncoder
from colonnade.errors import UsageError
from colonnade.methods.fairvfl.findings import trade_off_finding
from colonnade.methods.fairvfl.tasks import Supervised
from colonnade.methods.fairvfl.train import constant_quality, safeguard

ROWS = np.arange(200)
TRUTH = np.arange(200) % 2


def binary() -> Any:
    task: Any = Supervised.__new__(Supervised)
    task.labels, task.kind = TRUTH.astype(str).astype(object), "binary"
    task.encoder = LabelEncoder.fit(task.labels, "binary")
    return task


@pytest.mark.parametrize(("sign", "is_refused"), [(1.0, False), (-1.0, True), (0.0, True)])
def test_a_task_that_is_no_better_than_one_answer_for_all_is_refused(sign: float, is_refused: bool) -> None:
    logits = sign * torch.from_numpy(2.0 * TRUTH - 1)[:, None]
    (finding,) = safeguard(binary(), logits, ROWS, settings())
    assert finding.values["refused"] is is_refused
    assert ("refused" in finding.text) is is_refused
    assert finding.values["constant"] == 0.5


def test_without_the_safeguard_it_is_only_told() -> None:
    (finding,) = safeguard(binary(), torch.zeros(200, 1), ROWS, settings(safeguard=False))
    assert not finding.values["refused"]


def test_few_held_out_rows_are_not_judged() -> None:
    assert safeguard(binary(), torch.zeros(99, 1), ROWS[:99], settings()) == ()


def test_what_one_answer_for_all_reaches() -> None:
    encoder = SimpleNamespace(encode=lambda values: values.astype(int))
    several: Any = SimpleNamespace(kind="multiclass", labels=np.array([0, 0, 0, 1, 2]), encoder=encoder)
    assert constant_quality(several, np.arange(5)) == 0.6
    number: Any = SimpleNamespace(kind="regression")
    assert constant_quality(number, np.arange(5)) == 0.0


def test_a_refused_model_scores_nothing() -> None:
    found = frames(rows=480)
    run = run_of(found, settings(epochs=3, removal_weight=0.0))
    assert not run.findings["safeguard"].values["refused"]
    assert len(scored(run, found)) == 480
    run.parts["bank"].document["is_refused"] = True
    with pytest.raises(UsageError, match="no better than a constant answer"):
        scored(run, found)


def point(factor: float, quality: float, gender: float, age: float) -> dict[str, Any]:
    read = {"gender": {"strong": {"auc": gender}}, "age": {"strong": {"r2": age, "auc": None}}}
    return {"factor": factor, "quality": quality, "constant": 0.5, "measure": "auc", "read": read}


def test_a_model_may_be_called_fair_only_if_a_quarter_of_every_attribute_is_gone_and_the_task_is_not() -> None:
    points = [point(0, 0.9, 0.9, 0.4), point(1, 0.8, 0.81, 0.0), point(2, 0.8, 0.7, 0.29), point(5, 0.5, 0.5, 0.0)]
    finding = trade_off_finding(settings(), points)
    assert finding.values["may_be_called_fair"] == [
        "no: nothing was removed",
        "no: 22% of the way to chance",
        "yes: 28% of the way to chance",
        "no: the task is lost",
    ]
    without_plain = trade_off_finding(settings(), points[1:])
    assert without_plain.values["may_be_called_fair"][0] == "not known"
