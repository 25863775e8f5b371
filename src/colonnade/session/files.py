"""Write files so that a crash leaves either the old one or the new one, and read JSON back."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from colonnade.errors import CheckpointBroken

__all__ = ["read_json", "sha256_of", "write_json", "write_whole"]


def write_whole(path: Path, content: bytes) -> None:
    """Replace a file's content in one step, durably and readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".part")
    handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    # The new name, too, must outlive a lost machine.
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


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
