"""Two doors with a bad network between them."""

from __future__ import annotations

import itertools
import random
import signal
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.faults.peer import Process, join
from tests.faults.proxy import DOWN, UP, FaultProxy

from colonnade.errors import PeerLost
from colonnade.transport.grpc import Endpoint, GrpcLink, Partner, make_identity

pytestmark = [pytest.mark.timeout(60), pytest.mark.slow]

# What issue and documentation promise.
REPORTED_WITHIN = 10.0


class Line:
    """Party a dials party b through the proxy."""

    def __init__(self) -> None:
        a, b = make_identity("a"), make_identity("b")
        self.host = Endpoint(b, {"a": Partner("a", a.certificate)}, "127.0.0.1:0")
        self.host.open()
        assert self.host.port is not None
        self.proxy = FaultProxy(self.host.port)
        self.guest = Endpoint(a, {"b": Partner("b", b.certificate, f"127.0.0.1:{self.proxy.port}")})
        self.b, self.a = self.host.link("a"), self.guest.link("b")

    def close(self) -> None:
        self.guest.close()
        self.host.close()
        self.proxy.__exit__()


@pytest.fixture
def line() -> Iterator[Line]:
    line = Line()
    yield line
    line.close()


def begin(action: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


class Talk:
    """Both parties send numbered frames for some seconds, and each checks what it hears."""

    def __init__(self, line: Line, seconds: float, sizes: list[int]) -> None:
        self.stop = time.monotonic() + seconds
        self.sent = {"a": 0, "b": 0}
        self.sizes = sizes
        self.jobs = [
            begin(lambda: self._send(line.a, "a")),
            begin(lambda: self._send(line.b, "b")),
            begin(lambda: self._receive(line.a)),
            begin(lambda: self._receive(line.b)),
        ]

    @property
    def is_going(self) -> bool:
        return time.monotonic() < self.stop

    def finish(self, seconds: float = 25.0, least: int = 10) -> None:
        """Wait for the end; every frame has come once and in order."""
        limit = time.monotonic() + seconds
        for thread, _ in self.jobs:
            thread.join(max(0.0, limit - time.monotonic()))
        results = [results for _, results in self.jobs]
        assert results == [[None], [None], [self.sent["b"]], [self.sent["a"]]]
        assert min(self.sent.values()) >= least

    def _send(self, link: GrpcLink, name: str) -> None:
        dice = random.Random(name)
        while self.is_going:
            number = struct.pack("<Q", self.sent[name])
            link.send([number, bytes(dice.choice(self.sizes)), number])
            self.sent[name] += 1
            time.sleep(0.002)
        link.send([b"end"])

    def _receive(self, link: GrpcLink) -> int:
        for number in itertools.count():
            frame = link.receive()
            if frame == b"end":
                return number
            assert frame[:8] == frame[-8:] == struct.pack("<Q", number)
        return -1


SMALL, MIXED = [0, 10, 2000], [0, 100, 5000, 60_000, 400_000]


# What a run survives


def test_a_clear_line(line: Line) -> None:
    Talk(line, 1, MIXED).finish()
    assert line.proxy.connections == 1


def test_a_long_delay(line: Line) -> None:
    line.proxy.delay = 0.4
    talk = Talk(line, 2, SMALL)
    talk.finish()
    assert line.proxy.connections == 1, "the handshake needs four ways of 0.4 s and must get the time"


def test_jitter(line: Line) -> None:
    line.proxy.delay, line.proxy.jitter = 0.05, 0.3
    Talk(line, 2, MIXED).finish()


def test_a_short_stall(line: Line) -> None:
    talk = Talk(line, 5, MIXED)
    time.sleep(0.5)
    line.proxy.is_stalled = True
    time.sleep(4)
    line.proxy.is_stalled = False
    talk.finish()
    assert line.proxy.connections == 1


@pytest.mark.parametrize("seed", range(3))
def test_resets_at_random_moments(line: Line, seed: int) -> None:
    dice = random.Random(seed)
    talk = Talk(line, 4, MIXED)
    breaks = 0
    while talk.is_going:
        time.sleep(dice.random() * 0.6)
        line.proxy.reset()
        breaks += 1
    talk.finish()
    assert breaks >= 5
    assert line.proxy.connections >= 3


def test_a_reset_in_the_middle_of_a_frame(line: Line) -> None:
    line.proxy.bytes_per_second = 2 * 2**20
    frame = random.Random(1).randbytes(3 * 2**20)
    line.a.send([frame])
    for _ in range(3):
        before = line.proxy.forwarded[UP]
        while line.proxy.forwarded[UP] < before + 700_000:
            time.sleep(0.005)
        line.proxy.reset()
    line.proxy.bytes_per_second = None
    thread, results = begin(line.b.receive)
    thread.join(20)
    assert results == [frame]


def test_orderly_ends_of_connections(line: Line) -> None:
    talk = Talk(line, 3, MIXED)
    while talk.is_going:
        time.sleep(0.4)
        line.proxy.close_all()
    talk.finish()
    assert line.proxy.connections >= 3


def test_writes_of_one_byte(line: Line) -> None:
    line.proxy.write_bytes = 1
    frames = [random.Random(size).randbytes(size) for size in (1, 100, 20_000)]
    for frame in frames:
        line.a.send([frame])
        line.b.send([frame])
    thread, results = begin(lambda: [[bytes(end.receive()) for _ in frames] for end in (line.b, line.a)])
    thread.join(20)
    assert results == [[frames, frames]]


def test_a_narrow_line(line: Line) -> None:
    """Longer than a peer may be silent: 2.2 MiB at 200 KiB per second, both ways at once."""
    line.proxy.bytes_per_second = 200 * 1024
    frame = random.Random(2).randbytes(2200 * 1024)
    line.a.send([frame])
    line.b.send([frame])
    began = time.monotonic()
    thread, results = begin(lambda: [line.b.receive(), line.a.receive()])
    thread.join(40)
    assert results == [[frame, frame]]
    assert time.monotonic() - began > 9
    assert line.proxy.connections == 1


def both_ways(line: Line, size: int, seconds: float) -> None:
    """Send a frame each way at once; both arrive."""
    frame = random.Random(size).randbytes(size)
    line.a.send([frame])
    line.b.send([frame])
    thread, results = begin(lambda: [line.b.receive(), line.a.receive()])
    thread.join(seconds)
    assert results == [[frame, frame]]


def test_a_very_narrow_line(line: Line) -> None:
    """Longer than a peer may be silent, at 4 KiB per second both ways at once."""
    line.proxy.bytes_per_second = 4 * 1024
    began = time.monotonic()
    both_ways(line, 48 * 1024, 50)
    assert time.monotonic() - began > 9
    assert line.proxy.connections == 1


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_line_that_is_narrow_one_way(line: Line, direction: str) -> None:
    line.proxy.narrow = {direction}
    line.proxy.bytes_per_second = 8 * 1024
    both_ways(line, 100 * 1024, 50)
    assert line.proxy.connections == 1


def test_a_narrow_line_with_delay_and_jitter(line: Line) -> None:
    line.proxy.bytes_per_second, line.proxy.delay, line.proxy.jitter = 16 * 1024, 0.3, 0.3
    both_ways(line, 128 * 1024, 50)
    assert line.proxy.connections == 1


def test_a_line_that_becomes_narrow_while_it_is_full(line: Line) -> None:
    talk = Talk(line, 2, MIXED)
    time.sleep(1)
    line.proxy.bytes_per_second = 256 * 1024
    time.sleep(9)
    line.proxy.bytes_per_second = None
    talk.finish()
    assert line.proxy.connections == 1


def test_a_narrow_line_after_a_break(line: Line) -> None:
    """What was under way in large chunks goes on in small ones."""
    line.proxy.bytes_per_second = 20 * 2**20
    frame = random.Random(4).randbytes(30 * 2**20)
    sender, _ = begin(lambda: line.a.send([frame]))
    receiver, results = begin(line.b.receive)
    while line.proxy.forwarded[UP] < 5 * 2**20:
        time.sleep(0.01)
    line.proxy.bytes_per_second = 8 * 1024
    line.proxy.reset()
    time.sleep(12)
    assert not line.a.is_over
    assert not line.b.is_over
    line.proxy.bytes_per_second = None
    receiver.join(20)
    sender.join(5)
    assert results == [frame]
    assert line.proxy.connections == 2


def test_stalls_again_and_again(line: Line) -> None:
    talk = Talk(line, 6, MIXED)
    while talk.is_going:
        line.proxy.is_stalled = not line.proxy.is_stalled
        time.sleep(0.7)
    line.proxy.is_stalled = False
    talk.finish()
    assert line.proxy.connections == 1


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_bytes_lost_before_a_break(line: Line, direction: str) -> None:
    """A half-open connection that is found out in time: what it swallowed comes again."""
    talk = Talk(line, 5, MIXED)
    time.sleep(0.5)
    line.proxy.swallows.add(direction)
    time.sleep(2)
    line.proxy.swallows.clear()
    line.proxy.reset()
    talk.finish()


def test_damaged_bytes(line: Line) -> None:
    """TLS finds each, ends the connection, and the line goes on over another."""
    talk = Talk(line, 5, MIXED)
    while talk.is_going:
        time.sleep(0.8)
        line.proxy.damages = 1
    line.proxy.damages = 0
    talk.finish()
    assert line.proxy.connections >= 3


def test_connections_that_break_in_the_handshake(line: Line) -> None:
    talk = Talk(line, 5, MIXED)
    time.sleep(0.5)
    for cut in (1, 100, 400, 900):
        line.proxy.cut_after = cut
        line.proxy.reset()
        time.sleep(0.6)
    line.proxy.cut_after = None
    talk.finish()
    assert line.proxy.connections >= 3


def test_a_line_that_comes_and_goes(line: Line) -> None:
    talk = Talk(line, 6, MIXED)
    while talk.is_going:
        line.proxy.refuse()
        line.proxy.reset()
        time.sleep(0.5)
        line.proxy.accept()
        time.sleep(0.8)
    talk.finish()


def test_jitter_resets_and_doubled_connections_together(line: Line) -> None:
    line.proxy.duplicates, line.proxy.delay, line.proxy.jitter = True, 0.02, 0.1
    talk = Talk(line, 5, MIXED)
    while talk.is_going:
        time.sleep(1.2)
        line.proxy.reset()
    talk.finish()


def test_small_writes_on_a_line_that_breaks(line: Line) -> None:
    line.proxy.write_bytes = 7
    talk = Talk(line, 4, SMALL)
    while talk.is_going:
        time.sleep(1)
        line.proxy.reset()
    talk.finish()


def test_doubled_connections(line: Line) -> None:
    line.proxy.duplicates = True
    talk = Talk(line, 2, MIXED)
    time.sleep(0.7)
    line.proxy.reset()
    talk.finish()


def test_refused_connections_for_a_while(line: Line) -> None:
    talk = Talk(line, 4, MIXED)
    time.sleep(0.5)
    line.proxy.refuse()
    line.proxy.reset()
    time.sleep(2)
    line.proxy.accept()
    talk.finish()


def test_a_short_black_hole(line: Line) -> None:
    talk = Talk(line, 4, MIXED)
    time.sleep(0.5)
    line.proxy.is_black_hole = True
    line.proxy.reset()
    time.sleep(1.5)
    line.proxy.is_black_hole = False
    line.proxy.reset()
    talk.finish()


def test_a_burst_of_strangers(line: Line) -> None:
    """Connections that say nothing, or nonsense, disturb nobody."""
    talk = Talk(line, 2, MIXED)
    with_nonsense = [socket.create_connection(("127.0.0.1", line.host.port or 0)) for _ in range(30)]
    for place, connection in enumerate(with_nonsense):
        if place % 2:
            connection.sendall(random.Random(place).randbytes(200))
    talk.finish()
    for connection in with_nonsense:
        connection.close()


# What ends a run


def lost_on(links: list[GrpcLink], began: float) -> None:
    """Every link given ends in time, for a reader and for a writer."""
    jobs = [begin(link.receive) for link in links]
    for thread, results in jobs:
        thread.join(REPORTED_WITHIN + 1)
        assert not thread.is_alive(), "a party hangs"
        assert isinstance(results[0], PeerLost)
    assert time.monotonic() - began < REPORTED_WITHIN
    for link in links:
        with pytest.raises(PeerLost):
            link.send([b"x"])


def greet(line: Line) -> None:
    line.a.send([b"hello"])
    line.b.send([b"hello"])
    assert line.b.receive() == line.a.receive() == b"hello"


def stall(proxy: FaultProxy) -> None:
    proxy.is_stalled = True


def swallow(*directions: str) -> Callable[[FaultProxy], None]:
    def act(proxy: FaultProxy) -> None:
        proxy.swallows.update(directions)

    return act


def fall_into_a_black_hole(proxy: FaultProxy) -> None:
    proxy.is_black_hole = True
    proxy.reset()


def refuse_for_good(proxy: FaultProxy) -> None:
    proxy.refuse()
    proxy.reset()


def stall_one_way(direction: str) -> Callable[[FaultProxy], None]:
    def act(proxy: FaultProxy) -> None:
        proxy.stalled.add(direction)

    return act


def damage_for_good(proxy: FaultProxy) -> None:
    proxy.damages = 10**9


def break_every_handshake(proxy: FaultProxy) -> None:
    proxy.cut_after = 300
    proxy.reset()


def trickle(proxy: FaultProxy) -> None:
    """It moves, but not one chunk in the time."""
    proxy.write_bytes, proxy.bytes_per_second = 1, 1


def swallow_then_break(proxy: FaultProxy) -> None:
    proxy.swallows.update((UP, DOWN))
    proxy.reset()


FATAL = {
    "stall up": stall_one_way(UP),
    "stall down": stall_one_way(DOWN),
    "damage": damage_for_good,
    "broken handshakes": break_every_handshake,
    "trickle": trickle,
    "swallow then break": swallow_then_break,
    "stall": stall,
    "swallow both": swallow(UP, DOWN),
    "black hole": fall_into_a_black_hole,
    "refused": refuse_for_good,
}


@pytest.mark.parametrize("fault", FATAL.values(), ids=FATAL.keys())
def test_a_fault_that_stays_is_reported_on_both_sides(line: Line, fault: Callable[[FaultProxy], None]) -> None:
    greet(line)
    began = time.monotonic()
    fault(line.proxy)
    lost_on([line.a, line.b], began)


@pytest.mark.parametrize("direction", [UP, DOWN])
def test_a_half_open_connection_is_reported_on_both_sides(line: Line, direction: str) -> None:
    greet(line)
    began = time.monotonic()
    line.proxy.swallows.add(direction)
    lost_on([line.a, line.b], began)


def test_a_waiting_writer_learns_of_the_loss(line: Line) -> None:
    greet(line)
    began = time.monotonic()
    line.proxy.is_stalled = True
    writers = [begin(lambda link=link: link.send([bytes(40 * 2**20)])) for link in (line.a, line.b)]  # type: ignore[misc]
    for thread, results in writers:
        thread.join(REPORTED_WITHIN + 1)
        assert not thread.is_alive(), "a party hangs"
        assert isinstance(results[0], PeerLost)
    assert time.monotonic() - began < REPORTED_WITHIN


@pytest.fixture(params=["listens", "dials"])
def pair(request: pytest.FixtureRequest) -> Iterator[tuple[GrpcLink, Process]]:
    endpoint, link, process = join(request.param)
    yield link, process
    process.end()
    endpoint.close()


@pytest.mark.parametrize("which", [signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM])
def test_a_process_that_is_gone_is_reported(pair: tuple[GrpcLink, Process], which: signal.Signals) -> None:
    link, process = pair
    link.send([b"hello"])
    assert link.receive() == b"hello"
    began = time.monotonic()
    process.signal(which)
    lost_on([link], began)


def test_a_process_that_pauses_for_a_moment_goes_on(pair: tuple[GrpcLink, Process]) -> None:
    link, process = pair
    link.send([b"hello"])
    assert link.receive() == b"hello"
    process.signal(signal.SIGSTOP)
    link.send([bytes(3 * 2**20)])
    time.sleep(3)
    process.signal(signal.SIGCONT)
    assert link.receive() == bytes(3 * 2**20)
