"""All parties on this machine, a process each, over mutual TLS on loopback with throw-away certificates."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from colonnade import errors
from colonnade.engine import usable_cores
from colonnade.errors import ColonnadeError, PeerFailed, PeerLost, RoleFailed
from colonnade.launch.home import PartyHome
from colonnade.launch.run import Run, make_run
from colonnade.launch.run_folder import RunFolder
from colonnade.methods import method_named
from colonnade.reports import PartyRun
from colonnade.session import ALIGN, Observer, Progress, RunPlan
from colonnade.transport.grpc import make_identity

__all__ = ["play_locally", "run_locally"]

# How long a process that was asked to stop may take to tell its peers and close its ledger.
_STOP_SECONDS = 10.0
# How long the others may take to notice that one has failed.
_ECHO_SECONDS = 2.0

Say = Callable[[str], None]


def run_locally(
    plan: RunPlan,
    run_file: Path,
    homes: Mapping[str, PartyHome],
    folder: RunFolder,
    *,
    compare: bool = False,
    observer: Observer | None = None,
    say: Say = lambda _: None,
) -> Run:
    """Carry out a plan with one process for each party, in a folder that is held already.

    Each process reads its own party's table. With ``compare`` this process reads all of them in the end, to train the
    same model with all columns in one place: only possible because all of them are on this machine.
    """
    from colonnade.launch.baselines import ceiling

    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    runs = play_locally(plan, run_file, homes, folder, compare=compare, observer=observer, say=say)
    tables = {}
    if compare:
        method = method_named(plan.method)
        tables = {party: homes[party].table_for(method, plan) for party in method.parties_with_rows(plan)}
    run = make_run(
        plan,
        runs,
        launch="local: one process for each party on this machine, over mutual TLS",
        started=started,
        seconds=time.monotonic() - clock,
        central=ceiling(plan, tables, observer) if compare else {},
        folder=folder.path,
    )
    folder.finish(run)
    return run


def play_locally(
    plan: RunPlan,
    run_file: Path,
    homes: Mapping[str, PartyHome],
    folder: RunFolder,
    *,
    compare: bool = False,
    observer: Observer | None = None,
    say: Say = lambda _: None,
) -> dict[str, PartyRun]:
    """Play a stage, also ``align``, with one process for each party; return what each party ends with."""
    identities = {party: make_identity(party) for party in plan.parties}
    tasks = {
        party: {
            "party": party,
            "run_file": str(run_file.resolve()),
            "home": str(homes[party].folder.resolve()),
            "folder": str(folder.path.resolve()),
            "key": identities[party].key.decode(),
            "certificate": identities[party].certificate.decode(),
            "partners": {peer: identities[peer].certificate.decode() for peer in plan.parties if peer != party},
            "compare": compare,
            # Of an alignment only; a run takes it from its run.toml.
            "mode": plan.alignment.mode if plan.stage == ALIGN else None,
            "stage": None if plan.stage == ALIGN else plan.stage,
            "threshold": plan.evaluate.threshold,
            "quiet": observer is None,
            "threads": max(1, usable_cores() // len(plan.parties)),
        }
        for party in plan.parties
    }
    workers = _Workers(tasks, folder.lock, observer, say)
    try:
        workers.start()
        workers.wait()
    finally:
        workers.stop()
    return {party: folder.party(party).load() for party in plan.parties}


class _Workers:
    """The processes of all parties, and what they report."""

    def __init__(self, tasks: Mapping[str, dict[str, Any]], lock: int, observer: Observer | None, say: Say) -> None:
        self._tasks, self._lock, self._observer, self._say = tasks, lock, observer, say
        self._reports: queue.SimpleQueue[tuple[str, dict[str, Any] | None]] = queue.SimpleQueue()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._readers: list[threading.Thread] = []
        self._said: set[str] = set()

    def start(self) -> None:
        """Start all processes and tell each what to do."""
        for party, task in self._tasks.items():
            process = self._processes[party] = subprocess.Popen(
                [sys.executable, "-m", "colonnade.launch.local_worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                # The folder stays held for as long as any of them writes there, even if this process is killed.
                pass_fds=(self._lock,),
                # A terminal's Ctrl-C goes to this process only, which then lets the others end in order.
                start_new_session=True,
            )
            reader = threading.Thread(target=self._listen, args=(party, process.stdout), daemon=True)
            reader.start()
            self._readers.append(reader)
            self._write(party, task)

    def wait(self) -> None:
        """Tell each where the others listen, and wait until all are done; raise the first error that is no echo."""
        left, addresses = set(self._tasks), dict[str, str]()
        failures: list[ColonnadeError] = []
        # Before all listen, every error ends the run: the others wait for this process.
        while left and not (failures and len(addresses) < len(self._tasks)):
            try:
                # The others hear of a failure over their lines; those that were not connected yet never would.
                party, report = self._reports.get(timeout=_ECHO_SECONDS if failures else None)
            except queue.Empty:
                break
            if report is None:
                left.discard(party)
                failures += self._failure_of(party, failures)
            elif "error" in report:
                failures.append(_rebuilt(report["error"]))
            elif "port" in report:
                addresses[party] = f"127.0.0.1:{report['port']}"
                if len(addresses) == len(self._tasks):
                    for one in self._tasks:
                        self._write(one, {"addresses": {peer: at for peer, at in addresses.items() if peer != one}})
            else:
                self._show(report)
        echoes = (PeerFailed, PeerLost)
        if failures:
            raise next((one for one in failures if not isinstance(one, echoes)), failures[0])

    def stop(self) -> None:
        """End what is still running: first by closing its stdin, then by force."""
        for process in self._processes.values():
            if process.stdin is not None and not process.stdin.closed:
                process.stdin.close()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for reader in self._readers:
            reader.join()  # it ends with the process, and closes what it read

    def _show(self, report: dict[str, Any]) -> None:
        if "progress" in report and self._observer is not None:
            self._observer(Progress(**report["progress"]))
        elif "said" in report and report["said"] not in self._said:
            # Both sides of an alignment warn in the same words.
            self._said.add(report["said"])
            self._say(report["said"])

    def _failure_of(self, party: str, known: list[ColonnadeError]) -> list[ColonnadeError]:
        code = self._processes[party].wait()
        if code == 0 or (known and code > 0):
            return []
        if code < 0:
            what = f"was ended by {signal.Signals(-code).name}"
            return [RoleFailed(f"The process of '{party}' {what}. Run the same command again: it resumes.")]
        return [RoleFailed(f"The process of '{party}' ended with code {code} and said nothing. See its lines above.")]

    def _write(self, party: str, document: dict[str, Any]) -> None:
        stdin = self._processes[party].stdin
        try:
            if stdin is not None:
                stdin.write(json.dumps(document).encode() + b"\n")
                stdin.flush()
        except BrokenPipeError:
            pass  # it has ended; its reports say why

    def _listen(self, party: str, stdout: IO[bytes]) -> None:
        with stdout:
            for line in stdout:
                self._reports.put((party, json.loads(line)))
        self._reports.put((party, None))


def _rebuilt(report: dict[str, str]) -> ColonnadeError:
    """Return an error as the worker raised it, so that it ends this command with the same code."""
    kind = getattr(errors, report["kind"], ColonnadeError)
    error: ColonnadeError = kind.__new__(kind)
    error.args = (report["message"],)
    return error
