"""How much may be on the way at once: on a slow line little, so that it keeps moving; on a fast one much.

What is on the way cannot be overtaken. With megabytes on the way a line of a few kilobytes a second would carry no
sign of life and no acknowledgement for minutes, and a single large chunk on it would look like silence. So a stream
begins with small chunks and little on the way. Each acknowledgement tells how fast the line is, and the limit follows:
as much as the line carries in `_SECONDS`.
"""

from __future__ import annotations

from colonnade.transport.grpc.chunks import CHUNK_BYTES

__all__ = ["WINDOW_BYTES", "Pace"]

# The most that may be on the way. It keeps a line of 100 Mbit/s full over a second, and both parties hold it in memory.
WINDOW_BYTES = 16 * 2**20
# One such chunk takes four seconds at 1 KiB/s, half of the time after which a silent peer counts as dead.
SMALLEST_CHUNK = 4 * 1024
_FIRST_BYTES = 4 * SMALLEST_CHUNK
_LEAST_BYTES = 2 * SMALLEST_CHUNK
_SECONDS = 2.0
# Many chunks on the way, so that each is a small part of what the line carries in a moment.
_CHUNKS = 16


class Pace:
    """The limit for one stream."""

    def __init__(self) -> None:
        self.bytes = _FIRST_BYTES
        """The most that may be on the way, unacknowledged."""

    @property
    def chunk_bytes(self) -> int:
        """The most content that one chunk should carry."""
        return min(max(self.bytes // _CHUNKS, SMALLEST_CHUNK), CHUNK_BYTES)

    def acknowledged(self, size: int, ahead: int, seconds: float) -> None:
        """Note that ``size`` bytes were acknowledged, the last of them after ``seconds``.

        ``ahead`` is what was on the way when that last one left, itself included: it all went through meanwhile.
        """
        carried = int(ahead * _SECONDS / max(seconds, 1e-6))
        if carried > self.bytes:
            # At most doubled in one round, for what passed so far may have been a burst that the line allows.
            self.bytes = min(carried, self.bytes + size, WINDOW_BYTES)
        elif 2 * ahead > self.bytes:
            # Only when the line was full: that a lone small message took its time says nothing about the line.
            self.bytes = max(carried, _LEAST_BYTES)
