"""Sums over rows that only one party sees, weighted by numbers that only another has, into shares of both.

The owner holds rows X (n by d) and a Paillier key; the partner holds weights V (k by n):

1. owner to partner: [[X]], once, for any number of products;
2. partner to owner: [[V X + M]], freshly randomised, with a mask M of whole numbers, uniform over a range 2**40 times
   as wide as any sum; the partner keeps -M modulo 2**64;
3. the owner decrypts and keeps V X + M modulo 2**64. Both shares together are V X.

The owner sees numbers that differ from a mask alone with a probability of 2**-40 each. The partner sees ciphertexts
under a key it does not have. Sums are exact in the rounded numbers; the more rows, the fewer digits their weights keep.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add

import numpy as np
import numpy.typing as npt

from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, PrivateKey, PublicKey
from colonnade.crypto.ring import Words
from colonnade.exchanges.open_masked import Opening
from colonnade.exchanges.wide_masks import hide, mask_bits, masked_bound, open_share

__all__ = ["SumFormat"]

Numbers = npt.NDArray[np.float64]

_NUMBERS = Format(fraction_bits=20, magnitude_bits=2)
_WEIGHTS = Format(fraction_bits=20, magnitude_bits=5)
_HIDING_BITS = 40
# Up to 2**14 rows weights keep all their digits.
_ROWS_BITS = 14


@dataclass(frozen=True)
class SumFormat:
    """Sizes, from which both parties derive the same ranges and scales."""

    rows: int
    """Of all parts together."""
    columns: int
    sums: int
    """How many sums there are of a column."""
    key_bits: int

    @property
    def weights(self) -> Format:
        """Return the format of the weights."""
        dropped = min(max(self.rows.bit_length() - _ROWS_BITS, 0), _WEIGHTS.fraction_bits)
        return replace(_WEIGHTS, fraction_bits=_WEIGHTS.fraction_bits - dropped)

    @property
    def bound(self) -> int:
        """Return the largest sum."""
        return _NUMBERS.bound * self.weights.bound * self.rows

    @property
    def fraction_bits(self) -> int:
        """Return the fraction bits of the sums."""
        return _NUMBERS.fraction_bits + self.weights.fraction_bits

    def sealed(self, rows: int) -> Layout:
        """Lay out a part of the rows: neighbours in a row share a ciphertext."""
        room = -(-masked_bound(self.bound, _HIDING_BITS) // _NUMBERS.bound)
        layout = {"modulus_bits": self.key_bits, "fraction_bits": _NUMBERS.fraction_bits, "bound": _NUMBERS.bound}
        return Layout.plan((rows, self.columns), 1, **layout, room=room)

    def masked(self) -> Layout:
        """Lay out the sums, as many in a ciphertext as fit."""
        grown = self.sealed(1).grown(masked_bound(self.bound, _HIDING_BITS), self.fraction_bits)
        lines = max(grown.slots // self.columns, 1)
        return replace(grown, shape=(self.sums, self.columns), packed_axis=1, lines=lines)

    def seal(self, key: PrivateKey, rows: Numbers) -> CipherArray:
        """Encrypt rows under one's own key; numbers beyond 4 are cut off."""
        limit, layout = 2.0**_NUMBERS.magnitude_bits, self.sealed(len(rows))
        packed = layout.pack(FixedPoint.encode(np.clip(rows, -limit, limit), _NUMBERS))
        return CipherArray(key, layout, key.encrypt_integers(packed))

    def multiply(self, parts: Sequence[CipherArray], weights: Numbers) -> tuple[CipherArray, Words]:
        """Return weighted sums over the rows of all parts, masked, and this party's share; cut off beyond 32."""
        limit, at, products = 2.0**self.weights.magnitude_bits, 0, []
        for part in parts:
            own = np.clip(weights[:, at : at + part.shape[0]], -limit, limit)
            products.append(part.left_product(FixedPoint.encode(own, self.weights), dense=True))
            at += part.shape[0]
        return hide(reduce(add, products), mask_bits(self.bound, _HIDING_BITS))

    def open(self, opening: Opening, array: CipherArray) -> Words:
        """Decrypt the masked sums: the owner's share."""
        return open_share(opening, array, self.masked())

    def words(self, values: Numbers) -> Words:
        """Return what is added to a share so that the sums grow by these values."""
        return np.rint(np.ldexp(values, self.fraction_bits)).astype(np.int64).view(np.uint64)

    def decode(self, words: Words) -> Numbers:
        """Return the sums, of both shares added up."""
        return np.ldexp(words.view(np.int64).astype(np.float64), -self.fraction_bits)

    def under(self, key: PublicKey, array: CipherArray) -> CipherArray:
        """Check a part that has arrived."""
        return array.under(key, self.sealed(array.shape[0]))
