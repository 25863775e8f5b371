"""What a party at work says about itself, in ``status.json`` of its run folder."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from colonnade.errors import PeerFailed, PeerLost
from colonnade.launch.watch import Line, Watcher
from colonnade.session import Observer, Progress
from colonnade.session.files import open_fresh

__all__ = ["StatusFile"]

_WRITE_SECONDS = 1.0


class StatusFile(Watcher):
    """Keep ``status.json`` up to date: once a second, and at every change of state."""

    def __init__(self, folder: Path, party: str, *, watcher: Watcher, observer: Observer | None) -> None:
        """Pass everything on to a watcher and an observer as well."""
        self._path = folder / "status.json"
        self._watcher, self._observer = watcher, observer
        self._links: Mapping[str, Line] = {}
        self._facts: dict[str, Any] = {"party": party, "pid": os.getpid(), "state": "starting"}
        self._written = 0.0
        self._first: tuple[float, int] | None = None

    def connecting(self, links: Mapping[str, Line], trouble: Mapping[str, str]) -> None:
        """Note who is not there yet."""
        self._links = links
        absent = [peer for peer, link in links.items() if not link.is_up]
        self._write({"state": "waiting", "waiting_for": absent}, always=self._facts["state"] != "waiting")
        self._watcher.connecting(links, trouble)

    def connected(self, links: Mapping[str, Line]) -> None:
        """Note that the run goes on."""
        self._links, self._first = links, None
        self._write({"state": "running", "waiting_for": [], "reason": None}, always=True)
        self._watcher.connected(links)

    def interrupted(self, error: PeerFailed | PeerLost) -> None:
        """Note that a partner is gone."""
        self._write({"state": "waiting", "reason": str(error)}, always=True)
        self._watcher.interrupted(error)

    def observe(self, progress: Progress) -> None:
        """Note how far this party has come."""
        if self._observer is not None:
            self._observer(progress)
        if progress.stage == "comparison":
            return  # not the run itself; nothing crosses
        now = time.monotonic()
        if self._first is None or progress.step < self._first[1]:
            self._first = (now, progress.step)
        since, first_step = self._first
        rate = (progress.step - first_step) / (now - since) if now > since else 0.0
        left = (progress.total - progress.step) / rate if progress.total and rate > 0 else None
        self._write(
            {
                "stage": progress.stage,
                "role": progress.role,
                "step": progress.step,
                "total": progress.total,
                "steps_per_second": rate,
                "seconds_left": left,
                "bytes_sent": progress.bytes_sent,
                "bytes_received": progress.bytes_received,
            }
        )

    def end(self, state: str) -> None:
        """Note how it ended: finished, interrupted or failed."""
        self._write({"state": state, "waiting_for": [], "seconds_left": None}, always=True)

    def _write(self, changes: Mapping[str, Any], *, always: bool = False) -> None:
        self._facts |= changes
        if not always and time.monotonic() - self._written < _WRITE_SECONDS:
            return
        self._written = time.monotonic()
        now = datetime.now(UTC)
        contacts = {
            peer: (now - timedelta(seconds=link.silence_seconds)).isoformat(timespec="seconds") if link.is_up else None
            for peer, link in self._links.items()
        }
        facts = self._facts | {"updated": now.isoformat(timespec="seconds"), "last_contact": contacts}
        # In one step, so that a reader never sees half of it; not to the disk at once, for it is only news.
        temporary = self._path.with_name("status.json.part")
        with os.fdopen(open_fresh(temporary), "w") as file:
            file.write(json.dumps(facts))
        temporary.replace(self._path)
