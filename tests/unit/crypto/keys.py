"""Keys of fixed primes, too small for anything but tests, and short ways to look inside."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import gmpy2
import numpy as np

from colonnade.crypto import CipherArray, Format, PrivateKey, decrypt_fixed


def _prime(start: int, remainder: int, modulus: int) -> int:
    found = gmpy2.next_prime(start)
    while found % modulus != remainder:
        found = gmpy2.next_prime(found)
    return int(found)


# 3 divides p - 1 and not q - 1, as for most pairs of primes: the owner can see cubic residues.
KEY = PrivateKey(_prime(15 << 252, 7, 12), _prime(13 << 252, 11, 12))
PUBLIC = KEY.public
TINY = PrivateKey(_prime(15 << 124, 7, 12), _prime(13 << 124, 11, 12))
OTHER = PrivateKey(_prime(29 << 251, 7, 12), _prime(27 << 251, 11, 12))

FORMAT = Format(fraction_bits=8, magnitude_bits=4)
ROOM = FORMAT.bound * 64


def exact(values: Any, format: Format = FORMAT) -> np.ndarray[Any, Any]:
    """Encode with fractions instead of floats."""
    array = np.asarray(values)
    found = np.empty(array.shape, dtype=object)
    for place, value in np.ndenumerate(array):
        found[place] = round(Fraction(value.item()) * 2**format.fraction_bits)
    return found


def crossed(array: CipherArray) -> CipherArray:
    """Give an array to the party without the private key, or back to its owner."""
    return CipherArray.from_bytes(array.to_bytes()).under(PUBLIC, array.layout)


def opened(array: CipherArray) -> list[Any]:
    """Return an array's exact integers, as its owner reads them."""
    # A product with zeros has no randomness of its own, and would be refused.
    found = decrypt_fixed(KEY, crossed(array.rerandomise()))
    assert found.shape == array.shape
    assert found.fraction_bits == array.layout.fraction_bits
    assert all(abs(int(one)) <= found.bound for one in found.integers.reshape(-1))
    nested: list[Any] = found.integers.tolist()
    return nested
