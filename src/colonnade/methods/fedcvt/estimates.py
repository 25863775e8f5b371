"""At level 2: feature holders average, by their attention, what others' codes of shared rows add to scores."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch

from colonnade.crypto import CipherArray, Format, PrivateKey, PublicKey
from colonnade.exchanges.secure_product import Opening, ProductFormat
from colonnade.methods.fedcvt.messages import AlignedGradient, AlignedLogits, EstimatedLogits, EstimateGradient
from colonnade.session import Channel

__all__ = [
    "answer_estimates",
    "answer_gradient",
    "ask_estimates",
    "ask_gradient",
    "receive_logits",
    "take_estimates",
    "take_gradient",
]

Numbers = npt.NDArray[np.float64]

_LOGITS, _GRADIENTS = Format(fraction_bits=24, magnitude_bits=9), Format(fraction_bits=36, magnitude_bits=3)
_ATTENTION = Format(fraction_bits=24, magnitude_bits=0)


def _format(numbers: Format, shape: tuple[int, ...], key: PublicKey) -> ProductFormat:
    rows, columns = shape
    return ProductFormat(terms=rows, columns=columns, key_bits=key.bits, numbers=numbers, factors=_ATTENTION)


def ask_estimates(peer: Channel, key: PrivateKey, kinds: Sequence[torch.Tensor]) -> ProductFormat:
    """Send what the other parties' codes of shared rows add, by kind, under this party's key."""
    values = torch.cat(list(kinds)).detach().double().numpy()
    format = _format(_LOGITS, values.shape, key)
    peer.send(AlignedLogits(format.seal(key, values)))
    return format


def receive_logits(peer: Channel, key: PublicKey, shape: tuple[int, int]) -> CipherArray:
    """Receive what other parties' codes of shared rows add, to be averaged."""
    return peer.receive(AlignedLogits).values.under(key, _format(_LOGITS, shape, key).sealed())


def answer_estimates(peer: Channel, logits: CipherArray, weights: Numbers) -> None:
    """Average them by this party's attention and return the result."""
    format = _format(_LOGITS, logits.shape, logits.key)
    peer.send(EstimatedLogits(format.blurred(logits, weights)))


def take_estimates(peer: Channel, key: PrivateKey, format: ProductFormat, rows: int) -> Numbers:
    """Receive the averages for so many rows of the partner."""
    opening = Opening(peer, EstimatedLogits, key)
    return opening.fixed(opening.received.values, format.sums(rows)).decode()


def ask_gradient(peer: Channel, key: PrivateKey, gradient: torch.Tensor) -> ProductFormat:
    """Send the gradient at estimated scores, to be carried back to shared rows."""
    values = gradient.double().numpy()
    format = _format(_GRADIENTS, values.shape, key)
    peer.send(EstimateGradient(format.seal(key, values)))
    return format


def answer_gradient(peer: Channel, key: PublicKey, weights: Numbers, columns: int) -> None:
    """Carry such a gradient back by this party's attention, unseen."""
    format = _format(_GRADIENTS, (len(weights), columns), key)
    received = peer.receive(EstimateGradient).values.under(key, format.sealed())
    peer.send(AlignedGradient(format.blurred(received, weights.T)))


def take_gradient(peer: Channel, key: PrivateKey, format: ProductFormat, rows: int) -> Numbers:
    """Receive the gradient at so many shared rows, the kinds of code below each other."""
    opening = Opening(peer, AlignedGradient, key)
    return opening.fixed(opening.received.values, format.sums(rows)).decode()
