"""Lists and their order."""

from __future__ import annotations

from itertools import permutations
from math import log2

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from colonnade.errors import UsageError
from colonnade.metrics import exposure_gap, exposures, rank_impressions


def test_two_impressions_of_different_length_by_hand_in_any_order_of_rows() -> None:
    # First: clicks at ranks 1 and 3 of 4. Second: the click is second of two.
    scores = np.array([0.9, 0.8, 0.7, 0.6, 5.0, 4.0])
    clicks = np.array([1, 0, 1, 0, 0, 1])
    ids = np.array(["b", "b", "b", "b", "a", "a"])
    mixed = [3, 5, 0, 4, 2, 1]
    ranking = rank_impressions(scores[mixed], clicks[mixed], ids[mixed])
    assert ranking.impressions.tolist() == ["a", "b"]
    assert ranking.values["auc"] == pytest.approx([0.0, 3 / 4])
    assert ranking.values["mrr"] == pytest.approx([1 / 2, (1 + 1 / 3) / 2])
    expected = [1 / log2(3), (1 + 1 / log2(4)) / (1 + 1 / log2(3))]
    assert ranking.values["ndcg_5"] == pytest.approx(expected)
    assert ranking.values["ndcg_10"] == pytest.approx(expected)
    assert ranking.means()["auc"] == pytest.approx(3 / 8)


def test_a_click_beyond_the_places_gains_nothing() -> None:
    ranking = rank_impressions(np.arange(12)[::-1], [0] * 6 + [1] + [0] * 5, [1] * 12)
    assert ranking.means()["ndcg_5"] == 0.0
    assert ranking.means()["ndcg_10"] == pytest.approx(1 / log2(8))


def test_the_ideal_holds_no_more_clicks_than_places() -> None:
    ranking = rank_impressions(np.arange(8)[::-1], [1] * 7 + [0], [1] * 8)
    assert ranking.means() == pytest.approx(
        {"auc": 1.0, "mrr": np.mean(1 / np.arange(1, 8)), "ndcg_5": 1, "ndcg_10": 1}
    )


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 1)), min_size=2, max_size=6))
def test_ties_count_as_the_mean_over_all_their_orders(candidates: list[tuple[int, int]]) -> None:
    scores, clicks = np.array(candidates).T
    clicks[:2] = 0, 1
    found = rank_impressions(scores, clicks, np.zeros(len(scores), int)).means()
    orders = [np.array(order) for order in permutations(range(len(scores)))]
    allowed = [order for order in orders if (np.diff(scores[order]) <= 0).all()]
    # The order itself, as distinct scores.
    each = [rank_impressions(-np.argsort(order), clicks, np.zeros(len(scores), int)).means() for order in allowed]
    for name, value in found.items():
        assert value == pytest.approx(np.mean([one[name] for one in each])), name


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 2**32 - 1))
def test_single_impressions_agree_with_the_reference(seed: int) -> None:
    generator = np.random.default_rng(seed)
    ids = generator.integers(4, size=60)
    scores, clicks = np.round(generator.random(60), 1), generator.integers(2, size=60)
    ranking = rank_impressions(scores, clicks, ids)
    for place, one in enumerate(ranking.impressions):
        own = ids == one
        if len(np.unique(clicks[own])) < 2:
            assert np.isnan(ranking.values["auc"][place])
            continue
        assert ranking.values["auc"][place] == pytest.approx(reference.roc_auc_score(clicks[own], scores[own]))
        for k in (5, 10):
            expected = reference.ndcg_score([clicks[own]], [scores[own]], k=k)
            assert ranking.values[f"ndcg_{k}"][place] == pytest.approx(expected)


def test_impressions_without_a_click_or_with_nothing_else_are_left_out() -> None:
    ranking = rank_impressions([2, 1, 2, 1, 2, 1, 7], [1, 0, 0, 0, 1, 1, 1], [0, 0, 1, 1, 2, 2, 3])
    assert (ranking.counted, ranking.left_out) == (1, 3)
    assert ranking.means()["auc"] == 1.0
    assert rank_impressions([1.0], [1], [0]).means() == {}


def test_gaps_between_groups_of_impressions_by_hand() -> None:
    # Two candidates each: the AUC is 1 where the click comes first.
    first = np.array([1, 1, 1, 0, 0, 1, 0, 0, 1])
    scores, clicks = np.tile([2.0, 1.0], 9), np.stack([first, 1 - first], axis=1).ravel()
    ranking = rank_impressions(scores, clicks, np.repeat(np.arange(9), 2))
    gap = ranking.gap("auc", [0, 0, 0, 0, 1, 1, 1, 1, 2])
    assert gap.value == pytest.approx(3 / 4 - 1 / 4)
    assert gap.left_out == (2,), "one impression says nothing about its group"
    # Two standard errors of the difference of means, each of sqrt(3/16 / 3).
    error = 1.959964 * np.sqrt(2 * (3 / 16) / 3)
    assert (gap.low, gap.high) == pytest.approx((max(0, 0.5 - error), min(1, 0.5 + error)))
    assert ranking.gap("ndcg_10", [0, 0, 0, 0, 1, 1, 1, 1, 2]).value == pytest.approx(0.5 * (1 - 1 / log2(3)))


def test_exposure_shares_out_the_first_places_by_their_discounts() -> None:
    shares = exposures([3.0, 2.0, 1.0, 9.0, 9.0], [0, 0, 0, 1, 1], [0, 1, 1, 0, 1], places=2)
    total = 1 + 1 / log2(3)
    assert shares == pytest.approx(np.array([[1 / total, 1 - 1 / total], [0.5, 0.5]])), "tied candidates share alike"


def test_the_exposure_gap_is_that_of_the_kind_that_differs_most() -> None:
    # Group 0 is shown kind 0 first, group 1 kind 1; a third kind comes last for all.
    kinds = np.tile([0, 1, 2], 4)
    scores = np.array([3, 2, 1] * 2 + [2, 3, 1] * 2, float)
    gap = exposure_gap(scores, np.repeat(np.arange(4), 3), kinds, [0, 0, 1, 1])
    total = 1 + 1 / log2(3) + 1 / 2
    assert gap.value == pytest.approx((1 - 1 / log2(3)) / total)
    assert exposure_gap(np.zeros(12), np.repeat(np.arange(4), 3), kinds, [0, 0, 1, 1]).value == pytest.approx(0.0)


def test_only_the_first_ten_places_count() -> None:
    kinds = np.array([0] * 10 + [1] * 5)
    assert exposures(-np.arange(15.0), np.zeros(15, int), kinds) == pytest.approx(np.array([[1.0, 0.0]]))


def test_columns_that_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError):
        rank_impressions([1.0, 2.0], [0, 1], [0])
    with pytest.raises(UsageError):
        rank_impressions([1.0, 2.0], [0, 2], [0, 0])
    with pytest.raises(UsageError):
        rank_impressions([1.0, np.nan], [0, 1], [0, 0])
    with pytest.raises(UsageError):
        rank_impressions([1.0, 2.0], [0, 1], [0, 0]).gap("auc", [0, 1])
    with pytest.raises(UsageError):
        exposures([1.0, 2.0], [0, 0], [0, -1])
    with pytest.raises(UsageError):
        exposures([1.0, 2.0], [0, 0], [0, 1], places=0)
