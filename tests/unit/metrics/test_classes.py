"""Calls of classes in both averages, chance, and thresholds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as reference

from colonnade.errors import UsageError
from colonnade.metrics import above_threshold, chance_band, class_scores, macro_f1, tuned_threshold


def repeated(*cells: tuple[int, int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Return truth and calls from cells of (truth, call, rows)."""
    counts = [rows for *_, rows in cells]
    return np.repeat([cell[0] for cell in cells], counts), np.repeat([cell[1] for cell in cells], counts)


def test_both_averages_of_a_small_table_by_hand() -> None:
    # Class 0: 3 of 4 found, 3 of 5 calls right. Class 1: 2 of 4 found, 2 of 3 calls right.
    scores = class_scores(*repeated((0, 0, 3), (0, 1, 1), (1, 0, 2), (1, 1, 2)))
    assert scores.rows == 8
    assert scores.accuracy == 5 / 8
    assert scores.balanced_accuracy == scores.macro_recall == pytest.approx((3 / 4 + 2 / 4) / 2)
    assert scores.macro_precision == pytest.approx((3 / 5 + 2 / 3) / 2)
    assert scores.macro_f1 == scores.weighted_f1 == pytest.approx((6 / 9 + 4 / 7) / 2), "the classes are of one size"
    assert scores.to_json()["macro_f1"] == scores.macro_f1


def test_the_sheets_erratum_one_classifier_of_adult_has_two_f1s_five_points_apart() -> None:
    """Accuracy .82 with 24% positives: the base row of the table in macro averages, and what weighted ones would be."""
    scores = class_scores(*repeated((1, 1, 2062), (1, 0, 338), (0, 0, 6153), (0, 1, 1447)))
    assert scores.accuracy == pytest.approx(0.8215)
    assert scores.macro_precision == pytest.approx(0.7664, abs=0.003)
    assert scores.macro_recall == pytest.approx(0.8344, abs=0.001)
    assert scores.macro_f1 == pytest.approx(0.7842, abs=0.003)
    assert scores.weighted_f1 == pytest.approx(0.83, abs=0.003)
    assert scores.weighted_recall == pytest.approx(scores.accuracy), "so fair rows with recall = accuracy are weighted"


def test_a_constant_answer_has_high_accuracy_and_a_balanced_one_of_a_half() -> None:
    scores = class_scores(*repeated((0, 0, 76), (1, 0, 24)))
    assert scores.accuracy == 0.76
    assert scores.balanced_accuracy == 0.5
    assert scores.macro_f1 == pytest.approx(2 * 0.76 / 1.76 / 2)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 50), st.integers(2, 6))
def test_all_scores_equal_the_reference(seed: int, rows: int, classes: int) -> None:
    truth, called = np.random.default_rng(seed).integers(classes, size=(2, rows)) * 3
    ours = class_scores(truth, called)
    assert ours.balanced_accuracy == pytest.approx(
        reference.recall_score(truth, called, average=None, labels=np.unique(truth)).mean()
    )
    for average in ("macro", "weighted"):
        precision, recall, f1, _ = reference.precision_recall_fscore_support(
            truth, called, average=average, zero_division=0.0
        )
        found = [getattr(ours, f"{average}_{name}") for name in ("precision", "recall", "f1")]
        assert found == pytest.approx([precision, recall, f1])
    assert macro_f1(truth, called) == ours.macro_f1


@pytest.mark.parametrize(
    ("truth", "called"), [([0, 1], [0]), ([], []), ([0.0, 1.0], [0, 1]), ([[0], [1]], [[0], [1]]), (["a"], ["a"])]
)
def test_what_is_not_two_columns_of_class_numbers_is_refused(truth: list[object], called: list[object]) -> None:
    with pytest.raises(UsageError):
        class_scores(truth, called)


def test_the_chance_bands_of_the_sheet() -> None:
    assert chance_band([0.67, 0.33]) == pytest.approx((0.40, 0.50), abs=0.002)
    # Adult's age classes are about these.
    assert chance_band([0.17, 0.26, 0.36, 0.21]) == pytest.approx((0.13, 0.25), abs=0.003)
    assert chance_band([0.25] * 4) == pytest.approx((0.10, 0.25)), "the sheet's education"
    assert chance_band([5, 5, 0]) == chance_band([1, 1]), "a class without rows is none"


def test_the_chance_band_is_what_its_two_answers_really_reach() -> None:
    generator, shares = np.random.default_rng(0), np.array([0.5, 0.3, 0.2])
    truth, guessed = (generator.choice(3, 200_000, p=shares) for _ in range(2))
    low, high = chance_band(np.bincount(truth))
    assert macro_f1(truth, np.zeros_like(truth)) == pytest.approx(low)
    assert macro_f1(truth, guessed) == pytest.approx(high, abs=0.005)
    # Other shares of guesses do worse.
    assert macro_f1(truth, generator.choice(3, 200_000)) < high - 0.01


@pytest.mark.parametrize("shares", [[], [0.0, 0.0], [0.5, -0.1], [np.nan, 1.0], [[1.0]]])
def test_shares_that_are_none_are_refused(shares: list[float]) -> None:
    with pytest.raises(UsageError, match="chance band"):
        chance_band(shares)


@settings(deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(2, 40), st.booleans())
def test_no_other_threshold_is_better_than_the_tuned_one(seed: int, rows: int, has_ties: bool) -> None:
    generator = np.random.default_rng(seed)
    truth, scores = generator.integers(2, size=rows), generator.random(rows)
    truth[:2] = 0, 1
    scores = np.round(scores, 1) if has_ties else scores
    tuned = macro_f1(truth, above_threshold(scores, tuned_threshold(truth, scores)))
    others = [macro_f1(truth, above_threshold(scores, one)) for one in [*scores, scores.max() + 1]]
    assert tuned == pytest.approx(max(others))


def test_a_tuned_threshold_reads_what_the_likeliest_class_hides() -> None:
    """Argmax answers 0 for all rows though the order is perfect."""
    truth, scores = np.array([0, 0, 0, 1, 1]), np.array([0.1, 0.15, 0.2, 0.3, 0.35])
    assert macro_f1(truth, above_threshold(scores, 0.5)) == pytest.approx(0.375)
    assert tuned_threshold(truth, scores) == pytest.approx(0.25)
    assert macro_f1(truth, above_threshold(scores, tuned_threshold(truth, scores))) == 1.0


def test_a_threshold_between_neighbouring_numbers_still_separates_them() -> None:
    first = 0.3
    second = float(np.nextafter(first, 1))
    # Their middle is rounded up for one of these pairs and down for the other.
    for low, high in ((first, second), (second, float(np.nextafter(second, 1)))):
        assert above_threshold([low, high], tuned_threshold([0, 1], [low, high])).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("truth", "scores"), [([1, 1], [0.1, 0.2]), ([0, 2], [0.1, 0.2]), ([0, 1], [0.1, np.nan]), ([0, 1], [0.1])]
)
def test_a_threshold_needs_rows_of_both_classes_and_finite_scores(truth: list[int], scores: list[float]) -> None:
    with pytest.raises(UsageError):
        tuned_threshold(truth, scores)
