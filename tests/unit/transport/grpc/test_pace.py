from __future__ import annotations

from colonnade.transport.grpc.chunks import CHUNK_BYTES
from colonnade.transport.grpc.pace import SMALLEST_CHUNK, WINDOW_BYTES, Pace


def send_over(pace: Pace, bytes_per_second: float, latency: float, rounds: int) -> None:
    """Fill what may be on the way, again and again, on a line of this speed."""
    for _ in range(rounds):
        size = pace.bytes
        pace.acknowledged(size, size, latency + size / bytes_per_second)


def test_a_stream_begins_small() -> None:
    pace = Pace()
    assert pace.chunk_bytes == SMALLEST_CHUNK
    assert pace.bytes <= 4 * SMALLEST_CHUNK


def test_a_fast_line_soon_gets_the_whole_window_and_the_largest_chunks() -> None:
    pace = Pace()
    send_over(pace, 500e6, 0.001, 12)
    assert pace.bytes == WINDOW_BYTES
    assert CHUNK_BYTES - 100 <= pace.chunk_bytes <= CHUNK_BYTES


def test_a_long_line_gets_there_too() -> None:
    pace = Pace()
    send_over(pace, 500e6, 0.8, 25)
    assert pace.bytes == WINDOW_BYTES


def test_on_a_slow_line_nothing_waits_for_long() -> None:
    for speed in (4 * 1024, 64 * 1024, 10**6):
        pace = Pace()
        send_over(pace, speed, 0.01, 30)
        assert pace.bytes <= max(2.1 * speed, 2 * SMALLEST_CHUNK)
        assert pace.chunk_bytes <= max(speed / 4, SMALLEST_CHUNK)


def test_a_line_that_becomes_slow_gets_small_chunks_again() -> None:
    pace = Pace()
    send_over(pace, 500e6, 0.001, 12)
    send_over(pace, 4 * 1024, 0.001, 5)
    assert pace.chunk_bytes == SMALLEST_CHUNK


def test_a_line_that_becomes_fast_again_is_used() -> None:
    pace = Pace()
    send_over(pace, 4 * 1024, 0.001, 5)
    send_over(pace, 500e6, 0.001, 20)
    assert pace.bytes == WINDOW_BYTES


def test_a_lone_small_message_says_nothing_about_the_line() -> None:
    pace = Pace()
    send_over(pace, 500e6, 0.001, 12)
    pace.acknowledged(100, 100, 0.5)
    assert pace.bytes == WINDOW_BYTES


def test_a_burst_does_not_open_the_window_at_once() -> None:
    pace = Pace()
    before = pace.bytes
    pace.acknowledged(before, before, 0.000001)
    assert pace.bytes <= 2 * before
