"""Train secure regression: both roles, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from colonnade.crypto import Format, key_bits
from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.contributions import Contributions, Guard, is_allowed
from colonnade.exchanges.holdings import encoded_labels, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_linear import LinearFormat, LinearOwner, LinearPartner, SealedBatch
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.messages import MOST, ColumnCount, Factors, PartnerShare, TrainingExtent
from colonnade.methods.secure_lr.predict import gather_scores, own_columns, send_scores
from colonnade.nn.regression import Numbers, Whitening, scores_of
from colonnade.privacy import SecretNoise
from colonnade.session import Channel, Holding, Result, Session
from colonnade.training import (
    Budget,
    Inputs,
    JoinedRegression,
    Kept,
    Patience,
    Serving,
    Tensors,
    TrainedModel,
    parts_of,
    steps,
)

__all__ = ["feature_holder", "label_holder"]

# The numbers of epochs that are tried in turn where the settings leave it open.
_EPOCHS = (2, 1)
# How much longer or shorter than the first a later step may be.
_LONGEST = 3.0


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns."""
    peer, split, kept, began_at = session.channel("label_holder"), holding.split, Kept(session), session.step
    inputs = Inputs.of(holding, minimum_support=config.minimum_support)
    columns = own_columns(holding, inputs)
    whitening = Whitening.fit(columns[split.train], config.minimum_support)
    if inputs is None or not whitening.width:
        raise without_columns(session)
    whitened, mark = whitening.transform(columns), session.secret("contributions").hex()[:16]
    contributions, key = Contributions(session, peer.peer, holding, mark), make_key(session, config.key)
    send_key(peer, key)
    peer.send(ColumnCount(whitening.width, contributions.earlier()))
    agreed = (config.epochs,) if config.epochs else _EPOCHS
    extent = peer.receive(TrainingExtent, most_scores=most_scores(config.task, MOST), epochs=agreed)
    told = [extent.scores, extent.epochs]
    if kept.once("extent", lambda: told) != told:
        raise WrongContent(f"'{peer.peer}' goes on with another number of scores or epochs than it began with.")
    # Before anything about the columns leaves, but how many there are.
    Guard(session, peer, whitening.width, config.allow_leak).train(contributions, extent.scores, extent.epochs)
    format = _format(config, whitening.width, extent.scores, len(split.train))
    layer = kept.leaf("layer", LinearOwner(peer, format, key))
    if session.resumed is None:
        layer.open()

    batches = [layer.encode(whitened[rows]) for rows in parts_of(split.train)]
    for step in steps(session, kept, split.train, Budget(extent.epochs, len(split.train))):
        if step.number == began_at + 1:
            for batch in batches:
                layer.send_inputs(batch)
        for number, batch in enumerate(batches if step.epoch else []):
            with peer.openings.at(f"part {number}"):
                layer.answer(batch)
        layer.learn()

    weights = layer.weights(peer.receive(PartnerShare, **layer.extents()).values)
    send_scores(peer, whitened, weights)
    factors = peer.receive(Factors, scores=extent.scores, outputs=extent.outputs).values
    model, tensors = peer.receive(TrainedModel), _tensors(**vars(whitening), weights=weights)
    about = {"contributions": {"run": mark, "rank": whitening.width}, "model": model.model}
    about |= _named(inputs, whitening.directions @ weights @ factors)
    return Result(kept.part(config, tensors, is_needed=model.is_needed, **about))


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
    regression = JoinedRegression(label_encoder, own[split.train], labels[split.train])
    keys = [receive_key(session, peer, config.key) for peer in peers]
    counted = [(one.rank, one.opened) for one in (peer.receive(ColumnCount) for peer in peers)]
    scores, epochs = kept.once("extent", lambda: list(_chosen_extent(config, regression.scores, counted)))
    layers: list[LinearPartner] = []
    for peer, key, (rank, opened) in zip(peers, keys, counted, strict=True):
        if config.allow_leak:
            # It may be the feature holder's guard that is overridden, but both ledgers say so.
            Guard(session, peer, rank, allow_leak=True).check_training(scores, epochs, opened)
        peer.send(TrainingExtent(scores, regression.outputs, epochs))
        layer = LinearPartner(peer, _format(config, rank, scores, len(split.train)), key)
        layers.append(kept.leaf(f"layer of {peer.peer}", layer))
        if session.resumed is None:
            layer.open()

    cut, basis, rate = (
        list(parts_of(np.arange(len(split.train)))),
        regression.basis(scores),
        regression.curvature * len(split.train),
    )
    # By partner: the slopes of all steps together, and how far one row's label has moved them.
    slopes = torch.zeros(len(peers), len(split.train), scores, dtype=torch.float64)
    sums = kept.leaf("sums", Tensors(slopes=slopes, moved=torch.zeros(len(peers), dtype=torch.float64)))
    for step in steps(session, kept, split.train, Budget(epochs, len(split.train)), rule=Patience(0)):
        if step.number == began_at + 1:
            sealed = [[layer.receive_inputs(len(rows)) for rows in cut] for layer in layers]
        # In the first epoch the weights are zero: there is nothing to open.
        factors = regression.fit(_opened(layers, sealed) if step.epoch else [])
        step.loss = regression.loss
        for place, (layer, batches) in enumerate(zip(layers, sealed, strict=True)):
            before, after = sums["slopes"][place].numpy(), regression.residuals @ basis / rate
            moved = 1.0 / rate
            if step.epoch:
                # What was learned before is carried on as the regression has weighted it.
                carried = factors[place] @ basis
                length = float(np.clip(np.trace(carried) / scores, 1 / _LONGEST, _LONGEST))
                after = before @ carried + length * after
                moved = float(np.abs(carried).sum(axis=0).max() * sums["moved"][place]) + length * moved
            layer.teach_together(batches, [(before - after)[rows] for rows in cut])
            sums["slopes"][place], sums["moved"][place] = torch.from_numpy(after), moved
        for layer in layers:
            layer.receive_update()

    for peer, layer, moved in zip(peers, layers, sums["moved"].tolist(), strict=True):
        # A training that begins anew after coefficients were given up is another release, with noise of its own: the
        # same noise on other coefficients could be taken off.
        release = max(_releases(session, peer) - (session.step == began_at), 0)
        drawn = noise.gaussian(peer.peer, release, layer.share.shape)
        peer.send(PartnerShare(layer.give_up_share(config.coefficient_noise * moved * drawn)))
    added = gather_scores(peers, len(own), scores)
    factors = regression.fit(list(added[:, split.train]))
    for peer, factor in zip(peers, factors, strict=True):
        peer.send(Factors(factor))
    stacked = np.reshape(factors, (len(peers), scores, regression.outputs))
    logits = own @ regression.coefficients + regression.intercept + (added @ stacked).sum(axis=0)
    together = scores_of(regression.task, logits[np.concatenate([split.validation, split.test])])
    tensors = _tensors(coefficients=regression.coefficients, intercept=regression.intercept, factors=stacked)
    usable = None if inputs is None else own
    served = Serving.settle(session, holding, label_encoder, labels, together, usable, peers, tensors)
    further, document = served.serving.kept()
    about = document | {"intercept": regression.intercept.tolist()} | _named(inputs, regression.coefficients)
    return served.result(kept.part(config, tensors | further, **about))


