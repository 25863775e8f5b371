"""A pool outlives its workers, and its workers do not outlive it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colonnade.engine import INLINE, Work
from colonnade.engine import pool as pool_module
from colonnade.engine.calls import KEPT
from colonnade.engine.pool import PoolEngine
from colonnade.errors import ColonnadeError, EngineFailed

pytestmark = pytest.mark.timeout(60)

PREPARE = "colonnade.engine.probe:prepare"


def work(function: str, context: bytes = b"context") -> Work:
    return Work(f"colonnade.engine.probe:{function}", PREPARE, context)


@pytest.fixture
def pool() -> Iterator[PoolEngine]:
    with PoolEngine(2) as opened:
        yield opened


def processes(pool: PoolEngine) -> set[int]:
    return {int(found) for found in pool.map(work("process"), [b""] * 6)}


def is_gone(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"  # ended; only its new parent has not looked yet


def wait_until(claim: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not claim():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_workers_start_with_the_first_work_that_is_shared(pool: PoolEngine) -> None:
    assert not pool._alive
    assert pool.map(work("process"), [b""]) == [str(os.getpid()).encode()], "one chunk is not worth a worker"
    assert not pool._alive
    found = processes(pool)
    assert len(found) == 2
    assert os.getpid() not in found
    assert processes(pool) == found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_killed_in_the_middle_of_work_is_replaced(pool: PoolEngine, number: int) -> None:
    victim, other = processes(pool)
    chunks = [b"%d" % (200 + place) for place in range(6)]
    killer = threading.Timer(0.3, os.kill, (victim, number))
    killer.start()
    assert pool.map(work("slow"), chunks) == INLINE.map(work("slow"), chunks)
    killer.join()
    assert is_gone(victim)
    left = processes(pool)
    assert other in left
    assert victim not in left
    assert len(left) == 2


def test_workers_that_died_while_idle_cost_no_attempt(pool: PoolEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    found = processes(pool)
    for one in found:
        os.kill(one, signal.SIGKILL)
    # As the pool sees it: a process may look gone before all its threads are.
    wait_until(lambda: not any(worker.is_alive for worker in pool._alive if worker._process.pid in found))
    monkeypatch.setattr(pool_module, "_RETRIES", 0)
    assert not processes(pool) & found


def test_work_that_kills_every_worker_fails_in_the_end(pool: PoolEngine) -> None:
    seen: set[int] = set()
    is_over = threading.Event()

    def kill_all() -> None:
        while not is_over.wait(0.05):
            for worker in list(pool._alive):
                seen.add(worker._process.pid)
                worker.kill()

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(EngineFailed, match=r"ended 4 times .* the last one by SIGKILL.*fewer workers"):
            pool.map(work("slow"), [b"5000", b"5001"])
    finally:
        is_over.set()
        killer.join()
    assert len(seen) >= 4
    assert pool.map(work("echo"), [b"1", b"2"]) == [b"1", b"2"]


def test_a_context_goes_to_each_worker_once(pool: PoolEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []
    real = pool_module._Contexts.send
    monkeypatch.setattr(
        pool_module._Contexts, "send", lambda self, line, asked: (sent.append(asked.digest), real(self, line, asked))[1]
    )
    context = bytes(5_000_000)
    for _ in range(3):
        found = {tuple(one.split()) for one in pool.map(work("preparations", context), [b""] * 8)}
        assert {count for _, count in found} == {b"1"}
    assert len(sent) == 2
    assert len(pool._contexts._files) == 1
    for number in range(KEPT + 2):
        asked = work("digest", b"%d" % number)
        assert pool.map(asked, [b"1", b"2"]) == INLINE.map(asked, [b"1", b"2"])
    assert len(pool._contexts._files) == KEPT
    assert pool.map(work("digest", context), [b"1", b"2"]) == INLINE.map(work("digest", context), [b"1", b"2"])


def test_no_other_user_and_no_folder_sees_a_context(pool: PoolEngine) -> None:
    pool.map(work("digest", b"private key"), [b"1", b"2"])
    (file,) = pool._contexts._files.values()
    assert os.fstat(file).st_nlink == 0
    assert "memfd" in os.readlink(f"/proc/self/fd/{file}")
    assert not os.get_inheritable(file)


def test_a_context_that_finds_no_room_is_an_error_with_a_way_out(
    pool: PoolEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(name: str) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "memfd_create", full)
        with pytest.raises(EngineFailed, match=r"no room for 7 bytes .*No space left"):
            pool.map(work("digest"), [b"1", b"2"])
    assert len(pool.map(work("digest"), [b"1", b"2"])) == 2


def test_a_system_without_nameless_memory_uses_an_unlinked_file(
    pool: PoolEngine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delattr(os, "memfd_create")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert pool.map(work("digest"), [b"1", b"2"]) == INLINE.map(work("digest"), [b"1", b"2"])
    (file,) = pool._contexts._files.values()
    assert os.fstat(file).st_mode & 0o077 == 0
    assert list(tmp_path.iterdir()) == []


def test_threads_share_a_pool(pool: PoolEngine) -> None:
    outcomes: dict[int, bool] = {}

    def use(number: int) -> None:
        asked = work("digest", b"%d" % number)
        chunks = [b"%d/%d" % (number, place) for place in range(20)]
        expected = INLINE.map(asked, chunks)
        outcomes[number] = all(pool.map(asked, chunks) == expected for _ in range(10))

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes == dict.fromkeys(range(4), True)
    assert len(pool._alive) <= 2


def test_closing_is_quick_in_the_middle_of_work_and_leaves_nothing() -> None:
    pool = PoolEngine(2)
    found = processes(pool)
    before = set(os.listdir("/proc/self/fd"))
    errors: list[ColonnadeError] = []

    def use() -> None:
        try:
            pool.map(work("slow"), [b"20000", b"20001", b"20002"])
        except ColonnadeError as error:
            errors.append(error)

    thread = threading.Thread(target=use)
    thread.start()
    time.sleep(0.2)
    began = time.monotonic()
    pool.close()
    thread.join()
    assert time.monotonic() - began < 2
    assert all(is_gone(one) for one in found)
    assert "closed" in str(errors[0])
    assert len(set(os.listdir("/proc/self/fd")) - before) == 0
    with pytest.raises(EngineFailed, match="closed"):
        pool.map(work("echo"), [b"1", b"2"])
    pool.close()


PARENT = """
import sys
from colonnade.engine import Work, open_engine

