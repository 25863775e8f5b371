"""Gradients on ciphertexts: what one party computes with the other's encrypted signals.

All factors are merged before they are encoded, so that a layer is one product of ciphertexts with plain numbers. Every
array has one public scale: 32 fraction bits for what is sent, and 32 more for every product.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import SystemRandom

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PublicKey, concatenate
from colonnade.methods.ftl.encoder import Layers
from colonnade.methods.ftl.maths import triangle

__all__ = [
    "CODES",
    "FRACTION_BITS",
    "REMAINDER",
    "ROWS",
    "Small",
    "by_entry",
    "code_sums",
    "gradient_layouts",
    "hidden_layers",
    "last_layer",
    "loss_on_codes",
    "moment_format",
    "noise_for",
    "plan",
    "ready",
    "row_gradients",
    "weighted_sums",
]

Numbers = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]

FRACTION_BITS = 32
CODES = Format(FRACTION_BITS, 0)
"""Codes lie between -1 and 1."""
ROWS = Format(FRACTION_BITS, 8)
"""Row signals, the translator and its moment; larger ones mean that training diverges."""
REMAINDER = Format(FRACTION_BITS, 24)
"""The target's own part of the loss, a sum over rows."""
_FACTOR_BITS = 22
_FACTORS = Format(FRACTION_BITS, _FACTOR_BITS)
"""Sums over rows of derivatives."""
_LOSS = Format(FRACTION_BITS, 14)
_CHAIN = Format(FRACTION_BITS, 6)
"""Weights times slopes, on the way back through the layers."""
_INPUTS = Format(FRACTION_BITS, 4)
# Beyond the scale, what sums over all rows may reach: enough for some hundred thousand rows and codes of 128 numbers.
_REPLY_BITS = 64


@dataclass(frozen=True)
class Small:
    """A few ciphertexts that all parameters depend on, and how the layers below the last one do."""

    values: CipherArray
    """A vector."""
    jacobians: Sequence[Numbers]
    """For each layer below the last, first to last: entries by parameters."""


def moment_format(rows: int) -> Format:
    """Return the format of sums over rows of products of two codes."""
    return Format(FRACTION_BITS, max(rows, 1).bit_length())


def plan(shape: tuple[int, ...], format: Format, key: PublicKey) -> Layout:
    """Return the layout of an array that is sent one number to a ciphertext."""
    return Layout.plan(shape, None, modulus_bits=key.bits, fraction_bits=format.fraction_bits, bound=format.bound)


def last_layer(parts: Sequence[tuple[CipherArray, Places]], factors: Numbers) -> CipherArray:
    """Return the last layer's gradient as a vector, outputs by inputs and bias.

    Each part comes with the places of its entries: code entries by terms. ``factors`` is code entries by all parts'
    terms by inputs.
    """
    joined = concatenate([values for values, _ in parts])
    sizes = np.cumsum([0, *[int(np.prod(values.shape)) for values, _ in parts]])
    places = np.concatenate([where + start for (_, where), start in zip(parts, sizes[:-1], strict=True)], axis=1)
    return _flat(joined.gather(places).each_product(FixedPoint.encode(factors, _FACTORS)))


def by_entry(rows: int, width: int) -> Places:
    """Return the places of rows-by-width values, code entry by code entry."""
    return np.arange(rows * width).reshape(rows, width).T


def hidden_layers(
    rows: CipherArray, coefficient: float, layers: Layers, weights: Sequence[Numbers], small: Sequence[Small]
) -> list[CipherArray]:
    """Return the gradients of the layers below the last, last to first, each as a vector.

    ``rows`` are signals at the codes of shared rows, to be multiplied by the coefficient; ``small`` is what all rows
    together add.
    """
    found: list[CipherArray] = []
    if len(weights) == 1:
        return found
    factors = layers.slopes[-1][:, :, None] * weights[-1][None] * layers.slopes[-2][:, None, :]
    signal = rows.each_product(FixedPoint.encode(coefficient * factors, _CHAIN))
    for layer in range(len(weights) - 2, -1, -1):
        turned = signal.gather(by_entry(*signal.shape))
        gradient = _flat(turned @ FixedPoint.encode(layers.inputs[layer], _INPUTS))
        scale = gradient.layout.fraction_bits
        for one in small:
            format = Format(scale - one.values.layout.fraction_bits, _FACTOR_BITS)
            gradient = gradient + one.values @ FixedPoint.encode(one.jacobians[layer], format)
        found.append(gradient)
        if layer:
            back = weights[layer][None] * layers.slopes[layer - 1][:, None, :]
            signal = signal.each_product(FixedPoint.encode(back, _CHAIN))
    return found


