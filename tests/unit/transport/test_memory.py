from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from colonnade.errors import Deadlock, PeerLost
from colonnade.messages import HEADER_BYTES
from colonnade.transport import BodyDigest, MemoryHub


def at_once(*actions: Callable[[], Any], seconds: float = 10.0) -> list[Any]:
    """Run all actions, each in its own thread; return what each returned or raised, and fail if one hangs."""
    results: list[Any] = [None] * len(actions)

    def run(place: int, action: Callable[[], Any]) -> None:
        try:
            results[place] = action()
        except BaseException as error:
            results[place] = error

    threads = [threading.Thread(target=run, args=one, daemon=True) for one in enumerate(actions)]
    for thread in threads:
        thread.start()
    limit = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, limit - time.monotonic()))
    assert not any(thread.is_alive() for thread in threads), "a party hangs"
    return results


def test_frames_arrive_in_order_and_joined() -> None:
    hub = MemoryHub(["a", "b"])
    left, right = hub.link("a", "b"), hub.link("b", "a")
    for number in range(100):
        left.send([b"frame ", memoryview(str(number).encode()), bytearray(b"!")])
    assert [bytes(right.receive()) for _ in range(100)] == [f"frame {number}!".encode() for number in range(100)]


def test_directions_and_pairs_do_not_mix() -> None:
    hub = MemoryHub(["a", "b", "c"])
    hub.link("a", "b").send([b"ab"])
    hub.link("b", "a").send([b"ba"])
    hub.link("a", "c").send([b"ac"])
    hub.link("c", "b").send([b"cb"])
    assert bytes(hub.link("b", "c").receive()) == b"cb"
    assert bytes(hub.link("b", "a").receive()) == b"ab"
    assert bytes(hub.link("a", "b").receive()) == b"ba"
    assert bytes(hub.link("c", "a").receive()) == b"ac"


def test_what_the_sender_changes_afterwards_does_not_arrive() -> None:
    hub = MemoryHub(["a", "b"])
    array = np.zeros(100)
    hub.link("a", "b").send([memoryview(array.view(np.uint8))])
    array += 7
    frame = hub.link("b", "a").receive()
    assert np.frombuffer(frame).tolist() == [0.0] * 100
    frame[:] = bytes(len(frame))
    assert array.tolist() == [7.0] * 100


def test_the_tap_sees_what_arrives() -> None:
    seen: list[tuple[str, str, bytes]] = []
    hub = MemoryHub(["a", "b"], tap=lambda *one: seen.append(one))
    hub.link("a", "b").send([b"one"])
    assert seen == []
    hub.link("b", "a").receive()
    assert seen == [("a", "b", b"one")]


def test_a_peer_that_leaves_wakes_who_waits_for_it() -> None:
    hub = MemoryHub(["a", "b"])
    began = time.monotonic()
    (error, _) = at_once(hub.link("a", "b").receive, lambda: (time.sleep(0.1), hub.leave("b")))
    assert isinstance(error, PeerLost)
    assert "'b' left the run while 'a' was waiting" in str(error)
    assert time.monotonic() - began < 2


def test_what_a_peer_said_before_it_left_can_still_be_read() -> None:
    hub = MemoryHub(["a", "b"])
    hub.link("b", "a").send([b"last words"])
    hub.leave("b")
    assert bytes(hub.link("a", "b").receive()) == b"last words"
    with pytest.raises(PeerLost):
        hub.link("a", "b").receive()


def test_nobody_can_send_to_a_party_that_left() -> None:
    hub = MemoryHub(["a", "b"])
    hub.leave("b")
    with pytest.raises(PeerLost, match="'b' has already left"):
        hub.link("a", "b").send([b"x"])


def test_a_third_party_that_leaves_disturbs_nobody() -> None:
    hub = MemoryHub(["a", "b", "c"])

    def later() -> None:
        time.sleep(0.05)
        hub.leave("c")
        time.sleep(0.05)
        hub.link("b", "a").send([b"x"])

    got, _ = at_once(hub.link("a", "b").receive, later)
    assert bytes(got) == b"x"


def test_two_parties_that_wait_for_each_other_are_told_at_once() -> None:
    hub = MemoryHub(["a", "b"])
    began = time.monotonic()
    errors = at_once(hub.link("a", "b").receive, hub.link("b", "a").receive)
    assert time.monotonic() - began < 1
    for error in errors:
        assert isinstance(error, Deadlock)
        assert "'a' for 'b'" in str(error)
        assert "'b' for 'a'" in str(error)


