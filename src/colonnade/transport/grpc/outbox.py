"""What a link still has to send: content not cut yet, and chunks on the way that the peer has not acknowledged.

Content is cut into chunks only as they leave, because only then it is known how large a chunk the line can take. The
memory of a large frame is borrowed from the caller until it is cut, so sending it copies each byte once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from colonnade.messages import Part, total_bytes
from colonnade.transport.grpc.chunks import content_of, data
from colonnade.transport.grpc.pace import WINDOW_BYTES, Pace

__all__ = ["Outbox"]

# Below this a frame is copied at once, in one piece.
_COPY_BELOW = 256 * 1024


@dataclass(slots=True)
class _Piece:
    """Content that waits to be cut; never of more than one frame."""

    total: int
    """The size of the frame that begins here; 0 where a frame goes on."""
    content: memoryview
    is_borrowed: bool


@dataclass(slots=True)
class _Flying:
    """A chunk on the way."""

    total: int
    chunk: bytes
    ahead: int
    left: float


class Outbox:
    """One direction of a link, as its sender sees it. Whoever calls holds the link's lock."""

    def __init__(self) -> None:
        self._pieces: deque[_Piece] = deque()
        self._flying: deque[_Flying] = deque()
        self._piece_bytes = self._flying_bytes = 0
        self._pace = Pace()
        self.next_number = 0
        """The number of the next chunk to be cut."""

    @property
    def is_empty(self) -> bool:
        """Tell whether everything has been sent and acknowledged."""
        return not self._pieces and not self._flying

    @property
    def is_full(self) -> bool:
        """Tell whether more waits or is on the way than the window allows."""
        return self._piece_bytes + self._flying_bytes > WINDOW_BYTES

    @property
    def first_number(self) -> int:
        """The number of the first chunk that is not acknowledged."""
        return self.next_number - len(self._flying)

    def add(self, parts: Sequence[Part]) -> bool:
        """Take a frame and tell whether its memory is borrowed until `keep`, as that of a large one is."""
        total = begins = total_bytes(parts)
        is_borrowed = total >= _COPY_BELOW
        for part in parts if is_borrowed else (b"".join(parts),):
            content = memoryview(part).cast("B")
            if content:
                self._pieces.append(_Piece(begins, content, is_borrowed))
                begins = 0
        self._piece_bytes += total
        return is_borrowed

    def keep(self) -> None:
        """Copy what is still borrowed."""
        for piece in reversed(self._pieces):
            if piece.is_borrowed:
                piece.content, piece.is_borrowed = memoryview(bytes(piece.content)), False

    def clear(self) -> None:
        """Forget everything; nobody will send it."""
        self._pieces.clear()
        self._flying.clear()
        self._piece_bytes = self._flying_bytes = 0

    def next_chunk(self, now: float) -> bytes | None:
        """Cut the next chunk, if the line may take one."""
        room = self._pace.chunk_bytes
        if not self._pieces or (self._flying and self._flying_bytes + room > self._pace.bytes):
            return None
        total = self._pieces[0].total
        contents: list[memoryview] = []
        while self._pieces and room and not (contents and self._pieces[0].total):
            piece = self._pieces[0]
            content = piece.content[:room]
            contents.append(content)
            room -= len(content)
            self._piece_bytes -= len(content)
            if len(content) < len(piece.content):
                piece.total, piece.content = 0, piece.content[len(content) :]
            else:
                self._pieces.popleft()
        chunk = data(self.next_number, total, *contents)
        self.next_number += 1
        self._flying_bytes += len(chunk)
        self._flying.append(_Flying(total, chunk, self._flying_bytes, now))
        return chunk

    def acknowledge(self, expected: int, now: float) -> None:
        """Let go of all chunks before ``expected``."""
        size = 0
        last = None
        for _ in range(expected - self.first_number):
            last = self._flying.popleft()
            size += len(last.chunk)
        self._flying_bytes -= size
        if last is not None:
            self._pace.acknowledged(size, last.ahead, now - last.left)

    def begin_again(self, expected: int) -> None:
        """Go on over a new stream from the chunk ``expected``: what was on the way is cut anew, for another line."""
        for _ in range(expected - self.first_number):
            self._flying_bytes -= len(self._flying.popleft().chunk)
        while self._flying:
            lost = self._flying.pop()
            content = content_of(lost.chunk)
            self._pieces.appendleft(_Piece(lost.total, content, False))
            self._piece_bytes += len(content)
        self._flying_bytes = 0
        self._pace = Pace()
        self.next_number = expected
