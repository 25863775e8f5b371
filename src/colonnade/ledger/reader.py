"""Read, verify, compare and summarise ledgers, line by line: a long run's ledger need not fit into memory."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, overload

from colonnade.errors import LedgerBroken, LedgersDisagree, LedgerUnfinished, RunFolderError
from colonnade.ledger.entries import GENESIS, Direction, Entry, parse_line
from colonnade.ledger.overview import Attempt, MessageTotal, Overview, attempt_of, fact_of

__all__ = ["Ledger", "compare", "front_of"]

# A run that came to its end has this as its last mark. A failed run may be resumed, so a failure mark closes nothing:
# otherwise the part after it could be cut off unnoticed.
_CLOSING = "closed"
# What a session says when it has nothing left to do. None of it tells of a table.
_LAST_WORDS = ("Finished", "Goodbye", "Failed")


class Ledger:
    """One party's record of one run.

    >>> from colonnade.ledger import LedgerWriter
    >>> writer = LedgerWriter()
    >>> writer.mark("opened", party="bank", digest="…"); writer.mark("closed")
    >>> ledger = writer.read(); ledger.verify(); len(ledger.entries)
    2
    """

    def __init__(self, content: bytes, name: str) -> None:
        self._content: bytes | Path = content
        self._size = len(content)
        self.name = name

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Read a ledger file, without judging it yet."""
        # What a running party adds from here on is not part of what was read.
        with _open(path) as file:
            return front_of(path, file.seek(0, io.SEEK_END))

    @property
    def entries(self) -> Sequence[Entry]:
        """Return all entries; raise LedgerBroken at the first that does not follow from the one before.

        They are read anew each time one goes through them. The first, the last and their number are at hand.
        """
        return _Entries(self, self._overview)

    @property
    def head(self) -> str:
        """Return the hash of the last entry, which stands for the whole ledger."""
        return self._overview.head

    def verify_chain(self) -> None:
        """Raise LedgerBroken unless every entry follows from the one before."""
        _ = self._overview

    def verify(self) -> None:
        """Raise LedgerBroken for any edit, deletion or reordering, LedgerUnfinished if the closing mark is missing."""
        first, last = self._overview.first, self._overview.last
        if first is None or last is None:
            raise LedgerBroken(f"The ledger {self.name} is empty. Its entries were removed.")
        if first.kind != "opened":
            raise LedgerBroken(f"The ledger {self.name} does not begin with an opening mark. Its front was cut off.")
        if last.kind != _CLOSING:
            raise LedgerUnfinished(
                f"The ledger {self.name} is intact up to entry {last.index} but was never closed: the run "
                "is still going, failed, was interrupted, or the end of the file was cut off. Resume the run, then "
                "verify again."
            )

    def messages(self) -> Iterable[Entry]:
        """Iterate over the messages, leaving out the marks."""
        return (entry for entry in self.entries if entry.is_message)

    def summary(self) -> tuple[MessageTotal, ...]:
        """Return totals by direction, peer and message, in order of first appearance."""
        return self._overview.totals()

    def openings(self) -> dict[str, dict[str, int]]:
        """Return how many messages this party decrypted, by the peer that sent them and their names."""
        return {peer: dict(counts) for peer, counts in self._overview.openings.items()}

    def bytes_sent(self) -> dict[str, int]:
        """Return the bytes of all sent messages by protection."""
        totals: dict[str, int] = defaultdict(int)
        for total in self.summary():
            if total.direction == "sent":
                totals[total.protection] += total.bytes
        return dict(totals)

    @cached_property
    def _overview(self) -> Overview:
        overview = Overview()
        for entry in self._walk():
            try:
                overview.add(entry)
            except (TypeError, RecursionError):
                raise LedgerBroken(f"Entry {entry.index} of {self.name} is not a ledger line.") from None
        return overview

    def _walk(self) -> Iterator[Entry]:
        """Check the chain and give each entry, holding no more than one."""
        previous = GENESIS
        for index, line in enumerate(self._lines()):
            if not line.endswith(b"\n"):
                raise LedgerBroken(
                    f"The last line of {self.name} is cut off. The file was changed, or the machine stopped while "
                    "writing; run the same command again to resume, or do not rely on this run's report."
                )
            try:
                entry = parse_line(line[:-1], index, previous)
            except LedgerBroken as error:
                raise LedgerBroken(f"{self.name}: {error}") from None
            except (ValueError, KeyError, TypeError, RecursionError):
                raise LedgerBroken(f"Entry {index} of {self.name} is not a ledger line.") from None
            yield entry
            previous = entry.hash

    def _lines(self) -> Iterator[bytes]:
        left = self._size
        with io.BytesIO(self._content) if isinstance(self._content, bytes) else _open(self._content) as file:
            while left > 0:
                line = file.readline(left)
                if not line:
                    raise self._changed()
                left -= len(line)
                yield line

    def _changed(self) -> LedgerBroken:
        return LedgerBroken(
            f"The ledger {self.name} changed while it was read. Only its own run may write to it, and only at its end; "
            "verify it again."
        )


def front_of(path: Path, size: int) -> Ledger:
    """Return the ledger in the first bytes of a file, which is read only when something is asked of it."""
    ledger = Ledger(b"", str(path))
    ledger._content, ledger._size = path, size
    return ledger


def _open(path: Path) -> BinaryIO:
    try:
        return path.open("rb")
    except OSError as error:
        raise RunFolderError(f"The ledger {path} cannot be read ({error.strerror}). Check the run folder.") from None


