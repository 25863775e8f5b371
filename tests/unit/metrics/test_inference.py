"""What an attacker reached."""

from __future__ import annotations

import json

import numpy as np
import pytest

from colonnade.errors import UsageError
from colonnade.metrics import (
    area_under_roc,
    auc_interval,
    average_inference,
    chance_band,
    macro_f1,
    measure_inference,
    measure_value_inference,
)


def two_columns(scores: list[float]) -> np.ndarray:
    return np.stack([1 - np.array(scores), scores], axis=1)


TRUTH = np.array([0, 0, 0, 0, 1, 1])
VALIDATION = np.array([0, 0, 1, 1])
SHY = two_columns([0.10, 0.15, 0.20, 0.32, 0.30, 0.40])


def test_two_classes_by_hand() -> None:
    """The likeliest class is 0 for all rows; the threshold of the validation rows, 0.25, does much better."""
    found = measure_inference(TRUTH, SHY, VALIDATION, two_columns([0.1, 0.2, 0.3, 0.4]))
    assert found.counts == (4, 2)
    assert found.macro_f1 == pytest.approx(0.4)
    assert found.tuned_macro_f1 == pytest.approx((6 / 7 + 4 / 5) / 2)
    assert found.auc == pytest.approx(7 / 8)
    assert found.auc_interval == pytest.approx(auc_interval(7 / 8, 2, 4))
    assert found.chance == pytest.approx((0.4, 0.5))
    assert found.members == 1


def test_the_threshold_comes_from_validation_rows_only() -> None:
    found = measure_inference(TRUTH, SHY, VALIDATION, two_columns([0.5, 0.6, 0.7, 0.8]))
    assert found.tuned_macro_f1 == pytest.approx(0.4)


def test_more_classes_have_the_mean_area_of_each_against_the_rest_and_no_threshold() -> None:
    truth = np.array([0, 1, 2, 0, 1, 2])
    chances = np.random.default_rng(0).dirichlet(np.ones(3), size=6)
    found = measure_inference(truth, chances, truth, chances)
    areas = [area_under_roc(truth == one, chances[:, one]) for one in range(3)]
    assert found.auc == pytest.approx(np.mean(areas))
    assert found.auc_interval == pytest.approx(np.mean([auc_interval(area, 2, 4) for area in areas], axis=0))
    assert found.tuned_macro_f1 is None
    assert found.macro_f1 == macro_f1(truth, chances.argmax(axis=1))
    assert found.chance == chance_band([2, 2, 2])


def test_an_attack_that_knows_all_of_several_classes_has_an_area_of_one() -> None:
    truth = np.array([0, 1, 2, 3, 3])
    found = measure_inference(truth, np.eye(4)[truth], truth, np.eye(4)[truth])
    assert (found.macro_f1, found.auc) == (1.0, 1.0)


def test_one_class_alone_has_no_area_and_no_threshold() -> None:
    found = measure_inference([0, 0], SHY[:2], [0, 0], SHY[:2])
    assert found.auc is None
    assert found.auc_interval is None
    assert found.tuned_macro_f1 is None


def test_all_of_it_is_json() -> None:
    found = measure_inference(TRUTH, SHY, VALIDATION, SHY[2:])
    content = json.loads(json.dumps(found.to_json(), allow_nan=False))
    assert content["counts"] == [4, 2]
    assert content["auc_interval"] == list(found.auc_interval or ())
    own = {"counts", "macro_f1", "tuned_macro_f1", "auc", "auc_interval", "chance", "members"}
    assert set(content) == {*own, "is_above_chance"}


