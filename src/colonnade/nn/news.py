"""What the news encoders share: word vectors, a convolutional text encoder, and users read from their behaviours.

A text is a row of word ids in which 0 is padding. A behaviour is a text: a clicked title, a search, a page viewed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import nn
from torch.nn import functional

from colonnade.errors import ConfigError, TableError
from colonnade.nn.additive_attention import AdditiveAttention
from colonnade.nn.draws import drawn_normal
from colonnade.nn.mlp import SeededDropout, seeded_linear

__all__ = ["ConvolvedText", "UserEncoder", "WordEmbeddings", "index_texts"]


def index_texts(words: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the different texts among behaviours, and each behaviour's place among them.

    Words (rows, behaviours, words) become texts (unique, words) and places (rows, behaviours), which
    ``UserEncoder.forward_indexed`` takes. Text 0 is padding only: that of absent behaviours.

    >>> texts, places = index_texts(torch.tensor([[[5, 2], [3, 0]], [[0, 0], [5, 2]]]))
    >>> texts.tolist(), places.tolist()
    ([[0, 0], [3, 0], [5, 2]], [[2, 1], [0, 2]])
    """
    # Ids are never negative, so the text of padding comes first; it is added in case no behaviour is absent.
    padding = words.new_zeros(1, words.shape[-1])
    texts, found = torch.unique(torch.cat([padding, words.flatten(0, 1)]), dim=0, return_inverse=True)
    return texts, found[1:].view(words.shape[:-1])


class UserEncoder(nn.Module, ABC):
    """A network that reads a user from the texts of their behaviours."""

    @abstractmethod
    def encode_text(self, words: torch.Tensor) -> torch.Tensor:
        """Return a vector for every text: (..., words) becomes (..., outputs); a text of padding only gives zero."""

    @abstractmethod
    def encode_behaviours(
        self, behaviours: torch.Tensor, is_there: torch.Tensor, users: torch.Tensor | None
    ) -> torch.Tensor:
        """Return a vector for every user from the vectors (rows, behaviours, outputs) of their behaviours."""

    def forward(self, words: torch.Tensor, users: torch.Tensor | None = None) -> torch.Tensor:
        """Return a vector for every user: words (rows, behaviours, words) become (rows, outputs).

        A behaviour that is all padding is absent. Only an encoder that knows its users looks at ``users`` (rows).
        """
        is_there = (words != 0).any(dim=-1)
        numbers = torch.where(is_there, is_there.flatten().cumsum(0).view_as(is_there), 0)
        return self._read(words[is_there], numbers, users)

    def forward_indexed(
        self, texts: torch.Tensor, places: torch.Tensor, users: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the same as ``forward``, but encode every text only once, however many behaviours repeat it.

        ``places`` (rows, behaviours) says which of the texts (unique, words) each behaviour is. Text 0 is padding only
        and stands for absent behaviours. Texts that no behaviour uses are not encoded, so a whole catalogue may be
        given. In training, behaviours of one text share its dropout.
        """
        # Texts numbered from 1 without a text 0 would otherwise all be taken for their neighbours.
        if not len(texts) or bool(texts[0].any()):
            raise TableError(
                "The first of the texts must be padding only. It stands for absent behaviours; put it first."
            )
        used, found = torch.unique(places, return_inverse=True)
        if bool(((used < 0) | (used >= len(texts))).any()):
            raise TableError(
                f"A behaviour points to a text outside the {len(texts)} that were given. Number behaviours by the "
                "places of their texts, and absent ones by 0."
            )
        own = texts[used]
        is_text = (own != 0).any(dim=1)
        numbers = torch.where(is_text, is_text.cumsum(0), 0)
        return self._read(own[is_text], numbers[found], users)

    def _read(self, texts: torch.Tensor, numbers: torch.Tensor, users: torch.Tensor | None) -> torch.Tensor:
        """Encode texts that all have words, give them to the behaviours that number them from 1, and read the users."""
        vectors = functional.pad(self.encode_text(texts), (0, 0, 1, 0))
        return self.encode_behaviours(functional.embedding(numbers, vectors), numbers > 0, users)


class WordEmbeddings(nn.Module):
    """One vector for every word id, standard normal at first; that of padding is zero and stays zero."""

    def __init__(self, vocabulary: int, width: int, *, generator: torch.Generator, dtype: torch.dtype) -> None:
        super().__init__()
        if vocabulary < 2 or width < 1:
            raise ConfigError(
                "Word embeddings need a vocabulary of padding and at least one word, and a width of 1 or more. "
                f"Got {vocabulary} and {width} instead."
            )
        self.table = drawn_normal((vocabulary, width), generator, dtype)
        with torch.no_grad():
            self.table[0] = 0.0

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return the words' vectors: (..., words) becomes (..., words, width)."""
        return functional.embedding(words, self.table, padding_idx=0)


class ConvolvedText(nn.Module):
    """A text encoder: word vectors, a convolution over windows of words with ReLU, and additive attention.

    ``vocabulary`` counts the word ids with padding. Beyond its ends a text goes on with zeros, as padding does, so
    further padding changes nothing. Dropout acts on the word vectors and on those of the windows.
    """

    def __init__(
        self,
        vocabulary: int,
        filters: int,
        *,
        generator: torch.Generator,
        embedding_width: int,
        window: int,
        hidden: int,
        dropout: float,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        if window < 1 or window % 2 == 0:
            raise ConfigError(f"A window of words has a middle, so its width must be odd. Got {window} instead.")
        self.window = window
        self.words = WordEmbeddings(vocabulary, embedding_width, generator=generator, dtype=dtype)
        self.filters = seeded_linear(window * embedding_width, filters, generator, dtype)
        self.attention = AdditiveAttention(filters, hidden, generator=generator, dtype=dtype)
        self.word_dropout, self.window_dropout = SeededDropout(dropout), SeededDropout(dropout)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        """Return a vector for every text: (..., words) becomes (..., filters)."""
        windows = self.window_dropout(self.convolve(self.word_dropout(self.words(words))))
        found: torch.Tensor = self.attention(windows, words != 0)
        return found

    def convolve(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return what the filters find around every word: (..., words, width) becomes (..., words, filters)."""
        padded = functional.pad(vectors, (0, 0, self.window // 2, self.window // 2))
        count = vectors.shape[-2]
        windows = torch.cat([padded[..., place : place + count, :] for place in range(self.window)], dim=-1)
        return torch.relu(self.filters(windows))
