from __future__ import annotations

import errno
import os
import resource
import socket
from collections import Counter
from collections.abc import Iterator

import pytest

from colonnade.transport.grpc import callers as callers_module
from colonnade.transport.grpc.callers import Callers, most_unproved, network_of, surplus

PARTNER, STRANGER = network_of("192.0.2.1"), network_of("198.51.100.7")


class Port:
    """A port that accepts everybody, as grpc does, and asks `Callers` each time."""

    def __init__(self, host: str, callers: Callers) -> None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._listener = socket.create_server((host, 0), family=family, backlog=512, dualstack_ipv6=host == "::")
        callers.port = self._listener.getsockname()[1]
        self._callers, self._held = callers, [self._listener]

    def bind(self, host: str) -> socket.socket:
        outer = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        outer.bind((host, 0))
        self._held.append(outer)
        return outer

    def call(self, host: str, outer: socket.socket | None = None) -> socket.socket:
        outer = outer or self.bind(host)
        outer.connect((host, self._callers.port or 0))
        inner, _ = self._listener.accept()
        self._held.append(inner)
        self._callers.note_arrival()
        return outer

    def hang_up(self) -> None:
        """End the last call."""
        self._held.pop().close()

    def close(self) -> None:
        for one in self._held:
            one.close()


@pytest.fixture(params=[("127.0.0.1", "127.0.0.1"), ("::1", "::1"), ("::", "127.0.0.1")], ids=lambda pair: pair[0])
def port(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Port, Callers, str]]:
    monkeypatch.setattr(callers_module, "most_unproved", lambda: 16)
    callers = Callers(["a"], 4)
    host, reached = request.param
    try:
        port = Port(host, callers)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    yield port, callers, reached
    port.close()


def is_open(outer: socket.socket) -> bool:
    outer.settimeout(0.01)
    try:
        return outer.recv(1) != b""
    except TimeoutError:
        return True


def named_as_grpc_does(outer: socket.socket) -> str:
    host, port, *_ = outer.getsockname()
    return f"ipv6:%5B{host}%5D:{port}" if ":" in host else f"ipv4:{host}:{port}"


def test_a_crowd_at_one_address_pushes_out_nobody_at_another() -> None:
    for _ in range(20):
        crowd = {f"stranger {number}": STRANGER for number in range(500)} | {"partner": PARTNER}
        gone = surplus(crowd, 8)
        assert len(gone) == 493
        assert "partner" not in gone


def test_crowds_at_several_addresses_keep_equally_many() -> None:
    crowd = {(place, number): bytes([place]) for place in range(3) for number in range(10 * (place + 1))}
    gone = surplus(crowd, 24)
    assert Counter(place for place, _ in crowd.keys() - set(gone)) == {0: 8, 1: 8, 2: 8}


def test_within_an_address_the_lot_decides() -> None:
    stayed: Counter[int] = Counter()
    for _ in range(200):
        crowd = dict.fromkeys(range(8), STRANGER)
        stayed.update(crowd.keys() - set(surplus(crowd, 4)))
    assert all(stayed[number] > 40 for number in range(8)), "neither the first nor the last is always lost"


def test_nobody_has_to_go_while_there_is_room() -> None:
    assert surplus(dict.fromkeys(range(8), STRANGER), 8) == []


def test_a_network_is_an_address_or_half_of_one() -> None:
    assert network_of("192.0.2.1") != network_of("192.0.2.2")
    assert network_of("::ffff:192.0.2.1") == network_of("192.0.2.1")
    assert network_of("2001:db8::1") == network_of("2001:db8::2:3")
    assert network_of("2001:db8::1") != network_of("2001:db8:0:1::1")
    assert network_of("fe80::1%eth0") == network_of("fe80::2%eth1")


@pytest.mark.parametrize(
    ("limit", "most"),
    [(1, 8), (64, 8), (256, 32), (1024, 128), (2048, 256), (10**6, 256), (resource.RLIM_INFINITY, 256)],
)
def test_strangers_get_an_eighth_of_the_descriptors(monkeypatch: pytest.MonkeyPatch, limit: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert most_unproved() == most


def test_those_that_have_not_proved_who_they_are_stay_few(port: tuple[Port, Callers, str]) -> None:
    door, callers, host = port
    before = len(os.listdir("/dev/fd"))
    partner = door.call(host)
    callers.prove("a", named_as_grpc_does(partner))
    strangers = [door.call(host) for _ in range(200)]
    assert len(os.listdir("/dev/fd")) == before + 2 * 201, "looking takes no descriptors"
    assert sum(map(is_open, strangers)) <= 16
    assert is_open(partner)
    assert is_open(strangers[-1]) or callers._room == 8, "who came last is not always the one to go"


def test_of_each_partner_only_the_first_connections_count(port: tuple[Port, Callers, str]) -> None:
    door, callers, host = port
    many = [door.call(host) for _ in range(10)]
    for _ in range(2):  # several calls over one connection count once
        for one in many:
            callers.prove("a", named_as_grpc_does(one))
    for _ in range(200):
        door.call(host)
    assert all(map(is_open, many[:4]))
    assert not all(map(is_open, many[4:]))


def test_connections_that_have_ended_take_no_place_of_those_that_stand(port: tuple[Port, Callers, str]) -> None:
    door, callers, host = port
    first = door.call(host)
    callers.prove("a", named_as_grpc_does(first))
    for _ in range(10):
        with door.call(host) as brief:
            callers.prove("a", named_as_grpc_does(brief))
            door.hang_up()
    last = door.call(host)
    callers.prove("a", named_as_grpc_does(last))
    for _ in range(200):
        door.call(host)
    assert is_open(first)
    assert is_open(last)


def test_a_connection_that_has_ended_does_not_protect_who_gets_its_address_and_port(
    port: tuple[Port, Callers, str],
) -> None:
    door, callers, host = port
    stranger = door.bind(host)
    callers.prove("a", named_as_grpc_does(stranger))  # a partner's, that is gone by now
    for _ in range(20):
        door.call(host)
    door.call(host, stranger)
    for _ in range(200):
        door.call(host)
    assert not is_open(stranger)


def test_without_a_free_descriptor_no_partner_is_forgotten(
    port: tuple[Port, Callers, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Connections that cannot be looked at have not ended; they are looked at when the next caller arrives."""

    def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    door, callers, host = port
    partner = door.call(host)
    callers.prove("a", named_as_grpc_does(partner))
    strangers = []
    for name in ("dup", "listdir"):
        with monkeypatch.context() as patch:
            patch.setattr(callers_module.os, name, fail)
            strangers += [door.call(host) for _ in range(40)]
    strangers += [door.call(host) for _ in range(200)]
    assert is_open(partner)
    assert sum(map(is_open, strangers)) <= 16


def test_connections_to_other_ports_are_left_alone(port: tuple[Port, Callers, str]) -> None:
    door, _, host = port
    pair = socket.socketpair()
    other = Port("127.0.0.1", Callers([], 0))
    outside = [other.call("127.0.0.1") for _ in range(5)]
    for _ in range(200):
        door.call(host)
    assert all(map(is_open, [*outside, *pair]))
    other.close()
    for one in pair:
        one.close()
