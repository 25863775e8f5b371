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
from collections.abc import Iterator, Sequence

from colonnade.errors import FrameRefused, PeerLost, ProtocolError
from colonnade.messages import Part
from colonnade.transport.grpc.chunks import ACK, BYE, DATA, NOBODY, PING, Opening, ack, opening, ping, read
from colonnade.transport.grpc.inbox import Inbox
from colonnade.transport.grpc.outbox import Outbox
from colonnade.transport.link import BodyDigest

__all__ = ["DEAD_SECONDS", "GrpcLink"]

DEAD_SECONDS = 8.0
_PING_SECONDS = 1.0
_BYE_SECONDS = 2.0


class GrpcLink:
    """One party's end of a line to one peer, for one attempt at a run."""

    def __init__(self, party: str, peer: str) -> None:
        self.party, self.peer = party, peer
        self._incarnation = secrets.token_bytes(16)
        self._peer_incarnation = NOBODY
        # One lock, but each kind of waiting has its own bell: waking a thread for nothing costs more than a message.
        lock = threading.RLock()
        self._to_say = threading.Condition(lock)  # for the stream that speaks
        self._arrived = threading.Condition(lock)  # for the role that receives
        self._went_out = threading.Condition(lock)  # for the role that sends or closes
        self._became_idle = threading.Condition(lock)  # for who dials
        self._lost: str | None = None
        self._loss: type[ProtocolError] = PeerLost
        self._stream = 0
        self._heard = self._was_heard = time.monotonic()  # when we heard the peer, and when it heard us
        self._was_up = False
        # Whether the peer has opened the current stream; before that we do not know what it has.
        self._is_open = False
        self._has_stream, self._idle_since = False, time.monotonic()
        self._outbox = Outbox()
        self._inbox = Inbox(peer)
        self._is_closing = self._says_bye = self._said_bye = self._heard_bye = False

    # The channel's side

    def send(self, parts: Sequence[Part], body_digest: bytes | None = None) -> None:
        """Hand over one frame, and wait while more is under way than the window allows."""
        with self._went_out:
            self.check_present()
            is_borrowed = self._outbox.add(parts)
            self._to_say.notify()
            try:
                while self._outbox.is_full:
                    self._wait(self._went_out)
                    self.check_present()
            finally:
                if is_borrowed:
                    self._outbox.keep()

    def receive(self, digest: BodyDigest | None = None) -> bytearray | memoryview:
        """Wait for the next whole frame, and put it together as it arrives."""
        while True:
            with self._arrived:
                while not (self._inbox.frames and self._inbox.frames[0].has_news):
                    self.check_present()
                    self._wait(self._arrived)
                arrival = self._inbox.frames[0]
                is_whole = arrival.is_whole
                if is_whole:
                    self._pop()
            frame = arrival.assemble(digest)
            if is_whole:
                return frame

    def close(self, patience: float = float("inf")) -> None:
        """Say goodbye once everything sent has been acknowledged, or give up when the peer is gone or time is up."""
        limit = time.monotonic() + patience
        with self._went_out:
            # From here on what arrives is acknowledged and dropped: two full inboxes must not wait for each other.
            self._is_closing = True
            self._to_say.notify()
            while not self._outbox.is_empty and self._was_up and self._lost is None and not self._heard_bye:
                if time.monotonic() > limit:
                    break
                self._wait(self._went_out)
            self._says_bye = True
            self._to_say.notify()
            deadline = min(limit, time.monotonic() + (_BYE_SECONDS if self._was_up else 0.0))
            while self._lost is None and not (self._heard_bye and self._said_bye) and time.monotonic() < deadline:
                self._went_out.wait(0.1)
            self.lose(f"'{self.party}' closed the line.")

    def lose(self, reason: str, error: type[ProtocolError] = PeerLost) -> None:
        """End the link; whoever waits on it learns why.

        A peer that is lost may come back. One whose bytes were refused would only be refused again: `FrameRefused`.
        """
        with self._to_say:
            if self._lost is None:
                self._lost, self._loss = reason, error
                self._outbox.clear()
            self._wake_all()

    @property
    def is_up(self) -> bool:
        """Tell whether the peer has answered on this link."""
        return self._was_up

    @property
    def silence_seconds(self) -> float:
        """Return for how long the peer was not heard."""
        return time.monotonic() - self._heard

    @property
    def is_over(self) -> bool:
        """Tell whether the link has ended."""
        return self._lost is not None

    def check_present(self) -> None:
        """Raise what ended the link, if it has ended."""
        if self._heard_bye:
            raise PeerLost(f"'{self.peer}' left the run while '{self.party}' still needed it.")
        if self._lost is not None:
            raise self._loss(self._lost)

    def wait_until_up(self, seconds: float) -> bool:
        """Wait for the peer's first sign of life."""
        with self._arrived:
            return self._arrived.wait_for(lambda: self._was_up or self._lost is not None, seconds) and self._was_up

    # The stream's side

    def begin_stream(self) -> int:
        """Make a new stream the current one; the one before it ends."""
        with self._to_say:
            self._stream += 1
            self._is_open, self._has_stream = False, True
            self._to_say.notify_all()
            return self._stream

    def end_stream(self, stream: int) -> None:
        """Note that a stream broke or ended, unless another took its place already."""
        with self._became_idle:
            if self._stream == stream:
                self._has_stream, self._idle_since = False, time.monotonic()
                self._became_idle.notify_all()

    def wait_until_idle(self, seconds: float) -> bool:
        """Tell whether there has been no stream for this long, or wait a little and say no.

        Both parties may dial. Who would begin a stream while another works would end it.
        """
        with self._became_idle:
            left = self._idle_since + seconds - time.monotonic()
            if self._lost is None and not self._has_stream and left <= 0:
                return True
            self._became_idle.wait(_PING_SECONDS if self._has_stream else max(left, 0.0))
            return False

    def outgoing(self, stream: int) -> Iterator[bytes]:
        """Yield what goes out over a stream until the link or the stream ends."""
        with self._to_say:
            if not self._is_current(stream):
                return
            self._inbox.begin_stream()
            first = opening(Opening(self._incarnation, self._peer_incarnation, self._inbox.expected))
        yield first
        ping_at = time.monotonic() + _PING_SECONDS
        says_bye = True  # once; the stream stays, so that the peer's own BYE can still come
        while True:
            with self._to_say:
                chunk = None
                while chunk is None:
                    if not self._is_current(stream):
                        return
                    now = time.monotonic()
                    # Signs of life go out among data too, for they tell the peer whether it is heard.
                    if now >= ping_at:
                        chunk, ping_at = ping(now - self._heard if self._is_open else 0.0), now + _PING_SECONDS
                    elif self._is_open:
                        chunk = self._next_chunk(now, says_bye)
                    if chunk is None:
                        self._to_say.wait(min(ping_at, self._ack_at()) - now)
            yield chunk
            says_bye = says_bye and chunk[0] != BYE

    def incoming(self, stream: int, chunks: Iterator[bytes]) -> None:
        """Take in what comes over a stream until it breaks or the link ends."""
        for chunk in chunks:
            kind, facts, content = read(chunk)
            with self._to_say:
                if not self._is_current(stream):
                    return
                self._heard = self._was_heard = now = time.monotonic()
                if isinstance(facts, Opening):
                    self._open(facts)
                elif not self._is_open and kind != PING:
                    raise FrameRefused(f"'{self.peer}' spoke before it opened the stream; the connection was refused.")
                elif kind == DATA:
                    self._take(facts[0], facts[1], content, now)
                elif kind == ACK:
                    self._acknowledge(facts[0], now)
                elif kind == PING:
                    self._was_heard = now - facts[0] / 1000
                elif kind == BYE:
                    self._heard_bye = True
                    self._wake_all()
                if not self._is_current(stream):
                    return

    def check_alive(self) -> None:
        """End the link if the peer was there and has made no progress for too long."""
        # Both ways count: on a line that carries one way only, who still hears must learn that it is not heard.
        if self._was_up and time.monotonic() - min(self._heard, self._was_heard) > DEAD_SECONDS:
            self.lose(f"'{self.peer}' was not heard for {DEAD_SECONDS:g} s: it stopped, or the network is down.")

    def _is_current(self, stream: int) -> bool:
        return self._stream == stream and self._lost is None

    def _next_chunk(self, now: float, says_bye: bool) -> bytes | None:
        # Acknowledgements first: behind data they would keep the peer from sending although the line is free.
        if self._ack_at() <= now:
            return ack(self._inbox.acknowledge())
        chunk = self._outbox.next_chunk(now)
        if chunk is None and self._says_bye and says_bye and self._outbox.is_empty:
            # Noted here: the peer may end the stream as soon as it has this, and then nobody comes back to note it.
            self._said_bye = True
            self._went_out.notify_all()
            return bytes([BYE])
        return chunk

    def _ack_at(self) -> float:
        is_held_back = self._inbox.is_full and not self._is_closing
        return float("inf") if is_held_back or not self._is_open else self._inbox.ack_at

    def _open(self, facts: Opening) -> None:
        if self._peer_incarnation not in (NOBODY, facts.incarnation):
            self.lose(f"'{self.peer}' was restarted.")
            return
        if facts.known_peer not in (NOBODY, self._incarnation):
            # The peer still speaks to who we were before a restart. Our own opening tells it so, and it ends the
            # stream; ended by us, the stream could take our opening with it, unread.
            return
        if facts.expected > self._outbox.next_number:
            self.lose(f"'{self.peer}' claims to have chunks that were never sent.", FrameRefused)
            return
        if facts.expected < self._outbox.first_number:
            # Perhaps an opening that was overtaken by a later stream, so it may come back.
            self.lose(f"'{self.peer}' asks again for chunks that it has acknowledged.")
            return
        self._peer_incarnation = facts.incarnation
        self._was_up = self._is_open = True
        self._outbox.begin_again(facts.expected)
        self._wake_all()

    def _pop(self) -> None:
        was_full = self._inbox.is_full
        self._inbox.pop()
        if was_full and not self._inbox.is_full:
            self._to_say.notify()  # an acknowledgement was held back

    def _take(self, number: int, total: int, content: memoryview, now: float) -> None:
        before = self._inbox.ack_at
        self._inbox.take(number, total, content, now, keeps=not self._is_closing)
        self._arrived.notify()
        if self._inbox.ack_at < before:
            self._to_say.notify()

    def _acknowledge(self, expected: int, now: float) -> None:
        if expected > self._outbox.next_number:
            self.lose(f"'{self.peer}' acknowledges chunks that were never sent.", FrameRefused)
            return
        self._outbox.acknowledge(expected, now)
        self._to_say.notify()
        if not self._outbox.is_full:
            self._went_out.notify_all()

    def _wait(self, bell: threading.Condition) -> None:
        bell.wait(0.5)
        self.check_alive()

    def _wake_all(self) -> None:
        for bell in (self._to_say, self._arrived, self._went_out, self._became_idle):
            bell.notify_all()
