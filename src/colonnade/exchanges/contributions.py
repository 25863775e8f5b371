"""The guard of a party's columns: how many numbers about a row may be opened, over all runs with a partner.

Where linear combinations of a row's encoded columns are opened to a partner, as many as the columns have rank span
them, and then two-valued columns can be found exactly by a partner that knows no row at all: independent components,
rounded and projected on the span. With at most half the rank that finds nothing (benchmarks/secure_lr_leaks.py).

So a training is refused if the numbers it opens about a row, with those of earlier runs, are more than half the rank. A
first one of at most two epochs is let pass as long as it opens fewer numbers than the rank. A run that is taken up
again opens numbers once more. With an honest partner they are the same, but nothing shows that: one that trains on
other labels each time gets others. So they count, and all together stay below the rank.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import canonical_id_bytes
from colonnade.errors import LeakRefused
from colonnade.session import Channel, EventLog, Holding, Session

__all__ = ["Contributions", "Guard", "is_allowed"]

Digests = npt.NDArray[np.uint64]

_DIGEST_BYTES = 8
_FEW_EPOCHS = 2


def is_allowed(rank: int, scores: int, opened: int, epochs: int) -> bool:
    """Tell whether a run keeps to the rule, after earlier ones that opened so many numbers about a row."""
    needed = epochs * scores
    return 2 * (opened + needed) <= rank or (needed < rank and epochs <= _FEW_EPOCHS and not opened)


@dataclass(frozen=True)
class Guard:
    """Refuses what would let the label holder work out columns, unless all parties agreed to it."""

    session: Session
    peer: Channel
    rank: int
    allow_leak: bool
    """Whether all parties agreed to go on: then the ledger says so."""

    def train(self, contributions: Contributions, scores: int, epochs: int) -> None:
        """Count what a training opens, or what it opens once more from the step that is done."""
        done = self.session.step
        again = (epochs - done + (0 < done < epochs)) * scores
        contributions.train(
            epochs * scores,
            again,
            lambda opened: self.check_training(scores, epochs, opened),
            lambda opened: self._check_repeating(again, opened),
        )

    def check_training(self, scores: int, epochs: int, opened: int) -> None:
        """Look at a training after others that opened so many numbers."""
        if is_allowed(self.rank, scores, opened, epochs):
            return
        most = max((one for one in range(1, epochs) if is_allowed(self.rank, scores, opened, one)), default=0)
        remedy = "Use other rows, or the model of an earlier run." if opened else "Bring more independent columns."
        self._refuse(
            f"Training and scoring open {epochs * scores} numbers about each row of '{self.session.party}' to "
            f"'{self.peer.peer}'{f' after {opened} in earlier runs' if opened else ''}.",
            f"more than half as many numbers columns can be worked out. "
            f"{f'Lower config.epochs to {most}.' if most else remedy}",
            scores=scores,
            opened=opened,
            epochs=epochs,
        )

    def check_scoring(self, scores: int, opened: int) -> None:
        """Look at scoring rows about which other runs have opened so many numbers."""
        if opened and 2 * (opened + scores) > self.rank:
            self._refuse(
                f"Other runs have opened {opened} numbers about some of these rows of '{self.session.party}' to "
                f"'{self.peer.peer}', and scoring them would open {scores} more.",
                "more than half as many numbers columns can be worked out. Score the rows with a model that scored "
                "them before, or other rows.",
                scores=scores,
                opened=opened,
            )

    def _check_repeating(self, needed: int, opened: int) -> None:
        if opened + needed >= self.rank:
            self._refuse(
                f"To go on with this run opens {needed} numbers once more about each row of '{self.session.party}' to "
                f"'{self.peer.peer}', after {opened}.",
                "as many numbers columns can be worked out, if these were others than before. Use other rows, or the "
                "model of an earlier run.",
                needed=needed,
                opened=opened,
            )

    def _refuse(self, what: str, why: str, **facts: Any) -> None:
        said = f"{what} Its encoded columns have rank {self.rank}: from {why}"
        if not self.allow_leak:
            raise LeakRefused(f"{said} With allow_leak = true all parties accept it, and every ledger says so.")
        what = "the label holder can work out a feature holder's columns from what they add to scores"
        partner, guard = self.peer.peer, "contributions"
        self.session.ledger.mark("override", partner=partner, guard=guard, what=what, rank=self.rank, **facts)


class Contributions:
    """What one run opens about rows to one partner, beside what other runs opened about the same rows.

    The record is a file in the party's home, with a digest for each row: a row counts with all numbers that any run
    opened about it, however the runs' rows overlap. Columns may have changed between runs; that is not looked at, so
    that the count is never too low. Without a file only the present run counts.
    """

    def __init__(self, session: Session, partner: str, holding: Holding, run: str) -> None:
        """Take the shared rows; ``run`` stands for the model that they train or that scores them."""
        self._log, self._partner, self._run = EventLog(session.contributions), partner, run
        ids = holding.table.ids[holding.aligned.positions]
        with self._log.held():
            salt = self._salt()
        self._rows = np.array([_digest(salt, canonical_id_bytes(one)) for one in ids], dtype=np.uint64)

    def earlier(self) -> int:
        """Return the most numbers that other runs have opened about one of the rows."""
        return int(self._counts()[0].max(initial=0))

    def train(self, first: int, again: int, check: Callable[[int], None], check_again: Callable[[int], None]) -> None:
        """Write down how many numbers training opens about each row, unless a check refuses with the earlier ones.

        ``first`` of them are opened in the first attempt at a run, ``again`` where it is taken up again.
        """
        with self._log.held():
            others, own = self._counts()
            if own.any():
                check_again(int((others + own).max()))
            else:
                check(int(others.max(initial=0)))
            self._add(again if own.any() else first, self._rows)

    def score(self, numbers: int, check: Callable[[int], None]) -> None:
        """Write down how many numbers scoring opens about each row that this run has not opened numbers about."""
        with self._log.held():
            others, own = self._counts()
            is_new = own == 0
            if is_new.any():
                check(int(others[is_new].max()))
                self._add(numbers, self._rows[is_new])

    def _add(self, numbers: int, rows: Digests) -> None:
        content = base64.b64encode(np.sort(rows).astype("<u8").tobytes()).decode()
        self._log.add("opened", partner=self._partner, run=self._run, numbers=numbers, rows=content)

    def _counts(self) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the numbers opened about each row by other runs, and by this one."""
        by_run: dict[str, npt.NDArray[np.int64]] = {}
        for line in self._log.lines():
            # A line that a crash cut off was written before anything was opened.
            if line is not None and (line.get("event"), line.get("partner")) == ("opened", self._partner):
                known = np.frombuffer(base64.b64decode(line["rows"]), dtype="<u8")
                found = np.where(np.isin(self._rows, known), int(line["numbers"]), 0)
                by_run[line["run"]] = by_run.get(line["run"], 0) + found
        nothing = np.zeros(len(self._rows), dtype=np.int64)
        own = by_run.pop(self._run, nothing)
        return sum(by_run.values(), nothing), own

    def _salt(self) -> bytes:
        for line in self._log.lines():
            if line is not None and line.get("event") == "salt":
                return bytes.fromhex(line["salt"])
        salt = secrets.token_bytes(16)
        self._log.add("salt", salt=salt.hex())
        return salt


def _digest(salt: bytes, identifier: bytes) -> int:
    return int.from_bytes(hashlib.sha256(salt + identifier).digest()[:_DIGEST_BYTES], "little")
