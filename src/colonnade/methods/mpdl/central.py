"""Train the classifier: holders contribute to the first layer, the collaborator has the rest, one party the labels.

One step: every holder sends its part of the first layer's inputs behind masks; the collaborator adds them up, goes on
and sends scores to the label holder, which returns the loss's gradient at them; the collaborator goes back and sends
every holder the gradient at the first layer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.crypto.ring import Ring, Words
from colonnade.data import batches
from colonnade.exchanges.course import Course
from colonnade.exchanges.epochs import Epochs, EpochVerdict, check_finite
from colonnade.exchanges.labels import OwnLabels
from colonnade.exchanges.masked_sums import Collector, Contributor
from colonnade.methods.mpdl.config import COLLABORATOR, MPDL
from colonnade.methods.mpdl.messages import AloneInputs, FirstGradient, KernelGradient, LogitGradient, Logits
from colonnade.methods.mpdl.networks import build_block, build_upper, dtype_of, first_shape
from colonnade.nn import Learner, backpropagate, loss_gradient, row_losses
from colonnade.session import Channel, Session, derive_seed

__all__ = [
    "CollaboratorSide",
    "HolderSide",
    "LabelSide",
    "SealedSegments",
    "asked_parts",
    "chunks",
    "receive_scores",
    "train_central",
]

Places = npt.NDArray[np.int64]

# Words in one message of rows that are scored.
_MOST_WORDS = 2**20
# Rows in one encrypted query.
_MOST_ASKED = 256


class CentralSide(Protocol):
    """One party of a classifier under training."""

    def open(self) -> None: ...
    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]: ...
    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None: ...
    def keep_best(self) -> None: ...
    def begin_epoch(self, order: Places) -> None: ...
    def step(self, start: int, stop: int) -> None: ...
    def end_epoch(self, epochs: Epochs) -> None: ...


def train_central(
    session: Session, course: Course, name: str, side: CentralSide, rows: int, config: MPDL, order: int = 0
) -> None:
    """Train one classifier on so many rows, of whatever kind, in an order that holders derive from a seed of theirs.

    The collaborator knows how many rows a batch has. If it knew which they are, it could follow them over the epochs
    and work out how alike all of them are. That it does not know makes this harder, not impossible: a row's sums move
    little from epoch to epoch.
    """
    if course.is_done(name):
        course.restore(name, side)
        return
    kept, epochs = course.begin(name, side, math.ceil(rows / config.batch_size), config)
    while not epochs.is_over:
        seed = derive_seed(order, f"{name}/batches", epochs.epoch)
        side.begin_epoch(np.concatenate(list(batches(np.arange(rows), config.batch_size, seed))))
        for start in range(epochs.steps_done(session) * config.batch_size, rows, config.batch_size):
            session.next_step()
            side.step(start, min(start + config.batch_size, rows))
            epochs.keep_between_epochs(session, kept)
        side.end_epoch(epochs)
        epochs.end_epoch(session, kept, EpochVerdict(True, epochs.epoch + 1 >= config.epochs))
    course.end(name, side)


class _Side:
    """What all three have in common: modules that learn."""

    def __init__(self, session: Session, config: MPDL, modules: dict[str, nn.Module]) -> None:
        self._session, self._config = session, config
        self.learner = Learner(modules, config.optimizer, config.learning_rate, config.optimizer_options)
        self.learner.train(True)

    def open(self) -> None:
        """Begin: nothing need be told."""

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything a checkpoint needs."""
        return self.learner.state()

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.learner.load_state(tensors, document)

    def keep_best(self) -> None:
        """All epochs are trained, and the last weights count."""

    def end_epoch(self, epochs: Epochs) -> None:
        """Nothing to say."""

    def _learn(self) -> None:
        if self._config.clip_gradient:
            self.learner.clip_gradients(self._config.clip_gradient)
        self.learner.step()


class SealedSegments(Protocol):
    """Rows that one holder completes and that enter the other holders' weights under encryption."""

    def add(self, words: Words, batch: Places, side: HolderSide) -> Words:
        """Add this holder's shares for the rows of a batch that one holder completes."""

    def exchange_gradients(self, side: HolderSide, deltas: torch.Tensor) -> None:
        """Give the others what their weights learn from completed rows, and add what these weights learn."""


