"""Sparsemax against projections done by hand and by bisection."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.nn import sparsemax


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0.5, 0.2, -1.0], [0.65, 0.35, 0.0]),  # both give up the same: 0.7 - 1 = -0.3 in two parts
        ([2.0, 0.5, 0.1], [1.0, 0.0, 0.0]),  # the first leads by more than 1
        ([0.1, 1.1, 0.1], [0.0, 1.0, 0.0]),  # by exactly 1
        ([0.3, 0.3, 0.3, 0.3], [0.25, 0.25, 0.25, 0.25]),
        ([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]),  # is on the simplex already
        ([7.0], [1.0]),
    ],
)
def test_hand_cases(values: list[float], expected: list[float]) -> None:
    assert sparsemax(torch.tensor(values, dtype=torch.float64)).tolist() == pytest.approx(expected, abs=1e-12)


def by_bisection(values: list[float]) -> list[float]:
    """Return max(z - t, 0) for the t at which these add up to 1."""
    low, high = min(values) - 1.0, max(values)
    for _ in range(200):
        middle = (low + high) / 2
        if math.fsum(max(one - middle, 0.0) for one in values) > 1.0:
            low = middle
        else:
            high = middle
    return [max(one - low, 0.0) for one in values]


@settings(deadline=None)
@given(st.lists(st.floats(-5, 5), min_size=1, max_size=9), st.floats(-1e3, 1e3))
def test_it_is_the_projection_on_the_simplex_wherever_the_origin(values: list[float], shift: float) -> None:
    tensor = torch.tensor(values, dtype=torch.float64)
    found = sparsemax(tensor)
    assert (found >= 0).all()
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-12)
    assert found.tolist() == pytest.approx(by_bisection(values), abs=1e-10)
    torch.testing.assert_close(sparsemax(tensor + shift), found, rtol=0, atol=1e-9)


def test_the_order_of_values_and_large_values_do_no_harm() -> None:
    values = torch.tensor([[1e6 + 0.5, 1e6 + 0.25, -1e6], [0.25, -3.0, 0.5]])
    assert sparsemax(values).tolist() == [[0.625, 0.375, 0.0], [0.375, 0.0, 0.625]]


def test_values_that_are_no_numbers_are_not_hidden() -> None:
    assert sparsemax(torch.tensor([math.nan, 1.0])).isnan().any()


def test_the_gradient_is_that_of_finite_differences() -> None:
    values = torch.tensor([[0.5, 0.2, -1.0], [0.1, 0.3, 0.25]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(sparsemax, (values,))
    # By hand: within a support of two, half of the other's gradient is taken from each.
    (gradient,) = torch.autograd.grad(sparsemax(values)[0, 0], values)
    assert gradient[0].tolist() == pytest.approx([0.5, -0.5, 0.0])
