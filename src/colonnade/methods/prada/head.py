"""The scoring layer on the groups' numbers, at the feature holder and at a bank: shared and encrypted, or in the clear.

All four classes do the same arithmetic: the groups' numbers are rounded alike, and the weights learn by gradient
descent with momentum. With encryption neither side knows the weights; in the clear the bank does, and sees the numbers.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.crypto import FixedPoint, Format, PrivateKey, PublicKey, key_bits
from colonnade.errors import CheckpointBroken
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner, SealedBatch
from colonnade.methods.prada.config import PrADA
from colonnade.methods.prada.messages import GroupGradients, GroupNumbers, InitialWeights
from colonnade.session import Channel

__all__ = [
    "LARGEST",
    "STEEPEST",
    "BankHead",
    "ClearBankHead",
    "ClearHolderHead",
    "HolderHead",
    "SealedBankHead",
    "SealedHolderHead",
    "chunks",
    "head_format",
    "rounded",
]

Numbers = npt.NDArray[np.float64]
Rows = np.ndarray[Any, Any]

LARGEST = 15.99
"""Groups' numbers are cut off here."""
_INPUTS = Format(fraction_bits=16, magnitude_bits=4)
STEEPEST = 0.999
"""Slopes are cut off here: those of classes lie within 1, and predicted numbers may be further off."""
_CHUNK = 4096


def head_format(config: PrADA, inputs: int, scores: int) -> LinearFormat:
    """Return the ranges and scales of the layer."""
    return LinearFormat(
        inputs=inputs,
        outputs=scores,
        # A small last batch joins the one before it.
        most_rows=2 * max(config.batch_size, config.fine_batch_size),
        key_bits=key_bits(config.key_size),
        input_format=_INPUTS,
        noised=config.uses_marvell,
    )


def rounded(values: Numbers) -> FixedPoint:
    """Return the groups' numbers as the layer takes them."""
    return FixedPoint.encode(np.clip(values, -LARGEST, LARGEST), _INPUTS)


def chunks(count: int) -> list[Rows]:
    """Cut rows that are only scored into messages of bearable size."""
    rows = np.arange(count)
    return [rows[start : start + _CHUNK] for start in range(0, count, _CHUNK)]


