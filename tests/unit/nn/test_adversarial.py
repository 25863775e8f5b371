"""Reversed gradients and discriminators."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from colonnade.nn import SpectralLinear, discriminator, reverse_gradient


def test_values_pass_unchanged_and_gradients_come_back_reversed_times_the_factor() -> None:
    values = torch.arange(6.0).reshape(2, 3).requires_grad_()
    turned = reverse_gradient(values, 0.25)
    assert torch.equal(turned, values)
    turned.backward(torch.full((2, 3), 8.0))
    assert values.grad is not None
    assert torch.equal(values.grad, torch.full((2, 3), -2.0))


@pytest.mark.parametrize("factor", [0.0, 0.1, 3.0])
def test_only_what_lies_before_the_reversal_is_scaled(factor: float) -> None:
    """Check 1 of the sheet: the discriminator's gradient has no factor lambda, the extractor's has -lambda."""
    torch.manual_seed(0)
    extractor, judge = nn.Linear(3, 2, dtype=torch.float64), nn.Linear(2, 2, dtype=torch.float64)
    rows, wanted = torch.randn(5, 3, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1])
    plain = torch.autograd.grad(
        nn.functional.cross_entropy(judge(extractor(rows)), wanted), [extractor.weight, judge.weight]
    )
    turned = torch.autograd.grad(
        nn.functional.cross_entropy(judge(reverse_gradient(extractor(rows), factor)), wanted),
        [extractor.weight, judge.weight],
    )
    assert torch.allclose(turned[0], -factor * plain[0], atol=1e-14)
    assert torch.equal(turned[1], plain[1])


def test_a_spectral_layers_largest_singular_value_becomes_one() -> None:
    generator = torch.Generator().manual_seed(4)
    layer = SpectralLinear(6, 5, generator, torch.float64)
    rows = torch.eye(6, dtype=torch.float64)
    for _ in range(200):
        layer(rows)
    applied = (layer(rows) - layer.linear.bias).T
    assert float(torch.linalg.svdvals(applied.detach())[0]) == pytest.approx(1.0, abs=1e-9)
    layer.eval()
    before = layer.direction.clone()
    assert torch.equal(layer(rows), layer(rows))
    assert torch.equal(layer.direction, before), "evaluation changes nothing"
    assert "direction" in layer.state_dict(), "a checkpoint keeps the estimate"


def test_two_passes_before_one_step_back_do_not_disturb_each_other() -> None:
    """The two domains pass one after the other, and only then is the gradient taken."""
    judge = discriminator(3, 2, seed=1, dtype=torch.float64)
    rows = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    (judge(rows).sum() + judge(rows + 1.0).sum()).backward()
    assert all(parameter.grad is not None for parameter in judge.parameters())


def test_a_seed_gives_a_discriminator_and_the_number_of_domains_its_outputs() -> None:
    first, second = (discriminator(3, 4, seed=1, dtype=torch.float32) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))
    assert first(torch.randn(5, 3, generator=torch.Generator().manual_seed(0))).shape == (5, 4)
