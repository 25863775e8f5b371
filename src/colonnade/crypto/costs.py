"""How long the heavy work takes on this machine: one modular multiplication, measured once."""

from __future__ import annotations

import functools
import statistics
import time

from gmpy2 import mpz

__all__ = ["multiplication_seconds"]

_REPEATS = 7


@functools.cache
def multiplication_seconds(modulus_bits: int) -> float:
    """Return the time of one multiplication modulo a number of so many bits, as the median of a few measurements."""
    modulus = (mpz(1) << modulus_bits) - 159
    value = (mpz(1) << (modulus_bits - 1)) // 3
    count = max(20, 1_000_000 // modulus_bits)
    times = []
    for _ in range(_REPEATS):
        number = value
        start = time.perf_counter()
        for _ in range(count):
            number = number * value % modulus
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times)
