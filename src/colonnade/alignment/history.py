"""Which alignments a party has begun, with whom and over which ids: what limits a partner that asks again and again.

A file of lines of JSON that is only ever added to. A line is written before the first blinded id leaves. Using an
earlier result, or going on with an alignment that was cut short, tells a partner nothing new and is no new line.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

__all__ = ["AlignmentHistory"]


class AlignmentHistory:
    """The record of one party's alignments; without a file nothing is written and nothing remembered."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def begun_with(self, partner: str) -> int:
        """Count the alignments begun with a partner."""
        if self._path is None or not self._path.exists():
            return 0
        return sum(_counts(line, partner) for line in self._path.read_bytes().splitlines())

    def begin(self, partner: str, check: Callable[[int], None], **facts: Any) -> int:
        """Write down that an alignment begins, unless ``check`` refuses so many earlier ones; return how many.

        No other process can begin one in between.
        """
        if self._path is None:
            check(0)
            return 0
        with _held(self._path) as file:
            earlier = self.begun_with(partner)
            check(earlier)
            _append(file, "begun", partner, facts)
        return earlier

    def note(self, event: str, partner: str, **facts: Any) -> None:
        """Write down what became of an alignment: ``found`` so many rows, or ``refused``."""
        if self._path is not None:
            with _held(self._path) as file:
                _append(file, event, partner, facts)


def _counts(line: bytes, partner: str) -> bool:
    try:
        found = json.loads(line)
        return (found["event"], found["partner"]) == ("begun", partner)
    except (ValueError, KeyError, TypeError):
        # Who damages a line must not win an alignment by it.
        return True


@contextmanager
def _held(path: Path) -> Iterator[int]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    is_new = not path.exists()
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file
    finally:
        os.close(file)
    if is_new:
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _append(file: int, event: str, partner: str, facts: dict[str, Any]) -> None:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    line = json.dumps({"time": now, "event": event, "partner": partner, **facts}).encode() + b"\n"
    end = os.fstat(file).st_size
    # A line that a crash cut off must not swallow this one.
    if end and os.pread(file, 1, end - 1) != b"\n":
        line = b"\n" + line
    os.write(file, line)
    os.fsync(file)
