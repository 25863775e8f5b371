"""A crowd that nobody invited, in a process of its own.

``python strangers.py HOST PORT IDLE RATE`` opens ``IDLE`` connections that say nothing, prints "ready", and goes on
with ``RATE`` new ones a second until its input ends: silent ones, some that send nonsense, some that shake hands
without a certificate, and some that send a byte from time to time. None is given up before the other side does so.
"""

from __future__ import annotations

import itertools
import os
import random
import resource
import selectors
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

# Their own ports lie below those that the system hands out: tests beside this one look for free ports among these.
PORTS = range(10_000, 32_000)
KINDS = ("silent", "nonsense", "no certificate", "dribbles")


@contextmanager
def few_descriptors(count: int) -> Iterator[None]:
    """Give processes that are started meanwhile so many descriptors, as ``ulimit -n`` would."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (count, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@contextmanager
def strangers(port: int, *, idle: int, rate: int, host: str = "127.0.0.1") -> Iterator[None]:
    """Let strangers call at this port meanwhile."""
    command = [sys.executable, __file__, host, str(port), str(idle), str(rate)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield
            assert process.poll() is None, "the strangers stayed until the end"
        finally:
            process.stdin.close()
            process.wait(20)


class Crowd:
    """All connections of the strangers."""

    def __init__(self, host: str, port: int) -> None:
        self._family, *_, self._address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        self._own = "::1" if self._family == socket.AF_INET6 else "127.0.0.1"
        self._next = random.randrange(len(PORTS))
        self._selector = selectors.DefaultSelector()
        self._dribbling: set[socket.socket] = set()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE
        self._context.set_alpn_protocols(["h2"])
        self._selector.register(sys.stdin, selectors.EVENT_READ)

    def open(self, kind: str) -> None:
        one = socket.socket(self._family)
        one.setblocking(False)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._bind(one)
            one.connect_ex(self._address)
            if kind == "no certificate":
                one = self._context.wrap_socket(one, do_handshake_on_connect=False, server_hostname="stranger")
        except OSError:  # hung up on at once, or the port is closed by now
            one.close()
            return
        if kind == "dribbles":
            self._dribbling.add(one)
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if kind in ("nonsense", "no certificate") else 0)
        self._selector.register(one, events, kind)

    def _bind(self, one: socket.socket) -> None:
        for _ in PORTS:
            self._next = (self._next + 1) % len(PORTS)
            with suppress(OSError):
                one.bind((self._own, PORTS[self._next]))
                return

    def wait(self, seconds: float) -> bool:
        """Do what there is to do for this long; tell whether to go on."""
        limit = time.monotonic() + seconds
        while (left := limit - time.monotonic()) > 0:
            for key, events in self._selector.select(left):
                if key.fileobj is sys.stdin:
                    return False
                assert isinstance(key.fileobj, socket.socket)
                self._act(key.fileobj, key.data, events)
        return True

    def dribble(self) -> None:
        for one in list(self._dribbling):
            self._attempt(one, lambda one=one: one.send(b"\x16"))  # as a TLS record begins

    def _act(self, one: socket.socket, kind: str, events: int) -> None:
        if isinstance(one, ssl.SSLSocket):
            self._attempt(one, one.do_handshake)
            self._attempt(one, lambda: one.recv(4096) or self._end(one))
        elif events & selectors.EVENT_WRITE:
            self._attempt(one, lambda: one.send(os.urandom(300)))
        else:
            self._attempt(one, lambda: one.recv(4096) or self._end(one))
        if one.fileno() >= 0:
            self._selector.modify(one, selectors.EVENT_READ, kind)

    def _attempt(self, one: socket.socket, action: object) -> None:
        if one.fileno() < 0:
            return
        try:
            action()  # type: ignore[operator]
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError):
            pass
        except OSError:
            self._end(one)

    def _end(self, one: socket.socket) -> None:
        self._dribbling.discard(one)
        self._selector.unregister(one)
        one.close()


def main(host: str, port: int, idle: int, rate: int) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    crowd = Crowd(host, port)
    for count in range(idle):
        crowd.open("silent")
        if count % 100 == 99:
            crowd.wait(0.01)
    print("ready", flush=True)
    for kind in itertools.cycle(KINDS):
        crowd.open(kind)
        if kind == KINDS[-1]:
            crowd.dribble()
        if not crowd.wait(1 / rate if rate else 3600):
            return


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
