"""Everything that may be wrong when two parties meet: each is refused in its own words, and a stranger gets no byte.

Who is refused by TLS learns nothing, not even why; then the words are at the side that can know them. All doors are
real ones on loopback.
"""

from __future__ import annotations

import dataclasses
import datetime
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from tests.unit.session import toys
from tests.unit.session.toys import Answer, Ask
from tests.unit.transport.grpc.test_endpoint import certificate_of, usage

from colonnade.errors import ColonnadeError, ConfigError, FrameRefused, HandshakeRefused, PeerLost
from colonnade.ledger import LedgerWriter
from colonnade.messages import PLAIN, message
from colonnade.session import Alignment, Evaluate, Method, Participant, RunPlan, Session, handshake
from colonnade.session.control import AgreedField, Hello
from colonnade.transport.grpc import (
    Endpoint,
    GrpcLink,
    Identity,
    LoopbackNetwork,
    Partner,
    chunks,
    make_identity,
    server_name,
)
from colonnade.transport.grpc import endpoint as endpoint_module
from colonnade.transport.grpc.chunks import NOBODY, Opening

import grpc  # isort: skip  # after colonnade, which sets the ciphers

pytestmark = pytest.mark.timeout(60)

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
EXCHANGE, RENEW = "/colonnade.Line/Exchange", "/colonnade.Line/Renew"
# How HTTP/2 begins: what a client says first, and an empty SETTINGS.
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SOON = 10.0
A, B, C = (make_identity(name) for name in "abc")


@pytest.fixture(scope="module")
def doors() -> Iterator[list[Endpoint]]:
    opened: list[Endpoint] = []
    yield opened
    for endpoint in opened:
        endpoint.close()


@pytest.fixture(scope="module")
def host(doors: list[Endpoint]) -> Endpoint:
    """The door of b, who is paired with a and c and waits for both."""
    endpoint = Endpoint(B, {one.name: Partner(one.name, one.certificate) for one in (A, C)}, "127.0.0.1:0")
    endpoint.open()
    doors.append(endpoint)
    return endpoint


@pytest.fixture
def lines(host: Endpoint) -> dict[str, GrpcLink]:
    return {name: host.link(name) for name in ("a", "c")}


def dialled(doors: list[Endpoint], own: Identity, partner: Identity, port: int | None) -> Endpoint:
    endpoint = Endpoint(own, {partner.name: Partner(partner.name, partner.certificate, f"127.0.0.1:{port}")})
    doors.append(endpoint)
    return endpoint


def wait_for(fact: Callable[[], Any]) -> Any:
    limit = time.monotonic() + SOON
    while not (found := fact()):
        assert time.monotonic() < limit, "nothing came"
        time.sleep(0.01)
    return found


# --- certificates that no door opens with -------------------------------------------------------------------------


def authority(**changed: Any) -> Identity:
    return certificate_of("b", basics=x509.BasicConstraints(ca=True, path_length=None), **changed)


def doubled() -> Identity:
    own = make_identity("b")
    return dataclasses.replace(own, certificate=own.certificate + make_identity("b").certificate)


