"""NRMS: self-attention relates words within a text and behaviours of a user, and attention pools both.

Wu et al., "Neural News Recommendation with Multi-Head Self-Attention", EMNLP 2019.
"""

from __future__ import annotations

import torch

from colonnade.errors import ConfigError
from colonnade.nn.additive_attention import AdditiveAttention
from colonnade.nn.draws import seeded_generator
from colonnade.nn.mlp import SeededDropout
from colonnade.nn.news import UserEncoder, WordEmbeddings
from colonnade.nn.self_attention import SelfAttention

__all__ = ["NRMS"]


class NRMS(UserEncoder):
    """Multi-head self-attention and additive attention over words, and the same over behaviours.

    ``vocabulary`` counts the word ids with padding, ``hidden`` is the width inside each additive attention. The heads
    share the outputs equally. Dropout acts on the word vectors and on what self-attention makes of them.
    """

    def __init__(
        self,
        vocabulary: int,
        outputs: int,
        *,
        seed: int,
        embedding_width: int = 300,
        heads: int = 20,
        hidden: int = 200,
        dropout: float = 0.0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__()
        if heads < 1 or outputs % heads:
            raise ConfigError(
                f"NRMS has {outputs} outputs, which {heads} heads cannot share equally. Choose a number of heads that "
                "divides the outputs."
            )
        generator, each = seeded_generator(seed), outputs // heads
        self.words = WordEmbeddings(vocabulary, embedding_width, generator=generator, dtype=dtype)
        self.word_attention = SelfAttention(embedding_width, heads, each, generator=generator, dtype=dtype)
        self.word_pooling = AdditiveAttention(outputs, hidden, generator=generator, dtype=dtype)
        self.behaviour_attention = SelfAttention(outputs, heads, each, generator=generator, dtype=dtype)
        self.behaviour_pooling = AdditiveAttention(outputs, hidden, generator=generator, dtype=dtype)
        self.word_dropout, self.related_dropout = SeededDropout(dropout), SeededDropout(dropout)

    def encode_text(self, words: torch.Tensor) -> torch.Tensor:
        """Return a vector for every text: (..., words) becomes (..., outputs)."""
        is_word = words != 0
        related = self.word_attention(self.word_dropout(self.words(words)), is_word)
        found: torch.Tensor = self.word_pooling(self.related_dropout(related), is_word)
        return found

    def encode_behaviours(
        self, behaviours: torch.Tensor, is_there: torch.Tensor, users: torch.Tensor | None
    ) -> torch.Tensor:
        """Return a vector for every user; who they are does not matter, nor the order of their behaviours."""
        found: torch.Tensor = self.behaviour_pooling(self.behaviour_attention(behaviours, is_there), is_there)
        return found
