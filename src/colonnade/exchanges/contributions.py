"""Numbers about rows that runs opened to a partner, counted row by row over all runs of a home."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from colonnade.data import canonical_id_bytes
from colonnade.session import EventLog, Holding, Session

__all__ = ["Contributions"]

Digests = npt.NDArray[np.uint64]

_DIGEST_BYTES = 8


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
