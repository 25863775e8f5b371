"""The arithmetic of FairVFL without any session: counterparts, losses of adversaries, noise that repeats."""

from __future__ import annotations

import hashlib
import math

import torch
from torch import nn
from torch.nn import functional

from colonnade.privacy import SecretNoise

__all__ = [
    "adversary_losses",
    "cooled_down",
    "counterparts",
    "doubts",
    "noise_by_row",
    "pair_loss",
    "warmed_up",
]

# Codes that differ less than this count as the same: sums may be rounded differently in batches of another size.
_SAME = 1e2


def counterparts(
    protected: torch.Tensor, same: torch.Tensor, nearest: int, relevance: str, generator: torch.Generator
) -> torch.Tensor | None:
    """Return for every row another one, drawn among those whose protected codes are most like its own.

    ``same`` marks, by row and row, who is known to be the same person; a row is never its own counterpart. None where
    there are fewer than three rows, or a row has nobody to be compared with.
    """
    rows = len(protected)
    if rows < 3:
        return None
    codes = functional.normalize(protected, dim=1) if relevance == "cosine" else protected
    alike = (codes @ codes.T).masked_fill(same | torch.eye(rows, dtype=torch.bool), -math.inf)
    some = min(nearest, rows - 1)
    values, places = alike.topk(some, dim=1)
    there = values > -math.inf
    counts = there.sum(dim=1)
    if int(counts.min()) == 0:
        return None
    drawn = torch.rand(rows, generator=generator, dtype=torch.float64)
    # Hidden rows come last among the nearest, so that the first ``counts`` of them are the ones to draw from.
    chosen = (drawn * counts).long().clamp(max=some - 1)
    return places.gather(1, chosen[:, None]).squeeze(1)


def pair_loss(
    discriminator: nn.Module, protected: torch.Tensor, codes: torch.Tensor, others: torch.Tensor
) -> torch.Tensor:
    """Return how badly the discriminator tells from which of two codes a protected code was made."""
    scores = [discriminator(torch.cat([protected, one], dim=1)) for one in (codes, others)]
    # Cross-entropy over the two, the first being right: log(1 + exp(second - first)).
    return functional.softplus(scores[1] - scores[0]).mean()


def adversary_losses(scores: torch.Tensor, targets: torch.Tensor, is_numeric: bool) -> torch.Tensor:
    """Return the loss of every row, for every class it might have; for numbers, the squared error, in one column."""
    if is_numeric:
        return (scores - targets[:, None]) ** 2
    return -functional.log_softmax(scores, dim=1)


def doubts(scores: torch.Tensor) -> torch.Tensor:
    """Return, for classes, how undecided a discriminator is, by row: the entropy of what it says."""
    logs = functional.log_softmax(scores, dim=1)
    return -(logs.exp() * logs).sum(dim=1)


def warmed_up(step: int, steps_per_epoch: int, epochs: float) -> float:
    """Return the share of its weight that removal has at a step, counted from 1."""
    last = epochs * steps_per_epoch
    return 1.0 if last <= 0 else min(1.0, step / last)


def cooled_down(step: int, steps: int, share: float) -> float:
    """Return the share of its learning rate that the model has at a step, counted from 1, of so many."""
    last = share * steps
    return 1.0 if last <= 0 else min(1.0, (steps - step + 1) / last)


def noise_by_row(key: bytes, codes: torch.Tensor, width: int) -> torch.Tensor:
    """Return noise of variance 1 for rows, which a row gets again whenever it has the same codes.

    Who asks for one row many times over so gets the same noise, and cannot average it away.
    """
    noise = SecretNoise(key)
    rounded = (codes.reshape(len(codes), -1).double() * _SAME).round().long().numpy()
    found = torch.empty(len(codes), width, dtype=torch.float64)
    for row, values in enumerate(rounded):
        counter = int.from_bytes(hashlib.sha256(values.tobytes()).digest()[:8], "little")
        found[row] = torch.from_numpy(noise.gaussian("rows", counter, (width,)))
    return found
