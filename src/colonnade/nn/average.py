"""An average of weights over training steps, which is smoother than the last ones."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

__all__ = ["WeightAverage"]


class WeightAverage:
    """Exponential average of a module's weights and statistics; with a factor of 0 it is the module itself."""

    def __init__(self, module: nn.Module, factor: float) -> None:
        self._module, self._factor = module, factor
        self.values: dict[str, torch.Tensor] = {}

    def update(self) -> None:
        """Take in the weights of now."""
        if not self._factor:
            return
        for name, value in self._module.state_dict().items():
            if name not in self.values or not value.is_floating_point():
                self.values[name] = value.detach().clone()
            else:
                self.values[name].lerp_(value, 1.0 - self._factor)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Put the average in the place of the weights for a while."""
        if not self.values:
            yield
            return
        now = {name: value.detach().clone() for name, value in self._module.state_dict().items()}
        self._module.load_state_dict(self.values)
        try:
            yield
        finally:
            self._module.load_state_dict(now)
