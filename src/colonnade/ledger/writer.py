"""Write one party's ledger of one run."""

from __future__ import annotations

import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from colonnade.errors import LedgerBroken, RunFolderError
from colonnade.ledger.entries import GENESIS, Direction, chain_members, members
from colonnade.ledger.locks import lock
from colonnade.ledger.reader import Ledger, front_of
from colonnade.messages import Declaration, Header

__all__ = ["LedgerWriter"]

# Each line reaches the operating system at once, so a killed process loses none; the disk is told to keep them at marks
# and at least this often, so a lost machine loses little.
_SYNC_SECONDS = 5.0
_BLOCK = 65_536


class LedgerWriter:
    """Append to a ledger file, or to memory when there is no path.

    Opening an existing file verifies it and goes on where it ends. A last line that was cut off by a crash is dropped
    and the drop is recorded as a mark.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._memory = bytearray()
        self._file: int | None = None
        self._count = self._size = 0
        self._head = GENESIS
        self._synced = time.monotonic()
        self._fixed: dict[tuple[object, ...], str] = {}
        # The owner may write a failure mark while another thread of the same party is still sending.
        self._lock = threading.Lock()
        if path is not None:
            self._open(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def mark(self, kind: str, **content: Any) -> None:
        """Record an event in the life of the run, and make everything so far durable."""
        if kind in ("sent", "received"):
            raise ValueError("messages are recorded by message()")
        self._append(members({"kind": kind, **content}))
        self.sync()

    def message(
        self, direction: Direction, peer: str, declaration: Declaration, header: Header, shapes: dict[str, Any]
    ) -> None:
        """Record one message, before it is sent or before its content is used."""
        # Most of a line is the same for every message of its kind, and numbers need no escaping.
        kind = (direction, peer, declaration.schema, header.context, *shapes.items())
        fixed = self._fixed.get(kind)
        if fixed is None:
            front: dict[str, Any] = {"kind": direction, "peer": peer, "message": declaration.name}
            front |= {"protection": declaration.protection.value, "connection": header.context.hex(), "shapes": shapes}
            fixed = self._fixed[kind] = members(front)
        self._append(
            f'{fixed},"step":{header.step},"sequence":{header.sequence},"bytes":{header.body_bytes},'
            f'"payload":"{header.payload.hex()}"'
        )
        if time.monotonic() - self._synced > _SYNC_SECONDS:
            self.sync()

    def sync(self) -> None:
        """Ask the disk to keep what was written."""
        if self._file is not None:
            os.fsync(self._file)
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file; the ledger itself is closed by its last mark, not by this."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None

    def read(self) -> Ledger:
        """Return the ledger as written so far."""
        if self._path is not None:
            return Ledger.read(self._path)
        return Ledger(bytes(self._memory), "in memory")

    def _append(self, text: str) -> None:
        with self._lock:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            line, head = chain_members(self._head, f'"index":{self._count},"time":"{now}",{text}')
            if self._file is not None:
                self._write_line(self._file, line)
            elif self._path is None:
                self._memory += line
            else:
                raise LedgerBroken("The ledger is closed; nothing can be recorded, so nothing may be sent.")
            self._head = head
            self._count += 1

    def _write_line(self, file: int, line: bytes) -> None:
        try:
            written = os.write(file, line)
        except OSError as error:
            raise LedgerBroken(f"The ledger cannot be written ({error.strerror}), so nothing may be sent.") from None
        if written != len(line):
            # Take the torn line back, so that a later one does not run on from it.
            os.ftruncate(file, self._size)
            raise LedgerBroken("The ledger could not be written in full; is the disk full? Nothing may be sent.")
        self._size += written

    def _open(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            # Before anything is read: a file that another process is writing cannot be judged.
            _take_alone(file, path)
            self._go_on(file, path)
        except BaseException:
            # The lock goes with the file, so that the next one to try does not find it taken.
            self._file = None
            os.close(file)
            raise

    def _go_on(self, file: int, path: Path) -> None:
        """Verify what is there, drop a torn last line, and take up the chain where it ends."""
        size = os.fstat(file).st_size
        whole = _end_of_last_line(file, size)
        ledger = front_of(path, whole)
        ledger.verify_chain()
        self._count, self._head, self._size = len(ledger.entries), ledger.head, whole
        if whole != size:
            os.ftruncate(file, whole)
        self._file = file
        # Before the first line nothing was sent, and the first line must be the opening mark.
        if whole and whole != size:
            self.mark("recovered", dropped_bytes=size - whole)


def _end_of_last_line(file: int, size: int) -> int:
    """Return how many bytes of a file are whole lines, looking from its end."""
    end = size
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            return start + found + 1
        end = start
    return 0


def _take_alone(file: int, path: Path) -> None:
    """Refuse to write a ledger that another process is writing; the lock goes with the process, even a killed one."""
    try:
        lock(file)
    except BlockingIOError:
        raise RunFolderError(
            f"Another process is writing {path}. Wait until that run ends, or stop it, then run the same command again."
        ) from None
