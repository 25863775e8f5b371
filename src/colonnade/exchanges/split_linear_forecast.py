"""What a secure linear layer over codes of two kinds costs: counted from the layouts that the layer itself uses."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gmpy2 import mpz

from colonnade.crypto import CipherArray, Layout, PublicKey, ring_elements
from colonnade.exchanges.secure_linear import LinearFormat
from colonnade.exchanges.split_linear import (
    MaskedLogits,
    MaskedWeightGradient,
    OpenedLogits,
    OpeningShares,
    SealedCodeGradient,
    SealedCodes,
    SealedShares,
    WeightUpdate,
    _summed,
    fit_sums,
)
from colonnade.session import Machines

__all__ = ["ArrayForecast", "Sizes", "SplitForecast"]

Counts = tuple[int, int]
"""Shared rows of a batch, and others."""


@dataclass(frozen=True)
class Sizes:
    """How many bits the plain numbers of a product have on average: the work goes by them."""

    steps: float
    """Slopes times the learning rate."""
    slopes: float
    fits: float
    """Entries of the matrix of what attention among shared rows misses."""


@dataclass(frozen=True)
class ArrayForecast:
    """Seconds of work on arrays under one key, at the key's owner and at its partner."""

    owner: str
    partner: str
    machines: Machines

    def sealing(self, layouts: Sequence[Layout]) -> float:
        """Return the owner's work to encrypt arrays in one go."""
        count = sum(layout.count for layout in layouts)
        costs = self.machines.crypto
        return self.machines.divided(self.owner, count, costs.owner_encryption) + _values(layouts) * costs.packing

    def checking(self, layouts: Iterable[Layout]) -> float:
        """Return the work to check received arrays, at either side."""
        return sum(layout.count for layout in layouts) * self.machines.crypto.check

    def opening(self, layouts: Sequence[Layout]) -> float:
        """Return the owner's work to check, decrypt and read arrays, one after the other."""
        costs = self.machines.crypto
        decrypting = sum(self.machines.divided(self.owner, layout.count, costs.decryption) for layout in layouts)
        return decrypting + self.checking(layouts) + _values(layouts) * costs.packing

    def hiding(self, layouts: Iterable[Layout]) -> float:
        """Return the partner's work to mask arrays or to give them fresh randomness, one after the other."""
        encryption = self.machines.crypto.encryption
        return sum(self.machines.divided(self.partner, layout.count, encryption) for layout in layouts)

    def blurring(self, layouts: Sequence[Layout]) -> float:
        """Return the partner's work to add random digits to arrays as well."""
        costs = self.machines.crypto
        adding = sum(layout.count for layout in layouts) * costs.multiplication
        return self.hiding(layouts) + adding + 2 * _values(layouts) * costs.packing

    def right_product(self, layout: Layout, results: int, bits: float) -> float:
        """Return the partner's work to multiply an array with so many columns of numbers on its right."""
        return self._products(layout.blocks, layout.shape[1], results, bits)

    def left_product(self, layout: Layout, results: int, bits: float, *, dense: bool = False) -> float:
        """Return the partner's work to multiply so many rows of numbers with an array; see `CipherArray`."""
        bases, width = layout.shape
        lines = min(layout.slots // width, results) if dense and width else 1
        if lines < 2:
            return self._products(layout.blocks, bases, results, bits)
        shifting = (lines - 1) * layout.count * layout.slot_bits * width * self.machines.crypto.multiplication
        return shifting + self._products(1, lines * bases, -(-results // lines), bits)

    def array(self, layout: Layout) -> CipherArray:
        """Return an array as it crosses, filled with anything."""
        return CipherArray(self._key, layout, [mpz(1)] * layout.count)

    def ring(self, layout: Layout) -> Any:
        """Return an opened array as it crosses."""
        return ring_elements([0] * layout.count, self._key)

    def _products(self, sets: int, bases: int, results: int, bits: float) -> float:
        if not (sets and bases and results):
            return 0.0
        costs = self.machines.crypto
        each = costs.product(bases, results, max(round(bits), 1))
        # As the key divides them: either the sets of bases, or, with one set, the results.
        pieces = sets if sets > 1 else results
        written = sets * bases * results * costs.packing
        return self.machines.divided(self.partner, pieces, each * sets / pieces) + written

    @cached_property
    def _key(self) -> PublicKey:
        # Only its size matters: nothing is encrypted here.
        return PublicKey((1 << self.machines.crypto.key_bits) - 1)


@dataclass(frozen=True)
class SplitForecast(ArrayForecast):
    """Seconds of work at either side of the layer, and messages of the sizes that will cross."""

    formats: tuple[LinearFormat, ...]

    def sealing_codes(self, counts: Counts, *, trains: bool = False, fits: bool = False) -> float:
        """Return the owner's work to encrypt the codes of a batch, and with ``trains`` its shares of the weights."""
        shares = sum(self.sealing([format.shares()]) for format in self.formats) if trains else 0.0
        return self.sealing(self._sealed(counts, trains, fits)) + shares

    def asking(self, counts: Counts, *, trains: bool = False, fits: bool = False) -> float:
        """Return the partner's work to check what came, and for its masked part of the logits."""
        received = [
            *self._sealed(counts, trains, fits),
            *([format.shares() for format in self.formats] if trains else []),
        ]
        work = self.checking(received) + self.hiding(self._logits(counts))
        for format in self.formats:
            # The partner's share is about as large as the owner's, which hides it.
            bits = format.share_limit.bit_length() - format.weight_bits + format.forward_fraction
            for count in counts:
                work += self.right_product(format.columns(count), format.outputs, bits)
        return work

    def answering(self, counts: Counts) -> float:
        """Return the owner's work to open and complete the logits."""
        terms = sum(counts) * sum(format.inputs * format.outputs for format in self.formats)
        return self.opening(self._logits(counts)) + terms * self.machines.crypto.term

    def reading(self, counts: Counts) -> float:
        """Return the partner's work to take the masks off."""
        return _values(self._logits(counts)) * self.machines.crypto.packing

    def teaching(self, counts: Counts, sizes: Sizes, *, fits: bool) -> float:
        """Return the partner's work for both gradients."""
        rows, work = sum(counts), 0.0
        for format in self.formats:
            inputs, shares = format.rows(rows), format.shares()
            work += self.left_product(inputs, format.outputs, sizes.steps)
            work += self.left_product(shares, rows, sizes.slopes, dense=True)
        for layout in self._fitted(counts[0]) if fits else ():
            work += self.left_product(layout, counts[0], sizes.fits, dense=True)
        codes = self._code_gradients(counts, fits)
        kinds = len(self.formats)
        return work + self.hiding([*self._weight_gradients(), *codes[:kinds]]) + self.blurring(codes[kinds:])

    def updating(self) -> float:
        """Return the owner's work to open the weight gradient and to draw new shares."""
        return self.opening(self._weight_gradients())

    def learning(self, counts: Counts, *, fits: bool) -> float:
        """Return the owner's work to decrypt the gradient at its codes."""
        return self.opening(self._code_gradients(counts, fits))

    def opening_shares(self) -> Any:
        """Return the message with the partner's first shares."""
        return OpeningShares(
            tuple(format.share_limit for format in self.formats for _ in range(format.inputs * format.outputs))
        )

    def sealed_shares(self) -> Any:
        """Return the message with the owner's shares."""
        return SealedShares(tuple(self.array(format.shares()) for format in self.formats))

    def sealed_codes(self, counts: Counts, *, trains: bool = False, fits: bool = False) -> Any:
        """Return the message with a batch's codes."""
        arrays = [self.array(layout) for layout in self._sealed(counts, trains, fits)]
        kinds = len(self.formats)
        pieces = [tuple(arrays[start : start + kinds]) for start in range(0, len(arrays), kinds)]
        return SealedCodes(pieces[0], pieces[1], pieces[2] if trains else (), pieces[-1] if fits else ())

    def masked_logits(self, counts: Counts) -> Any:
        """Return the message with the partner's part of the logits."""
        *shared, others = (self.array(layout) for layout in self._logits(counts))
        return MaskedLogits(tuple(shared), others)

    def opened_logits(self, counts: Counts) -> Any:
        """Return the message with the opened logits."""
        *shared, others = (self.ring(layout) for layout in self._logits(counts))
        return OpenedLogits(tuple(shared), others)

    def masked_weight_gradient(self) -> Any:
        """Return the message with the gradient of the weights."""
        return MaskedWeightGradient(tuple(self.array(layout) for layout in self._weight_gradients()))

    def sealed_code_gradient(self, counts: Counts, *, fits: bool) -> Any:
        """Return the message with the gradient at the codes."""
        arrays = tuple(self.array(layout) for layout in self._code_gradients(counts, fits))
        return SealedCodeGradient(arrays[: len(self.formats)], arrays[len(self.formats) :])

    def weight_update(self) -> Any:
        """Return the message that completes the partner's shares."""
        return WeightUpdate(tuple(self.ring(layout) for layout in self._weight_gradients()))

    def _sealed(self, counts: Counts, trains: bool, fits: bool) -> list[Layout]:
        columns = [format.columns(count) for count in counts for format in self.formats]
        rows = [format.rows(sum(counts)) for format in self.formats] if trains else []
        return [*columns, *rows, *(self._fitted(counts[0]) if fits else [])]

    def _fitted(self, rows: int) -> list[Layout]:
        return [fit_sums(rows).layout((rows, format.inputs), format.key_bits) for format in self.formats]

    def _logits(self, counts: Counts) -> list[Layout]:
        return [*(format.logits(counts[0]) for format in self.formats), _summed(self.formats, counts[1])]

    def _weight_gradients(self) -> list[Layout]:
        return [format.gradient() for format in self.formats]

    def _code_gradients(self, counts: Counts, fits: bool) -> list[Layout]:
        rows = sum(counts)
        gradients = [format.input_gradient(rows) for format in self.formats]
        missed = [fit_sums(counts[0]).sums(codes, counts[0]) for codes in self._fitted(counts[0])] if fits else []
        return [*gradients, *missed]


def _values(layouts: Iterable[Layout]) -> int:
    return sum(layout.line_count * layout.line_length for layout in layouts)
