"""Read, verify, compare and summarise ledgers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from colonnade.errors import LedgerBroken, LedgersDisagree, LedgerUnfinished, RunFolderError
from colonnade.ledger.entries import GENESIS, Entry, parse_line

__all__ = ["Ledger", "MessageTotal", "compare"]

# A run that came to its end has this as its last mark. A failed run may be resumed, so a failure mark closes nothing:
# otherwise the part after it could be cut off unnoticed.
_CLOSING = "closed"


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


class Ledger:
    """One party's record of one run.

    >>> from colonnade.ledger import LedgerWriter
    >>> writer = LedgerWriter()
    >>> writer.mark("opened", party="bank", digest="…"); writer.mark("closed")
    >>> ledger = writer.read(); ledger.verify(); len(ledger.entries)
    2
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content = content
        self.name = name

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a ledger file, without judging it yet."""
        try:
            return cls(path.read_bytes(), str(path))
        except OSError as error:
            raise RunFolderError(
                f"The ledger {path} cannot be read ({error.strerror}). Check the run folder."
            ) from None

    @cached_property
    def entries(self) -> tuple[Entry, ...]:
        """Return all entries; raise LedgerBroken at the first that does not follow from the one before."""
        *lines, rest = self._content.split(b"\n")
        if rest:
            raise LedgerBroken(
                f"The last line of {self.name} is cut off. The file was changed, or the machine stopped while writing; "
                "run the same command again to resume, or do not rely on this run's report."
            )
        entries: list[Entry] = []
        previous = GENESIS
        for index, line in enumerate(lines):
            try:
                entry = parse_line(line, index, previous)
            except LedgerBroken as error:
                raise LedgerBroken(f"{self.name}: {error}") from None
            except (ValueError, KeyError, TypeError, RecursionError):
                raise LedgerBroken(f"Entry {index} of {self.name} is not a ledger line.") from None
            entries.append(entry)
            previous = entry.hash
        return tuple(entries)

    @property
    def head(self) -> str:
        """Return the hash of the last entry, which stands for the whole ledger."""
        return self.entries[-1].hash if self.entries else GENESIS

    def verify_chain(self) -> None:
        """Raise LedgerBroken unless every entry follows from the one before."""
        _ = self.entries

    def verify(self) -> None:
        """Raise LedgerBroken for any edit, deletion or reordering, LedgerUnfinished if the closing mark is missing."""
        if not self.entries:
            raise LedgerBroken(f"The ledger {self.name} is empty. Its entries were removed.")
        if self.entries[0].kind != "opened":
            raise LedgerBroken(f"The ledger {self.name} does not begin with an opening mark. Its front was cut off.")
        if self.entries[-1].kind != _CLOSING:
            raise LedgerUnfinished(
                f"The ledger {self.name} is intact up to entry {len(self.entries) - 1} but was never closed: the run "
                "is still going, failed, was interrupted, or the end of the file was cut off. Resume the run, then "
                "verify again."
            )

    def messages(self) -> Iterable[Entry]:
        """Iterate over the messages, leaving out the marks."""
        return (entry for entry in self.entries if entry.is_message)

    def summary(self) -> tuple[MessageTotal, ...]:
        """Return totals by direction, peer and message, in order of first appearance."""
        groups: dict[tuple[str, str, str, str], list[Entry]] = defaultdict(list)
        for entry in self.messages():
            about = entry.content
            groups[entry.kind, about["peer"], about["message"], about["protection"]].append(entry)
        return tuple(
            MessageTotal(*key, len(found), sum(entry.content["bytes"] for entry in found), _largest_shapes(found))
            for key, found in groups.items()
        )

    def bytes_sent(self) -> dict[str, int]:
        """Return the bytes of all sent messages by protection."""
        totals: dict[str, int] = defaultdict(int)
        for total in self.summary():
            if total.direction == "sent":
                totals[total.protection] += total.bytes
        return dict(totals)


def _largest_shapes(entries: list[Entry]) -> dict[str, list[int]]:
    largest: dict[str, list[int]] = {}
    for entry in entries:
        for name, shape in entry.content["shapes"].items():
            known = largest.get(name)
            if known is None or _volume(shape) > _volume(known):
                largest[name] = shape
    return largest


def _volume(shape: list[int]) -> int:
    volume = 1
    for extent in shape:
        volume *= extent
    return volume


def compare(first: Ledger, second: Ledger) -> None:
    """Raise LedgersDisagree unless two parties' verified ledgers of one run tell the same story.

    What one received must be what the other sent: same messages, same order, same payload hashes. After a crash the
    receiver may have seen less than was sent, never more or other. When the connection was closed by both, all of it
    must have arrived.
    """
    openings = []
    for ledger in (first, second):
        ledger.verify_chain()
        if not ledger.entries or ledger.entries[0].kind != "opened":
            raise LedgerBroken(f"The ledger {ledger.name} does not begin with an opening mark.")
        openings.append(ledger.entries[0].content)
    if openings[0]["digest"] != openings[1]["digest"]:
        raise LedgersDisagree(f"{first.name} and {second.name} are ledgers of different runs.")
    names = [opening["party"] for opening in openings]
    if names[0] == names[1]:
        raise LedgersDisagree(f"{first.name} and {second.name} are both ledgers of '{names[0]}'.")
    closed = _closed_connections(first, names[1]) & _closed_connections(second, names[0])
    if first.entries[-1].kind == second.entries[-1].kind == _CLOSING:
        closed |= _last_connections(first, names[1]) | _last_connections(second, names[0])
    for sender, receiver, to, sent_by in ((first, second, names[1], names[0]), (second, first, names[0], names[1])):
        _compare_direction(_crossed(sender, "sent", to), _crossed(receiver, "received", sent_by), closed, sent_by, to)


_Fact = tuple[object, ...]


def _crossed(ledger: Ledger, direction: str, peer: str) -> dict[str, list[list[_Fact]]]:
    """Return what crossed, by connection and attempt; only the greeting's context serves more than one attempt."""
    by_connection: dict[str, list[list[_Fact]]] = defaultdict(list)
    for entry in ledger.messages():
        about = entry.content
        if entry.kind == direction and about["peer"] == peer:
            fact = (about["sequence"], about["message"], about["protection"], about["step"], about["bytes"])
            attempts = by_connection[about["connection"]]
            if about["sequence"] == 0 or not attempts:
                attempts.append([])
            attempts[-1].append((*fact, about["payload"], str(about["shapes"])))
    return by_connection


