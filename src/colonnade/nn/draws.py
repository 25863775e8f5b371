"""Parameters drawn from a generator of the caller's, in float64 and then rounded.

So a seed gives the same parameter in either precision, and torch's global generator is left alone.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

__all__ = ["drawn_normal", "drawn_uniform"]


def drawn_uniform(shape: Sequence[int], bound: float, generator: torch.Generator, dtype: torch.dtype) -> nn.Parameter:
    """Return a parameter whose numbers lie uniformly between minus the bound and the bound."""
    draw = torch.rand(*shape, generator=generator, dtype=torch.float64)
    return nn.Parameter(((2.0 * draw - 1.0) * bound).to(dtype))


def drawn_normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> nn.Parameter:
    """Return a parameter whose numbers are standard normal."""
    return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype))
