"""Numbers as integers with one public scale for a whole array.

A scale of its own for every value, as python-paillier has it, would be sent in the clear and tell magnitudes. Here the
format is agreed before any value is seen, and everything after the encoding is exact integer arithmetic.

>>> weights = FixedPoint.encode([0.5, -1.25], Format(fraction_bits=4, magnitude_bits=2))
>>> weights.integers.tolist(), weights.bound
([8, -20], 64)
>>> weights.decode().tolist()
[0.5, -1.25]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from colonnade.errors import OutOfRange

__all__ = ["FixedPoint", "Format", "Integers"]

Integers: TypeAlias = np.ndarray[Any, Any]
"""int64 where every value surely fits, Python's own integers otherwise."""

# Sums and differences of two such numbers still fit into int64.
_NARROW = 2**61


@dataclass(frozen=True)
class Format:
    """How numbers become integers: the smallest step is 2**-fraction_bits, the largest magnitude 2**magnitude_bits."""

    fraction_bits: int
    magnitude_bits: int

    def __post_init__(self) -> None:
        if self.fraction_bits < 0 or self.fraction_bits + self.magnitude_bits < 0:
            raise OutOfRange(f"No numbers fit a format of {self.fraction_bits} and {self.magnitude_bits} bits.")

    @property
    def bound(self) -> int:
        """Return the largest integer an encoded value can be."""
        return 1 << (self.fraction_bits + self.magnitude_bits)


@dataclass(frozen=True, eq=False)
class FixedPoint:
    """An array of integers that stand for themselves times 2**-fraction_bits.

    ``bound`` is a public limit on their magnitude: agreed beforehand, never taken from the values. For one party's
    share of a number it limits the number, not the share, which may be far larger.
    """

    integers: Integers = field(repr=False)
    fraction_bits: int
    bound: int
    is_share: bool = False

    @classmethod
    def encode(cls, values: npt.ArrayLike, format: Format) -> FixedPoint:
        """Round numbers to a format; raise OutOfRange for what is not finite or too large for it."""
        array = np.asarray(values)
        if array.dtype.kind not in "fiub" and array.size:
            raise OutOfRange(f"An array of type {array.dtype} cannot be encrypted. Use floats or integers.")
        if array.dtype.kind == "f" or not array.size:
            integers = _from_floats(array.astype(np.float64), format)
        else:
            integers = _from_integers(array, format)
        return cls(integers, format.fraction_bits, format.bound)

    @classmethod
    def share(cls, integers: Integers, fraction_bits: int, bound: int) -> FixedPoint:
        """Take one party's additive share of numbers that are within a bound once all shares are added."""
        return cls(integers.astype(object), fraction_bits, bound, is_share=True)

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the array."""
        return tuple(self.integers.shape)

    @property
    def T(self) -> FixedPoint:  # noqa: N802 - numpy's name
        """Return the transposed array."""
        return FixedPoint(self.integers.T, self.fraction_bits, self.bound, self.is_share)

    def decode(self) -> npt.NDArray[np.float64]:
        """Return the numbers, each the float nearest to what its integer stands for."""
        if self.is_share:
            raise OutOfRange("One party's share says nothing by itself; add the other party's share before decoding.")
        if self.integers.dtype == np.int64:
            return np.ldexp(self.integers.astype(np.float64), -self.fraction_bits)
        scale = 1 << self.fraction_bits
        flat = [int(value) / scale for value in self.integers.reshape(-1)]
        return np.array(flat, dtype=np.float64).reshape(self.shape)


def _from_floats(values: npt.NDArray[np.float64], format: Format) -> Integers:
    if not np.isfinite(values).all():
        raise OutOfRange("A value to be encrypted is not a finite number. Training may have diverged; check the input.")
    if values.size and np.abs(values).max() > 2.0**format.magnitude_bits:
        raise _too_large(format)
    scaled = np.rint(np.ldexp(values, format.fraction_bits))
    if format.bound <= _NARROW:
        return scaled.astype(np.int64)
    wide = np.array([int(value) for value in scaled.reshape(-1)], dtype=object)
    return wide.reshape(scaled.shape)


def _from_integers(values: np.ndarray[Any, Any], format: Format) -> Integers:
    limit = 2.0**format.magnitude_bits
    if values.size and (int(values.max()) > limit or int(values.min()) < -limit):
        raise _too_large(format)
    if format.bound <= _NARROW:
        return values.astype(np.int64) << format.fraction_bits
    return values.astype(object) << format.fraction_bits


def _too_large(format: Format) -> OutOfRange:
    return OutOfRange(
        f"A value to be encrypted is larger than 2^{format.magnitude_bits}, the largest this protocol has room for. "
        "Scale the column down, or lower the learning rate if training diverges."
    )
