"""Score rows with a trained secure regression: all shared rows after training, new rows later."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.exchanges.contributions import Contributions
from colonnade.exchanges.holdings import own_part
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.guard import check_scoring
from colonnade.methods.secure_lr.messages import RowScores
from colonnade.nn.regression import Numbers, Whitening, scores_of
from colonnade.session import Channel, Holding, Result, Session
from colonnade.training import Inputs, Serving, agree_on_model, asked_model, parts_of

__all__ = ["feature_holder", "gather_scores", "label_holder", "own_columns", "send_scores"]


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    if asked_model(session, peer, part):
        weights, counted = {name: one.numpy() for name, one in part.tensors.items()}, part.document["contributions"]
        scores, rank = weights["weights"].shape[1], int(counted["rank"])
        Contributions(session, peer.peer, holding, counted["run"]).score(
            scores, lambda opened: check_scoring(session, peer, config, rank, scores, opened)
        )
        columns = own_columns(holding, Inputs.of(holding))
        send_scores(peer, Whitening(weights["mean"], weights["directions"]).transform(columns), weights["weights"])
    return Result()


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that learns the scores."""
    part, peers = own_part(session, holding), session.channels("feature_holder")
    serving = Serving.from_part(part)
    agree_on_model(peers, serving)
    inputs, together = Inputs.of(holding), None
    own = own_columns(holding, inputs)
    if serving.needs_partners:
        coefficients, intercept, factors = (
            part.tensors[name].numpy() for name in ("coefficients", "intercept", "factors")
        )
        added = gather_scores(peers, len(own), factors.shape[1])
        logits = own @ coefficients + intercept + sum(one @ factor for one, factor in zip(added, factors, strict=True))
        together = scores_of(serving.labels.task, logits)
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


def gather_scores(peers: Sequence[Channel], count: int, scores: int) -> list[Numbers]:
    """Receive what each feature holder's columns add to the scores of so many rows."""
    added = [np.zeros((count, scores)) for _ in peers]
    for rows in parts_of(np.arange(count)):
        for peer, one in zip(peers, added, strict=True):
            one[rows] = peer.receive(RowScores, rows=len(rows), scores=scores).values
    return added
