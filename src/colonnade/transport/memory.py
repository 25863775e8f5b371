"""Parties as threads of one process.

Frames are copied on the way, so the parties share no memory although they share a process. A copy within one process is
not damaged on the way, so the digest that a channel has made of a body is handed over with it and not made again; a
frame without one, as a test may send, is digested as everywhere. The hub sees every party, so it can tell when all of
them wait for one another and end that with an error.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Sequence

from colonnade.errors import Deadlock, PeerLost
from colonnade.messages import HEADER_BYTES, Part
from colonnade.transport.link import BodyDigest, Tap

__all__ = ["MemoryHub", "MemoryLink"]

Sent = tuple[bytearray, bytes | None]
"""A frame, and the digest of its body where its sender gave one."""


class MemoryHub:
    """Connect named parties in one process; a `Network`."""

    def __init__(self, parties: Iterable[str], *, silence_seconds: float = 900.0, tap: Tap | None = None) -> None:
        """Join the parties.

        ``silence_seconds`` is a last resort against a thread that is alive but will never speak: everything else (a
        party that ended, a party that failed, all parties waiting) is noticed at once.
        """
        self.silence_seconds = silence_seconds
        self.tap = tap
        self.lock = threading.Lock()
        self._waits_for: dict[str, str] = {}
        self._present = set(parties)
        self._wakeups = {party: threading.Condition(self.lock) for party in self._present}
        self._queues: dict[tuple[str, str], deque[Sent]] = {}
        self._deadlock: str | None = None
        self._stopped: str | None = None

    def link(self, party: str, peer: str) -> MemoryLink:
        """Return this party's end of the line to the peer."""
        self._queues.setdefault((party, peer), deque())
        self._queues.setdefault((peer, party), deque())
        return MemoryLink(self, party, peer)

    def leave(self, party: str) -> None:
        """Note that a party is gone; whoever waits for it learns so now."""
        with self.lock:
            self._present.discard(party)
            self._find_deadlock()
            for wakeup in self._wakeups.values():
                wakeup.notify_all()

    def stop(self, reason: str) -> None:
        """End the run for everyone, such as when the user interrupts it."""
        with self.lock:
            self._stopped = reason
            for wakeup in self._wakeups.values():
                wakeup.notify_all()

    def deliver(self, party: str, peer: str, sent: Sent) -> None:
        """Put a frame into the peer's queue and wake it if it waits for this party."""
        with self.lock:
            self._check_stopped()
            if peer not in self._present:
                raise PeerLost(f"'{peer}' has already left the run, so '{party}' cannot send to it.")
            self._queues[party, peer].append(sent)
            if self._waits_for.get(peer) == party:
                del self._waits_for[peer]
                self._wakeups[peer].notify()

    def collect(self, party: str, peer: str) -> Sent:
        """Wait until the peer's next frame is there."""
        queue = self._queues[peer, party]
        with self.lock:
            self._check_stopped()
            while not queue:
                if peer not in self._present:
                    raise PeerLost(f"'{peer}' left the run while '{party}' was waiting for it.")
                self._waits_for[party] = peer
                self._find_deadlock()
                if self._deadlock is None and not self._wakeups[party].wait(self.silence_seconds) and not queue:
                    self._waits_for.pop(party, None)
                    raise PeerLost(f"'{peer}' has said nothing to '{party}' for {self.silence_seconds:g} s.")
                self._waits_for.pop(party, None)
                self._check_stopped()
                if self._deadlock is not None and not queue:
                    raise Deadlock(self._deadlock)
            return queue.popleft()

    def _check_stopped(self) -> None:
        if self._stopped is not None:
            raise PeerLost(self._stopped)

    def _find_deadlock(self) -> None:
        waiting = self._present & self._waits_for.keys()
        someone_gone = any(self._waits_for[party] not in self._present for party in waiting)
        if self._deadlock is None and waiting and waiting == self._present and not someone_gone:
            waits = ", ".join(f"'{party}' for '{self._waits_for[party]}'" for party in sorted(waiting))
            self._deadlock = (
                f"All parties wait for one another ({waits}), so none can go on. This is a fault in the method."
            )
            for wakeup in self._wakeups.values():
                wakeup.notify_all()


class MemoryLink:
    """One party's end of a line through the hub."""

    def __init__(self, hub: MemoryHub, party: str, peer: str) -> None:
        self._hub, self._party, self._peer = hub, party, peer

    def send(self, parts: Sequence[Part], body_digest: bytes | None = None) -> None:
        """Copy one frame to the peer."""
        self._hub.deliver(self._party, self._peer, (bytearray().join(parts), body_digest))

    def receive(self, digest: BodyDigest | None = None) -> bytearray:
        """Wait for the peer's next frame."""
        frame, known = self._hub.collect(self._party, self._peer)
        if digest is not None and known is not None:
            digest.take_over(known)
        elif digest is not None:
            digest.update(memoryview(frame)[HEADER_BYTES:])
        if self._hub.tap is not None:
            self._hub.tap(self._peer, self._party, bytes(frame))
        return frame