class HolderSide(_Side):
    """A party that brings columns."""

    def __init__(
        self, session: Session, config: MPDL, inputs: torch.Tensor, hidden: int, contributor: Contributor, seed: int
    ) -> None:
        """Take all rows of the training, arranged, in the order that all holders have them."""
        self.block = build_block(config, inputs.shape[1], hidden, seed)
        super().__init__(session, config, {"block": self.block})
        self._inputs, self._shuffled = inputs, torch.empty_like(inputs)
        self._batches: tuple[torch.Tensor, ...] = ()
        self._contributor, self.channel = contributor, session.channel(COLLABORATOR)
        self.shape = first_shape(config, hidden)
        self._sealed: SealedSegments | None = None
        self._order: Places = np.arange(len(inputs))
        self._weight_gradient = torch.empty_like(next(self.block.parameters()), requires_grad=False)

    def seal(self, segments: SealedSegments) -> None:
        """Let generated columns enter under encryption."""
        self._sealed = segments

    def begin_epoch(self, order: Places) -> None:
        """Put the rows in order once, so that every batch is a part of them."""
        self._order = order
        # Into memory that is kept: fresh one would be given page by page.
        torch.index_select(self._inputs, 0, torch.from_numpy(order), out=self._shuffled)
        self._batches = torch.split(self._shuffled, self._config.batch_size)

    def step(self, start: int, stop: int) -> None:
        """Contribute to a batch, and learn from it."""
        self.learner.zero_gradients()
        outputs = self._contribute(start, stop)
        self._go_back(outputs, start)

    def contribute(self, inputs: torch.Tensor, share: Words | None = None) -> None:
        """Contribute to rows that are scored, in as many messages as their size takes.

        With a share of what others made of the same rows, all goes in one message.
        """
        with torch.no_grad():
            if share is not None:
                self.contribute_words(share + self.ring.encode(self.block(inputs).double().numpy()))
                return
            for part in chunks(len(inputs), self.shape):
                self._contributor.send(self.block(inputs[part]))

    def contribute_words(self, words: Words) -> None:
        """Contribute a share of rows that are scored."""
        self._contributor.send_words(words)

    @property
    def ring(self) -> Ring:
        """Return where contributions are added."""
        return self._contributor.ring

    def contribute_alone(self, inputs: torch.Tensor) -> None:
        """Give rows that no other holder knows: with nothing to add to, no mask could hide them."""
        with torch.no_grad():
            for part in chunks(len(inputs), self.shape):
                self.channel.send(AloneInputs(self.block(inputs[part])))

    def _contribute(self, start: int, stop: int) -> torch.Tensor:
        rows = self._batches[start // self._config.batch_size]
        if isinstance(self.block, nn.Linear):
            # Its gradient is one product, which `_go_back` computes: to let torch note what it would need costs more.
            with torch.no_grad():
                outputs: torch.Tensor = self.block(rows)
        else:
            outputs = self.block(rows)
        if self._sealed is None:
            self._contributor.send(outputs)
        else:
            words = self.ring.encode(outputs.detach().double().numpy())
            self.contribute_words(self._sealed.add(words, self._order[start:stop], self))
        return outputs

    def _go_back(self, outputs: torch.Tensor, start: int) -> None:
        gradient = self.channel.receive(FirstGradient, rows=len(outputs), first=self.shape).values
        given = _in_precision(gradient, outputs.dtype)
        if isinstance(self.block, nn.Linear):
            rows = self._batches[start // self._config.batch_size]
            self.block.weight.grad = torch.mm(given.T, rows, out=self._weight_gradient)
        else:
            backpropagate(outputs, given)
        if self._sealed is not None:
            self._sealed.exchange_gradients(self, gradient.double())
        if self._config.kernels == "tied":
            self._tie()
        self._learn()

    def _tie(self) -> None:
        """Replace the gradient of kernels by the sum over all holders, so that they stay the same everywhere."""
        kernels = next(self.block.parameters())
        if kernels.grad is None:
            kernels.grad = torch.zeros_like(kernels)
        self._contributor.send(kernels.grad)
        total = self.channel.receive(KernelGradient, kernels=tuple(kernels.shape)).values
        kernels.grad = total.to(kernels.dtype)


class LabelSide(HolderSide):
    """The party that also brings the labels, and computes the loss."""

    def __init__(
        self,
        session: Session,
        config: MPDL,
        inputs: torch.Tensor,
        hidden: int,
        contributor: Contributor,
        seed: int,
        labels: OwnLabels,
        targets: torch.Tensor,
        weights: torch.Tensor,
        name: str,
    ) -> None:
        super().__init__(session, config, inputs, hidden, contributor, seed)
        self._labels, self._targets, self._weights, self._name = labels, targets, weights, name
        self._batches_of_targets: tuple[torch.Tensor, ...] = ()
        self._batches_of_weights: tuple[torch.Tensor, ...] = ()
        self._loss = 0.0

    def begin_epoch(self, order: Places) -> None:
        """Put rows, labels and weights in order."""
        super().begin_epoch(order)
        places, size = torch.from_numpy(order), self._config.batch_size
        self._batches_of_targets = torch.split(self._targets[places], size)
        self._batches_of_weights = torch.split(self._weights[places], size)
        self._loss = 0.0

    def step(self, start: int, stop: int) -> None:
        """Contribute to a batch, say how wrong its scores are, and learn from it."""
        self.learner.zero_gradients()
        outputs = self._contribute(start, stop)
        logits = self.channel.receive(Logits, rows=stop - start, outputs=self._labels.outputs).values
        place = start // self._config.batch_size
        targets, weights = self._batches_of_targets[place], self._batches_of_weights[place]
        scores = _in_precision(logits, dtype_of(self._config))
        self.channel.send(LogitGradient(loss_gradient(self._labels.task, scores, targets, weights)))
        # The loss itself is for us alone; there is time for it while the collaborator goes back.
        loss = float((row_losses(self._labels.task, scores, targets) * weights).sum())
        check_finite(loss, self._session)
        self._loss += loss
        self._go_back(outputs, start)

    def end_epoch(self, epochs: Epochs) -> None:
        """Record the epoch's loss."""
        self._session.record(phase=self._name, epoch=epochs.epoch + 1, training_loss=self._loss / len(self._targets))


class CollaboratorSide(_Side):
    """The party that adds up and has the upper layers."""

    def __init__(
        self, session: Session, config: MPDL, hidden: int, outputs: int, collector: Collector, seed: int
    ) -> None:
        self.upper = build_upper(config, hidden, outputs, seed)
        super().__init__(session, config, {"upper": self.upper})
        self._collector, self._outputs = collector, outputs
        self._shape = first_shape(config, hidden)
        self._label_holder = session.channel("label_holder")
        others = [channel for channel in session.all_channels if channel is not self._label_holder]
        self._holders = [self._label_holder, *others]

    def begin_epoch(self, order: Places) -> None:
        """Rows are known by their place in a batch only."""

    def step(self, start: int, stop: int) -> None:
        """Score a batch, and pass the gradient on."""
        self.learner.zero_gradients()
        first = self._first(stop - start).requires_grad_()
        logits = self.upper(first)
        self._label_holder.send(Logits(logits))
        gradient = self._label_holder.receive(LogitGradient, rows=len(logits), outputs=self._outputs).values
        backpropagate(logits, _in_precision(gradient, logits.dtype))
        back = torch.zeros_like(first) if first.grad is None else first.grad
        check_finite(back.sum().item(), self._session)
        # The label holder still has most to do. The others can wait until we have learned: where all are threads of one
        # process, they will need the cores.
        first_in_line, *others = self._holders
        first_in_line.send(FirstGradient(back))
        self._learn()
        for holder in others:
            holder.send(FirstGradient(back))
        if self._config.kernels == "tied":
            self._tie()

    def score(self, rows: int) -> Iterator[torch.Tensor]:
        """Return scores of rows to which all holders contribute, message by message."""
        with torch.no_grad():
            for part in chunks(rows, self._shape):
                yield self.upper(self._first(part.stop - part.start))

    def send_scores(self, rows: int) -> None:
        """Score rows for the label holder."""
        for logits in self.score(rows):
            self._label_holder.send(Logits(logits))

    def score_together(self, rows: int) -> Iterator[torch.Tensor]:
        """Return scores of rows that one holder knows and others multiplied for it, message by message."""
        with torch.no_grad():
            for part in asked_parts(rows):
                yield self.upper(self._first(part.stop - part.start))

    def score_alone(self, holder: Channel, rows: int) -> Iterator[torch.Tensor]:
        """Return scores of rows that one holder alone knows, message by message."""
        with torch.no_grad():
            for part in chunks(rows, self._shape):
                first = holder.receive(AloneInputs, rows=part.stop - part.start, first=self._shape).values
                yield self.upper(first.to(dtype_of(self._config)))

    def send_scores_alone(self, holder: Channel, rows: int) -> None:
        """Score rows that one holder alone knows, for the label holder."""
        for logits in self.score_alone(holder, rows):
            self._label_holder.send(Logits(logits))

    def _first(self, rows: int) -> torch.Tensor:
        return torch.from_numpy(self._collector.receive((rows, *self._shape))).to(dtype_of(self._config))

    def _tie(self) -> None:
        channels = self._config.image[0] if self._config.image is not None else 1
        size = self._config.kernel_size
        total = torch.from_numpy(self._collector.receive((self._shape[0], channels, size, size)))
        for holder in self._holders:
            holder.send(KernelGradient(total.to(dtype_of(self._config))))


def _in_precision(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    # Every call of torch lets the threads of other parties go first, even one that does nothing.
    return values if values.dtype is dtype else values.to(dtype)


def asked_parts(rows: int) -> list[slice]:
    """Divide rows that are asked for under encryption."""
    return [slice(start, min(start + _MOST_ASKED, rows)) for start in range(0, rows, _MOST_ASKED)]


def receive_scores(side: HolderSide, outputs: int, rows: int, parts: list[slice] | None = None) -> torch.Tensor:
    """Return the scores of rows, at the label holder; they come in parts."""
    found = [
        side.channel.receive(Logits, rows=part.stop - part.start, outputs=outputs).values.double()
        for part in (chunks(rows, side.shape) if parts is None else parts)
    ]
    return torch.cat(found) if found else torch.empty(0, outputs, dtype=torch.float64)


def chunks(rows: int, shape: tuple[int, ...]) -> list[slice]:
    """Divide rows so that a message does not grow without limit."""
    size = max(1, _MOST_WORDS // math.prod(shape))
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
