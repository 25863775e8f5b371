from __future__ import annotations

import mmap
from typing import Any

import numpy as np
import pytest

from colonnade.errors import FrameRefused
from colonnade.transport.grpc import rooms
from colonnade.transport.grpc.rooms import Rooms

LARGE = 3 * 2**20


def place_of(view: memoryview) -> int:
    return int(np.frombuffer(view, np.uint8).ctypes.data)


@pytest.mark.parametrize("total", [1, 2**20 - 1, 2**20, LARGE])
def test_a_room_has_the_size_asked_for_and_can_be_written(total: int) -> None:
    room = Rooms().room_for(total)
    assert len(room) == total
    room[-1] = 7


def test_a_room_is_used_again_once_nobody_looks_at_it() -> None:
    kept = Rooms()
    place = place_of(kept.room_for(LARGE))
    assert place_of(kept.room_for(LARGE - 5)) == place
    assert len(kept.room_for(LARGE - 5)) == LARGE - 5


def test_a_room_that_someone_looks_at_stays_as_it_is() -> None:
    """Also when only an array made from a part of it is left, as after a message was decoded."""
    kept = Rooms()
    frame = kept.room_for(LARGE)
    frame[:] = b"x" * LARGE
    array = np.frombuffer(frame[128:], np.float32)
    part = array[5:10]
    del frame, array
    for _ in range(5):
        kept.room_for(LARGE)[:] = bytes(LARGE)
    assert bytes(part) == b"x" * 20


def test_two_rooms_take_turns() -> None:
    kept = Rooms()
    places = set()
    held: Any = None
    for _ in range(6):
        view = kept.room_for(LARGE)
        places.add(place_of(view))
        held = view
    assert held is not None
    assert len(places) == 2


def test_little_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rooms, "_KEPT_BYTES", 3 * LARGE)
    kept = Rooms()
    held = [kept.room_for(LARGE) for _ in range(9)]
    assert len(kept._kept) == 2
    kept.room_for(4 * LARGE)
    assert sum(map(len, kept._kept)) <= 3 * LARGE
    assert len(held) == 9


def test_a_small_frame_does_not_hold_a_large_room() -> None:
    kept = Rooms()
    place = place_of(kept.room_for(10 * LARGE))
    assert place_of(kept.room_for(LARGE)) != place


def test_a_frame_that_does_not_fit_into_the_machine_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(mmap, "mmap", refuse)
    with pytest.raises(FrameRefused, match="more than this machine can hold"):
        Rooms().room_for(LARGE)
