"""How long the heavy work takes on this machine: one modular multiplication, measured once."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable

from gmpy2 import mpz

__all__ = ["measure_multiplication", "multiplication_seconds"]

_REPEATS = 7


@functools.cache
def multiplication_seconds(modulus_bits: int) -> float:
    """Return the time of one multiplication modulo a number of so many bits, as it was when first asked for."""
    return measure_multiplication(modulus_bits)


def measure_multiplication(modulus_bits: int, clock: Callable[[], float] = time.perf_counter) -> float:
    """Measure one multiplication modulo a number of so many bits: the median of a few short runs."""
    modulus = (mpz(1) << modulus_bits) - 159
    value = (mpz(1) << (modulus_bits - 1)) // 3
    count = max(20, 1_000_000 // modulus_bits)
    times = []
    for _ in range(_REPEATS):
        number = value
        start = clock()
        for _ in range(count):
            number = number * value % modulus
        times.append((clock() - start) / count)
    return statistics.median(times)
