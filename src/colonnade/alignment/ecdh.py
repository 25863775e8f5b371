"""Private set intersection by Diffie-Hellman: two parties find equal ids without showing the others.

Between the lead (A, secret a) and each other party (B, secret b), for ids x of A and y of B, in pieces:

1. B tells how many ids it has, and A answers with a fresh salt.
2. Both send their ids blinded, H(x)^a and H(y)^b, in random order.
3. B returns H(x)^ab for A's ids, in A's order, as short hashes; A computes H(y)^ab itself and compares.
4. A sends B the places of the rows that all parties have, in the order agreed by the run's seed.

H hashes to a group of prime order in which Diffie-Hellman is hard, with the salt. B learns which of its rows all
parties have, A learns which of its rows each B has. Neither sees an id, or a hash of one, that it does not have. Who
can enumerate all possible ids can put them all into its own table; no protocol for finding shared ids prevents that.

With a secret of its own for every partner the lead keeps partners from comparing what it sent them.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.messages import BlindedIds, TwiceBlindedIds
from colonnade.alignment.store import Unfinished, marks_of
from colonnade.crypto.blinding import MARK_BYTES, POINT_BYTES, join_ids
from colonnade.engine import Engine, Work
from colonnade.errors import WrongContent
from colonnade.session import Channel

__all__ = ["PIECE", "answer_partner", "ask_partner", "random_order"]

Places = npt.NDArray[np.int64]
Marks = npt.NDArray[np.bytes_]

PIECE = 16_384
"""Ids per message: half a megabyte of points."""
_ROOM = "colonnade.crypto.blinding"
# About what one multiplication takes; it only decides how work is divided.
_SECONDS_EACH = 6e-5


def random_order(rows: Places) -> Places:
    """Shuffle rows by the operating system's randomness: who learns some places must not guess others."""
    keys = np.frombuffer(secrets.token_bytes(8 * len(rows)), np.uint64)
    return rows[np.argsort(keys, kind="stable")]


def pieces_of(count: int) -> int:
    """Return how many messages so many ids take."""
    return -(-count // PIECE)


def ask_partner(
    peer: Channel,
    engine: Engine,
    ids: Sequence[bytes],
    state: Unfinished,
    their_count: int,
    told: Callable[[int, int], None],
    *,
    sizes_only: bool = False,
) -> tuple[Marks, Marks]:
    """Play the lead with one partner: return the marks of its own ids, in the order sent, and of the partner's."""
    order = state.sent_order
    own_pieces, total = pieces_of(len(order)), max(pieces_of(len(order)), pieces_of(their_count))
    own, theirs = state.kept(state.pieces)
    for number in range(state.pieces, total):
        told(number, total)
        rows = order[number * PIECE : (number + 1) * PIECE]
        if len(rows):
            peer.send(BlindedIds(_blinded(engine, state, [ids[row] for row in rows])))
        mark = b""
        if expected := min(PIECE, their_count - number * PIECE) if number * PIECE < their_count else 0:
            mark = _twice_blinded(peer, engine, state, _received(peer, expected))
        returned = b"" if sizes_only or number >= own_pieces else _returned(peer, len(rows))
        own.append(returned)
        theirs.append(mark)
        state.keep(number, returned, mark)
    if sizes_only:
        own = [_returned(peer, len(order[at : at + PIECE])) for at in range(0, len(order), PIECE)]
    told(total, total)
    _refuse_repeats(peer, theirs)
    return marks_of(own), marks_of(theirs)


def answer_partner(
    peer: Channel,
    engine: Engine,
    ids: Sequence[bytes],
    state: Unfinished,
    their_count: int,
    told: Callable[[int, int], None],
    *,
    sizes_only: bool = False,
) -> None:
    """Play the party that the lead asks: send own ids blinded, and blind the lead's a second time."""
    order = state.sent_order
    total = max(pieces_of(len(order)), pieces_of(their_count))
    _, gathered = state.kept(state.pieces)
    for number in range(state.pieces, total):
        told(number, total)
        rows, marks = order[number * PIECE : (number + 1) * PIECE], b""
        if len(rows):
            peer.send(BlindedIds(_blinded(engine, state, [ids[row] for row in rows])))
        if expected := min(PIECE, their_count - number * PIECE) if number * PIECE < their_count else 0:
            marks = _twice_blinded(peer, engine, state, _received(peer, expected))
            _refuse_repeats(peer, [marks])
            gathered.append(marks)
        if state.answered(number) not in (None, marks):
            raise WrongContent(
                f"'{peer.peer}' goes on with an alignment that was cut short, but asks about other ids than before. "
                "Begin anew at both parties if its table has changed."
            )
        # Before it is sent: the same piece must not be answered for other ids, however often the lead comes back.
        state.keep(number, b"", marks)
        if marks and not sizes_only:
            peer.send(TwiceBlindedIds(_as_rows(marks, MARK_BYTES)))
    _refuse_repeats(peer, gathered)
    if sizes_only:
        # In another order, over all of them: the lead can count what is shared, but not tell which.
        mixed = random_order(np.arange(their_count))
        shuffled = _as_rows(b"".join(gathered), MARK_BYTES)[mixed]
        for at in range(0, their_count, PIECE):
            peer.send(TwiceBlindedIds(np.ascontiguousarray(shuffled[at : at + PIECE])))
    told(total, total)


def _blinded(engine: Engine, state: Unfinished, ids: Sequence[bytes]) -> np.ndarray[Any, Any]:
    parts = engine.parts(len(ids), _SECONDS_EACH)
    work = Work(f"{_ROOM}:blind", f"{_ROOM}:prepare_blinder", state.secret + state.salt)
    return _as_rows(b"".join(engine.map(work, [join_ids(ids[part]) for part in parts])), POINT_BYTES)


def _twice_blinded(peer: Channel, engine: Engine, state: Unfinished, points: bytes) -> bytes:
    parts = engine.parts(len(points) // POINT_BYTES, _SECONDS_EACH)
    work = Work(f"{_ROOM}:blind_again", f"{_ROOM}:prepare_blinder", state.secret + state.salt)
    chunks = [points[part.start * POINT_BYTES : part.stop * POINT_BYTES] for part in parts]
    try:
        return b"".join(engine.map(work, chunks))
    except WrongContent as refused:
        raise WrongContent(f"From '{peer.peer}': {refused}") from None


def _refuse_repeats(peer: Channel, content: Sequence[bytes]) -> None:
    marks = marks_of(content)
    if len(np.unique(marks)) != len(marks):
        raise WrongContent(f"'{peer.peer}' sent the same blinded id more than once. Its table must not repeat ids.")


def _received(peer: Channel, count: int) -> bytes:
    points = peer.receive(BlindedIds, points=(count, POINT_BYTES)).points
    if points.dtype != np.uint8:
        raise WrongContent(f"'{peer.peer}' sent blinded ids that are not bytes.")
    return points.tobytes()


def _returned(peer: Channel, count: int) -> bytes:
    marks = peer.receive(TwiceBlindedIds, marks=(count, MARK_BYTES)).marks
    if marks.dtype != np.uint8:
        raise WrongContent(f"'{peer.peer}' sent twice blinded ids that are not bytes.")
    return marks.tobytes()


def _as_rows(content: bytes, width: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(content, np.uint8).reshape(-1, width)