def test_three_parties_in_a_circle_are_told_at_once() -> None:
    hub = MemoryHub(["a", "b", "c"])
    began = time.monotonic()
    errors = at_once(*(hub.link(*pair).receive for pair in (("a", "b"), ("b", "c"), ("c", "a"))))
    assert time.monotonic() - began < 1
    for error in errors:
        assert isinstance(error, Deadlock)
        assert all(wait in str(error) for wait in ("'a' for 'b'", "'b' for 'c'", "'c' for 'a'"))


def test_a_circle_is_found_when_the_last_party_outside_it_leaves() -> None:
    hub = MemoryHub(["a", "b", "c"])
    waiting = [hub.link("a", "b").receive, hub.link("b", "a").receive]
    errors = at_once(*waiting, lambda: (time.sleep(0.1), hub.leave("c")))
    assert [type(error) for error in errors[:2]] == [Deadlock, Deadlock]


def test_waiting_for_someone_who_left_is_a_loss_and_not_a_deadlock() -> None:
    hub = MemoryHub(["a", "b", "c"])
    waiting = [hub.link("a", "c").receive, hub.link("b", "c").receive]
    errors = at_once(*waiting, lambda: (time.sleep(0.05), hub.leave("c")))
    assert [type(error) for error in errors[:2]] == [PeerLost, PeerLost]


def test_silence_has_an_end() -> None:
    hub = MemoryHub(["a", "b"], silence_seconds=0.2)
    began = time.monotonic()
    with pytest.raises(PeerLost, match=r"'b' has said nothing to 'a' for 0\.2 s"):
        hub.link("a", "b").receive()
    assert 0.15 < time.monotonic() - began < 2


def test_a_party_that_gave_up_waiting_does_not_count_as_waiting() -> None:
    hub = MemoryHub(["a", "b"], silence_seconds=0.1)
    with pytest.raises(PeerLost):
        hub.link("a", "b").receive()
    hub.silence_seconds = 5.0
    got, _ = at_once(hub.link("b", "a").receive, lambda: (time.sleep(0.1), hub.link("a", "b").send([b"sorry"])))
    assert bytes(got) == b"sorry"


def test_stopping_wakes_everyone() -> None:
    hub = MemoryHub(["a", "b", "c"])
    waiting = [hub.link("a", "b").receive, hub.link("b", "c").receive]
    errors = at_once(*waiting, lambda: (time.sleep(0.1), hub.stop("The user interrupted the run.")))
    for error in errors[:2]:
        assert isinstance(error, PeerLost)
        assert "interrupted" in str(error)
    for action in (lambda: hub.link("c", "a").send([b"x"]), hub.link("c", "a").receive):
        with pytest.raises(PeerLost, match="interrupted"):
            action()


def test_busy_parties_are_never_taken_for_a_deadlock() -> None:
    """Four threads in lock-step over random pairs, in an order all derive alike, for two seconds."""
    names = ["a", "b", "c", "d"]
    hub = MemoryHub(names)
    stop_at = time.monotonic() + 2.0
    rounds = dict.fromkeys(names, 0)

    def play(name: str) -> int:
        rng = random.Random(5)
        links = {peer: hub.link(name, peer) for peer in names if peer != name}
        while True:
            for _ in range(50):
                sender, receiver = rng.sample(names, 2)
                answers = rng.random() < 0.5
                if name == sender:
                    links[receiver].send([b"there"])
                    if answers:
                        assert bytes(links[receiver].receive()) == b"back"
                elif name == receiver:
                    assert bytes(links[sender].receive()) == b"there"
                    if answers:
                        links[sender].send([b"back"])
            rounds[name] += 1
            # 'a' decides for all whether to go on, so that nobody is left waiting.
            if name == "a":
                goes_on = time.monotonic() < stop_at
                for link in links.values():
                    link.send([b"on" if goes_on else b"off"])
            else:
                goes_on = bytes(links["a"].receive()) == b"on"
            if not goes_on:
                return rounds[name]

    results = at_once(*(lambda name=name: play(name) for name in names), seconds=30)
    assert len(set(map(str, results))) == 1, results
    assert results[0] > 10


def test_the_digest_a_channel_made_is_handed_over_and_any_other_frame_is_digested() -> None:
    hub = MemoryHub(["a", "b"])
    frame = bytes(HEADER_BYTES) + b"body"
    for given, expected in ((b"made before", b"made before"), (None, hashlib.sha256(b"body").digest())):
        hub.link("a", "b").send([frame], given)
        digest = BodyDigest()
        assert bytes(hub.link("b", "a").receive(digest)) == frame
        assert digest.digest() == expected
