"""A party's door: listens for partners, dials partners, and knows each by its pinned certificate only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from colonnade.errors import ConfigError, FrameRefused, PeerLost
from colonnade.transport.grpc.callers import Callers
from colonnade.transport.grpc.certificates import Identity, check_certificate, fingerprint, server_name
from colonnade.transport.grpc.link import GrpcLink
from colonnade.transport.grpc.succession import successor_in
from colonnade.transport.grpc.tls import grpc

__all__ = ["Endpoint", "Partner", "Renewals"]

_SERVICE, _EXCHANGE, _RENEW = "colonnade.Line", "Exchange", "Renew"
_RENEWAL_SECONDS = 5.0
_LARGEST_RENEWAL = 16 * 1024
_RETRY_SECONDS = 0.2
# One that works, and some whose connections are dead but not yet given up by the system.
_CALLS_PER_PARTNER = 16
# How long a caller may take to prove who it is; a slow line needs some.
_HANDSHAKE_SECONDS = 10.0
# How long who should not dial waits for who should.
_SECOND_SECONDS = 3.0
# The first that fits counts.
_REASONS = {
    "Connection refused": "nothing listens there yet",
    "address lookup failed": "its host name is unknown",
    "certificate has expired": "its certificate has expired",
    "certificate is not yet valid": "its certificate is not valid yet; check the clocks",
    "CERTIFICATE_VERIFY_FAILED": "it shows another certificate than the one that is paired",
    "WRONG_VERSION_NUMBER": "what answers there does not speak TLS",
    "Tls handshake failed": "it does not speak TLS 1.3 as colonnade does",
    "Ssl handshake failed": "it does not speak TLS 1.3 as colonnade does",
    "Socket closed": "it refuses our certificate, or closed the connection",
    "Connection reset": "it refuses our certificate, or closed the connection",
    "Broken pipe": "it refuses our certificate, or closed the connection",
    "Endpoint closing": "it takes the call but says nothing",
    "timed out": "it does not answer; a firewall may be in the way",
    "Network is unreachable": "its network is unreachable",
    "No route to host": "there is no route to it",
}
_OPTIONS: list[tuple[str, Any]] = [
    ("grpc.max_receive_message_length", 2**20),
    ("grpc.max_send_message_length", 2**20),
    ("grpc.so_reuseport", 0),
    ("grpc.enable_retries", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 5000),  # also the time a handshake may take; a slow line needs it
    ("grpc.max_reconnect_backoff_ms", 300),
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.use_local_subchannel_pool", 1),
]


@dataclass(frozen=True)
class Partner:
    """Another party, as we know it: its pinned certificate and, where we can reach it, its address."""

    name: str
    certificate: bytes
    address: str | None = None
    previous: bytes | None = None
    """The certificate before a succession, good until the new one has been seen."""


class Renewals(Protocol):
    """Passes on certificates that follow a party's present one, each signed by the present key."""

    def own(self) -> bytes:
        """Return the statement that names our next certificate, or nothing."""

    def accept(self, peer: str, statement: bytes) -> bool:
        """Pin a partner's next certificate, if its statement is good."""

    def delivered(self, peer: str) -> None:
        """Note that a partner has pinned our next certificate."""

    def seen(self, peer: str) -> None:
        """Note that a partner uses its newest certificate."""


