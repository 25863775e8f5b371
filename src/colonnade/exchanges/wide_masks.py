"""Hide whole numbers from the owner of a key, and share them in the ring of 64-bit words at the same time.

A mask is uniform modulo n, so that it hides whatever a ciphertext holds, also what an owner that deviates has put into
it beyond all ranges. Each party takes its share from its own slots modulo 2**64. Slots are 2**hiding_bits times as wide
as the numbers, so that a mask in the slots below carries into a share, which then is off by one in its last place, with
a probability of 2**-hiding_bits; as rarely the mask wraps modulo n, and the shares of one ciphertext are lost.
"""

from __future__ import annotations

from dataclasses import replace

from colonnade.crypto import CipherArray, Layout
from colonnade.crypto.ring import WORD_BITS, Words
from colonnade.exchanges.open_masked import Opening

__all__ = ["HIDING_BITS", "hide", "lines_that_pay", "masked_bound", "open_share", "side_by_side"]

HIDING_BITS = WORD_BITS + 40


def masked_bound(bound: int, hiding_bits: int = HIDING_BITS) -> int:
    """Return the limit of slots for numbers within a bound, so that masks hardly ever carry between them."""
    return bound + (1 << (max(bound.bit_length() + hiding_bits, WORD_BITS) - 1))


def hide(array: CipherArray, bound: int) -> tuple[CipherArray, Words]:
    """Add a fresh mask, in slots for a bound, and return what takes it off in the ring."""
    masked, mask = array.widened(bound).mask()
    return masked, -masked.layout.words(mask.integers)


def open_share(opening: Opening, array: CipherArray, layout: Layout) -> Words:
    """Decrypt what a partner has hidden in this way, and return it as this party's share in the ring."""
    return layout.words(opening.integers(array, layout))


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
