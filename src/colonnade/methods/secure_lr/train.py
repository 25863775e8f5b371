"""Train secure regression: both roles, message by message."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch

from colonnade.crypto import Format, PublicKey, key_bits
from colonnade.data import TableEncoder, batches
from colonnade.errors import ConfigError
from colonnade.exchanges.epochs import Epochs, EpochVerdict, Trainee, check_finite
from colonnade.exchanges.holdings import encoded_columns, encoded_labels, scores_in_terms_of, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner, SealedBatch
from colonnade.methods.secure_lr.config import MOST_EPOCHS, SecureLR
from colonnade.methods.secure_lr.guard import (
    Contributions,
    check_repeating,
    check_training,
    most_epochs,
    opened_by,
    rank_of,
)
from colonnade.methods.secure_lr.messages import MOST, ColumnCount, PartnerShare, TrainingExtent
from colonnade.methods.secure_lr.predict import chunks, cut_off, gather_logits, send_logits
from colonnade.nn import tensors_under
from colonnade.nn.regression import (
    Numbers,
    OwnWeights,
    loss_of,
    outputs_for,
    scores_of,
    slopes_of,
    targets_of,
)
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Holding, ModelPart, Result, Session

__all__ = ["feature_holder", "label_holder", "linear_format"]

Rows = np.ndarray[Any, Any]


def linear_format(config: SecureLR, inputs: int, outputs: int) -> LinearFormat:
    """Return the ranges and scales of one feature holder's layer.

    The logits take the weights with all their fraction bits, so that without momentum and l2 the model does not depend
    on the secret shares in any bit.
    """
    return LinearFormat(
        inputs=inputs,
        outputs=outputs,
        most_rows=config.batch_size,
        key_bits=key_bits(config.key),
        input_format=Format(fraction_bits=20, magnitude_bits=6),
        step_format=Format(fraction_bits=28, magnitude_bits=0),
        forward_bits=None,
    )


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns."""
    peer = session.channel("label_holder")
    split = holding.split
    table_encoder, columns = encoded_columns(holding, np.float64, config.minimum_support)
    if table_encoder is None or columns is None:
        raise without_columns(session)
    columns = cut_off(columns)
    rank, mark = rank_of(columns[split.train]), session.secret("contributions").hex()[:16]
    contributions = Contributions(session, peer.peer, holding, mark)
    key = make_key(session, config.key)
    send_key(peer, key)
    peer.send(ColumnCount(table_encoder.width, rank, contributions.earlier()))
    limit = most_scores(config.task, MOST)
    extent = peer.receive(TrainingExtent, most_scores=limit, epochs=_agreed_epochs(session, config))
    scores, config = extent.scores, config.for_epochs(extent.epochs)
    # Before anything about the columns leaves, but how many there are and their rank.
    again = (config.epochs - session.step // math.ceil(len(split.train) / config.batch_size)) * scores
    contributions.train(
        opened_by(config.epochs, scores),
        again,
        lambda opened: check_training(session, peer, config, rank, scores, opened),
        lambda opened: check_repeating(session, peer, config, rank, again, opened),
    )
    format = linear_format(config, table_encoder.width, scores)
    layer = LinearOwner(peer, format, key, momentum=config.momentum)
    model = _Model([layer], config.epochs)
    epochs = Epochs.begin(session, model, len(split.train), config)
    if session.resumed is None:
        layer.open()

    training = [layer.encode(columns[rows]) for rows in _cut(session, split.train, config)]
    validation = [layer.encode(columns[rows]) for rows in chunks(split.validation)]
    sent: set[int] = set()
    while not epochs.is_over:
        for number in _order_left(session, epochs):
            session.next_step()
            if number not in sent:
                layer.send_inputs(training[number])
                sent.add(number)
            layer.answer(training[number])
            layer.learn(config.l2 * _rate(session, epochs, config))
            epochs.keep_between_epochs(session, model)

        for number, inputs in enumerate(validation):
            if ~number not in sent:
                layer.send_inputs(inputs, trains=False)
                sent.add(~number)
            with peer.openings.at(f"validation, part {number}"):
                layer.answer(inputs)
        epochs.end_epoch(session, model, peer.receive(EpochVerdict))

    model.restore_best()
    coefficients = layer.weights(peer.receive(PartnerShare, **layer.extents()).values)
    send_logits(peer, columns[split.test], coefficients)
    tensors = {"coefficients": torch.from_numpy(coefficients)}
    document = _document(session, config, table_encoder, coefficients) | {"contributions": {"run": mark, "rank": rank}}
    return Result(ModelPart(tensors, document))


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that brings the labels."""
    peers = session.channels("feature_holder")
    split = holding.split
    labels, label_encoder = encoded_labels(session, holding, config.task)
    task, outputs = label_encoder.task, outputs_for(label_encoder.task, len(label_encoder.classes))
    targets = targets_of(task, label_encoder.encode(labels), len(label_encoder.classes))
    table_encoder, columns = encoded_columns(holding, np.float64)
    # Without columns of its own this party still learns the intercept.
    columns = np.empty((len(labels), 0)) if columns is None else cut_off(columns)
    if not peers and table_encoder is None:
        raise ConfigError(
            "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
        )
    # Before the first checkpoint: noise that another secret made would weaken what was sent before an interruption.
    noise, began_at = SecretNoise(session.secret("coefficients")), session.step
    brought = [_Brought.receive(session, peer, config) for peer in peers]
    config = config.for_epochs(_chosen_epochs(session, config, outputs, brought))
    layers = [_layer(session, one, config, outputs) for one in brought]
    own = OwnWeights(columns.shape[1], outputs, config.momentum)
    model = _Model(layers, config.epochs, own)
    epochs = Epochs.begin(session, model, len(split.train), config)
    if session.resumed is None:
        for layer in layers:
            layer.open()

    training = _cut(session, split.train, config)
    validation = chunks(split.validation)
    received: dict[int, list[SealedBatch]] = {}
    while not epochs.is_over:
        for number in _order_left(session, epochs):
            session.next_step()
            rows = training[number]
            if number not in received:
                received[number] = [layer.receive_inputs(len(rows)) for layer in layers]
            sealed = received[number]
            logits = own.logits(columns[rows]) + _shared_logits(layers, sealed)
            loss = loss_of(task, logits, targets[rows])
            check_finite(loss, session)
            rate = _rate(session, epochs, config)
            steps = rate * slopes_of(task, logits, targets[rows])
            for layer, batch in zip(layers, sealed, strict=True):
                layer.teach(batch, steps)
            own.learn(columns[rows], steps, config.l2 * rate)
            for layer in layers:
                layer.receive_update(config.l2 * rate)
            epochs.loss_so_far += loss * len(rows)
            epochs.keep_between_epochs(session, model)

        validation_loss = 0.0
        for number, rows in enumerate(validation):
            if ~number not in received:
                received[~number] = [layer.receive_inputs(len(rows), trains=False) for layer in layers]
            logits = own.logits(columns[rows]) + _shared_logits(layers, received[~number])
            validation_loss += loss_of(task, logits, targets[rows]) * len(rows) / len(split.validation)
        training_loss = epochs.loss_so_far / len(split.train)
        verdict = epochs.judge(session, training_loss, validation_loss if len(split.validation) else None)
        for peer in peers:
            peer.send(verdict)
        epochs.end_epoch(session, model, verdict)

    model.restore_best()
    for peer, layer in zip(peers, layers, strict=True):
        release = _releases(session, peer) - (session.step == began_at)
        peer.send(_given_up(peer, config, layer, len(split.train), noise, max(release, 0)))
    logits = own.logits(columns[split.test]) + gather_logits(peers, len(split.test), outputs)
    document = _document(session, config, table_encoder, own.coefficients)
    document |= {"label_encoder": label_encoder.to_json(), "intercept": own.intercept.tolist()}
    scores = scores_in_terms_of(label_encoder, scores_of(task, logits), split.test, labels[split.test])
    return Result(ModelPart(own.tensors(), document), scores)


class _Model(Trainee):
    """What one party trains: its halves of shared layers and, at the label holder, weights of its own."""

    def __init__(
        self, halves: Sequence[LinearOwner | LinearPartner], epochs: int, own: OwnWeights | None = None
    ) -> None:
        self._halves, self._epochs, self._own = halves, epochs, own
        self._best: tuple[list[Any], dict[str, torch.Tensor]] = ([], {})

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return shares and weights as they are, and the best ones."""
        shares, tensors = self._now()
        best_shares, best_tensors = self._best
        every = tensors | {f"best.{name}": value for name, value in best_tensors.items()}
        return every, {"shares": shares, "best_shares": best_shares, "epochs": self._epochs}

    def load_state(self, tensors: dict[str, torch.Tensor], document: dict[str, Any]) -> None:
        """Go on from a checkpoint."""
        best = tensors_under("best.", tensors)
        self._best = (document["best_shares"], best)
        self._set(document["shares"], tensors)

    def keep_best(self) -> None:
        """Remember shares and weights as they are now."""
        self._best = self._now()

    def restore_best(self) -> None:
        """Go back to what was remembered."""
        self._set(*self._best)

    def _now(self) -> tuple[list[Any], dict[str, torch.Tensor]]:
        return [half.state() for half in self._halves], {} if self._own is None else self._own.tensors()

    def _set(self, shares: list[Any], tensors: dict[str, torch.Tensor]) -> None:
        for half, share in zip(self._halves, shares, strict=True):
            half.load_state(share)
        if self._own is not None:
            self._own.load(tensors)


def _cut(session: Session, rows: Rows, config: SecureLR) -> list[Rows]:
    """Cut the training rows into batches, once: the encrypted columns are packed by batch."""
    return list(batches(rows, config.batch_size, session.seed("batches")))


def _order_left(session: Session, epochs: Epochs) -> Iterator[int]:
    """Iterate over what is left of this epoch's batches, in an order all parties derive from the seed."""
    order = np.random.default_rng(session.seed("order", epochs.epoch)).permutation(epochs.steps_per_epoch)
    yield from (int(number) for number in order[epochs.steps_done(session) :])


def _rate(session: Session, epochs: Epochs, config: SecureLR) -> float:
    # Steps are counted from 1.
    return config.rate_at((session.step - 1) / (epochs.steps_per_epoch * config.epochs))


@dataclasses.dataclass(frozen=True)
class _Brought:
    """What a feature holder says of its columns."""

    peer: Channel
    key: PublicKey
    width: int
    rank: int
    opened: int

    @classmethod
    def receive(cls, session: Session, peer: Channel, config: SecureLR) -> _Brought:
        """Receive the key and the numbers."""
        key, columns = receive_key(session, peer, config.key), peer.receive(ColumnCount)
        return cls(peer, key, columns.width, columns.rank, columns.opened)


def _chosen_epochs(session: Session, config: SecureLR, outputs: int, brought: Sequence[_Brought]) -> int:
    """Return the epochs that the settings or all feature holders' guards say; each of these checks it itself."""
    if config.epochs:
        return config.epochs
    if session.resumed is not None:
        return int(session.resumed.document["epochs"])
    if config.allow_leak:
        return MOST_EPOCHS
    return max(1, min([MOST_EPOCHS, *(most_epochs(one.rank, outputs, one.opened) for one in brought)]))


def _agreed_epochs(session: Session, config: SecureLR) -> range:
    """Return the numbers of epochs that the settings, or the checkpoint to go on from, let the label holder choose."""
    agreed = config.epochs if session.resumed is None else int(session.resumed.document["epochs"])
    return range(agreed, agreed + 1) if agreed else range(1, MOST_EPOCHS + 1)


def _layer(session: Session, brought: _Brought, config: SecureLR, outputs: int) -> LinearPartner:
    peer = brought.peer
    if config.allow_leak:
        # It may be the feature holder's guard that is overridden, but both ledgers say so.
        check_training(session, peer, config, brought.rank, outputs, brought.opened)
    peer.send(TrainingExtent(outputs, config.epochs))
    format = linear_format(config, brought.width, outputs)
    return LinearPartner(peer, format, brought.key, momentum=config.momentum)


def _releases(session: Session, peer: Channel) -> int:
    """Return how often a partner got coefficients in earlier attempts at this run, by this party's ledger."""
    sent = (entry.content for entry in session.ledger.read().entries if entry.kind == "sent")
    return sum((one["peer"], one["message"]) == (peer.peer, PartnerShare.__name__) for one in sent)


def _given_up(
    peer: Channel, config: SecureLR, layer: LinearPartner, rows: int, noise: SecretNoise, release: int
) -> PartnerShare:
    """Return this party's share of a partner's coefficients, with noise as large as one row's influence.

    A training that begins anew after coefficients were given up is another release, with noise of its own: the same
    noise on other coefficients could be taken off.
    """
    share = layer.give_up_share()
    if not config.coefficient_noise:
        return PartnerShare(share)
    deviation = config.coefficient_noise * config.influence(rows)
    drawn = np.rint(np.ldexp(deviation * noise.gaussian(peer.peer, release, (len(share),)), layer.format.weight_bits))
    return PartnerShare(tuple(one + int(other) for one, other in zip(share, drawn, strict=True)))


def _shared_logits(layers: Sequence[LinearPartner], sealed: Sequence[SealedBatch]) -> Numbers | float:
    # All are asked before the first answer is awaited, so that the feature holders work at the same time.
    masks = [layer.ask(batch) for layer, batch in zip(layers, sealed, strict=True)]
    return sum((layer.logits(mask) for layer, mask in zip(layers, masks, strict=True)), 0.0)


def _document(
    session: Session, config: SecureLR, table_encoder: TableEncoder | None, coefficients: Numbers
) -> dict[str, Any]:
    names = () if table_encoder is None else table_encoder.names
    return {
        "method": "secure_lr",
        "role": session.role,
        "party": session.party,
        "config": dataclasses.asdict(config),
        "table_encoder": None if table_encoder is None else table_encoder.to_json(),
        # One list per column, with one number per class where there are several; in units of standard deviations.
        "coefficients": {name: row.tolist() for name, row in zip(names, coefficients, strict=True)},
    }
