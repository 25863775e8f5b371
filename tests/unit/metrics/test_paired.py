"""The interval of a difference holds the true one about as often as it says, and is narrower for being paired."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.metrics import Gain, evaluate, gains

TRUTH = np.array([0, 0, 0, 1, 1, 1, 0, 1])
GOOD = np.array([0.1, 0.2, 0.3, 0.6, 0.7, 0.8, 0.65, 0.9])
POOR = np.array([0.4, 0.6, 0.3, 0.5, 0.2, 0.8, 0.7, 0.9])


def draws(count: int, rows: int, share: float = 0.3) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Labels, and two models' logits that share most of their error."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(count):
        truth = (random.random(rows) < share).astype(int)
        common = random.normal(size=rows)
        first = 1.4 * truth + common + 0.3 * random.normal(size=rows)
        found.append((truth, first, 1.0 * truth + common + 0.5 * random.normal(size=rows)))
    return found


def probability(logits: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-logits))


def both(logits: np.ndarray) -> np.ndarray:
    return np.stack([1 - probability(logits - 0.7), probability(logits - 0.7)], axis=1)


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_a_gain_is_the_difference_of_two_evaluations(task: str) -> None:
    first, second = (np.stack([1 - one, one], axis=1) if task == "multiclass" else one for one in (GOOD, POOR))
    found = gains(task, TRUTH, first, second)
    metrics, others = (evaluate(task, TRUTH, one).metrics for one in (first, second))
    assert set(found) == {"binary": {"auc"}, "multiclass": {"accuracy"}, "regression": {"r2"}}[task]
    for name, gain in found.items():
        assert gain.value == pytest.approx(metrics[name] - others[name])
        assert gain.low < gain.value < gain.high


@pytest.mark.parametrize(("name", "rows"), [("auc", 80), ("auc", 400), ("accuracy", 80), ("r2", 400)])
def test_the_interval_holds_the_true_difference_nine_times_in_ten_and_more(name: str, rows: int) -> None:
    task = {"auc": "binary", "accuracy": "multiclass", "r2": "regression"}[name]
    score = {"auc": probability, "accuracy": both, "r2": np.asarray}[name]
    *compared, whole = (
        gains(task, truth, *map(score, two))[name] for truth, *two in [*draws(300, rows), *draws(1, 400_000)]
    )
    held = np.mean([gain.low <= whole.value <= gain.high for gain in compared])
    assert 0.92 <= held <= 0.99


def test_two_models_that_err_alike_are_told_apart_by_fewer_rows() -> None:
    ((truth, first, second),) = draws(1, 400)
    paired = gains("binary", truth, probability(first), probability(second))["auc"]
    shuffled = np.concatenate([np.random.default_rng(1).permutation(second[truth == label]) for label in (0, 1)])
    apart = second.copy()
    apart[truth == 0], apart[truth == 1] = shuffled[: (truth == 0).sum()], shuffled[(truth == 0).sum() :]
    alone = gains("binary", truth, probability(first), probability(apart))["auc"]
    assert alone.value == pytest.approx(paired.value)
    assert paired.high - paired.low < 0.6 * (alone.high - alone.low)


def test_a_model_compared_with_itself_is_ahead_by_nothing_and_surely() -> None:
    gain = gains("binary", TRUTH, GOOD, GOOD)["auc"]
    assert gain.value == 0
    assert not gain.is_clear


def test_perfect_rankings_of_few_rows_are_not_called_sure() -> None:
    gain = gains("binary", TRUTH, TRUTH * 0.9, TRUTH * 0.5 + 0.2)["auc"]
    assert gain.value == 0
    assert gain.low < -0.05
    assert gain.high > 0.05


def test_one_class_has_no_auc_and_one_value_no_r2() -> None:
    assert gains("binary", np.zeros(5), GOOD[:5], POOR[:5]) == {}
    assert gains("regression", np.ones(5), GOOD[:5], POOR[:5]) == {}
    assert gains("regression", np.ones(1), GOOD[:1], POOR[:1]) == {}


def test_labels_of_any_size_are_compared() -> None:
    small, huge = (gains("regression", GOOD * size, POOR * size, GOOD[::-1] * size)["r2"] for size in (1.0, 1e200))
    assert isinstance(huge, Gain)
    assert huge.low == pytest.approx(small.low)