class Endpoint:
    """One party's end of all its lines."""

    def __init__(
        self,
        identity: Identity,
        partners: Mapping[str, Partner],
        listen: str | None = None,
        *,
        renewals: Renewals | None = None,
    ) -> None:
        """Check all certificates; nothing is opened yet.

        Of two parties that can both reach each other the one whose name comes first dials; the other does so only if
        that has not worked for a while. A party that does not listen always dials.
        """
        check_certificate(identity.certificate, identity.name)
        for partner in partners.values():
            check_certificate(partner.certificate, partner.name)
        self._identity, self._partners, self._listen = identity, dict(partners), listen
        self._renewals = renewals
        self._links: dict[str, GrpcLink] = {}
        self._lock = threading.Condition()
        self._server: grpc.Server | None = None
        self._callers = Callers(self._partners, _CALLS_PER_PARTNER)
        self._told = b""
        self._is_closed = False
        self.port: int | None = None
        self.trouble: dict[str, str] = {}
        """The last reason why a partner could not be reached, for status lines."""

    def open(self) -> None:
        """Begin to listen, if this party listens at all."""
        if self._listen is None:
            return
        credentials = grpc.dynamic_ssl_server_credentials(
            self._trusted(), self._trusted_anew, require_client_authentication=True
        )
        options = [
            *_OPTIONS,
            ("grpc.max_allowed_incoming_connections", self._callers.limit),
            ("grpc.server_handshake_timeout_ms", int(1000 * _HANDSHAKE_SECONDS)),
        ]
        # Few calls at once are enough, and a partner's broken programme cannot fill this process with threads.
        self._server = grpc.server(
            _Threads(), options=options, maximum_concurrent_rpcs=_CALLS_PER_PARTNER * len(self._partners) + 1
        )
        handlers = {
            _EXCHANGE: grpc.stream_stream_rpc_method_handler(self._answer),
            _RENEW: grpc.unary_unary_rpc_method_handler(self._answer_renewal),
        }
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
        try:
            self.port = self._callers.port = self._server.add_secure_port(self._listen, credentials)
        except RuntimeError:
            raise ConfigError(
                f"'{self._identity.name}' cannot listen on {self._listen}: the address is taken or not this machine's. "
                "Change listen in party.toml, or stop what uses it."
            ) from None
        self._server.start()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def learn_address(self, peer: str, address: str) -> None:
        """Note where a partner is reached; lines begun from now on use it."""
        self._partners[peer] = replace(self._partners[peer], address=address)

    def link(self, peer: str, *, dials: bool | None = None) -> GrpcLink:
        """Begin a new line to a partner; the line before it, if any, ends.

        ``dials`` overrules who dials, for those who try a line in both directions.
        """
        partner = self._partners[peer]
        link = GrpcLink(self._identity.name, peer)
        with self._lock:
            before = self._links.get(peer)
            self._links[peer] = link
            self._lock.notify_all()
        if before is not None:
            before.lose("A new attempt began.")
        is_second = dials is None and self._listen is not None and self._identity.name > peer
        if partner.address is not None and dials is not False:
            facts = (partner, link, _SECOND_SECONDS if is_second else 0.0)
            threading.Thread(target=self._dial, args=facts, name=f"dial {peer}", daemon=True).start()
        return link

    def close(self) -> None:
        """End all lines and stop listening."""
        self._is_closed = True
        for link in self._links.values():
            link.lose(f"'{self._identity.name}' closed its door.")
        if self._server is not None:
            # A call to a dead peer cannot end before the system gives up its connection, which it does without us.
            self._server.stop(grace=_RETRY_SECONDS).wait(2 * _RETRY_SECONDS)

    def _pinned(self) -> bytes:
        return b"".join(pem for one in self._partners.values() for pem in _certificates_of(one))

    def _trusted(self) -> Any:
        self._told = self._pinned()
        return grpc.ssl_server_certificate_configuration(
            [(self._identity.key, self._identity.certificate)], root_certificates=self._told
        )

    def _trusted_anew(self) -> Any:
        """Return whom to trust if that has changed since it was last asked; grpc asks at every new connection.

        A partner may renew its certificate while we listen. Whatever is returned replaces what grpc shakes hands with,
        and grpc frees the old at once: a connection that has asked but not yet begun would use freed memory and bring
        the process down (grpc/grpc#36693), so that a stranger could, by calling twice at once. Hence nothing is
        returned without need, and then only when those connections have had time to begin: others wait for our answer.
        """
        self._callers.note_arrival()
        if self._told == self._pinned():
            return None
        time.sleep(_RETRY_SECONDS)
        return self._trusted()

    def _channel_to(self, partner: Partner) -> grpc.Channel:
        credentials = grpc.ssl_channel_credentials(
            root_certificates=b"".join(_certificates_of(partner)),
            private_key=self._identity.key,
            certificate_chain=self._identity.certificate,
        )
        options = [*_OPTIONS, ("grpc.ssl_target_name_override", server_name(partner.name))]
        return grpc.secure_channel(str(partner.address), credentials, options=options)

    def _dial(self, partner: Partner, link: GrpcLink, after_seconds: float) -> None:
        with self._channel_to(partner) as channel:
            exchange = channel.stream_stream(f"/{_SERVICE}/{_EXCHANGE}")
            is_renewed = self._renewals is None
            while not link.is_over and not self._is_closed:
                if not link.wait_until_idle(after_seconds):
                    continue
                is_renewed = is_renewed or self._renew(partner, channel)
                stream = link.begin_stream()
                calls: list[Any] = []
                calls.append(exchange(self._speak(link, stream, calls)))
                self._follow(link, stream, calls[0])
                link.check_alive()
                time.sleep(_RETRY_SECONDS)

    def _speak(self, link: GrpcLink, stream: int, calls: Sequence[Any]) -> Iterator[bytes]:
        yield from link.outgoing(stream)
        # A silent peer would keep the listening half waiting long after the link is over. The last chunk gets a moment.
        time.sleep(_RETRY_SECONDS)
        for call in calls:
            call.cancel()

    def _follow(self, link: GrpcLink, stream: int, chunks: Any) -> None:
        try:
            link.incoming(stream, chunks)
        except FrameRefused as refused:
            link.lose(str(refused), FrameRefused)
        except MemoryError:
            link.lose(f"'{link.party}' has not enough memory for what '{link.peer}' sends.")
        except grpc.RpcError as error:
            self.trouble[link.peer] = _reason(error)
        finally:
            link.end_stream(stream)
            if hasattr(chunks, "cancel"):
                if link.is_over:
                    time.sleep(_RETRY_SECONDS)  # a cancelled call throws away even a BYE that has already arrived
                chunks.cancel()

    def _answer(self, chunks: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        peer = self._name_of_caller(context)
        if peer is None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "")
        link = self._current_link(str(peer))
        if link is None:
            context.abort(grpc.StatusCode.UNAVAILABLE, "")
            raise PeerLost("unreachable")
        stream = link.begin_stream()
        reader = threading.Thread(target=self._follow, args=(link, stream, chunks), name=f"hear {peer}", daemon=True)
        reader.start()
        yield from link.outgoing(stream)

    def _renew(self, partner: Partner, channel: grpc.Channel) -> bool:
        """Exchange news of next certificates with a partner we dial; tell whether that got through."""
        renewals, peer = self._renewals, partner.name
        if renewals is None:
            return True
        ask = channel.unary_unary(f"/{_SERVICE}/{_RENEW}")
        try:
            reply = bytes(ask(b"\0" + renewals.own(), timeout=_RENEWAL_SECONDS))
            if reply[:1] == b"\1":
                renewals.delivered(peer)
            if self._accept(peer, reply[1:]):
                ask(b"\1", timeout=_RENEWAL_SECONDS)
        except grpc.RpcError as error:
            self.trouble[peer] = _reason(error)
            return False
        if partner.previous is not None:
            self._look_for_newest(partner)
        return True

    def _look_for_newest(self, partner: Partner) -> None:
        """Call once more, trusting the newest certificate only: a client is not told which one the server showed."""
        with self._channel_to(replace(partner, previous=None)) as channel:
            try:
                channel.unary_unary(f"/{_SERVICE}/{_RENEW}")(b"\0", timeout=_RENEWAL_SECONDS)
            except grpc.RpcError:
                return
        self._note_seen(partner.name)

    def _accept(self, peer: str, statement: bytes) -> bool:
        """Trust a partner's next certificate beside its present one, if the present key vouches for it."""
        if self._renewals is None or not 0 < len(statement) < _LARGEST_RENEWAL:
            return False
        if not self._renewals.accept(peer, statement):
            return False
        new, partner = successor_in(statement)[1], self._partners[peer]
        if fingerprint(new) != fingerprint(partner.certificate):
            self._partners[peer] = replace(partner, certificate=new, previous=partner.certificate)
        return True

    def _note_seen(self, peer: str) -> None:
        """Trust a partner's previous certificate no more."""
        self._partners[peer] = replace(self._partners[peer], previous=None)
        if self._renewals is not None:
            self._renewals.seen(peer)

    def _answer_renewal(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        peer = self._name_of_caller(context)
        if peer is None:
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "")
        renewals = self._renewals
        if renewals is None or peer is None:
            return b"\0"
        if request[:1] == b"\1":
            renewals.delivered(peer)
        return (b"\1" if self._accept(peer, request[1:]) else b"\0") + renewals.own()

    def _name_of_caller(self, context: grpc.ServicerContext) -> str | None:
        """Return the partner whose pinned certificate the caller proved to own; nothing else counts."""
        found = context.auth_context().get("x509_pem_cert", [])
        if len(found) != 1:
            return None
        shown = fingerprint(found[0])
        for partner in self._partners.values():
            is_newest = shown == fingerprint(partner.certificate)
            if is_newest or (partner.previous is not None and shown == fingerprint(partner.previous)):
                self._callers.prove(partner.name, context.peer())
                if is_newest and partner.previous is not None:
                    self._note_seen(partner.name)
                return partner.name
        return None

    def _current_link(self, peer: str) -> GrpcLink | None:
        with self._lock:
            return self._links.get(peer) if self._lock.wait_for(lambda: self._is_alive(peer), 3.0) else None

    def _is_alive(self, peer: str) -> bool:
        link = self._links.get(peer)
        return link is not None and not link.is_over


def _certificates_of(partner: Partner) -> list[bytes]:
    return [partner.certificate] if partner.previous is None else [partner.certificate, partner.previous]


def _reason(error: grpc.RpcError) -> str:
    """Say in words why a partner cannot be reached, as far as grpc knows."""
    details = str(getattr(error, "details", lambda: "")() or "")
    return next((words for part, words in _REASONS.items() if part in details), "the connection broke")


class _Threads(Executor):
    """Runs each call in a thread of its own, which does not keep the process from ending.

    The usual pool waits for its threads at the end of the process, and a call to a dead peer ends late.
    """

    def submit(self, action: Callable[..., Any], /, *facts: Any, **named: Any) -> Future[Any]:
        """Run a call."""
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(action(*facts, **named))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=run, name="line", daemon=True).start()
        return future
