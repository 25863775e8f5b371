"""Powers of one base, looked up instead of computed: for the many encryptions under one key.

The exponent is cut into windows of a few bits; for each window and each digit the power is stored. A power is then one
multiplication per window, with no squarings. The table is a plain run of bytes, so that processes can share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gmpy2 import mpz

__all__ = ["WINDOW_BITS", "WindowTable", "build_table", "table_multiplications"]

WINDOW_BITS = 8
"""A table of 16 MB at 2048 bits. Wider ones save little, take longer to build and leave the processor's cache."""


@dataclass(frozen=True, repr=False)
class WindowTable:
    """All powers needed, as numbers."""

    modulus: mpz
    windows: Sequence[Sequence[mpz]]

    @classmethod
    def from_bytes(cls, content: bytes | memoryview, modulus: mpz) -> WindowTable:
        """Read a table that `build_table` made for this modulus."""
        width, size = _width(modulus), 1 << WINDOW_BITS
        view = memoryview(content)
        entries = [mpz.from_bytes(view[at : at + width], "little") for at in range(0, len(view), width)]
        return cls(modulus, [entries[at : at + size] for at in range(0, len(entries), size)])

    def power(self, exponent: bytes) -> mpz:
        """Return the base to a power given as little-endian bytes, one per window."""
        modulus = self.modulus
        result = self.windows[0][exponent[0]]
        for window, digit in zip(self.windows[1:], exponent[1:], strict=True):
            # Also for the digit 0: skipping it would tell by the time how many there are.
            result = result * window[digit] % modulus
        return result


def build_table(base: mpz, modulus: mpz, exponent_bits: int) -> bytes:
    """Compute a table for exponents of so many bits."""
    width, size = _width(modulus), 1 << WINDOW_BITS
    parts = []
    for _ in range(-(-exponent_bits // WINDOW_BITS)):
        entry = mpz(1)
        for _ in range(size):
            parts.append(entry.to_bytes(width, "little"))
            entry = entry * base % modulus
        base = entry
    return b"".join(parts)


def table_multiplications(exponent_bits: int) -> int:
    """Return how many modular multiplications one power costs."""
    return -(-exponent_bits // WINDOW_BITS) - 1


def _width(modulus: mpz) -> int:
    return -(-int(modulus.bit_length()) // 8)
