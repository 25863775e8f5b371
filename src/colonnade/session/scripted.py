"""A peer that says what it is told to: for tests of one role without the others, and for adversaries."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from colonnade.errors import PeerLost
from colonnade.messages import HEADER_BYTES, Declaration, Part, declaration_of, open_frame, seal
from colonnade.transport import BodyDigest

__all__ = ["ScriptedLink"]


class ScriptedLink:
    """A link whose other end replays a list of frames and keeps what it is sent.

    >>> ScriptedLink([b"hello"]).receive()
    bytearray(b'hello')
    """

    def __init__(self, frames: Iterable[bytes]) -> None:
        self._frames = deque(frames)
        self.sent: list[bytes] = []

    @staticmethod
    def frame(
        message: Any, *, context: bytes, sequence: int, step: int = 0, declaration: Declaration | None = None
    ) -> bytes:
        """Return the frame an honest peer would send for a message, as it is declared for the run."""
        declared = declaration or declaration_of(message)
        return b"".join(seal(declared, message, context=context, sequence=sequence, step=step)[1])

    def send(self, parts: Sequence[Part], body_digest: bytes | None = None) -> None:
        """Keep a frame."""
        self.sent.append(b"".join(parts))
        open_frame(self.sent[-1])

    def receive(self, digest: BodyDigest | None = None) -> bytearray:
        """Return the next scripted frame; when there are none left, the peer is gone."""
        if not self._frames:
            raise PeerLost("The scripted peer has nothing more to say.")
        frame = bytearray(self._frames.popleft())
        if digest is not None:
            digest.update(memoryview(frame)[HEADER_BYTES:])
        return frame
