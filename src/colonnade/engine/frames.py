"""How a pool and its workers talk: frames of bytes over a socket, in a closed format.

A frame is one byte for its kind, one for the number of fields, eight for the length of each field, then the fields. The
pool sends a task and waits; the worker answers with a result or a failure, or first asks for the context. It gets the
context as an open file without a name, which it maps, so that all workers share one copy in memory.
"""

from __future__ import annotations

import mmap
import os
import socket
import struct
from typing import Final

__all__ = ["CONTEXT_NEEDED", "FAILED", "RESULT", "TASK", "receive", "receive_context", "send", "send_context"]

TASK: Final = 1  # function, prepare, digest, chunk
CONTEXT_NEEDED: Final = 2
RESULT: Final = 3  # the answer
FAILED: Final = 4  # kind of error, message

_LENGTH = struct.Struct("<Q")


def send(line: socket.socket, kind: int, *fields: bytes) -> None:
    """Send one frame."""
    lengths = [_LENGTH.pack(len(field)) for field in fields]
    line.sendall(b"".join([bytes([kind, len(fields)]), *lengths, *fields]))


def receive(line: socket.socket) -> tuple[int, list[bytes]]:
    """Wait for a frame; raise ConnectionError when the other side is gone."""
    kind, count = _receive_exactly(line, 2)
    lengths = [length for (length,) in _LENGTH.iter_unpack(_receive_exactly(line, _LENGTH.size * count))]
    return kind, [_receive_exactly(line, length) for length in lengths]


def send_context(line: socket.socket, file: int, length: int) -> None:
    """Hand over a context that was asked for."""
    socket.send_fds(line, [_LENGTH.pack(length)], [file])


def receive_context(line: socket.socket) -> memoryview:
    """Return the context that was asked for, mapped and not copied."""
    announced, files, _, _ = socket.recv_fds(line, _LENGTH.size, 1)
    if len(announced) < _LENGTH.size or not files:
        raise ConnectionError("The pool is gone.")
    try:
        (length,) = _LENGTH.unpack(announced)
        # An empty file cannot be mapped.
        return memoryview(mmap.mmap(files[0], length, access=mmap.ACCESS_READ) if length else b"")
    finally:
        os.close(files[0])


def _receive_exactly(line: socket.socket, count: int) -> bytes:
    buffer = bytearray(count)
    rest = memoryview(buffer)
    while rest:
        received = line.recv_into(rest)
        if not received:
            raise ConnectionError("The other side is gone.")
        rest = rest[received:]
    return bytes(buffer)
