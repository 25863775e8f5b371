from __future__ import annotations

import threading
from typing import Any

import pytest

from colonnade.errors import PeerLost
from colonnade.transport.grpc import GrpcLink, LoopbackNetwork

pytestmark = pytest.mark.timeout(60)


def receive(link: Any) -> list[Any]:
    """Receive in the background, so that a line that hangs fails the test instead of stopping it."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(bytes(link.receive()))
        except PeerLost as lost:
            results.append(lost)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(20)
    assert not thread.is_alive(), "a party hangs"
    return results


@pytest.mark.parametrize("first", ["a", "b"])
def test_the_last_words_of_a_party_that_stops_at_once_arrive(first: str) -> None:
    other = "b" if first == "a" else "a"
    network = LoopbackNetwork(["a", "b"])
    links = {first: network.link(first, other), other: network.link(other, first)}
    links[first].send([b"last words"])
    leaving = threading.Thread(target=network.leave, args=(first,), daemon=True)
    leaving.start()
    assert receive(links[other]) == [b"last words"]
    network.leave(other)
    leaving.join(20)
    assert not leaving.is_alive()


def test_who_never_met_the_one_that_left_learns_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.transport.grpc.loopback._UP_SECONDS", 0.1)
    monkeypatch.setattr(GrpcLink, "begin_stream", lambda _: -1)
    network = LoopbackNetwork(["a", "b"])
    left, right = network.link("a", "b"), network.link("b", "a")
    assert left is not None
    network.leave("a")
    (lost,) = receive(right)
    assert "left the run before 'b' could reach it" in str(lost)
    network.leave("b")


def test_every_frame_that_arrives_is_shown_to_the_tap() -> None:
    seen: list[tuple[str, str, bytes]] = []
    network = LoopbackNetwork(["a", "b"], tap=lambda *facts: seen.append(facts))
    left, right = network.link("a", "b"), network.link("b", "a")
    left.send([b"one", b"two"])
    assert receive(right) == [b"onetwo"]
    assert seen == [("a", "b", b"onetwo")]
    network.stop("over")
    for party in ("a", "b"):
        network.leave(party)
