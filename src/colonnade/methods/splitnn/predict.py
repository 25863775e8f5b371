"""Score rows with a trained split network: held-out rows while training, new rows later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.methods.splitnn.config import SplitNN
from colonnade.methods.splitnn.defence import kept_disguise
from colonnade.methods.splitnn.messages import HeldOutActivations
from colonnade.methods.splitnn.network import (
    build_head,
    encode,
    load_into,
    merge,
    outputs_for,
    rebuild_encoder,
    scores_of,
)
from colonnade.privacy import LabelDisguise
from colonnade.session import Channel, Holding, Result, Scores, Session

__all__ = ["chunks", "feature_holder", "gather_outputs", "label_holder", "make_scores", "send_held_out"]

Rows = np.ndarray[Any, Any]

# Rows per message, so that scoring many rows needs little memory at either side.
_CHUNK = 8192


def feature_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play a party that brings columns of new rows."""
    part = own_part(session, holding)
    table_encoder = TableEncoder.from_json(part.document["table_encoder"])
    features = encode(config, table_encoder, holding.table, holding.aligned.positions)
    encoder = rebuild_encoder(config, session.party, table_encoder.width, part.document["is_custom"], holding.module)
    load_into({"encoder": encoder}, part.tensors)
    encoder.eval()
    send_held_out(session.channel("label_holder"), encoder, features, np.arange(len(features)))
    return Result()


def label_holder(session: Session, holding: Holding, config: SplitNN) -> Result:
    """Play the party that learns the scores."""
    part = own_part(session, holding)
    peers = session.channels("feature_holder")
    label_encoder = LabelEncoder.from_json(part.document["label_encoder"])
    widths = part.document["widths"]
    modules: dict[str, nn.Module] = {}
    features = None
    if part.document["table_encoder"] is not None:
        table_encoder = TableEncoder.from_json(part.document["table_encoder"])
        features = encode(config, table_encoder, holding.table, holding.aligned.positions)
        is_custom = part.document["is_custom"]
        modules["encoder"] = rebuild_encoder(config, session.party, table_encoder.width, is_custom, holding.module)
    outputs = outputs_for(label_encoder.task, len(label_encoder.classes))
    modules["head"] = build_head(config, widths, outputs, 0)
    load_into(modules, part.tensors)
    for module in modules.values():
        module.eval()
    rows = np.arange(len(holding.aligned))
    for peer, width in zip(peers, widths[len(widths) - len(peers) :], strict=True):
        peer.dims["width"] = width
    found = gather_outputs(peers, modules, features, rows, config)
    return Result(scores=make_scores(label_encoder, found, rows, disguise=kept_disguise(part)))


def send_held_out(peer: Channel, encoder: nn.Module, features: torch.Tensor, rows: Rows) -> None:
    """Send activations of rows to be scored, chunk by chunk."""
    with torch.no_grad():
        for chunk in chunks(rows):
            peer.send(HeldOutActivations(encoder(features[chunk])))


def gather_outputs(
    peers: Sequence[Channel],
    modules: Mapping[str, nn.Module],
    features: torch.Tensor | None,
    rows: Rows,
    config: SplitNN,
) -> torch.Tensor:
    """Receive all parties' activations of rows to be scored and return the head's outputs."""
    head = modules["head"]
    outputs = []
    with torch.no_grad():
        for chunk in chunks(rows):
            cuts = [modules["encoder"](features[chunk])] if features is not None else []
            for peer in peers:
                received = peer.receive(HeldOutActivations, rows=len(chunk)).values
                cuts.append(received.to(next(head.parameters()).dtype))
            outputs.append(head(merge(config, cuts)))
    return torch.cat(outputs) if outputs else torch.empty(0, 1)


def make_scores(
    labels: LabelEncoder,
    outputs: torch.Tensor,
    rows: Rows,
    truth: Any = None,
    disguise: LabelDisguise | None = None,
) -> Scores:
    """Return the head's outputs as scores in the label's own terms."""
    values = scores_of(labels.task, outputs, disguise) if len(rows) else np.empty(0)
    return scores_in_terms_of(labels, values, rows, truth)


def chunks(rows: Rows) -> list[Rows]:
    """Cut rows that are only scored into messages of bearable size."""
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
