"""Kernel densities in logarithms: the direct form where it exists, and finite where it does not."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import ConfigError, OutOfRange
from colonnade.nn import KernelDensity, density, thinned


def rows(count: int, columns: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(count, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def direct(points: torch.Tensor, support: torch.Tensor, width: float) -> torch.Tensor:
    """Return the logarithm of the product form, as papers write it."""
    kernels = torch.exp(-((points[:, None] - support) ** 2) / (2 * width**2)) / (width * math.sqrt(2 * math.pi))
    return kernels.prod(dim=2).mean(dim=1).log()


def masked(points: torch.Tensor, support: torch.Tensor, width: float) -> torch.Tensor:
    """Return the logarithm of the density where cells are missing, one pair of rows after the other."""
    logarithms = []
    for point in points:
        exponents = []
        for row in support:
            known = ~(point.isnan() | row.isnan())
            if not known.any():
                continue
            distance = (point - row)[known].square().sum() * len(row) / known.sum()
            exponents.append(-distance / (2 * width**2))
        normaliser = len(point) * math.log(width * math.sqrt(2 * math.pi)) + math.log(len(exponents))
        logarithms.append(torch.stack(exponents).logsumexp(dim=0) - normaliser)
    return torch.stack(logarithms)


@settings(deadline=None)
@given(st.integers(1, 5), st.integers(1, 30), st.integers(1, 6), st.integers(0, 999), st.sampled_from([None, 0.3, 2.0]))
def test_the_logarithm_equals_the_direct_form(
    columns: int, support: int, points: int, seed: int, bandwidth: float | None
) -> None:
    known, asked = rows(support, columns, seed), rows(points, columns, seed + 1000)
    width = 1.05 * support**-0.2 if bandwidth is None else bandwidth
    found = KernelDensity(known, bandwidth=bandwidth).log_density(asked)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, direct(asked, known, width), rtol=0, atol=1e-10)


def test_the_origin_does_not_matter() -> None:
    known, asked = rows(50, 4), rows(9, 4, 1)
    far = KernelDensity(known + 1e4).log_density(asked + 1e4)
    torch.testing.assert_close(far, KernelDensity(known).log_density(asked), rtol=0, atol=1e-7)


def test_three_thousand_columns_are_finite_where_the_direct_form_is_not() -> None:
    known, asked = rows(200, 3072), rows(20, 3072, 1)
    logarithms, slopes = KernelDensity(known).both(asked)
    assert logarithms.isfinite().all()
    assert slopes.isfinite().all()
    assert not direct(asked[:2], known[:20], 1.05 * 20**-0.2).isfinite().any()
    # Far from everything too, and in single precision.
    far, slope = KernelDensity(known.float()).both(1e3 * asked.float())
    assert far.isfinite().all()
    assert slope.isfinite().all()


def test_a_row_left_out_gives_the_density_of_the_others() -> None:
    known = rows(12, 3)
    whole = KernelDensity(known)
    found = whole.log_density(known, own=torch.arange(12))
    for place in range(12):
        others = torch.cat([known[:place], known[place + 1 :]])
        torch.testing.assert_close(
            found[place : place + 1], direct(known[[place]], others, whole.bandwidth), rtol=0, atol=1e-10
        )
    assert (found < whole.log_density(known)).all()


def test_points_that_are_not_in_the_support_leave_nothing_out() -> None:
    known = rows(12, 3)
    own = torch.tensor([-1, 4, -1])
    found, plain = (KernelDensity(known).log_density(known[3:6], own=places) for places in (own, None))
    assert torch.equal(found == plain, own < 0)


@pytest.mark.parametrize("own", [None, torch.arange(8)])
@pytest.mark.parametrize("with_gaps", [False, True])
def test_the_score_is_the_gradient_of_the_logarithm(own: torch.Tensor | None, with_gaps: bool) -> None:
    known = rows(40, 10)
    asked = known[:8].clone()
    if with_gaps:
        known[5, 2] = known[9, 7] = asked[1, 3] = asked[2, 0] = math.nan
        # Only the cell that row 9 lacks: those two have nothing in common.
        asked[3, :7] = asked[3, 8:] = math.nan
    asked.requires_grad_(True)
    found = KernelDensity(known, bandwidth=0.4)
    logarithms = found.log_density(asked, own=own)
    (gradient,) = torch.autograd.grad(logarithms.sum(), asked)
    torch.testing.assert_close(found.score(asked, own=own), gradient, rtol=0, atol=1e-11)
    both = found.both(asked, own=own)
    assert torch.equal(both[0], logarithms)
    torch.testing.assert_close(both[1], gradient, rtol=0, atol=1e-11)


def test_the_score_leads_to_the_nearest_row() -> None:
    known = rows(30, 400)
    found = KernelDensity(known, bandwidth=0.3)
    point = known[[7]] + 0.01
    torch.testing.assert_close(point + 0.3**2 * found.score(point), known[[7]], rtol=0, atol=1e-10)


def test_points_are_gone_through_in_parts_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = rows(30, 6), rows(25, 6, 1)
    whole = KernelDensity(known).both(asked, own=torch.arange(25))
    monkeypatch.setattr(density, "_DISTANCES", 100)
    parts = KernelDensity(known).both(asked, own=torch.arange(25))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-12)
    assert KernelDensity(known).log_density(asked[:0]).shape == (0,)
    assert KernelDensity(known).score(asked[:0]).shape == (0, 6)


def test_missing_cells_stretch_the_distance_over_the_others() -> None:
    known, asked = rows(20, 10), rows(6, 10, 1)
    known[3, :2] = known[8, 9] = asked[0, 4] = math.nan
    asked[1, :9] = math.nan
    found = KernelDensity(known)
    logarithms, slopes = found.both(asked)
    torch.testing.assert_close(logarithms, masked(asked, known, found.bandwidth), rtol=0, atol=1e-10)
    assert (slopes[asked.isnan()] == 0.0).all()
    assert (slopes[~asked.isnan()] != 0.0).all()
    # The same cells by a mask, whatever stands in them.
    by_mask = KernelDensity(torch.where(known.isnan(), 99.0, known), observed=~known.isnan())
    torch.testing.assert_close(by_mask.log_density(asked), logarithms, rtol=0, atol=1e-12)


def test_rows_of_which_less_than_four_fifths_is_known_are_not_in_the_support() -> None:
    known, asked = rows(20, 20), rows(6, 20, 1)
    known[3, :4] = math.nan
    known[5, :5] = known[0] = math.nan
    found = KernelDensity(known)
    kept = torch.tensor([place for place in range(20) if place not in (0, 5)])
    assert (found.rows, found.bandwidth) == (18, pytest.approx(1.05 * 18**-0.2))
    torch.testing.assert_close(found.log_density(asked), KernelDensity(known[kept]).log_density(asked))
    # Places are those of the support as given; a row that is not in it has nothing to leave out.
    left_out = found.log_density(asked[:3], own=torch.tensor([0, 5, 6]))
    again = KernelDensity(known[kept]).log_density(asked[:3], own=torch.tensor([-1, -1, 4]))
    assert torch.equal(left_out, again)


def test_a_support_is_thinned_by_a_seed_to_rows_in_their_order() -> None:
    support = torch.arange(5000.0)[:, None]
    chosen, places = thinned(support, 2000, seed=3)
    assert len(chosen) == 2000
    assert torch.equal(chosen, thinned(support, 2000, seed=3)[0])
    assert not torch.equal(chosen, thinned(support, 2000, seed=4)[0])
    assert (chosen.diff(dim=0) > 0).all()
    assert torch.equal(places[chosen[:, 0].long()], torch.arange(2000))
    assert int((places < 0).sum()) == 3000
    few, everywhere = thinned(support[:7], 2000)
    assert torch.equal(few, support[:7])
    assert everywhere.tolist() == list(range(7))


@pytest.mark.parametrize(
    ("build", "kind", "said"),
    [
        (lambda: KernelDensity(torch.ones(3)), ConfigError, "rows and columns"),
        (lambda: KernelDensity(torch.ones(3, 0)), ConfigError, "rows and columns"),
        (lambda: KernelDensity(torch.ones(0, 3)), ConfigError, "80% is known"),
        (lambda: KernelDensity(torch.full((3, 3), math.nan)), ConfigError, "80% is known"),
        (lambda: KernelDensity(torch.tensor([[1.0, math.inf]])), OutOfRange, "not finite"),
        (lambda: KernelDensity(torch.ones(3, 2), observed=torch.ones(3, 1)), ConfigError, "every cell"),
        (lambda: KernelDensity(torch.ones(3, 2), bandwidth=0.0), ConfigError, "bandwidth"),
        (lambda: KernelDensity(torch.ones(3, 2)).log_density(torch.ones(3, 3)), ConfigError, "rows of 2"),
        (lambda: KernelDensity(torch.ones(3, 2)).score(torch.full((1, 2), math.inf)), OutOfRange, "not finite"),
        (lambda: KernelDensity(torch.ones(3, 2)).score(torch.full((1, 2), math.nan)), OutOfRange, "no common cell"),
        (
            lambda: KernelDensity(torch.ones(1, 2)).log_density(torch.ones(1, 2), own=torch.tensor([0])),
            OutOfRange,
            "none other",
        ),
        (
            lambda: KernelDensity(torch.ones(3, 2)).log_density(torch.ones(2, 2), own=torch.tensor([0])),
            ConfigError,
            "places of 2 points",
        ),
        (lambda: thinned(torch.ones(3, 2), 0), ConfigError, "1 row or more"),
    ],
)
def test_what_has_no_density_is_refused(build: Any, kind: type[Exception], said: str) -> None:
    with pytest.raises(kind, match=said):
        build()
