"""Fixed point in the ring of 64-bit words: what is masked, shared and added up without Paillier.

Words wrap modulo 2**64, so a uniform word added to one makes it uniform whatever it was, and sums are exact however the
parts were split. A sum is read as a signed number; its parts are limited so that it cannot reach the sign bit.

>>> ring = Ring(parties=2)
>>> ring.decode(ring.encode(np.array([0.5, -1.25])) + ring.encode(np.array([0.25, 0.25]))).tolist()
[0.75, -1.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import ConfigError, OutOfRange, WrongContent

__all__ = ["FRACTION_BITS", "WORD_BITS", "Ring", "RingEncoder", "Words"]

Words: TypeAlias = npt.NDArray[np.uint64]
"""Integers modulo 2**64."""

FRACTION_BITS = 40
WORD_BITS = 64
# One bit for the sign, and one that stays empty: a sum that uses it is no sum of numbers within their range.
_SUM_BITS = WORD_BITS - 2


@dataclass(frozen=True)
class Ring:
    """How numbers become words: the step is 2**-fraction_bits, and so many parties' numbers are added up."""

    parties: int
    fraction_bits: int = FRACTION_BITS

    def __post_init__(self) -> None:
        if self.parties < 1 or not 0 <= self.fraction_bits < _SUM_BITS:
            raise ConfigError(f"{self.parties} parties cannot add up numbers of {self.fraction_bits} fraction bits.")

    @property
    def limit(self) -> float:
        """Return what the magnitude of every party's numbers must stay below."""
        return 2.0 ** (_SUM_BITS - self.fraction_bits) / self.parties

    def encode(self, values: np.ndarray[Any, Any]) -> Words:
        """Round numbers to words; raise OutOfRange for what is not finite or too large."""
        return RingEncoder(self).encode(values)

    def decode(self, words: Words) -> npt.NDArray[np.float64]:
        """Return the numbers that sums of words stand for; raise WrongContent where they cannot be such sums."""
        signed = words.view(np.int64)
        numbers = np.multiply(signed, 2.0**-self.fraction_bits, dtype=np.float64)
        if numbers.size and max(numbers.max(), -numbers.min()) > self.limit * self.parties:
            raise WrongContent(
                "A sum of masked values lies outside the range all parties agreed on: their masks or shares do not "
                "cancel. Check that all parties send the same batches in the same order, and run again."
            )
        return numbers


class RingEncoder:
    """Rounds numbers again and again, in memory it keeps: fresh memory for every batch costs more than the rounding."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring
        self._scaled = np.empty(0)
        self._words: Words = np.empty(0, np.uint64)

    def encode(self, values: np.ndarray[Any, Any]) -> Words:
        """Return the words of some numbers; the next call overwrites them."""
        if values.dtype not in (np.float32, np.float64):
            raise OutOfRange(f"An array of type {values.dtype} cannot be masked. Use float32 or float64.")
        if values.shape != self._words.shape:
            self._scaled, self._words = np.empty(values.shape), np.empty(values.shape, np.uint64)
        # Put this way round, so that what is not a number is refused too.
        if values.size and not max(float(values.max()), -float(values.min())) < self.ring.limit:
            raise OutOfRange(
                f"A value to be masked is not finite or not below {self.ring.limit:g}, the most that "
                f"{self.ring.parties} parties can add up. Scale the columns down, or lower the learning rate if "
                "training diverges."
            )
        scaled = np.multiply(values, 2.0**self.ring.fraction_bits, out=self._scaled, dtype=np.float64)
        np.rint(scaled, out=self._words.view(np.int64), casting="unsafe")
        return self._words
