"""AutoInt over categorical fields: self-attention finds which fields act together.

Song et al., "AutoInt: Automatic Feature Interaction Learning via Self-Attentive Neural Networks", CIKM 2019.

Differs from the paper: products of queries and keys are divided by the root of a head's width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from colonnade.nn.draws import drawn_uniform, seeded_generator
from colonnade.nn.field_embeddings import FieldEmbeddings
from colonnade.nn.mlp import SeededDropout, seeded_linear
from colonnade.nn.self_attention import SelfAttention

__all__ = ["AutoInt"]


class AutoInt(nn.Module):
    """Layers of self-attention over the fields' embeddings, with residuals and ReLU, then one dense layer.

    ``sizes`` says how many codes each field has. Dropout acts on the embeddings and on what the dense layer takes in.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        outputs: int,
        *,
        seed: int,
        embedding_width: int = 32,
        layers: int = 2,
        heads: int = 2,
        head_width: int = 16,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        generator = seeded_generator(seed)
        self.embeddings = FieldEmbeddings(sizes, embedding_width, generator=generator, dtype=dtype)
        self.dropout, self.last_dropout = SeededDropout(dropout), SeededDropout(dropout)
        self.layers, width = nn.ModuleList(), embedding_width
        for _ in range(layers):
            self.layers.append(_Interaction(width, heads, head_width, generator, dtype))
            width = heads * head_width
        self.output = seeded_linear(len(sizes) * width, outputs, generator, dtype)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return a vector for every row: codes (rows, fields) become (rows, outputs)."""
        fields = self.dropout(self.embeddings(codes))
        for layer in self.layers:
            fields = layer(fields)
        found: torch.Tensor = self.output(self.last_dropout(fields.flatten(1)))
        return found


class _Interaction(nn.Module):
    """Self-attention plus a linear map of the fields themselves, then ReLU."""

    def __init__(
        self, inputs: int, heads: int, head_width: int, generator: torch.Generator, dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.attention = SelfAttention(inputs, heads, head_width, generator=generator, dtype=dtype)
        self.residual = drawn_uniform((heads * head_width, inputs), 1.0 / math.sqrt(inputs), generator, dtype)

    def forward(self, fields: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.attention(fields) + functional.linear(fields, self.residual))
