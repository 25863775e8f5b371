"""What a transport offers to a channel."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from colonnade.messages import Part

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

__all__ = ["BodyDigest", "Link", "Network", "Tap"]

Tap = Callable[[str, str, bytes], None]
"""Called with sender, receiver and frame for every frame that arrives; lets tests and attacks read one party's view."""


class BodyDigest:
    """The SHA-256 of a frame's body: made of its bytes as they arrive, or taken over where they never travelled."""

    def __init__(self) -> None:
        self._running = hashlib.sha256()
        self._known: bytes | None = None

    def update(self, content: Buffer) -> None:
        """Take in more bytes of the body."""
        self._running.update(content)

    def take_over(self, known: bytes) -> None:
        """Take the digest that the sender has made in this process, of the very bytes that were copied."""
        self._known = known

    def digest(self) -> bytes:
        """Return the SHA-256."""
        return self._running.digest() if self._known is None else self._known


class Link(Protocol):
    """One party's end of an ordered, reliable line to one peer."""

    def send(self, parts: Sequence[Part], body_digest: bytes | None = None) -> None:
        """Take one frame; the parts may be reused by the caller as soon as this returns.

        ``body_digest`` is the SHA-256 of its body, which the caller has just made of these parts.
        """

    def receive(self, digest: BodyDigest | None = None) -> bytearray | memoryview:
        """Wait for the next frame and return it, owned by the caller; raise PeerLost when none can come any more.

        A ``digest`` is given the frame's body, all but its first `HEADER_BYTES`, as it arrives.
        """


class Network(Protocol):
    """All parties of one process, joined."""

    def link(self, party: str, peer: str) -> Link:
        """Return a party's end of the line to a peer."""

    def leave(self, party: str) -> None:
        """Note that a party is gone; whoever waits for it learns so."""

    def stop(self, reason: str) -> None:
        """End the run for everyone."""
