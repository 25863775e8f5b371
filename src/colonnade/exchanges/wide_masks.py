"""Hide whole numbers from the owner of a key, and share them in the ring of 64-bit words at the same time.

A mask that is uniform modulo n would hide perfectly, but carries between slots, so that its owner could not take single
numbers modulo 2**64. These masks are whole numbers, uniform over a range that is 2**hiding_bits times as wide as what
they hide: number and mask together differ from a mask alone with a probability of 2**-hiding_bits. The range is a power
of two beyond 2**64, so that modulo 2**64 a mask is uniform without any difference.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import replace
from typing import Any

import numpy as np

from colonnade.crypto import CipherArray, FixedPoint, Layout
from colonnade.crypto.ring import WORD_BITS, Words
from colonnade.exchanges.open_masked import Opening

__all__ = ["HIDING_BITS", "hide", "lines_that_pay", "mask_bits", "masked_bound", "open_share", "side_by_side"]

HIDING_BITS = WORD_BITS + 40

_WORD = 2**WORD_BITS - 1


def mask_bits(bound: int, hiding_bits: int = HIDING_BITS) -> int:
    """Return how many bits masks for numbers within a bound have, with their sign."""
    return max(bound.bit_length() + hiding_bits, WORD_BITS)


def masked_bound(bound: int, hiding_bits: int = HIDING_BITS) -> int:
    """Return the limit of numbers within a bound, behind their masks."""
    return bound + (1 << (mask_bits(bound, hiding_bits) - 1))


def hide(array: CipherArray, bits: int) -> tuple[CipherArray, Words]:
    """Add fresh masks of so many bits and fresh randomness, and return what takes the masks off in the ring."""
    half = 1 << (bits - 1)
    drawn: np.ndarray[Any, Any] = np.empty(math.prod(array.shape), dtype=object)
    drawn[:] = [secrets.randbits(bits) - half for _ in range(drawn.size)]
    mask = FixedPoint(drawn.reshape(array.shape), array.layout.fraction_bits, half)
    return (array + mask).rerandomise(), _words(-mask.integers)


def open_share(opening: Opening, array: CipherArray, layout: Layout) -> Words:
    """Decrypt what a partner has hidden in this way, and return it as this party's share in the ring."""
    return _words(opening.fixed(array, layout).integers)


def lines_that_pay(layout: Layout, key_bits: int) -> int:
    """Return how many lines of an array are best put into one ciphertext before it is returned to the key's owner.

    Counted in multiplications and from public numbers only, so that both parties find the same.
    """
    most = min(layout.slots // max(layout.line_length, 1), layout.line_count)
    # To shift a line by its own length takes a squaring for each bit. To randomise and decrypt a ciphertext takes about
    # as many multiplications as the key has bits, at half the price.
    return most if most > 1 and layout.line_length * layout.slot_bits < key_bits // 2 else 1


def side_by_side(array: CipherArray, lines: int) -> CipherArray:
    """Put so many short lines into each ciphertext, every one above the one before."""
    if lines == 1:
        return array
    layout, key = replace(array.layout, lines=lines), array.key
    groups = [array.ciphertexts[at : at + lines] for at in range(0, len(array.ciphertexts), lines)]
    return CipherArray(key, layout, key.shifted_sums(groups, layout.slot_bits * layout.line_length))


def _words(integers: np.ndarray[Any, Any]) -> Words:
    flat = [int(one) & _WORD for one in integers.reshape(-1)]
    return np.array(flat, dtype=np.uint64).reshape(integers.shape)
