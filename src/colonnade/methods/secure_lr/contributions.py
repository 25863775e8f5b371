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
from colonnade.methods.secure_lr.config import SecureLR
from colonnade.session import Channel, EventLog, Holding, Session

__all__ = ["Contributions", "mark_override", "most_opened"]

_DIGEST_BYTES = 8
_FEW_EPOCHS = 2


def most_opened(rank: int, opened: int, epochs: int, *, is_begun: bool = False) -> int:
    """Return how many numbers about a row may be opened, with those that were before, by a run that is begun too."""
    return rank - 1 if is_begun or (epochs <= _FEW_EPOCHS and not opened) else rank // 2


def mark_override(session: Session, peer: Channel, **facts: int) -> None:
    """Let the ledger say that more numbers are opened than may be, as all parties agreed."""
    what = "the label holder can work out a feature holder's columns from what they add to scores"
    session.ledger.mark("override", partner=peer.peer, guard="contributions", what=what, **facts)


class Contributions:
    """What one run opens about rows to one partner, beside what other runs opened about the same rows.

    The record is a file in the party's home, with a digest for each row: a row counts with all numbers that any run
    opened about it, however the runs' rows overlap. That columns may have changed between runs is not looked at.
    Without a file only the present run counts.
    """

    def __init__(
        self, session: Session, peer: Channel, holding: Holding, config: SecureLR, run: str, rank: int
    ) -> None:
        """Take the shared rows; ``run`` stands for the model that they train or that scores them."""
        self._session, self._peer, self._allow_leak = session, peer, config.allow_leak
        self._log, self._run, self._rank = EventLog(session.contributions), run, rank
        ids = holding.table.ids[holding.aligned.positions]
        digests = b"".join(hashlib.sha256(canonical_id_bytes(one)).digest()[:_DIGEST_BYTES] for one in ids)
        self._rows = np.frombuffer(digests, dtype="<u8")

    def earlier(self) -> int:
        """Return the most numbers that other runs have opened about one of the rows."""
        return int(self._counts()[0].max(initial=0))

    def open(self, scores: int, epochs: int = 1, *, again: bool = False) -> None:
        """Write down how many numbers are opened about each row, or refuse it.

        Rows about which this run has opened numbers count ``again`` where these could be others.
        """
        with self._log.held():
            others, own = self._counts()
            counted = (own == 0) | again
            if not counted.any():
                return
            opened = int((others + own)[counted].max())
            is_begun = bool(own[counted].any())
            # A checkpoint is made before the numbers of its epoch are opened.
            done = max(self._session.step - 1, 0) if is_begun else 0
            needed = (epochs - done) * scores
            most = most_opened(self._rank, opened, epochs, is_begun=is_begun)
            if opened + needed > most:
                self._object(needed, opened, most, min(epochs - 1, (self._rank // 2 - opened) // scores))
            content = base64.b64encode(np.sort(self._rows[counted]).tobytes()).decode()
            self._log.add("opened", partner=self._peer.peer, run=self._run, numbers=needed, rows=content)

    def _object(self, needed: int, opened: int, most: int, epochs: int) -> None:
        """Refuse, and say how many epochs would do, unless all parties agreed to it."""
        if self._allow_leak:
            mark_override(self._session, self._peer, rank=self._rank, needed=needed, opened=opened)
            return
        remedy = "Use other rows, or the model of an earlier run." if opened else "Bring more independent columns."
        raise LeakRefused(
            f"This would open {needed} numbers about each row of '{self._session.party}' to '{self._peer.peer}'"
            f"{f', after {opened} opened before' if opened else ''}. Its encoded columns have rank {self._rank}: "
            f"from more than {most} in all, columns can be worked out. "
            f"{f'Lower config.epochs to {epochs}.' if epochs > 0 else remedy} "
            "With allow_leak = true all parties accept it, and the ledger says so."
        )

    def _counts(self) -> npt.NDArray[np.int64]:
        """Return the numbers opened about each row, by other runs and by this one."""
        counts = np.zeros((2, len(self._rows)), dtype=np.int64)
        for line in self._log.lines():
            # A line that a crash cut off was written before anything was opened.
            if line is not None and (line.get("event"), line.get("partner")) == ("opened", self._peer.peer):
                known = np.frombuffer(base64.b64decode(line["rows"]), dtype="<u8")
                counts[int(line["run"] == self._run)] += int(line["numbers"]) * np.isin(self._rows, known)
        return counts
