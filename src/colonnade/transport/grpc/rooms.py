"""Memory for large frames, used again.

Fresh memory is slow: the operating system clears every page on its first touch, which takes longer than copying the
bytes there. A method sends messages of the same size again and again, so the memory of the last ones is kept for the
next, once nobody looks at it any more.
"""

from __future__ import annotations

import mmap

from colonnade.errors import FrameRefused

__all__ = ["Rooms"]

# Below this the allocator of the language already uses memory again.
_SMALL_BYTES = 2**20
# Two, for a role often still holds one message while the next arrives.
_KEPT = 2
_KEPT_BYTES = 512 * 2**20


class Rooms:
    """The memory for the frames of one link."""

    def __init__(self) -> None:
        self._kept: list[mmap.mmap] = []

    def room_for(self, total: int) -> memoryview:
        """Return memory for a frame that was announced; new memory costs nothing before its bytes arrive."""
        if total < _SMALL_BYTES:
            return memoryview(bytearray(total))
        for room in self._kept:
            # Half empty is not worth it: the frame may be held for long, and all of the room with it.
            if total <= len(room) <= 2 * total and _is_free(room):
                return memoryview(room)[:total]
        try:
            room = mmap.mmap(-1, total, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError:
            raise FrameRefused(f"A frame of {total} bytes was announced, more than this machine can hold.") from None
        if total <= _KEPT_BYTES:
            self._kept = [room, *self._kept[: _KEPT - 1]]
            while sum(map(len, self._kept)) > _KEPT_BYTES:
                self._kept.pop()
        return memoryview(room)


def _is_free(room: mmap.mmap) -> bool:
    """Tell whether nobody holds a view, such as an array that was received."""
    try:
        room.resize(len(room))  # does nothing, but refuses to while there are views
    except (BufferError, OSError, SystemError, ValueError):
        return False
    return True