def work(function):
    return Work("colonnade.engine.probe:" + function, "colonnade.engine.probe:prepare", b"private key")

with open_engine("pool", 2) as engine:
    print(*{found.decode() for found in engine.map(work("process"), [b""] * 6)}, flush=True)
    engine.map(work("slow"), [b"60000"] * 4)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_workers_end_with_their_party_and_leave_nothing_behind(tmp_path: Path, number: int) -> None:
    shared = set(os.listdir("/dev/shm"))
    with subprocess.Popen(
        [sys.executable, "-c", PARENT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        start_new_session=True,
    ) as parent:
        assert parent.stdout is not None
        assert parent.stderr is not None
        workers = [int(word) for word in parent.stdout.readline().split()]
        assert len(workers) == 2
        time.sleep(0.3)  # they are at work now
        os.killpg(parent.pid, number)  # as a terminal does with Ctrl-C
        assert parent.wait(10) == -number
        wait_until(lambda: all(is_gone(one) for one in workers), 5)
        said = parent.stderr.read()
    assert said.count("Traceback") == (1 if number == signal.SIGINT else 0), said
    assert "engine/worker.py" not in said
    assert list(tmp_path.iterdir()) == []
    left = set(os.listdir("/dev/shm")) - shared
    assert not [name for name in left if name.startswith("psm_") or "colonnade" in name]
