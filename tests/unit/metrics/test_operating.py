"""Calls of the positive class: at which threshold, what they are worth, and what to be warned of."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn import metrics as reference

from colonnade.errors import UsageError
from colonnade.metrics import USUAL, Evaluation, Threshold, choose_threshold, evaluate, headline_of

NAMES = ["nein", "ja"]


def test_calls_are_counted_and_worth_what_scikit_learn_says():
    random = np.random.default_rng(3)
    truth = (random.random(400) < 0.2).astype(int)
    scores = np.clip(0.3 * truth + 0.6 * random.random(400), 0, 1)
    found = evaluate("binary", truth, scores, NAMES, Threshold(0.45, "By hand."))
    point, called = found.operating, scores >= 0.45
    counts = [point.true_negatives, point.false_positives, point.false_negatives, point.true_positives]
    assert counts == reference.confusion_matrix(truth, called).ravel().tolist()
    assert point.precision == pytest.approx(reference.precision_score(truth, called))
    assert point.recall == pytest.approx(reference.recall_score(truth, called))
    assert point.lift == pytest.approx(point.precision / truth.mean())
    assert point.support == f"{truth.sum()} of 400 held-out rows are 'ja'"
    assert found.metrics["f1"] == pytest.approx(reference.f1_score(truth, called))
    assert Evaluation.from_json(found.to_json()) == found

    curve = found.curves["precision_recall"]
    precision, recall, _ = reference.precision_recall_curve(truth, scores)
    known, drawn = np.c_[recall, precision], np.c_[curve["recall"], curve["precision"]]
    for one in drawn:
        assert np.abs(known - one).max(axis=1).min() < 1e-5
    assert np.abs(drawn - [point.recall, point.precision]).max(axis=1).min() < 1e-5
    assert (curve["recall"][-1], curve["precision"][-1]) == (1.0, pytest.approx(truth.mean(), abs=1e-5))


def test_as_many_rows_are_called_as_are_positive_in_training_whatever_their_labels():
    scores = np.random.default_rng(4).random(200) / 10
    found = choose_threshold(scores, 0.1)
    assert np.count_nonzero(scores >= found.value) == 20
    assert found.value not in scores
    assert len(str(found.value)) <= 7
    assert "20 of 200 validation rows" in found.rule
    assert "10.0 %" in found.rule


def test_a_threshold_calls_some_rows_and_not_all_where_scores_allow_it():
    for share in (0.0, 0.001, 0.999, 1.0):
        called = np.array([0.2, 0.4, 0.4, 0.9]) >= choose_threshold(np.array([0.2, 0.4, 0.4, 0.9]), share).value
        assert 0 < called.sum() < 4
    assert choose_threshold(np.array([0.4]), 0.5) == choose_threshold(np.array([]), 0.5) == USUAL
    assert choose_threshold(np.full(9, 0.3), 0.2).value <= 0.3
    with pytest.raises(UsageError, match="from 0 to 1"):
        Threshold(1.5, "")


def warned(positives: int, negatives: int, scores: list[float]) -> str:
    return " ".join(evaluate("binary", [1] * positives + [0] * negatives, scores, NAMES).warnings)


def test_each_warning_appears_where_it_should_and_nowhere_else():
    good = [0.9] * 25 + [0.1] * 75
    assert warned(25, 75, good) == ""
    assert warned(0, 100, good).startswith("All 100 held-out rows are 'nein'")
    assert "only 5 are 'ja'" in warned(5, 95, [0.9] * 5 + [0.1] * 95)
    assert "calls every held-out row 'nein'" in warned(25, 75, [0.4] * 25 + [0.1] * 75)
    assert "always saying 'nein' would reach 0.750" in warned(25, 75, [0.9] * 50 + [0.1] * 50)
    assert "includes 0.5" in warned(25, 75, [0.9, 0.1] * 50)


def test_several_classes_are_warned_of_by_name():
    truth = [0] * 90 + [1] * 6 + [2] * 4
    (few, constant) = evaluate("multiclass", truth, np.tile([0.8, 0.1, 0.1], (100, 1)), ["a", "b", "c"]).warnings
    assert "only 4 are 'c', 6 are 'b'" in few
    assert "every held-out row 'a'" in constant


@pytest.mark.parametrize(
    ("truth", "expected"), [([0] * 97 + [1] * 3, "macro_auc"), ([0, 1] * 50, "accuracy"), ([0] * 100, None)]
)
def test_several_classes_have_the_headline_that_their_rows_support(truth, expected):
    assert headline_of(evaluate("multiclass", truth, np.tile([0.5, 0.3, 0.2], (100, 1)))) == expected


def test_two_classes_have_the_auc_for_a_headline_or_none():
    assert headline_of(evaluate("binary", [0] * 97 + [1] * 3, [0.1] * 100)) == "auc"
    assert headline_of(evaluate("binary", [1] * 100, [0.1] * 100)) is None
