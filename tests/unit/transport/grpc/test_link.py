from __future__ import annotations

import contextlib
import itertools
import queue
import random
import resource
import struct
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import FrameRefused, PeerLost
from colonnade.transport.grpc import GrpcLink, chunks, inbox, outbox, pace
from colonnade.transport.grpc import link as link_module
from colonnade.transport.grpc.chunks import CHUNK_BYTES, NOBODY, Opening

pytestmark = pytest.mark.timeout(60)

OTHER = b"o" * 16
DEPTH = 8


class Pipe:
    """One direction of a stream: holds a few chunks, as a network does, and can break."""

    def __init__(self, breaks_after: int | None = None) -> None:
        self._chunks: queue.Queue[bytes] = queue.Queue(DEPTH)
        self._left = breaks_after
        self.is_broken = threading.Event()
        self.passed: list[int] = []

    def put(self, chunk: bytes) -> bool:
        if self._left == 0:
            self.is_broken.set()
        while not self.is_broken.is_set():
            try:
                self._chunks.put(chunk, timeout=0.02)
            except queue.Full:
                continue
            self.passed.append(chunk[0])
            if self._left is not None:
                self._left -= 1
            return True
        return False

    def __iter__(self) -> Iterator[bytes]:
        while not self.is_broken.is_set():
            try:
                yield self._chunks.get(timeout=0.02)
            except queue.Empty:
                continue


