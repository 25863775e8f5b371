"""Write and read the primitive values of a message body.

A writer keeps large arrays as views of the sender's memory until the transport takes them, so that sending an array
does not first copy it. A reader only ever moves forward through bytes that have already arrived and counts what it
hands out.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from colonnade.errors import FrameRefused
from colonnade.messages.limits import Limits

__all__ = ["ALIGNMENT", "Part", "Reader", "Writer", "total_bytes"]

# Array data starts at a multiple of this within the body, so that it can be used in place.
ALIGNMENT = 16
# Below this an array is copied into the current part: one more part costs more than the copy.
_COPY_BELOW = 2048

Part = bytes | bytearray | memoryview


def total_bytes(parts: Iterable[Part]) -> int:
    """Return the number of bytes in all parts."""
    return sum(part.nbytes if isinstance(part, memoryview) else len(part) for part in parts)


class Writer:
    """Collect a body as a list of parts."""

    def __init__(self) -> None:
        self.parts: list[Part] = []
        self._open = bytearray()
        self._closed_bytes = 0

    def write(self, content: bytes) -> None:
        """Append small bytes."""
        self._open += content

    def write_array(self, data: memoryview) -> None:
        """Append array data, aligned, without copying it when it is large."""
        position = self._closed_bytes + len(self._open)
        self._open += bytes(-position % ALIGNMENT)
        if data.nbytes < _COPY_BELOW:
            self._open += data
            return
        self._close_part()
        self.parts.append(data)
        self._closed_bytes += data.nbytes

    def finish(self) -> list[Part]:
        """Return the parts; the writer is used up."""
        self._close_part()
        return self.parts

    def _close_part(self) -> None:
        if self._open:
            self.parts.append(self._open)
            self._closed_bytes += len(self._open)
            self._open = bytearray()


class Reader:
    """Walk through a received body."""

    def __init__(self, body: memoryview, limits: Limits) -> None:
        self.limits = limits
        self._body = body
        self._position = 0
        self._entries = 0

    @property
    def remaining(self) -> int:
        """Return how many bytes are left."""
        return len(self._body) - self._position

    def take(self, count: int) -> memoryview:
        """Return the next bytes as a view."""
        if count > self.remaining:
            raise FrameRefused(f"A frame promises {count} bytes where {self.remaining} are left; it was refused.")
        start = self._position
        self._position = start + count
        return self._body[start : self._position]

    def unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        """Return the next fixed-size integers."""
        return layout.unpack(self.take(layout.size))

    def align(self) -> None:
        """Skip the padding before array data, which must be zero."""
        padding = self.take(-self._position % ALIGNMENT)
        if any(padding):
            raise FrameRefused("A frame has padding that is not zero; it was refused.")

    def count(self, entries: int) -> None:
        """Account for objects about to be made, so that a small frame cannot unfold into many."""
        self._entries += entries
        if self._entries > self.limits.entries:
            raise FrameRefused(f"A frame holds more than {self.limits.entries} entries; it was refused.")

    def finish(self) -> None:
        """Refuse bytes left over."""
        if self.remaining:
            raise FrameRefused(f"A frame has {self.remaining} bytes too many; it was refused.")
