"""What an alignment sends and takes, before it happens."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

from colonnade.alignment.ecdh import PIECE
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    DeclaredFormat,
    IdMarks,
    SharedRows,
    TwiceBlindedIds,
)
from colonnade.crypto.blinding import (
    MARK_BYTES,
    POINT_BYTES,
    SECRET_BYTES,
    blind_each,
    draw_secret,
    evaluate,
    join_ids,
    multiply,
    prepare_blinder,
    unblind_each,
)

__all__ = ["IdSeconds", "measure_id_seconds", "sample_messages"]

_SAMPLE = 400


class IdSeconds(NamedTuple):
    """How long one id takes: one of the lead's at the lead and at the other party, and one of the other's there."""

    at_lead: float
    answered: float
    at_other: float


def sample_messages(lead_rows: int, other_rows: int, shared: int) -> tuple[list[Any], list[Any]]:
    """Return messages of the size that the other party, and the lead, will send to one another."""
    declared = DeclaredFormat(False, True, 1, 7, False, False, "none", 1)
    others: list[Any] = [AlignmentOffer(other_rows, bytes(32), declared, (), b"", 0)]
    others += [TwiceBlindedIds(piece) for piece in _pieces(lead_rows, POINT_BYTES)]
    others += [IdMarks(piece) for piece in _pieces(other_rows, MARK_BYTES)]
    leads: list[Any] = [AlignmentOpening(lead_rows, bytes(32), None, 0)]
    leads += [BlindedIds(piece) for piece in _pieces(lead_rows, POINT_BYTES)]
    leads.append(SharedRows(np.zeros((shared, MARK_BYTES), np.uint8), bytes(16)))
    return others, leads


def measure_id_seconds() -> IdSeconds:
    """Measure how long this machine takes for an id."""
    blinder = prepare_blinder(memoryview(draw_secret() + bytes(SECRET_BYTES)))
    ids = [b"i%d" % number for number in range(_SAMPLE)]
    times = [time.perf_counter()]
    evaluate(blinder, join_ids(ids))
    times.append(time.perf_counter())
    points = blind_each(blinder, join_ids(ids))
    times.append(time.perf_counter())
    multiply(blinder, points)
    times.append(time.perf_counter())
    unblind_each(blinder, join_ids([points[at * POINT_BYTES :][:POINT_BYTES] + one for at, one in enumerate(ids)]))
    times.append(time.perf_counter())
    evaluating, blinding, multiplying, unblinding = np.diff(times) / _SAMPLE
    return IdSeconds(float(blinding + unblinding), float(multiplying), float(evaluating))


def _pieces(count: int, width: int) -> list[np.ndarray[Any, Any]]:
    # A view of one zero: a sample must not take the memory of the real thing.
    return [np.broadcast_to(np.uint8(0), (min(PIECE, count - at), width)) for at in range(0, count, PIECE)]
