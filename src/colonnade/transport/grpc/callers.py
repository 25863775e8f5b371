"""Callers at a listening port: partners stay, and of those that have not proved to be one only so many.

Whoever reaches the port costs a descriptor, and without descriptors this process can neither write its run folder nor
hear its partners. So grpc hangs up on new callers at `Callers.limit`. Long before that we end some of those that have
not proved who they are, chosen by `surplus`, so that a partner finds room however many strangers call.

grpc neither tells which connections it holds nor ends one when asked. But they are sockets of this process: those whose
own port is the one that listens. One that is shut down looks to grpc like a caller that hung up.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import random
import socket
import stat
import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TypeVar
from urllib.parse import unquote

__all__ = ["Callers", "most_unproved", "network_of", "surplus"]

Caller = TypeVar("Caller")
_Place = tuple[bytes, int]

# Which to end must not be foreseen by who wants to stay.
_LOT = random.SystemRandom()
_MOST_UNPROVED = 256
_LEAST_UNPROVED = 8


def most_unproved() -> int:
    """Return how many callers may be held that have not proved who they are: an eighth of all descriptors, or fewer."""
    try:
        import resource
    except ImportError:  # on Windows
        return _MOST_UNPROVED
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if descriptors == resource.RLIM_INFINITY:
        return _MOST_UNPROVED
    return max(_LEAST_UNPROVED, min(_MOST_UNPROVED, descriptors // 8))


def network_of(host: str) -> bytes:
    """Return what one caller can hardly have many of: an address, or the first half of one in IPv6."""
    return _packed(host)[:8]


def surplus(callers: Mapping[Caller, bytes], most: int) -> list[Caller]:
    """Choose who has to go so that ``most`` stay, given the network of each.

    Always the network with the most callers gives one up, drawn by lot. So a crowd at one address does not push out a
    partner at another, and a partner in the crowd's own network is as likely to stay as any of them.
    """
    order = list(callers)
    _LOT.shuffle(order)
    before: Counter[bytes] = Counter()
    place: dict[Caller, int] = {}
    for caller in order:
        place[caller] = before[callers[caller]]
        before[callers[caller]] += 1
    return sorted(order, key=place.__getitem__)[most:]


class Callers:
    """All connections to one listening port of this process."""

    def __init__(self, partners: Iterable[str], per_partner: int) -> None:
        """Hold at most so many connections of each partner, and some of callers that have not proved who they are."""
        self.port: int | None = None
        self._most = self._room = most_unproved()
        self._per_partner = per_partner
        self._proved: dict[str, list[_Place]] = {partner: [] for partner in partners}
        self.limit = 2 * self._most + per_partner * len(self._proved)
        """How many connections there may be in all, those included that have ended but are not yet cleared away."""
        self._lock = threading.Lock()

    def note_arrival(self) -> None:
        """Make room if callers that have not proved who they are may have become too many."""
        with self._lock:
            self._room -= 1
            if self._room <= 0:
                # Without a free descriptor we cannot look; then we do so at the next arrival.
                with suppress(OSError):
                    self._make_room()

    def prove(self, partner: str, peer: str) -> None:
        """Note that this is a partner's connection, named as grpc does; of each partner the first that stand count."""
        host, _, port = unquote(peer).partition(":")[2].rpartition(":")
        place = (_packed(host.strip("[]")), int(port))
        with self._lock:
            if place not in self._proved[partner]:
                self._proved[partner].append(place)

    def _make_room(self) -> None:
        """Keep half as many as there may be, so that this need not be done at every arrival."""
        descriptors = map(int, os.listdir("/dev/fd"))
        held = {descriptor: place for descriptor in descriptors if (place := self._caller_at(descriptor))}
        standing = set(held.values())
        for places in self._proved.values():
            # One that has ended must not protect who gets its address and port next, nor push out one that stands.
            places[:] = [place for place in places if place in standing][: self._per_partner]
        proved = {place for places in self._proved.values() for place in places}
        unproved = {descriptor: place for descriptor, place in held.items() if place not in proved}
        networks = {descriptor: place[0][:8] for descriptor, place in unproved.items()}
        for descriptor in surplus(networks, self._most // 2):
            self._caller_at(descriptor, unwanted=unproved[descriptor])
        self._room = self._most - min(len(unproved), self._most // 2)

    def _caller_at(self, descriptor: int, unwanted: _Place | None = None) -> _Place | None:
        """Return who calls, if this is one of the connections, and hang up on who is unwanted."""
        try:
            # A copy: grpc may close the descriptor at any moment, and it may then stand for something else.
            copy = os.dup(descriptor)
        except OSError as error:
            if error.errno != errno.EBADF:
                raise
            return None
        if not stat.S_ISSOCK(os.fstat(copy).st_mode):
            os.close(copy)
            return None
        with socket.socket(fileno=copy) as connection:
            if connection.family not in (socket.AF_INET, socket.AF_INET6):
                return None
            try:
                own, peer = connection.getsockname(), connection.getpeername()
                if own[1] != self.port:
                    return None
                place = (_packed(peer[0]), int(peer[1]))
                if place == unwanted:
                    connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                return None  # the one that listens, or one that has ended
            return place


def _packed(host: str) -> bytes:
    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed
