"""TabNet over categorical fields: a few decision steps, each of which looks at few fields.

Arik and Pfister, "TabNet: Attentive Interpretable Tabular Learning", AAAI 2021.

Differs from the paper: rows are normalised each by itself (LayerNorm), a mask has one share per field rather than one
per number of its embedding, and no penalty on the masks' entropy is added to the loss.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import torch
from torch import nn
from torch.nn import functional

from colonnade.errors import ConfigError
from colonnade.nn.draws import seeded_generator
from colonnade.nn.field_embeddings import FieldEmbeddings
from colonnade.nn.mlp import SeededDropout, seeded_linear
from colonnade.nn.sparsemax import sparsemax

__all__ = ["TabNet"]


class TabNet(nn.Module):
    """Decision steps over embedded fields; what all steps decide is added up and goes through one dense layer.

    ``sizes`` says how many codes each field has, ``width`` how wide both a step's decision and what it tells the next
    step are. With ``relaxation`` 1 a field can be used up by one step; the larger it is, the more often a field may be
    looked at again. Dropout acts on the embeddings.
    """

    # The paper normalises by the statistics of (parts of) the batch. They would make a row's vector depend on the rows
    # that happen to be with it: a row would score differently alone, and a federated run could not equal a central one
    # that cuts the same rows into other batches. LayerNorm sees one row at a time.

    def __init__(
        self,
        sizes: Sequence[int],
        outputs: int,
        *,
        seed: int,
        embedding_width: int = 32,
        steps: int = 3,
        width: int = 64,
        relaxation: float = 1.5,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if steps < 1 or width < 1 or relaxation < 1.0:
            raise ConfigError(
                "TabNet needs at least one step, a width of 1 or more and a relaxation of 1 or more. "
                f"Got {steps}, {width} and {relaxation} instead."
            )
        generator = seeded_generator(seed)
        inputs = len(sizes) * embedding_width
        self.width, self.relaxation = width, relaxation
        self.embeddings = FieldEmbeddings(sizes, embedding_width, generator=generator, dtype=dtype)
        self.dropout = SeededDropout(dropout)
        self.norm = nn.LayerNorm(inputs, dtype=dtype)
        # Both the decision and what goes to the next step, twice as wide because half of it gates the other half.
        self.shared = nn.ModuleList([seeded_linear(one, 4 * width, generator, dtype) for one in (inputs, 2 * width)])
        self.transformers = nn.ModuleList([_FeatureTransformer(width, generator, dtype) for _ in range(steps + 1)])
        self.attentions = nn.ModuleList(
            [
                nn.Sequential(nn.LayerNorm(width, dtype=dtype), seeded_linear(width, len(sizes), generator, dtype))
                for _ in range(steps)
            ]
        )
        self.output = seeded_linear(width, outputs, generator, dtype)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return a vector for every row: codes (rows, fields) become (rows, outputs)."""
        found: torch.Tensor = self.output(self._decide(codes)[0])
        return found

    def masks(self, codes: torch.Tensor) -> torch.Tensor:
        """Return how much each step looks at each field, as (steps, rows, fields); the shares of a step add up to 1."""
        return torch.stack(self._decide(codes)[1])

    def _decide(self, codes: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        """Return the sum of the steps' decisions, and every step's mask."""
        embedded = self.dropout(self.embeddings(codes))
        fields = self.norm(embedded.flatten(1)).view_as(embedded)
        # Before the first step all fields are read, only to say where that step should look.
        first, *later = self.transformers
        told = first(fields.flatten(1), self.shared)[:, self.width :]
        left = torch.ones(codes.shape, dtype=fields.dtype, device=fields.device)
        decision, masks = torch.zeros_like(told), []
        for transformer, attention in zip(later, self.attentions, strict=True):
            mask = sparsemax(left * attention(told))
            left = left * (self.relaxation - mask)
            masks.append(mask)
            decided, told = transformer((mask.unsqueeze(-1) * fields).flatten(1), self.shared).split(self.width, dim=1)
            decision = decision + torch.relu(decided)
        return decision, masks


class _FeatureTransformer(nn.Module):
    """Four gated layers in a row: two that all steps share, which the caller lends, and two of this step's own."""

    def __init__(self, width: int, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        self.own = nn.ModuleList([seeded_linear(2 * width, 4 * width, generator, dtype) for _ in range(2)])
        self.norms = nn.ModuleList([nn.LayerNorm(4 * width, dtype=dtype) for _ in range(4)])

    def forward(self, values: torch.Tensor, shared: Iterable[nn.Module]) -> torch.Tensor:
        for place, (layer, norm) in enumerate(zip([*shared, *self.own], self.norms, strict=True)):
            gated = functional.glu(norm(layer(values)), dim=-1)
            # The factor keeps the variance as it was. The first layer changes the width, so nothing can be added.
            values = gated if place == 0 else (values + gated) * math.sqrt(0.5)
        return values
