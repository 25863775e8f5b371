"""Write files so that a crash leaves either the old one or the new one, and read JSON back."""

from __future__ import annotations

import errno
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from colonnade.errors import CheckpointBroken

__all__ = ["keep_names", "open_fresh", "read_json", "sha256_of", "write_json", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, durably and readable by its owner only, whatever was there before."""
    if path.exists() and not path.is_file():
        # To replace it would take a folder, a device or a pipe away.
        raise OSError(errno.EEXIST, "it is no file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    try:
        with os.fdopen(open_fresh(temporary), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    keep_names(path.parent)


def keep_names(folder: Path) -> None:
    """Let the names of new files, too, outlive a lost machine; Windows has no way to ask for that."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def open_fresh(path: Path) -> int:
    """Make a file that only its owner can read, and return its descriptor for writing."""
    # One that is left over, or was put there by others, may have other rights or lead elsewhere.
    path.unlink(missing_ok=True)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)


def write_json(path: Path, document: Any) -> None:
    """Write a JSON document in one step."""
    write_whole(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False).encode() + b"\n")


def read_json(path: Path) -> Any:
    """Read a JSON document; raise CheckpointBroken if it is not one."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError):
        raise CheckpointBroken(f"{path} cannot be read or is not valid JSON. Restore it or run again.") from None


def sha256_of(content: bytes) -> str:
    """Return the hex digest of some bytes."""
    return hashlib.sha256(content).hexdigest()
