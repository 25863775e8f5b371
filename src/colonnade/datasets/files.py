"""Find data that is not part of the package."""

from __future__ import annotations

import os
from pathlib import Path

from colonnade.errors import TableError

__all__ = ["data_file"]

# Beside a checkout of the sources; on other machines this does not exist.
_BESIDE = Path(__file__).resolve().parents[3].parent / "shared" / "data"


def data_file(name: str, origin: str) -> Path:
    """Return the path of a data file below COLONNADE_DATA, or say where to get it."""
    folder = os.environ.get("COLONNADE_DATA")
    path = (Path(folder) if folder else _BESIDE) / name
    if path.exists():
        return path
    where = f"{path} does not exist" if folder else "COLONNADE_DATA is not set"
    raise TableError(
        f"The data file {name} is not on this machine: {where}. Get it from {origin}, put it as {name} into a folder, "
        "and set COLONNADE_DATA to that folder."
    )
