"""Score rows with a trained secure regression."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from colonnade.exchanges.holdings import own_part
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.contributions import Contributions
from colonnade.methods.secure_lr.messages import RowScores
from colonnade.nn.regression import Numbers, Whitening, scores_of
from colonnade.session import Channel, Holding, Result, Session
from colonnade.training import Inputs, agree_on_model, asked_model, parts_of

__all__ = ["feature_holder", "gather_scores", "label_holder", "send_scores"]


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    if asked_model(session, peer, part):
        arrays = {name: one.numpy() for name, one in part.tensors.items()}
        # What is sent tells no more than the numbers that it is made of.
        numbers = min(arrays["factors"].shape)
        Contributions(session, peer, holding, config, **part.document["contributions"]).open(numbers)
        columns = Inputs.of(holding).transform(holding.table, holding.aligned.positions, np.float64)
        whitened = Whitening(arrays["mean"], arrays["directions"]).transform(columns)
        # Of numbers in as many digits as training opened: factors that a curious receiver chose bring out no others.
        send_scores(peer, (whitened @ arrays["weights"]).astype(np.float32), arrays["factors"])
    return Result()


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that learns the scores."""
    part, peers, together = own_part(session, holding), session.channels("feature_holder"), None
    serving = agree_on_model(peers, part)
    own = Inputs.of(holding).transform(holding.table, holding.aligned.positions, np.float64)
    if serving.needs_partners:
        logits = own @ part.tensors["coefficients"].numpy() + part.tensors["intercept"].numpy()
        count = max(1, logits.shape[1] - 1)
        for added in gather_scores(peers, len(own), count):
            logits[:, :count] += added
        together = scores_of(serving.labels.task, logits)
    return Result(scores=serving.scores(together, own, np.arange(len(own))))


def send_scores(peer: Channel, columns: Numbers, weights: Numbers) -> None:
    """Send what this party's columns add to the scores, part by part."""
    for rows in parts_of(np.arange(len(columns))):
        # With fewer digits an opened number has less room for what a curious receiver packs into it.
        peer.send(RowScores((columns[rows] @ weights).astype(np.float32)))


def gather_scores(peers: Sequence[Channel], count: int, scores: int) -> Numbers:
    """Receive what each feature holder's columns add to the scores of so many rows: partners, rows, scores."""
    added = np.zeros((len(peers), count, scores))
    for rows in parts_of(np.arange(count)):
        for place, peer in enumerate(peers):
            added[place, rows] = peer.receive(RowScores, rows=len(rows), scores=scores).values
    return added