class Wire:
    """Joins two links over one stream after another, as an endpoint would."""

    def __init__(self, left: GrpcLink, right: GrpcLink) -> None:
        self.left, self.right = left, right
        self.pipes: tuple[Pipe, Pipe] = (Pipe(), Pipe())
        self.streams = 0
        self._threads: list[threading.Thread] = []

    def join(self, *, there: int | None = None, back: int | None = None) -> None:
        """Begin a new stream; each direction breaks after so many chunks, and takes the other with it."""
        self.cut()
        self.streams += 1
        self.pipes = Pipe(there), Pipe(back)
        self.pipes[1].is_broken = self.pipes[0].is_broken
        for link, out, into in ((self.left, 0, 1), (self.right, 1, 0)):
            stream = link.begin_stream()
            self._start(self._speak, link, stream, self.pipes[out])
            self._start(self._hear, link, stream, self.pipes[into])

    def cut(self) -> None:
        for pipe in self.pipes:
            pipe.is_broken.set()
        for link in (self.left, self.right):
            link.begin_stream()  # wakes whoever speaks on the stream before
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive(), "a stream's thread hangs"
        self._threads.clear()

    @property
    def is_broken(self) -> bool:
        return self.pipes[0].is_broken.is_set()

    def _start(self, action: Callable[..., None], *facts: Any) -> None:
        thread = threading.Thread(target=action, args=facts, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _speak(self, link: GrpcLink, stream: int, pipe: Pipe) -> None:
        for chunk in link.outgoing(stream):
            if not pipe.put(chunk):
                return

    def _hear(self, link: GrpcLink, stream: int, pipe: Pipe) -> None:
        try:
            link.incoming(stream, iter(pipe))
        except FrameRefused as refused:
            link.lose(str(refused))


@pytest.fixture
def wire() -> Iterator[Wire]:
    wire = Wire(GrpcLink("a", "b"), GrpcLink("b", "a"))
    yield wire
    wire.left.lose("The test is over.")
    wire.right.lose("The test is over.")
    wire.cut()


def content(size: int, seed: int = 0) -> bytes:
    return random.Random(seed).randbytes(size)


def open_by_hand(link: GrpcLink, *more: bytes, expected: int = 0, known: bytes = NOBODY) -> int:
    """Begin a stream on which the peer opens and then says what is given."""
    stream = link.begin_stream()
    link.incoming(stream, iter([chunks.opening(Opening(OTHER, known, expected)), *more]))
    return stream


def frames_in(link: GrpcLink) -> list[inbox.Arrival]:
    return [frame for frame in link._inbox.frames if frame.is_whole]


def set_window(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    for module in (pace, inbox, outbox):
        monkeypatch.setattr(module, "WINDOW_BYTES", size)


def said_at_once(speech: Iterator[bytes]) -> list[bytes]:
    """Return what a stream says before it falls silent. A sign of life ends the silence; it is not counted."""
    said = []
    for chunk in speech:
        if chunk[0] == chunks.PING:
            break
        said.append(chunk)
    return said


def resident_mebibytes() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def in_background(action: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(action())
        except BaseException as error:
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


@pytest.mark.parametrize(
    "sizes",
    [
        [1],
        [2],
        [CHUNK_BYTES - 1],
        [CHUNK_BYTES],
        [CHUNK_BYTES + 1],
        [2 * CHUNK_BYTES],
        [5 * 2**20 + 3],
        [0, 1, 0],
        [1, CHUNK_BYTES - 1],
        [1, CHUNK_BYTES],
        [CHUNK_BYTES, 1],
        [CHUNK_BYTES - 1, 2, CHUNK_BYTES - 1],
        [7] * 10_000,
        [CHUNK_BYTES // 3] * 10,
    ],
    ids=lambda sizes: "+".join(map(str, sizes[:3])) + ("…" if len(sizes) > 3 else ""),
)
def test_a_frame_of_any_size_arrives_whole(wire: Wire, sizes: list[int]) -> None:
    wire.join()
    parts = [content(size, seed) for seed, size in enumerate(sizes)]
    wire.left.send(parts)
    wire.left.send([b"after"])
    assert wire.right.receive() == b"".join(parts)
    assert wire.right.receive() == b"after"


def test_parts_of_any_type_arrive_as_bytes(wire: Wire) -> None:
    wire.join()
    wire.left.send([b"ab", bytearray(b"cd"), memoryview(struct.pack("<2d", 1.0, 2.0)).cast("d")])
    assert wire.right.receive() == b"abcd" + struct.pack("<2d", 1.0, 2.0)


def test_the_caller_may_reuse_the_parts_at_once(wire: Wire) -> None:
    part = bytearray(b"x" * CHUNK_BYTES)
    wire.left.send([part])
    part[:] = b"y" * CHUNK_BYTES
    wire.join()
    assert wire.right.receive() == b"x" * CHUNK_BYTES


def test_frames_arrive_in_order_both_ways(wire: Wire) -> None:
    wire.join()
    for number in range(500):
        wire.left.send([b"left %d" % number])
        wire.right.send([b"right %d" % number])
    assert [wire.right.receive() for _ in range(500)] == [b"left %d" % number for number in range(500)]
    assert [wire.left.receive() for _ in range(500)] == [b"right %d" % number for number in range(500)]


@pytest.mark.parametrize("direction", ["there", "back"])
@pytest.mark.parametrize("place", range(12))
def test_a_stream_may_break_at_any_chunk(wire: Wire, place: int, direction: str) -> None:
    frames = [content(size, size) for size in (1, 2 * CHUNK_BYTES + 5, 10, CHUNK_BYTES, 3 * CHUNK_BYTES, 4)]

    def send() -> None:
        for frame in frames:
            wire.left.send([frame])

    wire.join(**{direction: place})
    sender, _ = in_background(send)
    receiver, received = in_background(lambda: [bytes(wire.right.receive()) for _ in frames])
    receiver.join(0.1)
    wire.join()
    receiver.join(10)
    sender.join(10)
    assert received == [frames]


def test_nothing_is_lost_or_doubled_when_streams_break_all_the_time(wire: Wire) -> None:
    """Two parties send both ways for two seconds while every stream breaks after a few chunks."""
    dice = random.Random(7)
    stop = time.monotonic() + 2
    sent: dict[str, int] = {"left": 0, "right": 0}

    def send(link: GrpcLink, name: str) -> None:
        sizes = random.Random(name)
        while time.monotonic() < stop:
            size = sizes.choice([0, 0, 1, 300, CHUNK_BYTES - 9, 2 * CHUNK_BYTES])
            link.send([struct.pack("<Q", sent[name]), bytes(size), struct.pack("<Q", sent[name])])
            sent[name] += 1
        link.send([b"end"])

    def receive(link: GrpcLink) -> int:
        for number in itertools.count():
            frame = link.receive()
            if frame == b"end":
                return number
            assert frame[:8] == frame[-8:] == struct.pack("<Q", number)
        return -1

    jobs = [
        in_background(lambda: send(wire.left, "left")),
        in_background(lambda: send(wire.right, "right")),
        in_background(lambda: receive(wire.left)),
        in_background(lambda: receive(wire.right)),
    ]
    limit = time.monotonic() + 30
    while any(thread.is_alive() for thread, _ in jobs):
        assert time.monotonic() < limit, "a lost wakeup"
        if time.monotonic() < stop:
            wire.join(there=dice.randrange(40), back=dice.randrange(40))
            for _ in range(100):
                if wire.is_broken:
                    break
                time.sleep(0.001)
        elif wire.is_broken or wire.pipes[0]._left is not None:
            wire.join()
        else:
            time.sleep(0.01)
    assert [results for _, results in jobs] == [[None], [None], [sent["right"]], [sent["left"]]]
    assert wire.streams > 20
    assert min(sent.values()) > 20


def test_frames_of_two_threads_do_not_mix(wire: Wire) -> None:
    """A party's last words may come from another thread than the one that is still sending."""
    wire.join()
    frames = [bytes([letter]) * (20 * 2**20) for letter in b"xy"]
    senders = [in_background(lambda frame=frame: wire.left.send([frame[:5], frame[5:]])) for frame in frames]  # type: ignore[misc]
    assert sorted(bytes(wire.right.receive()) for _ in frames) == frames
    for thread, results in senders:
        thread.join(5)
        assert results == [None]


def test_what_was_under_way_is_cut_anew_for_a_new_stream() -> None:
    """The new line may be a slow one, on which a chunk as large as before would look like silence."""
    link = GrpcLink("a", "b")
    stream = open_by_hand(link)
    speech = link.outgoing(stream)
    frame = content(8 * 2**20)
    link.send([frame])
    assert next(speech)[0] == chunks.OPEN
    number = 0
    while len(chunks.content_of(said := next(speech))) < 2**18:
        number += 1
        link.incoming(stream, iter([chunks.ack(number)]))
    number = link._outbox.first_number
    again = link.outgoing(open_by_hand(link, expected=number, known=link._incarnation))
    assert next(again)[0] == chunks.OPEN
    smaller = next(again)
    kind, facts, part = chunks.read(smaller)
    assert (kind, facts) == (chunks.DATA, (number, 0))
    assert len(part) == pace.SMALLEST_CHUNK
    assert bytes(part) == chunks.content_of(said)[: len(part)]


def test_a_role_that_waits_sees_the_loss_in_the_middle_of_a_frame() -> None:
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.data(0, 5, b"whole"), chunks.data(1, 2**22, b"x"), chunks.data(2, 0, b"y"))
    assert link.receive() == b"whole"
    thread, results = in_background(link.receive)
    thread.join(0.1)
    assert results == []
    link.lose("gone")
    thread.join(5)
    assert [str(result) for result in results] == ["gone"]


def test_acknowledgements_and_signs_of_life_do_not_queue_behind_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow line both ways: little may be under way, however much waits."""
    monkeypatch.setattr(link_module, "_PING_SECONDS", 0.2)
    link = GrpcLink("a", "b")
    stream = open_by_hand(link)
    speech = link.outgoing(stream)
    assert next(speech)[0] == chunks.OPEN
    link.send([bytes(10 * 2**20)])
    link.incoming(stream, iter([chunks.data(0, 2**20, bytes(2**13))]))
    assert next(speech)[0] == chunks.ACK
    assert sum(map(len, said_at_once(speech))) <= 16 * 1024
    link.incoming(stream, iter([chunks.data(1, 0, bytes(2**13))]))
    assert next(speech)[0] == chunks.ACK


def test_short_messages_back_and_forth_need_few_acknowledgements(wire: Wire) -> None:
    wire.join()
    for _ in range(200):
        wire.left.send([b"question"])
        wire.right.receive()
        wire.right.send([b"answer"])
        wire.left.receive()
    assert all(pipe.passed.count(chunks.ACK) < 150 for pipe in wire.pipes)


def test_duplicates_are_dropped() -> None:
    link = GrpcLink("a", "b")
    first, second = chunks.data(0, 3, b"one"), chunks.data(1, 3, b"two")
    open_by_hand(link, first, first, second, first, second)
    open_by_hand(link, first, second, chunks.data(2, 5, b"three"))
    assert [link.receive() for _ in range(3)] == [b"one", b"two", b"three"]
    assert not frames_in(link)


def test_a_new_stream_says_nothing_before_the_peer_tells_what_it_has() -> None:
    """Otherwise it would go on behind the chunks that were lost with the stream before."""
    link = GrpcLink("a", "b")
    speech = link.outgoing(open_by_hand(link))
    link.send([b"one"])
    assert [next(speech)[0], next(speech)[0]] == [chunks.OPEN, chunks.DATA]
    link.send([b"two"])
    stream = link.begin_stream()
    speech = link.outgoing(stream)
    assert next(speech)[0] == chunks.OPEN
    thread, said = in_background(lambda: next(speech))
    thread.join(0.1)
    assert said == []
    link.incoming(stream, iter([chunks.opening(Opening(OTHER, link._incarnation, 0))]))
    thread.join(5)
    assert said == [chunks.data(0, 3, b"one")]


HOSTILE = {
    "nothing": b"",
    "garbage": b"\xff" * 40,
    "kind 0": b"\0",
    "kind 6": b"\6",
    "HTTP": b"GET / HTTP/1.1\r\n\r\n",
    "short data": bytes([chunks.DATA]) + bytes(5),
    "data without content": chunks.data(0, 1, b""),
    "chunk too large": chunks.data(0, CHUNK_BYTES + 1, bytes(CHUNK_BYTES + 1)),
    "short ack": bytes([chunks.ACK, 0]),
    "long ack": chunks.ack(0) + b"\0",
    "short ping": bytes([chunks.PING, 0]),
    "long ping": chunks.ping(0) + b"\0",
    "long bye": bytes([chunks.BYE, 0]),
    "short opening": bytes([chunks.OPEN, 1]) + OTHER,
    "another version": bytes([chunks.OPEN, 2]) + OTHER + NOBODY + bytes(8),
    "skipped number": chunks.data(1, 1, b"x"),
    "last number": chunks.data(2**64 - 1, 1, b"x"),
    "goes on with nothing": chunks.data(0, 0, b"x"),
    "oversize frame": chunks.data(0, 2**32 + 1, b"x"),
    "largest number as size": chunks.data(0, 2**64 - 1, b"x"),
    "more than announced": chunks.data(0, 1, b"xy"),
}


@pytest.mark.parametrize("chunk", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_chunk_is_refused(chunk: bytes) -> None:
    link = GrpcLink("a", "b")
    with pytest.raises(FrameRefused):
        open_by_hand(link, chunk)
    assert not frames_in(link)


@pytest.mark.parametrize("second", [chunks.data(1, 8, b"yy"), chunks.data(1, 0, b"y" * 7)], ids=["anew", "too much"])
def test_a_frame_that_does_not_keep_to_its_announcement_is_refused(second: bytes) -> None:
    link = GrpcLink("a", "b")
    with pytest.raises(FrameRefused):
        open_by_hand(link, chunks.data(0, 8, b"xx"), second)
    assert not frames_in(link)


@pytest.mark.parametrize("chunk", [chunks.data(0, 1, b"x"), chunks.ack(0), bytes([chunks.BYE])])
def test_nothing_counts_before_the_opening(chunk: bytes) -> None:
    """A chunk from an old incarnation, replayed without its opening, must not pass for a new one."""
    link = GrpcLink("a", "b")
    with pytest.raises(FrameRefused, match="before it opened"):
        link.incoming(link.begin_stream(), iter([chunk]))
    open_by_hand(link)
    with pytest.raises(FrameRefused, match="before it opened"):
        link.incoming(link.begin_stream(), iter([chunk]))
    assert not frames_in(link)


def test_random_chunks_never_do_anything_but_get_refused() -> None:
    dice = random.Random(3)
    for _ in range(3000):
        link = GrpcLink("a", "b")
        chunk = bytes([dice.randrange(7)]) + dice.randbytes(dice.choice([0, 1, 8, 16, 17, 30, 41]))
        with contextlib.suppress(FrameRefused):
            open_by_hand(link, chunk)
        assert not frames_in(link)


def test_an_announcement_alone_costs_no_memory() -> None:
    before = resident_mebibytes()
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.data(0, 2**32, b"x"))
    assert [bytes(content) for content in link._inbox.frames[0].contents] == [b"x"]
    thread, results = in_background(link.receive)
    thread.join(0.3)
    assert resident_mebibytes() < before + 100
    link.lose("over")
    thread.join(5)
    assert isinstance(results[0], PeerLost)


@pytest.mark.parametrize("claim", [1, 2**64 - 1])
def test_a_peer_that_has_what_was_never_sent_ends_the_link(claim: int) -> None:
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.ack(claim))
    with pytest.raises(FrameRefused, match="never sent"):
        link.receive()
    link = GrpcLink("a", "b")
    open_by_hand(link, expected=claim)
    with pytest.raises(FrameRefused, match="never sent"):
        link.send([b"x"])


def test_a_peer_that_forgot_what_it_acknowledged_ends_the_link() -> None:
    link = GrpcLink("a", "b")
    link.send([b"x"])
    speech = link.outgoing(open_by_hand(link))
    assert [next(speech)[0], next(speech)[0]] == [chunks.OPEN, chunks.DATA]
    link.incoming(link._stream, iter([chunks.ack(1)]))
    open_by_hand(link, expected=0)
    with pytest.raises(PeerLost, match="asks again for chunks"):
        link.receive()


def test_a_peer_that_ignores_the_window_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    set_window(monkeypatch, 1000)
    link = GrpcLink("a", "b")
    with pytest.raises(FrameRefused, match="window"):
        open_by_hand(link, *(chunks.data(number, 100, bytes(100)) for number in range(11)))
    assert len(frames_in(link)) == 10


def test_a_restarted_peer_ends_the_link(wire: Wire) -> None:
    wire.join()
    wire.left.send([b"before"])
    assert wire.right.receive() == b"before"
    wire.cut()
    wire.right = GrpcLink("b", "a")
    wire.join()
    with pytest.raises(PeerLost, match="restarted"):
        wire.left.receive()
    assert not wire.right.is_up
    assert not wire.right.is_over
    wire.cut()
    wire.left = GrpcLink("a", "b")
    wire.join()
    wire.left.send([b"after"])
    assert wire.right.receive() == b"after"


def test_a_stream_for_an_earlier_incarnation_delivers_nothing() -> None:
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.ping(0.0), known=b"x" * 16)
    assert not link.is_up
    assert not link.is_over, "the peer will hear from our opening that we are new"
    with pytest.raises(FrameRefused, match="before it opened"):
        open_by_hand(link, chunks.data(0, 3, b"old"), known=b"x" * 16)
    assert not link.is_up
    assert not frames_in(link)
    open_by_hand(link, chunks.data(0, 3, b"new"))
    assert link.receive() == b"new"


def test_only_the_newest_stream_counts() -> None:
    link = GrpcLink("a", "b")
    old = link.begin_stream()
    new = link.begin_stream()
    link.incoming(old, iter([chunks.opening(Opening(OTHER, NOBODY, 0)), chunks.data(0, 3, b"old")]))
    assert list(link.outgoing(old)) == []
    assert not link.is_up
    link.incoming(new, iter([chunks.opening(Opening(OTHER, NOBODY, 0)), chunks.data(0, 3, b"new")]))
    assert link.receive() == b"new"


def test_a_sender_waits_when_the_peer_takes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    set_window(monkeypatch, 64 * 1024)
    monkeypatch.setattr(link_module, "_PING_SECONDS", 0.3)
    link = GrpcLink("a", "b")
    stream = open_by_hand(link)
    speech = link.outgoing(stream)
    thread, results = in_background(lambda: link.send([bytes(2**20)]))
    said = said_at_once(speech)
    thread.join(0.2)
    assert results == []
    assert sum(map(len, said)) <= 64 * 1024
    link.incoming(stream, iter([chunks.ack(len(said) - 1)]))
    assert said_at_once(speech), "room for more"
    assert results == []
    link.lose("over")
    thread.join(5)
    assert isinstance(results[0], PeerLost)


def test_a_full_inbox_holds_the_peer_back_until_frames_are_taken(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    set_window(monkeypatch, 2**20)
    monkeypatch.setattr(inbox, "INBOX_BYTES", 2 * 2**20)
    wire.join()
    frame = content(100_000)

    def send() -> None:
        for _ in range(200):
            wire.left.send([frame])

    thread, results = in_background(send)
    thread.join(0.5)
    assert results == []
    most = 3 * 2**20 + 200_000
    assert wire.right._inbox._held_bytes <= most
    for _ in range(200):
        assert wire.right._inbox._held_bytes <= most
        assert wire.right.receive() == frame
    thread.join(5)
    assert results == [None]


def test_a_frame_larger_than_window_and_inbox_arrives(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    set_window(monkeypatch, 2**20)
    monkeypatch.setattr(inbox, "INBOX_BYTES", 2**20)
    wire.join()
    frame = content(5 * 2**20)
    thread, results = in_background(lambda: wire.left.send([frame]))
    assert wire.right.receive() == frame
    thread.join(5)
    assert results == [None]


@pytest.mark.parametrize("what", ["receive", "send", "close"])
def test_a_silent_peer_is_given_up(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 0.5)
    set_window(monkeypatch, CHUNK_BYTES)
    link = GrpcLink("a", "b")
    open_by_hand(link)
    began = time.monotonic()
    if what == "close":
        link.send([b"x"])
        link.close()
    else:
        action = link.receive if what == "receive" else lambda: link.send([bytes(3 * CHUNK_BYTES)])
        with pytest.raises(PeerLost, match=r"heard for 0\.5 s"):
            action()
    assert 0.4 < time.monotonic() - began < 10


def test_a_peer_that_only_pings_is_alive(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 0.5)
    monkeypatch.setattr(link_module, "_PING_SECONDS", 0.1)
    wire.join()
    thread, results = in_background(wire.left.receive)
    thread.join(1.5)
    assert results == []
    wire.right.send([b"at last"])
    thread.join(5)
    assert results == [b"at last"]


def test_a_peer_that_does_not_hear_us_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line that carries one way only: the peer speaks, and says that it hears nothing."""
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 0.5)
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.ping(0.4))
    link.check_alive()
    assert not link.is_over
    time.sleep(0.2)
    link.check_alive()
    assert link.is_over


def test_a_peer_busy_with_data_need_not_ping(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a slow line pings queue behind data for longer than a peer may be silent."""
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 0.5)
    link = GrpcLink("a", "b")

    def slowly() -> Iterator[bytes]:
        yield chunks.opening(Opening(OTHER, NOBODY, 0))
        for number in range(10):
            time.sleep(0.1)
            yield chunks.data(number, 1, b"x")
            link.check_alive()

    link.incoming(link.begin_stream(), slowly())
    assert not link.is_over


def test_a_peer_that_never_came_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 0.1)
    link = GrpcLink("a", "b")
    assert not link.wait_until_up(0.2)
    thread, results = in_background(link.receive)
    thread.join(0.8)
    assert results == []
    link.lose("over")
    thread.join(5)
    assert isinstance(results[0], PeerLost)


def test_pings_do_not_call_forth_pings(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "_PING_SECONDS", 0.2)
    wire.join()
    for _ in range(5):
        wire.left.send([b"x"])
        wire.right.receive()
    time.sleep(1)
    assert all(2 <= pipe.passed.count(chunks.PING) <= 8 for pipe in wire.pipes)


def test_two_parties_that_close_part_at_once(wire: Wire) -> None:
    wire.join()
    wire.left.send([b"last"])
    assert wire.right.receive() == b"last"
    began = time.monotonic()
    thread, results = in_background(wire.left.close)
    wire.right.close()
    thread.join(5)
    assert results == [None]
    assert time.monotonic() - began < link_module._BYE_SECONDS, "nobody waited for a goodbye in vain"
    assert wire.left.is_over
    assert wire.right.is_over


def test_close_waits_until_all_has_arrived(wire: Wire) -> None:
    for number in range(50):
        wire.left.send([content(100_000, number)])
    wire.join(there=7)
    assert wire.left.wait_until_up(5)
    thread, results = in_background(wire.left.close)
    time.sleep(0.1)
    wire.join()
    for number in range(50):
        assert wire.right.receive() == content(100_000, number)
    with pytest.raises(PeerLost, match="left the run"):
        wire.right.receive()
    with pytest.raises(PeerLost, match="left the run"):
        wire.right.send([b"x"])
    wire.right.close()
    thread.join(5)
    assert results == [None]


def test_two_full_inboxes_do_not_keep_the_parties_from_closing(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inbox, "INBOX_BYTES", 1000)
    wire.join()
    for link in (wire.left, wire.right):
        for _ in range(20):
            link.send([bytes(500)])
    time.sleep(0.2)
    assert not wire.left._outbox.is_empty
    assert not wire.right._outbox.is_empty
    closings = [in_background(wire.left.close), in_background(wire.right.close)]
    for thread, results in closings:
        thread.join(5)
        assert results == [None]


def test_a_frame_cut_short_by_closing_is_never_read() -> None:
    link = GrpcLink("a", "b")
    stream = open_by_hand(link, chunks.data(0, 4, b"ab"))
    link._is_closing = True
    link.incoming(stream, iter([chunks.data(1, 0, b"cd"), chunks.data(2, 5, b"after")]))
    link.lose("closed")
    with pytest.raises(PeerLost, match="closed"):
        link.receive()


def test_a_link_that_was_never_up_closes_at_once() -> None:
    link = GrpcLink("a", "b")
    link.send([b"for nobody"])
    began = time.monotonic()
    link.close()
    assert time.monotonic() - began < link_module._BYE_SECONDS


def test_frames_that_arrived_before_the_loss_can_still_be_read() -> None:
    link = GrpcLink("a", "b")
    open_by_hand(link, chunks.data(0, 10, b"last words"))
    link.lose("gone")
    assert link.receive() == b"last words"
    with pytest.raises(PeerLost, match="gone"):
        link.receive()


def test_the_first_reason_for_a_loss_stays() -> None:
    link = GrpcLink("a", "b")
    link.lose("first")
    link.lose("second")
    with pytest.raises(PeerLost, match="first"):
        link.send([b"x"])
