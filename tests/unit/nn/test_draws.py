from __future__ import annotations

import pytest
import torch

from colonnade.nn import drawn_normal, drawn_uniform


def test_uniform_numbers_fill_both_sides_of_zero_up_to_the_bound() -> None:
    drawn = drawn_uniform((200, 300), 0.05, torch.Generator().manual_seed(0), torch.float64).detach()
    assert float(drawn.abs().max()) == pytest.approx(0.05, rel=1e-3)
    assert abs(float(drawn.mean())) < 1e-3
    assert float(drawn.std()) == pytest.approx(0.05 / 3**0.5, rel=0.02)


def test_a_seed_gives_the_same_numbers_in_either_precision_and_spares_the_global_generator() -> None:
    before = torch.get_rng_state()
    for dtype in (torch.float32, torch.float64):
        expected = torch.randn(2, 3, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
        found = drawn_normal((2, 3), torch.Generator().manual_seed(5), dtype)
        assert torch.equal(found, expected.to(dtype))
        assert found.requires_grad
    assert torch.equal(before, torch.get_rng_state())
