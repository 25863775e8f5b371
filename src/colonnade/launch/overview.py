"""What the runs of a home are doing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.errors import CheckpointBroken
from colonnade.launch.lock import is_held
from colonnade.launch.party_folder import PartyFolder
from colonnade.session import read_json

__all__ = ["RunStatus", "runs_in"]

# What status.json may say of itself; the rest is derived.
_REPORTED = ("step", "total", "steps_per_second", "seconds_left", "bytes_sent", "bytes_received", "reason")


@dataclass(frozen=True)
class RunStatus:
    """One run as seen from its folder."""

    name: str
    folder: str
    state: str
    """running, waiting, finished, interrupted, failed, or stopped when its process is gone without a word."""
    party: str | None = None
    role: str | None = None
    step: int | None = None
    total: int | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    reason: str | None = None
    waiting_for: list[str] = field(default_factory=list)
    last_contact_seconds: dict[str, float | None] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return the status as JSON values."""
        return dataclasses.asdict(self)


def runs_in(folder: Path) -> list[RunStatus]:
    """Return the runs in a ``runs`` folder, the last touched first."""
    if not folder.is_dir():
        return []
    children = sorted((one for one in folder.iterdir() if one.is_dir()), key=lambda one: -one.stat().st_mtime)
    return [found for child in children if (found := _status_of(child)) is not None]


def _status_of(folder: Path) -> RunStatus | None:
    own = PartyFolder(folder)
    if not own.holds_run:
        if not any(PartyFolder(child).holds_run for child in folder.iterdir()):
            return None
        is_done = (folder / "simulation.json").exists()
        return RunStatus(folder.name, str(folder), _state("finished" if is_done else None, folder))
    facts = _facts(folder / "status.json")
    now = datetime.now(UTC)
    contacts = {
        str(peer): (now - datetime.fromisoformat(moment)).total_seconds() if moment else None
        for peer, moment in dict(facts.get("last_contact", {})).items()
    }
    state = _state("finished" if own.is_finished else facts.get("state"), folder)
    reported = {name: facts.get(name) for name in _REPORTED}
    if state in ("finished", "interrupted", "failed", "stopped"):
        reported |= {"seconds_left": None, "steps_per_second": None}
    return RunStatus(
        own.plan().name,
        str(folder),
        state,
        party=facts.get("party"),
        role=facts.get("role"),
        waiting_for=list(facts.get("waiting_for", ())),
        last_contact_seconds=contacts,
        **reported,
    )


def _state(said: str | None, folder: Path) -> str:
    """Return what a run says of itself, unless the process that said so is gone."""
    if said in ("finished", "interrupted", "failed"):
        return said
    return (said or "running") if is_held(folder) else "stopped"


def _facts(path: Path) -> dict[str, Any]:
    try:
        found = read_json(path) if path.exists() else {}
    except CheckpointBroken:
        return {}
    return found if isinstance(found, dict) else {}
