"""What the runs of a home are doing."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from colonnade.errors import CheckpointBroken, ConfigError
from colonnade.launch.lock import is_held
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.settings import validated
from colonnade.session import read_json

__all__ = ["RunStatus", "runs_in"]

# What is shown as status.json says it; the rest is derived.
_REPORTED = ("party", "role", "step", "total", "bytes_sent", "bytes_received", "reason")
_OF_THE_LIVING = ("steps_per_second", "seconds_left")


@dataclass(frozen=True)
class RunStatus:
    """One run as seen from its folder."""

    name: str
    folder: str
    state: str
    """running, waiting, finished, interrupted, failed, or stopped when its process is gone without a word."""
    stage: str = "train"
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


@dataclass(frozen=True, kw_only=True)
class _Said:
    """What status.json says, see `StatusFile`."""

    state: Literal["starting", "waiting", "running", "finished", "interrupted", "failed"] | None = None
    party: str | None = None
    pid: int | None = None
    role: str | None = None
    stage: str | None = None
    step: int | None = None
    total: int | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    bytes_sent: int | None = None
    bytes_received: int | None = None
    reason: str | None = None
    waiting_for: list[str] = field(default_factory=list)
    last_contact: Mapping[str, str | None] = field(default_factory=dict)
    updated: str | None = None


def runs_in(folder: Path) -> list[RunStatus]:
    """Return the runs in a ``runs`` folder, the last touched first."""
    if not folder.is_dir():
        return []
    children = sorted((one for one in folder.iterdir() if one.is_dir()), key=lambda one: -one.stat().st_mtime)
    return [found for child in children if (found := _status_of(child)) is not None]


def _status_of(folder: Path) -> RunStatus | None:
    own = PartyFolder(folder)
    if not own.holds_run:
        inner = [child for child in map(PartyFolder, folder.iterdir()) if child.holds_run]
        if not inner:
            return None
        plan, is_done = inner[0].plan(), (folder / "simulation.json").exists()
        return RunStatus(plan.name, str(folder), _state("finished" if is_done else None, folder), plan.stage)
    said = _said(folder / "status.json")
    state = _state("finished" if said.state == "finished" or own.is_finished else said.state, folder)
    names = (*_REPORTED, *_OF_THE_LIVING) if state in ("running", "waiting") else _REPORTED
    plan = own.plan()
    return RunStatus(
        plan.name,
        str(folder),
        state,
        plan.stage,
        waiting_for=said.waiting_for,
        last_contact_seconds={peer: _seconds_since(moment) for peer, moment in said.last_contact.items()},
        **{name: getattr(said, name) for name in names},
    )


def _state(said: str | None, folder: Path) -> str:
    """Return what a run says of itself, unless the process that said so is gone."""
    if said in ("finished", "interrupted", "failed"):
        return said
    return (said or "running") if is_held(folder) else "stopped"


def _said(path: Path) -> _Said:
    """Return what a run says of itself; a file that is damaged says nothing."""
    try:
        found: _Said = validated(_Said, read_json(path) if path.exists() else {}, "status")
    except (CheckpointBroken, ConfigError):
        return _Said()
    return found


def _seconds_since(moment: str | None) -> float | None:
    try:
        return None if moment is None else (datetime.now(UTC) - datetime.fromisoformat(moment)).total_seconds()
    except (TypeError, ValueError):
        return None
