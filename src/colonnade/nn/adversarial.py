"""Parts of adversarial domain adaptation: reversed gradients, and networks that tell domains apart."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from colonnade.nn.draws import seeded_generator
from colonnade.nn.mlp import seeded_linear

__all__ = ["SpectralLinear", "discriminator", "reverse_gradient"]


class _Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, factor: float) -> torch.Tensor:
        ctx.factor = factor
        return values.view_as(values)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None]:
        return -ctx.factor * gradients[0], None


def reverse_gradient(values: torch.Tensor, factor: float) -> torch.Tensor:
    """Return values as they are; on the way back their gradient is multiplied with minus the factor."""
    return _Reversal.apply(values, factor)  # type: ignore[no-untyped-call, no-any-return]


class SpectralLinear(nn.Module):
    """A linear layer whose weights are divided by their largest singular value, found by power iteration."""

    direction: torch.Tensor

    def __init__(self, inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.linear = seeded_linear(inputs, outputs, generator, dtype)
        drawn = torch.randn(outputs, generator=generator, dtype=torch.float64).to(dtype)
        self.register_buffer("direction", functional.normalize(drawn, dim=0))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Apply the layer; in training the estimate of the singular value takes one step."""
        weight = self.linear.weight
        with torch.no_grad():
            right = functional.normalize(weight.T @ self.direction, dim=0)
            left = functional.normalize(weight @ right, dim=0)
            if self.training:
                # A new tensor: the old one may still be needed on the way back.
                self.direction = left
        return functional.linear(values, weight / (left @ weight @ right), self.linear.bias)


def discriminator(inputs: int, domains: int, *, seed: int, dtype: torch.dtype) -> nn.Sequential:
    """Return a network that says for each row from which domain it comes, as in PrADA's companion code."""
    generator = seeded_generator(seed)
    return nn.Sequential(
        SpectralLinear(inputs, 24, generator, dtype),
        nn.BatchNorm1d(24, dtype=dtype),
        nn.LeakyReLU(),
        seeded_linear(24, 10, generator, dtype),
        nn.BatchNorm1d(10, dtype=dtype),
        nn.LeakyReLU(),
        seeded_linear(10, domains, generator, dtype),
    )