class _Head(ABC):
    """What both sides do alike."""

    @abstractmethod
    def open(self, start: Numbers) -> None:
        """Begin with this party's part of the initial weights."""

    @abstractmethod
    def settle(self) -> None:
        """Make both sides' weights belong to the same step, before they are kept."""

    @abstractmethod
    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""

    @abstractmethod
    def load_state(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint."""


class HolderHead(_Head):
    """The feature holder's side."""

    @abstractmethod
    def teach_trained(self, values: Numbers) -> Numbers:
        """Have a batch scored and learned from, and return the gradient at its numbers."""

    @abstractmethod
    def teach_fixed(self, number: int, values: Numbers) -> None:
        """Have a batch scored and learned from whose numbers never change; ``number`` says which it is."""

    @abstractmethod
    def score(self, values: Numbers) -> None:
        """Have rows scored."""


class BankHead(_Head):
    """The bank's side."""

    @abstractmethod
    def trained_logits(self, rows: int) -> Numbers:
        """Return what the groups add to the scores of a batch."""

    @abstractmethod
    def learn_trained(self, steps: Numbers, slopes: Numbers, noise: Numbers | None) -> None:
        """Learn from that batch: slopes times the learning rate, and the slopes that the feature holder may see.

        ``noise`` goes on top of the gradient that it gets.
        """

    @abstractmethod
    def fixed_logits(self, number: int, rows: int) -> Numbers:
        """Return what the groups add to the scores of a batch whose numbers never change."""

    @abstractmethod
    def learn_fixed(self, number: int, steps: Numbers) -> None:
        """Learn from that batch."""

    @abstractmethod
    def score(self, rows: int) -> Numbers:
        """Return what the groups add to the scores of rows."""


class SealedHolderHead(HolderHead):
    """The feature holder's side, with its key and its share of the weights."""

    def __init__(self, peer: Channel, format: LinearFormat, key: PrivateKey, momentum: float) -> None:
        self._peer = peer
        self.layer = LinearOwner(peer, format, key, momentum=momentum)
        self._sent: set[int] = set()

    def open(self, start: Numbers) -> None:
        """Draw the first share."""
        self.layer.open(start)

    def teach_trained(self, values: Numbers) -> Numbers:
        """Send the batch encrypted, open the scores, and take the gradients."""
        inputs = rounded(values)
        self.layer.send_trained_inputs(inputs)
        self.layer.answer(inputs)
        return self.layer.learn_with_inputs(len(values))

    def teach_fixed(self, number: int, values: Numbers) -> None:
        """Send the batch encrypted when it is first used, open the scores, and take the weights' gradient."""
        inputs = rounded(values)
        if number not in self._sent:
            self.layer.send_inputs(inputs)
            self._sent.add(number)
        self.layer.answer(inputs)
        self.layer.learn()

    def score(self, values: Numbers) -> None:
        """Send rows encrypted and open their scores."""
        for rows in chunks(len(values)):
            inputs = rounded(values[rows])
            self.layer.send_inputs(inputs, trains=False)
            with self._peer.openings.at(f"rows from {rows[0]}"):
                self.layer.answer(inputs)

    def settle(self) -> None:
        """Send the update that no further batch will carry."""
        self.layer.send_last_update()

    def state(self) -> dict[str, Any]:
        """Return the share."""
        return dict(self.layer.state()[1])

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the share."""
        self.layer.load_state({}, state)


class SealedBankHead(BankHead):
    """A bank's side, with its share of the weights."""

    def __init__(self, peer: Channel, format: LinearFormat, key: PublicKey, momentum: float) -> None:
        self.key = key
        self.layer = LinearPartner(peer, format, key, momentum=momentum)
        self._kept: dict[int, SealedBatch] = {}
        self._batch: SealedBatch | None = None
        self._is_due = False

    def open(self, start: Numbers) -> None:
        """Receive the first share."""
        self.layer.open(start)

    def trained_logits(self, rows: int) -> Numbers:
        """Receive an encrypted batch and have its scores opened."""
        self._batch = self.layer.receive_trained_inputs(rows)
        self._is_due = False
        return self.layer.logits(self.layer.ask(self._batch))

    def learn_trained(self, steps: Numbers, slopes: Numbers, noise: Numbers | None) -> None:
        """Send both gradients."""
        if self._batch is None:
            raise RuntimeError("There is no batch to learn from.")
        self.layer.teach_with_inputs(self._batch, _bounded(steps), _bounded(slopes), noise)
        self._is_due = True

    def fixed_logits(self, number: int, rows: int) -> Numbers:
        """Receive an encrypted batch when it is first used, and have its scores opened."""
        if number not in self._kept:
            self._kept[number] = self.layer.receive_inputs(rows)
        return self.layer.logits(self.layer.ask(self._kept[number]))

    def learn_fixed(self, number: int, steps: Numbers) -> None:
        """Send the weights' gradient and receive the next share."""
        self.layer.teach(self._kept[number], _bounded(steps))
        self.layer.receive_update()

    def score(self, rows: int) -> Numbers:
        """Receive encrypted rows and have their scores opened."""
        found = [np.empty((0, self.layer.format.outputs))]
        for chunk in chunks(rows):
            batch = self.layer.receive_inputs(len(chunk), trains=False)
            found.append(self.layer.logits(self.layer.ask(batch)))
        return np.concatenate(found)

    def settle(self) -> None:
        """Receive the update that no further batch will carry."""
        if self._is_due:
            self.layer.receive_update()
            self._is_due = False

    def state(self) -> dict[str, Any]:
        """Return the share."""
        return dict(self.layer.state()[1])

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the share."""
        self.layer.load_state({}, state)


class ClearHolderHead(HolderHead):
    """The feature holder's side without encryption: the bank has the weights."""

    def __init__(self, peer: Channel) -> None:
        self._peer = peer
        self._sent: set[int] = set()

    def open(self, start: Numbers) -> None:
        """Send this party's part of the initial weights."""
        self._peer.send(InitialWeights(start))

    def teach_trained(self, values: Numbers) -> Numbers:
        """Send the batch and take the gradient."""
        self._send(values)
        rows, inputs = values.shape
        return np.asarray(self._peer.receive(GroupGradients, rows=rows, inputs=inputs).values, dtype=np.float64)

    def teach_fixed(self, number: int, values: Numbers) -> None:
        """Send the batch when it is first used."""
        if number not in self._sent:
            self._send(values)
            self._sent.add(number)

    def score(self, values: Numbers) -> None:
        """Send rows."""
        for rows in chunks(len(values)):
            self._send(values[rows])

    def settle(self) -> None:
        """Do nothing: the bank has the weights."""

    def state(self) -> dict[str, Any]:
        """Return nothing: the bank has the weights."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Do nothing: the bank has the weights."""

    def _send(self, values: Numbers) -> None:
        self._peer.send(GroupNumbers(rounded(values).decode()))


class ClearBankHead(BankHead):
    """A bank's side without encryption."""

    def __init__(self, peer: Channel, inputs: int, scores: int, momentum: float) -> None:
        self._peer, self._momentum = peer, momentum
        self.weights, self._velocity = np.zeros((inputs, scores)), np.zeros((inputs, scores))
        self._batch = np.empty((0, inputs))
        self._kept: dict[int, Numbers] = {}

    def open(self, start: Numbers) -> None:
        """Receive the other part of the initial weights."""
        inputs, scores = self.weights.shape
        self.weights = start + self._peer.receive(InitialWeights, inputs=inputs, scores=scores).values

    def trained_logits(self, rows: int) -> Numbers:
        """Receive a batch and score it."""
        self._batch = self._receive(rows)
        return self._batch @ self.weights

    def learn_trained(self, steps: Numbers, slopes: Numbers, noise: Numbers | None) -> None:
        """Send the gradient at the numbers, by the weights that scored them, and learn."""
        gradient = _bounded(slopes) @ self.weights.T
        self._peer.send(GroupGradients(gradient if noise is None else gradient + noise))
        self._learn(self._batch, steps)

    def fixed_logits(self, number: int, rows: int) -> Numbers:
        """Receive a batch when it is first used, and score it."""
        if number not in self._kept:
            self._kept[number] = self._receive(rows)
        return self._kept[number] @ self.weights

    def learn_fixed(self, number: int, steps: Numbers) -> None:
        """Learn."""
        self._learn(self._kept[number], steps)

    def score(self, rows: int) -> Numbers:
        """Receive rows and score them."""
        return self.receive_rows(rows) @ self.weights

    def receive_rows(self, rows: int) -> Numbers:
        """Receive rows that are only scored."""
        return np.concatenate([np.empty((0, len(self.weights))), *(self._receive(len(one)) for one in chunks(rows))])

    def settle(self) -> None:
        """Do nothing: every step is complete."""

    def state(self) -> dict[str, Any]:
        """Return the weights and their momentum."""
        return {"weights": self.weights.tolist(), "velocity": self._velocity.tolist()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up the weights and their momentum."""
        weights, velocity = (np.array(state[name], dtype=np.float64) for name in ("weights", "velocity"))
        if weights.shape != self.weights.shape or velocity.shape != self.weights.shape:
            raise CheckpointBroken("The weights in a checkpoint do not fit this run's groups.")
        self.weights, self._velocity = weights, velocity

    def _receive(self, rows: int) -> Numbers:
        received = self._peer.receive(GroupNumbers, rows=rows, inputs=len(self.weights))
        return np.asarray(received.values, dtype=np.float64)

    def _learn(self, batch: Numbers, steps: Numbers) -> None:
        self._velocity = self._momentum * self._velocity + batch.T @ _bounded(steps)
        self.weights = self.weights - self._velocity


def _bounded(slopes: Numbers) -> Numbers:
    return np.clip(slopes, -STEEPEST, STEEPEST)
