"""Only one process at a time works in a run folder."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from colonnade.errors import RunFolderError
from colonnade.ledger import lock

__all__ = ["LOCK_FILE", "alone_in", "is_held"]

LOCK_FILE = ".lock"


@contextmanager
def alone_in(folder: Path) -> Iterator[int]:
    """Hold a run folder, made if need be, until the block ends; refuse it while another process holds it.

    The lock goes with the process, even a killed one, and with its children if they are given the file that is
    yielded. A folder that is empty in the end is removed.
    """
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file, so no run can be kept there. Choose another --folder.")
    existed = folder.exists()
    file = _lock(folder)
    try:
        yield file
    finally:
        # Whoever comes next may be in as soon as the file is gone, so the folder may not be empty any more.
        with contextlib.suppress(OSError):
            if _lies_at(folder / LOCK_FILE, file):
                (folder / LOCK_FILE).unlink()
            if not existed:
                folder.rmdir()
        os.close(file)


def is_held(folder: Path) -> bool:
    """Tell whether a process is at work in a run folder."""
    try:
        file = os.open(folder / LOCK_FILE, os.O_RDWR)
    except OSError:
        return False
    try:
        lock(file, shared=True)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)


def _lock(folder: Path) -> int:
    path = folder / LOCK_FILE
    while True:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except FileNotFoundError:
            continue  # removed between the two calls
        except FileExistsError:
            if folder.is_dir() or not os.path.lexists(folder):
                continue  # removed, or removed and made again, while mkdir looked
            raise
        try:
            lock(file)
        except BlockingIOError:
            os.close(file)
            raise RunFolderError(
                f"Another process is at work in {folder}. Wait until it ends, or stop it, then try again."
            ) from None
        # Who held it before may have removed the file between our two calls; then the lock is on nothing.
        if _lies_at(path, file):
            return file
        os.close(file)


def _lies_at(path: Path, file: int) -> bool:
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False
