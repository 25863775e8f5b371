"""The guard of a feature holder's columns: how many numbers about a row may be opened, over all runs with a partner.

Every epoch opens what a feature holder's columns add to a row's scores, and so does scoring the row later. Such numbers
are linear combinations of the row's encoded columns. As many as the columns have rank span them, and then two-valued
columns can be found exactly by a label holder that knows no row at all: independent components, rounded and projected
on the span. With at most half the rank that finds nothing; benchmarks/secure_lr_leaks.py plays it.

So a run is refused if the numbers it opens about a row, with those of earlier runs, are more than half the rank. One
epoch of a first run is let pass as long as it opens fewer numbers than the rank, since scoring alone opens as many.

A run that is taken up again opens numbers once more. With an honest partner they are the same, but nothing shows that:
one that trains on other labels each time gets others. So they count, and all together stay below the rank.
"""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import canonical_id_bytes
from colonnade.errors import LeakRefused
from colonnade.methods.secure_lr.config import MOST_EPOCHS, SecureLR
from colonnade.session import Channel, EventLog, Holding, Session

__all__ = [
    "Contributions",
    "check_repeating",
    "check_scoring",
    "check_training",
    "is_allowed",
    "most_epochs",
    "opened_by",
    "rank_of",
]

Numbers = npt.NDArray[np.float64]
Digests = npt.NDArray[np.uint64]

# Directions in which encoded columns, in standard deviations, hardly differ do not count.
_LEAST_SPREAD = 1e-3
_DIGEST_BYTES = 8


def rank_of(columns: Numbers) -> int:
    """Return how many independent directions encoded columns have about their mean."""
    centred = columns - columns.mean(axis=0)
    gram = centred.T @ centred if centred.shape[1] <= len(centred) else centred @ centred.T
    variances = np.linalg.eigvalsh(gram / len(centred))
    return int((variances > _LEAST_SPREAD**2).sum())


def opened_by(epochs: int, scores: int) -> int:
    """Return how many numbers about a row a run opens: in every epoch, and when its model scores the row."""
    return (epochs + 1) * scores


def is_allowed(rank: int, scores: int, opened: int, epochs: int) -> bool:
    """Tell whether a run keeps to the rule, after earlier ones that opened so many numbers about a row."""
    needed = opened_by(epochs, scores)
    is_least = epochs == 1 and not opened
    return 2 * (opened + needed) <= rank or (is_least and needed < rank)


def most_epochs(rank: int, scores: int, opened: int) -> int:
    """Return the most epochs that the rule allows, up to those of the default settings; 0 if not even one."""
    return max((one for one in range(1, MOST_EPOCHS + 1) if is_allowed(rank, scores, opened, one)), default=0)


def check_training(session: Session, peer: Channel, config: SecureLR, rank: int, scores: int, opened: int) -> None:
    """Refuse training after which the label holder could work out columns, unless all parties agreed to it."""
    if is_allowed(rank, scores, opened, config.epochs):
        return
    earlier = f" after {opened} in earlier runs" if opened else ""
    most = max((one for one in range(1, config.epochs) if is_allowed(rank, scores, opened, one)), default=0)
    if most:
        remedy = f"Lower config.epochs to {most}."
    elif opened:
        remedy = "Use other rows, or the model of an earlier run."
    else:
        needed = f"{2 * scores + 1} independent ones are needed for {_counted(scores, 'score')} per row"
        remedy = f"Bring more columns: at least {needed}."
    _refuse(
        session,
        peer,
        config,
        f"{_counted(config.epochs, 'epoch')} of training, and scoring later, open {opened_by(config.epochs, scores)} "
        f"numbers about each row of '{session.party}' to '{peer.peer}'{earlier}. Its encoded columns have rank {rank}: "
        f"from more than half as many numbers columns can be worked out. {remedy}",
        rank=rank,
        scores=scores,
        opened=opened,
        epochs=config.epochs,
    )


def check_repeating(session: Session, peer: Channel, config: SecureLR, rank: int, needed: int, opened: int) -> None:
    """Refuse to take up a run again after which the label holder could work out columns if it deviates."""
    if opened + needed < rank:
        return
    _refuse(
        session,
        peer,
        config,
        f"To go on with this run opens {needed} numbers once more about each row of '{session.party}' to "
        f"'{peer.peer}', after {opened}. Its encoded columns have rank {rank}: from as many numbers columns can be "
        "worked out, if these were others than before. Use other rows, or the model of an earlier run.",
        rank=rank,
        needed=needed,
        opened=opened,
    )


def check_scoring(session: Session, peer: Channel, config: SecureLR, rank: int, scores: int, opened: int) -> None:
    """Refuse to score rows about which other runs' models have opened enough."""
    if not opened or 2 * (opened + scores) <= rank:
        return
    _refuse(
        session,
        peer,
        config,
        f"Other runs have opened {opened} numbers about some of these rows of '{session.party}' to '{peer.peer}', and "
        f"scoring them would open {scores} more. Its encoded columns have rank {rank}: from more than half as many "
        "numbers columns can be worked out. Score the rows with a model that scored them before, or other rows.",
        rank=rank,
        scores=scores,
        opened=opened,
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _refuse(session: Session, peer: Channel, config: SecureLR, why: str, **facts: Any) -> None:
    if not config.allow_leak:
        raise LeakRefused(f"{why} With allow_leak = true all parties accept it, and every ledger says so.")
    what = "the label holder can work out a feature holder's columns from what they add to scores"
    session.ledger.mark("override", partner=peer.peer, guard="contributions", what=what, **facts)


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
