"""`run --local`: every party a process of its own."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest
from tests.kills.harness import Homes

from colonnade.errors import RoleFailed, TableError
from colonnade.launch import local
from colonnade.launch.home import read_party_home, read_run_file
from colonnade.launch.local import run_locally
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.simulation import simulate_plan
from colonnade.session import parties_of

PARTIES = ("bank", "shop")


def homes_in(folder: Path) -> Homes:
    made = Homes(folder, PARTIES, epochs=20)
    made.make()
    return made


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    return homes_in(tmp_path)


def run(homes: Homes) -> Run:
    file = homes.folder / "run.toml"
    where = {party: read_party_home(homes.folder / party, party) for party in PARTIES}
    with RunFolder(homes.folder / "local", file.read_bytes()).held() as held:
        return run_locally(read_run_file(file), file, where, held)


def model(folder: Path) -> dict[str, bytes]:
    return {party: (folder / party / "model" / "part.safetensors").read_bytes() for party in PARTIES}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Homes, Run, set[int]]:
    """A run in processes of their own, and which these were."""
    homes = homes_in(tmp_path_factory.mktemp("undisturbed"))
    pids: set[int] = set()
    real = local.subprocess.Popen

    def noted(*facts: Any, **named: Any) -> Any:
        process = real(*facts, **named)
        pids.add(process.pid)
        return process

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.subprocess, "Popen", noted)
        return homes, run(homes), pids


def test_processes_end_with_the_model_of_threads(undisturbed: tuple[Homes, Run, set[int]]) -> None:
    homes, finished, pids = undisturbed
    assert len(pids - {os.getpid()}) == len(PARTIES)
    finished.verify()
    tables = {party: read_party_home(homes.folder / party, party).read_table() for party in PARTIES}
    with RunFolder(homes.folder / "threads").held() as held:
        simulate_plan(read_run_file(homes.folder / "run.toml"), parties_of(tables), folder=held)
    assert model(homes.folder / "local") == model(homes.folder / "threads")
    assert (homes.folder / "local" / "report.html").exists()


def test_a_party_that_cannot_begin_ends_the_run_for_all_with_its_own_error(homes: Homes) -> None:
    (homes.folder / "shop" / "table.csv").write_text("id,x\n1,1\n1,2\n")
    began = time.monotonic()
    with pytest.raises(TableError, match="shop"):
        run(homes)
    assert time.monotonic() - began < 60
    assert not (homes.folder / "local").exists(), "a run that was refused leaves no trace"


def test_a_killed_party_is_named_and_the_same_command_goes_on(
    homes: Homes, undisturbed: tuple[Homes, Run, set[int]]
) -> None:
    ledger = homes.folder / "local" / "shop" / "ledger.jsonl"
    started: list[Any] = []
    real = local.subprocess.Popen

    def noted(*facts: Any, **named: Any) -> Any:
        started.append(real(*facts, **named))
        return started[-1]

    def kill_in_mid_run() -> None:
        while not ledger.exists() or b'"checkpoint"' not in ledger.read_bytes():
            time.sleep(0.02)
        started[1].send_signal(signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local.subprocess, "Popen", noted)
        threading.Thread(target=kill_in_mid_run, daemon=True).start()
        with pytest.raises(RoleFailed, match=r"'shop' was ended by SIGKILL.*same command again"):
            run(homes)
    resumed = run(homes)
    resumed.verify()
    assert "resumed" in [entry.kind for entry in resumed.ledgers["bank"].entries]
    assert model(homes.folder / "local") == model(undisturbed[0].folder / "local")
