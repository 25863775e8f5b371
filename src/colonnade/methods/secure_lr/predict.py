"""Score rows with a trained secure regression: held-out rows after training, new rows later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from colonnade.data import LabelEncoder, TableEncoder
from colonnade.exchanges.holdings import own_part, scores_in_terms_of
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.methods.secure_lr.guard import Contributions, check_scoring
from colonnade.methods.secure_lr.messages import HeldOutLogits
from colonnade.nn.regression import Numbers, scores_of
from colonnade.session import Channel, Holding, Result, Session

__all__ = ["chunks", "cut_off", "feature_holder", "gather_logits", "label_holder", "send_logits"]

Rows = np.ndarray[Any, Any]

LARGEST_VALUE = 64.0
"""Encoded columns are cut off here, in standard deviations."""
# Rows per message, so that many rows need few round trips and little memory.
_CHUNK = 4096


def feature_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play a party that brings columns of new rows."""
    part, peer = own_part(session, holding), session.channel("label_holder")
    coefficients, counted = part.tensors["coefficients"].numpy(), part.document["contributions"]
    scores, rank = coefficients.shape[1], int(counted["rank"])
    Contributions(session, peer.peer, holding, counted["run"]).score(
        scores, lambda opened: check_scoring(session, peer, config, rank, scores, opened)
    )
    encoder = TableEncoder.from_json(part.document["table_encoder"])
    columns = cut_off(encoder.transform(holding.table, holding.aligned.positions, dtype=np.float64))
    send_logits(peer, columns, coefficients)
    return Result()


def label_holder(session: Session, holding: Holding, config: SecureLR) -> Result:
    """Play the party that learns the scores."""
    part = own_part(session, holding)
    labels = LabelEncoder.from_json(part.document["label_encoder"])
    intercept = part.tensors["intercept"].numpy()
    rows = np.arange(len(holding.aligned))
    logits = gather_logits(session.channels("feature_holder"), len(rows), len(intercept)) + intercept
    if part.document["table_encoder"] is not None:
        encoder = TableEncoder.from_json(part.document["table_encoder"])
        columns = cut_off(encoder.transform(holding.table, holding.aligned.positions, dtype=np.float64))
        logits = logits + columns @ part.tensors["coefficients"].numpy()
    return Result(scores=scores_in_terms_of(labels, scores_of(labels.task, logits), rows))


def send_logits(peer: Channel, columns: Numbers, coefficients: Numbers) -> None:
    """Send what this party's columns add to the scores, chunk by chunk."""
    for rows in chunks(np.arange(len(columns))):
        peer.send(HeldOutLogits(columns[rows] @ coefficients))


def gather_logits(peers: Sequence[Channel], count: int, outputs: int) -> Numbers:
    """Add up what all feature holders' columns contribute to the scores of so many rows."""
    logits = np.zeros((count, outputs))
    for rows in chunks(np.arange(count)):
        for peer in peers:
            logits[rows] += peer.receive(HeldOutLogits, rows=len(rows), scores=outputs).values
    return logits


def cut_off(columns: Numbers) -> Numbers:
    """Bring values into the range that can be encrypted; the encoder has made them numbers of standard deviations."""
    return np.clip(columns, -LARGEST_VALUE, LARGEST_VALUE)


def chunks(rows: Rows) -> list[Rows]:
    """Cut rows that are only scored into messages of bearable size."""
    return [rows[start : start + _CHUNK] for start in range(0, len(rows), _CHUNK)]
