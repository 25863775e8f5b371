"""All parties in one process, but over real gRPC and TLS on loopback, each with a throw-away certificate."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from colonnade.messages import Part
from colonnade.transport.grpc.certificates import make_identity
from colonnade.transport.grpc.endpoint import Endpoint, Partner
from colonnade.transport.grpc.link import GrpcLink
from colonnade.transport.link import BodyDigest, Tap

__all__ = ["LoopbackNetwork", "TappedLink"]

_UP_SECONDS = 5.0


class LoopbackNetwork:
    """Connect named parties of one process through their own doors; a `Network`."""

    def __init__(self, parties: Iterable[str], *, tap: Tap | None = None) -> None:
        names = list(parties)
        identities = {name: make_identity(name) for name in names}
        self._tap = tap
        self._left: set[str] = set()
        self._endpoints: dict[str, Endpoint] = {}
        self._links: dict[str, list[GrpcLink]] = {name: [] for name in names}
        # The first by name dials, so doors open from the last to the first and each knows where the later ones are.
        for name in sorted(names, reverse=True):
            partners = {
                peer: Partner(peer, identities[peer].certificate, self._address(peer)) for peer in names if peer != name
            }
            endpoint = self._endpoints[name] = Endpoint(identities[name], partners, "127.0.0.1:0")
            endpoint.open()

    def link(self, party: str, peer: str) -> TappedLink:
        """Return this party's end of the line to the peer."""
        link = self._endpoints[party].link(peer)
        self._links[party].append(link)
        return TappedLink(link, self._tap)

    def leave(self, party: str) -> None:
        """Let what was sent arrive, say goodbye and close the party's door."""
        self._left.add(party)
        for link in self._links[party]:
            # Who stops at once may be faster than the line, and its last words must still arrive.
            if link.peer not in self._left:
                link.wait_until_up(_UP_SECONDS)
            link.close()
        self._endpoints[party].close()
        self._tell_who_never_met(party)

    def stop(self, reason: str) -> None:
        """End the run for everyone."""
        for links in self._links.values():
            for link in links:
                link.lose(reason)

    def _tell_who_never_met(self, party: str) -> None:
        for links in self._links.values():
            for link in links:
                if link.peer == party and not link.is_up:
                    link.lose(f"'{party}' left the run before '{link.party}' could reach it.")

    def _address(self, peer: str) -> str | None:
        return f"127.0.0.1:{self._endpoints[peer].port}" if peer in self._endpoints else None


class TappedLink:
    """A link that shows every frame it receives to a tap."""

    def __init__(self, link: GrpcLink, tap: Tap | None) -> None:
        self._link, self._tap = link, tap

    def send(self, parts: Sequence[Part], body_digest: bytes | None = None) -> None:
        """Send one frame."""
        self._link.send(parts, body_digest)

    def receive(self, digest: BodyDigest | None = None) -> bytearray | memoryview:
        """Wait for the next frame."""
        frame = self._link.receive(digest)
        if self._tap is not None:
            self._tap(self._link.peer, self._link.party, bytes(frame))
        return frame