class _Entries(Sequence[Entry]):
    """A verified ledger's entries, read from the ledger when they are asked for."""

    def __init__(self, ledger: Ledger, overview: Overview) -> None:
        self._ledger, self._overview = ledger, overview

    def __len__(self) -> int:
        return self._overview.count

    def __iter__(self) -> Iterator[Entry]:
        last = GENESIS
        for entry in self._ledger._walk():
            yield entry
            last = entry.hash
        if last != self._overview.head:
            raise self._ledger._changed()

    def __reversed__(self) -> Iterator[Entry]:
        return reversed(tuple(self))

    @overload
    def __getitem__(self, index: int) -> Entry: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...
    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        place = range(len(self))[index]
        ends = {0: self._overview.first, len(self) - 1: self._overview.last}
        return ends.get(place) or next(islice(self, place, None))


def compare(first: Ledger, second: Ledger) -> None:
    """Raise LedgersDisagree unless two parties' verified ledgers of one run tell the same story.

    What one received must be what the other sent: same messages, same order, same payload hashes. After a crash the
    receiver may have seen less than was sent, never more or other. When the connection was closed by both, all of it
    must have arrived; save the last words of a peer that was gone before they came, where the receiver says so.
    """
    openings = []
    for ledger in (first, second):
        opening = ledger._overview.first
        if opening is None or opening.kind != "opened":
            raise LedgerBroken(f"The ledger {ledger.name} does not begin with an opening mark.")
        openings.append(opening.content)
    if openings[0]["digest"] != openings[1]["digest"]:
        raise LedgersDisagree(f"{first.name} and {second.name} are ledgers of different runs.")
    names = [opening["party"] for opening in openings]
    if names[0] == names[1]:
        raise LedgersDisagree(f"{first.name} and {second.name} are both ledgers of '{names[0]}'.")
    closed = _closed_by_both(first._overview, second._overview, names)
    _Crossing(first, second, names[0], names[1]).check(closed)
    _Crossing(second, first, names[1], names[0]).check(closed)


def _closed_by_both(first: Overview, second: Overview, names: list[str]) -> set[str]:
    closed = first.ended[names[1]] & second.ended[names[0]]
    if first.last and second.last and first.last.kind == second.last.kind == _CLOSING:
        closed |= first.latest[names[1]] | second.latest[names[0]]
    return closed


class _Crossing:
    """What one party recorded sending to another, beside what the other recorded receiving."""

    def __init__(self, sender: Ledger, receiver: Ledger, sent_by: str, to: str) -> None:
        self._sender, self._receiver, self._sent_by, self._to = sender, receiver, sent_by, to

    def check(self, closed: set[str]) -> None:
        """Compare connection by connection; on those in ``closed`` everything must have arrived."""
        sent = self._sender._overview.crossed("sent", self._to)
        received = self._receiver._overview.crossed("received", self._sent_by)
        # Equal digests settle most connections; the others need another look into the sender's ledger.
        unequal = [name for name in sent | received if sent.get(name) != received.get(name)]
        prefixes = self._prefixes({name: received[name] for name in unequal if name in received})
        for connection in unequal:
            tried, arrived = sent.get(connection, []), received.get(connection, [])
            if len(tried) > 1:
                # Whole attempts may have gone unheard, such as when the peer's policy refused to begin.
                left = iter(range(len(tried)))
                if not all(any(prefixes.get((connection, n, c.count)) == c.digest for n in left) for c in arrived):
                    raise self._more_arrived()
                continue
            if len(arrived) > 1 or any(prefixes.get((connection, 0, c.count)) != c.digest for c in arrived):
                raise self._disagreement(connection)
            if connection in closed and not self._lacks_last_words_only(connection, sum(c.count for c in arrived)):
                raise LedgersDisagree(
                    f"'{self._sent_by}' recorded messages that '{self._to}' did not record receiving."
                )

    def _lacks_last_words_only(self, connection: str, arrived: int) -> bool:
        if self._sent_by not in self._receiver._overview.unconfirmed:
            return False
        sent = (one for one in _crossed(self._sender, "sent", self._to) if one["connection"] == connection)
        return all(one["message"] in _LAST_WORDS for one in islice(sent, arrived, None))

    def _prefixes(self, arrived: dict[str, list[Attempt]]) -> dict[tuple[str, int, int], bytes]:
        """Return digests of the first messages sent, by connection, attempt and how many of them arrived."""
        found: dict[tuple[str, int, int], bytes] = {}
        lengths = {name: {attempt.count for attempt in attempts} for name, attempts in arrived.items()}
        tried: dict[str, list[Attempt]] = defaultdict(list)
        for about in _crossed(self._sender, "sent", self._to) if lengths else ():
            connection = about["connection"]
            if connection in lengths:
                attempt = attempt_of(tried[connection], about)
                attempt.add(fact_of(about))
                if attempt.count in lengths[connection]:
                    found[connection, len(tried[connection]) - 1, attempt.count] = attempt.digest
        return found

    def _disagreement(self, connection: str) -> LedgersDisagree:
        out, came = (
            (fact_of(about) for about in crossed if about["connection"] == connection)
            for crossed in (
                _crossed(self._sender, "sent", self._to),
                _crossed(self._receiver, "received", self._sent_by),
            )
        )
        for position, (fact, other) in enumerate(zip(out, came, strict=False)):
            if fact != other:
                return LedgersDisagree(
                    f"'{self._sent_by}' recorded sending {fact[1]} as message {position} of connection "
                    f"{connection[:8]}, but '{self._to}' recorded something else. One of the two ledgers was rewritten."
                )
        return self._more_arrived()

    def _more_arrived(self) -> LedgersDisagree:
        return LedgersDisagree(f"'{self._to}' recorded messages that '{self._sent_by}' did not record sending.")


def _crossed(ledger: Ledger, direction: Direction, peer: str) -> Iterator[dict[str, Any]]:
    for entry in ledger.messages():
        if entry.kind == direction and entry.content["peer"] == peer:
            yield entry.content
