"""What a transport offers to a channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from colonnade.messages import Part

__all__ = ["Link", "Network", "Tap"]

Tap = Callable[[str, str, bytes], None]
"""Called with sender, receiver and frame for every frame that arrives; lets tests and attacks read one party's view."""


class Link(Protocol):
    """One party's end of an ordered, reliable line to one peer."""

    def send(self, parts: Sequence[Part]) -> None:
        """Take one frame; the parts may be reused by the caller as soon as this returns."""

    def receive(self) -> bytearray | memoryview:
        """Wait for the next frame and return it, owned by the caller; raise PeerLost when none can come any more."""


class Network(Protocol):
    """All parties of one process, joined."""

    def link(self, party: str, peer: str) -> Link:
        """Return a party's end of the line to a peer."""

    def leave(self, party: str) -> None:
        """Note that a party is gone; whoever waits for it learns so."""

    def stop(self, reason: str) -> None:
        """End the run for everyone."""
