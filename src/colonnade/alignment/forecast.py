"""What an alignment sends and takes, before it happens."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from colonnade.alignment.ecdh import PIECE
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    DeclaredFormat,
    SharedRows,
    TwiceBlindedIds,
)
from colonnade.crypto.blinding import (
    MARK_BYTES,
    POINT_BYTES,
    blind,
    blind_again,
    draw_secret,
    join_ids,
    prepare_blinder,
)

__all__ = ["measure_id_seconds", "sample_messages"]

_SAMPLE = 400


def sample_messages(lead_rows: int, other_rows: int, shared: int) -> tuple[list[Any], list[Any]]:
    """Return messages of the size that the other party, and the lead, will send to one another."""
    declared = DeclaredFormat(False, True, 1, 7, False, False, "none", 1)
    others: list[Any] = [AlignmentOffer(other_rows, declared, (), b"", 0)]
    others += [BlindedIds(piece) for piece in _pieces(other_rows, POINT_BYTES)]
    others += [TwiceBlindedIds(piece) for piece in _pieces(lead_rows, MARK_BYTES)]
    leads: list[Any] = [AlignmentOpening(lead_rows, bytes(16), None, 0)]
    leads += [BlindedIds(piece) for piece in _pieces(lead_rows, POINT_BYTES)]
    leads.append(SharedRows(np.zeros(shared, np.int64), bytes(16)))
    return others, leads


def measure_id_seconds() -> tuple[float, float]:
    """Return how long this machine takes to blind one id, and to blind one a second time."""
    blinder = prepare_blinder(memoryview(draw_secret() + bytes(16)))
    chunk = join_ids([b"i%d" % number for number in range(_SAMPLE)])
    start = time.perf_counter()
    points = blind(blinder, chunk)
    middle = time.perf_counter()
    blind_again(blinder, points)
    return (middle - start) / _SAMPLE, (time.perf_counter() - middle) / _SAMPLE


def _pieces(count: int, width: int) -> list[np.ndarray[Any, Any]]:
    # A view of one zero: a sample must not take the memory of the real thing.
    return [np.broadcast_to(np.uint8(0), (min(PIECE, count - at), width)) for at in range(0, count, PIECE)]
