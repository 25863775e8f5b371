"""The plainest network over categorical fields: their embeddings side by side, and dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from colonnade.nn.draws import seeded_generator
from colonnade.nn.field_embeddings import FieldEmbeddings
from colonnade.nn.mlp import SeededDropout, seeded_linear

__all__ = ["EmbeddingMLP"]


class EmbeddingMLP(nn.Module):
    """Embeddings of all fields, concatenated, then dense layers with ReLU between them.

    ``sizes`` says how many codes each field has. Without ``hidden`` widths there is a single dense layer. Dropout acts
    on what every dense layer takes in.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        outputs: int,
        *,
        seed: int,
        hidden: Sequence[int] = (),
        embedding_width: int = 32,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        generator = seeded_generator(seed)
        self.embeddings = FieldEmbeddings(sizes, embedding_width, generator=generator, dtype=dtype)
        layers: list[nn.Module] = []
        for inputs, width in pairwise((len(sizes) * embedding_width, *hidden, outputs)):
            if layers:
                layers.append(nn.ReLU())
            layers += [SeededDropout(dropout), seeded_linear(inputs, width, generator, dtype)]
        self.dense = nn.Sequential(*layers)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return a vector for every row: codes (rows, fields) become (rows, outputs)."""
        found: torch.Tensor = self.dense(self.embeddings(codes).flatten(1))
        return found
