"""Work in the calling thread."""

from __future__ import annotations

from collections.abc import Sequence

from colonnade.engine.calls import Caller
from colonnade.engine.engine import Engine, Work, cut

__all__ = ["INLINE", "InlineEngine"]


class InlineEngine(Engine):
    """Call the function here, for every chunk in turn."""

    name = "inline"
    workers = 1

    def __init__(self) -> None:
        self._caller = Caller()

    def map(self, work: Work, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the function's answer to every chunk, in order."""

        def load() -> memoryview:
            return memoryview(work.context)

        return [self._caller.call(work.function, work.prepare, work.digest, load, chunk) for chunk in chunks]

    def parts(self, count: int, seconds_each: float) -> list[slice]:
        """Return one part: there is no one to share the work with."""
        return cut(count, 0.0, workers=1, least_seconds=1.0)

    def close(self) -> None:
        """Forget all contexts; they are prepared again if they are needed again."""
        self._caller.forget()


INLINE = InlineEngine()
"""For everyone who has not opened an engine."""
