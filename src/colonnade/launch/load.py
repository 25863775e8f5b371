"""Read a finished run back from its folder."""

from __future__ import annotations

from pathlib import Path

from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder

__all__ = ["load_run"]


def load_run(folder: str | Path) -> Run:
    """Return the run a folder holds; raise RunFolderError if it holds no finished one."""
    return RunFolder(Path(folder)).load()
