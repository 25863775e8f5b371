"""What a link has received: frames, whole or still arriving, and what is to be acknowledged.

The stream's thread only lines up chunks. The role that waits for a frame puts it together meanwhile, so that the
stream is free to take in the next chunk.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from colonnade.errors import FrameRefused
from colonnade.messages import HEADER_BYTES, LIMITS
from colonnade.transport.grpc.pace import SMALLEST_CHUNK, WINDOW_BYTES
from colonnade.transport.grpc.rooms import Rooms
from colonnade.transport.link import BodyDigest

__all__ = ["Arrival", "Inbox"]

# Whole frames that wait for the role to receive them; beyond this nothing more is acknowledged.
INBOX_BYTES = 32 * 2**20
# What Python adds to a frame; counted so that very small frames are bounded too.
_FRAME_OVERHEAD = 128
# An acknowledgement waits this long for company, unless much has come: most messages are answered sooner.
_ACK_SECONDS = 0.02
_ACK_BYTES = 4 * 2**20
_NEVER = float("inf")


class Arrival:
    """A frame on its way in: the stream adds chunks at one end, the role puts them together at the other."""

    def __init__(self, total: int, rooms: Rooms) -> None:
        self.total = total
        self._rooms = rooms
        self.missing = total
        self.contents: deque[memoryview] = deque()
        self._room: memoryview | None = None
        self._filled = 0

    @property
    def is_whole(self) -> bool:
        """Tell whether all chunks have come."""
        return not self.missing

    @property
    def has_news(self) -> bool:
        """Tell whether there is something to put together, or nothing more to wait for."""
        return bool(self.contents) or not self.missing

    def add(self, content: memoryview) -> None:
        """Line up the next chunk."""
        self.contents.append(content)
        self.missing -= len(content)

    def assemble(self, digest: BodyDigest | None = None) -> bytearray | memoryview:
        """Put together what has come, and digest what belongs to the body; this is the frame, if it is whole."""
        if self._room is None:
            if self.is_whole and len(self.contents) == 1:
                frame = bytearray(self.contents.popleft())
                if digest is not None:
                    digest.update(memoryview(frame)[HEADER_BYTES:])
                return frame
            self._room = self._rooms.room_for(self.total)
        target = np.frombuffer(self._room, np.uint8)
        while self.contents:
            content = self.contents.popleft()
            # By numpy, which lets other threads run while it copies.
            target[self._filled : self._filled + len(content)] = np.frombuffer(content, np.uint8)
            if digest is not None:
                digest.update(content[max(0, HEADER_BYTES - self._filled) :])
            self._filled += len(content)
        return self._room


class Inbox:
    """One direction of a link, as its receiver sees it. Whoever calls holds the link's lock."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self._rooms = Rooms()
        self.frames: deque[Arrival] = deque()
        """In order; only the last may be still arriving."""
        self._held_bytes = 0
        self.expected = 0
        """The number of the next chunk; all before it have arrived."""
        self.ack_at = _NEVER
        """When the peer is to be told so."""
        self._unacknowledged_bytes = self._stream_bytes = 0
        self._arriving: Arrival | None = None

    @property
    def is_full(self) -> bool:
        """Tell whether the peer must wait until frames are taken."""
        return self._held_bytes > INBOX_BYTES

    def begin_stream(self) -> None:
        """Start counting for a new stream; its opening acknowledges what has come."""
        self._stream_bytes = 0
        self.acknowledge()

    def acknowledge(self) -> int:
        """Return the next number expected, to be told to the peer."""
        self._unacknowledged_bytes, self.ack_at = 0, _NEVER
        return self.expected

    def pop(self) -> None:
        """Let go of the first frame, which is whole."""
        self._held_bytes -= self.frames.popleft().total + _FRAME_OVERHEAD

    def take(self, number: int, total: int, content: memoryview, now: float, *, keeps: bool) -> None:
        """Take in a chunk; unless it ``keeps`` it, it only counts."""
        if number < self.expected:
            return  # a duplicate
        if number > self.expected:
            raise FrameRefused(f"'{self._peer}' skipped a chunk; the connection was refused.")
        frame = self._frame(total)
        if len(content) > frame.missing:
            raise FrameRefused(f"'{self._peer}' sent more than the frame it announced; the connection was refused.")
        self._count(len(content), now)
        self.expected += 1
        frame.add(content)
        if keeps and total:
            self.frames.append(frame)
        elif not keeps:
            self._drop(frame)
        if frame.is_whole:
            self._arriving = None
            if keeps:
                self._held_bytes += frame.total + _FRAME_OVERHEAD

    def _drop(self, frame: Arrival) -> None:
        frame.contents.clear()
        if self.frames and self.frames[-1] is frame:
            self.frames.pop()

    def _frame(self, total: int) -> Arrival:
        if self._arriving is not None:
            if total:
                raise FrameRefused(f"'{self._peer}' began a frame inside another; the connection was refused.")
            return self._arriving
        if not 0 < total <= LIMITS.frame_bytes:
            raise FrameRefused(f"'{self._peer}' announces a frame of {total} bytes; the connection was refused.")
        self._arriving = Arrival(total, self._rooms)
        return self._arriving

    def _count(self, size: int, now: float) -> None:
        self._unacknowledged_bytes += size
        self._stream_bytes += size
        if self._unacknowledged_bytes > WINDOW_BYTES:
            raise FrameRefused(f"'{self._peer}' sent more than the window allows; the connection was refused.")
        # Often while a stream is young, for the peer learns from it how much more it may send.
        if self._unacknowledged_bytes >= min(max(self._stream_bytes // 8, SMALLEST_CHUNK), _ACK_BYTES):
            self.ack_at = now
        else:
            self.ack_at = min(self.ack_at, now + _ACK_SECONDS)
