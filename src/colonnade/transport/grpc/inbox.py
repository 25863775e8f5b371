"""What a link has received: the frame being put together, whole frames that wait, and what is to be acknowledged."""

from __future__ import annotations

import mmap
from collections import deque

from colonnade.errors import FrameRefused
from colonnade.messages import LIMITS
from colonnade.transport.grpc.pace import SMALLEST_CHUNK, WINDOW_BYTES

__all__ = ["Inbox"]

# Whole frames that wait for the role to receive them; beyond this nothing more is acknowledged.
INBOX_BYTES = 32 * 2**20
# What Python adds to a frame; counted so that very small frames are bounded too.
_FRAME_OVERHEAD = 128
# An acknowledgement waits this long for company, unless much has come: most messages are answered sooner.
_ACK_SECONDS = 0.02
_ACK_BYTES = 2**20
# From here on a frame gets memory of its own, which the operating system hands out in large pages.
_MAP_FROM = 4 * 2**20
_NEVER = float("inf")


class Inbox:
    """One direction of a link, as its receiver sees it. Whoever calls holds the link's lock."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        self.frames: deque[bytearray | memoryview] = deque()
        self.held_bytes = 0
        self.expected = 0
        """The number of the next chunk; all before it have arrived."""
        self.ack_at = _NEVER
        """When the peer is to be told so."""
        self._unacknowledged_bytes = self._stream_bytes = 0
        self._partial: memoryview | None = None
        self._filled = 0

    @property
    def is_full(self) -> bool:
        """Tell whether the peer must wait until frames are taken."""
        return self.held_bytes > INBOX_BYTES

    def begin_stream(self) -> None:
        """Start counting for a new stream; its opening acknowledges what has come."""
        self._stream_bytes = 0
        self.acknowledge()

    def acknowledge(self) -> int:
        """Return the next number expected, to be told to the peer."""
        self._unacknowledged_bytes, self.ack_at = 0, _NEVER
        return self.expected

    def pop(self) -> bytearray | memoryview:
        """Return the oldest whole frame."""
        frame = self.frames.popleft()
        self.held_bytes -= len(frame) + _FRAME_OVERHEAD
        return frame

    def take(self, number: int, total: int, content: memoryview, now: float, *, keeps: bool) -> bool:
        """Take in a chunk and tell whether it made a frame whole; such a frame is dropped unless it ``keeps`` it."""
        if number < self.expected:
            return False  # a duplicate
        if number > self.expected:
            raise FrameRefused(f"'{self._peer}' skipped a chunk; the connection was refused.")
        partial = self._begin(total) if self._partial is None else self._go_on(self._partial, total)
        if len(content) > len(partial) - self._filled:
            raise FrameRefused(f"'{self._peer}' sent more than the frame it announced; the connection was refused.")
        self._count(len(content), now)
        partial[self._filled : self._filled + len(content)] = content
        self._filled += len(content)
        self.expected += 1
        is_whole = self._filled == len(partial)
        if is_whole:
            self._partial = None
            if keeps:
                self.frames.append(partial)
                self.held_bytes += len(partial) + _FRAME_OVERHEAD
        return is_whole

    def _begin(self, total: int) -> memoryview:
        if not 0 < total <= LIMITS.frame_bytes:
            raise FrameRefused(f"'{self._peer}' announces a frame of {total} bytes; the connection was refused.")
        self._partial, self._filled = _room_for(total, self._peer), 0
        return self._partial

    def _go_on(self, partial: memoryview, total: int) -> memoryview:
        if total:
            raise FrameRefused(f"'{self._peer}' began a frame inside another; the connection was refused.")
        return partial

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


def _room_for(total: int, peer: str) -> memoryview:
    """Return memory for a frame that was announced. A large one costs nothing before its bytes arrive."""
    if total < _MAP_FROM:
        return memoryview(bytearray(total))
    try:
        room = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    except OSError:
        raise FrameRefused(f"'{peer}' announces a frame of {total} bytes, more than this machine can hold.") from None
    if hasattr(mmap, "MADV_HUGEPAGE"):
        room.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(room)
