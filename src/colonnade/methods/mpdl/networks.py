"""The classifier's parts: each holder's block of the first layer, and what the collaborator has above it."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import torch
from torch import nn

from colonnade.errors import ConfigError
from colonnade.methods.mpdl.config import MPDL
from colonnade.methods.mpdl.rows import Scale
from colonnade.nn import mlp, redrawn

__all__ = ["Arrangement", "build_block", "build_upper", "dtype_of", "first_shape", "hidden_width"]

_MOST_HIDDEN = 512
_PLACE = re.compile(r"(\d+)$")


def dtype_of(config: MPDL) -> torch.dtype:
    """Return the precision of all arithmetic of the classifier."""
    return torch.float64 if config.precision == "float64" else torch.float32


def hidden_width(config: MPDL, inputs: int, outputs: int) -> int:
    """Return how many numbers the first layer gives per row, or its channels."""
    if config.image is not None:
        return config.channels[0]
    return config.hidden or max(2, min(_MOST_HIDDEN, (inputs + outputs) // 2))


def first_shape(config: MPDL, hidden: int) -> tuple[int, ...]:
    """Return the shape of what the first layer gives for a row."""
    return (hidden,) if config.image is None else (hidden, *config.image[1:])


class Arrangement:
    """How a holder's own columns and those it generates become what its block takes."""

    def __init__(self, config: MPDL, own: Sequence[str], generated: Sequence[str]) -> None:
        self._image, self._is_tied = config.image, config.kernels == "tied"
        self._dtype = dtype_of(config)
        self._widths = (len(own), len(generated))
        if self._image is not None:
            size = math.prod(self._image)
            self._own, self._generated = _places(own, size), _places(generated, size)

    @property
    def inputs(self) -> tuple[int, int]:
        """Return how many columns, or channels, there are: with own columns alone, and with generated ones too."""
        if self._image is None:
            return self._widths[0], sum(self._widths)
        return self._image[0], self._image[0] * (1 if self._is_tied else 2)

    def __call__(
        self, own: torch.Tensor, own_scale: Scale, generated: torch.Tensor | None, scale: Scale | None
    ) -> torch.Tensor:
        """Arrange rows in unit space; without generated columns those stay at their mean, or dark."""
        if self._image is not None:
            return self._pictures(own, generated)
        parts = [own_scale.standardised(own)]
        if generated is not None and scale is not None:
            parts.append(scale.standardised(generated.double()))
        return torch.cat(parts, dim=1).to(self._dtype)

    def nothing(self, rows: int, *, with_generated: bool) -> torch.Tensor:
        """Return rows to which this holder contributes nothing."""
        width = self.inputs[1 if with_generated else 0]
        shape = (rows, width) if self._image is None else (rows, width, *self._image[1:])
        return torch.zeros(shape, dtype=self._dtype)

    def widened(self, arranged: torch.Tensor) -> torch.Tensor:
        """Add room for generated columns to rows that have none."""
        missing = self.inputs[1] - arranged.shape[1]
        if missing == 0:
            return arranged
        return torch.cat([arranged, arranged.new_zeros(len(arranged), missing, *arranged.shape[2:])], dim=1)

    def _pictures(self, own: torch.Tensor, generated: torch.Tensor | None) -> torch.Tensor:
        frames = [self._placed(own, self._own)]
        if generated is not None:
            frames.append(self._placed(generated, self._generated))
        if self._is_tied:
            return torch.stack(frames).sum(dim=0)
        return torch.cat(frames, dim=1)

    def _placed(self, values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        shape = self._image or (1, 1, 1)
        flat = torch.zeros(len(values), math.prod(shape), dtype=self._dtype)
        flat[:, places] = torch.nan_to_num(values, nan=0.0).to(self._dtype)
        return flat.reshape(len(values), *shape)


def build_block(config: MPDL, inputs: int, hidden: int, seed: int) -> nn.Module:
    """Return a holder's block of the first layer: linear, without an offset, which the collaborator has."""
    layer: nn.Module
    if config.image is None:
        layer = nn.Linear(inputs, hidden, bias=False, dtype=dtype_of(config))
    else:
        layer = nn.Conv2d(
            inputs, hidden, config.kernel_size, padding=config.kernel_size // 2, bias=False, dtype=dtype_of(config)
        )
    return redrawn(layer, seed)


class _Offset(nn.Module):
    """The first layer's offset, for columns or for channels of pictures."""

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype) -> None:
        super().__init__()
        self.values = nn.Parameter(torch.zeros(shape, dtype=dtype))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values + self.values


def build_upper(config: MPDL, hidden: int, outputs: int, seed: int) -> nn.Module:
    """Return what the collaborator has above the first layer."""
    dtype = dtype_of(config)
    if config.image is None:
        above = mlp((hidden, *config.upper_layers, outputs), seed=seed, dtype=dtype)
        return nn.Sequential(_Offset((hidden,), dtype), nn.ReLU(), *above)
    _, height, width = config.image
    layers: list[nn.Module] = [_Offset((hidden, 1, 1), dtype), nn.ReLU()]
    channels, size = hidden, config.kernel_size
    for place, wanted in enumerate((hidden, *config.channels[1:])):
        if place:
            layers += [nn.Conv2d(channels, wanted, size, padding=size // 2, dtype=dtype), nn.ReLU()]
            channels = wanted
        if height > 1 and width > 1:
            layers.append(nn.MaxPool2d(2))
            height, width = height // 2, width // 2
    layers.append(nn.Flatten())
    features = channels * height * width
    for wanted in config.upper_layers:
        layers += [nn.Linear(features, wanted, dtype=dtype), nn.ReLU()]
        features = wanted
    layers.append(nn.Linear(features, outputs, dtype=dtype))
    return redrawn(nn.Sequential(*layers), seed)


def _places(names: Sequence[str], size: int) -> torch.Tensor:
    found = []
    for name in names:
        place = _PLACE.search(name)
        if place is None or int(place[1]) >= size:
            raise ConfigError(
                f"The column '{name}' does not end with a place in the picture, a number below {size}. Name pixel "
                "columns by their place in the flattened picture, or remove config.image."
            )
        found.append(int(place[1]))
    return torch.tensor(found, dtype=torch.int64)
