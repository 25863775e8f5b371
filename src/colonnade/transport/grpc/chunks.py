"""What goes over one stream: small chunks with a type and numbers.

::

    OPEN   version, own incarnation, the peer's incarnation if known, next chunk expected from the peer
    DATA   number of the chunk, whether it begins a frame (then the frame's total size) or goes on, content
    ACK    next chunk expected: all before it have arrived
    PING   for how many milliseconds the sender has not heard the peer; says that the sender is alive
    BYE    nothing; the sender has no more to say and has heard everything
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from colonnade.errors import FrameRefused

__all__ = [
    "ACK",
    "BYE",
    "CHUNK_BYTES",
    "DATA",
    "NOBODY",
    "OPEN",
    "PING",
    "Opening",
    "ack",
    "content_of",
    "data",
    "opening",
    "ping",
    "read",
]

OPEN, DATA, ACK, PING, BYE = range(1, 6)
NOBODY = bytes(16)
"""Stands for the incarnation of a peer that has not been heard yet."""

# The most content a chunk may carry: with its numbers it stays below 1 MiB. How much it does carry, the pace decides.
CHUNK_BYTES = 2**20 - 64
_VERSION = 1
_OPEN = struct.Struct("<BB16s16sQ")
_DATA = struct.Struct("<BQQ")
_ACK = struct.Struct("<BQ")
_PING = struct.Struct("<BI")


@dataclass(frozen=True)
class Opening:
    """How a stream begins, in each direction."""

    incarnation: bytes
    known_peer: bytes
    expected: int


def opening(facts: Opening) -> bytes:
    """Return the first chunk of a stream."""
    return _OPEN.pack(OPEN, _VERSION, facts.incarnation, facts.known_peer, facts.expected)


def data(number: int, total: int, *content: memoryview | bytes) -> bytes:
    """Return a piece of a frame; ``total`` is the frame's size in its first chunk and 0 in the others."""
    return b"".join((_DATA.pack(DATA, number, total), *content))


def content_of(chunk: bytes) -> memoryview:
    """Return what a DATA chunk of our own carries."""
    return memoryview(chunk)[_DATA.size :]


def ack(expected: int) -> bytes:
    """Return an acknowledgement of everything before ``expected``."""
    return _ACK.pack(ACK, expected)


def ping(silence_seconds: float) -> bytes:
    """Return a sign of life that tells how long the peer has been silent."""
    return _PING.pack(PING, min(int(silence_seconds * 1000), 2**32 - 1))


def read(chunk: bytes) -> tuple[int, tuple[int, ...] | Opening, memoryview]:
    """Return a chunk's type, its numbers and its content."""
    try:
        kind = chunk[0]
        if kind == OPEN:
            _, version, incarnation, known_peer, expected = _OPEN.unpack(chunk)
            if version != _VERSION:
                raise FrameRefused(f"The peer's transport speaks version {version}, ours {_VERSION}. Update both.")
            return kind, Opening(incarnation, known_peer, expected), memoryview(b"")
        if kind == DATA:
            _, number, total = _DATA.unpack_from(chunk)
            content = content_of(chunk)
            if not 0 < len(content) <= CHUNK_BYTES:
                raise FrameRefused("A chunk of an impossible size arrived; the connection was refused.")
            return kind, (number, total), content
        if kind == ACK:
            return kind, _ACK.unpack(chunk)[1:], memoryview(b"")
        if kind == PING:
            return kind, _PING.unpack(chunk)[1:], memoryview(b"")
        if kind == BYE and len(chunk) == 1:
            return kind, (), memoryview(b"")
    except (struct.error, IndexError):
        pass
    raise FrameRefused("A chunk arrived that no version of colonnade sends; the connection was refused.")