def _chosen_extent(config: SecureLR, scores: int, brought: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many scores and epochs there are: the most that every rank, after what was opened, allows.

    With fewer scores than classes ask for, partners' columns tell only the classes apart that own columns do not.
    """
    epochs = (config.epochs,) if config.epochs else _EPOCHS
    tried = [*((scores, one) for one in epochs), *((one, epochs[-1]) for one in range(scores - 1, 0, -1))]
    fit = (one for one in tried if all(is_allowed(rank, one[0], opened, one[1]) for rank, opened in brought))
    return tried[0] if config.allow_leak else next(fit, tried[0])


def _format(config: SecureLR, inputs: int, outputs: int, rows: int) -> LinearFormat:
    """Return the ranges and scales of one feature holder's layer; logits do not depend on the secret shares at all."""
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


def _opened(layers: Sequence[LinearPartner], sealed: Sequence[Sequence[SealedBatch]]) -> list[Numbers]:
    """Return by partner what its columns add to the training rows' scores."""
    found = []
    for batches in zip(*sealed, strict=True):
        # All are asked before the first answer is awaited, so that the feature holders work at the same time.
        masks = [layer.ask(batch) for layer, batch in zip(layers, batches, strict=True)]
        found.append([layer.logits(mask) for layer, mask in zip(layers, masks, strict=True)])
    return [np.concatenate(one) for one in zip(*found, strict=True)]


def _releases(session: Session, peer: Channel) -> int:
    """Return how often a partner got coefficients in earlier attempts at this run, by this party's ledger."""
    sent = (entry.content for entry in session.ledger.read().entries if entry.kind == "sent")
    return sum((one["peer"], one["message"]) == (peer.peer, PartnerShare.__name__) for one in sent)


def _tensors(**arrays: Numbers) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}


def _named(inputs: Inputs | None, coefficients: Numbers) -> dict[str, Any]:
    """Return the inputs, and coefficients by their names: one list per column, with one number per class."""
    if inputs is None:
        return {"inputs": None, "coefficients": {}}
    named = zip(inputs.names, coefficients.tolist(), strict=True)
    return {"inputs": inputs.to_json(), "coefficients": dict(named)}
