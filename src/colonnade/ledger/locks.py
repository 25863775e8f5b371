"""Locks on open files. A lock goes with the process that holds it, even a killed one."""

from __future__ import annotations

from colonnade.errors import RunFolderError

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["lock"]


def lock(file: int, *, shared: bool = False, wait: bool = False) -> None:
    """Lock an open file; raise BlockingIOError where another process holds it, unless this is to wait for it."""
    if fcntl is None:
        raise RunFolderError(
            "This system cannot lock files as a run folder needs it. Use Linux, macOS or, on Windows, WSL 2; a "
            "simulation in Python without a folder needs no lock."
        )
    fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | (0 if wait else fcntl.LOCK_NB))
