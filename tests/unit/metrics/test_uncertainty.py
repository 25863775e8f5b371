"""The rough intervals."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest

from colonnade.metrics import auc_interval, evaluate, interval, proportion_interval


@pytest.mark.parametrize(("right", "rows"), [(0, 10), (7, 10), (90, 100), (70, 70)])
def test_wilson_agrees_with_scipy(right, rows):
    expected = binomtest(right, rows).proportion_ci(method="wilson")
    assert proportion_interval(right / rows, rows) == pytest.approx((expected.low, expected.high))


def test_auc_interval_is_near_the_usual_one_for_many_rows():
    # Hanley and McNeil's standard error for an area of 0.8 with 500 of each class is 0.0140.
    low, high = auc_interval(0.8, 500, 500)
    assert (low, high) == pytest.approx((0.8 - 1.96 * 0.0140, 0.8 + 1.96 * 0.0140), abs=0.002)


def test_a_perfect_ranking_of_few_rows_is_not_certain():
    low, high = auc_interval(1.0, 10, 10)
    assert high == 1.0
    assert 0.6 < low < 0.95


@settings(deadline=None)
@given(st.floats(0, 1), st.integers(1, 200), st.integers(1, 200))
def test_the_auc_interval_holds_the_area_and_stays_in_range(area, positives, negatives):
    low, high = auc_interval(area, positives, negatives)
    assert 0 <= low <= area <= high <= 1


def test_interval_picks_the_formula_by_metric():
    evaluation = evaluate("binary", [0, 0, 1, 1], [0.1, 0.6, 0.4, 0.9])
    assert interval(evaluation, "auc") == auc_interval(0.75, 2, 2)
    assert interval(evaluation, "accuracy") == proportion_interval(0.5, 4)
    assert interval(evaluation, "log_loss") is None
    assert interval(evaluate("regression", [1.0, 2.0], [1.0, 2.0]), "r2") is None
    assert interval(evaluate("binary", [0, 0], [0.1, 0.6]), "auc") is None
