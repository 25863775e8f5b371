"""Tables with gaps, categories, few rows or none of a kind: all is learned and scored, or refused with a sentence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.unit.methods.mpdl.worlds import HIGH, LOW, TESTED, frames, run_of, settings, tables_of, watched

import colonnade as cn
from colonnade.errors import ColonnadeError, ConfigError, RoleFailed

Frames = dict[str, pd.DataFrame]
NOTHING = cn.Evaluate(validation_fraction=0.0, test_fraction=0.0)
DUAL: dict[str, Any] = {"generator": "mlp", "dual_weight": 0.1, "dual_consent": True, "generator_epochs": 1}
LEVELS: dict[str, Any] = {"levels": {"kind": ("x", "y", "z")}}
ONCE: dict[str, Any] = {"epochs": 1}


def with_kinds(missing: bool = False) -> Frames:
    found = frames()
    for one in found.values():
        one["kind"] = np.array(["x", "y", "z"], dtype=object)[np.arange(len(one)) % 3]
        if missing:
            one.loc[::5, "kind"] = None
    return found


def constant() -> Frames:
    found = frames()
    found["bank"]["bank0"] = 7.0
    return found


CASES: dict[str, tuple[Callable[[], Frames], dict[str, Any]]] = {
    "gaps": (lambda: frames(missing=True), {}),
    "gaps, in the clear, with a penalty": (lambda: frames(missing=True), {"mechanism": "none", **DUAL}),
    "gaps, noise on everything": (lambda: frames(missing=True), {"dp_scope": "all", **DUAL}),
    "categories": (with_kinds, LEVELS),
    "categories with gaps": (lambda: with_kinds(True), {**LEVELS, **DUAL}),
    "categories with gaps, in the clear": (lambda: with_kinds(True), {"mechanism": "none", "bounds": {}}),
    "common categories, shipped": (
        lambda: with_kinds(True),
        {**LEVELS, "common_columns": ("kind",), "completion": "ship"},
    ),
    "noise by row": (frames, {"mechanism": "row_gaussian", "sigma": 0.1}),
    "a constant column, in the clear": (constant, {"mechanism": "none", "bounds": {}}),
    "a constant column": (constant, {}),
    "nothing that only the bank knows": (lambda: frames(own={"bank": 0}), {}),
    "nothing that only the bank knows, shipped": (lambda: frames(own={"bank": 0}), {"completion": "ship"}),
    "nothing that only the shop knows": (lambda: frames(own={"shop": 0}), {"augment": False}),
    "means": (frames, {"generator": "mean"}),
    "completed rows count less": (frames, {"completed_weight": "residual"}),
    "rows one by one": (lambda: frames(shared=9, own={"bank": 3}), {"batch_size": 1}),
    "single precision, secret start": (frames, {"precision": "float32", "secret_start": True}),
}
QUICK = (
    "gaps",
    "categories with gaps",
    "nothing that only the bank knows",
    "completed rows count less",
    "noise by row",
)


@pytest.mark.parametrize("case", [one if one in QUICK else pytest.param(one, marks=pytest.mark.slow) for one in CASES])
def test_unusual_tables_are_learned_from_and_scored(case: str) -> None:
    make, changes = CASES[case]
    found = make()
    run = run_of(found, settings(**{**ONCE, **changes}))
    assert all(value.isfinite().all() for part in run.parts.values() for value in part.tensors.values())
    scores = run.predict(tables_of({name: one.drop(columns="y", errors="ignore") for name, one in found.items()}))
    assert scores["probability_1"].between(0, 1).all()
    assert len(scores) == len(set(found["bank"]["id"]) | set(found["shop"]["id"]))


@pytest.mark.parametrize("shared", [1, 2, 3])
@pytest.mark.parametrize("changes", [{"folds": 5}, {**DUAL}, {"folds": 5, **DUAL}], ids=["folds", "penalty", "both"])
def test_very_few_shared_rows_are_learned_from_or_refused_with_a_sentence(shared: int, changes: dict[str, Any]) -> None:
    said: ColonnadeError | None = None
    try:
        run_of(frames(shared=shared), settings(**ONCE, **changes), evaluate=NOTHING)
    except ColonnadeError as error:
        said = error
    assert not isinstance(said, RoleFailed), repr(said)
    assert said is None or shared == 1, repr(said)


def test_the_papers_own_settings_run_and_are_called_unsound() -> None:
    config = cn.MPDL.paper(bounds={"*": (LOW, HIGH)}, key_size="insecure_test", generator_epochs=1, epochs=1)
    run = run_of(frames(), config, evaluate=TESTED)
    budget = run.findings["privacy of shop"].values
    assert budget["is_sound"] is False
    assert budget["row_basic"] is None
    assert "does not hold" in run.findings["privacy of shop"].text


def test_columns_without_public_bounds_are_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="bank0"):
        run_of(frames(), settings(bounds={"shop*": (LOW, HIGH)}))


def test_bounds_are_those_of_the_settings_and_never_of_the_table() -> None:
    """What lies outside is clipped: two tables that differ there only give the same cells."""
    cells = []
    for outlier in (LOW - 1.0, LOW - 1000.0):
        found = frames()
        found["shop"].loc[0, "shop0"] = outlier
        with watched() as facts:
            run_of(found, settings(**ONCE))
        cells.append(facts.tables["shop"].units)
    assert (cells[0] == cells[1]).all()
