"""The Gaussian mechanism for rows: what clipping does to a row, and what its releases add up to."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from colonnade.errors import ConfigError, OutOfRange
from colonnade.privacy import RowBudget, clip_rows, sigma_for

norms = st.floats(1e-3, 1e3)
deltas = st.floats(1e-12, 0.5)
rows_of_values = arrays(
    np.float64, array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=6), elements=st.floats(-1e6, 1e6)
)


def epsilon_of(releases: int, clip: float, sigma: float, delta: float) -> float:
    budget = RowBudget(clip, sigma)
    budget.released(np.zeros(releases, np.int64))
    return budget.epsilon(delta)


@settings(deadline=None)
@given(values=rows_of_values, norm=norms)
def test_clipping_never_lengthens_a_row_and_keeps_its_direction(values: np.ndarray, norm: float) -> None:
    clipped = clip_rows(values, norm)
    before, after = np.linalg.norm(values, axis=1), np.linalg.norm(clipped, axis=1)
    assert np.all(after <= np.minimum(before, norm) * (1 + 1e-12))
    # Exactly as it was if short enough, and otherwise a multiple of what it was, of just that norm.
    is_short = before <= norm * (1 - 1e-12)
    assert np.array_equal(clipped[is_short], values[is_short])
    is_long = before > norm
    assert after[is_long] == pytest.approx(np.full(is_long.sum(), norm), rel=1e-12)
    shares = np.divide(norm, before, out=np.ones_like(before), where=is_long)
    assert clipped == pytest.approx(values * shares[:, None], rel=1e-12, abs=1e-300)


def test_rows_whose_squares_overflow_or_vanish_are_clipped_all_the_same() -> None:
    clipped = clip_rows(np.array([[3e300, 4e300], [3e-300, 4e-300], [1.7e308, 1.7e308], [0.0, 0.0]]), 5.0)
    assert clipped[[0, 1, 3]] == pytest.approx(np.array([[3.0, 4.0], [3e-300, 4e-300], [0.0, 0.0]]), rel=1e-12, abs=0)
    assert clipped[2] == pytest.approx(np.full(2, 5 / math.sqrt(2)))
    assert clip_rows(np.array([[3e-300, 4e-300]]), 5e-301) == pytest.approx(
        np.array([[3e-301, 4e-301]]), rel=1e-12, abs=0
    )


def test_single_precision_is_clipped_in_double() -> None:
    values = np.random.default_rng(0).normal(size=(50, 7)).astype(np.float32)
    clipped = clip_rows(values, 0.1)
    assert clipped.dtype == np.float64
    assert np.linalg.norm(clipped, axis=1).max() <= 0.1 * (1 + 1e-15)


def test_what_cannot_be_clipped_is_refused() -> None:
    for broken in (math.nan, math.inf):
        with pytest.raises(OutOfRange, match="not finite"):
            clip_rows(np.array([[1.0, broken]]), 1.0)
    with pytest.raises(ConfigError, match="1 dimensions"):
        clip_rows(np.ones(3), 1.0)
    for norm in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ConfigError, match="norm to clip at"):
            clip_rows(np.ones((2, 2)), norm)


def test_ten_releases_under_ten_times_the_norm_cost_about_three() -> None:
    assert epsilon_of(10, clip=0.5, sigma=5.0, delta=1e-5) == pytest.approx(3.2349, abs=1e-4)


@settings(deadline=None)
@given(releases=st.integers(1, 200), ratio=st.floats(0.5, 100), delta=deltas)
def test_the_closed_form_is_the_best_of_a_grid(releases: int, ratio: float, delta: float) -> None:
    alphas = 1 + np.logspace(-5, 5, 20_001)
    # Two Gaussians a distance of 2 apart, in the textbook's form: alpha d² / (2 sigma²).
    sums = releases * alphas * 2.0**2 / (2 * ratio**2) + math.log(1 / delta) / (alphas - 1)
    found = epsilon_of(releases, 1.0, ratio, delta)
    assert found <= sums.min() * (1 + 1e-12)
    assert found == pytest.approx(sums.min(), rel=1e-6)


@given(releases=st.integers(1, 500), clip=norms, sigma=norms, delta=deltas)
def test_epsilon_grows_with_releases_and_norm_and_shrinks_with_noise(
    releases: int, clip: float, sigma: float, delta: float
) -> None:
    found = epsilon_of(releases, clip, sigma, delta)
    assert found > 0
    assert epsilon_of(releases + 1, clip, sigma, delta) > found
    assert epsilon_of(releases, 1.01 * clip, sigma, delta) > found
    assert epsilon_of(releases, clip, 1.01 * sigma, delta) < found
    assert epsilon_of(releases, clip, sigma, delta / 2) > found


@given(epsilon=st.floats(1e-6, 1e3), delta=deltas, releases=st.integers(1, 500), clip=norms)
def test_the_noise_for_an_epsilon_gives_that_epsilon(epsilon: float, delta: float, releases: int, clip: float) -> None:
    sigma = sigma_for(epsilon, delta, releases, clip)
    assert epsilon_of(releases, clip, sigma, delta) == pytest.approx(epsilon, rel=1e-9)


@given(batches=st.lists(st.lists(st.integers(0, 30), max_size=8), max_size=6))
def test_every_release_of_every_row_counts(batches: list[list[int]]) -> None:
    budget = RowBudget(1.0, 4.0)
    for rows in batches:
        budget.released(np.array(rows, np.int64))
    everything = [row for rows in batches for row in rows]
    assert budget.releases.tolist() == [everything.count(row) for row in range(max(everything, default=-1) + 1)]
    assert budget.most == max(map(everything.count, everything), default=0)
    assert budget.epsilon(1e-5) == pytest.approx(epsilon_of(budget.most, 1.0, 4.0, 1e-5))


def test_nothing_released_costs_nothing() -> None:
    assert RowBudget(1.0, 1.0).epsilon(1e-5) == 0.0


def test_a_budget_goes_on_where_it_stopped() -> None:
    budget, other = RowBudget(1.0, 4.0), RowBudget(1.0, 4.0)
    budget.released(np.array([0, 3]))
    kept = budget.state()
    budget.released(np.array([3, 5]))
    assert kept["releases"].tolist() == [1, 0, 0, 1], "a state does not change with what comes later"
    other.load_state(kept)
    other.released(np.array([3, 5]))
    assert kept["releases"].tolist() == [1, 0, 0, 1]
    assert other.releases.tolist() == budget.releases.tolist() == [1, 0, 0, 2, 0, 1]
    assert other.epsilon(1e-5) == budget.epsilon(1e-5)


def test_settings_that_promise_nothing_are_refused() -> None:
    for clip, sigma in ((0.0, 1.0), (1.0, 0.0), (math.inf, 1.0), (1.0, math.nan)):
        with pytest.raises(ConfigError, match="above 0"):
            RowBudget(clip, sigma)
    for delta in (0.0, 1.0, math.nan):
        with pytest.raises(ConfigError, match="delta"):
            RowBudget(1.0, 1.0).epsilon(delta)
    with pytest.raises(ConfigError, match="epsilon"):
        sigma_for(0.0, 1e-5, 1, 1.0)
    with pytest.raises(ConfigError, match="one release"):
        sigma_for(1.0, 1e-5, 0, 1.0)
    with pytest.raises(ConfigError, match="by place"):
        RowBudget(1.0, 1.0).released(np.array([2, -1]))
