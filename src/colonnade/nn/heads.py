"""Several small heads on one code, whose mean is more certain than one larger head.

Each reads its own slice of every party's code and learns by itself, as in Y. Gorishniy et al., "TabM: Advancing Tabular
Deep Learning with Parameter-Efficient Ensembling", ICLR 2025, where members share more.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import nn

from colonnade.nn.draws import drawn_uniform, seeded_generator
from colonnade.nn.mlp import SeededDropout

__all__ = ["Heads"]


class Heads(nn.Module):
    """Perceptrons side by side, over codes of several parties that lie side by side."""

    def __init__(
        self,
        cuts: Sequence[int],
        hidden: Sequence[int],
        outputs: int,
        *,
        members: int,
        seed: int,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Take the widths of the parties' codes; fewer members than wanted where these cannot be divided by them."""
        super().__init__()
        self.members = math.gcd(members, *cuts)
        self._cuts = list(cuts)
        generator = seeded_generator(seed)
        layers = list(pairwise([sum(cuts) // self.members, *hidden, outputs]))
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for inputs, width in layers:
            bound = 1.0 / math.sqrt(inputs)
            self.weights.append(drawn_uniform((self.members, inputs, width), bound, generator, dtype))
            self.biases.append(drawn_uniform((self.members, 1, width), bound, generator, dtype))
        self.dropout = SeededDropout(dropout)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return outputs of shape (rows, members, outputs)."""
        parts = codes.split(self._cuts, dim=1)  # type: ignore[no-untyped-call]
        values = torch.cat([part.unflatten(1, (self.members, -1)) for part in parts], dim=2).transpose(0, 1)
        for place, (weight, bias) in enumerate(zip(self.weights, self.biases, strict=True)):
            values = values if place == 0 else self.dropout(values.relu())
            values = torch.baddbmm(bias, values, weight)
        return values.transpose(0, 1)
