"""Encrypted vectors and matrices, to compute with under somebody else's key.

They behave like small numpy arrays: shape, ``+``, ``-``, and ``@`` with plain numbers on either side. They have no
values: nothing turns one into a number but the owner's key.

>>> key = PrivateKey.generate("insecure_test")
>>> features = encrypt(key, [[0.5, -2.0], [1.0, 0.25]], packed_axis=0, room=DEFAULT_FORMAT.bound * 2)
>>> features
CipherArray(shape=(2, 2), key=...)
>>> decrypt(key, features @ [1.0, 2.0]).tolist()
[-3.5, 1.5]
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NoReturn, Self

import numpy as np
import numpy.typing as npt
from gmpy2 import mpz

from colonnade.crypto.chunks import join_numbers, split_numbers
from colonnade.crypto.ciphertext import Ciphertext
from colonnade.crypto.fixed_point import FixedPoint, Format
from colonnade.crypto.layout import Layout, slot_bits_for
from colonnade.crypto.masks import Mask, RingElements, ring_elements
from colonnade.crypto.paillier import PrivateKey, PublicKey
from colonnade.crypto.products import batch_inverse
from colonnade.errors import CiphertextRefused, OutOfRange, SlotOverflow

__all__ = ["DEFAULT_FORMAT", "CipherArray", "concatenate", "decrypt", "decrypt_fixed", "encrypt", "open_masked"]

DEFAULT_FORMAT = Format(fraction_bits=24, magnitude_bits=8)
"""How plain numbers that come without a format are encoded."""

Operand = FixedPoint | npt.ArrayLike

_VERSION = 1
_HEAD = struct.Struct("<B16sHBbHHHhBH")
_LARGEST_EXTENT = 2**40
_LARGEST_WIDTH = 1024
# Numbers of a few bytes would take far more memory than they came with.
_SMALLEST_WIDTH = 16


class CipherArray(Ciphertext):
    """An array under a public key.

    Arithmetic is exact. Results of a product are not random by themselves: what goes back to the key's owner must be
    masked or re-randomised first, or the owner can read the plain operand from the randomness it knows.
    """

    # numpy must not try to take this apart in `array @ cipher`.
    __array_ufunc__ = None

    def __init__(self, key: PublicKey, layout: Layout, ciphertexts: Sequence[mpz]) -> None:
        self._set(layout, ciphertexts, key.fingerprint, key.width, key)

    def _set(
        self, layout: Layout, ciphertexts: Sequence[mpz], fingerprint: bytes, width: int, key: PublicKey | None
    ) -> None:
        if len(ciphertexts) != layout.count:
            raise ValueError("the number of ciphertexts does not fit the layout")
        self._layout, self._ciphertexts = layout, tuple(ciphertexts)
        self._fingerprint, self._width, self._checked_key = fingerprint, width, key

    @property
    def key(self) -> PublicKey:
        """Return the public key; raise for an array that has arrived but was not checked yet."""
        if self._checked_key is None:
            raise CiphertextRefused("A received array was used before it was checked; call under(key, layout) first.")
        return self._checked_key

    @property
    def layout(self) -> Layout:
        """Return how values lie in the ciphertexts."""
        return self._layout

    @property
    def shape(self) -> tuple[int, ...]:
        """Return the shape of the hidden array."""
        return self._layout.shape

    @property
    def ciphertexts(self) -> tuple[mpz, ...]:
        """Return the bare ciphertexts."""
        return self._ciphertexts

    def __repr__(self) -> str:
        return f"CipherArray(shape={self.shape}, key={self._fingerprint.hex()[:8]})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("ciphertexts cross a channel inside a declared message and in no other way")

    def __bool__(self) -> NoReturn:
        raise TypeError("a ciphertext has no truth value")

    @property
    def T(self) -> CipherArray:  # noqa: N802 - numpy's name
        """Return the transposed array, of the same ciphertexts."""
        layout = self._layout
        if layout.packed_axis is None and len(self.shape) == 2:
            rows, columns = self.shape
            order = [row * columns + column for column in range(columns) for row in range(rows)]
            return self._with([self._ciphertexts[place] for place in order], layout.transposed)
        return self._with(self._ciphertexts, layout.transposed)

    def __add__(self, other: CipherArray | Operand) -> CipherArray:
        layout = self._layout
        if isinstance(other, CipherArray):
            self._check_alike(other)
            grown = layout.grown(layout.bound + other._layout.bound)
            return self._with(self.key.multiply_in(self._ciphertexts, other._ciphertexts), grown)
        plain = self._addend(other)
        grown = layout.grown(layout.bound + plain.bound)
        return self._with(self.key.add_plain(self._ciphertexts, layout.pack(plain)), grown)

    __radd__ = __add__

    def __neg__(self) -> CipherArray:
        return self._with(batch_inverse(self._ciphertexts, self.key.square), self._layout)

    def __sub__(self, other: CipherArray | Operand) -> CipherArray:
        if isinstance(other, CipherArray):
            return self + -other
        plain = self._addend(other)
        return self + FixedPoint(-plain.integers, plain.fraction_bits, plain.bound)

    def __rsub__(self, other: Operand) -> CipherArray:
        return -self + other

    def add_share(self, share: FixedPoint) -> CipherArray:
        """Complete the hidden shares with this party's own, so that the array holds the shared numbers."""
        layout = self._layout
        if not layout.is_share or not share.is_share or share.fraction_bits != layout.fraction_bits:
            raise OutOfRange("Two shares of the same numbers are needed, at the same scale.")
        whole = layout.grown(max(layout.bound, share.bound), is_share=False)
        return self._with(self.key.add_plain(self._ciphertexts, layout.pack(share)), whole)

    def __matmul__(self, other: Operand) -> CipherArray:
        """Multiply with plain numbers on the right: slots must not run along the last axis."""
        plain, layout, shape = _as_plain(other), self._layout, self.shape
        terms = shape[-1]
        if len(plain.shape) not in (1, 2) or plain.shape[0] != terms:
            raise OutOfRange(f"Arrays of shapes {shape} and {plain.shape} cannot be multiplied.")
        self._check_axis(len(shape) - 1)
        result_shape = (*shape[:-1], *plain.shape[1:]) or (1,)
        grown = self._product_layout(plain, terms, result_shape, layout.packed_axis)
        rows = plain.integers.reshape(terms, math.prod(plain.shape[1:])).T.tolist()
        if layout.packed_axis is None:
            sets = math.prod(shape[:-1])
            found = self._products([self._ciphertexts[at * terms : (at + 1) * terms] for at in range(sets)], rows)
        else:
            found = self._block_products(rows)
        return self._with(found, grown)

    def __rmatmul__(self, other: Operand) -> CipherArray:
        """Multiply with plain numbers on the left: slots must not run along the first axis."""
        return self.left_product(other)

    def left_product(self, other: Operand, *, dense: bool = False) -> CipherArray:
        """Multiply with plain numbers on the left; ``dense`` puts as many rows into a ciphertext as fit."""
        plain, layout, shape = _as_plain(other), self._layout, self.shape
        terms = shape[0]
        if len(plain.shape) not in (1, 2) or plain.shape[-1] != terms:
            raise OutOfRange(f"Arrays of shapes {plain.shape} and {shape} cannot be multiplied.")
        self._check_axis(0)
        if layout.packed_axis is None:
            product = self.T @ plain.T
            return product.T if len(product.shape) == 2 else product
        rows = plain.integers.reshape(math.prod(plain.shape[:-1]), terms).tolist()
        result_shape = (*plain.shape[:-1], shape[1])
        grown = self._product_layout(plain, terms, result_shape, len(result_shape) - 1)
        product = self._with(self._block_products(rows), grown)
        return product.dense() if dense and len(result_shape) == 2 else product

    def row_sums(self, groups: Sequence[npt.NDArray[np.integer[Any]]]) -> CipherArray:
        """Add up rows by their places, group by group; a group of none is a bare zero."""
        self._check_axis(0)
        layout, blocks, found = self._layout, self._layout.blocks, list[mpz]()
        if layout.packed_axis is None:
            raise SlotOverflow("Rows are added up that are packed.")
        for places in groups:
            rows = [self._ciphertexts[place * blocks : (place + 1) * blocks] for place in places.tolist()]
            added: Sequence[mpz] = rows[0] if rows else [mpz(1)] * blocks
            for row in rows[1:]:
                added = self.key.multiply_in(added, row)
            found += added
        grown = layout.grown(layout.bound * max(self.shape[0], 1))
        return self._with(found, replace(grown, shape=(len(groups), self.shape[1])))

    def dense(self) -> CipherArray:
        """Put as many lines into each ciphertext as fit, so that fewer are sent and decrypted."""
        layout = self._layout.dense
        if layout.lines == 1:
            return self
        groups = [self._ciphertexts[at : at + layout.lines] for at in range(0, len(self._ciphertexts), layout.lines)]
        return self._with(self.key.shifted_sums(groups, layout.slot_bits * layout.line_length), layout)

    def each_product(self, factors: FixedPoint) -> CipherArray:
        """Multiply every row with plain numbers of its own.

        With shape (groups, terms) here and (groups, terms, results) there, the result has shape (groups, results).
        """
        shape = self.shape
        if len(shape) != 2 or len(factors.shape) != 3 or factors.shape[:2] != shape:
            raise OutOfRange(f"Arrays of shapes {shape} and {factors.shape} cannot be multiplied row by row.")
        self._check_unpacked()
        groups, terms, results = factors.shape
        grown = self._product_layout(factors, terms, (groups, results), None)
        if not math.prod(factors.shape):
            return self._with([mpz(1)] * (groups * results), grown)
        bases = [self._ciphertexts[at * terms : (at + 1) * terms] for at in range(groups)]
        return self._with(self.key.group_products(bases, factors.integers), grown)

    def gather(self, places: npt.NDArray[np.integer[Any]]) -> CipherArray:
        """Take entries of the flattened array by their places, in any order and any number of times.

        The result has the shape of ``places``. It holds the same ciphertexts: who receives them sees which are equal.
        """
        self._check_unpacked()
        wanted = np.asarray(places)
        if wanted.ndim not in (1, 2) or (wanted.dtype.kind not in "iu" and wanted.size):
            raise OutOfRange("Places are integers, in a vector or a matrix.")
        if wanted.size and not 0 <= int(wanted.min()) <= int(wanted.max()) < len(self._ciphertexts):
            raise OutOfRange(f"Places run from 0 to {len(self._ciphertexts) - 1} in an array of shape {self.shape}.")
        found = [self._ciphertexts[int(place)] for place in wanted.reshape(-1)]
        return self._with(found, replace(self._layout, shape=tuple(wanted.shape)))

    def widened(self, bound: int) -> CipherArray:
        """Say that the values may be larger than they can be so far, because something will be added to them."""
        return self._with(self._ciphertexts, self._layout.grown(max(bound, self._layout.bound)))

    def packed(self) -> CipherArray:
        """Put the values of an unpacked vector side by side, so that fewer ciphertexts are sent and decrypted."""
        layout = self._layout
        if layout.packed_axis is not None or len(self.shape) != 1:
            raise SlotOverflow("Only a vector that is not packed yet can be packed.")
        side_by_side = replace(
            Layout.plan(
                self.shape,
                0,
                modulus_bits=self.key.bits,
                fraction_bits=layout.fraction_bits,
                bound=layout.bound,
            ),
            is_share=layout.is_share,
        )
        slots, slot_bits = side_by_side.slots, side_by_side.slot_bits
        groups = [self._ciphertexts[at : at + slots] for at in range(0, len(self._ciphertexts), slots)]
        return self._with(self.key.shifted_sums(groups, slot_bits), side_by_side)

    def rerandomise(self) -> CipherArray:
        """Give every ciphertext fresh randomness; its owner can no longer tell how it was computed."""
        zeros = self.key.encrypt_integers([0] * self._layout.count)
        return self._with(self.key.multiply_in(self._ciphertexts, zeros), self._layout)

    def mask(self) -> tuple[CipherArray, Mask]:
        """Hide every ciphertext's content from the key's owner, and return what takes the mask off again.

        The mask is freshly encrypted, so this re-randomises as well.
        """
        mask = Mask.draw(self._layout, self.key)
        added = self.key.encrypt_integers(mask.integers)
        return self._with(self.key.multiply_in(self._ciphertexts, added), self._layout), mask

    def to_bytes(self) -> bytes:
        """Write the array: its layout and its ciphertexts, all of one width."""
        layout = self._layout
        bound = layout.bound.to_bytes(-(-layout.bound.bit_length() // 8), "little")
        head = _HEAD.pack(
            _VERSION,
            self._fingerprint,
            self._width,
            len(layout.shape),
            -1 if layout.packed_axis is None else layout.packed_axis,
            layout.slot_bits,
            layout.slots,
            layout.lines,
            layout.fraction_bits,
            layout.is_share,
            len(bound),
        )
        extents = struct.pack(f"<{len(layout.shape)}Q", *layout.shape)
        return head + extents + bound + join_numbers(self._ciphertexts, 2 * self._width)

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        """Read an array from a stranger's bytes. Only `under`, told key and layout, makes it usable."""
        layout, fingerprint, width, rest = _read_head(content)
        if len(rest) != layout.count * 2 * width:
            raise ValueError("ciphertexts are missing or left over")
        made = cls.__new__(cls)
        made._set(layout, split_numbers(rest, 2 * width), fingerprint, width, None)
        return made

    def under(self, key: PublicKey, layout: Layout) -> CipherArray:
        """Return a received array, checked to be under this key and laid out as agreed."""
        if self._fingerprint != key.fingerprint:
            raise CiphertextRefused("A ciphertext array is under another key than the one agreed on. It was refused.")
        if self._layout != layout or self._width != key.width:
            raise CiphertextRefused(
                f"A ciphertext array of shape {self.shape} is laid out differently from what the protocol expects "
                f"(shape {layout.shape}). Check that both parties use the same rows, settings and version."
            )
        key.check_ciphertexts(self._ciphertexts)
        return CipherArray(key, layout, self._ciphertexts)

    def _with(self, ciphertexts: Sequence[mpz], layout: Layout) -> CipherArray:
        return CipherArray(self.key, layout, ciphertexts)

    def _product_layout(self, plain: FixedPoint, terms: int, shape: tuple[int, ...], packed_axis: int | None) -> Layout:
        """Return the layout of a product; raise before anything is computed if it could leave its slots."""
        if self._layout.is_share and plain.is_share:
            raise OutOfRange("The product of two shares is no share of the product.")
        grown = self._layout.times(plain.bound, plain.fraction_bits, terms, is_share=plain.is_share)
        return replace(grown, shape=shape, packed_axis=packed_axis)

    def _products(self, sets: Sequence[Sequence[mpz]], rows: Sequence[Sequence[int]]) -> list[mpz]:
        """Return all rows' results for each set of ciphertexts."""
        terms = len(sets[0]) if sets else 0
        if not terms:
            return [mpz(1)] * (len(sets) * len(rows))
        return self.key.products([one for bases in sets for one in bases], terms, rows)

    def _block_products(self, rows: Sequence[Sequence[int]]) -> list[mpz]:
        """Return, for every row of numbers, the sum of the lines each times its number."""
        blocks, results = self._layout.blocks, len(rows)
        found = self._products([self._ciphertexts[block::blocks] for block in range(blocks)], rows)
        # From one run of results per block to one run of blocks per result.
        return [found[block * results + result] for result in range(results) for block in range(blocks)]

    def _check_axis(self, summed: int) -> None:
        if self._layout.packed_axis == summed or self._layout.lines > 1:
            raise SlotOverflow("This array is packed along the axis that would be summed. Pack it the other way.")

    def _check_unpacked(self) -> None:
        if self._layout.packed_axis is not None:
            raise SlotOverflow("Entries of a packed array cannot be taken one by one. Encrypt it without packing.")

    def _check_alike(self, other: CipherArray) -> None:
        one, two = self._layout, other._layout
        if self.key.fingerprint != other.key.fingerprint:
            raise CiphertextRefused("Arrays under two different keys cannot be added.")
        if replace(one, bound=0) != replace(two, bound=0):
            raise OutOfRange(f"Arrays of shapes {one.shape} and {two.shape} differ in shape, packing or scale.")

    def _addend(self, other: Operand) -> FixedPoint:
        fraction_bits = self._layout.fraction_bits
        if not isinstance(other, FixedPoint):
            plain = np.broadcast_to(np.asarray(other), self.shape)
            return FixedPoint.encode(plain, Format(fraction_bits, DEFAULT_FORMAT.magnitude_bits))
        if other.fraction_bits != fraction_bits or other.is_share:
            raise OutOfRange("Numbers to be added need the same scale, and shares are added by add_share.")
        return other


def concatenate(arrays: Sequence[CipherArray]) -> CipherArray:
    """Put the entries of unpacked arrays one after another into one vector: one key, one scale, no shares."""
    if not arrays:
        raise OutOfRange("There is nothing to put together.")
    first = arrays[0].layout
    for one in arrays:
        one._check_unpacked()
        if one.key.fingerprint != arrays[0].key.fingerprint:
            raise CiphertextRefused("Arrays under two different keys cannot be put together.")
        if one.layout.is_share or replace(one.layout, shape=(), bound=0) != replace(first, shape=(), bound=0):
            raise OutOfRange("Arrays that are put together need the same scale, and must not be shares.")
    entries = [entry for one in arrays for entry in one.ciphertexts]
    layout = replace(first, shape=(len(entries),), bound=max(one.layout.bound for one in arrays))
    return CipherArray(arrays[0].key, layout, entries)


def encrypt(
    key: PublicKey,
    values: Operand,
    format: Format = DEFAULT_FORMAT,
    *,
    packed_axis: int | None = None,
    room: int = 1,
) -> CipherArray:
    """Encrypt an array, packed along an axis, with slots that leave room for values to grow by that factor."""
    plain = values if isinstance(values, FixedPoint) else FixedPoint.encode(values, format)
    layout = Layout.plan(
        plain.shape,
        packed_axis,
        modulus_bits=key.bits,
        fraction_bits=plain.fraction_bits,
        bound=plain.bound,
        room=room,
    )
    layout = replace(layout, is_share=plain.is_share)
    return CipherArray(key, layout, key.encrypt_integers(layout.pack(plain)))


def decrypt(key: PrivateKey, array: CipherArray) -> npt.NDArray[np.float64]:
    """Return the numbers in an array under one's own key."""
    return decrypt_fixed(key, array).decode()


def decrypt_fixed(key: PrivateKey, array: CipherArray) -> FixedPoint:
    """Return the numbers in an array under one's own key, as exact integers."""
    _check_owner(key, array)
    if array.layout.is_share:
        raise OutOfRange("This array holds shares; they say nothing until the other party's are added.")
    half = key.n >> 1
    integers = key.decrypt_integers(array.ciphertexts)
    return array.layout.unpack([int(one - key.n) if one > half else one for one in integers])


def open_masked(key: PrivateKey, array: CipherArray, plus: FixedPoint | None = None) -> RingElements:
    """Decrypt masked values, which look random, and add this party's own part before they are returned.

    ``plus`` completes shares, or is noise; both are added before anyone reads the values.
    """
    _check_owner(key, array)
    layout = array.layout
    if layout.is_share and plus is None:
        raise OutOfRange("This array holds shares; they say nothing until the other party's are added.")
    if plus is not None and (plus.fraction_bits != layout.fraction_bits or plus.is_share != layout.is_share):
        raise OutOfRange("What is added needs the same scale, and to be a share where shares are completed.")
    if plus is not None and plus.bound > layout.bound:
        raise SlotOverflow("What is added may be larger than the array has room for. Widen it before it is masked.")
    integers = key.decrypt_integers(array.ciphertexts)
    if plus is not None:
        integers = [one + other for one, other in zip(integers, layout.pack(plus), strict=True)]
    return ring_elements(integers, key)


def _check_owner(key: PrivateKey, array: CipherArray) -> None:
    if array.key.fingerprint != key.fingerprint:
        raise CiphertextRefused("A ciphertext array is under another key. It was refused.")


def _as_plain(operand: Operand) -> FixedPoint:
    return operand if isinstance(operand, FixedPoint) else FixedPoint.encode(operand, DEFAULT_FORMAT)


def _read_head(content: bytes) -> tuple[Layout, bytes, int, memoryview]:
    view = memoryview(content)
    try:
        version, fingerprint, width, dimensions, axis, slot_bits, slots, lines, fraction_bits, share, bound_bytes = (
            _HEAD.unpack_from(view)
        )
        shape = struct.unpack_from(f"<{dimensions}Q", view, _HEAD.size)
    except struct.error:
        raise ValueError("a ciphertext array is cut off") from None
    start = _HEAD.size + 8 * dimensions
    bound = int.from_bytes(view[start : start + bound_bytes], "little")
    if version != _VERSION or dimensions not in (1, 2) or share > 1 or not -1 <= axis < dimensions:
        raise ValueError("a ciphertext array of unknown form")
    if any(extent > _LARGEST_EXTENT for extent in shape) or not _SMALLEST_WIDTH <= width <= _LARGEST_WIDTH:
        raise ValueError("a ciphertext array of impossible extent")
    if not 0 < slot_bits * slots <= 8 * width or not lines or (bound and slot_bits_for(bound) > slot_bits):
        raise ValueError("a ciphertext array whose slots do not fit")
    if bound_bytes != -(-bound.bit_length() // 8):
        raise ValueError("a bound that is longer than it needs to be")
    packed_axis = None if axis < 0 else axis
    layout = Layout(shape, packed_axis, slot_bits, slots, fraction_bits, bound, bool(share), lines)
    if lines > 1 and (packed_axis is None or lines * layout.line_length > slots):
        raise ValueError("a ciphertext array whose lines do not fit")
    return layout, bytes(fingerprint), width, view[start + bound_bytes :]
