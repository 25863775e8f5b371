"""The small convolutional network that image experiments of the papers use, and weights drawn anew for any module."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence

import torch
from torch import nn

from colonnade.nn.draws import seeded_generator

__all__ = ["convolutions", "redrawn"]


def convolutions(
    image: tuple[int, int, int],
    outputs: int,
    *,
    seed: int,
    channels: Sequence[int] = (32, 64, 128),
    activation: type[nn.Module] = nn.ReLU,
    dtype: torch.dtype = torch.float32,
) -> nn.Module:
    """Return blocks of two 3x3 convolutions and a pooling each, then one linear layer, for rows of pixels.

    ``image`` says how a row's numbers are arranged: channels, height, width. Pooling stops where nothing is left to
    pool.
    """
    inputs, height, width = image
    layers: list[nn.Module] = [nn.Unflatten(1, image)]
    for wanted in channels:
        for _ in range(2):
            layers += [nn.Conv2d(inputs, wanted, 3, padding=1, dtype=dtype), activation()]
            inputs = wanted
        if height > 1 and width > 1:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(inputs * height * width, outputs, dtype=dtype), activation()]
    return redrawn(nn.Sequential(*layers), seed)


def redrawn(module: nn.Module, seed: int) -> nn.Module:
    """Return a copy of a module whose weights a generator of its own draws, as torch draws them by default.

    Only linear and convolutional layers are drawn; what else learns, such as the scale of a normalisation, stays.
    """
    drawn = copy.deepcopy(module)
    generator = seeded_generator(seed)
    for layer in drawn.modules():
        weight = getattr(layer, "weight", None)
        if not isinstance(layer, nn.Linear | nn.modules.conv._ConvNd) or not isinstance(weight, torch.Tensor):
            continue
        bound = 1.0 / math.sqrt(max(weight[0].numel(), 1))
        with torch.no_grad():
            for parameter in (weight, layer.bias):
                if parameter is not None:
                    draw = torch.rand(parameter.shape, generator=generator, dtype=torch.float64)
                    parameter.copy_((2.0 * draw - 1.0) * bound)
    return drawn
