"""Masks: random integers, uniform over the whole plaintext ring, that hide a value from the owner of the key.

A value plus such a mask, modulo n, is uniform whatever the value is. Masks come from the operating system, never from a
training seed, and serve once.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from gmpy2 import mpz

from colonnade.crypto.chunks import join_numbers, split_numbers
from colonnade.crypto.fixed_point import FixedPoint
from colonnade.crypto.layout import Layout
from colonnade.crypto.paillier import PublicKey
from colonnade.errors import SlotOverflow, WrongContent

__all__ = ["Mask", "RingElements", "ring_elements", "ring_integers"]

RingElements = np.ndarray[Any, Any]
"""Integers modulo n as they cross a channel: one row of bytes each."""


@dataclass(frozen=True, repr=False, eq=False)
class Mask:
    """What was added to a ciphertext array, and how to take it off again."""

    layout: Layout
    key: PublicKey
    integers: tuple[int, ...]

    @classmethod
    def draw(cls, layout: Layout, key: PublicKey) -> Mask:
        """Draw one integer modulo n for every ciphertext."""
        return cls(layout, key, tuple(secrets.randbelow(int(key.n)) for _ in range(layout.count)))

    def remove(self, opened: RingElements) -> FixedPoint:
        """Return what the key's owner opened, without the mask.

        Where the hidden values were one party's share, the owner has added the other's, so these are the sums.
        """
        elements = ring_integers(opened, self.key, len(self.integers))
        half = self.key.n >> 1
        found = []
        for element, mask in zip(elements, self.integers, strict=True):
            value = (element - mask) % self.key.n
            found.append(int(value - self.key.n if value > half else value))
        try:
            return self.layout.unpack(found)
        except SlotOverflow as overflow:
            raise WrongContent(str(overflow)) from None


def ring_elements(integers: Sequence[int | mpz], key: PublicKey) -> RingElements:
    """Write integers modulo n as rows of bytes."""
    content = join_numbers([mpz(one) % key.n for one in integers], key.width)
    return np.frombuffer(content, np.uint8).reshape(len(integers), key.width)


def ring_integers(elements: RingElements, key: PublicKey, count: int) -> list[mpz]:
    """Read what `ring_elements` wrote, from a stranger."""
    if elements.shape != (count, key.width) or elements.dtype != np.uint8:
        raise WrongContent(f"{count} opened values of {key.width} bytes were expected; the partner sent others.")
    numbers = split_numbers(np.ascontiguousarray(elements).tobytes(), key.width)
    if any(one >= key.n for one in numbers):
        raise WrongContent("An opened value is larger than the key; the partner sent something else.")
    return numbers
