"""What an engine is, and what it is given to do."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from types import TracebackType
from typing import Self

from colonnade.engine.calls import check_name

__all__ = ["Engine", "Work", "cut"]


@dataclass(frozen=True)
class Work:
    """A pure function over chunks, and what all of its calls need.

    Make one and keep it: the digest of a large context is taken once for each object.
    """

    function: str
    """``module:function`` within colonnade, called as ``function(prepared, chunk: bytes) -> bytes``."""
    prepare: str
    """``module:function`` within colonnade, called once per worker and context as ``prepare(context: memoryview)``."""
    context: bytes = field(repr=False)
    """Keys and tables. It may be secret, so it is never shown, and goes only where this user alone can read."""

    def __post_init__(self) -> None:
        check_name(self.function)
        check_name(self.prepare)

    @cached_property
    def digest(self) -> bytes:
        """Identify the context, so that a worker that has it need not get it again."""
        return hashlib.sha256(self.context).digest()


class Engine(ABC):
    """Run pure functions over chunks. Any number of threads may use one engine."""

    name: str
    workers: int

    @abstractmethod
    def map(self, work: Work, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the function's answer to every chunk, in order.

        A worker that dies is replaced, and what it was at is tried again; after a few deaths EngineFailed is raised.
        An error of colonnade that the function raises is raised here too; any other becomes EngineFailed.
        """

    @abstractmethod
    def parts(self, count: int, seconds_each: float) -> list[slice]:
        """Cut items into parts so large that sending each of them to a worker pays off."""

    def close(self) -> None:  # noqa: B027 - an engine without workers has nothing to end
        """End all workers at once and forget all contexts."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def cut(count: int, seconds: float, *, workers: int, least_seconds: float) -> list[slice]:
    """Cut items that take ``seconds`` in all into parts of no less than about ``least_seconds``.

    Four parts for each worker, so that one that is held up does not hold up the rest; and a multiple of the workers,
    so that none is idle at the end.

    >>> cut(10, 0.004, workers=2, least_seconds=0.005)
    [slice(0, 10, None)]
    >>> len(cut(1000, 1.0, workers=2, least_seconds=0.005))
    8
    >>> cut(0, 1.0, workers=2, least_seconds=0.005)
    []
    """
    if count <= 0:
        return []
    pays_off = workers > 1 and seconds >= 2 * least_seconds
    number = min(4 * workers, int(seconds / least_seconds), count) if pays_off else 1
    if number > workers:
        number -= number % workers
    edges = [place * count // number for place in range(number + 1)]
    return [slice(start, end) for start, end in pairwise(edges)]
