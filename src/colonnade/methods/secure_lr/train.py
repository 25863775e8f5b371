"""Train secure regression: both roles, message by message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import torch

from colonnade.crypto import Format, key_bits
from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.contributions import Contributions
from colonnade.exchanges.holdings import encoded_labels, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.guard import EPOCHS, check_repeating, check_training, chosen_extent
from colonnade.methods.secure_lr.messages import MOST, ColumnCount, Factors, PartnerShare, TrainingExtent
from colonnade.methods.secure_lr.predict import gather_scores, own_columns, send_scores
from colonnade.nn.regression import Numbers, Whitening, loss_of, outputs_for, scores_of, targets_of
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Holding, Result, Session
from colonnade.training import (
    Budget,
    Inputs,
    Kept,
    Linear,
    Patience,
    Serving,
    Tensors,
    TrainedModel,
    best_penalty,
    steps,
)

__all__ = ["feature_holder", "label_holder"]

# Rows that are encrypted together, so that messages stay of bearable size.
_PART = 1024
# The penalty on what partners' columns add, in standard deviations; rows that choose the penalty of own columns; how
# much longer or shorter than the first a step may be.
_LIGHT, _MOST_COMPARED, _LONGEST = 1e-3, 4000, 3.0


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns."""
    peer, split, kept = session.channel("label_holder"), holding.split, Kept(session)
    inputs = Inputs.of(holding, minimum_support=config.minimum_support)
    columns = own_columns(holding, inputs)
    whitening = Whitening.fit(columns[split.train], config.minimum_support)
    if inputs is None or not whitening.width:
        raise without_columns(session)
    whitened, rank = whitening.transform(columns), whitening.width
    mark = session.secret("contributions").hex()[:16]
    contributions, key = Contributions(session, peer.peer, holding, mark), make_key(session, config.key)
    send_key(peer, key)
    peer.send(ColumnCount(rank, contributions.earlier()))
    agreed = (config.epochs,) if config.epochs else EPOCHS
    told = peer.receive(TrainingExtent, most_scores=most_scores(config.task, MOST), epochs=agreed)
    extent = (told.scores, told.epochs)
    if tuple(kept.once("extent", lambda: list(extent))) != extent:
        raise WrongContent(f"'{peer.peer}' goes on with another number of scores or epochs than it began with.")
    # Before anything about the columns leaves, but how many there are. A step that is done opens nothing again.
    done = session.step
    again = (told.epochs - done + (0 < done < told.epochs)) * told.scores
    contributions.train(
        told.epochs * told.scores,
        again,
        lambda opened: check_training(session, peer, config, rank, extent, opened),
        lambda opened: check_repeating(session, peer, config, rank, again, opened),
    )
    layer = kept.leaf("layer", LinearOwner(peer, _format(config, rank, told.scores, len(split.train)), key))
    if session.resumed is None:
        layer.open()

    parts = [layer.encode(whitened[rows]) for rows in _parts(split.train)]
    for step in steps(session, kept, split.train, Budget(told.epochs)):
        if step.number == done + 1:
            for part in parts:
                layer.send_inputs(part)
        for number, part in enumerate(parts if step.epoch else []):
            with peer.openings.at(f"part {number}"):
                layer.answer(part)
        layer.learn()

    weights = layer.weights(peer.receive(PartnerShare, **layer.extents()).values)
    send_scores(peer, whitened, weights)
    factors = peer.receive(Factors, scores=told.scores, outputs=told.outputs).values
    model, coefficients = peer.receive(TrainedModel), whitening.directions @ weights @ factors
    tensors = {"mean": whitening.mean, "directions": whitening.directions, "weights": weights}
    part = kept.part(
        config,
        _as_tensors(tensors),
        model=model.model,
        is_needed=model.is_needed,
        contributions={"run": mark, "rank": rank},
        **_about(inputs, coefficients),
    )
    return Result(part)


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that brings the labels."""
    peers, split, kept = session.channels("feature_holder"), holding.split, Kept(session)
    labels, label_encoder = encoded_labels(session, holding, config.task)
    inputs = Inputs.of(holding)
    if not peers and inputs is None:
        raise ConfigError(
            "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
        )
    own = own_columns(holding, inputs)
    # Before the first checkpoint: noise that another secret made would weaken what was sent before an interruption.
    noise, began_at = SecretNoise(session.secret("coefficients")), session.step
    regression = _Regression(label_encoder, own[split.train], labels[split.train])
    keys = [receive_key(session, peer, config.key) for peer in peers]
    brought = [peer.receive(ColumnCount) for peer in peers]
    counted = [(one.rank, one.opened) for one in brought]
    extent = kept.once("extent", lambda: list(chosen_extent(config, regression.scores, counted)))
    scores, epochs = extent
    layers = []
    for peer, key, (rank, opened) in zip(peers, keys, counted, strict=True):
        if config.allow_leak:
            # It may be the feature holder's guard that is overridden, but both ledgers say so.
            check_training(session, peer, config, rank, (scores, epochs), opened)
        peer.send(TrainingExtent(scores, regression.outputs, epochs))
        layer = LinearPartner(peer, _format(config, rank, scores, len(split.train)), key)
        layers.append(kept.leaf(f"layer of {peer.peer}", layer))
        if session.resumed is None:
            layer.open()

    parts = _parts(np.arange(len(split.train)))
    basis, slope = regression.basis(scores), regression.step
    # By partner: the slopes of all steps together, and how far one row's label has moved them.
    start = {"slopes": torch.zeros(len(peers), len(split.train), scores, dtype=torch.float64)}
    sums = kept.leaf("sums", Tensors(start | {"moved": torch.zeros(len(peers), dtype=torch.float64)}))
    for step in steps(session, kept, split.train, Budget(epochs), rule=Patience(0)):
        if step.number == began_at + 1:
            sealed = [[layer.receive_inputs(len(rows)) for rows in parts] for layer in layers]
        # The weights are zero in the first epoch, so that nothing need be opened.
        added = [_opened(layers, batches) for batches in zip(*sealed, strict=True)] if step.epoch else []
        fitted, factors = regression.fit([np.concatenate(one) for one in zip(*added, strict=True)])
        step.loss = regression.loss(fitted)
        residuals = regression.residuals(fitted) @ basis
        for place, (layer, batches) in enumerate(zip(layers, sealed, strict=True)):
            before, moved, length = sums["slopes"][place].numpy(), float(sums["moved"][place]), 1.0
            after = slope * residuals
            if step.epoch:
                # What was learned so far is carried on as the regression has weighted it.
                carried = factors[place] @ basis
                length = float(np.clip(np.trace(carried) / scores, 1 / _LONGEST, _LONGEST))
                moved *= float(np.abs(carried).sum(axis=0).max())
                after = before @ carried + length * after
            layer.teach_together(batches, [(before - after)[rows] for rows in parts])
            sums["slopes"][place], sums["moved"][place] = torch.from_numpy(after), moved + length * slope
        for layer in layers:
            layer.receive_update()

    for peer, layer, moved in zip(peers, layers, sums["moved"].tolist(), strict=True):
        release = _releases(session, peer) - (session.step == began_at)
        deviation = config.coefficient_noise * moved
        peer.send(_given_up(layer, deviation, noise, peer.peer, max(release, 0)))
    added = gather_scores(peers, len(own), scores)
    fitted, factors = regression.fit([one[split.train] for one in added])
    for peer, factor in zip(peers, factors, strict=True):
        peer.send(Factors(factor))
    own_coefficients = fitted.coefficients[: own.shape[1]]
    logits = own @ own_coefficients + fitted.intercepts
    logits = logits + sum(one @ factor for one, factor in zip(added, factors, strict=True))
    together = scores_of(regression.task, logits[np.concatenate([split.validation, split.test])])
    tensors = _as_tensors(
        {
            "coefficients": own_coefficients,
            "intercept": fitted.intercepts,
            "factors": np.stack(factors) if factors else np.empty((0, scores, regression.outputs)),
        }
    )
    usable = None if inputs is None else own
    served = Serving.settle(session, holding, label_encoder, labels, together, usable, peers, tensors)
    further, document = served.serving.kept()
    about = {"intercept": fitted.intercepts.tolist(), **document, **_about(inputs, own_coefficients)}
    return served.result(kept.part(config, tensors | further, **about))


class _Regression:
    """The label holder's regression on its own columns and on what partners' columns add, fitted exactly."""

    def __init__(self, labels: LabelEncoder, own: Numbers, values: Any) -> None:
        self.task, self._classes, self._own = labels.task, len(labels.classes), own
        self._labels = labels.encode(values).astype(np.float64)
        self._targets = targets_of(self.task, self._labels, self._classes)
        self.outputs = outputs_for(self.task, self._classes)
        self.scores = max(1, self.outputs - 1)
        """How many numbers of a row tell all classes apart."""
        curvature = {"binary": self._labels.mean() * (1 - self._labels.mean()), "multiclass": 1 / self.outputs}
        self.step = 1.0 / (len(own) * curvature.get(self.task, 1.0))
        """With whitened columns, the step along slopes that reaches the least squares at once."""

    @cached_property
    def _penalty(self) -> float:
        if not self._own.shape[1]:
            return _LIGHT
        few = slice(_MOST_COMPARED)
        return best_penalty(self.task, self._own[few], self._labels[few], self._classes)[0]

    def fit(self, added: Sequence[Numbers]) -> tuple[Linear, list[Numbers]]:
        """Fit own coefficients and, by partner, the factors with which what it adds goes into the outputs."""
        every = np.hstack([np.empty((len(self._own), 0)), *added])
        # Larger numbers are penalised less.
        scale = np.sqrt(self._penalty / _LIGHT) / np.maximum(every.std(axis=0), 1e-12)
        self._columns = np.hstack([self._own, every * scale])
        found = Linear.fit(self.task, self._columns, self._labels, self._classes, self._penalty)
        factors = found.coefficients[self._own.shape[1] :] * scale[:, None]
        return found, np.split(factors, len(added)) if added else []

    def residuals(self, fitted: Linear) -> Numbers:
        """Return how far the targets lie above the scores."""
        return self._targets - scores_of(self.task, self._logits(fitted)).reshape(self._targets.shape)

    def loss(self, fitted: Linear) -> float:
        """Return the mean loss."""
        return loss_of(self.task, self._logits(fitted), self._targets)

    def basis(self, scores: int) -> Numbers:
        """Return so many combinations of the outputs: those in which own columns leave most to be explained."""
        return np.linalg.svd(self.residuals(self.fit([])[0]), full_matrices=False)[2][:scores].T

    def _logits(self, fitted: Linear) -> Numbers:
        return self._columns @ fitted.coefficients + fitted.intercepts


def _format(config: SecureLR, inputs: int, outputs: int, rows: int) -> LinearFormat:
    """Return the ranges and scales of one feature holder's layer.

    The logits take the weights with all their fraction bits, so that the model does not depend on the secret shares.
    """
    return LinearFormat(
        inputs=inputs,
        outputs=outputs,
        most_rows=rows,
        key_bits=key_bits(config.key),
        input_format=Format(fraction_bits=20, magnitude_bits=3),
        step_format=Format(fraction_bits=28, magnitude_bits=4),
        weight_magnitude_bits=6,
        forward_bits=None,
    )


def _parts(rows: np.ndarray[Any, Any]) -> list[np.ndarray[Any, Any]]:
    return [rows[start : start + _PART] for start in range(0, len(rows), _PART)]


def _opened(layers: Sequence[LinearPartner], batches: Sequence[Any]) -> Iterator[Numbers]:
    # All are asked before the first answer is awaited, so that the feature holders work at the same time.
    masks = [layer.ask(batch) for layer, batch in zip(layers, batches, strict=True)]
    return (layer.logits(mask) for layer, mask in zip(layers, masks, strict=True))


def _releases(session: Session, peer: Channel) -> int:
    """Return how often a partner got coefficients in earlier attempts at this run, by this party's ledger."""
    sent = (entry.content for entry in session.ledger.read().entries if entry.kind == "sent")
    return sum((one["peer"], one["message"]) == (peer.peer, PartnerShare.__name__) for one in sent)


def _given_up(layer: LinearPartner, deviation: float, noise: SecretNoise, peer: str, release: int) -> PartnerShare:
    """Return this party's share of a partner's coefficients, with noise.

    A training that begins anew after coefficients were given up is another release, with noise of its own: the same
    noise on other coefficients could be taken off.
    """
    share = layer.give_up_share()
    drawn = deviation * noise.gaussian(peer, release, (len(share),)) if deviation else np.zeros(len(share))
    steps_of_noise = np.rint(np.ldexp(drawn, layer.format.weight_bits))
    return PartnerShare(tuple(one + int(other) for one, other in zip(share, steps_of_noise, strict=True)))


def _as_tensors(arrays: dict[str, Numbers]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}


def _about(inputs: Inputs | None, coefficients: Numbers) -> dict[str, Any]:
    """Say what a part is about: one list per column, with one number per class where there are several."""
    names = () if inputs is None else inputs.names
    by_name = {name: row.tolist() for name, row in zip(names, coefficients, strict=True)}
    return {"inputs": None if inputs is None else inputs.to_json(), "coefficients": by_name}
