"""Train secure regression: both roles, message by message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError, WrongContent
from colonnade.exchanges.contributions import Contributions, check_opened, most_opened
from colonnade.exchanges.holdings import encoded_labels, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.secure_product import SumFormat, SumOwner, SumPartner
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.messages import MOST, ColumnCount, Factors, TrainingExtent
from colonnade.methods.secure_lr.predict import gather_scores, own_columns, send_scores
from colonnade.nn.regression import Numbers, Whitening, scores_of
from colonnade.session import Holding, Result, Session
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


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns."""
    peer, train, kept = session.channel("label_holder"), holding.split.train, Kept(session)
    inputs = Inputs.of(holding, minimum_support=config.minimum_support)
    columns = own_columns(holding, inputs)
    # Kept, as the sums are in its terms: on another machine the directions may come out turned.
    fitted = kept.leaf("whitening", Tensors(_tensors(**vars(Whitening.fit(columns[train], config.minimum_support)))))
    whitening = Whitening(**{name: one.numpy() for name, one in fitted.items()})
    rank = whitening.width
    if inputs is None or not rank:
        raise without_columns(session)
    whitened, run = whitening.transform(columns), session.secret("contributions").hex()[:16]
    contributions = Contributions(session, peer, holding, run, rank, allow_leak=config.allow_leak)
    key = make_key(session, config.key_size)
    send_key(peer, key)
    peer.send(ColumnCount(rank, contributions.earlier()))
    agreed = (config.epochs,) if config.epochs else _EPOCHS
    extent = peer.receive(TrainingExtent, most_scores=most_scores(config.task, MOST), epochs=agreed)
    told = [extent.scores, extent.epochs]
    if kept.once("extent", lambda: told) != told:
        raise WrongContent(f"'{peer.peer}' goes on with another number of scores or epochs than it began with.")
    # Before anything about the columns leaves, but how many there are.
    contributions.train(extent.scores, extent.epochs)
    format = SumFormat(len(train), rank, extent.scores, key.bits)
    sums = kept.leaf("sums", SumOwner(peer, format, extent.epochs, key))
    for rows in parts_of(train):
        sums.seal(whitened[rows])

    weights = torch.zeros(extent.epochs, extent.scores, rank, dtype=torch.float64)
    learned = kept.leaf("learned", Tensors(weights=weights))

    def learn(epoch: int) -> None:
        weights = sums.open(epoch) / len(train)
        learned["weights"][epoch] = torch.from_numpy(weights)
        send_scores(peer, whitened, weights.T)

    for step in steps(session, kept, train, Budget(extent.epochs, len(train))):
        if step.epoch:
            learn(step.epoch - 1)
        sums.keep(step.epoch)
    learn(extent.epochs - 1)

    every = learned["weights"].numpy().reshape(-1, rank).T
    factors = peer.receive(Factors, scores=every.shape[1], outputs=extent.outputs).values
    model = peer.receive(TrainedModel)
    # What all classes have in common changes no probability: one number less about each row.
    fewer = factors if extent.outputs == 1 else factors[:, :-1] - factors[:, -1:]
    tensors = _tensors(**vars(whitening), weights=every, factors=fewer)
    about = {"contributions": {"run": run, "rank": rank}, "model": model.model, "is_needed": model.is_needed}
    return Result(kept.part(config, tensors, **about, **_named(inputs, whitening.directions @ every @ factors)))


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that brings the labels."""
    peers, split, kept = session.channels("feature_holder"), holding.split, Kept(session)
    labels, label_encoder = encoded_labels(session, holding, config.task)
    inputs = Inputs.of(holding)
    if not peers and inputs is None:
        raise ConfigError(
            "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
        )
    own, train = own_columns(holding, inputs), split.train
    regression = JoinedRegression(label_encoder, own[train], labels[train])
    keys = [receive_key(session, peer, config.key_size) for peer in peers]
    counted = [(one.rank, one.opened) for one in (peer.receive(ColumnCount) for peer in peers)]
    scores, epochs = kept.once("extent", lambda: list(_chosen_extent(config, regression.scores, counted)))
    for peer, (rank, opened) in zip(peers, counted, strict=True):
        if config.allow_leak:
            # It may be the feature holder's guard that is overridden, but both ledgers say so.
            most = most_opened(rank, opened, epochs)
            check_opened(session, peer, rank, epochs * scores, opened, most, "", allow_leak=True)
        peer.send(TrainingExtent(scores, regression.outputs, epochs))
    sums = []
    for peer, key, (rank, _) in zip(peers, keys, counted, strict=True):
        format = SumFormat(len(train), rank, scores, key.bits)
        sums.append(kept.leaf(f"sums of {peer.peer}", SumPartner(session, peer, format, epochs, key)))
    for one in sums:
        for rows in parts_of(train):
            one.receive(len(rows))

    # By partner, row, and score of every epoch.
    added = torch.zeros(len(peers), len(own), epochs * scores, dtype=torch.float64)
    known = kept.leaf("scores", Tensors(added=added))

    def learn(epoch: int) -> None:
        for one in sums:
            one.unmask(epoch)
        found = gather_scores(peers, len(own), scores)
        known["added"][:, :, epoch * scores : (epoch + 1) * scores] = torch.from_numpy(found)

    for step in steps(session, kept, train, Budget(epochs, len(train)), rule=Patience(0)):
        if step.epoch:
            learn(step.epoch - 1)
        regression.fit(list(known["added"].numpy()[:, train, : step.epoch * scores]) if step.epoch else [])
        step.loss = regression.loss
        for one in sums:
            # What one row's label moves in a sum is about 1; all epochs together shall tell no more of it than one.
            weights = (regression.residuals @ regression.basis(scores)).T
            one.send(step.epoch, weights, config.coefficient_noise * np.sqrt(epochs))
    learn(epochs - 1)

    every = known["added"].numpy()
    factors = regression.fit(list(every[:, train]))
    for peer, factor in zip(peers, factors, strict=True):
        peer.send(Factors(factor))
    logits = own @ regression.coefficients + regression.intercept
    for one, factor in zip(every, factors, strict=True):
        logits += one @ factor
    together = scores_of(regression.task, logits[np.concatenate([split.validation, split.test])])
    tensors = _tensors(coefficients=regression.coefficients, intercept=regression.intercept)
    usable = None if inputs is None else own
    served = Serving.settle(session, holding, label_encoder, labels, together, usable, peers, tensors)
    further, document = served.serving.kept()
    about = document | {"intercept": regression.intercept.tolist()} | _named(inputs, regression.coefficients)
    return served.result(kept.part(config, tensors | further, **about))


def _chosen_extent(config: SecureLR, scores: int, brought: Sequence[tuple[int, int]]) -> tuple[int, int]:
    """Return how many scores and epochs there are: the most that every rank, after what was opened, allows.

    With fewer scores than classes ask for, partners' columns tell only the classes apart that are told worst so far.
    """
    epochs = (config.epochs,) if config.epochs else _EPOCHS
    tried = [*((scores, one) for one in epochs), *((one, epochs[-1]) for one in range(scores - 1, 0, -1))]

    def fits(extent: tuple[int, int]) -> bool:
        needed = extent[0] * extent[1]
        return all(opened + needed <= most_opened(rank, opened, extent[1]) for rank, opened in brought)

    return tried[0] if config.allow_leak else next(filter(fits, tried), tried[0])


def _tensors(**arrays: Numbers) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(np.ascontiguousarray(one)) for name, one in arrays.items()}


def _named(inputs: Inputs | None, coefficients: Numbers) -> dict[str, Any]:
    """Return the inputs, and coefficients by their names: one list per column, with one number per class."""
    if inputs is None:
        return {"inputs": None, "coefficients": {}}
    named = zip(inputs.names, coefficients.tolist(), strict=True)
    return {"inputs": inputs.to_json(), "coefficients": dict(named)}