LOADED: dict[str, tuple[Callable[[], Identity], str]] = {
    "expired": (lambda: certificate_of("b", starts=NOW - 9 * DAY), "has expired"),
    "not yet valid": (lambda: certificate_of("b", starts=NOW + DAY), "is not valid yet"),
    "another party's name": (lambda: make_identity("c"), "is that of 'c', not of 'b'"),
    "signed by another party's key": (lambda: certificate_of("b", issuer=C), "not signed by its own key"),
    "an authority": (authority, "is that of an authority"),
    "RSA, too short": (lambda: certificate_of("b", key=rsa.generate_private_key(65537, 1024)), "RSA with 1024 bits"),
    "RSA": (lambda: certificate_of("b", key=rsa.generate_private_key(65537, 2048)), "RSA with 2048 bits"),
    "P-384": (lambda: certificate_of("b", key=ec.generate_private_key(ec.SECP384R1())), "curve secp384r1"),
    "P-521": (lambda: certificate_of("b", key=ec.generate_private_key(ec.SECP521R1())), "curve secp521r1"),
    "secp256k1": (lambda: certificate_of("b", key=ec.generate_private_key(ec.SECP256K1())), "curve secp256k1"),
    "Ed25519": (lambda: certificate_of("b", key=ed25519.Ed25519PrivateKey.generate()), "of another kind"),
    "no key usage": (lambda: certificate_of("b", usage=None), "for another use than handshakes"),
    "not for both ends": (lambda: certificate_of("b", ends=None), "not for both ends"),
    "another host name": (lambda: certificate_of("b", host=server_name("c")), "does not carry the host name"),
    "two certificates": (doubled, "one certificate and nothing else"),
    "no certificate": (
        lambda: Identity("b", B.key, b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
        "should hold a certificate does not",
    ),
}


@pytest.mark.parametrize("kind", LOADED)
def test_a_bad_certificate_is_refused_before_a_door_opens(kind: str) -> None:
    made, words = LOADED[kind]
    bad = made()
    with pytest.raises(ConfigError, match=words):
        Endpoint(dataclasses.replace(bad, name="b"), {"a": Partner("a", A.certificate)}, "127.0.0.1:0")
    with pytest.raises(ConfigError, match=words):
        Endpoint(A, {"b": Partner("b", bad.certificate, "127.0.0.1:1")})


def test_a_certificate_that_signs_others_is_refused_as_one() -> None:
    with pytest.raises(ConfigError, match="for another use than handshakes"):
        Endpoint(A, {"b": Partner("b", certificate_of("b", usage=usage(key_cert_sign=True)).certificate)})


def test_a_name_that_plays_two_roles_is_refused() -> None:
    with pytest.raises(ConfigError, match="plays two roles"):
        RunPlan(name="run", method="toy", roles={"lead": ("a",), "helper": ("b", "a")})


# --- strangers at a door ------------------------------------------------------------------------------------------


def chained() -> Identity:
    """A certificate for a, signed by the pinned key of c, and shown with c's certificate behind it."""
    leaf = certificate_of("a", issuer=C)
    return dataclasses.replace(leaf, certificate=leaf.certificate + C.certificate)


STRANGERS: dict[str, Callable[[], Identity | None]] = {
    "no certificate": lambda: None,
    "unknown": lambda: make_identity("d"),
    "right name, other key": lambda: make_identity("a"),
    "expired": lambda: certificate_of("a", starts=NOW - 9 * DAY),
    "not yet valid": lambda: certificate_of("a", starts=NOW + DAY),
    "signed by a pinned key": lambda: certificate_of("a", issuer=C),
    "a chain through a pinned certificate": chained,
    "an authority": lambda: certificate_of("a", basics=x509.BasicConstraints(ca=True, path_length=None)),
    "RSA": lambda: certificate_of("a", key=rsa.generate_private_key(65537, 2048)),
    "P-384": lambda: certificate_of("a", key=ec.generate_private_key(ec.SECP384R1())),
    "P-521": lambda: certificate_of("a", key=ec.generate_private_key(ec.SECP521R1())),
    "Ed25519": lambda: certificate_of("a", key=ed25519.Ed25519PrivateKey.generate()),
}


def client(own: Identity | None, folder: Path, *, highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, highest
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=B.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if own is not None:
        context.load_cert_chain(*kept(own, folder))
    return context


def kept(identity: Identity, folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    certificate.write_bytes(identity.certificate)
    key.write_bytes(identity.key)
    return certificate, key


def heard_by(port: int | None, context: ssl.SSLContext) -> bytes:
    """Return every byte of HTTP that the door says to a client until it closes; TLS's own records do not count."""
    heard = b""
    with (
        suppress(ssl.SSLError, ConnectionError),
        socket.create_connection(("127.0.0.1", port or 0), SOON) as plain,
        context.wrap_socket(plain, server_hostname=server_name("b")) as secure,
    ):
        secure.sendall(HTTP2)
        while more := secure.recv(1024):
            heard += more
            if len(heard) > 9:
                break
    return heard


def called_as(port: int | None, own: Identity | None) -> grpc.Channel:
    credentials = grpc.ssl_channel_credentials(
        B.certificate, own.key if own else None, own.certificate if own else None
    )
    options = [("grpc.ssl_target_name_override", server_name("b")), ("grpc.use_local_subchannel_pool", 1)]
    return grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=options)


def answers_to(method: str, port: int | None, own: Identity | None) -> tuple[list[bytes], Any]:
    """Return the messages that a call gets, and how it ends."""
    answers: list[bytes] = []
    with called_as(port, own) as channel:
        call = channel.stream_stream(method)(iter([b"\0hello"]), timeout=SOON)
        with suppress(grpc.RpcError):
            answers += call
        return answers, call


def test_a_partner_hears_http_so_the_silence_below_means_something(
    host: Endpoint, lines: dict[str, GrpcLink], tmp_path: Path
) -> None:
    assert heard_by(host.port, client(A, tmp_path))[3:4] == b"\x04", "SETTINGS"


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_hears_no_byte(kind: str, host: Endpoint, lines: dict[str, GrpcLink], tmp_path: Path) -> None:
    """In TLS 1.3 a client is done before its certificate was looked at, so what counts is what comes next."""
    assert heard_by(host.port, client(STRANGERS[kind](), tmp_path)) == b""
    for link in lines.values():
        assert not link.is_up
        assert not link.is_over, "a stranger disturbs nobody's line"


@pytest.mark.parametrize("kind", STRANGERS)
@pytest.mark.parametrize("method", [EXCHANGE, RENEW])
def test_a_strangers_call_gets_no_message(
    method: str, kind: str, host: Endpoint, lines: dict[str, GrpcLink], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(host, "_name_of_caller", lambda context: asked.append(context))
    answers, refused = answers_to(method, host.port, STRANGERS[kind]())
    assert refused.code() == grpc.StatusCode.UNAVAILABLE
    assert (answers, asked) == ([], []), "TLS ended it, before any code of ours was asked"


@pytest.mark.parametrize("method", [EXCHANGE, RENEW])
def test_a_caller_that_tls_let_in_but_nobody_pinned_gets_no_message(
    method: str, doors: list[Endpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second lock: even if TLS accepted a certificate, only a pinned fingerprint has a name here."""
    endpoint = Endpoint(B, {"a": Partner("a", make_identity("a").certificate)}, "127.0.0.1:0")
    monkeypatch.setattr(endpoint, "_trusted", Endpoint(B, {"a": Partner("a", A.certificate)})._trusted)
    endpoint.open()
    doors.append(endpoint)
    link = endpoint.link("a")
    answers, refused = answers_to(method, endpoint.port, A)
    assert refused.code() == grpc.StatusCode.UNAUTHENTICATED
    assert refused.details() == "", "and no word why"
    assert answers == []
    assert not link.is_up


def test_a_party_that_is_paired_but_not_in_this_run_is_a_stranger(host: Endpoint, doors: list[Endpoint]) -> None:
    telco = make_identity("telco")
    guest = dialled(doors, telco, B, host.port)
    link = guest.link("b")
    assert wait_for(lambda: guest.trouble.get("b")) == "it refuses our certificate, or closed the connection"
    assert not link.is_up
    guest.close()


@pytest.mark.parametrize(
    "method", ["/colonnade.Line/Other", "/colonnade.Other/Exchange", "/", "/grpc.health.v1.Health/Check"]
)
def test_a_method_that_is_none_is_refused_even_to_a_partner(method: str, host: Endpoint) -> None:
    with called_as(host.port, A) as channel, pytest.raises(grpc.RpcError) as refused:
        channel.unary_unary(method)(b"hello", timeout=SOON)
    assert refused.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_a_client_with_tls_1_2_only_is_refused(host: Endpoint, tmp_path: Path) -> None:
    for ciphers in (None, "ALL:@SECLEVEL=0"):
        context = client(A, tmp_path, highest=ssl.TLSVersion.TLSv1_2)
        if ciphers:
            context.set_ciphers(ciphers)
        assert heard_by(host.port, context) == b""


RAW = {
    "plaintext HTTP/2": HTTP2,
    "plaintext HTTP/1.1": b"GET / HTTP/1.1\r\nHost: b\r\n\r\n",
    "garbage": bytes(range(255, 127, -1)) * 4,
    "half a hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
}


@pytest.mark.parametrize("kind", RAW)
def test_bytes_that_are_no_tls_are_answered_by_an_alert_at_most(
    kind: str, host: Endpoint, lines: dict[str, GrpcLink]
) -> None:
    heard = b""
    with socket.create_connection(("127.0.0.1", host.port or 0), SOON) as plain, suppress(ConnectionError):
        plain.sendall(RAW[kind])
        plain.shutdown(socket.SHUT_WR)
        while more := plain.recv(1024):
            heard += more
    assert heard[:1] in (b"", b"\x15"), heard
    assert len(heard) < 16
    assert not any(link.is_up or link.is_over for link in lines.values())


def test_a_caller_that_says_nothing_hears_nothing_and_holds_up_nobody(
    host: Endpoint, lines: dict[str, GrpcLink], doors: list[Endpoint]
) -> None:
    silent = [socket.create_connection(("127.0.0.1", host.port or 0), SOON) for _ in range(20)]
    guest = dialled(doors, A, B, host.port)
    assert guest.link("b").wait_until_up(SOON), "a partner gets through all the same"
    for one in silent:
        one.setblocking(False)
        with pytest.raises(BlockingIOError):
            one.recv(1)
        one.close()
    guest.close()


KNOCKED = """
import itertools, socket, sys, threading, time
from colonnade.transport.grpc import Endpoint, Partner, make_identity

known = [Partner("a", make_identity("a").certificate) for _ in range(2)]
door = Endpoint(make_identity("b"), {"a": known[0]}, "127.0.0.1:0")
door.open()
over = time.monotonic() + 3

def knock():
    while time.monotonic() < over:
        socket.create_connection(("127.0.0.1", door.port), 10).close()

callers = [threading.Thread(target=knock) for _ in range(8)]
for one in callers:
    one.start()
for partner in itertools.cycle(known):
    if time.monotonic() > over:
        break
    if sys.argv[1] == "a partner renews its certificate":
        door._partners["a"] = partner
    time.sleep(0.01)
for one in callers:
    one.join()
door.close()
print("open to the end")
"""


@pytest.mark.parametrize("kind", ["nothing else happens", "a partner renews its certificate"])
def test_strangers_that_call_all_at_once_do_not_bring_the_party_down(kind: str) -> None:
    """In a process of its own, for what came down was the process."""
    ran = subprocess.run([sys.executable, "-c", KNOCKED, kind], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (0, "open to the end\n"), ran.stderr[-2000:]


# --- a server that is not who it should be ------------------------------------------------------------------------


@dataclass
class Impostor:
    """Listens where b should, and keeps what the dialer says to it."""

    identity: Identity | None = None
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    says: bytes | None = None
    closes: bool = False

    def hear(self, listener: socket.socket, folder: Path) -> bytes:
        heard = b""
        plain, _ = listener.accept()
        plain.settimeout(SOON)
        with plain, suppress(ssl.SSLError, ConnectionError):
            if self.says is not None:
                plain.sendall(self.says)
                plain.recv(4096)
            elif self.identity is not None:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, self.highest
                context.set_alpn_protocols(["h2"])
                context.load_cert_chain(*kept(self.identity, folder))
                with context.wrap_socket(plain, server_side=True) as secure:
                    heard = secure.recv(64)
            elif not self.closes:
                plain.recv(4096)
                while plain.recv(4096):
                    pass
        return heard


SILENT = "takes the call and is silent"
OTHER_CERTIFICATE = "it shows another certificate than the one that is paired"
IMPOSTORS: dict[str, tuple[Callable[[], Impostor], str]] = {
    "another paired party": (lambda: Impostor(C), OTHER_CERTIFICATE),
    "right name, other key": (lambda: Impostor(make_identity("b")), OTHER_CERTIFICATE),
    "signed by the pinned key": (lambda: Impostor(certificate_of("b", issuer=B)), OTHER_CERTIFICATE),
    "TLS 1.2 only": (lambda: Impostor(B, ssl.TLSVersion.TLSv1_2), "it does not speak TLS 1.3 as colonnade does"),
    "plaintext HTTP/2": (
        lambda: Impostor(says=bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])),
        "what answers there does not speak TLS",
    ),
    "a web server": (
        lambda: Impostor(says=b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        "what answers there does not speak TLS",
    ),
    "hangs up": (lambda: Impostor(closes=True), "it refuses our certificate, or closed the connection"),
    SILENT: (lambda: Impostor(), "it takes the call but says nothing"),
}


@pytest.mark.parametrize("kind", IMPOSTORS)
def test_a_server_that_is_not_the_partner_hears_no_byte_and_the_dialer_says_why(
    kind: str, doors: list[Endpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == SILENT:
        # The time a handshake may take; a real line may be slow, this one is not.
        options = dict(endpoint_module._OPTIONS) | {"grpc.min_reconnect_backoff_ms": 400}
        monkeypatch.setattr(endpoint_module, "_OPTIONS", list(options.items()))
    made, words = IMPOSTORS[kind]
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SOON)
        guest = dialled(doors, A, B, listener.getsockname()[1])
        link = guest.link("b")
        assert made().hear(listener, tmp_path) == b""
        # The call that failed may not be over yet, and calls that follow may fail because nobody accepts them.
        assert wait_for(lambda: guest.trouble.get("b")) == words
        assert not link.is_up
        guest.close()


OUT_OF_DATE = {
    "expired": (NOW - 9 * DAY, "its certificate has expired"),
    "not yet valid": (NOW + DAY, "its certificate is not valid yet; check the clocks"),
}


@pytest.mark.parametrize("kind", OUT_OF_DATE)
def test_dates_are_looked_at_again_on_every_connection(
    kind: str, doors: list[Endpoint], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate was good when the dialer's door opened, and is not any more; both sides refuse it."""
    monkeypatch.setattr("colonnade.transport.grpc.endpoint.check_certificate", lambda *_: None)
    starts, words = OUT_OF_DATE[kind]
    late = certificate_of("b", starts=starts)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(SOON)
        guest = dialled(doors, A, late, listener.getsockname()[1])
        guest.link("b")
        assert Impostor(late).hear(listener, tmp_path) == b""
        assert wait_for(lambda: guest.trouble.get("b")) == words
        guest.close()
    endpoint = Endpoint(B, {"a": Partner("a", (old := certificate_of("a", starts=starts)).certificate)}, "127.0.0.1:0")
    endpoint.open()
    doors.append(endpoint)
    assert heard_by(endpoint.port, client(old, tmp_path)) == b""


def test_the_certificates_of_two_partners_do_not_stand_in_for_each_other(doors: list[Endpoint]) -> None:
    """Both are paired with a, but each listens where the other should."""
    at_b = Endpoint(C, {"a": Partner("a", A.certificate)}, "127.0.0.1:0")
    at_c = Endpoint(B, {"a": Partner("a", A.certificate)}, "127.0.0.1:0")
    for endpoint in (at_b, at_c):
        endpoint.open()
    partners = {
        "b": Partner("b", B.certificate, f"127.0.0.1:{at_b.port}"),
        "c": Partner("c", C.certificate, f"127.0.0.1:{at_c.port}"),
    }
    guest = Endpoint(A, partners)
    doors += [at_b, at_c, guest]
    links = [guest.link("b"), guest.link("c"), at_b.link("a"), at_c.link("a")]
    for name in ("b", "c"):
        assert wait_for(lambda name=name: guest.trouble.get(name)) == OTHER_CERTIFICATE
    assert not any(link.is_up for link in links)


# --- a partner whose line begins wrongly --------------------------------------------------------------------------

OWN, OTHER = b"o" * 16, b"p" * 16


def opened(incarnation: bytes = OWN, known: bytes = NOBODY, expected: int = 0) -> bytes:
    return chunks.opening(Opening(incarnation, known, expected))


def of_version(version: int) -> bytes:
    return opened()[:1] + bytes([version]) + opened()[2:]


OPENINGS: dict[str, tuple[list[bytes], type[ColonnadeError], str]] = {
    "a later transport version": ([of_version(2)], FrameRefused, "speaks version 2, ours 1"),
    "transport version 0": ([of_version(0)], FrameRefused, "speaks version 0, ours 1"),
    "no opening": ([chunks.data(0, 5, b"hello")], FrameRefused, "spoke before it opened"),
    "garbage": ([b"\xff\xfe garbage"], FrameRefused, "no version of colonnade sends"),
    "nothing": ([b""], FrameRefused, "no version of colonnade sends"),
    "half an opening": ([opened()[:-1]], FrameRefused, "no version of colonnade sends"),
    "chunks nobody sent": ([opened(expected=7)], FrameRefused, "claims to have chunks that were never sent"),
    "an acknowledgement of nothing": ([opened(), chunks.ack(3)], FrameRefused, "acknowledges chunks that were never"),
    "a skipped chunk": ([opened(), chunks.data(4, 5, b"hello")], FrameRefused, "skipped a chunk"),
    "the same party twice": ([opened(OWN), opened(OTHER)], PeerLost, "'a' was restarted"),
}


def speak(port: int | None, said: list[bytes]) -> list[bytes]:
    """Call the door as a, say this, and return what it answers until it hangs up."""
    heard: list[bytes] = []
    over = threading.Event()

    def words() -> Iterator[bytes]:
        yield from said
        over.wait(SOON)

    with called_as(port, A) as channel:
        call = channel.stream_stream(EXCHANGE)(words(), timeout=SOON)
        with suppress(grpc.RpcError):
            heard += call
        over.set()
    return heard


@pytest.mark.parametrize("kind", OPENINGS)
def test_a_line_that_begins_wrongly_is_refused_with_its_own_words(
    kind: str, host: Endpoint, lines: dict[str, GrpcLink]
) -> None:
    said, error, words = OPENINGS[kind]
    heard = speak(host.port, said)
    with pytest.raises(error, match=words) as raised:
        lines["a"].receive()
    assert type(raised.value) is error
    with pytest.raises(error, match=words):
        lines["a"].send([b"x"])
    assert not any(chunk[0] == chunks.DATA for chunk in heard), "nothing of the run was said"
    assert not lines["c"].is_over


def test_a_line_for_an_earlier_incarnation_of_ours_does_not_come_up(host: Endpoint, lines: dict[str, GrpcLink]) -> None:
    heard: list[bytes] = []
    with called_as(host.port, A) as channel:
        call = channel.stream_stream(EXCHANGE)(iter([opened(known=OTHER)]), timeout=SOON)
        with suppress(grpc.RpcError):
            for chunk in call:
                heard.append(chunk)
                break
    assert [chunk[0] for chunk in heard] == [chunks.OPEN]
    assert not lines["a"].is_up
    assert not lines["a"].is_over


def test_a_replayed_opening_with_a_stale_count_is_refused(host: Endpoint, lines: dict[str, GrpcLink]) -> None:
    """The peer acknowledged a chunk; an opening from before that says that it wants the chunk again."""
    first = opened()
    lines["a"].send([b"once"])

    def words(has_chunk: threading.Event) -> Iterator[bytes]:
        yield first
        has_chunk.wait(SOON)
        yield chunks.ack(1)
        wait_for(lambda: lines["a"]._outbox.is_empty)

    with called_as(host.port, A) as channel:
        has_chunk = threading.Event()
        for chunk in channel.stream_stream(EXCHANGE)(words(has_chunk), timeout=SOON):
            if chunk[0] == chunks.DATA:
                has_chunk.set()
            if lines["a"]._outbox.first_number == 1:
                break
    assert [chunk[0] for chunk in speak(host.port, [first]) if chunk[0] == chunks.DATA] == []
    with pytest.raises(PeerLost, match="asks again for chunks that it has acknowledged"):
        lines["a"].receive()


# --- parties that are who they say, but not in the same run -------------------------------------------------------


@dataclass
class Meeting:
    """Two parties of the toy run over real doors; what differs at the shop is given."""

    plan: RunPlan = field(default_factory=toys.plan)
    shop_plan: RunPlan | None = None
    shop_method: Method | None = None
    shop_code: Callable[[Session], Any] | None = None

    def run(self) -> dict[str, Any]:
        self.frames: list[tuple[str, str, bytes]] = []
        network = LoopbackNetwork(("bank", "shop"), tap=lambda *seen: self.frames.append(seen))
        self.ledgers = {name: LedgerWriter() for name in ("bank", "shop")}
        outcomes: dict[str, Any] = {}

        def take(name: str, peer: str) -> None:
            link = network.link(name, peer)
            plan = self.shop_plan if name == "shop" and self.shop_plan else self.plan
            method = self.shop_method if name == "shop" and self.shop_method else toys.method()
            session = Session(Participant(name), method, plan, {peer: link})
            self.ledgers[name] = session.ledger
            try:
                if name == "shop" and self.shop_code is not None:
                    outcomes[name] = self.shop_code(session)
                else:
                    outcomes[name] = toys.play_honestly(session)
            except BaseException as error:
                outcomes[name] = error
            finally:
                network.leave(name)

        threads = [
            threading.Thread(target=take, args=pair, daemon=True) for pair in (("bank", "shop"), ("shop", "bank"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(3 * SOON)
        assert not any(thread.is_alive() for thread in threads), "a party hangs"
        return outcomes

    def sent_by(self, name: str) -> list[bytes]:
        return [frame for sender, _, frame in self.frames if sender == name]

    def crossed(self, name: str) -> set[str]:
        return {entry.content["message"] for entry in self.ledgers[name].read().messages()}


def test_parties_that_agree_meet() -> None:
    meeting = Meeting()
    outcomes = meeting.run()
    assert not any(isinstance(one, BaseException) for one in outcomes.values()), outcomes
    assert {"Ask", "Answer"} <= meeting.crossed("bank")


PLANS: dict[str, tuple[dict[str, Any], str]] = {
    "name": ({"name": "other"}, "in run '(run|other)'.*in run '(run|other)'"),
    "stage": ({"stage": "other"}, r"\((train|other)\).*\((train|other)\)"),
    "method": ({"method": "other"}, r"disagree on run\.method\. "),
    "seed": ({"seed": 2}, r"disagree on run\.seed\. "),
    "a setting of the method": ({"config": {"epochs": 3}}, r"disagree on config\.epochs\. "),
    "test fraction": ({"evaluate": Evaluate(test_fraction=0.3)}, r"disagree on evaluate\.test_fraction\. "),
    "validation fraction": (
        {"evaluate": Evaluate(validation_fraction=0.2)},
        r"disagree on evaluate\.validation_fraction\. ",
    ),
    "order of the roles": ({"roles": {"helper": ("shop",), "lead": ("bank",)}}, r"disagree on run\.roles\. "),
    "purpose": ({"purpose": "Whatever we like."}, r"disagree on run\.purpose\. "),
    "retention": ({"retention": "For ever."}, r"disagree on run\.retention\. "),
    "alignment": ({"alignment": Alignment(protocol="given")}, r"disagree on alignment\.protocol\. "),
    "two fields": (
        {"seed": 2, "config": {"epochs": 3}},
        r"disagree on (config\.epochs, run\.seed|run\.seed, config\.epochs)\. ",
    ),
}


@pytest.mark.parametrize("kind", PLANS)
def test_a_run_that_differs_is_refused_on_both_sides_and_the_field_is_named(kind: str) -> None:
    changes, words = PLANS[kind]
    meeting = Meeting(shop_plan=toys.plan(**changes))
    outcomes = meeting.run()
    for name, error in outcomes.items():
        assert type(error) is HandshakeRefused, (name, error)
        assert re.search(words, str(error)), (name, str(error))
        assert meeting.crossed(name) <= {"Hello", "Failed"}


@message(sender="helper", receiver="lead", protection=PLAIN, step="aside")
class Aside:
    """One more message. Reveals: nothing."""


def test_other_messages_are_refused_on_both_sides() -> None:
    meeting = Meeting(shop_method=toys.method(messages=(Ask, Answer, Aside)))
    for name, error in meeting.run().items():
        assert type(error) is HandshakeRefused, (name, error)
        assert "declare different messages for toy" in str(error)
        assert meeting.crossed(name) <= {"Hello", "Failed"}


GREETINGS: dict[str, tuple[dict[str, Any], str]] = {
    "another party's name": ({"party": "telco"}, "expected helper 'shop' but was greeted by helper 'telco'"),
    "our own name": ({"party": "bank"}, "expected helper 'shop' but was greeted by helper 'bank'"),
    "another role": ({"role": "lead"}, "expected helper 'shop' but was greeted by lead 'shop'"),
    "no fields": ({"fields": ()}, "disagree on"),
    "other fields": ({"fields": (AgreedField("run.other", b"x" * 16),)}, r"disagree on.*run\.other"),
}


@pytest.mark.parametrize("kind", GREETINGS)
def test_a_greeting_that_lies_is_refused(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    changes, words = GREETINGS[kind]
    real = handshake._hello

    def hello(session: Session) -> Hello:
        made = real(session)
        return dataclasses.replace(made, **changes) if session.party == "shop" else made

    monkeypatch.setattr(handshake, "_hello", hello)
    meeting = Meeting()
    error = meeting.run()["bank"]
    assert type(error) is HandshakeRefused, repr(error)
    assert re.search(words, str(error)), str(error)
    assert meeting.crossed("bank") <= {"Hello", "Failed"}


# --- frames of another encounter ----------------------------------------------------------------------------------


def after_greeting(frames: list[bytes]) -> Callable[[Session], None]:
    """Greet honestly, then say these frames in place of one's own."""

    def run(session: Session) -> None:
        handshake.greet(session)
        (channel,) = session.all_channels
        for frame in frames:
            channel._link.send([frame])
        with suppress(ColonnadeError):
            while True:
                channel._link.receive()

    return run


def reflected(session: Session) -> None:
    """Say back whatever is heard, greeting included."""
    (channel,) = session.all_channels
    with suppress(ColonnadeError):
        while True:
            channel._link.send([bytes(channel._link.receive())])


@pytest.fixture(scope="module")
def earlier() -> Meeting:
    """An honest encounter of the same two in the same run, all of whose frames someone kept."""
    meeting = Meeting()
    meeting.run()
    return meeting


def refuses(code: Callable[[Session], Any], error: type[ColonnadeError], words: str) -> None:
    meeting = Meeting(shop_code=code)
    found = meeting.run()["bank"]
    assert type(found) is error, repr(found)
    assert words in str(found), str(found)
    assert meeting.crossed("bank") <= {"Hello", "Failed"}


FOREIGN = "belongs to another run, connection or direction"


def test_frames_of_an_old_incarnation_are_refused(earlier: Meeting) -> None:
    """The greeting and the names are the same, even the run: only the two nonces are not."""
    for frame in earlier.sent_by("shop")[1:4]:
        refuses(after_greeting([frame]), FrameRefused, FOREIGN)


def test_a_replayed_greeting_is_refused(earlier: Meeting) -> None:
    refuses(after_greeting(earlier.sent_by("shop")[:1]), FrameRefused, FOREIGN)


def test_frames_of_another_run_are_refused() -> None:
    other = Meeting(plan=toys.plan(name="other"))
    other.run()
    for frame in other.sent_by("shop")[1:4]:
        refuses(after_greeting([frame]), FrameRefused, FOREIGN)


def test_reflected_frames_are_refused() -> None:
    refuses(reflected, HandshakeRefused, "expected helper 'shop' but was greeted by lead 'bank'")


def test_our_own_frames_after_the_greeting_are_refused(earlier: Meeting) -> None:
    refuses(after_greeting(earlier.sent_by("bank")[1:2]), FrameRefused, FOREIGN)


# --- the whole table ----------------------------------------------------------------------------------------------


def test_there_are_many_kinds_and_each_has_its_own_words() -> None:
    named = [words for table in (LOADED, PLANS, GREETINGS) for _, words in table.values()]
    assert len(set(named)) == len(named)
    kinds = [len(table) for table in (LOADED, STRANGERS, RAW, IMPOSTORS, OUT_OF_DATE, OPENINGS, PLANS, GREETINGS)]
    assert sum(kinds) >= 25
