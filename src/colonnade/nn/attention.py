"""Attention by which one row's representation is put together from those of other rows."""

from __future__ import annotations

import math

import torch

__all__ = ["attention_weights", "key_counts"]

# What a row's temperature is raised by until it spreads over enough keys. The last rise makes all weights equal.
_RISE = 1.5
_RISES = 24


def attention_weights(
    queries: torch.Tensor,
    keys: torch.Tensor,
    temperature: float,
    *,
    hidden: torch.Tensor | None = None,
    least_keys: float = 0.0,
) -> torch.Tensor:
    """Return the softmax of the queries' products with keys, over the root of their width and the temperature.

    ``hidden`` marks, by query and key, what a query must not look at; a query that may look at nothing gets no weight
    at all. ``least_keys`` raises the temperature of single rows until they spread over so many keys: a sharper row
    would tell which one key it is near to.
    """
    logits = (queries / (math.sqrt(max(queries.shape[1], 1)) * temperature)) @ keys.T
    if hidden is not None:
        logits = logits.masked_fill(hidden, -math.inf)
        is_blind = hidden.all(dim=1, keepdim=True)
        if bool(is_blind.any()):
            logits = torch.where(is_blind, torch.zeros_like(logits), logits)
            weights = torch.where(is_blind, torch.zeros_like(logits), logits.softmax(dim=1))
        else:
            weights = logits.softmax(dim=1)
    else:
        weights = logits.softmax(dim=1)
    if least_keys > 0.0:
        weights = _spread(weights, logits, least_keys)
    return weights


def key_counts(weights: torch.Tensor) -> torch.Tensor:
    """Return over how many keys each row effectively spreads: the exponential of its entropy."""
    counts: torch.Tensor = torch.special.entr(weights).sum(dim=1).exp()
    return counts


def _spread(weights: torch.Tensor, logits: torch.Tensor, least_keys: float) -> torch.Tensor:
    factor = 1.0
    for rise in range(_RISES + 1):
        is_sharp = key_counts(weights) < least_keys
        if not bool(is_sharp.any()):
            break
        factor = factor / _RISE if rise < _RISES else 0.0
        # Zero times minus infinity is no number: hidden keys stay hidden.
        softer = torch.where(logits.isinf(), logits, logits * factor).softmax(dim=1)
        weights = torch.where(is_sharp[:, None], softer, weights)
    return weights
