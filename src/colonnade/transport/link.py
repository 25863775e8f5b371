"""What a transport offers to a channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from colonnade.messages import Part

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer as Buffer

__all__ = ["Digest", "Link", "Network", "Tap"]

Tap = Callable[[str, str, bytes], None]
"""Called with sender, receiver and frame for every frame that arrives; lets tests and attacks read one party's view."""


class Digest(Protocol):
    """A running hash, such as hashlib's."""

    def update(self, content: Buffer, /) -> None:
        """Take in more bytes."""


class Link(Protocol):
    """One party's end of an ordered, reliable line to one peer."""

    def send(self, parts: Sequence[Part]) -> None:
        """Take one frame; the parts may be reused by the caller as soon as this returns."""

    def receive(self, digest: Digest | None = None) -> bytearray | memoryview:
        """Wait for the next frame and return it, owned by the caller; raise PeerLost when none can come any more.

        A ``digest`` is fed the frame's body, all but its first `HEADER_BYTES`, as it arrives.
        """


class Network(Protocol):
    """All parties of one process, joined."""

    def link(self, party: str, peer: str) -> Link:
        """Return a party's end of the line to a peer."""

    def leave(self, party: str) -> None:
        """Note that a party is gone; whoever waits for it learns so."""

    def stop(self, reason: str) -> None:
        """End the run for everyone."""
