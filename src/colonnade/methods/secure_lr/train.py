"""Train secure regression: both roles, message by message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.errors import WrongContent
from colonnade.exchanges.holdings import encoded_labels, nobody_has_columns, without_columns
from colonnade.exchanges.labels import most_scores
from colonnade.exchanges.public_keys import make_key, receive_key, send_key
from colonnade.exchanges.weighted_sums import SumOwner, SumPartner, sum_format
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.contributions import Contributions, mark_override, most_opened
from colonnade.methods.secure_lr.messages import MOST, ColumnCount, Factors, TrainingExtent
from colonnade.methods.secure_lr.predict import gather_scores, send_scores
from colonnade.nn.regression import Whitening, scores_of
from colonnade.session import Holding, Result, Session
from colonnade.training import Budget, Inputs, JoinedRegression, Kept, Patience, Serving, TrainedModel, parts_of, steps

__all__ = ["feature_holder", "label_holder"]

# The numbers of epochs that are tried in turn where the settings leave it open.
_EPOCHS = (2, 1)


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns."""
    peer, train, kept = session.channel("label_holder"), holding.split.train, Kept(session)
    inputs = Inputs.of(holding, minimum_support=config.minimum_support)
    columns = inputs.transform(holding.table, holding.aligned.positions, np.float64)
    # Kept, as the sums are in its terms: on another machine the directions may come out turned.
    whitening = Whitening(**kept.arrays("whitening", **vars(Whitening.fit(columns[train], config.minimum_support))))
    rank = whitening.width
    if not rank:
        raise without_columns(session)
    whitened, run = whitening.transform(columns), session.secret("contributions").hex()[:16]
    contributions = Contributions(session, peer, holding, config, run, rank)
    key = make_key(session, config.key_size)
    send_key(peer, key)
    peer.send(ColumnCount(rank, contributions.earlier()))
    agreed = (config.epochs,) if config.epochs else _EPOCHS
    extent = peer.receive(TrainingExtent, most_scores=most_scores(config.task, MOST), epochs=agreed)
    told = [extent.scores, extent.epochs]
    if kept.once("extent", lambda: told) != told:
        raise WrongContent(f"'{peer.peer}' goes on with another number of scores or epochs than it began with.")
    # Before anything about the columns leaves, but how many there are.
    contributions.open(extent.scores, extent.epochs, again=True)
    format = sum_format(len(train), rank, key.bits)
    sums = kept.leaf("sums", SumOwner(peer, format, extent.scores, extent.epochs, key))
    for rows in parts_of(train):
        sums.seal(whitened[rows])

    weights = kept.arrays("learned", weights=np.zeros((extent.epochs, extent.scores, rank)))["weights"]

    def learn(epoch: int) -> None:
        weights[epoch] = sums.open(epoch) / len(train)
        send_scores(peer, whitened, weights[epoch].T)

    for step in steps(session, kept, train, Budget(extent.epochs, len(train))):
        if step.epoch:
            learn(step.epoch - 1)
        sums.keep(step.epoch)
    learn(extent.epochs - 1)

    every = weights.reshape(-1, rank).T
    factors = peer.receive(Factors, scores=every.shape[1], outputs=extent.outputs).values
    # What all classes have in common changes no probability: one number less about each row.
    fewer = factors if extent.outputs == 1 else factors[:, :-1] - factors[:, -1:]
    named = zip(inputs.names, (whitening.directions @ every @ factors).tolist(), strict=True)
    about = {"inputs": inputs.to_json(), "coefficients": dict(named), "contributions": {"run": run, "rank": rank}}
    arrays = {**vars(whitening), "weights": every, "factors": fewer}
    return Result(kept.part(config, arrays, **about, **vars(peer.receive(TrainedModel))))


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that brings the labels."""
    peers, split, kept = session.channels("feature_holder"), holding.split, Kept(session)
    labels, label_encoder = encoded_labels(session, holding, config.task)
    inputs, train = Inputs.of(holding), split.train
    if not peers and not inputs.width:
        raise nobody_has_columns()
    own = inputs.transform(holding.table, holding.aligned.positions, np.float64)
    regression = JoinedRegression(label_encoder, own[train], labels[train])
    keys = [receive_key(session, peer, config.key_size) for peer in peers]
    counted = [peer.receive(ColumnCount) for peer in peers]
    scores, epochs = kept.once("extent", lambda: list(_chosen_extent(config, regression.scores, counted)))
    sums = []
    for peer, key, count in zip(peers, keys, counted, strict=True):
        if config.allow_leak and not _allows(count, scores, epochs):
            # It may be the feature holder's guard that is overridden, but both ledgers say so.
            mark_override(session, peer, rank=count.rank, needed=epochs * scores, opened=count.opened)
        peer.send(TrainingExtent(scores, regression.outputs, epochs))
        format = sum_format(len(train), count.rank, key.bits)
        sums.append(kept.leaf(f"sums of {peer.peer}", SumPartner(session, peer, format, scores, epochs, key)))
    for one in sums:
        for rows in parts_of(train):
            one.receive(len(rows))

    # By partner, row, and score of every epoch.
    added = kept.arrays("scores", added=np.zeros((len(peers), len(own), epochs * scores)))["added"]

    def learn(epoch: int) -> None:
        for one in sums:
            one.unmask(epoch)
        added[:, :, epoch * scores : (epoch + 1) * scores] = gather_scores(peers, len(own), scores)

    for step in steps(session, kept, train, Budget(epochs, len(train)), rule=Patience(0)):
        if step.epoch:
            learn(step.epoch - 1)
        regression.fit(list(added[:, train, : step.epoch * scores]))
        step.loss = regression.loss
        weights = (regression.residuals @ regression.basis(scores)).T
        for one in sums:
            # What one row's label moves in a sum is about 1; all epochs together shall tell no more of it than one.
            one.send(step.epoch, weights, config.coefficient_noise * np.sqrt(epochs))
    learn(epochs - 1)

    factors = regression.fit(list(added[:, train]))
    logits = own @ regression.coefficients + regression.intercept
    for peer, one, factor in zip(peers, added, factors, strict=True):
        peer.send(Factors(factor))
        logits += one @ factor
    together = scores_of(regression.task, logits[np.concatenate([split.validation, split.test])])
    arrays = {"coefficients": regression.coefficients, "intercept": regression.intercept}
    served = Serving.settle(session, holding, label_encoder, labels, together, own, peers, arrays)
    named = dict(zip(inputs.names, regression.coefficients.tolist(), strict=True))
    return served.result(kept, config, arrays, inputs=inputs.to_json(), coefficients=named)


def _chosen_extent(config: SecureLR, scores: int, counted: Sequence[ColumnCount]) -> tuple[int, int]:
    """Return how many scores and epochs there are: the most that every rank, after what was opened, allows.

    With fewer scores than classes ask for, partners' columns tell only the classes apart that are told worst so far.
    """
    epochs = (config.epochs,) if config.epochs else _EPOCHS
    tried = [*((scores, one) for one in epochs), *((one, epochs[-1]) for one in range(scores - 1, 0, -1))]
    fitting = (extent for extent in tried if config.allow_leak or all(_allows(one, *extent) for one in counted))
    return next(fitting, tried[0])


def _allows(count: ColumnCount, scores: int, epochs: int) -> bool:
    return count.opened + scores * epochs <= most_opened(count.rank, count.opened, epochs)
