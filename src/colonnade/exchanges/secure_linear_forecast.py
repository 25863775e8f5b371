"""What one secure linear layer costs: counted from the layouts that the layer itself uses."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from gmpy2 import mpz

from colonnade.crypto import CipherArray, Layout, PublicKey, ring_elements
from colonnade.exchanges.secure_linear import LinearFormat, LinearMessages
from colonnade.session import Machines

__all__ = ["LayerForecast"]


@dataclass(frozen=True)
class LayerForecast:
    """Seconds of work at either side, and messages of the sizes that will cross."""

    owner: str
    partner: str
    format: LinearFormat
    messages: LinearMessages
    machines: Machines

    def sealing(self, rows: int, *, trains: bool = True) -> float:
        """Return the owner's work to encrypt the inputs of a batch."""
        count = sum(layout.count for layout in self._sealed(rows, trains))
        values = rows * self.format.inputs * (2 if trains else 1)
        costs = self.machines.crypto
        return self.machines.divided(self.owner, count, costs.owner_encryption) + values * costs.packing

    def receiving(self, rows: int, *, trains: bool = True) -> float:
        """Return the partner's work to check them."""
        return sum(layout.count for layout in self._sealed(rows, trains)) * self.machines.crypto.check

    def asking(self, rows: int) -> float:
        """Return the partner's work for its masked part of the logits."""
        format, costs = self.format, self.machines.crypto
        # The partner's share is about as large as the owner's, which hides it.
        bits = format.share_limit.bit_length() - format.weight_bits + format.forward_fraction
        product = self._products(format.columns(rows).blocks, format.inputs, bits)
        return product + self._masking(format.logits(rows)) + rows * format.outputs * costs.packing

    def answering(self, rows: int) -> float:
        """Return the owner's work to open and complete the logits."""
        terms = rows * self.format.inputs * self.format.outputs
        return self._opening(self.format.logits(rows)) + terms * self.machines.crypto.term

    def teaching(self, rows: int, largest_step: float) -> float:
        """Return the partner's work for the masked gradient, if slopes times the learning rate reach so far."""
        whole = max(1, round(largest_step * (1 << self.format.step_format.fraction_bits)))
        product = self._products(self.format.rows(rows).blocks, rows, whole.bit_length())
        return product + self._masking(self.format.gradient())

    def learning(self) -> float:
        """Return the owner's work to open the gradient and draw a new share."""
        return self._opening(self.format.gradient())

    def sealing_trained(self, rows: int) -> float:
        """Return the owner's work to encrypt a batch that is trained, and its share with it."""
        share = self.machines.divided(self.owner, self.format.shares().count, self.machines.crypto.owner_encryption)
        return self.sealing(rows) + share

    def receiving_trained(self, rows: int) -> float:
        """Return the partner's work to check them."""
        return self.receiving(rows) + self.format.shares().count * self.machines.crypto.check

    def teaching_trained(self, rows: int, largest_step: float, largest_slope: float) -> float:
        """Return the partner's work for both gradients, if slopes reach so far with and without the learning rate."""
        format, costs, shares = self.format, self.machines.crypto, self.format.shares()
        gradient = format.input_gradient(rows)
        whole = max(1, round(largest_slope * (1 << format.slope_format.fraction_bits)))
        # The share's ciphertexts are shifted to the slots of each of the rows that one result holds.
        copies, results = gradient.lines, -(-rows // gradient.lines)
        shifting = (copies - 1) * shares.count * shares.slot_bits * shares.line_length * costs.multiplication
        each = costs.product(copies * shares.count, results, whole.bit_length())
        product = self.machines.divided(self.partner, results, each / max(results, 1))
        return self.teaching(rows, largest_step) + shifting + product + self._masking(gradient)

    def learning_trained(self, rows: int) -> float:
        """Return the owner's work to open both."""
        return self.learning() + self._opening(self.format.input_gradient(rows))

    def trained_inputs(self, rows: int, *, is_first: bool) -> Any:
        """Return the message with a batch that is trained; the first carries no update of the step before."""
        arrays = [self._array(layout) for layout in (*self._sealed(rows, True), self.format.shares())]
        update = None if is_first else ring_elements([0] * self.format.gradient().count, self._key)
        return self.messages.TrainedInputs(*arrays, update)

    def trained_gradients(self, rows: int) -> Any:
        """Return the message with both gradients of such a batch."""
        layouts = (self.format.gradient(), self.format.input_gradient(rows))
        return self.messages.TrainedGradients(*(self._array(layout) for layout in layouts))

    def opening_share(self) -> Any:
        """Return the message that gives the partner its first share."""
        return self.messages.OpeningShare((self.format.share_limit,) * (self.format.inputs * self.format.outputs))

    def sealed_inputs(self, rows: int, *, trains: bool = True) -> Any:
        """Return the message with the encrypted inputs of a batch."""
        arrays = [self._array(layout) for layout in self._sealed(rows, trains)]
        return self.messages.SealedInputs(arrays[0], arrays[1] if trains else None)

    def masked_logits(self, rows: int) -> Any:
        """Return the message with the partner's part of the logits."""
        return self.messages.MaskedLogits(self._array(self.format.logits(rows)))

    def opened_logits(self, rows: int) -> Any:
        """Return the message with the opened logits."""
        return self.messages.OpenedLogits(ring_elements([0] * self.format.logits(rows).count, self._key))

    def masked_gradient(self) -> Any:
        """Return the message with the gradient of the weights."""
        return self.messages.MaskedGradient(self._array(self.format.gradient()))

    def share_update(self) -> Any:
        """Return the message that completes the partner's share."""
        return self.messages.ShareUpdate(ring_elements([0] * self.format.gradient().count, self._key))

    def _sealed(self, rows: int, trains: bool) -> list[Layout]:
        return [self.format.columns(rows), *([self.format.rows(rows)] if trains else [])]

    def _products(self, sets: int, bases: int, bits: int) -> float:
        outputs = self.format.outputs
        each = self.machines.crypto.product(bases, outputs, bits)
        # As the key divides them: either the sets of bases, or, with one set, the results.
        pieces = sets if sets > 1 else outputs
        return self.machines.divided(self.partner, pieces, each * sets / pieces)

    def _masking(self, layout: Layout) -> float:
        return self.machines.divided(self.partner, layout.count, self.machines.crypto.encryption)

    def _opening(self, layout: Layout) -> float:
        costs = self.machines.crypto
        values = layout.line_count * layout.line_length
        return self.machines.divided(self.owner, layout.count, costs.decryption + costs.check) + values * costs.packing

    @cached_property
    def _key(self) -> PublicKey:
        # Only its size matters: nothing is encrypted here.
        return PublicKey((1 << self.format.key_bits) - 1)

    def _array(self, layout: Layout) -> CipherArray:
        return CipherArray(self._key, layout, [mpz(1)] * layout.count)
