"""The guard of a party's columns: how many numbers about a row may be opened, over all runs with a partner.

Where linear combinations of a row's encoded columns are opened to a partner, as many as the columns have rank span
them, and then two-valued columns can be found exactly by a partner that knows no row at all: independent components,
rounded and projected on the span. With at most half the rank that finds nothing (benchmarks/secure_lr_leaks.py).

So a run is refused if what it opens about a row, with what earlier runs opened, is more than half the rank. A first one
of at most two epochs may open all numbers but one. A run that is taken up again opens numbers once more. With an honest
partner they are the same, but nothing shows that: one that trains on other labels each time gets others. So they count,
and all together stay below the rank.
"""

from __future__ import annotations

import base64
import hashlib

import numpy as np
import numpy.typing as npt

from colonnade.data import canonical_id_bytes
from colonnade.errors import LeakRefused
from colonnade.session import Channel, EventLog, Holding, Session

__all__ = ["Contributions", "check_opened", "most_opened"]

Counts = npt.NDArray[np.int64]

_DIGEST_BYTES = 8
_FEW_EPOCHS = 2


def most_opened(rank: int, opened: int, epochs: int) -> int:
    """Return how many numbers about a row may be opened, with those that earlier runs opened."""
    return rank - 1 if epochs <= _FEW_EPOCHS and not opened else rank // 2


def check_opened(
    session: Session, peer: Channel, rank: int, needed: int, opened: int, most: int, remedy: str, *, allow_leak: bool
) -> None:
    """Refuse to open more numbers than may be, unless all parties agreed to it: then the ledger says so."""
    if opened + needed <= most:
        return
    if allow_leak:
        what = "the label holder can work out a feature holder's columns from what they add to scores"
        facts = {"rank": rank, "needed": needed, "opened": opened}
        session.ledger.mark("override", partner=peer.peer, guard="contributions", what=what, **facts)
        return
    raise LeakRefused(
        f"This would open {needed} numbers about each row of '{session.party}' to '{peer.peer}'"
        f"{f', after {opened} opened before' if opened else ''}. Its encoded columns have rank {rank}: "
        f"from more than {most} in all, columns can be worked out. {remedy} "
        "With allow_leak = true all parties accept it, and the ledger says so."
    )


class Contributions:
    """What one run opens about rows to one partner, beside what other runs opened about the same rows.

    The record is a file in the party's home, with a digest for each row: a row counts with all numbers that any run
    opened about it, however the runs' rows overlap. That columns may have changed between runs is not looked at.
    Without a file only the present run counts.
    """

    def __init__(
        self, session: Session, peer: Channel, holding: Holding, run: str, rank: int, *, allow_leak: bool
    ) -> None:
        """Take the shared rows; ``run`` stands for the model that they train or that scores them."""
        self._log, self._run, self._rank = EventLog(session.contributions), run, rank
        self._session, self._peer, self._allow_leak = session, peer, allow_leak
        ids = holding.table.ids[holding.aligned.positions]
        digests = b"".join(hashlib.sha256(canonical_id_bytes(one)).digest()[:_DIGEST_BYTES] for one in ids)
        self._rows = np.frombuffer(digests, dtype="<u8")

    def earlier(self) -> int:
        """Return the most numbers that other runs have opened about one of the rows."""
        return int(self._counts()[0].max(initial=0))

    def train(self, scores: int, epochs: int) -> None:
        """Write down how many numbers a training opens about each row, or opens once more, or refuse it."""
        with self._log.held():
            (others, own), done = self._counts(), self._session.step
            opened, needed, most = int((others + own).max(initial=0)), epochs * scores, self._rank - 1
            if own.any():
                needed = (epochs - done + (done > 0)) * scores
            else:
                most = most_opened(self._rank, opened, epochs)
            fewer = (one for one in range(epochs - 1, 0, -1) if opened + one * scores <= self._rank // 2)
            remedy = "Use other rows, or the model of an earlier run." if opened else "Bring more independent columns."
            self._check(needed, opened, most, next((f"Lower config.epochs to {one}." for one in fewer), remedy))
            self._add(needed, self._rows)

    def score(self, scores: int) -> None:
        """Write down how many numbers scoring opens about each row that this run has not opened numbers about."""
        with self._log.held():
            others, own = self._counts()
            is_new = own == 0
            opened = int(others[is_new].max(initial=0))
            if opened:
                remedy = "Score the rows with a model that scored them before, or other rows."
                self._check(scores, opened, self._rank // 2, remedy)
            self._add(scores, self._rows[is_new])

    def _check(self, needed: int, opened: int, most: int, remedy: str) -> None:
        check_opened(self._session, self._peer, self._rank, needed, opened, most, remedy, allow_leak=self._allow_leak)

    def _add(self, numbers: int, rows: npt.NDArray[np.uint64]) -> None:
        if len(rows):
            content = base64.b64encode(np.sort(rows).tobytes()).decode()
            self._log.add("opened", partner=self._peer.peer, run=self._run, numbers=numbers, rows=content)

    def _counts(self) -> tuple[Counts, Counts]:
        """Return the numbers opened about each row by other runs, and by this one."""
        others, own = np.zeros((2, len(self._rows)), dtype=np.int64)
        for line in self._log.lines():
            # A line that a crash cut off was written before anything was opened.
            if line is not None and (line.get("event"), line.get("partner")) == ("opened", self._peer.peer):
                known = np.frombuffer(base64.b64decode(line["rows"]), dtype="<u8")
                counted = own if line["run"] == self._run else others
                counted += np.where(np.isin(self._rows, known), int(line["numbers"]), 0)
        return others, own
