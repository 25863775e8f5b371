"""A file of lines of JSON that is only ever added to, by one process at a time: what limits look back at."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.ledger import lock
from colonnade.session.files import keep_names

__all__ = ["EventLog"]


class EventLog:
    """Events of a party, across runs; without a file nothing is written and nothing remembered."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def lines(self) -> list[dict[str, Any] | None]:
        """Return all events; None for a line that cannot be read, such as one that a crash cut off."""
        if self._path is None or not self._path.exists():
            return []
        return [_event(line) for line in self._path.read_bytes().splitlines() if line.strip()]

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from adding events between a look and an addition."""
        if self._path is None:
            yield
            return
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not self._path.exists()
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            lock(file, wait=True)
            self._file = file
            yield
        finally:
            os.close(file)
        if is_new:
            keep_names(self._path.parent)

    def add(self, event: str, **facts: Any) -> None:
        """Write an event down, within `held`; it is on the disk when this returns."""
        if self._path is None:
            return
        now = datetime.now(UTC).isoformat(timespec="seconds")
        line = json.dumps({"time": now, "event": event, **facts}).encode() + b"\n"
        end = os.fstat(self._file).st_size
        # A line that a crash cut off must not swallow this one.
        if end and os.pread(self._file, 1, end - 1) != b"\n":
            line = b"\n" + line
        os.write(self._file, line)
        os.fsync(self._file)


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
