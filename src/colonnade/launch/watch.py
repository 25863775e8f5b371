"""Who wants to know how the connection to partners goes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from colonnade.errors import PeerFailed, PeerLost

__all__ = ["Line", "Watcher"]


class Line(Protocol):
    """What a watcher may ask of a link."""

    @property
    def is_up(self) -> bool:
        """Tell whether the peer has answered."""

    @property
    def silence_seconds(self) -> float:
        """Return for how long the peer was not heard."""


class Watcher:
    """Is told how the connection to partners goes; this one does not care."""

    def connecting(self, links: Mapping[str, Line], trouble: Mapping[str, str]) -> None:
        """Hear, twice a second, that not all partners are there yet."""

    def connected(self, links: Mapping[str, Line]) -> None:
        """Hear that all partners are there."""

    def interrupted(self, error: PeerFailed | PeerLost) -> None:
        """Hear that a partner is gone and the run waits for it to come back."""
