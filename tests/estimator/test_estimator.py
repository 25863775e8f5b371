"""The estimator as scikit-learn's own tools see it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from colonnade import VerticalClassifier, VerticalRegressor

# Checks of scikit-learn that are expected to fail, with the reason. None so far.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {"VerticalClassifier": {}, "VerticalRegressor": {}}


@parametrize_with_checks(
    [VerticalClassifier(random_state=0), VerticalRegressor(random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator).__name__],
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def test_classifier_works_in_cross_validation_and_learns_from_both_parties() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    together = make_pipeline(StandardScaler(), VerticalClassifier(random_state=0, epochs=20))
    weak = make_pipeline(StandardScaler(), VerticalClassifier({"alone": [9, 11, 14, 18]}, random_state=0, epochs=20))
    assert cross_val_score(together, X, y, cv=3).mean() > cross_val_score(weak, X, y, cv=3).mean() + 0.1


def test_grid_search_tries_settings_of_the_federation() -> None:
    X, y = load_iris(return_X_y=True)
    model = VerticalClassifier({"garden": [0, 1], "laboratory": [2, 3]}, random_state=0, epochs=20)
    search = GridSearchCV(model, {"cut_width": [2, 8], "dropout": [0.0, 0.1]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.8
    assert set(search.best_params_) == {"cut_width", "dropout"}


def test_columns_are_assigned_by_name_and_only_their_party_sees_them() -> None:
    frame = pd.DataFrame(load_diabetes().data, columns=[f"c{i}" for i in range(10)])
    model = VerticalRegressor(
        {"clinic": ["c0", "c1", "c2"], "laboratory": ["c8", "c9"]}, label_holder="laboratory", random_state=0
    )
    model.fit(frame, load_diabetes().target)
    assert model.columns_ == {"clinic": [0, 1, 2], "laboratory": [8, 9]}
    assert model.label_holder_ == "laboratory"
    assert model.score(frame, load_diabetes().target) > 0.3
    assert model.run_.plan.roles == {"label_holder": ("laboratory",), "feature_holder": ("clinic",)}
    model.run_.verify()


def test_missing_values_are_allowed_and_infinite_ones_are_not() -> None:
    X, y = load_iris(return_X_y=True)
    X = X.copy()
    X[::7, 1] = np.nan
    model = VerticalClassifier(random_state=0, epochs=20).fit(X, y)
    assert model.score(X, y) > 0.8
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model.predict(X)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parties": {"a": [0, 1], "b": [1, 2]}}, "assigned to two parties"),
        ({"parties": {"a": [0], "b": [7]}}, "whole number from 0 to 3"),
        ({"parties": {"a": ["petal"]}}, "no column 'petal'"),
        ({"parties": {"a": [0], "b": [1]}, "label_holder": "c"}, "not one of the parties"),
        ({"optimizer": "Adan"}, "Did you mean"),
        ({"epochs": 0}, "at least 1"),
        ({"parties": {"a/b": [0], "b": [1]}}, "name of a party"),
        ({"parties": {}}, "parties must map the name of each party.*Got {} instead"),
        ({"parties": [0, 1]}, r"parties must map .*Got \[0, 1\] instead"),
        ({"parties": {3: [0]}}, "parties must map the name"),
        ({"parties": {"a": 0}}, "columns of 'a' must be a list.*Got 0"),
        ({"parties": {"a": "petal"}}, "columns of 'a' must be a list"),
        ({"parties": {"a": [], "b": []}}, "Give one of them columns"),
        ({"label_holder": 3}, "label_holder='3' is not one of the parties"),
        ({"hidden": 5}, r"hidden must list the widths of layers, such as \(32,\).*Got 5"),
        ({"hidden": "ab"}, "hidden must list the widths"),
        ({"hidden": (5.5,)}, "setting hidden.0 is wrong.*whole number"),
        ({"hidden": (100_000_000,)}, "^hidden must hold .* at most 65536"),
        ({"head_hidden": None}, "head_hidden must list the widths"),
        ({"cut_width": "a"}, "setting cut_width is wrong.*whole number"),
        ({"dropout": "x"}, "setting dropout is wrong.*number"),
        ({"validation_fraction": "a"}, "setting validation_fraction is wrong.*number"),
        ({"validation_fraction": 1.5}, "^validation_fraction must be .* below 1"),
    ],
    ids=str,
)
def test_wrong_settings_are_value_errors_that_say_what_to_do(arguments: dict[str, Any], words: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=words):
        VerticalClassifier(**arguments).fit(X, y)


def test_early_stopping_is_used_when_rows_are_set_aside() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    model = VerticalClassifier(random_state=0, epochs=300, validation_fraction=0.2, patience=3).fit(X, y)
    assert len(model.run_.history["first"]) < 300


def test_a_label_holder_needs_no_columns_of_its_own() -> None:
    X, y = load_iris(return_X_y=True)
    model = VerticalClassifier({"bank": [], "shop": [0, 1, 2, 3]}, random_state=0).fit(X, y)
    assert model.label_holder_ == "bank"
    assert (model.predict(X) == y).mean() > 0.9


def test_numbers_of_a_parameter_search_may_be_numpys() -> None:
    X, y = load_iris(return_X_y=True)
    settings = {"hidden": np.array([4, 5]), "cut_width": np.int64(3), "learning_rate": np.float32(0.01)}
    model = VerticalClassifier(**settings, epochs=1, random_state=0).fit(X, y)
    assert model.run_.plan.config["hidden"] == [4, 5]
    assert model.run_.plan.config["cut_width"] == 3


def test_a_class_that_is_never_trained_on_is_scored_too() -> None:
    X, y = load_iris(return_X_y=True)
    y = y.copy()
    y[0] = 7
    model = VerticalClassifier(random_state=0, epochs=1, validation_fraction=0.5).fit(X, y)
    assert model.predict_proba(X).shape == (150, 4)


@pytest.mark.filterwarnings("error")
def test_a_hundred_classes_are_scored_without_a_warning() -> None:
    y = np.arange(480) % 120
    X = np.random.default_rng(0).normal(size=(480, 3))
    model = VerticalClassifier(random_state=0, epochs=1).fit(X, y)
    assert model.predict_proba(X).shape == (480, 120)
