"""LSTUR: a convolution reads each text, and a recurrence that begins with the user reads the behaviours in order.

An et al., "Neural News Recommendation with Long- and Short-term User Representations", ACL 2019, the variant "ini".

Differs from the paper: a news item is one text, without topics, and no known user is taken for unknown in training.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from colonnade.nn.draws import seeded_generator
from colonnade.nn.gru import GRU
from colonnade.nn.news import ConvolvedText, UserEncoder

__all__ = ["LSTUR"]


class LSTUR(UserEncoder):
    """A convolutional text encoder, and a GRU over the behaviours, oldest first, that begins with the user's vector.

    ``vocabulary`` counts the word ids with padding. User ids run from 1 to ``users``; 0, and no ids at all, stand for
    users that are not known and begin with zero.
    """

    def __init__(
        self,
        vocabulary: int,
        outputs: int,
        *,
        seed: int,
        users: int = 0,
        embedding_width: int = 300,
        window: int = 3,
        hidden: int = 200,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        generator = seeded_generator(seed)
        self.text = ConvolvedText(
            vocabulary,
            outputs,
            generator=generator,
            embedding_width=embedding_width,
            window=window,
            hidden=hidden,
            dropout=dropout,
            dtype=dtype,
        )
        self.recurrence = GRU(outputs, outputs, generator=generator, dtype=dtype)
        # Zero rather than drawn: a user whom training never met is then the same as one who is not known.
        self.users = nn.Parameter(torch.zeros(users + 1, outputs, dtype=dtype))

    def encode_text(self, words: torch.Tensor) -> torch.Tensor:
        """Return a vector for every text: (..., words) becomes (..., outputs)."""
        found: torch.Tensor = self.text(words)
        return found

    def encode_behaviours(
        self, behaviours: torch.Tensor, is_there: torch.Tensor, users: torch.Tensor | None
    ) -> torch.Tensor:
        """Return a vector for every user: the state after their last behaviour."""
        begin = None if users is None else functional.embedding(users, self.users, padding_idx=0)
        found: torch.Tensor = self.recurrence(behaviours, begin, is_there)
        return found
