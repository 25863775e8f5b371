"""A worker of a pool. Started by `pool`, not by people.

Its stdin is a socket to the pool. When that ends, the pool is gone, and so is the worker, also in the middle of work.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading

from colonnade.engine.calls import Caller, told
from colonnade.engine.frames import CONTEXT_NEEDED, FAILED, RESULT, TASK, receive, receive_context, send
from colonnade.errors import ColonnadeError, EngineFailed

__all__ = ["main"]


def main() -> int:
    """Do what the pool says until it is gone."""
    # Who interrupts the party interrupts its process; that one decides what becomes of the workers.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=0) as line:
        threading.Thread(target=_end_with_pool, args=(line.fileno(),), daemon=True).start()
        caller = Caller()
        try:
            while True:
                _serve(line, caller)
        except ConnectionError:
            return 0


def _serve(line: socket.socket, caller: Caller) -> None:
    kind, fields = receive(line)
    if kind != TASK or len(fields) != 4:
        raise EngineFailed(f"A worker got a frame of kind {kind} with {len(fields)} fields instead of a task.")
    function, prepare, digest, chunk = fields

    def load() -> memoryview:
        send(line, CONTEXT_NEEDED)
        return receive_context(line)

    try:
        answer = caller.call(function.decode(), prepare.decode(), digest, load, chunk)
    except ColonnadeError as error:
        send(line, FAILED, *(part.encode() for part in told(error)))
    else:
        send(line, RESULT, answer)


def _end_with_pool(line: int) -> None:
    waiting = select.poll()
    # Nothing is asked for, so only the other side's end wakes it.
    waiting.register(line, 0)
    waiting.poll()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
