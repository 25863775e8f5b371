"""MARVELL's optimum against a grid, and its bounds against attacks that are as good as can be."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import minimize

from colonnade.errors import ConfigError
from colonnade.privacy import (
    TwoClasses,
    auc_bound,
    auc_bound_of_releases,
    best_noise,
    best_noise_along,
    error_bound,
    noise_within,
)


def divergence(l0: float, l1: float, u: float, v: float, gap: float) -> float:
    """The sheet's sumKL of one dimension, written down once more."""
    s0, s1 = l0 + u, l1 + v
    return ((s0 + gap) / s1 + (s1 + gap) / s0) / 2 - 1


@settings(max_examples=60, deadline=None)
@given(
    u=st.floats(0.0, 5.0),
    v=st.floats(0.0, 5.0),
    gap=st.floats(0.01, 9.0),
    share=st.floats(0.02, 0.98),
    scale=st.sampled_from([0.3, 1.0, 4.0, 16.0]),
)
def test_the_closed_form_is_the_best_of_a_grid(u: float, v: float, gap: float, share: float, scale: float) -> None:
    power = scale * gap
    l0, l1, found = (float(one) for one in best_noise_along(u, v, gap, share, power))
    assert min(l0, l1) >= 0
    assert share * l1 + (1 - share) * l0 <= power * (1 + 1e-12)
    assert found == pytest.approx(divergence(l0, l1, u, v, gap), rel=1e-9, abs=1e-12)
    low, high = 0.0, power / (1 - share)
    for _ in range(4):
        grid = np.linspace(low, high, 2001)
        with np.errstate(divide="ignore", over="ignore"):
            values = divergence(grid, np.maximum(power - (1 - share) * grid, 0) / share, u, v, gap)
        best = int(values.argmin())
        low, high = grid[max(best - 1, 0)], grid[min(best + 1, 2000)]
    assert found == pytest.approx(values[best], rel=1e-6, abs=1e-6)


def spread(**values: float) -> TwoClasses:
    given_values = {
        "dimensions": 8,
        "gap": 2.0,
        "positive_share": 0.3,
        "negative_along": 0.5,
        "positive_along": 0.1,
        "negative_across": 0.5,
        "positive_across": 0.1,
    }
    return TwoClasses(**{**given_values, **values})  # type: ignore[arg-type]


SPREADS = [
    spread(),
    spread(positive_share=0.8),
    spread(gap=0.05),
    spread(dimensions=2, negative_along=0.01, negative_across=3.0),
    spread(negative_across=0.1, positive_across=0.4, negative_along=0.1, positive_along=0.4),
    spread(positive_across=0.0),
    spread(negative_across=0.0, positive_across=0.0),
]


def objective(classes: TwoClasses, noise: np.ndarray) -> float:
    """The sheet's objective of d dimensions, half of it minus d."""
    l10, l11, l20, l21 = noise
    across = classes.dimensions - 1
    s10, s11 = l10 + classes.negative_along, l11 + classes.positive_along
    s20, s21 = l20 + classes.negative_across, l21 + classes.positive_across
    beside = 2.0 if s20 == s21 == 0 else s20 / s21 + s21 / s20
    whole = across * beside + (s10 + classes.gap) / s11 + (s11 + classes.gap) / s10
    return whole / 2 - classes.dimensions


@pytest.mark.parametrize("classes", SPREADS)
@pytest.mark.parametrize("scale", [0.2, 1.0, 5.0])
def test_several_dimensions_have_the_best_of_a_grid(classes: TwoClasses, scale: float) -> None:
    power = scale * classes.gap
    found = best_noise(classes, power)
    p, across = classes.positive_share, classes.dimensions - 1
    parts = np.array([found.negative_along, found.positive_along, found.negative_across, found.positive_across])
    costs = np.array([1 - p, p, (1 - p) * across, p * across])
    assert (parts >= 0).all()
    assert parts @ costs <= power * (1 + 1e-9)
    assert found.divergence == pytest.approx(objective(classes, parts), abs=1e-9)
    # All ways to divide the power among the four, then downhill from the best of them.
    steps = np.arange(0, 21) / 20
    shares = np.array([(a, b, c) for a in steps for b in steps for c in steps if a + b + c <= 1])
    shares = np.column_stack([shares, 1 - shares.sum(axis=1)]).clip(1e-9)
    with np.errstate(divide="ignore", invalid="ignore"):
        values = [objective(classes, power * one / costs) for one in shares]
    start = shares[int(np.nanargmin(values))]
    refined = minimize(
        lambda logs: objective(classes, power * np.exp(logs) / np.exp(logs).sum() / costs), np.log(start), tol=1e-14
    )
    # That the divergence found is the objective's own value stands above, so it cannot be too low.
    assert found.divergence <= min(refined.fun, np.nanmin(values)) + 1e-6


