"""Sparsemax: shares that add up to 1 like those of a softmax, but many of them exactly 0."""

from __future__ import annotations

import torch

__all__ = ["sparsemax"]


def sparsemax(values: torch.Tensor) -> torch.Tensor:
    """Return the point of the probability simplex nearest to the values, along the last axis.

    Martins and Astudillo, "From Softmax to Sparsemax", ICML 2016, Algorithm 1.

    >>> sparsemax(torch.tensor([0.5, 0.25, -1.0]))
    tensor([0.6250, 0.3750, 0.0000])
    """
    # The nearest point stays the same when all values move together; near 0 they lose no digits.
    values = values - values.amax(dim=-1, keepdim=True).detach()
    ordered = values.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, values.shape[-1] + 1, device=values.device)
    # Values that are no numbers support nothing; they then come out as what they are.
    support = (ranks * ordered > sums - 1.0).sum(dim=-1, keepdim=True).clamp(min=1)
    threshold = (sums.gather(-1, support - 1) - 1.0) / support
    return torch.relu(values - threshold)
