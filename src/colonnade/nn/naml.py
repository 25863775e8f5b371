"""NAML: a convolution reads each text, and attention says which words and which behaviours matter.

Wu et al., "Neural News Recommendation with Attentive Multi-View Learning", IJCAI 2019.

Differs from the paper: a behaviour is one text, so there is one view and no attention over views.
"""

from __future__ import annotations

import torch

from colonnade.nn.additive_attention import AdditiveAttention
from colonnade.nn.draws import seeded_generator
from colonnade.nn.news import ConvolvedText, UserEncoder

__all__ = ["NAML"]


class NAML(UserEncoder):
    """A convolutional text encoder, and additive attention over the behaviours.

    ``vocabulary`` counts the word ids with padding, ``hidden`` is the width inside each attention.
    """

    def __init__(
        self,
        vocabulary: int,
        outputs: int,
        *,
        seed: int,
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
        self.attention = AdditiveAttention(outputs, hidden, generator=generator, dtype=dtype)

    def encode_text(self, words: torch.Tensor) -> torch.Tensor:
        """Return a vector for every text: (..., words) becomes (..., outputs)."""
        found: torch.Tensor = self.text(words)
        return found

    def encode_behaviours(
        self, behaviours: torch.Tensor, is_there: torch.Tensor, users: torch.Tensor | None
    ) -> torch.Tensor:
        """Return a vector for every user; who they are does not matter, nor the order of their behaviours."""
        found: torch.Tensor = self.attention(behaviours, is_there)
        return found
