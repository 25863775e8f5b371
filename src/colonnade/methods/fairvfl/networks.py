"""The networks of FairVFL: local models, the aggregator, mappers and discriminators. No session here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import nn

from colonnade.methods.fairvfl.config import FairVFL
from colonnade.methods.fairvfl.inputs import FieldCoder, TextCoder
from colonnade.nn import (
    LSTUR,
    NAML,
    NRMS,
    AdditiveAttention,
    AutoInt,
    EmbeddingMLP,
    SelfAttention,
    TabNet,
    mlp,
    seeded_linear,
)
from colonnade.nn.draws import reseed, seeded_generator
from colonnade.nn.news import UserEncoder

__all__ = [
    "Aggregator",
    "build_aggregator",
    "build_contrastive",
    "build_discriminator",
    "build_local",
    "build_mapper",
    "build_reader",
    "build_task",
    "dtype_of",
]

TABULAR: dict[str, Callable[..., nn.Module]] = {"mlp": EmbeddingMLP, "tabnet": TabNet, "autoint": AutoInt}
TEXTUAL: dict[str, Callable[..., UserEncoder]] = {"naml": NAML, "lstur": LSTUR, "nrms": NRMS}


def dtype_of(config: FairVFL) -> torch.dtype:
    """Return the precision of all arithmetic."""
    return torch.float64 if config.precision == "float64" else torch.float32


class _Indexed(nn.Module):
    """A model of texts that is given every different text once."""

    def __init__(self, reader: UserEncoder) -> None:
        super().__init__()
        self.reader = reader

    def forward(self, texts: torch.Tensor, places: torch.Tensor, users: torch.Tensor | None = None) -> torch.Tensor:
        return self.reader.forward_indexed(texts, places, users)


def build_local(config: FairVFL, party: str, coder: FieldCoder | TextCoder, seed: int) -> nn.Module:
    """Return a party's model of its own columns."""
    name = config.local_of(party)
    if isinstance(coder, FieldCoder):
        return TABULAR[name](
            coder.sizes,
            config.width,
            seed=seed,
            embedding_width=config.embedding,
            dropout=config.dropout,
            dtype=dtype_of(config),
        )
    return _Indexed(build_reader(config, name, coder, seed))


def build_reader(config: FairVFL, name: str, coder: TextCoder, seed: int) -> UserEncoder:
    """Return a model that reads texts."""
    further: dict[str, Any] = {"users": len(coder.readers or ())} if name == "lstur" else {}
    further |= {"embedding_width": config.embedding, "dropout": config.dropout, "dtype": dtype_of(config)}
    if name == "nrms":
        further["heads"] = config.heads
    return TEXTUAL[name](coder.vocabulary, config.width, seed=seed, **further)


class Aggregator(nn.Module):
    """Make one code of all parties' codes: self-attention over them, attention pooling, and, if robust, a narrow end.

    The narrow end is a linear map and a normalisation without weights of its own, so that noise of a known strength is
    as strong for every direction of the code.
    """

    def __init__(self, config: FairVFL, parties: int, seed: int) -> None:
        super().__init__()
        generator = seeded_generator(seed)
        dtype, width = dtype_of(config), config.width
        self._is_attention = config.aggregation == "attention"
        if self._is_attention:
            self.attention = SelfAttention(
                width, config.heads, width // config.heads, generator=generator, dtype=dtype, scale=config.scale
            )
            self.pooling = AdditiveAttention(width, config.pooling_hidden, generator=generator, dtype=dtype)
        else:
            self.dense = mlp((width * parties, width, width), seed=seed, dropout=config.dropout, dtype=dtype)
            # These layers drew from the same seed, and the narrow end would begin with their numbers.
            reseed(generator, seed + 1)
        self.narrow = None
        if config.is_robust:
            self.narrow = nn.Sequential(
                seeded_linear(width, config.code_width, generator, dtype),
                nn.LayerNorm(config.code_width, elementwise_affine=False),
            )

    def forward(self, codes: torch.Tensor, is_there: torch.Tensor) -> torch.Tensor:
        """Return one code for every row, from codes by row and party."""
        if self._is_attention:
            pooled = self.pooling(self.attention(codes, is_there), is_there)
        else:
            pooled = self.dense((codes * is_there[..., None]).flatten(1))
        return cast(torch.Tensor, pooled if self.narrow is None else self.narrow(pooled))


def build_aggregator(config: FairVFL, parties: int, seed: int) -> Aggregator:
    """Return the aggregator of so many parties' codes."""
    return Aggregator(config, parties, seed)


def build_task(config: FairVFL, outputs: int, seed: int) -> nn.Sequential:
    """Return the task's model."""
    widths = (config.unified_width, *config.task_hidden, outputs)
    return mlp(widths, seed=seed, dropout=config.dropout, dtype=dtype_of(config))


def build_mapper(config: FairVFL, attribute: str, seed: int) -> nn.Sequential:
    """Return what makes an attribute's protected code."""
    widths = (config.unified_width, *config.mapper_hidden, config.width_of(attribute))
    return mlp(widths, seed=seed, dropout=config.dropout, dtype=dtype_of(config))


def build_contrastive(config: FairVFL, attribute: str, seed: int) -> nn.Sequential:
    """Return what tells of which code a protected code was made."""
    widths = (config.width_of(attribute) + config.unified_width, *config.contrastive_hidden, 1)
    return mlp(widths, seed=seed, dropout=config.dropout, dtype=dtype_of(config))


def build_discriminator(config: FairVFL, attribute: str, outputs: int, seed: int) -> nn.Sequential:
    """Return what tells an attribute from its protected code."""
    widths = (config.width_of(attribute), *config.discriminator_hidden, outputs)
    return mlp(widths, seed=seed, dropout=config.dropout, dtype=dtype_of(config))
