"""Private set intersection on a curve: two parties find equal ids without showing the others.

Where rows are asked for, by an oblivious pseudorandom function (2HashDH, see `colonnade.crypto.blinding`) of the other
party (B, secret k), between it and the lead (A), for ids x of A and y of B, in pieces:

1. B tells how many ids it has. Both give a share of a fresh salt.
2. A sends its ids blinded, r H(x) with an r for each id, in random order; B returns k r H(x), and A removes r.
   Both halves of F(x) = SHA-256(k H(x), x) are then known to A: a mark and a token.
3. When all of A's ids are answered, and not before, B sends the marks of its own F(y), in random order. A compares.
4. A sends B the tokens of the rows that all parties have, in the order agreed by the run's seed.

A can name a token only where it had x evaluated, so B refuses rows that A made up. B learns which of its rows all
parties have, A learns which of its rows each B has. Neither sees an id, or a hash of one, that it does not have. Who
can enumerate all possible ids can put them all into its own table; no protocol for finding shared ids prevents that.

Where only sizes are asked for, each multiplies its own ids and the other's with one secret (a and b), and B returns
hashes of a b H(x) in another order: A can count those it knows from a b H(y), and cannot tell which they are.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.alignment.messages import BlindedIds, IdMarks, ShuffledMarks, TwiceBlindedIds
from colonnade.alignment.store import Unfinished
from colonnade.crypto.blinding import MARK_BYTES, OUTPUT_BYTES, POINT_BYTES, join_ids
from colonnade.engine import Engine, Work
from colonnade.errors import WrongContent
from colonnade.session import Channel

__all__ = [
    "PIECE",
    "Side",
    "Tokens",
    "answer_count",
    "answer_partner",
    "ask_count",
    "ask_partner",
    "random_order",
    "rows_of_tokens",
]

Places = npt.NDArray[np.int64]
Tokens = npt.NDArray[np.uint8]

PIECE = 16_384
"""Ids per message: half a megabyte of points."""
_ROOM = "colonnade.crypto.blinding"
# About what one multiplication takes; it only decides how work is divided.
_SECONDS_EACH = 6e-5


@dataclass(frozen=True)
class Side:
    """One party's side of an alignment with one partner."""

    peer: Channel
    engine: Engine
    ids: Sequence[bytes]
    state: Unfinished
    told: Callable[[int, int], None]

    def piece(self, number: int) -> list[bytes]:
        """Return the ids of a piece, in the order sent."""
        return [self.ids[row] for row in self.state.sent_order[number * PIECE : (number + 1) * PIECE]]

    def theirs(self, number: int) -> int:
        """Return how many ids the partner has in a piece."""
        return max(0, min(PIECE, self.state.their_count - number * PIECE))

    def work(self, function: str, ids: Sequence[bytes]) -> bytes:
        """Let a function of `crypto.blinding` work on ids, wherever the engine has room."""
        return self._map(function, [join_ids(ids[part]) for part in self.engine.parts(len(ids), _SECONDS_EACH)])

    def multiply(self, points: bytes) -> bytes:
        """Multiply the partner's points with this party's secret."""
        parts = self.engine.parts(len(points) // POINT_BYTES, _SECONDS_EACH)
        return self._map("multiply", [points[part.start * POINT_BYTES : part.stop * POINT_BYTES] for part in parts])

    def receive(self, kind: type[Any], field: str, ids: int) -> bytes:
        """Wait for an array of bytes about so many ids."""
        return bytes(getattr(self.peer.receive(kind, ids=ids), field).tobytes())

    def _map(self, function: str, chunks: Sequence[bytes]) -> bytes:
        work = Work(f"{_ROOM}:{function}", f"{_ROOM}:prepare_blinder", self.state.secret + self.state.salt)
        try:
            return b"".join(self.engine.map(work, chunks))
        except WrongContent as refused:
            raise WrongContent(f"From '{self.peer.peer}': {refused}") from None


def random_order(rows: Places) -> Places:
    """Shuffle rows by the operating system's randomness: who learns some places must not guess others."""
    keys = np.frombuffer(secrets.token_bytes(8 * len(rows)), np.uint64)
    return rows[np.argsort(keys, kind="stable")]


def ask_partner(side: Side) -> tuple[Places, Tokens]:
    """Play the lead with one partner: return its rows that the partner has too, and their tokens."""
    state = side.state
    first, total = state.pieces, len(_pieces(len(state.sent_order)))
    outputs = state.kept()

    def ask(number: int) -> None:
        if number < total:
            side.peer.send(BlindedIds(_as_rows(side.work("blind_each", side.piece(number)), POINT_BYTES)))

    ask(first)
    for number in range(first, total):
        side.told(number, total)
        # While the partner works on this one.
        ask(number + 1)
        ids = side.piece(number)
        points = side.receive(TwiceBlindedIds, "points", len(ids))
        pairs = [points[at * POINT_BYTES : (at + 1) * POINT_BYTES] + one for at, one in enumerate(ids)]
        outputs.append(side.work("unblind_each", pairs))
        state.keep(number, outputs[-1])
    numbers = _pieces(state.their_count)
    marks = b"".join(side.receive(IdMarks, "marks", side.theirs(number)) for number in numbers)
    _refuse_others(side, 0, marks)
    side.told(total, total)
    own = _as_rows(b"".join(outputs), OUTPUT_BYTES)
    is_shared = np.isin(_comparable(own[:, :MARK_BYTES]), _comparable(_as_rows(marks, MARK_BYTES)))
    return state.sent_order[is_shared], own[is_shared, MARK_BYTES:]


def answer_partner(side: Side, first: int) -> Tokens:
    """Play the party that the lead asks, from a piece of the lead's on: return its rows' tokens, in the order sent."""
    state = side.state
    own_total, their_total = (len(_pieces(count)) for count in (len(state.sent_order), state.their_count))
    outputs, total = state.kept(), max(own_total, their_total)
    for number in range(total):
        side.told(number, total)
        # First its own, while the lead blinds.
        if state.pieces <= number < own_total:
            outputs.append(side.work("evaluate", side.piece(number)))
            state.keep(number, outputs[-1])
        if first <= number < their_total:
            _answer(side, number)
    own = _as_rows(b"".join(outputs), OUTPUT_BYTES)
    # Not before: a lead that knew some of them could choose what to ask about next.
    for number in _pieces(len(own)):
        side.peer.send(IdMarks(np.ascontiguousarray(own[number * PIECE : (number + 1) * PIECE, :MARK_BYTES])))
    side.told(total, total)
    return own[:, MARK_BYTES:]


def rows_of_tokens(tokens: Tokens, own: Tokens) -> Places | None:
    """Return the places of tokens among a party's own; None unless each is one of these, and none comes twice."""
    _, places, found = np.intersect1d(_comparable(own), _comparable(tokens), return_indices=True)
    if len(places) != len(tokens):
        return None
    ordered = np.empty(len(tokens), np.int64)
    ordered[found] = places
    return ordered


def ask_count(side: Side) -> int:
    """Play the lead where only sizes are asked for: return how many ids the partner has too."""
    own_count = len(side.state.sent_order)
    theirs = _blind_in_turn(side)
    returned = [
        side.receive(ShuffledMarks, "marks", min(PIECE, own_count - number * PIECE)) for number in _pieces(own_count)
    ]
    own, others = _once(side.peer, b"".join(returned)), _once(side.peer, theirs)
    return len(np.intersect1d(own, others, assume_unique=True))


def answer_count(side: Side) -> None:
    """Play the party that the lead asks where only sizes are asked for."""
    marks = _blind_in_turn(side)
    # Equal ones would stay recognisable in any order.
    _once(side.peer, marks)
    # In another order, over all of them: the lead can count what is shared, but not tell which.
    mixed = _as_rows(marks, MARK_BYTES)[random_order(np.arange(side.state.their_count))]
    for number in _pieces(side.state.their_count):
        side.peer.send(ShuffledMarks(np.ascontiguousarray(mixed[number * PIECE : (number + 1) * PIECE])))


def _answer(side: Side, number: int) -> None:
    points = side.receive(BlindedIds, "points", side.theirs(number))
    multiplied = side.multiply(points)
    _refuse_others(side, number, points)
    side.peer.send(TwiceBlindedIds(_as_rows(multiplied, POINT_BYTES)))


def _refuse_others(side: Side, number: int, content: bytes) -> None:
    """Keep what the partner asks before it is answered: however often it comes back, it must ask the same."""
    digest = hashlib.sha256(content).digest()
    if side.state.asked(number) not in (None, digest):
        raise WrongContent(
            f"'{side.peer.peer}' goes on with an alignment that was cut short, but asks about other ids than before. "
            "Begin anew at both parties if its table has changed."
        )
    side.state.note_asked(number, digest)


def _blind_in_turn(side: Side) -> bytes:
    """Send own ids blinded, and return marks of the partner's, blinded with both secrets."""
    total = len(_pieces(max(len(side.state.sent_order), side.state.their_count)))
    marks = []
    for number in range(total):
        side.told(number, total)
        if ids := side.piece(number):
            side.peer.send(BlindedIds(_as_rows(side.work("blind", ids), POINT_BYTES)))
        if count := side.theirs(number):
            points = side.multiply(side.receive(BlindedIds, "points", count))
            cut = (points[at : at + POINT_BYTES] for at in range(0, len(points), POINT_BYTES))
            marks += [hashlib.sha256(point).digest()[:MARK_BYTES] for point in cut]
    side.told(total, total)
    return b"".join(marks)


def _once(peer: Channel, content: bytes) -> npt.NDArray[np.bytes_]:
    marks = _comparable(_as_rows(content, MARK_BYTES))
    if len(np.unique(marks)) != len(marks):
        raise WrongContent(f"'{peer.peer}' sent the same blinded id more than once. Its table must not repeat ids.")
    return marks


def _pieces(count: int) -> range:
    """Return the numbers of the messages that so many ids take."""
    return range(-(-count // PIECE))


def _as_rows(content: bytes, width: int) -> npt.NDArray[np.uint8]:
    return np.frombuffer(content, np.uint8).reshape(-1, width)


def _comparable(rows: npt.NDArray[np.uint8]) -> npt.NDArray[np.bytes_]:
    """Return rows of bytes as an array that numpy can sort; zeros at the end of one compare like any others."""
    return np.ascontiguousarray(rows).view(f"S{rows.shape[1]}").reshape(-1)
