"""What a transport offers to a channel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from colonnade.messages import Part

__all__ = ["Link"]


class Link(Protocol):
    """One party's end of an ordered, reliable line to one peer."""

    def send(self, parts: Sequence[Part]) -> None:
        """Take one frame; the parts may be reused by the caller as soon as this returns."""

    def receive(self) -> bytearray:
        """Wait for the next frame and return it, owned by the caller; raise PeerLost when none can come any more."""
