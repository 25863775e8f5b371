"""MARVELL on batches: what is sent, what an attack makes of it, and going on after an interruption."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ConfigError, OutOfRange
from colonnade.metrics import area_under_roc, direction_attack_auc, norm_attack_auc
from colonnade.privacy import LeakMeter, Marvell, SecretNoise, auc_bound, explained_bound

Array = np.ndarray[Any, Any]
KEY = bytes(range(32))
ROWS, BATCH = 3000, 150
LABELS = {
    2: (np.random.default_rng(1).random(ROWS) < 0.25).astype(int),
    4: np.random.default_rng(2).integers(0, 4, ROWS),
    0: np.random.default_rng(3).normal(size=ROWS),
}


def gradients(rows: Array, classes: int, columns: int, generator: np.random.Generator) -> Array:
    """Gradients at the cut of a network that has learned a little."""
    labels, count = LABELS[classes][rows], len(rows)
    if classes == 2:
        slopes = (1 / (1 + np.exp(1 - labels - generator.normal(size=count))) - labels)[:, None]
    elif classes:
        logits = np.exp(generator.normal(size=(count, classes)) + np.eye(classes)[labels])
        slopes = logits / logits.sum(axis=1, keepdims=True) - np.eye(classes)[labels]
    else:
        slopes = (0.3 * generator.normal(size=count) - labels)[:, None]
    weights = np.random.default_rng(9).normal(size=(slopes.shape[1], columns))
    return (slopes @ weights if columns > 1 or classes > 2 else slopes) / count


def make(classes: int = 2, budget: float = 0.25, key: bytes = KEY) -> tuple[Marvell, LeakMeter]:
    meter = LeakMeter(LABELS[classes], classes, area_under_roc)
    return Marvell(budget, SecretNoise(key), classes=classes, meter=meter), meter


def train(marvell: Marvell, meter: LeakMeter, classes: int, columns: int, epochs: range) -> list[Array]:
    sent = []
    for epoch in epochs:
        generator = np.random.default_rng(epoch)
        order = generator.permutation(ROWS)
        for start in range(0, ROWS, BATCH):
            rows = order[start : start + BATCH]
            step = epoch * ROWS + start
            slopes = gradients(rows, classes, columns, generator)
            sent.append(marvell.protect(slopes, LABELS[classes][rows], step, rows))
        meter.end_epoch()
    return sent


@pytest.mark.parametrize("budget", [0.1, 0.25, 1.0])
@pytest.mark.parametrize("columns", [1, 12])
def test_an_attack_on_one_release_stays_within_the_bound(columns: int, budget: float) -> None:
    marvell, meter = make(budget=budget)
    train(marvell, meter, 2, columns, range(4))
    measured = marvell.measured()
    assert measured is not None
    assert measured.without_noise > 0.999
    assert 0.5 < measured.auc_of_one_release < auc_bound(budget) == measured.bound
    assert measured.auc_of_one_release < measured.auc_over_all_releases < measured.bound_over_all_releases
    assert measured.releases_per_row == len(measured.by_epoch) == 4
    assert 0.5 < measured.surest_right < 0.97
    assert measured.bound_over_all_releases == auc_bound(4 * budget)


def test_rows_that_stand_out_of_the_noise_are_counted() -> None:
    # Late in training: the model is right about nearly all rows, and very wrong about one in twenty.
    rows = np.arange(ROWS)
    is_wrong = np.random.default_rng(8).random(ROWS) < 0.05
    clean = (np.where(is_wrong, 1.0, 0.001) * np.where(LABELS[2] == 1, -1, 1) / ROWS)[:, None]
    marvell, _ = make()
    marvell.protect(clean, LABELS[2], 0, rows)
    measured = marvell.measured()
    assert measured is not None
    assert measured.auc_of_one_release < measured.bound, "the ranking of all rows is within the bound"
    assert measured.surest_right > 0.9, "and yet some rows are known"


def test_attacks_from_outside_stay_within_the_bound_too() -> None:
    marvell, _ = make()
    rows = np.arange(ROWS)
    clean = gradients(rows, 2, 12, np.random.default_rng(0))
    noised = marvell.protect(clean, LABELS[2], 0)
    assert direction_attack_auc(clean, LABELS[2]) > 0.999
    assert norm_attack_auc(clean, LABELS[2]) > auc_bound(0.25)
    assert direction_attack_auc(noised, LABELS[2]) < auc_bound(0.25)
    assert norm_attack_auc(noised, LABELS[2]) < auc_bound(0.25)


def test_gradients_that_do_not_lie_on_a_line_are_noised_across_it_too() -> None:
    generator = np.random.default_rng(4)
    labels = LABELS[2]
    wide = np.where(labels == 1, 3.0, 0.5)[:, None] * generator.normal(size=(ROWS, 10)) / ROWS
    wide[:, 0] += labels / ROWS
    assert norm_attack_auc(wide, labels) > 0.99
    noised = make(budget=0.5)[0].protect(wide, labels, 0)
    assert norm_attack_auc(noised, labels) < auc_bound(0.5)


def test_the_way_gradients_were_rounded_does_not_show() -> None:
    # On a line up to float32's last digit: what lies beside the line is the rounding of each gradient.
    clean = gradients(np.arange(ROWS), 2, 12, np.random.default_rng(0)).astype(np.float32)
    noised = make()[0].protect(clean, LABELS[2], 0)
    direction = np.linalg.svd(clean.astype(np.float64), full_matrices=False)[2][0]
    beside = noised - (noised @ direction)[:, None] * direction
    along = (noised - clean) @ direction
    assert 3e-4 < beside.std() / along.std() < 3e-3


@pytest.mark.parametrize("classes", [4, 0])
def test_more_classes_and_numbers_stay_within_what_is_said_about_them(classes: int) -> None:
    marvell, meter = make(classes)
    train(marvell, meter, classes, 6, range(3))
    measured = marvell.measured()
    assert measured is not None
    assert measured.without_noise > 0.85
    assert measured.of_one_release < measured.bound == (auc_bound(0.25) if classes else explained_bound(0.25))
    assert measured.of_one_release < measured.over_all_releases < measured.bound_over_all_releases
    assert (measured.auc_of_one_release is None) == (not classes)


@pytest.mark.parametrize(("classes", "columns"), [(2, 1), (2, 5), (4, 5), (0, 5)])
def test_a_resumed_run_sends_the_same_and_measures_the_same(classes: int, columns: int) -> None:
    whole, meter = make(classes)
    train(whole, meter, classes, columns, range(2))
    kept, counts = json.loads(json.dumps(whole.state())), meter.state()
    expected = train(whole, meter, classes, columns, range(2, 3))
    resumed, other = make(classes)
    resumed.load_state(kept)
    other.load_state(counts)
    found = train(resumed, other, classes, columns, range(2, 3))
    assert [one.tobytes() for one in found] == [one.tobytes() for one in expected]
    assert resumed.measured() == whole.measured()
    assert resumed.state() == whole.state()


def test_a_repeated_step_with_other_slopes_draws_other_noise() -> None:
    # Were the noise the same, the difference of the two releases would be free of it.
    rows = np.arange(BATCH)
    slopes = gradients(rows, 2, 1, np.random.default_rng(0))
    labels = LABELS[2][rows]
    first, again = make()[0].protect(slopes, labels, 3), make()[0].protect(slopes, labels, 3)
    assert first.tobytes() == again.tobytes()
    other = make()[0].protect(slopes * 1.01, labels, 3)
    assert abs(np.corrcoef((first - slopes)[:, 0], (other - slopes * 1.01)[:, 0])[0, 1]) < 0.5
    assert make(key=bytes(32))[0].protect(slopes, labels, 3).tobytes() != first.tobytes()


def test_purposes_keep_partners_apart() -> None:
    slopes, labels = gradients(np.arange(BATCH), 2, 1, np.random.default_rng(0)), LABELS[2][:BATCH]
    one, other = (Marvell(0.25, SecretNoise(KEY), purpose=name).protect(slopes, labels, 0) for name in ("a", "b"))
    assert abs(np.corrcoef((one - slopes)[:, 0], (other - slopes)[:, 0])[0, 1]) < 0.5


def test_a_first_batch_of_one_class_is_noise_only() -> None:
    marvell, meter = make()
    rows = np.flatnonzero(LABELS[2] == 1)[:50]
    sent = marvell.protect(np.full((50, 1), -0.02), LABELS[2][rows], 0, rows)
    again, _ = make()
    # The slopes choose the noise, and nothing else of them is in it.
    assert abs(sent.mean()) < 4 / 50 / np.sqrt(50)
    assert 0.7 < sent.std() * 50 < 1.4
    assert np.linalg.norm(make()[0].protect(np.ones((50, 7)), LABELS[2][rows], 0)) * np.sqrt(50) == pytest.approx(
        1, 0.3
    )
    measured = marvell.measured()
    assert measured is not None
    assert (measured.of_one_release, measured.releases_per_row, meter.end_epoch()) == (None, 1, None)
    assert again.state() == marvell.state()


@pytest.mark.parametrize("classes", [2, 4])
def test_a_later_batch_of_one_class_is_noised_as_those_before(classes: int) -> None:
    marvell, meter = make(classes)
    sent = train(marvell, meter, classes, 1, range(1))
    rows = np.flatnonzero(LABELS[classes] == 1)[:BATCH]
    slopes = gradients(rows, classes, 1, np.random.default_rng(5))
    noise = marvell.protect(slopes, LABELS[classes][rows], 99, rows) - slopes
    usual = np.std([one.std() for one in sent]) + np.mean([one.std() for one in sent])
    assert usual / 3 < noise.std() < usual * 3
    # A smaller batch of a mean loss has larger slopes, and needs as much more noise.
    few = marvell.protect(slopes[:30] * BATCH / 30, LABELS[classes][rows[:30]], 100) - slopes[:30] * BATCH / 30
    assert few.std() == pytest.approx(noise.std() * BATCH / 30, rel=0.5)


def test_a_single_number_is_hidden_too() -> None:
    noise = [make(0)[0].protect(np.array([[2.0]]), np.array([1.0]), step)[0, 0] - 2.0 for step in range(300)]
    assert np.std(noise) == pytest.approx(2.0 / 0.5, rel=0.15)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=12),
    st.integers(1, 3),
    st.sampled_from([2, 3, 0]),
    st.integers(0, 2**32),
)
def test_any_finite_slopes_give_finite_slopes(values: list[float], columns: int, classes: int, seed: int) -> None:
    slopes = np.outer(values, np.arange(1, columns + 1))
    labels = np.random.default_rng(seed).integers(0, max(classes, 2), len(values))
    marvell = Marvell(0.25, SecretNoise(KEY), classes=classes)
    for step in range(3):
        sent = marvell.protect(slopes, labels, step)
        assert sent.shape == slopes.shape
        assert np.isfinite(sent).all()
    json.dumps(marvell.state(), allow_nan=False)


def test_what_cannot_be_protected_is_refused() -> None:
    marvell, _ = make()
    with pytest.raises(OutOfRange, match="no longer finite"):
        marvell.protect(np.array([[np.nan], [1.0]]), np.array([0, 1]), 0)
    with pytest.raises(ConfigError, match="3 labels for slopes of shape"):
        marvell.protect(np.ones((2, 1)), np.array([0, 1, 1]), 0)
    with pytest.raises(ConfigError, match="two classes or more"):
        Marvell(0.25, SecretNoise(KEY), classes=1)
    with pytest.raises(ConfigError, match="label budget"):
        Marvell(4.0, SecretNoise(KEY))
    assert marvell.protect(np.ones((0, 1)), np.ones(0), 0).shape == (0, 1)