def code_sums(codes: CipherArray, labelled: npt.NDArray[np.bool_]) -> CipherArray:
    """Return the sum of the codes of labelled rows, entry by entry."""
    chosen = np.broadcast_to(labelled.astype(np.int64)[None, :, None], (codes.shape[1], len(labelled), 1))
    return _flat(codes.gather(by_entry(*codes.shape)).each_product(FixedPoint(np.ascontiguousarray(chosen), 0, 1)))


def weighted_sums(codes: CipherArray, weights: Numbers) -> CipherArray:
    """Return sums of codes, weighted by rows-by-scores numbers: scores by code entries, as a vector."""
    width, scores = codes.shape[1], weights.shape[1]
    factors = np.broadcast_to(weights[None], (width, *weights.shape))
    sums = codes.gather(by_entry(*codes.shape)).each_product(FixedPoint.encode(factors, ROWS))
    return sums.gather(np.arange(width * scores).reshape(width, scores).T.reshape(-1))


def loss_on_codes(
    codes: CipherArray, moment: CipherArray, remainder: CipherArray, factors: tuple[Numbers, Numbers]
) -> CipherArray:
    """Return the loss but for what this party knows, as a vector of one."""
    on_codes, on_moment = factors
    joined = concatenate([codes, moment, remainder])
    every = np.concatenate([on_codes.reshape(-1), on_moment, np.ones(1)])
    return joined @ FixedPoint.encode(every[:, None], _LOSS)


def row_gradients(
    rows: CipherArray, moment: CipherArray, codes: Numbers, labelled: npt.NDArray[np.bool_]
) -> CipherArray:
    """Return the gradient at the target's codes, row by row, as a vector: what reveal = rows opens."""
    width = codes.shape[1]
    # One product each: the row's own signal times one, and the moment times the row's code.
    square = moment.gather(triangle(width))
    products = square.left_product(FixedPoint.encode(np.where(labelled[:, None], codes, 0.0), CODES))
    lifted = (
        _flat(rows)
        .gather(np.arange(codes.size).reshape(-1, 1))
        .each_product(
            FixedPoint(
                np.full((codes.size, 1, 1), 1 << FRACTION_BITS, dtype=np.int64), FRACTION_BITS, 1 << FRACTION_BITS
            )
        )
    )
    return _flat(products) + _flat(lifted)


def ready(gradient: CipherArray) -> CipherArray:
    """Put a gradient into the agreed form in which its owner's partner opens it: side by side, with agreed room."""
    scale = gradient.layout.fraction_bits
    return _flat(gradient).widened(1 << (scale + _REPLY_BITS)).packed()


def gradient_layouts(counts: Sequence[int], scales: Sequence[int], key: PublicKey) -> list[Layout]:
    """Return the form of gradients of so many entries at these scales."""
    return [
        Layout.plan((count,), 0, modulus_bits=key.bits, fraction_bits=scale, bound=1 << (scale + _REPLY_BITS))
        for count, scale in zip(counts, scales, strict=True)
    ]


def noise_for(layout: Layout, deviation: float, spared: int) -> FixedPoint:
    """Draw noise for a gradient that is opened for the partner; its last ``spared`` entries, a loss, get none."""
    source = SystemRandom()
    noise = [
        round(source.gauss(0.0, deviation) * 2.0**32) << (layout.fraction_bits - 32)
        for _ in range(layout.shape[0] - spared)
    ]
    return FixedPoint(np.array([*noise, *[0] * spared], dtype=object), layout.fraction_bits, layout.bound)


def _flat(values: CipherArray) -> CipherArray:
    return values.gather(np.arange(int(np.prod(values.shape))))
