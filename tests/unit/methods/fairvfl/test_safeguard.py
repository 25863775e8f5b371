"""A model is refused whose task was destroyed or whose attributes are read almost as well as a plain one's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tests.unit.methods.fairvfl.worlds import UNFAIR, frames, run_of, scored, settings, told_gender

import colonnade as cn
from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, UsageError
from colonnade.launch.party_folder import PartyFolder
from colonnade.methods.fairvfl.findings import fairness_finding, trade_off_finding
from colonnade.methods.fairvfl.tasks import Supervised
from colonnade.methods.fairvfl.train import constant_quality, quality_of, safeguard
from colonnade.session import ModelPart

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
    run.parties["bank"].refusals["train"] = "no better than a constant answer"
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


def auc(value: float | None, is_clear: bool = True) -> dict[str, Any]:
    return {} if value is None else {"strong": {"auc": value, "r2": None, "is_above_chance": is_clear}}


@pytest.mark.parametrize(
    ("plain", "read", "is_clear", "way", "is_refused"),
    [
        (0.9, 0.9, True, 0.0, True),
        (0.9, 0.95, True, -0.125, True),
        (0.9, 0.81, True, 0.225, True),
        (0.9, 0.79, True, 0.275, False),
        (0.9, 0.5, True, 1.0, False),
        # By luck, on few rows: there is nothing to be read.
        (0.56, 0.58, False, 1.0, False),
        (0.5, 0.5, False, 1.0, False),
        (0.4, 0.45, False, 1.0, False),
        # What a plain model does not give away, and this one does.
        (0.5, 0.7, True, 0.0, True),
        (0.45, 0.7, True, 0.0, True),
        (None, 0.9, True, None, False),
        (0.9, None, True, None, False),
    ],
)
def test_a_model_is_refused_from_which_almost_as_much_is_read_as_from_a_plain_one(
    plain: float | None, read: float | None, is_clear: bool, way: float | None, is_refused: bool
) -> None:
    config = settings(attributes=("gender",))
    reading = {"gender": auc(read, is_clear)}
    finding, refusal = fairness_finding(config, {"gender": auc(plain)}, reading, is_enough=True)
    found = finding.values["attributes"]["gender"]["way_to_chance"]
    assert found is None if way is None else found == pytest.approx(way)
    assert finding.values["refused"] is is_refused
    assert bool(refusal) is is_refused
    assert (refusal is None) == (way is None), "what is not known lifts nothing"
    assert ("refused to be used" in finding.text) is is_refused


def test_every_attribute_that_was_to_be_removed_counts_and_no_other() -> None:
    plain = {"gender": auc(0.9), "age": {"strong": {"auc": None, "r2": 0.4}}}
    read = {"gender": auc(0.6), "age": {"strong": {"auc": None, "r2": 0.35}}}
    _, refusal = fairness_finding(settings(), plain, read, is_enough=True)
    assert "as much of age from" in (refusal or "")
    only = settings(removal_weights={"gender": 1.0, "age": 0.0})
    finding, refusal = fairness_finding(only, plain, read, is_enough=True)
    assert refusal == ""
    assert [row[0] for row in finding.rows] == ["gender"]


def test_few_rows_and_a_safeguard_that_is_off_refuse_nothing_but_say_it() -> None:
    both = {"gender": auc(0.9)}
    for config, is_enough, why in ((settings(), False, "too few"), (settings(safeguard=False), True, "is off")):
        finding, refusal = fairness_finding(config, both, both, is_enough=is_enough)
        assert refusal == ("" if is_enough else None), "too few rows lift nothing"
        assert not finding.values["refused"]
        assert why in finding.text


def audit_of(run: cn.Run, found: dict[str, pd.DataFrame], **changes: Any) -> cn.Run:
    options = {"folder": run.folder.parent / "audited"} if run.folder is not None else {}
    return run_of(found, settings(**{**UNFAIR, **changes}), stage="audit", after=run, **options)


def test_an_audit_refuses_a_model_that_gives_away_as_much_as_a_plain_one_and_can_lift_that() -> None:
    found = told_gender()
    run = run_of(found, settings(**UNFAIR))
    assert len(scored(run, found)) == 600
    finding = audit_of(run, found).findings["fairness"]
    assert finding.values["attributes"]["gender"]["plain"] > 0.8
    assert finding.values["refused"]
    assert set(run.refusals) == {"bank"}
    assert set(run.refusals["bank"]) == {"audit"}
    with pytest.raises(UsageError, match="almost as much of gender from this model as from a plain one"):
        scored(run, found)
    with pytest.raises(UsageError, match="almost as much of gender"):
        scored(run.at_threshold(0.3), found)
    assert "fairness" not in audit_of(run, found, audit_plain=False).findings
    assert run.refusals, "an audit that does not compare says nothing about it"
    with pytest.raises(ConfigError, match=r"trained with other settings .*\(removal_weight\)"):
        audit_of(run, found, removal_weight=2.0)
    assert not audit_of(run, found, safeguard=False).findings["fairness"].values["refused"]
    assert not run.refusals
    assert len(scored(run, found)) == 600


def test_an_audit_lets_a_model_pass_that_hides_the_attribute() -> None:
    found = told_gender()
    changes: dict[str, Any] = {"removal": "robust", "code_noise": 50.0, "removal_weight": 1.0}
    run = run_of(found, settings(**{**UNFAIR, **changes}))
    finding = audit_of(run, found, **changes).findings["fairness"]
    assert finding.values["attributes"]["gender"]["plain"] > 0.8
    assert finding.values["attributes"]["gender"]["way_to_chance"] > 0.5
    assert "audit" not in run.refusals.get("bank", {})


def test_what_an_audit_refused_stays_refused_in_the_models_folder(tmp_path: Path) -> None:
    found = told_gender()
    run = run_of(found, settings(**UNFAIR), folder=tmp_path / "model", launch=cn.Launch(name="model"))
    audit_of(run, found)
    assert (tmp_path / "model" / "bank" / "refusal.json").exists()
    assert not (tmp_path / "model" / "one" / "refusal.json").exists()
    with pytest.raises(UsageError, match="almost as much of gender"):
        scored(cn.load_run(tmp_path / "model"), found)


def test_a_new_model_in_the_same_folder_is_not_refused_for_the_old_one(tmp_path: Path) -> None:
    found = told_gender()
    run = run_of(found, settings(**UNFAIR), folder=tmp_path / "model", launch=cn.Launch(name="model"))
    own = PartyFolder(tmp_path / "model" / "bank")
    own.refuse("audit", "It gave too much away.")
    # As by another training, with --overwrite.
    own.keep(replace(own.load(), part=ModelPart({}, {"model": "another"}), refusals={}))
    assert own.load().refusals == {}
    assert audit_of(run, found).refusals, "of the model in memory, which is still the old one"
    assert run.refusals
    assert own.load().refusals == {}


def test_an_audit_of_a_model_that_is_gone_leaves_no_folder_behind(tmp_path: Path) -> None:
    found = told_gender(rows=200)
    run = run_of(found, settings(**UNFAIR), folder=tmp_path / "model", launch=cn.Launch(name="model"))
    shutil.rmtree(tmp_path / "model")
    audit_of(run, found)
    assert not (tmp_path / "model").exists()


def test_rows_of_one_class_cannot_tell_how_good_a_task_is() -> None:
    task, rows = binary(), np.flatnonzero(TRUTH)
    assert quality_of(task, torch.zeros(len(rows), 1), rows) == ("auc", None)
    assert safeguard(task, torch.zeros(len(rows), 1), rows, settings()) == ()
    points = [point(0, 0.9, 0.9, 0.4), {**point(1, 0.8, 0.6, 0.0), "quality": None}]
    finding = trade_off_finding(settings(), points)
    assert finding.values["may_be_called_fair"][1] == "not known"
    assert finding.figures[0].values["series"][0]["marks"] == ["0"]


def test_an_audit_that_compares_needs_labels() -> None:
    found = told_gender(rows=200)
    run = run_of(found, settings(**UNFAIR))
    unlabelled = {**found, "bank": found["bank"].drop(columns="y")}
    with pytest.raises(ConfigError, match="no labels to train it with"):
        audit_of(run, unlabelled)
    assert "audit" in audit_of(run, unlabelled, audit_plain=False).findings
