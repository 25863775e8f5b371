"""The estimator as scikit-learn's own tools see it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_breast_cancer, load_diabetes, load_iris
from sklearn.inspection import permutation_importance
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from colonnade import FTL, MPDL, FairVFL, FedCVT, PrADA, SecureLR, SplitNN, VerticalClassifier, VerticalRegressor

# As good as the default on such tables, and quicker.
QUICK = SplitNN(
    hidden=(32,),
    cut_width=16,
    members=1,
    head_hidden=(),
    dropout=0.0,
    optimizer="Adam",
    learning_rate=0.02,
    epochs=30,
    minimum_steps=0,
    batch_size=128,
    precision="float64",
)
# Checks of scikit-learn that are expected to fail, with the reason. None so far.
EXPECTED_FAILURES: dict[str, dict[str, str]] = {"VerticalClassifier": {}, "VerticalRegressor": {}}
PARTIES = {"bank": ["branch", "opened", "income"], "shop": ["member", "basket", "visits"]}


@parametrize_with_checks(
    [VerticalClassifier(method=QUICK, random_state=0), VerticalRegressor(method=QUICK, random_state=0)],
    expected_failed_checks=lambda estimator: EXPECTED_FAILURES[type(estimator).__name__],
)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    check(estimator)


def customers(rows: int = 400) -> tuple[pd.DataFrame, pd.Series[Any]]:
    """Return columns of all kinds with gaps, and who left: half of the reason lies at each party."""
    draw = np.random.default_rng(3)
    branch = draw.choice(["north", "south", "west"], rows)
    opened = pd.Timestamp("2015-01-01") + pd.to_timedelta(draw.integers(0, 3000, rows), unit="D")
    member, basket = draw.random(rows) < 0.5, draw.lognormal(3.0, 1.0, rows)
    odds = 4.0 * (branch == "north") + 4.0 * member - 2.0 + draw.normal(size=rows)
    frame = pd.DataFrame(
        {
            "branch": pd.Series(branch, dtype=object).where(draw.random(rows) < 0.9),
            "opened": pd.Series(opened).where(draw.random(rows) < 0.8),
            "income": draw.normal(40.0, 9.0, rows),
            "member": pd.Series(member, dtype=object).where(draw.random(rows) < 0.9),
            "basket": basket,
            "visits": draw.integers(0, 9, rows),
        }
    )
    return frame, pd.Series(np.where(odds > 0.0, "leaves", "stays"), name="churn")


def test_a_frame_is_taken_as_it_is_and_every_party_gets_its_columns() -> None:
    X, y = customers()
    model = VerticalClassifier(PARTIES, method=QUICK, random_state=0).fit(X[:300], y[:300])
    assert model.score(X[300:], y[300:]) > 0.85
    kinds = {name: [one["kind"] for one in table["columns"]] for name, table in model.run_.tables.items()}
    assert kinds == {"bank": ["categorical", "date", "numeric"], "shop": ["boolean", "numeric", "numeric"]}
    new = X[300:].copy()
    new["branch"], new["opened"] = "abroad", None
    assert model.predict(new).shape == (100,)


def test_classifier_works_in_cross_validation_and_learns_from_both_parties() -> None:
    X, y = load_breast_cancer(return_X_y=True)
    together = make_pipeline(StandardScaler(), VerticalClassifier(method=QUICK, random_state=0))
    alone = make_pipeline(
        StandardScaler(), VerticalClassifier({"alone": [9, 11, 14, 18]}, method=QUICK, random_state=0)
    )
    assert cross_val_score(together, X, y, cv=3).mean() > cross_val_score(alone, X, y, cv=3).mean() + 0.1


def test_grid_search_tries_any_setting_and_gives_what_the_settings_give() -> None:
    X, y = customers(200)
    model = VerticalClassifier(PARTIES, method=QUICK, random_state=0)
    grid = {"method": [replace(QUICK, members=2)], "method__epochs": [1, 30], "validation_fraction": [0.2]}
    search = GridSearchCV(model, grid, cv=2, scoring="roc_auc").fit(X, y)
    assert len(set(search.cv_results_["mean_test_score"])) == 2
    assert model.method is QUICK
    settings = replace(QUICK, members=2, epochs=search.best_params_["method__epochs"])
    by_hand = VerticalClassifier(PARTIES, method=settings, validation_fraction=0.2, random_state=0).fit(X, y)
    assert search.best_estimator_.method == settings
    np.testing.assert_array_equal(search.predict_proba(X), by_hand.predict_proba(X))
    np.testing.assert_array_equal(clone(by_hand).fit(X, y).predict_proba(X), by_hand.predict_proba(X))


@pytest.mark.parametrize(
    ("method", "roles", "play"),
    [
        (SecureLR(key_size="insecure_test"), {}, {}),
        (FedCVT(epochs=2), {}, {}),
        (MPDL(mechanism="none"), {}, {"collaborator": ("collaborator",)}),
        (
            FairVFL(attributes=("member",), epochs=2),
            {"attribute_holder": "shop"},
            {"aggregator": ("aggregator",), "attribute_holder": ("shop",)},
        ),
    ],
    ids=lambda one: type(one).__name__,
)
def test_methods_with_other_roles_get_them(method: Any, roles: dict[str, str], play: dict[str, Any]) -> None:
    X, y = customers(200)
    parties = {"bank": ["branch", "income", "basket"], "shop": ["member"]}
    model = VerticalClassifier(parties, method=method, roles=roles, random_state=0).fit(X, y)
    assert {role: model.run_.plan.roles[role] for role in play} == play
    assert model.predict_proba(X).shape == (200, 2)


@pytest.mark.parametrize(
    ("method", "words"),
    [
        (FTL(), "method ftl scores rows of the role target, which has no labels.*cn.simulate.*SplitNN()"),
        (PrADA(), "method prada learns from tables of different rows.*target and source.*cn.simulate.*SplitNN()"),
        (SplitNN, r"configuration of a method, such as SplitNN\(\). Got the class SplitNN"),
        ("secure_lr", r"configuration of a method, such as SplitNN\(\). Got 'secure_lr'"),
        (SplitNN(task="regression"), "learned here is binary, and method.task says otherwise"),
    ],
    ids=str,
)
def test_what_one_matrix_cannot_stand_for_is_refused_with_what_to_use(method: Any, words: str) -> None:
    X, y = customers(60)
    with pytest.raises(ValueError, match=words):
        VerticalClassifier(PARTIES, method=method).fit(X, y)


def test_classes_stay_sorted_whichever_is_positive() -> None:
    X, y = customers(200)
    usual = VerticalClassifier(PARTIES, method=QUICK, random_state=0)
    first, second = (clone(usual).set_params(positive=name).fit(X, y) for name in ("leaves", "stays"))
    for model, name in ((first, "leaves"), (second, "stays")):
        assert model.classes_.tolist() == ["leaves", "stays"]
        assert model.predict_proba(X)[y == "leaves", 0].mean() > 0.7
        assert f"probability_{name}" in model._score(X).columns
    with pytest.raises(ValueError, match="'gone' is not one of the 2 classes"):
        clone(usual).set_params(positive="gone").fit(X, y)


def test_weights_go_to_classes_by_their_names() -> None:
    X, y = customers(200)
    usual = VerticalClassifier(PARTIES, method=replace(QUICK, epochs=10), random_state=0)
    weighted = clone(usual).set_params(class_weights={"leaves": 20.0, "stays": 1.0}, positive="leaves").fit(X, y)
    assert weighted.run_.plan.config["class_weights"] == [1.0, 20.0]
    assert (weighted.predict(X) == "leaves").sum() > (usual.fit(X, y).predict(X) == "leaves").sum()
    with pytest.raises(ValueError, match="class_weights has 1 of 2 classes"):
        clone(usual).set_params(class_weights={"leaves": 2.0}).fit(X, y)
    with pytest.raises(ValueError, match=r"SecureLR has no class_weights\. Leave class_weights out, or use SplitNN"):
        clone(usual).set_params(class_weights="balanced", method=SecureLR()).fit(X, y)


def test_importance_is_told_by_party_and_by_column() -> None:
    X, y = customers()
    parties = {**PARTIES, "shop": ["member", "basket"], "weather": ["visits"]}
    model = VerticalClassifier(parties, method=QUICK, random_state=0).fit(X[:250], y[:250])
    found = model.party_importance(X[250:], y[250:], scoring="roc_auc", n_repeats=3, random_state=0)
    assert found.index.tolist() == ["bank", "shop", "weather"]
    assert found["mean"]["shop"] > found["mean"]["bank"] > 0.05 > found["mean"]["weather"]
    assert (found["deviation"] >= 0).all()
    columns = permutation_importance(model, X[250:], y[250:], n_repeats=2, random_state=0)
    assert X.columns[columns.importances_mean.argmax()] == "member"


def test_columns_are_assigned_by_name_and_only_their_party_sees_them() -> None:
    frame = pd.DataFrame(load_diabetes().data, columns=[f"c{i}" for i in range(10)])
    model = VerticalRegressor(
        {"clinic": ["c0", "c1", "c2"], "laboratory": ["c8", "c9"]},
        method=QUICK,
        label_holder="laboratory",
        random_state=0,
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
    model = VerticalClassifier(method=QUICK, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.8
    X[0, 0] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        model.predict(X)
    with pytest.raises(ValueError, match="infinite"):
        VerticalClassifier(method=QUICK).fit(pd.DataFrame(X), y)


@pytest.mark.parametrize(
    ("transformer", "words"),
    [
        (OneHotEncoder(), "Sparse data.*encoder is not needed.*pass the DataFrame as it is"),
        (make_column_transformer((OneHotEncoder(sparse_output=False), ["branch"])), "no column names.*set_output"),
        (
            OneHotEncoder(sparse_output=False).set_output(transform="pandas"),
            "no column 'branch', but 4 whose names.*encoder is not needed",
        ),
    ],
    ids=["sparse", "array", "frame"],
)
def test_after_an_encoder_errors_say_that_it_is_not_needed(transformer: Any, words: str) -> None:
    X, y = customers(60)
    X["branch"] = X["branch"].fillna("none")
    X = X[["branch", "member"]].astype(str)
    model = VerticalClassifier({"bank": ["branch"], "shop": ["member"]}, method=QUICK)
    with pytest.raises((TypeError, ValueError), match=words):
        make_pipeline(transformer, model).fit(X, y)


def test_what_an_encoder_left_is_told_without_the_categories() -> None:
    X, y = customers(60)
    branches = pd.get_dummies(X["branch"].fillna("none"), prefix="x0").astype(float)
    rare = pd.DataFrame(0.0, index=X.index, columns=[f"x1_{number}" for number in range(150)])
    encoded = pd.concat([branches, rare], axis=1)
    with pytest.warns(UserWarning, match=re.escape("(x0_…). 150 of 154 columns are constant")) as told:
        VerticalClassifier(method=replace(QUICK, epochs=1)).fit(encoded, y)
    assert "north" not in str(told[0].message)
    assert "An encoder is not needed" in str(told[0].message)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"parties": {"a": [0, 1], "b": [1, 2]}}, "assigned to two parties"),
        ({"parties": {"a": [0], "b": [7]}}, "whole number from 0 to 3.*after a ColumnTransformer"),
        ({"parties": {"a": ["petal"]}}, "no column 'petal': it is an array"),
        ({"parties": {"a": [0], "b": [1]}, "label_holder": "c"}, "not one of the parties"),
        ({"parties": {"a/b": [0], "b": [1]}}, "name of a party"),
        ({"parties": {}}, "parties must map the name of each party.*Got {} instead"),
        ({"parties": [0, 1]}, r"parties must map .*Got \[0, 1\] instead"),
        ({"parties": {3: [0]}}, "parties must map the name"),
        ({"parties": {"a": 0}}, "columns of 'a' must be a list.*Got 0"),
        ({"parties": {"a": "petal"}}, "columns of 'a' must be a list"),
        ({"parties": {"a": [], "b": []}}, "Give one of them columns"),
        ({"label_holder": 3}, "label_holder='3' is not one of the parties"),
        ({"positive": 1}, "positive is for two classes, and there are 3"),
        ({"roles": {"labels": "first"}}, "no role 'labels'"),
        ({"validation_fraction": "a"}, "setting validation_fraction is wrong.*number"),
        ({"validation_fraction": 1.5}, "^validation_fraction must be .* below 1"),
        ({"method__optimizer": "Adan"}, "Did you mean"),
        ({"method__epochs": 0}, "^method__epochs must be at least 1"),
        ({"method__hidden": 5}, "setting method__hidden is wrong.*list"),
        ({"method__hidden": (5.5,)}, "setting method__hidden.0 is wrong.*whole number"),
        ({"method__dropout": "x"}, "setting method__dropout is wrong.*number"),
        ({"method__epoch": 5}, "no setting 'epoch' of the method. Did you mean 'epochs'"),
    ],
    ids=str,
)
def test_wrong_settings_are_value_errors_that_say_what_to_do(arguments: dict[str, Any], words: str) -> None:
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match=words):
        VerticalClassifier(method=QUICK).set_params(**arguments).fit(X, y)


def test_a_label_holder_needs_no_columns_of_its_own() -> None:
    X, y = load_iris(return_X_y=True)
    model = VerticalClassifier({"bank": [], "shop": [0, 1, 2, 3]}, method=QUICK, random_state=0).fit(X, y)
    assert model.label_holder_ == "bank"
    assert (model.predict(X) == y).mean() > 0.9


def test_numbers_of_a_parameter_search_may_be_numpys() -> None:
    X, y = load_iris(return_X_y=True)
    model = VerticalClassifier(method=replace(QUICK, cut_width=np.int64(3)), random_state=0)  # type: ignore[arg-type]
    model.set_params(method__hidden=np.array([4, 5]), method__learning_rate=np.float32(0.01), method__epochs=1)
    model.fit(X, y)
    assert model.run_.plan.config["hidden"] == [4, 5]
    assert model.run_.plan.config["cut_width"] == 3


def test_a_class_that_is_never_trained_on_is_scored_too() -> None:
    X, y = load_iris(return_X_y=True)
    y = y.copy()
    y[0] = 7
    settings = replace(QUICK, epochs=1)
    model = VerticalClassifier(method=settings, random_state=0, validation_fraction=0.5).fit(X, y)
    assert model.predict_proba(X).shape == (150, 4)


@pytest.mark.filterwarnings("error")
def test_a_hundred_classes_are_scored_without_a_warning() -> None:
    y = np.arange(480) % 120
    X = np.random.default_rng(0).normal(size=(480, 3))
    model = VerticalClassifier(method=replace(QUICK, epochs=1), random_state=0).fit(X, y)
    assert model.predict_proba(X).shape == (480, 120)
