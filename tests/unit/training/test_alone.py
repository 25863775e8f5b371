"""A model of own columns needs no message, learns what is there to learn, and is stored without pickle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from colonnade.errors import CheckpointBroken, UsageError
from colonnade.metrics import evaluate
from colonnade.session import ModelPart
from colonnade.training.alone import Alone, Linear, Task, _Forest
from colonnade.training.choice import Numbers

COLUMNS = np.random.default_rng(0).normal(size=(600, 6))
SLOPES = np.array([1.5, -1.0, 0.5, 0.0, 0.0, 0.0])


def linear_targets(task: Task) -> Numbers:
    signal = COLUMNS @ SLOPES + np.random.default_rng(1).normal(size=600) * 0.5
    if task == "regression":
        return np.asarray((signal - signal.mean()) / signal.std())
    return np.asarray(signal > 0, float) if task == "binary" else np.digitize(signal, [-1.0, 1.0]).astype(float)


CLASSES = {"binary": 2, "multiclass": 3, "regression": 0}
TASKS: tuple[Task, ...] = ("binary", "multiclass", "regression")


def quality(task: Task, model: Alone, targets: Numbers, rows: slice) -> float:
    found = evaluate(task, targets[rows], model.scores(COLUMNS[rows])).metrics
    return found[{"binary": "auc", "multiclass": "accuracy", "regression": "r2"}[task]]


@pytest.mark.parametrize("task", TASKS)
def test_linear_labels_are_learned(task: Task) -> None:
    targets = linear_targets(task)
    model = Alone.fit(task, COLUMNS[:300], targets[:300], CLASSES[task], seed=1)
    assert model.choice.weights["regression"] == 1.0
    assert set(model.models) == {"regression"}
    assert quality(task, model, targets, slice(300, 600)) > 0.75


@pytest.mark.parametrize("task", TASKS)
def test_columns_that_act_together_are_learned_by_the_forest(task: Task) -> None:
    product = COLUMNS[:, 0] * COLUMNS[:, 1]
    targets = product / product.std() if task == "regression" else (product > 0).astype(float)
    model = Alone.fit(task, COLUMNS[:400], targets[:400], CLASSES[task], seed=1)
    assert model.choice.name == "forest"
    least = {"binary": 0.9, "multiclass": 0.8, "regression": 0.25}[task]
    assert quality(task, model, targets, slice(400, 600)) > least


@pytest.mark.parametrize("task", TASKS)
def test_a_regression_is_that_of_scikit_learn(task: Task) -> None:
    from sklearn.linear_model import LogisticRegression, Ridge

    targets, penalty = linear_targets(task), 0.01
    ours = Linear.fit(task, COLUMNS, targets, CLASSES[task], penalty).scores(task, COLUMNS)
    if task == "regression":
        theirs = Ridge(alpha=penalty * 600).fit(COLUMNS, targets).predict(COLUMNS)
    else:
        model = LogisticRegression(C=1 / (penalty * 600), tol=1e-8, max_iter=1000).fit(COLUMNS, targets)
        theirs = model.predict_proba(COLUMNS)
        theirs = theirs[:, 1] if task == "binary" else theirs
    assert ours == pytest.approx(theirs, abs=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_a_forest_is_that_of_scikit_learn(task: Task) -> None:
    from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

    targets = linear_targets(task)
    forest, unseen = _Forest.fit(task, COLUMNS, targets, CLASSES[task], seed=5)
    kind = RandomForestRegressor if task == "regression" else RandomForestClassifier
    more = {"max_features": 1 / 3} if task == "regression" else {}
    model = kind(100, min_samples_leaf=3, random_state=5, oob_score=True, **more).fit(COLUMNS, targets)
    other = np.random.default_rng(9).normal(size=(9000, 6))
    theirs = model.predict(other) if task == "regression" else model.predict_proba(other)
    ours = forest.scores(task, other)
    assert ours == pytest.approx(theirs[:, 1] if task == "binary" else theirs, abs=1e-6)
    assert len(unseen) == 600
    assert not np.allclose(unseen, forest.scores(task, COLUMNS))


@pytest.mark.parametrize("task", TASKS)
def test_a_model_survives_a_model_part(task: Task, tmp_path: Path) -> None:
    model = Alone.fit(task, COLUMNS[:60], linear_targets(task)[:60], CLASSES[task], seed=1)
    ModelPart(model.tensors(), model.document).save(tmp_path)
    part = ModelPart.load(tmp_path)
    again = Alone.from_part(part.tensors, part.document)
    assert np.array_equal(again.scores(COLUMNS), model.scores(COLUMNS))
    assert again.choice == model.choice


@pytest.mark.parametrize("task", TASKS)
def test_the_same_seed_gives_the_same_model(task: Task) -> None:
    first, again = (Alone.fit(task, COLUMNS[:80], linear_targets(task)[:80], CLASSES[task], seed=7) for _ in range(2))
    assert np.array_equal(first.scores(COLUMNS), again.scores(COLUMNS))


@pytest.mark.parametrize("rows", [2, 5, 12])
@pytest.mark.parametrize("task", TASKS)
def test_few_rows_give_a_model_all_the_same(task: Task, rows: int) -> None:
    model = Alone.fit(task, COLUMNS[:rows], linear_targets(task)[:rows], CLASSES[task], seed=1)
    scores = model.scores(COLUMNS)
    assert scores.shape == ((600, 3) if task == "multiclass" else (600,))
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("task", ["binary", "multiclass"])
def test_classes_without_a_training_row_have_hardly_a_chance(task: Task) -> None:
    model = Alone.fit(task, COLUMNS[:50], np.zeros(50), CLASSES[task], seed=1)
    scores = model.scores(COLUMNS)
    assert (scores if task == "binary" else scores[:, 1:].sum(axis=1)).max() < 0.05


def test_columns_that_never_change_do_no_harm() -> None:
    targets = linear_targets("binary")
    model = Alone.fit("binary", np.zeros((100, 2)), targets[:100], 2, seed=1)
    assert model.scores(np.zeros((5, 2))) == pytest.approx(np.full(5, targets[:100].mean()), abs=0.02)


def test_no_rows_score_as_no_rows() -> None:
    model = Alone.fit("multiclass", COLUMNS, linear_targets("multiclass"), 3, seed=1)
    assert model.scores(COLUMNS[:0]).shape == (0, 3)


@pytest.mark.parametrize("shape", [(10, 0), (1, 3), (0, 3)])
def test_nothing_to_learn_from_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(UsageError, match="nothing to learn from"):
        Alone.fit("binary", np.zeros(shape), np.zeros(shape[0]), 2, seed=1)


def test_a_part_without_its_arrays_is_refused() -> None:
    model = Alone.fit("binary", COLUMNS[:60], linear_targets("binary")[:60], 2, seed=1)
    with pytest.raises(CheckpointBroken, match="not whole"):
        Alone.from_part({}, model.document)
