"""Multi-head self-attention: every item put together anew from all items."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional

from colonnade.nn.additive_attention import masked_softmax
from colonnade.nn.draws import drawn_uniform

__all__ = ["SelfAttention"]


class SelfAttention(nn.Module):
    """Self-attention with queries W_q s, keys W_k s and values W_v s, without biases; the heads are concatenated.

    Items lie on the second-last axis. ``is_there`` says which of them exist: an absent item, whose numbers may be
    anything, gets no weight from the others and comes out as zero. ``scale`` divides the products of queries and keys
    by the root of a head's width; FairVFL's paper leaves that out.
    """

    def __init__(
        self,
        inputs: int,
        heads: int,
        head_width: int,
        *,
        generator: torch.Generator,
        dtype: torch.dtype,
        scale: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.head_width = heads, head_width
        self._factor = 1.0 / math.sqrt(head_width) if scale else 1.0
        shape, bound = (heads * head_width, inputs), 1.0 / math.sqrt(inputs)
        self.queries = drawn_uniform(shape, bound, generator, dtype)
        self.keys = drawn_uniform(shape, bound, generator, dtype)
        self.values = drawn_uniform(shape, bound, generator, dtype)

    def forward(self, items: torch.Tensor, is_there: torch.Tensor | None = None) -> torch.Tensor:
        """Return every item's new vector: (..., items, inputs) becomes (..., items, heads * head_width)."""
        is_key = None
        if is_there is not None:
            items = items.masked_fill(~is_there.unsqueeze(-1), 0.0)
            is_key = is_there[..., None, None, :]
        queries, keys, values = (self._by_head(items, weight) for weight in (self.queries, self.keys, self.values))
        weights = masked_softmax(self._factor * queries @ keys.transpose(-1, -2), is_key)
        mixed = (weights @ values).transpose(-3, -2).flatten(-2)
        return mixed if is_there is None else mixed.masked_fill(~is_there.unsqueeze(-1), 0.0)

    def _by_head(self, items: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """Return the items times a weight as (..., heads, items, head_width)."""
        projected = functional.linear(items, weight)
        return projected.view(*items.shape[:-1], self.heads, self.head_width).transpose(-3, -2)