def _closed_connections(ledger: Ledger, peer: str) -> set[str]:
    return {
        str(connection)
        for entry in ledger.entries
        if entry.kind == "disconnected" and entry.content["peer"] == peer
        for connection in entry.content["connections"]
    }


def _last_connections(ledger: Ledger, peer: str) -> set[str]:
    found: set[str] = set()
    for entry in reversed(ledger.entries):
        if entry.kind == "opened":
            break
        if entry.is_message and entry.content["peer"] == peer:
            found.add(entry.content["connection"])
    return found


def _compare_direction(
    sent: dict[str, list[list[_Fact]]],
    received: dict[str, list[list[_Fact]]],
    closed: set[str],
    sender: str,
    receiver: str,
) -> None:
    for connection in sent.keys() | received.keys():
        tried, arrived = sent.get(connection, []), received.get(connection, [])
        if len(tried) > 1:
            # Whole attempts may have gone unheard, such as when the peer's policy refused to begin.
            left = iter(tried)
            if not all(any(out[: len(came)] == came for out in left) for came in arrived):
                raise LedgersDisagree(f"'{receiver}' recorded messages that '{sender}' did not record sending.")
            continue
        out, came = [one for attempt in tried for one in attempt], [one for attempt in arrived for one in attempt]
        position = next((i for i, (a, b) in enumerate(zip(out, came, strict=False)) if a != b), None)
        if position is not None:
            what = out[position][1]
            raise LedgersDisagree(
                f"'{sender}' recorded sending {what} as message {position} of connection {connection[:8]}, but "
                f"'{receiver}' recorded something else. One of the two ledgers was rewritten."
            )
        if len(came) > len(out):
            raise LedgersDisagree(f"'{receiver}' recorded messages that '{sender}' did not record sending.")
        if connection in closed and len(came) < len(out):
            raise LedgersDisagree(f"'{sender}' recorded messages that '{receiver}' did not record receiving.")