def test_what_few_rows_give_by_luck_is_not_above_chance() -> None:
    generator = np.random.default_rng(0)
    for rows, share in ((100, 0.5), (100, 0.1), (1000, 0.5)):
        by_luck = known = values = 0
        for _ in range(200):
            truth = (np.arange(rows) < share * rows).astype(int)
            noise = generator.random(rows)
            by_luck += measure_inference(truth, two_columns(noise), truth, two_columns(noise)).is_above_chance
            told = two_columns(0.5 * noise + 0.5 * truth * generator.random(rows))
            known += measure_inference(truth, told, truth, told).is_above_chance
            values += measure_value_inference(generator.normal(size=rows), noise).is_above_chance
        assert by_luck <= 16
        assert values <= 16
        assert known >= 100
    assert measure_value_inference(np.arange(20.0), np.arange(20.0) ** 2).is_above_chance
    assert not measure_value_inference([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]).is_above_chance


def test_an_ensemble_of_members_that_err_apart_is_better_than_their_average() -> None:
    """Each member is wrong on one row of its own; together they are right on all."""
    truth = np.array([0, 0, 1, 1])
    each = [two_columns(scores) for scores in ([0.9, 0.1, 0.9, 0.9], [0.1, 0.1, 0.1, 0.9], [0.1, 0.1, 0.9, 0.1])]
    members = [measure_inference(truth, chances, truth, chances) for chances in each]
    ensemble = measure_inference(truth, np.mean(each, axis=0), truth, np.mean(each, axis=0))
    average = average_inference(members)
    assert ensemble.macro_f1 == 1.0
    assert average.macro_f1 == pytest.approx((2 / 3 + 4 / 5) / 2)
    assert average.auc == pytest.approx(np.mean([member.auc for member in members]))
    assert average.auc_interval == pytest.approx(np.mean([member.auc_interval for member in members], axis=0))
    assert average.tuned_macro_f1 == pytest.approx(np.mean([member.tuned_macro_f1 for member in members]))
    assert (average.members, average.chance) == (3, ensemble.chance)
    json.dumps(average.to_json(), allow_nan=False)


def test_only_attacks_on_the_same_rows_are_averaged() -> None:
    found = measure_inference(TRUTH, SHY, VALIDATION, SHY[2:])
    other = measure_inference(TRUTH[1:], SHY[1:], VALIDATION, SHY[2:])
    for members in ([], [found, other]):
        with pytest.raises(UsageError, match="same test rows"):
            average_inference(members)


def test_numbers_are_judged_by_explained_variance_and_correlation() -> None:
    found = measure_value_inference([1.0, 2.0, 3.0], [1.0, 2.0, 4.0])
    assert found.r2 == pytest.approx(1 - 1 / 2)
    assert found.correlation == pytest.approx(3 / np.sqrt(2 * 42 / 9))
    wrong_scale = measure_value_inference([1.0, 2.0, 3.0], [10.0, 20.0, 30.0])
    assert wrong_scale.correlation == pytest.approx(1.0)
    assert wrong_scale.r2 is not None
    assert wrong_scale.r2 < 0
    constant = measure_value_inference([1.0, 2.0, 3.0], [2.0, 2.0, 2.0])
    assert (constant.r2, constant.correlation) == (pytest.approx(0.0), None)
    assert measure_value_inference([2.0, 2.0], [1.0, 3.0]).r2 is None
    assert constant.to_json() == {"rows": 3, "r2": constant.r2, "correlation": None, "is_above_chance": False}


@pytest.mark.parametrize(
    ("truth", "chances"),
    [([0, 1], SHY[:3]), ([0, 2], SHY[:2]), ([0.0, 1.0], SHY[:2]), ([0, 1], SHY[:2, :1]), ([0, 1], SHY[:2] * np.nan)],
)
def test_what_does_not_fit_is_refused(truth: list[float], chances: np.ndarray) -> None:
    with pytest.raises(UsageError):
        measure_inference(truth, chances, VALIDATION, SHY[2:])


def test_numbers_that_do_not_fit_are_refused() -> None:
    for truth, predicted in (([1.0], [1.0, 2.0]), ([np.nan], [1.0]), ([], [])):
        with pytest.raises(UsageError):
            measure_value_inference(truth, predicted)
