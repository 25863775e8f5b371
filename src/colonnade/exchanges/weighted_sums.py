"""Let a partner weigh numbers that it cannot see: rows go out encrypted, and weighted sums of them come back.

The owner of the key learns the sums, not the weights. Exact sums of integers would tell far more about the weights than
sums of rounded numbers do, so that digits beyond the precision of the weights are made random.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PrivateKey
from colonnade.exchanges.open_masked import Opening

__all__ = ["WeightedSums", "blurred"]

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class WeightedSums:
    """The formats of numbers and of weights; both parties derive the same layouts from them."""

    numbers: Format
    weights: Format

    def layout(self, shape: tuple[int, ...], key_bits: int) -> Layout:
        """Lay out rows that will be weighed."""
        room = self.weights.bound * max(shape[0], 1)
        fraction_bits, bound = self.numbers.fraction_bits, self.numbers.bound
        return Layout.plan(shape, 1, modulus_bits=key_bits, fraction_bits=fraction_bits, bound=bound, room=room)

    def sums(self, layout: Layout, rows: int) -> Layout:
        """Lay out so many weighted sums of the rows, as many in a ciphertext as fit."""
        product = layout.times(self.weights.bound, self.weights.fraction_bits, layout.shape[0])
        lines = max(layout.slots // layout.shape[1], 1) if layout.shape[1] else 1
        shaped = replace(product, shape=(rows, layout.shape[1]), packed_axis=1, lines=lines)
        return shaped.grown(shaped.bound + _blur(self.weights))

    def seal(self, key: PrivateKey, values: Numbers) -> CipherArray:
        """Encrypt rows under one's own key."""
        layout = self.layout(values.shape, key.bits)
        packed = layout.pack(FixedPoint.encode(values, self.numbers))
        return CipherArray(key, layout, key.encrypt_integers(packed))

    def weigh(self, array: CipherArray, weights: Numbers) -> CipherArray:
        """Return weighted sums of a partner's rows, ready to be sent."""
        return blurred(array.left_product(FixedPoint.encode(weights, self.weights), dense=True), self.weights)

    def open(self, opening: Opening, array: CipherArray, layout: Layout, rows: int) -> Numbers:
        """Return what a partner made of one's own rows, or refuse what cannot be such sums."""
        return opening.fixed(array, self.sums(layout, rows)).decode()


def blurred(product: CipherArray, weights: Format) -> CipherArray:
    """Return a product with random digits beyond its precision, and fresh randomness."""
    bound = _blur(weights)
    drawn = [secrets.randbelow(2 * bound) - bound for _ in range(math.prod(product.shape))]
    noise: np.ndarray[Any, Any] = np.array(drawn, dtype=object).reshape(product.shape)
    return (product + FixedPoint(noise, product.layout.fraction_bits, bound)).rerandomise()


def _blur(weights: Format) -> int:
    return 1 << weights.fraction_bits
