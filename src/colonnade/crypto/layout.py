"""Where the values of an array lie in its ciphertexts.

A ciphertext holds one integer of about 2000 bits. Cut into slots it holds many small signed ones: the packed integer is
the sum of ``value * 2**(slot_bits * slot)``. Sums and products with plain numbers act on all slots at once.

Slots are read from low to high: a negative value borrows from the slots above it, and taking it away first gives the
loan back. Nothing needs the values in between to fit: only what is read in the end must lie within its slot.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from colonnade.crypto.fixed_point import FixedPoint, Integers
from colonnade.errors import SlotOverflow

__all__ = ["Layout", "slot_bits_for"]

_WORD = 2**64 - 1


def slot_bits_for(bound: int) -> int:
    """Return the width of a slot for values of at most this magnitude, with their sign."""
    return max(bound, 1).bit_length() + 1


@dataclass(frozen=True)
class Layout:
    """The public description of an encrypted array: both parties derive the same one, and it depends on no value.

    Entries that are neighbours along ``packed_axis`` share a ciphertext, ``slots`` at most; a line is one such run of
    entries. With ``lines`` above 1, so many short lines share one ciphertext.
    """

    shape: tuple[int, ...]
    packed_axis: int | None
    slot_bits: int
    slots: int
    fraction_bits: int
    bound: int
    is_share: bool = False
    lines: int = 1

    @classmethod
    def plan(
        cls,
        shape: tuple[int, ...],
        packed_axis: int | None,
        *,
        modulus_bits: int,
        fraction_bits: int,
        bound: int,
        room: int = 1,
    ) -> Layout:
        """Lay out values within ``bound`` that may grow by a factor of ``room`` before they are read."""
        if len(shape) not in (1, 2) or packed_axis not in (None, *range(len(shape))):
            raise SlotOverflow(f"An array of shape {shape} cannot be packed along axis {packed_axis}.")
        usable, needed = modulus_bits - 2, slot_bits_for(bound * max(room, 1))
        slot_bits = usable if packed_axis is None else needed
        if needed > usable:
            raise SlotOverflow(
                f"Values of {needed} bits do not fit into a key of {modulus_bits} bits. "
                "Use smaller formats or a larger key."
            )
        slots = 1 if packed_axis is None else usable // slot_bits
        return cls(shape, packed_axis, slot_bits, slots, fraction_bits, bound)

    @property
    def line_length(self) -> int:
        """Return how many entries a line has."""
        return 1 if self.packed_axis is None else self.shape[self.packed_axis]

    @property
    def line_count(self) -> int:
        """Return how many lines the array has."""
        if self.packed_axis is None:
            return math.prod(self.shape)
        return 1 if len(self.shape) == 1 else self.shape[1 - self.packed_axis]

    @property
    def blocks(self) -> int:
        """Return how many ciphertexts a line takes."""
        return -(-self.line_length // self.slots)

    @property
    def count(self) -> int:
        """Return how many ciphertexts the array takes."""
        return -(-self.line_count // self.lines) * self.blocks

    @property
    def transposed(self) -> Layout:
        """Return the layout of the same ciphertexts seen as the transposed array; only for packed arrays."""
        axis = self.packed_axis if len(self.shape) == 1 or self.packed_axis is None else 1 - self.packed_axis
        return replace(self, shape=self.shape[::-1], packed_axis=axis)

    @property
    def dense(self) -> Layout:
        """Return the layout with as many lines in a ciphertext as fit."""
        return replace(self, lines=max(self.slots // self.line_length, 1) if self.line_length else 1)

    def grown(self, bound: int, fraction_bits: int | None = None, *, is_share: bool | None = None) -> Layout:
        """Return the same layout for larger values; raise before one of them could leave its slot."""
        if slot_bits_for(bound) > self.slot_bits:
            raise SlotOverflow(
                f"The result needs slots of {slot_bits_for(bound)} bits, but they have {self.slot_bits}. "
                "Encrypt with more room, or use smaller formats."
            )
        return replace(
            self,
            bound=bound,
            fraction_bits=self.fraction_bits if fraction_bits is None else fraction_bits,
            is_share=self.is_share if is_share is None else is_share,
        )

    def times(self, bound: int, fraction_bits: int, terms: int, *, is_share: bool = False) -> Layout:
        """Return the layout of sums of so many products with plain numbers within a bound."""
        return self.grown(
            self.bound * bound * max(terms, 1),
            self.fraction_bits + fraction_bits,
            is_share=self.is_share or is_share,
        )

    def pack(self, values: FixedPoint) -> list[int]:
        """Return one integer per ciphertext; it may be negative."""
        if values.shape != self.shape:
            raise SlotOverflow(f"An array of shape {values.shape} does not fit a layout of shape {self.shape}.")
        rows = self._as_lines(values.integers).tolist()
        if self.packed_axis is None:
            return [row[0] for row in rows]
        if self.lines > 1:
            groups = [rows[start : start + self.lines] for start in range(0, len(rows), self.lines)]
            rows = [[value for row in group for value in row] for group in groups]
        starts = range(0, self.line_length, self.slots) if self.lines == 1 else (0,)
        width = self.slots if self.lines == 1 else self.lines * self.line_length
        return [_join(row[start : start + width], self.slot_bits) for row in rows for start in starts]

    def unpack(self, packed: Sequence[int]) -> FixedPoint:
        """Return the values; raise SlotOverflow if one exceeds the bound or something is left over."""
        flat: list[int] = []
        for index, integer in enumerate(packed):
            flat += _cut(integer, self._held_by(index), self.slot_bits, self.bound)
        narrow = self.bound < 2**62
        integers = self._as_shaped(np.array(flat, dtype=np.int64 if narrow else object))
        return FixedPoint(integers, self.fraction_bits, self.bound)

    def words(self, packed: Sequence[int]) -> npt.NDArray[np.uint64]:
        """Return the lowest 64 bits of every slot, of any integers at all: of shares modulo n, say.

        What lies below a slot may have carried into it: then its word is off by one.
        """
        found = [
            int(integer >> (self.slot_bits * slot)) & _WORD
            for index, integer in enumerate(packed)
            for slot in range(self._held_by(index))
        ]
        return self._as_shaped(np.array(found, dtype=np.uint64))

    def _as_shaped(self, flat: Integers) -> Integers:
        lines = flat.reshape(self.line_count, self.line_length)
        if len(self.shape) == 1 or self.packed_axis is None:
            return lines.reshape(self.shape)
        return lines if self.packed_axis == 1 else lines.T

    def _as_lines(self, integers: Integers) -> Integers:
        if len(self.shape) == 2 and self.packed_axis == 0:
            integers = integers.T
        return integers.reshape(self.line_count, self.line_length)

    def _held_by(self, index: int) -> int:
        """Return how many values a ciphertext holds."""
        if self.lines > 1:
            return min(self.lines, self.line_count - index * self.lines) * self.line_length
        return min(self.slots, self.line_length - (index % self.blocks) * self.slots)


def _join(values: Sequence[int], slot_bits: int) -> int:
    # Halves first: adding one by one would shift the growing sum again and again.
    if len(values) <= 4:
        total = 0
        for value in reversed(values):
            total = (total << slot_bits) + value
        return total
    middle = len(values) // 2
    return _join(values[:middle], slot_bits) + (_join(values[middle:], slot_bits) << (slot_bits * middle))


def _cut(integer: int, count: int, slot_bits: int, bound: int) -> list[int]:
    half, mask = 1 << (slot_bits - 1), (1 << slot_bits) - 1
    values = []
    for _ in range(count):
        value = integer & mask
        if value >= half:
            value -= mask + 1
        values.append(value)
        integer = (integer - value) >> slot_bits
    if integer or (values and max(map(abs, values)) > bound):
        raise SlotOverflow(
            "A decrypted value lies outside the range both parties agreed on. The partner computed something else, or "
            "used other data; nothing of it was used."
        )
    return values
