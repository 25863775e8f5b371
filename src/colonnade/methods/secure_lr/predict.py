"""Score rows with a trained secure regression: all shared rows after training, new rows later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.exchanges.contributions import Contributions, Guard
from colonnade.exchanges.holdings import own_part
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.messages import RowScores
from colonnade.nn.regression import Numbers, Whitening, scores_of
from colonnade.session import Channel, Holding, Result, Session
from colonnade.training import Inputs, Serving, agree_on_model, asked_model, parts_of

__all__ = ["feature_holder", "gather_scores", "label_holder", "own_columns", "send_scores"]


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    if asked_model(session, peer, part):
        mean, directions, weights = (part.tensors[name].numpy() for name in ("mean", "directions", "weights"))
        contributions = Contributions(session, peer.peer, holding, part.document["contributions"]["run"])
        guard, scores = Guard(session, peer, len(weights), config.allow_leak), weights.shape[1]
        contributions.score(scores, lambda opened: guard.check_scoring(scores, opened))
        columns = own_columns(holding, Inputs.of(holding))
        send_scores(peer, Whitening(mean, directions).transform(columns), weights)
    return Result()


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that learns the scores."""
    part, peers, together = own_part(session, holding), session.channels("feature_holder"), None
    serving, inputs = Serving.from_part(part), Inputs.of(holding)
    agree_on_model(peers, serving)
    own = own_columns(holding, inputs)
    if serving.needs_partners:
        names = ("coefficients", "intercept", "factors")
        coefficients, intercept, factors = (part.tensors[name].numpy() for name in names)
        added = gather_scores(peers, len(own), factors.shape[1])
        together = scores_of(serving.labels.task, own @ coefficients + intercept + (added @ factors).sum(axis=0))
    return Result(scores=serving.scores(together, None if inputs is None else own, np.arange(len(own))))


def own_columns(holding: Holding, inputs: Inputs | None) -> Numbers:
    """Return a party's encoded columns of all shared rows, if it has any."""
    positions = holding.aligned.positions
    if inputs is None:
        return np.empty((len(positions), 0))
    return inputs.transform(holding.table, positions, dtype=np.float64)


def send_scores(peer: Channel, columns: Numbers, weights: Numbers) -> None:
    """Send what this party's columns add to the scores, part by part."""
    for rows in parts_of(np.arange(len(columns))):
        peer.send(RowScores(columns[rows] @ weights))


def gather_scores(peers: Sequence[Channel], count: int, scores: int) -> Numbers:
    """Receive what each feature holder's columns add to the scores of so many rows: partners, rows, scores."""
    added = np.zeros((len(peers), count, scores))
    for rows in parts_of(np.arange(count)):
        for place, peer in enumerate(peers):
            added[place, rows] = peer.receive(RowScores, rows=len(rows), scores=scores).values
    return added
