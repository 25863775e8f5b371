"""Score new rows with a trained split network."""

from __future__ import annotations

import numpy as np

from colonnade.exchanges.holdings import own_part
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.network import OwnEncoder, build_head, gather, load_into, scores_of
from colonnade.session import Holding, Result, Session
from colonnade.training import agree_on_model, asked_model

__all__ = ["feature_holder", "label_holder"]


def feature_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    own = OwnEncoder.of(session, holding, config)
    if asked_model(session, peer, part) and own is not None:
        own.give(peer, np.arange(len(holding.aligned)))
    return Result()


def label_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play the party that learns the scores."""
    part, peers = own_part(session, holding), session.channels("feature_holder")
    serving = agree_on_model(peers, part)
    own, rows, together = OwnEncoder.of(session, holding, config), np.arange(len(holding.aligned)), None
    if serving.needs_partners:
        widths, labels = part.document["widths"], serving.labels
        head = build_head(config, widths, len(labels.classes) if labels.task == "multiclass" else 1, 0)
        load_into({"head": head}, part.tensors)
        for peer, width in zip(peers, widths[len(widths) - len(peers) :], strict=True):
            peer.dims["width"] = width
        together = scores_of(part, labels.task, gather(peers, own, head, rows))
    return Result(scores=serving.scores(together, None if own is None else own.features.numpy(), rows))
