"""One reliable line to a peer, over as many streams as it takes.

A stream may break at any byte. The link numbers its chunks, keeps those the peer has not acknowledged, and sends them
again over the next stream; the peer drops what it already has. So a broken connection is invisible to the channel
above, as long as the same two incarnations of the two parties come back. A peer that restarted is a new incarnation
and ends the link.

Whether a peer is alive is decided by progress: any chunk, even a PING, counts. Nothing for `DEAD_SECONDS` ends the
link.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from colonnade.errors import FrameRefused, PeerLost
from colonnade.messages import LIMITS, Part, total_bytes
from colonnade.transport.grpc.chunks import (
    ACK,
    BYE,
    CHUNK_BYTES,
    DATA,
    NOBODY,
    PING,
    Opening,
    ack,
    data,
    opening,
    ping,
    read,
)

__all__ = ["DEAD_SECONDS", "GrpcLink"]

DEAD_SECONDS = 8.0
_PING_SECONDS = 1.0
# Unacknowledged bytes on the way; also what the sender copies at most.
_WINDOW_BYTES = 16 * 2**20
# Whole frames that wait for the role to receive them; beyond this nothing more is acknowledged.
_INBOX_BYTES = 32 * 2**20
# What Python adds to a frame; counted so that very small frames are bounded too.
_FRAME_OVERHEAD = 128


class GrpcLink:
    """One party's end of a line to one peer, for one attempt at a run."""

    def __init__(self, party: str, peer: str) -> None:
        self.party, self.peer = party, peer
        self._incarnation = secrets.token_bytes(16)
        self._peer_incarnation = NOBODY
        self._changed = threading.Condition()
        self._lost: str | None = None
        self._stream = 0
        self._heard = self._was_heard = time.monotonic()  # when we heard the peer, and when it heard us
        self._was_up = False
        # Whether the peer has opened the current stream; before that we do not know what it has.
        self._is_open = False
        # Sending: chunks not acknowledged yet, and the number of the next to go out on the current stream.
        self._unacknowledged: deque[tuple[int, bytes]] = deque()
        self._unacknowledged_bytes = 0
        self._next_number = 0
        self._cursor = 0
        # Receiving: the number expected next, the frame being put together, the frames complete.
        self._expected = 0
        self._acknowledged = 0
        self._taken_bytes = 0  # since the last acknowledgement
        self._partial: bytearray | None = None
        self._partial_total = 0
        self._inbox: deque[bytearray] = deque()
        self._inbox_bytes = 0
        self._is_closing = self._says_bye = self._said_bye = self._heard_bye = False

    # The channel's side

    def send(self, parts: Sequence[Part]) -> None:
        """Copy one frame into the window, chunk by chunk, waiting while the window is full."""
        total = total_bytes(parts)
        for content in _pieces(parts):
            with self._changed:
                self._check_present()
                while self._unacknowledged_bytes + len(content) > _WINDOW_BYTES and self._unacknowledged:
                    self._wait()
                    self._check_present()
                chunk = data(self._next_number, total, content)
                self._unacknowledged.append((self._next_number, chunk))
                self._unacknowledged_bytes += len(chunk)
                self._next_number += 1
                total = 0
                self._changed.notify_all()

    def receive(self) -> bytearray:
        """Wait for the next whole frame."""
        with self._changed:
            while not self._inbox:
                self._check_present()
                self._wait()
            frame = self._inbox.popleft()
            self._inbox_bytes -= len(frame) + _FRAME_OVERHEAD
            self._changed.notify_all()
            return frame

    def close(self) -> None:
        """Say goodbye once everything sent has been acknowledged, or give up when the peer is gone."""
        with self._changed:
            # From here on what arrives is acknowledged and dropped: two full inboxes must not wait for each other.
            self._is_closing = True
            while self._unacknowledged and self._was_up and self._lost is None and not self._heard_bye:
                self._wait()
            self._says_bye = True
            self._changed.notify_all()
            deadline = time.monotonic() + (2.0 if self._was_up else 0.0)
            while self._lost is None and not (self._heard_bye and self._said_bye) and time.monotonic() < deadline:
                self._changed.wait(0.1)
            self.lose(f"'{self.party}' closed the line.")

    def lose(self, reason: str) -> None:
        """End the link; whoever waits on it learns why."""
        with self._changed:
            if self._lost is None:
                self._lost = reason
            self._changed.notify_all()

    @property
    def is_up(self) -> bool:
        """Tell whether the peer has answered on this link."""
        return self._was_up

    @property
    def is_over(self) -> bool:
        """Tell whether the link has ended."""
        return self._lost is not None

    def wait_until_up(self, seconds: float) -> bool:
        """Wait for the peer's first sign of life."""
        with self._changed:
            return self._changed.wait_for(lambda: self._was_up or self._lost is not None, seconds) and self._was_up

    # The stream's side

    def begin_stream(self) -> int:
        """Make a new stream the current one; the one before it ends."""
        with self._changed:
            self._stream += 1
            self._is_open = False
            self._changed.notify_all()
            return self._stream

    def outgoing(self, stream: int) -> Iterator[bytes]:
        """Yield what goes out over a stream until the link or the stream ends."""
        with self._changed:
            if not self._is_current(stream):
                return
            first = opening(Opening(self._incarnation, self._peer_incarnation, self._expected))
            self._acknowledged, self._taken_bytes = self._expected, 0  # an opening acknowledges too
        yield first
        says_bye = True
        ping_at = time.monotonic() + _PING_SECONDS
        while True:
            with self._changed:
                # Woken for many reasons, most of them none of ours: only a second gone by calls for a PING. It goes out
                # among data too, for it tells the peer whether it is heard.
                while True:
                    now = time.monotonic()
                    if now >= ping_at and self._is_current(stream):
                        chunk: bytes | None = ping(now - self._heard if self._is_open else 0.0)
                        ping_at = now + _PING_SECONDS
                        break
                    chunk = self._next_chunk(stream, says_bye)
                    if chunk is not None or not self._is_current(stream):
                        break
                    self._changed.wait(ping_at - now)
            if chunk is None:
                return
            yield chunk
            if chunk[0] == BYE:
                says_bye = False  # once; the stream stays, so that the peer's own BYE can still come

    def incoming(self, stream: int, chunks: Iterator[bytes]) -> None:
        """Take in what comes over a stream until it breaks or the link ends."""
        for chunk in chunks:
            kind, facts, content = read(chunk)
            with self._changed:
                if not self._is_current(stream):
                    return
                self._heard = self._was_heard = time.monotonic()
                if isinstance(facts, Opening):
                    self._open(facts)
                elif not self._is_open and kind != PING:
                    raise FrameRefused(f"'{self.peer}' spoke before it opened the stream; the connection was refused.")
                elif kind == DATA:
                    self._take(facts[0], facts[1], content)
                elif kind == ACK:
                    self._release(facts[0])
                elif kind == PING:
                    self._was_heard = self._heard - facts[0] / 1000
                elif kind == BYE:
                    self._heard_bye = True
                self._changed.notify_all()
                if not self._is_current(stream):
                    return

    def check_alive(self) -> None:
        """End the link if the peer was there and has made no progress for too long."""
        # Both ways count: on a line that carries one way only, who still hears must learn that it is not heard.
        if self._was_up and time.monotonic() - min(self._heard, self._was_heard) > DEAD_SECONDS:
            self.lose(f"'{self.peer}' was not heard for {DEAD_SECONDS:g} s: it stopped, or the network is down.")

    def _is_current(self, stream: int) -> bool:
        return self._stream == stream and self._lost is None

    def _next_chunk(self, stream: int, says_bye: bool) -> bytes | None:
        if not self._is_current(stream) or not self._is_open:
            return None
        if self._cursor < self._next_number:
            first = self._unacknowledged[0][0]
            chunk = self._unacknowledged[self._cursor - first][1]
            self._cursor += 1
            return chunk
        if self._acknowledged < self._expected and (self._inbox_bytes <= _INBOX_BYTES or self._is_closing):
            self._acknowledged, self._taken_bytes = self._expected, 0
            return ack(self._expected)
        if self._says_bye and says_bye and not self._unacknowledged:
            # Noted here: the peer may end the stream as soon as it has this, and then nobody comes back to note it.
            self._said_bye = True
            self._changed.notify_all()
            return bytes([BYE])
        return None

    def _open(self, facts: Opening) -> None:
        if self._peer_incarnation not in (NOBODY, facts.incarnation):
            self.lose(f"'{self.peer}' was restarted.")
            return
        if facts.known_peer not in (NOBODY, self._incarnation):
            # The peer still speaks to who we were before a restart; it will notice and come back anew.
            self._stream += 1
            return
        first = self._unacknowledged[0][0] if self._unacknowledged else self._next_number
        if not first <= facts.expected <= self._next_number:
            self.lose(f"'{self.peer}' claims to have chunks that were never sent.")
            return
        self._peer_incarnation = facts.incarnation
        self._was_up = self._is_open = True
        self._release(facts.expected)
        self._cursor = facts.expected

    def _take(self, number: int, total: int, content: memoryview) -> None:
        if number < self._expected:
            return  # a duplicate, sent again after a broken stream
        if number > self._expected:
            raise FrameRefused(f"'{self.peer}' skipped a chunk; the connection was refused.")
        if self._partial is None:
            if not 0 < total <= LIMITS.frame_bytes:
                raise FrameRefused(f"'{self.peer}' announces a frame of {total} bytes; the connection was refused.")
            # Grows with what arrives: an announcement alone costs us no memory.
            self._partial, self._partial_total = bytearray(), total
        elif total:
            raise FrameRefused(f"'{self.peer}' began a frame inside another; the connection was refused.")
        if len(content) > self._partial_total - len(self._partial):
            raise FrameRefused(f"'{self.peer}' sent more than the frame it announced; the connection was refused.")
        self._taken_bytes += len(content)
        if self._taken_bytes > _WINDOW_BYTES:
            raise FrameRefused(f"'{self.peer}' sent more than the window allows; the connection was refused.")
        self._partial += content
        self._expected += 1
        if len(self._partial) == self._partial_total:
            if not self._is_closing:
                self._inbox.append(self._partial)
                self._inbox_bytes += len(self._partial) + _FRAME_OVERHEAD
            self._partial = None

    def _release(self, expected: int) -> None:
        if expected > self._next_number:
            self.lose(f"'{self.peer}' acknowledges chunks that were never sent.")
            return
        while self._unacknowledged and self._unacknowledged[0][0] < expected:
            _, chunk = self._unacknowledged.popleft()
            self._unacknowledged_bytes -= len(chunk)
        self._cursor = max(self._cursor, expected)

    def _wait(self) -> None:
        self._changed.wait(0.5)
        self.check_alive()

    def _check_present(self) -> None:
        if self._heard_bye:
            raise PeerLost(f"'{self.peer}' left the run while '{self.party}' still needed it.")
        if self._lost is not None:
            raise PeerLost(self._lost)


def _pieces(parts: Sequence[Part]) -> Iterator[memoryview | bytes]:
    """Cut a frame into chunks; small neighbours travel together."""
    small: list[memoryview] = []
    held = 0
    for part in parts:
        view = memoryview(part).cast("B")
        start = 0
        while start < len(view):
            take = view[start : start + CHUNK_BYTES - held]
            start += len(take)
            small.append(take)
            held += len(take)
            if held == CHUNK_BYTES:
                yield small[0] if len(small) == 1 else b"".join(small)
                small, held = [], 0
    if held:
        yield small[0] if len(small) == 1 else b"".join(small)
