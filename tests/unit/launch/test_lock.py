"""Only one process at a time works in a run folder, whatever the others try and however it ends."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import ConfigError, RunFolderError
from colonnade.launch.lock import LOCK_FILE, alone_in
from colonnade.launch.party_folder import PartyFolder
from colonnade.launch.run_folder import RunFolder
from colonnade.session import RunPlan

HOLDER = """
import sys
from pathlib import Path
from colonnade.launch.run_folder import RunFolder

with RunFolder(Path(sys.argv[1])).held(overwrite=sys.argv[2] == "overwrite"):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def holder(folder: Path, how: str = "") -> Iterator[subprocess.Popen[str]]:
    """Hold a run folder in another process until the block ends."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(folder), how],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        try:
            yield process
        finally:
            process.communicate("\n", timeout=60)


def begin(folder: Path) -> None:
    """Put the beginning of a run there, as a live process has it."""
    plan = RunPlan(name="churn", method="splitnn", roles={"label_holder": ("bank",), "feature_holder": ("shop",)})
    table = cn.PartyTable(pd.DataFrame({"id": range(9), "a": np.arange(9) % 7}), id="id")
    for party in plan.parties:
        PartyFolder(folder / party).begin(plan, table)
        (folder / party / "ledger.jsonl").write_text("precious")


def content(folder: Path) -> dict[str, bytes]:
    return {str(one.relative_to(folder)): one.read_bytes() for one in folder.rglob("*") if one.is_file()}


def hold(folder: Path, **how: Any) -> None:
    with RunFolder(folder).held(**how):
        pass


def test_a_second_process_is_refused_and_leaves_the_first_ones_files_untouched(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with holder(folder) as process:
        begin(folder)
        before = content(folder)
        assert LOCK_FILE in before
        for overwrite in (False, True):
            with pytest.raises(RunFolderError, match="Another process is at work"):
                hold(folder, overwrite=overwrite)
            assert content(folder) == before
    assert process.returncode == 0
    assert LOCK_FILE not in content(folder)
    assert "bank/plan.json" in content(folder)
    hold(folder)


def test_a_process_that_overwrites_is_not_disturbed_either(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(folder)
    with holder(folder, "overwrite") as process:
        before = content(folder)
        assert ".earlier/bank/plan.json" in before
        for overwrite in (False, True):
            with pytest.raises(RunFolderError, match="Another process is at work"):
                hold(folder, overwrite=overwrite)
        assert content(folder) == before
    assert process.returncode == 0


def test_a_killed_holder_frees_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with holder(folder) as process:
        begin(folder)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    assert (folder / LOCK_FILE).exists(), "a killed process cannot tidy up"
    hold(folder)
    assert not (folder / LOCK_FILE).exists()
    assert (folder / "bank" / "ledger.jsonl").read_text() == "precious"


def test_an_earlier_run_put_aside_by_a_killed_holder_comes_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    begin(folder)
    before = content(folder)
    with holder(folder, "overwrite") as process:
        assert not (folder / "bank").exists()
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    hold(folder)
    assert content(folder) == before


def test_one_process_cannot_hold_a_folder_twice(tmp_path: Path) -> None:
    with alone_in(tmp_path), pytest.raises(RunFolderError, match="Another process"), alone_in(tmp_path):
        pass
    with alone_in(tmp_path):
        pass


def test_a_folder_made_for_a_run_that_was_refused_is_gone(tmp_path: Path) -> None:
    with pytest.raises(ConfigError), alone_in(tmp_path / "run"):
        raise ConfigError("wrong")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_or_holds_something_stays(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    with alone_in(tmp_path / "mine"):
        pass
    assert list((tmp_path / "mine").iterdir()) == []
    with alone_in(tmp_path / "new"):
        (tmp_path / "new" / "file").write_text("x")
    assert list((tmp_path / "new").iterdir()) == [tmp_path / "new" / "file"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(RunFolderError, match="is a file"), alone_in(tmp_path / "file"):
        pass


def test_only_ones_own_lock_is_taken_away(tmp_path: Path) -> None:
    """Someone deleted the folder of a live run, and another process has begun anew in its place."""
    with alone_in(tmp_path / "run"):
        (tmp_path / "run" / LOCK_FILE).unlink()
        second = alone_in(tmp_path / "run")
        second.__enter__()
    assert (tmp_path / "run" / LOCK_FILE).exists()
    with pytest.raises(RunFolderError, match="Another process"), alone_in(tmp_path / "run"):
        pass
    second.__exit__(None, None, None)


# Many at once


def try_again_and_again(folder: Path, times: int) -> int:
    """Take and leave a folder; raise FileExistsError if anyone else is ever in it at the same time."""
    held = 0
    for _ in range(times):
        with contextlib.suppress(RunFolderError), alone_in(folder):
            # Beside the folder, so that it is empty and goes away with every holder.
            os.close(os.open(folder.with_name("owner"), os.O_CREAT | os.O_EXCL))
            os.unlink(folder.with_name("owner"))
            held += 1
    return held


def test_there_are_never_two_holders_among_many_threads(tmp_path: Path) -> None:
    held: list[int] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            held.append(try_again_and_again(tmp_path / "run", 200))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert errors == []
    assert len(held) == 6
    assert sum(held) > 0


def test_there_are_never_two_holders_among_many_processes(tmp_path: Path) -> None:
    # Forked, because a fresh interpreter would be through before the next has started.
    with multiprocessing.get_context("fork").Pool(6) as pool:
        held = pool.starmap(try_again_and_again, [(tmp_path / "run", 300)] * 6, chunksize=1)
    assert sum(held) > 0
    with alone_in(tmp_path / "run"):
        pass
