"""Additive attention: one vector from several, weighted by how much each of them matters."""

from __future__ import annotations

import math

import torch
from torch import nn

from colonnade.nn.draws import drawn_uniform
from colonnade.nn.mlp import seeded_linear

__all__ = ["AdditiveAttention", "masked_softmax"]


def masked_softmax(logits: torch.Tensor, is_there: torch.Tensor | None) -> torch.Tensor:
    """Return the softmax along the last axis over what is there; what is absent gets weight 0.

    Where nothing is there all weights are 0.

    >>> masked_softmax(torch.tensor([1.0, 9.0, 1.0]), torch.tensor([True, False, True])).tolist()
    [0.5, 0.0, 0.5]
    """
    if is_there is None:
        return logits.softmax(dim=-1)
    # The least number, not minus infinity: where nothing is there, the softmax of infinities alone would be no number.
    weights = logits.masked_fill(~is_there, torch.finfo(logits.dtype).min).softmax(dim=-1)
    return weights.masked_fill(~is_there, 0.0)


class AdditiveAttention(nn.Module):
    """Pooling of items into their weighted sum, with weights softmax(w . tanh(V x + b)) over the items.

    Items lie on the second-last axis. ``is_there`` says which of them exist; the numbers of an absent item may be
    anything. Without a single item the sum is zero.
    """

    def __init__(self, inputs: int, hidden: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.project = seeded_linear(inputs, hidden, generator, dtype)
        self.direction = drawn_uniform((hidden,), 1.0 / math.sqrt(hidden), generator, dtype)

    def forward(self, items: torch.Tensor, is_there: torch.Tensor | None = None) -> torch.Tensor:
        """Return the weighted sum of the items: (..., items, inputs) becomes (..., inputs)."""
        return self.with_weights(items, is_there)[0]

    def with_weights(
        self, items: torch.Tensor, is_there: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weighted sum of the items, and the weight of each."""
        if is_there is not None:
            # Weight 0 alone would not do: 0 times infinity is no number, here and on the way back.
            items = items.masked_fill(~is_there.unsqueeze(-1), 0.0)
        weights = masked_softmax(torch.tanh(self.project(items)) @ self.direction, is_there)
        return (weights.unsqueeze(-2) @ items).squeeze(-2), weights
