"""What a party at work says about itself, in ``status.json`` of its run folder, and what a home's runs are doing."""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from colonnade.errors import CheckpointBroken, ColonnadeError, ConfigError, PeerFailed, PeerLost
from colonnade.launch.lock import is_held
from colonnade.launch.party_folder import PartyFolder
from colonnade.ledger import Ledger
from colonnade.session import Observer, Progress, read_json
from colonnade.session.files import open_fresh
from colonnade.settings import validated

if TYPE_CHECKING:
    from colonnade.transport.grpc import GrpcLink

__all__ = ["RunStatus", "StatusFile", "Watcher", "runs_in"]

_WRITE_SECONDS = 1.0


class Watcher:
    """Is told how a run with partners elsewhere goes; this one does not care."""

    def told(self, text: str) -> None:
        """Hear something about the run, in words."""

    def connecting(self, links: Mapping[str, GrpcLink], trouble: Mapping[str, str]) -> None:
        """Hear, twice a second, that not all partners are there yet."""

    def connected(self, links: Mapping[str, GrpcLink]) -> None:
        """Hear that all partners are there."""

    def interrupted(self, error: PeerFailed | PeerLost) -> None:
        """Hear that a partner is gone and the run waits for it to come back."""


class StatusFile(Watcher):
    """Keep ``status.json`` up to date: once a second, and at every change of state."""

    def __init__(self, folder: Path, party: str, *, watcher: Watcher, observer: Observer | None) -> None:
        """Pass everything on to a watcher and an observer as well."""
        self._path = folder / "status.json"
        self._watcher, self._observer = watcher, observer
        self._links: Mapping[str, GrpcLink] = {}
        self._facts: dict[str, Any] = {"party": party, "pid": os.getpid(), "state": "starting"}
        self._written = 0.0
        self._first: tuple[float, int] | None = None

    def connecting(self, links: Mapping[str, GrpcLink], trouble: Mapping[str, str]) -> None:
        """Note who is not there yet."""
        self._links = links
        absent = [peer for peer, link in links.items() if not link.is_up]
        self._write({"state": "waiting", "waiting_for": absent}, always=self._facts["state"] != "waiting")
        self._watcher.connecting(links, trouble)

    def connected(self, links: Mapping[str, GrpcLink]) -> None:
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

    @contextmanager
    def ended(self) -> Iterator[None]:
        """Note that the block begins, whatever an earlier attempt said, and how it ended."""
        self._write({}, always=True)
        end: dict[str, Any] = {"state": "failed"}
        try:
            yield
            end = {"state": "finished", "reason": None}
        except KeyboardInterrupt:
            end = {"state": "interrupted"}
            raise
        except ColonnadeError as error:
            end["reason"] = str(error)
            raise
        finally:
            self._write({"waiting_for": [], "seconds_left": None, **end}, always=True)

    def complete(self, ledger: Ledger) -> None:
        """Note what the whole run came to: what was observed last may be of long before its end."""
        crossed = {"sent": 0, "received": 0}
        for one in ledger.summary():
            crossed[one.direction] += one.bytes
        self._facts |= {"step": ledger.entries[-1].content.get("step", self._facts.get("step")), "total": None}
        self._facts |= {f"bytes_{direction}": count for direction, count in crossed.items()}

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


@dataclass(frozen=True, kw_only=True)
class _Facts:
    """What is shown as status.json says it; the rest is derived."""

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


@dataclass(frozen=True, kw_only=True)
class _Said(_Facts):
    """What status.json says."""

    state: Literal["starting", "waiting", "running", "finished", "interrupted", "failed"] | None = None
    pid: int | None = None
    stage: str | None = None
    last_contact: Mapping[str, str | None] = field(default_factory=dict)
    updated: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunStatus(_Facts):
    """One run as seen from its folder."""

    name: str
    folder: str
    state: str
    """starting, running, waiting, finished, interrupted, failed, or stopped when its process is gone without a word."""
    stage: str = "train"
    keep_until: str | None = None
    """The day that the agreed retention names."""
    last_contact_seconds: dict[str, float | None] = field(default_factory=dict)


def runs_in(folder: Path) -> list[RunStatus]:
    """Return the runs in a ``runs`` folder, the last touched first."""
    if not folder.is_dir():
        return []
    children = sorted((one for one in folder.iterdir() if one.is_dir()), key=lambda one: -one.stat().st_mtime)
    return [found for child in children if (found := _status_of(child)) is not None]


def _status_of(folder: Path) -> RunStatus | None:
    own = PartyFolder(folder)
    known = next((one for one in (own, *map(PartyFolder, folder.iterdir())) if one.holds_run), None)
    if known is None:
        return None
    plan = known.plan()
    until = None if plan.keep_until is None else plan.keep_until.isoformat()
    about: dict[str, Any] = {"name": plan.name, "folder": str(folder), "stage": plan.stage, "keep_until": until}
    if known is not own:
        is_done = (folder / "simulation.json").exists()
        return RunStatus(state=_state("finished" if is_done else None, folder), **about)
    said = _said(folder / "status.json")
    state = _state("finished" if said.state == "finished" or own.is_finished else said.state, folder)
    facts = {one.name: getattr(said, one.name) for one in dataclasses.fields(_Facts)}
    if state not in ("running", "waiting"):
        facts |= {"steps_per_second": None, "seconds_left": None}
    # Who is through is not waited for any more.
    heard = {} if state == "finished" else said.last_contact
    contacts = {peer: _seconds_since(moment) for peer, moment in heard.items()}
    return RunStatus(state=state, last_contact_seconds=contacts, **about, **facts)


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
