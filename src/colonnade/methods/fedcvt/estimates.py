"""At level 2: feature holders average, by their attention, what others' codes of shared rows add to scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import CipherArray, Format, Layout, PrivateKey, PublicKey
from colonnade.exchanges.open_masked import Opening
from colonnade.exchanges.weighted_sums import WeightedSums
from colonnade.methods.fedcvt.messages import AlignedGradient, AlignedLogits, EstimatedLogits, EstimateGradient
from colonnade.session import Channel

__all__ = [
    "GRADIENTS",
    "LOGITS",
    "answer_estimates",
    "answer_gradient",
    "ask_estimates",
    "ask_gradient",
    "receive_logits",
    "take_estimates",
    "take_gradient",
]

Numbers = npt.NDArray[np.float64]

_ATTENTION = Format(fraction_bits=24, magnitude_bits=0)
LOGITS = WeightedSums(Format(fraction_bits=24, magnitude_bits=9), _ATTENTION)
GRADIENTS = WeightedSums(Format(fraction_bits=36, magnitude_bits=3), _ATTENTION)


def ask_estimates(peer: Channel, key: PrivateKey, kinds: Sequence[torch.Tensor]) -> Layout:
    """Send what the other parties' codes of shared rows add, by kind, under this party's key."""
    sealed = LOGITS.seal(key, torch.cat(list(kinds)).detach().double().numpy())
    peer.send(AlignedLogits(sealed))
    return sealed.layout


def receive_logits(peer: Channel, key: PublicKey, shape: tuple[int, int]) -> CipherArray:
    """Receive what other parties' codes of shared rows add, to be averaged."""
    return peer.receive(AlignedLogits).values.under(key, LOGITS.layout(shape, key.bits))


def answer_estimates(peer: Channel, logits: CipherArray, weights: Numbers) -> None:
    """Average them by this party's attention and return the result."""
    peer.send(EstimatedLogits(LOGITS.weigh(logits, weights)))


def take_estimates(peer: Channel, key: PrivateKey, layout: Layout, rows: int) -> Numbers:
    """Receive the averages for so many rows of the partner."""
    opening = Opening(peer, EstimatedLogits, key)
    return LOGITS.open(opening, opening.received.values, layout, rows)


def ask_gradient(peer: Channel, key: PrivateKey, gradient: torch.Tensor) -> Layout:
    """Send the gradient at estimated scores, to be carried back to shared rows."""
    sealed = GRADIENTS.seal(key, gradient.double().numpy())
    peer.send(EstimateGradient(sealed))
    return sealed.layout


def answer_gradient(peer: Channel, key: PublicKey, weights: Numbers, columns: int) -> None:
    """Carry such a gradient back by this party's attention, unseen."""
    layout = GRADIENTS.layout((len(weights), columns), key.bits)
    received = peer.receive(EstimateGradient).values.under(key, layout)
    peer.send(AlignedGradient(GRADIENTS.weigh(received, weights.T)))


def take_gradient(peer: Channel, key: PrivateKey, layout: Layout, rows: int) -> Numbers:
    """Receive the gradient at so many shared rows, the kinds of code below each other."""
    opening = Opening(peer, AlignedGradient, key)
    return GRADIENTS.open(opening, opening.received.values, layout, rows)
