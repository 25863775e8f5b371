"""SHAP values that add up to the score of every row, and nothing else that crosses."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from tests.unit.methods.prada.worlds import HOLDER, frames, run_of, settings, tables_of
from tests.worlds import name_of, view

import colonnade as cn

ROLES = {"feature_holder": HOLDER, "target": "bank0"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "sealed": ("binary", {}),
    "in the clear": ("binary", {"protection": "none"}),
    "three classes, sealed": ("multiclass", {"aggregate": 2}),
    "three classes in the clear": ("multiclass", {"protection": "none", "grouped": False, "widths": {}}),
    "numbers, without pairs": ("regression", {"task": "regression", "interactions": False, "widths": {}}),
    "several numbers a group, steps, tuned": ("binary", {"aggregate": 3, "expansion": "steps", "tune": "all"}),
}
QUICK = ("sealed", "in the clear", "three classes, sealed")


@cache
def explained(name: str) -> tuple[cn.Run, cn.Run, Any]:
    task, changes = CASES[name]
    config = settings(**changes, explanations=True, epochs=1, fine_epochs=2)
    run = run_of(frames(task), config)
    tables = {party: one for party, one in tables_of(frames(task)).items() if party != "sister0"}
    found = cn.simulate(
        config, tables, roles=ROLES, seed=11, stage="explain", after=run, launch=cn.Launch(keep_views=True)
    )
    return run, found, run.predict(tables)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_values_and_base_add_up_to_the_score_of_every_row(name: str) -> None:
    """Check 13 of the sheet."""
    run, found, scores = explained(name)
    values = found.findings["explanation"].values
    task = CASES[name][0]
    parts = np.array(values["values"]).reshape(len(values["rows"]), len(values["names"]), -1)
    total = parts.sum(axis=1) + np.array(values["base"])
    by_id = scores.set_index("id")
    ids = tables_of(frames(task))["bank0"].ids[values["rows"]]
    assert len(ids) == round(48 * 0.2)
    if task == "binary":
        chance = by_id.loc[list(ids), "probability_1"].to_numpy()
        wanted = np.log(chance / (1 - chance))[:, None]
        assert np.abs(total - wanted).max() < 1e-5
    elif task == "regression":
        encoder = run.parts["bank0"].document["label_encoder"]
        wanted = (by_id.loc[list(ids), "prediction"].to_numpy(float) - encoder["mean"]) / encoder["scale"]
        assert np.abs(total[:, 0] - wanted).max() < 1e-5
    else:
        raised = np.exp(total - total.max(axis=1, keepdims=True))
        columns = [column for column in by_id.columns if column.startswith("probability_")]
        wanted = by_id.loc[list(ids), columns].to_numpy(float)
        found_chances = raised / raised.sum(axis=1, keepdims=True)
        if wanted.shape == found_chances.shape:
            assert np.abs(found_chances - wanted).max() < 1e-5
        else:
            assert np.abs(found_chances.max(axis=1) - wanted[:, 0]).max() < 1e-5


def test_nothing_else_is_sent() -> None:
    """Check 13: the key, the mean row, the rows' differences, and which fifth each number lies in."""
    _, found, _ = explained("sealed")
    scoring = ["SealedInputs", "OpenedLogits", "SealedInputs", "OpenedContributions"]
    assert [name_of(one) for _, one in view(found, "bank0")] == ["PublicModulus", *scoring, "GroupLevels"]
    assert [name_of(one) for _, one in view(found, HOLDER)] == [
        "ModelMark",
        "MaskedLogits",
        "MaskedContributions",
    ]
    sealed = [one for _, one in view(found, "bank0") if name_of(one) == "SealedInputs"]
    assert [one.columns.shape[0] for one in sealed] == [1, round(48 * 0.2)]
    assert all(one.rows is None for one in sealed), "nothing to learn from"
    marks = [entry.content for entry in found.ledgers[HOLDER].entries if entry.kind == "explained"]
    assert marks[0]["rows"] == round(48 * 0.2)
    assert any(entry.kind == "override" for entry in found.ledgers["bank0"].entries)


def test_groups_and_columns_are_named_ordered_and_drawn() -> None:
    run, found, _ = explained("sealed")
    finding = found.findings["explanation"]
    names = list(finding.values["names"])
    assert names[:3] == ["a", "b", "a-b"]
    assert names[-2:] == ["own0", "own1"]
    sizes = [float(row[2]) for row in finding.rows]
    assert sizes == sorted(sizes, reverse=True)
    assert [figure.kind for figure in finding.figures] == ["bars", "beeswarm"]
    swarm = finding.figures[1].values
    assert {level for levels in swarm["levels"] for level in levels} <= set(range(5))
    del run


def test_a_model_of_own_columns_alone_needs_no_partner() -> None:
    config = settings(protection="none", compare="local", margin=0.0, explanations=True, epochs=1, fine_epochs=1)
    tables = tables_of(frames())
    with pytest.MonkeyPatch.context() as patch:
        from colonnade.methods.prada import choice

        patch.setattr(choice, "_loss_against", lambda bank, joint, other: (1.0, 0.0))
        run = run_of(frames(), config)
    assert run.findings["transfer"].values["chosen"] == "local"
    mine = {party: one for party, one in tables.items() if party != "sister0"}
    assert run.predict(mine)["probability_1"].between(0, 1).all()
    found = cn.simulate(
        config, mine, roles=ROLES, seed=11, stage="explain", after=run, launch=cn.Launch(keep_views=True)
    )
    values = found.findings["explanation"].values
    assert list(values["names"]) == ["own0", "own1"]
    total = np.array(values["values"]).sum(axis=1) + values["base"][0]
    ids = tables["bank0"].ids[values["rows"]]
    chance = run.predict(mine).set_index("id").loc[list(ids), "probability_1"].to_numpy()
    assert np.abs(total - np.log(chance / (1 - chance))).max() < 1e-5
    assert {name_of(one) for _, one in view(found, HOLDER)} <= {"ModelMark"}
    assert view(found, "bank0") == []
