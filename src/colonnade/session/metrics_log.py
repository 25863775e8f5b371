"""What a party writes down while it trains."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.errors import CheckpointBroken
from colonnade.session.files import write_whole

__all__ = ["MetricsLog"]


class MetricsLog:
    """Lines of numbers, in memory and, given a path, in a file of JSON lines."""

    def __init__(self, path: Path | None = None) -> None:
        self.lines: list[dict[str, Any]] = []
        self._path = path
        if path is not None and path.exists():
            # The last line of a killed process may be cut off; what it said is said again after the resume.
            whole = path.read_bytes().rpartition(b"\n")[0]
            try:
                self.lines = [json.loads(line) for line in whole.splitlines()]
            except ValueError:
                raise CheckpointBroken(f"{path} is damaged. Restore it, or remove it to go on without.") from None

    def record(self, stage: str, step: int, values: dict[str, Any]) -> None:
        """Append one line."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        self.lines.append({"time": time, "stage": stage, "step": step, **values})
        if self._path is not None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            # Like all of a run folder, losses are for the owner only.
            handle = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            with os.fdopen(handle, "a") as file:
                file.write(json.dumps(self.lines[-1]) + "\n")

    def rewind(self, stage: str, step: int) -> None:
        """Forget what was recorded after a step, because it will be done again."""
        self.lines = [line for line in self.lines if line["stage"] != stage or line["step"] <= step]
        if self._path is not None and self._path.exists():
            write_whole(self._path, "".join(json.dumps(line) + "\n" for line in self.lines).encode())
