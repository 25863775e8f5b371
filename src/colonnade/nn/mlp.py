"""Multi-layer perceptrons whose every random draw comes from a generator of their own.

torch's global generator is shared by all threads of a process, so it cannot give a simulated party repeatable weights.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise

import torch
from torch import nn

from colonnade.nn.draws import reseed, seeded_generator

__all__ = ["ACTIVATIONS", "SeededDropout", "find_dropouts", "mlp", "reseed_dropout", "seeded_linear"]

ACTIVATIONS: dict[str, type[nn.Module]] = {
    "relu": nn.ReLU,
    "tanh": nn.Tanh,
    "sigmoid": nn.Sigmoid,
    "gelu": nn.GELU,
}


class SeededDropout(nn.Module):
    """Dropout that draws from its own generator."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        self.probability = probability
        self.generator = torch.Generator()

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        """Zero each value with the given probability while training."""
        if not self.training or self.probability == 0.0:
            return values
        kept = torch.rand(values.shape, generator=self.generator, dtype=values.dtype) >= self.probability
        return values * kept / (1.0 - self.probability)


def find_dropouts(modules: Iterable[nn.Module]) -> list[SeededDropout]:
    """Return all seeded dropout layers inside some modules."""
    return [layer for module in modules for layer in module.modules() if isinstance(layer, SeededDropout)]


def reseed_dropout(layers: Iterable[SeededDropout], seed: int) -> None:
    """Set the layers' generators, so that a step repeats wherever training resumes."""
    for position, layer in enumerate(layers):
        reseed(layer.generator, seed + position)


class _UndrawnLinear(nn.Linear):
    """A linear layer whose weights are left to the caller: to draw them would use up torch's own random numbers."""

    def reset_parameters(self) -> None:
        """Draw nothing."""


def seeded_linear(inputs: int, outputs: int, generator: torch.Generator, dtype: torch.dtype) -> nn.Linear:
    """Return a linear layer whose weights the generator draws.

    They are drawn as torch draws them by default (uniform within 1/sqrt(inputs)), in float64 and then rounded, so that
    a seed gives the same layer in either precision.
    """
    linear = _UndrawnLinear(inputs, outputs, dtype=dtype)
    bound = 1.0 / math.sqrt(inputs) if inputs else 0.0
    with torch.no_grad():
        for parameter in (linear.weight, linear.bias):
            draw = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_((2.0 * draw - 1.0) * bound)
    return linear


def mlp(
    widths: Sequence[int],
    *,
    seed: int,
    activation: str = "relu",
    dropout: float = 0.0,
    activate_output: bool = False,
    dtype: torch.dtype = torch.float32,
) -> nn.Sequential:
    """Return linear layers of these widths, input first, with the activation between them; the seed draws weights."""
    generator = seeded_generator(seed)
    layers: list[nn.Module] = []
    for position, (inputs, outputs) in enumerate(pairwise(widths)):
        layers.append(seeded_linear(inputs, outputs, generator, dtype))
        if position < len(widths) - 2 or activate_output:
            layers.append(ACTIVATIONS[activation]())
            if dropout:
                layers.append(SeededDropout(dropout))
    return nn.Sequential(*layers)
