"""What summaries and comparisons need to know of a ledger, gathered in one pass.

It grows with the kinds of messages and the number of connections, not with the number of entries.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from math import prod
from typing import Any

from colonnade.ledger.entries import GENESIS, Direction, Entry

__all__ = ["Attempt", "Fact", "MessageTotal", "Overview", "attempt_of", "fact_of"]

Fact = tuple[object, ...]


@dataclass(frozen=True)
class MessageTotal:
    """How often and how much of one message crossed in one direction."""

    direction: str
    peer: str
    message: str
    protection: str
    count: int
    bytes: int
    shapes: dict[str, list[int]]
    """The largest shapes seen, by field."""


@dataclass
class Attempt:
    """Messages that crossed one way on one connection: how many, and a digest of their facts, in order."""

    count: int = 0
    digest: bytes = b""

    def add(self, fact: Fact) -> None:
        """Take in the next message."""
        self.count += 1
        # What repr gives can be read back in one way only, so other facts give another text.
        self.digest = hashlib.sha256(self.digest + repr(fact).encode()).digest()


def fact_of(about: dict[str, Any]) -> Fact:
    """Return what sender and receiver must have recorded alike."""
    fact = (about["sequence"], about["message"], about["protection"], about["step"], about["bytes"])
    return (*fact, about["payload"], about["shapes"])


def attempt_of(attempts: list[Attempt], about: dict[str, Any]) -> Attempt:
    """Return the attempt a message belongs to; only the greeting's connection sees more than one."""
    if about["sequence"] == 0 or not attempts:
        attempts.append(Attempt())
    return attempts[-1]


@dataclass
class _Total:
    count: int = 0
    bytes: int = 0
    shapes: dict[str, list[int]] = field(default_factory=dict)

    def add(self, about: dict[str, Any]) -> None:
        self.count += 1
        self.bytes += about["bytes"]
        for name, shape in about["shapes"].items():
            known = self.shapes.get(name)
            if shape != known and _volume(shape) > (-1 if known is None else _volume(known)):
                self.shapes[name] = shape


def _volume(shape: Any) -> int:
    if not isinstance(shape, list) or not all(isinstance(extent, int) for extent in shape):
        raise TypeError("a shape is a list of whole numbers")
    return prod(shape)


class Overview:
    """The gist of the entries added so far."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Entry | None = None
        self.last: Entry | None = None
        self.ended: dict[str, set[str]] = defaultdict(set)
        """By peer, the connections that were closed in good order."""
        self.latest: dict[str, set[str]] = defaultdict(set)
        """By peer, the connections used since the last opening mark."""
        self.unconfirmed: set[str] = set()
        """The peers that, since the last opening mark, were gone before their goodbye."""
        self.openings: dict[str, Counter[str]] = defaultdict(Counter)
        """By peer and message, what this party decrypted for it, over all attempts."""
        self._totals: dict[tuple[str, str, str, str], _Total] = defaultdict(_Total)
        self._crossed: dict[tuple[str, str], dict[str, list[Attempt]]] = defaultdict(lambda: defaultdict(list))

    @property
    def head(self) -> str:
        """Return the hash of the last entry."""
        return GENESIS if self.last is None else self.last.hash

    def add(self, entry: Entry) -> None:
        """Take in the next entry."""
        self.count += 1
        self.first = self.first or entry
        self.last = entry
        if entry.is_message:
            self._add_message(entry.kind, entry.content)
        elif entry.kind == "opened":
            self.latest.clear()
            self.unconfirmed.clear()
        elif entry.kind == "unconfirmed":
            self.unconfirmed.add(entry.content["peer"])
        elif entry.kind == "openings":
            self.openings[entry.content["peer"]].update(
                {str(name): int(n) for name, n in entry.content["messages"].items()}
            )
        elif entry.kind == "disconnected":
            self.ended[entry.content["peer"]].update(map(str, entry.content["connections"]))

    def _add_message(self, direction: str, about: dict[str, Any]) -> None:
        peer, connection = about["peer"], about["connection"]
        self._totals[direction, peer, about["message"], about["protection"]].add(about)
        attempt_of(self._crossed[direction, peer][connection], about).add(fact_of(about))
        self.latest[peer].add(connection)

    def totals(self) -> tuple[MessageTotal, ...]:
        """Return totals by direction, peer, message and protection, in order of first appearance."""
        return tuple(
            MessageTotal(*key, total.count, total.bytes, dict(total.shapes)) for key, total in self._totals.items()
        )

    def crossed(self, direction: Direction, peer: str) -> dict[str, list[Attempt]]:
        """Return what crossed one way, by connection and attempt."""
        return self._crossed.get((direction, peer), {})
