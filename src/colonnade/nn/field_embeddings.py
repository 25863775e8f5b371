"""Vectors learnt for the codes of categorical fields."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn
from torch.nn import functional

from colonnade.errors import ConfigError, TableError
from colonnade.nn.draws import drawn_normal

__all__ = ["FieldEmbeddings"]


class FieldEmbeddings(nn.Module):
    """One vector for each code of each field, drawn from the standard normal distribution.

    ``sizes`` says how many codes each field has; they count from 0.
    """

    first: torch.Tensor
    counts: torch.Tensor

    def __init__(self, sizes: Sequence[int], width: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        if not sizes or min(sizes) < 1 or width < 1:
            raise ConfigError(
                "Embeddings need at least one field, one code in every field and a width of 1 or more. "
                f"Got {len(sizes)} fields with {min(sizes, default=0)} codes or more, and width {width}."
            )
        # The fields' tables stand one below the other, so that one look-up serves them all.
        self.table = drawn_normal((sum(sizes), width), generator, dtype)
        counts = torch.tensor(list(sizes))
        self.register_buffer("counts", counts, persistent=False)
        self.register_buffer("first", counts.cumsum(0) - counts, persistent=False)

    def forward(self, codes: torch.Tensor) -> torch.Tensor:
        """Return the codes' vectors: (rows, fields) becomes (rows, fields, width)."""
        if codes.shape[-1] != len(self.counts):
            raise TableError(
                f"{len(self.counts)} fields were expected but codes of {codes.shape[-1]} came. Use the fields, and "
                "their order, for which the model was made."
            )
        # A code too large would silently find a vector of the next field.
        is_outside = ((codes < 0) | (codes >= self.counts)).flatten(0, -2).any(dim=0)
        if bool(is_outside.any()):
            place = int(is_outside.nonzero()[0])
            raise TableError(
                f"Field {place} (counted from 0) has a code outside its {int(self.counts[place])} codes. Encode the "
                "rows with the encoder fitted in training, which has a code for unknown values."
            )
        return functional.embedding(codes + self.first, self.table)
