"""The metrics agree with scikit-learn, scipy and cases worked out by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ks_2samp
from sklearn import metrics as reference

from colonnade.errors import TableError, TrainingFailed, UsageError
from colonnade.metrics import TASKS, Evaluation, Threshold, evaluate, headline, higher_is_better


@pytest.fixture
def random():
    return np.random.default_rng(20)


def assert_is_json(evaluation: Evaluation) -> None:
    text = json.dumps(evaluation.to_json(), allow_nan=False)
    assert Evaluation.from_json(json.loads(text)) == evaluation


ANY = {"allow_nan": False, "allow_infinity": False}


def assert_shows_no_single_row(evaluation: Evaluation) -> None:
    """Every point, and every step from one point to the next, stands for five rows or more."""
    curves, smallest = evaluation.curves, 5
    for name in ("calibration", "predicted_observed", "residuals"):
        if name in curves:
            assert min(curves[name]["count"]) >= smallest
            assert sum(curves[name]["count"]) == evaluation.rows
    if "residuals" in curves:
        assert len(curves["residuals"]["edges"]) == len(curves["residuals"]["count"]) + 1
        assert np.all(np.diff(curves["residuals"]["edges"]) > 0)
    if "auc" in evaluation.metrics:
        positives = evaluation.metrics["positive_rate"] * evaluation.rows
        sizes = np.array([[positives], [evaluation.rows - positives]])
        if "ks" in curves:
            shares = [[0, *curves["ks"][f"cumulative_{name}"], 1] for name in ("positive", "negative")]
            assert (np.diff(shares) * sizes).sum(axis=0).min() > smallest - 0.01
        if "roc" in curves:
            shares = [curves["roc"][f"{name}_positive_rate"] for name in ("true", "false")]
            assert (np.diff(shares) * sizes).sum(axis=0).min() > smallest - 0.01
        if "roc" in curves and evaluation.operating is not None:
            # The point at which rows are called is told too, and lies on the curves or five rows from their points.
            shares = [curves["roc"][f"{name}_positive_rate"] for name in ("true", "false")]
            gaps = np.abs((np.array(shares) * sizes).sum(axis=0) - evaluation.operating.called)
            assert np.all((gaps < 0.01) | (gaps > smallest - 0.01) | (np.arange(len(gaps)) % (len(gaps) - 1) == 0))
        if "ks" in curves and "roc" in curves:
            ascending = sorted(1 - np.array(curves["roc"]["true_positive_rate"][1:-1]))
            assert ascending == pytest.approx(curves["ks"]["cumulative_positive"], abs=1e-5)


def numbers_in(value: object) -> set[float]:
    """Return every number with a fraction, however deep."""
    if isinstance(value, float):
        return set() if value.is_integer() else {value}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(numbers_in, inner))


def test_binary_metrics_agree_with_the_references(random):
    truth = random.integers(0, 2, 1000)
    scores = np.clip(0.4 * truth + 0.6 * random.random(1000), 0, 1)
    result = evaluate("binary", truth, scores, ["stays", "leaves"])
    expected = {
        "auc": reference.roc_auc_score(truth, scores),
        "ks": ks_2samp(scores[truth == 1], scores[truth == 0]).statistic,
        "accuracy": reference.accuracy_score(truth, scores >= 0.5),
        "f1": reference.f1_score(truth, scores >= 0.5),
        "log_loss": reference.log_loss(truth, scores),
        "brier": np.mean((truth - scores) ** 2),
        "positive_rate": truth.mean(),
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert set(result.metrics) == {*expected, "calibration_error"}
    assert result.rows == 1000
    assert_is_json(result)


def test_binary_curves_are_short_and_keep_their_ends(random):
    truth = random.integers(0, 2, 5000)
    scores = random.random(5000)
    curves = evaluate("binary", truth, scores).curves
    false_positive, true_positive = curves["roc"]["false_positive_rate"], curves["roc"]["true_positive_rate"]
    assert len(false_positive) == len(true_positive) <= 200
    assert (false_positive[0], true_positive[0]) == (0, 0)
    assert (false_positive[-1], true_positive[-1]) == (1, 1)
    assert np.trapezoid(true_positive, false_positive) == pytest.approx(
        reference.roc_auc_score(truth, scores), abs=0.005
    )
    assert len(curves["ks"]["threshold"]) <= 200
    assert sum(curves["calibration"]["count"]) == 5000


def test_the_ks_curve_keeps_the_point_of_the_widest_gap(random):
    truth = random.integers(0, 2, 5000)
    scores = np.clip(0.2 * truth + 0.8 * random.random(5000), 0, 1)
    result = evaluate("binary", truth, scores)
    curve = result.curves["ks"]
    at = curve["widest"]
    gap = abs(curve["cumulative_positive"][at] - curve["cumulative_negative"][at])
    assert gap == pytest.approx(result.metrics["ks"], abs=1e-5)


def test_ks_and_roc_by_hand_with_ties():
    # Scores 0.2 (five negatives), 0.5 (five of each), 0.9 (five positives): the gap is 1/2 after 0.2 and after 0.5.
    result = evaluate("binary", [0, 0, 1, 1] * 5, [0.2, 0.5, 0.5, 0.9] * 5)
    assert result.metrics["ks"] == pytest.approx(0.5)
    assert result.curves["ks"] == {
        "threshold": [0.35, 0.7],
        "cumulative_positive": [0.0, 0.5],
        "cumulative_negative": [0.5, 1.0],
        "widest": 0,
    }
    assert result.curves["roc"] == {
        "false_positive_rate": [0.0, 0.0, 0.5, 1.0],
        "true_positive_rate": [0.0, 0.5, 1.0, 1.0],
    }


def test_calibration_error_by_hand():
    # Bin 0.1: mean 0.15, observed 0.5, six rows. Bin 0.9: mean 0.95, observed 1, six rows, the 1.0 among them.
    result = evaluate("binary", [0, 1, 1, 1] * 3, [0.1, 0.2 - 1e-9, 0.9, 1.0] * 3)
    assert result.metrics["calibration_error"] == pytest.approx((2 * 0.35 + 2 * 0.05) / 4)
    assert result.curves["calibration"] == {"predicted": [0.15, 0.95], "observed": [0.5, 1.0], "count": [6, 6]}


def test_small_calibration_bins_join_their_neighbours():
    # Two rows at 0.05 and four at 0.35 make one point; the one at 0.95 is left over and joins the five at 0.65.
    scores = [0.05] * 2 + [0.35] * 4 + [0.65] * 5 + [0.95]
    curve = evaluate("binary", [0, 1] + [1] * 4 + [0] * 5 + [1], scores).curves["calibration"]
    assert curve == {"predicted": [0.25, 0.7], "observed": [0.833333, 0.166667], "count": [6, 6]}


@pytest.mark.parametrize("only", [0, 1])
def test_one_class_leaves_out_the_ranking_metrics(only):
    result = evaluate("binary", [only] * 5, [0.1, 0.3, 0.5, 0.7, 0.9])
    assert "auc" not in result.metrics
    assert "ks" not in result.metrics
    assert "roc" not in result.curves
    assert result.metrics["accuracy"] == pytest.approx(0.4 if only == 0 else 0.6)
    assert_is_json(result)


def test_multiclass_metrics_agree_with_the_references(random):
    truth = random.integers(0, 4, 600)
    scores = random.dirichlet(np.ones(4), 600) + 0.5 * np.eye(4)[truth]
    scores /= scores.sum(axis=1, keepdims=True)
    result = evaluate("multiclass", truth, scores, ["a", "b", "c", "d"])
    called = scores.argmax(axis=1)
    expected = {
        "accuracy": reference.accuracy_score(truth, called),
        "macro_f1": reference.f1_score(truth, called, average="macro"),
        "log_loss": reference.log_loss(truth, scores),
        "macro_auc": reference.roc_auc_score(truth, scores, multi_class="ovr"),
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert result.curves["confusion"]["classes"] == ["a", "b", "c", "d"]
    assert result.curves["confusion"]["counts"] == reference.confusion_matrix(truth, called).tolist()
    assert [curve["class"] for curve in result.curves["roc"]] == ["a", "b", "c", "d"]
    assert_is_json(result)


def test_multiclass_leaves_classes_without_rows_out_of_the_area(random):
    truth = random.integers(0, 2, 60)
    scores = random.dirichlet(np.ones(3), 60)
    result = evaluate("multiclass", truth, scores)
    areas = [reference.roc_auc_score(truth == index, scores[:, index]) for index in (0, 1)]
    assert result.metrics["macro_auc"] == pytest.approx(np.mean(areas))
    assert [curve["class"] for curve in result.curves["roc"]] == ["0", "1"]


def test_multiclass_with_one_class_and_many_classes(random):
    scores = random.dirichlet(np.ones(3), 5)
    assert "macro_auc" not in evaluate("multiclass", [2] * 5, scores).metrics
    wide = random.dirichlet(np.ones(120), 500)
    result = evaluate("multiclass", random.integers(0, 120, 500), wide)
    assert len(result.curves["roc"]) == 10
    assert "confusion" not in result.curves


def test_float32_probabilities_raise_no_warning(random):
    scores = random.dirichlet(np.ones(5), 50).astype(np.float32)
    evaluate("multiclass", random.integers(0, 5, 50), scores)
    evaluate("binary", [0, 1], np.array([0.0, 1.0 + 1e-6], dtype=np.float32))


def test_regression_metrics_agree_with_the_references(random):
    truth = random.normal(100, 20, 500)
    predictions = truth + random.normal(0, 5, 500)
    result = evaluate("regression", truth, predictions)
    assert result.metrics == pytest.approx(
        {
            "rmse": np.sqrt(np.mean((truth - predictions) ** 2)),
            "mae": np.mean(np.abs(truth - predictions)),
            "r2": reference.r2_score(truth, predictions),
        }
    )
    assert len(result.curves["predicted_observed"]["predicted"]) == 20
    assert sum(result.curves["predicted_observed"]["count"]) == 500
    assert sum(result.curves["residuals"]["count"]) == 500
    assert len(result.curves["residuals"]["edges"]) == len(result.curves["residuals"]["count"]) + 1
    assert_is_json(result)


def test_regression_without_spread_leaves_out_r2():
    assert "r2" not in evaluate("regression", [3.0], [2.0]).metrics
    result = evaluate("regression", [1e9, 1e9, 1e9], [1e9, 1e9, 1e9 + 1e-7])
    assert "r2" not in result.metrics


@pytest.mark.parametrize(
    ("task", "truth", "scores", "classes", "error"),
    [
        ("binery", [0], [0.5], (), UsageError),
        ("binary", [], [], (), UsageError),
        ("binary", [0, 1], [0.5], (), UsageError),
        ("binary", [0, 1], 0.5, (), UsageError),
        ("binary", [0, 1], [[0.5, 0.5], [0.5, 0.5]], (), UsageError),
        ("binary", [0, 2], [0.5, 0.5], (), UsageError),
        ("binary", [0, 0.5], [0.5, 0.5], (), UsageError),
        ("binary", [0, float("nan")], [0.5, 0.5], (), UsageError),
        ("binary", ["secret", "other"], [0.5, 0.5], (), UsageError),
        ("binary", [0, 1], [0.5, 3.0], (), UsageError),
        ("binary", [0, 1], [0.5, float("nan")], (), TrainingFailed),
        ("binary", [0, 1], [0.5, 0.5], ("a", "b", "c"), UsageError),
        ("multiclass", [0, 1], [[0.5, 0.9], [0.5, 0.5]], (), UsageError),
        ("multiclass", [0, 0], [[1.0], [1.0]], (), UsageError),
        ("multiclass", [0, 1], [0.5, 0.5], (), UsageError),
        ("regression", [0.0, float("nan")], [0.5, 0.5], (), TableError),
        ("regression", ["secret", "1"], [0.5, 0.5], (), UsageError),
    ],
)
def test_wrong_input_is_refused_without_quoting_it(task, truth, scores, classes, error):
    with pytest.raises(error) as caught:
        evaluate(task, truth, scores, classes)
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_from_json_refuses_something_else():
    for content in ({}, {"task": "binary", "rows": 1, "metrics": 3}, {"task": "x", "rows": 1, "metrics": {}}):
        with pytest.raises(UsageError):
            Evaluation.from_json(content)


def test_headline_and_direction():
    assert [headline(task) for task in TASKS] == ["auc", "accuracy", "r2"]
    assert all(higher_is_better(headline(task)) for task in TASKS)
    assert higher_is_better("log_loss") is False
    assert higher_is_better("positive_rate") is None
    with pytest.raises(UsageError, match="Did you mean 'binary'"):
        headline("binray")


rows = st.lists(st.tuples(st.integers(0, 1), st.floats(0, 1)), min_size=1, max_size=60)


@settings(deadline=None)
@given(rows, st.floats(0, 1))
def test_binary_metrics_stay_in_range(pairs, threshold):
    truth, scores = zip(*pairs, strict=True)
    result = evaluate("binary", truth, scores, threshold=Threshold(threshold, ""))
    for name, value in result.metrics.items():
        assert 0 <= value <= (np.inf if name == "log_loss" else 1 + 1e-12)
    assert ("auc" in result.metrics) == (len(set(truth)) == 2)
    assert_shows_no_single_row(result)
    assert_is_json(result)


@settings(deadline=None)
@given(rows)
def test_ks_is_the_largest_gap_and_ignores_row_order(pairs):
    truth, scores = (np.array(column) for column in zip(*pairs, strict=True))
    if len(set(truth)) < 2:
        return
    forward, backward = evaluate("binary", truth, scores), evaluate("binary", truth[::-1], scores[::-1])
    expected = max(abs(np.mean(scores[truth == 1] <= cut) - np.mean(scores[truth == 0] <= cut)) for cut in scores)
    assert forward.metrics["ks"] == pytest.approx(expected)
    assert forward.curves.get("ks") == backward.curves.get("ks")


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=1, max_size=80))
def test_regression_never_fails_on_finite_numbers(pairs):
    truth, predictions = zip(*pairs, strict=True)
    result = evaluate("regression", truth, predictions)
    assert result.metrics["rmse"] >= result.metrics["mae"] * (1 - 1e-9) - 1e-100
    assert result.metrics.get("r2", 0) <= 1
    assert_shows_no_single_row(result)
    assert_is_json(result)


@settings(deadline=None)
@given(st.lists(st.tuples(st.floats(**ANY), st.floats(**ANY)), min_size=1, max_size=30), st.floats(1e-320, 1e308))
def test_regression_copes_with_every_finite_number(pairs, size):
    truth, predictions = np.array(pairs).T
    assert_is_json(evaluate("regression", truth, predictions))
    with np.errstate(over="ignore"):
        scaled = np.clip(np.array(pairs).T * size, -1e308, 1e308)
    assert_is_json(evaluate("regression", *scaled))


@pytest.mark.parametrize("size", [1e-310, 1e-200, 1e-165, 1e-100, 1.0, 1e100, 1e160, 1e300, 1.7e308])
def test_regression_metrics_do_not_depend_on_the_unit(random, size):
    truth = random.uniform(-1, 1, 60)
    predictions = np.clip(truth + random.normal(0, 0.1, 60), -1, 1)
    expected = evaluate("regression", truth, predictions)
    # The caller may have asked numpy to raise instead of warn.
    with np.errstate(all="raise", under="ignore"):
        scaled = truth * size, predictions * size
    with np.errstate(all="raise"):
        result = evaluate("regression", *scaled)
    assert result.metrics == pytest.approx(
        {
            "rmse": expected.metrics["rmse"] * size,
            "mae": expected.metrics["mae"] * size,
            "r2": expected.metrics["r2"],
        },
        rel=1e-9,
        abs=0,
    )
    assert result.curves.keys() == expected.curves.keys()
    assert_is_json(result)


def test_metrics_beyond_floating_point_are_left_out():
    result = evaluate("regression", [1.7e308, -1.7e308] * 5, [-1.7e308, 1.7e308] * 5)
    assert result.metrics == {"r2": -3.0}
    # The true R² is about -1e400.
    assert set(evaluate("regression", [1e-200, 2e-200], [1.0, 2.0]).metrics) == {"rmse", "mae"}


def made_up(random, task, number):
    """Return truth and scores of a model that knows nothing."""
    if task == "binary":
        return random.integers(0, 2, number), random.random(number)
    if task == "multiclass":
        return random.integers(0, 3, number), random.dirichlet(np.ones(3), number)
    return random.normal(0, 1, number), random.normal(0, 1, number)


@pytest.mark.parametrize("number", [1, 4, 5, 9, 10, 11, 14, 15, 37, 99, 100, 101, 250, 1500])
@pytest.mark.parametrize("task", TASKS)
def test_no_curve_shows_single_rows(random, task, number):
    for _ in range(10):
        assert_shows_no_single_row(evaluate(task, *made_up(random, task, number)))


@pytest.mark.parametrize("number", [12, 37, 99])
@pytest.mark.parametrize("task", TASKS)
def test_no_curve_holds_a_label_a_score_or_an_error(random, task, number):
    truth, scores = made_up(random, task, number)
    rows = scores.ravel() if task != "regression" else np.concatenate([truth, scores, truth - scores])
    assert not numbers_in(evaluate(task, truth, scores).curves) & {float(f"{value:.6g}") for value in rows}


def test_few_rows_have_no_curves():
    assert evaluate("binary", [0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4]).curves == {}
    assert evaluate("multiclass", [0, 1, 2], np.eye(3)).curves == {}
    assert evaluate("regression", [1.0, 2.0, 3.0, 4.0], [1.0, 2.0, 3.0, 5.0]).curves == {}


def test_regression_groups_hold_five_rows_at_least(random):
    values = random.normal(0, 1, 101)
    for number, groups in ((101, 20), (99, 19), (23, 4), (10, 2)):
        curve = evaluate("regression", values[:number], values[:number]).curves["predicted_observed"]
        assert len(curve["count"]) == groups
        assert min(curve["count"]) >= 5
        assert sum(curve["count"]) == number
    assert "predicted_observed" not in evaluate("regression", values[:9], values[:9]).curves
