"""Work in processes of this machine.

The processes are spawned, not forked: a fork would copy locks of gRPC and torch in whatever state they are.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from colonnade.engine.calls import KEPT, raise_again
from colonnade.engine.engine import Engine, Work, cut
from colonnade.engine.frames import CONTEXT_NEEDED, FAILED, RESULT, TASK, receive, send, send_context
from colonnade.engine.inline import InlineEngine
from colonnade.errors import EngineFailed

__all__ = ["OwnProcesses", "PoolEngine"]

_RETRIES = 3
# A task costs a worker about 0.2 ms.
_LEAST_SECONDS = 0.005
_BURIAL_SECONDS = 1.0


class PoolEngine(Engine):
    """Share work among processes, which start when there is work that pays off."""

    name = "pool"
    least_chunks = 2
    """A single chunk is not worth sending."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._inline = InlineEngine()
        self._contexts = _Contexts()
        # One thread for each worker: it sends a chunk, waits for the answer, and replaces the worker if it dies.
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="engine")
        self._lock = threading.Lock()
        self._alive: set[_Worker] = set()
        self._idle: list[_Worker] = []
        self._closed = threading.Event()

    def map(self, work: Work, chunks: Sequence[bytes]) -> list[bytes]:
        """Return the function's answer to every chunk, in order."""
        if self._closed.is_set():
            raise EngineFailed("This engine is closed. Open another.")
        if len(chunks) < self.least_chunks:
            return self._inline.map(work, chunks)
        futures = [self._threads.submit(self._answer, work, chunk) for chunk in chunks]
        try:
            return [future.result() for future in futures]
        finally:
            for future in futures:
                future.cancel()  # those not begun, if one has failed or the user interrupts

    def parts(self, count: int, seconds_each: float) -> list[slice]:
        """Cut items into parts of 5 ms or more, about four for each worker."""
        return cut(count, count * seconds_each, workers=self.workers, least_seconds=_LEAST_SECONDS)

    def close(self) -> None:
        """End all workers at once and forget all contexts."""
        with self._lock:
            self._closed.set()
            workers = list(self._alive)
        for worker in workers:
            worker.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in workers:
            worker.bury()
        self._alive.clear()
        self._idle.clear()
        self._contexts.close()
        self._inline.close()

    def _answer(self, work: Work, chunk: bytes) -> bytes:
        end = ""
        for _ in range(1 + _RETRIES):
            worker = self._take()
            try:
                kind, fields = worker.ask(work, chunk, self._contexts)
            except ConnectionError:
                end = self._lose(worker)
                continue
            except BaseException:
                self._lose(worker)
                raise
            self._give_back(worker)
            if kind == FAILED:
                raise_again(*(field.decode() for field in fields))
            return fields[0]
        raise EngineFailed(
            f"Worker processes ended {1 + _RETRIES} times over the same piece of {work.function}, the last one "
            f'{end}. If memory is short, set fewer workers in [engine] of party.toml, or kind = "inline".'
        )

    def _take(self) -> _Worker:
        while True:
            with self._lock:
                if self._closed.is_set():
                    raise EngineFailed("This engine was closed while it was at work.")
                idle = self._idle.pop() if self._idle else None
            if idle is None:
                break
            if idle.is_alive:
                return idle
            self._lose(idle)
        worker = _Worker()
        with self._lock:
            if not self._closed.is_set():
                self._alive.add(worker)
                return worker
        worker.bury()
        raise EngineFailed("This engine was closed while it was at work.")

    def _give_back(self, worker: _Worker) -> None:
        with self._lock:
            self._idle.append(worker)

    def _lose(self, worker: _Worker) -> str:
        with self._lock:
            self._alive.discard(worker)
        return worker.bury()


class OwnProcesses(PoolEngine):
    """A pool for one of several parties in this process: all its work is sent, so that none holds up the others."""

    least_chunks = 1


class _Worker:
    """One process, and the line to it."""

    def __init__(self) -> None:
        self._line, theirs = socket.socketpair()
        # Each has one core; threads of a numerical library would only get in the others' way.
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with theirs:
            try:
                self._process = subprocess.Popen(
                    # -P: what lies in the user's folder must not be taken for a library.
                    [sys.executable, "-P", "-m", "colonnade.engine.worker"],
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    # A terminal's Ctrl-C goes to the party's process only.
                    start_new_session=True,
                    env=os.environ | single,
                )
            except OSError as error:
                self._line.close()
                raise EngineFailed(
                    f"No worker process could be started ({error.strerror}). "
                    "Set fewer workers in [engine] of party.toml."
                ) from error

    @property
    def is_alive(self) -> bool:
        """Tell whether the process still runs."""
        return self._process.poll() is None

    def ask(self, work: Work, chunk: bytes, contexts: _Contexts) -> tuple[int, list[bytes]]:
        """Return the worker's answer; raise ConnectionError if it dies over it."""
        send(self._line, TASK, work.function.encode(), work.prepare.encode(), work.digest, chunk)
        kind, fields = receive(self._line)
        if kind == CONTEXT_NEEDED:
            contexts.send(self._line, work)
            kind, fields = receive(self._line)
        if (kind, len(fields)) not in ((RESULT, 1), (FAILED, 2)):
            raise EngineFailed(f"A worker answered with a frame of kind {kind} and {len(fields)} fields.")
        return kind, fields

    def kill(self) -> None:
        """End the process; a thread that waits for its answer is told so."""
        self._process.kill()

    def bury(self) -> str:
        """See the process end, release what belongs to it, and say how it ended."""
        self._line.close()
        try:
            code = self._process.wait(_BURIAL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            return f"by {signal.Signals(-code).name}"
        return f"with code {code}"


class _Contexts:
    """Contexts as files without a name: only this process and those it hands them to can read them.

    They are memory where the system has such files, and gone with the last process that has them open.
    """

    def __init__(self) -> None:
        self._files: OrderedDict[bytes, int] = OrderedDict()
        self._lock = threading.Lock()

    def send(self, line: socket.socket, work: Work) -> None:
        """Hand over a context, writing it first if no worker had it yet."""
        # Under the lock to the end, so that no one closes the file meanwhile.
        with self._lock:
            if work.digest not in self._files:
                self._files[work.digest] = _written(work.context)
            self._files.move_to_end(work.digest)
            send_context(line, self._files[work.digest], len(work.context))
            if len(self._files) > KEPT:
                os.close(self._files.popitem(last=False)[1])

    def close(self) -> None:
        """Forget all contexts."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])


def _written(context: bytes) -> int:
    try:
        with contextlib.ExitStack() as undo:
            file = _nameless_file()
            undo.callback(os.close, file)
            rest = memoryview(context)
            while rest:
                rest = rest[os.write(file, rest) :]
            undo.pop_all()
            return file
    except OSError as error:
        raise EngineFailed(
            f"There is no room for {len(context)} bytes that the workers need ({error.strerror}). "
            'Free some memory, or set kind = "inline" in [engine] of party.toml.'
        ) from error


def _nameless_file() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("colonnade")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
