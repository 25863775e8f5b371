"""The hard limits a decoder applies before it allocates anything."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LIMITS", "Limits"]


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Bounds on what one frame may ask of its receiver.

    Arrays are read in place, so their memory is bounded by the bytes that really arrived; the other bounds keep small
    frames from unfolding into many Python objects.
    """

    frame_bytes: int = 2**32
    text_bytes: int = 2**20
    integer_bytes: int = 1536
    """Enough for the square of a 4096-bit modulus, and below what Python refuses to print (4300 digits)."""
    entries: int = 2**20
    depth: int = 8
    dimensions: int = 8
    dimension: int = 2**40


LIMITS = Limits()