def test_one_dimension_is_the_closed_form() -> None:
    classes = spread(dimensions=1)
    found = best_noise(classes, 3.0)
    expected = best_noise_along(0.5, 0.1, 2.0, 0.3, 3.0)
    assert (found.negative_along, found.positive_along, found.divergence) == tuple(map(float, expected))


@settings(max_examples=60, deadline=None)
@given(
    gap=st.floats(0, 10),
    share=st.floats(0.01, 0.99),
    widths=st.tuples(*[st.floats(0, 10)] * 4),
    budget=st.floats(0.01, 3.9),
    dimensions=st.integers(1, 40),
)
@example(gap=0.0, share=0.5, widths=(0.0, 0.0, 2.0, 2.2250738585072014e-308), budget=1.0, dimensions=5)
def test_the_noise_found_is_within_the_budget_and_the_rung_below_is_not(
    gap: float, share: float, widths: tuple[float, ...], budget: float, dimensions: int
) -> None:
    classes = TwoClasses(
        dimensions=dimensions,
        gap=gap,
        positive_share=share,
        negative_along=widths[0],
        positive_along=widths[1],
        negative_across=widths[2],
        positive_across=widths[3],
    )
    found = noise_within(classes, budget)
    assert found.divergence <= budget
    power = (1 - share) * (found.negative_along + (dimensions - 1) * found.negative_across) + share * (
        found.positive_along + (dimensions - 1) * found.positive_across
    )
    if power > 1.01 * max(gap, *widths) > 1e-6:
        assert best_noise(classes, power / 1.5).divergence > budget * (1 - 1e-6)


def test_the_sheets_numbers() -> None:
    assert error_bound(0.25) == 0.375
    assert auc_bound(0.25) == 0.71875
    assert [round(auc_bound(one), 2) for one in (0.92, 0.24, 0.06, 0.02)] == [0.86, 0.71, 0.61, 0.57]
    assert auc_bound(4.0) == auc_bound(9.0) == 1.0
    assert auc_bound_of_releases(0.25, 4) == auc_bound(1.0)
    assert auc_bound_of_releases(0.25, 16) == 1.0


@pytest.mark.parametrize("budget", [0.0, -1.0, 4.0, math.nan, math.inf])
def test_a_budget_that_bounds_nothing_is_refused(budget: float) -> None:
    with pytest.raises(ConfigError, match="above 0 and below 4"):
        noise_within(spread(), budget)


@pytest.mark.parametrize("budget", [0.05, 0.25, 1.0, 3.0])
def test_the_best_possible_attack_on_gaussian_classes_stays_within_the_bounds(budget: float) -> None:
    classes = spread(dimensions=1, negative_along=0.02, positive_along=0.3)
    noise = noise_within(classes, budget)
    deviations = math.sqrt(0.02 + noise.negative_along), math.sqrt(0.3 + noise.positive_along)
    points = np.linspace(-12, 14, 40_001) * max(deviations)
    negative = stats.norm.pdf(points, 0, deviations[0])
    positive = stats.norm.pdf(points, math.sqrt(2.0), deviations[1])
    # The likelihood ratio is the best score there is; its AUC and error rate follow from the two densities.
    order = np.argsort(positive / (negative + 1e-300))
    mass = [one[order] / one.sum() for one in (negative, positive)]
    area = float((mass[1] * (np.cumsum(mass[0]) - mass[0] / 2)).sum())
    error = float(np.minimum(*mass).sum() / 2)
    assert area <= auc_bound(budget)
    assert error >= error_bound(budget)
    assert area > 0.5 + (auc_bound(budget) - 0.5) / 3, "the bound is not empty"
