from __future__ import annotations

import datetime
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import ConfigError, FrameRefused, PeerLost
from colonnade.transport.grpc import (
    Endpoint,
    GrpcLink,
    Identity,
    Partner,
    check_certificate,
    fingerprint,
    make_identity,
    name_of,
    server_name,
)
from colonnade.transport.grpc import callers as callers_module
from colonnade.transport.grpc import endpoint as endpoint_module
from colonnade.transport.grpc import link as link_module

import grpc  # isort: skip  # after colonnade, which sets the ciphers

pytestmark = pytest.mark.timeout(60)

METHOD = "/colonnade.Line/Exchange"
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(scope="module")
def parties() -> dict[str, Identity]:
    return {name: make_identity(name) for name in ("a", "b", "c")}


class Doors:
    """Opens endpoints and closes them after the test."""

    def __init__(self) -> None:
        self.opened: list[Endpoint] = []

    def listen(self, own: Identity, *partners: Identity) -> Endpoint:
        return self.add(own, [Partner(one.name, one.certificate) for one in partners], "127.0.0.1:0")

    def dial(self, own: Identity, partner: Identity, port: int | None) -> Endpoint:
        return self.add(own, [Partner(partner.name, partner.certificate, f"127.0.0.1:{port}")], None)

    def add(self, own: Identity, partners: list[Partner], listen: str | None) -> Endpoint:
        endpoint = Endpoint(own, {one.name: one for one in partners}, listen)
        endpoint.open()
        self.opened.append(endpoint)
        return endpoint


@pytest.fixture
def doors() -> Iterator[Doors]:
    doors = Doors()
    yield doors
    for endpoint in doors.opened:
        endpoint.close()


def usage(**changed: bool) -> x509.KeyUsage:
    names = ["content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "key_cert_sign"]
    facts = dict.fromkeys([*names, "crl_sign", "encipher_only", "decipher_only"], False)
    return x509.KeyUsage(**(facts | {"digital_signature": True} | changed))


def certificate_of(
    name: str,
    *,
    key: Any = None,
    issuer: Identity | None = None,
    host: str | None = None,
    starts: datetime.datetime = NOW - datetime.timedelta(days=1),
    days: int = 2,
    digest: Any = None,
    **changed: x509.ExtensionType | None,
) -> Identity:
    """Make a certificate of any kind, also such as colonnade never makes; extensions can be changed or left out."""
    extensions: dict[str, x509.ExtensionType | None] = {
        "hosts": x509.SubjectAlternativeName([x509.DNSName(host or server_name(name))]),
        "basics": x509.BasicConstraints(ca=False, path_length=None),
        "ends": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
        "usage": usage(),
    }
    key = key or ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signer: Any = serialization.load_pem_private_key(issuer.key, None) if issuer else key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.load_pem_x509_certificate(issuer.certificate).subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(starts)
        .not_valid_after(starts + datetime.timedelta(days=days))
    )
    for extension in (extensions | changed).values():
        if extension is not None:
            builder = builder.add_extension(extension, critical=False)
    built = builder.sign(signer, None if isinstance(signer, ed25519.Ed25519PrivateKey) else digest or hashes.SHA256())
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(name, private, built.public_bytes(serialization.Encoding.PEM))


def call_by_hand(port: int | None, server: Identity, own: Identity | None, requests: list[bytes]) -> list[bytes]:
    """Call the door with a plain grpc client that shows any certificate, or none."""
    credentials = grpc.ssl_channel_credentials(
        server.certificate, own.key if own else None, own.certificate if own else None
    )
    options = [("grpc.ssl_target_name_override", server_name(server.name)), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        answers = []
        for answer in channel.stream_stream(METHOD)(iter(requests), timeout=5):
            answers.append(answer)
            if len(answers) == 2:
                break
        return answers


def tls_by_hand(
    port: int | None,
    server: Identity,
    own: Identity | None,
    folder: Path,
    *,
    highest: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ciphers: str | None = None,
) -> bytes:
    """Shake hands and return the first bytes the server says in HTTP/2."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, highest
    context.set_alpn_protocols(["h2"])
    context.load_verify_locations(cadata=server.certificate.decode())
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if ciphers:
        context.set_ciphers(ciphers)
    if own is not None:
        context.load_cert_chain(*write(own, folder))
    with (
        socket.create_connection(("127.0.0.1", port or 0), 5) as plain,
        context.wrap_socket(plain, server_hostname=server_name(server.name)) as secure,
    ):
        secure.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        return secure.recv(1024)


def write(identity: Identity, folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / f"{identity.name}.pem", folder / f"{identity.name}.key"
    certificate.write_bytes(identity.certificate)
    key.write_bytes(identity.key)
    return certificate, key


def talk(left: GrpcLink, right: GrpcLink) -> None:
    left.send([b"from the left"])
    right.send([b"from the right"])
    assert right.receive() == b"from the left"
    assert left.receive() == b"from the right"


# The line


def test_frames_pass_both_ways(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["b"], parties["a"])
    guest = doors.dial(parties["a"], parties["b"], host.port)
    right, left = host.link("a"), guest.link("b")
    assert left.wait_until_up(5)
    assert right.wait_until_up(5)
    talk(left, right)
    large = bytes(range(256)) * 40_000
    thread = threading.Thread(target=left.send, args=([large[:7], large[7:]],), daemon=True)
    thread.start()
    assert right.receive() == large
    thread.join(5)


def test_the_listener_may_come_later(doors: Doors, parties: dict[str, Identity]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    left = doors.dial(parties["a"], parties["b"], port).link("b")
    assert not left.wait_until_up(0.5)
    partner = Partner("a", parties["a"].certificate)
    right = doors.add(parties["b"], [partner], f"127.0.0.1:{port}").link("a")
    talk(left, right)


def test_who_dials_can_be_overruled(doors: Doors, parties: dict[str, Identity]) -> None:
    """By rule a dials b; here b dials a, and a only listens although it knows where b is."""
    nowhere = Partner("b", parties["b"].certificate, "127.0.0.1:1")
    first = doors.add(parties["a"], [nowhere], "127.0.0.1:0")
    back = Partner("a", parties["a"].certificate, f"127.0.0.1:{first.port}")
    second = doors.add(parties["b"], [back], "127.0.0.1:0")
    talk(first.link("b", dials=False), second.link("a", dials=True))
    assert first.trouble == {}


def test_three_parties_have_three_lines(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["c"], parties["a"], parties["b"])
    from_a, from_b = host.link("a"), host.link("b")
    to_c_by_b = doors.dial(parties["b"], parties["c"], host.port).link("c")
    to_c_by_a = doors.dial(parties["a"], parties["c"], host.port).link("c")
    to_c_by_a.send([b"a"])
    to_c_by_b.send([b"b"])
    assert from_a.receive() == b"a"
    assert from_b.receive() == b"b"


def test_a_new_attempt_ends_the_old_line_on_both_sides(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["b"], parties["a"])
    guest = doors.dial(parties["a"], parties["b"], host.port)
    left, right = guest.link("b"), host.link("a")
    talk(left, right)
    again = guest.link("b")
    with pytest.raises(PeerLost, match="new attempt"):
        left.receive()
    with pytest.raises(PeerLost, match="restarted"):
        right.receive()
    talk(again, host.link("a"))


@pytest.mark.parametrize("first", ["host", "guest"])
def test_closing_takes_no_time_when_both_close(doors: Doors, parties: dict[str, Identity], first: str) -> None:
    host = doors.listen(parties["b"], parties["a"])
    right, left = host.link("a"), doors.dial(parties["a"], parties["b"], host.port).link("b")
    talk(left, right)
    one, other = (right, left) if first == "host" else (left, right)
    began = time.monotonic()
    thread = threading.Thread(target=one.close, daemon=True)
    thread.start()
    with pytest.raises(PeerLost, match="left the run"):
        other.receive()
    other.close()
    thread.join(5)
    assert not thread.is_alive()
    assert time.monotonic() - began < link_module._BYE_SECONDS, "nobody waited for a goodbye in vain"


def test_an_idle_line_stays_up(doors: Doors, parties: dict[str, Identity], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 1.5)
    monkeypatch.setattr(link_module, "_PING_SECONDS", 0.2)
    host = doors.listen(parties["b"], parties["a"])
    right, left = host.link("a"), doors.dial(parties["a"], parties["b"], host.port).link("b")
    talk(left, right)
    time.sleep(2)
    talk(left, right)


def test_a_taken_port_is_a_config_error(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["b"], parties["a"])
    with pytest.raises(ConfigError, match="is taken"):
        doors.add(parties["c"], [Partner("a", parties["a"].certificate)], f"127.0.0.1:{host.port}")
    with pytest.raises(ConfigError, match="not this machine's"):
        doors.add(parties["c"], [Partner("a", parties["a"].certificate)], "192.0.2.1:5000")


def test_threads_end_with_the_doors(parties: dict[str, Identity]) -> None:
    doors = Doors()
    host = doors.listen(parties["b"], parties["a"])
    right, left = host.link("a"), doors.dial(parties["a"], parties["b"], host.port).link("b")
    talk(left, right)
    for endpoint in doors.opened:
        endpoint.close()
    limit = time.monotonic() + 5
    while any(thread.name.startswith(("dial ", "hear ")) for thread in threading.enumerate()):
        assert time.monotonic() < limit
        time.sleep(0.05)


STUCK = """
import threading
from colonnade.transport.grpc import Endpoint, GrpcLink, Partner, make_identity
speak = GrpcLink.outgoing
def get_stuck(link, stream):
    yield from speak(link, stream) if link.party == "a" else ()
    threading.Event().wait()
GrpcLink.outgoing = get_stuck
a, b = make_identity("a"), make_identity("b")
host = Endpoint(b, {"a": Partner("a", a.certificate)}, "127.0.0.1:0")
host.open()
guest = Endpoint(a, {"b": Partner("b", b.certificate, f"127.0.0.1:{host.port}")})
right, left = host.link("a"), guest.link("b")
assert right.wait_until_up(20)
for link in (left, right):
    link.lose("over")
guest.close()
host.close()
print("closed", flush=True)
"""


def test_a_call_that_does_not_end_keeps_nobody_from_leaving() -> None:
    """A call to a peer that is dead may end a minute later; neither the door nor the process waits for it."""
    done = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout == "closed\n"


def test_closing_does_not_wait_for_a_server_that_cannot_stop(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["b"], parties["a"])
    server = host._server
    stop = server.stop
    server.stop = lambda grace: (stop(grace), threading.Event())[1]
    thread = threading.Thread(target=host.close, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()


# Who may come in


@pytest.fixture
def host(doors: Doors, parties: dict[str, Identity]) -> Endpoint:
    host = doors.listen(parties["b"], parties["a"], parties["c"])
    host.link("a"), host.link("c")
    return host


STRANGERS = [
    "nobody",
    "unknown",
    "unknown under a known name",
    "expired",
    "not yet valid",
    "signed by a known party",
    "RSA",
    "P-384",
    "Ed25519",
]


def stranger(kind: str, parties: dict[str, Identity]) -> Identity | None:
    return {
        "nobody": lambda: None,
        "unknown": lambda: make_identity("d"),
        "unknown under a known name": lambda: make_identity("a"),
        "expired": lambda: certificate_of("e", starts=NOW - datetime.timedelta(days=9)),
        "not yet valid": lambda: certificate_of("l", starts=NOW + datetime.timedelta(days=1)),
        "signed by a known party": lambda: certificate_of("a", issuer=parties["c"]),
        "RSA": lambda: certificate_of("a", key=rsa.generate_private_key(65537, 2048)),
        "P-384": lambda: certificate_of("a", key=ec.generate_private_key(ec.SECP384R1())),
        "Ed25519": lambda: certificate_of("a", key=ed25519.Ed25519PrivateKey.generate()),
    }[kind]()


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_is_refused_without_an_answer(kind: str, host: Endpoint, parties: dict[str, Identity]) -> None:
    answers: list[bytes] = []
    with pytest.raises(grpc.RpcError) as refused:
        answers += call_by_hand(host.port, parties["b"], stranger(kind, parties), [b"hello"])
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert answers == []
    assert not host._links["a"].is_up
    assert not host._links["c"].is_up
    assert not host._links["a"].is_over


@pytest.mark.parametrize("kind", ["expired", "not yet valid"])
def test_the_dates_of_a_pinned_certificate_are_kept_during_a_run(
    kind: str, doors: Doors, parties: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate was fine when the door opened, as far as the door could see; TLS looks again at each call."""
    out_of_date = stranger(kind, parties)
    assert out_of_date is not None
    monkeypatch.setattr("colonnade.transport.grpc.endpoint.check_certificate", lambda *_: None)
    host = doors.listen(parties["b"], out_of_date)
    host.link(out_of_date.name)
    with pytest.raises(grpc.RpcError) as refused:
        call_by_hand(host.port, parties["b"], out_of_date, [b"hello"])
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


def test_a_line_belongs_to_the_certificate_whatever_the_caller_claims(
    host: Endpoint, parties: dict[str, Identity]
) -> None:
    """Party c calls, names itself a in every place that a caller can fill, and is still c."""
    credentials = grpc.ssl_channel_credentials(parties["b"].certificate, parties["c"].key, parties["c"].certificate)
    options = [
        ("grpc.ssl_target_name_override", server_name("b")),
        ("grpc.primary_user_agent", "a"),
        ("grpc.default_authority", server_name("b")),
    ]
    claims = [("x-party", "a"), ("x509_common_name", "a"), ("authorization", "a"), ("from", "a")]
    stop = threading.Event()

    def speak() -> Iterator[bytes]:
        yield struct.pack("<BB16s16sQ", 1, 1, b"i" * 16, bytes(16), 0)
        yield struct.pack("<BQQ", 2, 0, 5) + b"hello"
        stop.wait(10)

    with grpc.secure_channel(f"127.0.0.1:{host.port}", credentials, options=options) as channel:
        call = channel.stream_stream(METHOD)(speak(), metadata=claims, timeout=10)
        assert host._links["c"].wait_until_up(5)
        assert host._links["c"].receive() == b"hello"
        assert not host._links["a"].is_up
        stop.set()
        call.cancel()


def test_a_party_not_in_this_run_is_refused(doors: Doors, parties: dict[str, Identity]) -> None:
    host = doors.listen(parties["b"], parties["a"])
    link = host.link("a")
    to_b = doors.dial(parties["c"], parties["b"], host.port).link("b")
    assert not to_b.wait_until_up(0.8)
    assert not link.is_up


def test_a_plaintext_caller_is_refused_without_an_answer(host: Endpoint) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{host.port}") as channel, pytest.raises(grpc.RpcError):
        list(channel.stream_stream(METHOD)(iter([b"hello"]), timeout=3))
    with socket.create_connection(("127.0.0.1", host.port or 0), 5) as plain:
        plain.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        try:
            answer = plain.recv(1024)
        except ConnectionResetError:
            answer = b""
    assert answer[:1] in (b"", b"\x15"), "only a TLS alert may come"


def test_tls_1_3_is_accepted_and_tls_1_2_refused(host: Endpoint, parties: dict[str, Identity], tmp_path: Path) -> None:
    assert tls_by_hand(host.port, parties["b"], parties["a"], tmp_path)[3:4] == b"\x04", "SETTINGS of HTTP/2"
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        tls_by_hand(host.port, parties["b"], parties["a"], tmp_path, highest=ssl.TLSVersion.TLSv1_2)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        tls_by_hand(
            host.port, parties["b"], parties["a"], tmp_path, highest=ssl.TLSVersion.TLSv1_2, ciphers="ALL:@SECLEVEL=0"
        )


@pytest.mark.parametrize("kind", STRANGERS)
def test_a_stranger_gets_no_byte_of_http(
    kind: str, host: Endpoint, parties: dict[str, Identity], tmp_path: Path
) -> None:
    """In TLS 1.3 a client is done before the server has seen its certificate, so look at what comes next."""
    try:
        answer = tls_by_hand(host.port, parties["b"], stranger(kind, parties), tmp_path)
    except (ssl.SSLError, ConnectionError):
        answer = b""
    assert answer == b""


@pytest.mark.parametrize("highest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize("shown", ["b", "c", "d"])
def test_the_dialer_accepts_only_the_pinned_certificate_and_tls_1_3(
    highest: ssl.TLSVersion, shown: str, doors: Doors, parties: dict[str, Identity], tmp_path: Path
) -> None:
    identity = parties.get(shown) or certificate_of("d", host=server_name("b"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, highest
    context.set_alpn_protocols(["h2"])
    context.load_cert_chain(*write(identity, tmp_path))
    heard: list[bytes] = []

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(5)
        doors.dial(parties["a"], parties["b"], listener.getsockname()[1]).link("b")
        plain, _ = listener.accept()
        plain.settimeout(5)
        try:
            with context.wrap_socket(plain, server_side=True) as secure:
                heard.append(secure.recv(24))
        except (ssl.SSLError, ConnectionError, OSError):
            plain.close()
    is_right = shown == "b" and highest == ssl.TLSVersion.TLSv1_3
    assert heard in ([[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]] if is_right else [[], [b""]])


def test_the_dialer_refuses_another_paired_party_at_the_address(doors: Doors, parties: dict[str, Identity]) -> None:
    other = doors.listen(parties["c"], parties["a"])
    link = other.link("a")
    guest = doors.dial(parties["a"], parties["b"], other.port)
    assert not guest.link("b").wait_until_up(0.8)
    assert not link.is_up
    assert guest.trouble["b"] == "it shows another certificate than the one that is paired"


def test_the_dialer_refuses_a_paired_party_whose_certificate_carries_another_host_name(
    doors: Doors, parties: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a certificate is not accepted at all; but even if it were, only the pin of b opens a line to b."""
    monkeypatch.setattr("colonnade.transport.grpc.endpoint.check_certificate", lambda *_: None)
    sly = certificate_of("c", host=server_name("b"))
    other = doors.listen(sly, parties["a"])
    link = other.link("a")
    address = f"127.0.0.1:{other.port}"
    partners = [Partner("b", parties["b"].certificate, address), Partner("c", sly.certificate, address)]
    assert not doors.add(parties["a"], partners, None).link("b").wait_until_up(0.8)
    assert not link.is_up


def test_a_message_of_more_than_a_mebibyte_is_refused(host: Endpoint, parties: dict[str, Identity]) -> None:
    opening = struct.pack("<BB16s16sQ", 1, 1, b"i" * 16, bytes(16), 0)
    with pytest.raises(grpc.RpcError) as refused:
        call_by_hand(host.port, parties["b"], parties["a"], [bytes(2**20 + 1)])
    assert refused.value.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.CANCELLED)
    assert not host._links["a"].is_over
    assert call_by_hand(host.port, parties["b"], parties["a"], [opening])[0][0] == 1


def test_garbage_from_a_partner_ends_only_its_own_line(host: Endpoint, parties: dict[str, Identity]) -> None:
    call_by_hand(host.port, parties["b"], parties["a"], [b"\xff garbage"])
    with pytest.raises(FrameRefused, match="no version of colonnade sends"):
        host._links["a"].receive()
    assert not host._links["c"].is_over


def open_ones(strangers: list[socket.socket]) -> list[socket.socket]:
    """Return those that nobody has hung up on."""
    found = []
    for stranger in strangers:
        stranger.settimeout(0.01)
        try:
            stranger.recv(1)
        except TimeoutError:
            found.append(stranger)
        except OSError:
            continue
    return found


def test_silent_callers_give_way_to_others_but_a_partner_does_not(
    doors: Doors, parties: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers_module, "most_unproved", lambda: 8)
    host = doors.listen(parties["b"], parties["a"])
    guest = doors.dial(parties["a"], parties["b"], host.port)
    right, left = host.link("a"), guest.link("b")
    talk(left, right)
    with ExitStack() as strangers:
        called = [
            strangers.enter_context(socket.create_connection(("127.0.0.1", host.port or 0), 5)) for _ in range(150)
        ]
        limit = time.monotonic() + endpoint_module._HANDSHAKE_SECONDS / 2
        while len(open_ones(called)) > 8:
            assert time.monotonic() < limit, "they gave way long before their time was up"
        talk(left, right)
        assert left._stream == 1, "over the same connection as before"


def test_a_caller_that_does_not_prove_who_it_is_has_little_time(
    doors: Doors, parties: dict[str, Identity], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoint_module, "_HANDSHAKE_SECONDS", 0.5)
    host = doors.listen(parties["b"], parties["a"])
    right, left = host.link("a"), doors.dial(parties["a"], parties["b"], host.port).link("b")
    talk(left, right)
    with (
        socket.create_connection(("127.0.0.1", host.port or 0), 5) as silent,
        socket.create_connection(("127.0.0.1", host.port or 0), 5) as slow,
    ):
        slow.sendall(b"\x16\x03\x01\x02")  # as a TLS handshake begins
        limit = time.monotonic() + 5
        while open_ones([silent, slow]):
            assert time.monotonic() < limit
    talk(left, right)
    assert left._stream == 1


def test_the_ciphers_are_set_also_when_grpc_was_imported_before() -> None:
    """A program may import grpc for its own ends first."""
    code = "import grpc, os, colonnade.transport.grpc; print(os.environ['GRPC_SSL_CIPHER_SUITES'])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown.strip() == "ECDHE-RSA-AES128-GCM-SHA256"


# Certificates


def test_an_own_certificate_passes() -> None:
    identity = make_identity("Bank_1")
    check_certificate(identity.certificate, "Bank_1")
    assert name_of(identity.certificate) == "Bank_1"
    assert fingerprint(identity.certificate).count(" ") == 15
    assert b"PRIVATE" not in repr(identity).encode()
    assert "PRIVATE" not in str(identity)


BAD_KEYS = {
    "RSA 1024": lambda: rsa.generate_private_key(65537, 1024),
    "RSA 2048": lambda: rsa.generate_private_key(65537, 2048),
    "RSA 4096": lambda: rsa.generate_private_key(65537, 4096),
    "P-192": lambda: ec.generate_private_key(ec.SECP192R1()),
    "P-224": lambda: ec.generate_private_key(ec.SECP224R1()),
    "P-384": lambda: ec.generate_private_key(ec.SECP384R1()),
    "secp256k1": lambda: ec.generate_private_key(ec.SECP256K1()),
    "Ed25519": ed25519.Ed25519PrivateKey.generate,
}


@pytest.mark.parametrize("kind", BAD_KEYS)
def test_a_key_that_is_not_p_256_is_refused(kind: str) -> None:
    try:
        identity = certificate_of("a", key=BAD_KEYS[kind]())
    except Exception as unsupported:
        pytest.skip(f"this OpenSSL cannot make one: {unsupported}")
    with pytest.raises(ConfigError, match="not P-256"):
        check_certificate(identity.certificate, "a")


def test_wrong_dates_names_and_signatures_are_refused_each_with_its_own_error(parties: dict[str, Identity]) -> None:
    past = certificate_of("a", starts=NOW - datetime.timedelta(days=9)).certificate
    future = certificate_of("a", starts=NOW + datetime.timedelta(days=1)).certificate
    foreign = certificate_of("a", issuer=parties["c"]).certificate
    imitation = certificate_of("a", issuer=make_identity("a")).certificate
    for certificate, name, words in [
        (past, "a", "has expired"),
        (future, "a", "not valid yet"),
        (foreign, "a", "not signed by its own key"),
        (imitation, "a", "not signed by its own key"),
        (parties["c"].certificate, "a", "is that of 'c'"),
        (b"", "a", "certificate"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "a", "should hold a certificate"),
        (parties["a"].key, "a", "should hold a certificate"),
    ]:
        with pytest.raises(ConfigError, match=words):
            check_certificate(certificate, name)


def names(*hosts: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])


WRONG_POWERS: dict[str, tuple[dict[str, Any], str]] = {
    "an authority": ({"basics": x509.BasicConstraints(ca=True, path_length=None)}, "of an authority"),
    "perhaps an authority": ({"basics": None}, "of an authority"),
    "signs certificates": ({"usage": usage(key_cert_sign=True)}, "another use"),
    "signs no handshakes": ({"usage": usage(digital_signature=False, key_agreement=True)}, "another use"),
    "no use given": ({"usage": None}, "another use"),
    "listens only": ({"ends": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])}, "both ends"),
    "dials only": ({"ends": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])}, "both ends"),
    "signs programmes": ({"ends": x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING])}, "both ends"),
    "no end given": ({"ends": None}, "both ends"),
    "another host": ({"hosts": names(server_name("b"))}, "host name"),
    "two hosts": ({"hosts": names(server_name("a"), server_name("b"))}, "host name"),
    "no host": ({"hosts": None}, "host name"),
    "SHA-384": ({"digest": hashes.SHA384()}, "SHA-256"),
}


@pytest.mark.parametrize("kind", WRONG_POWERS)
def test_a_certificate_with_other_powers_than_a_party_needs_is_refused(kind: str) -> None:
    changed, words = WRONG_POWERS[kind]
    check_certificate(certificate_of("a").certificate, "a")
    with pytest.raises(ConfigError, match=words):
        check_certificate(certificate_of("a", **changed).certificate, "a")


def test_a_weak_key_is_named() -> None:
    weak = certificate_of("a", key=rsa.generate_private_key(65537, 2048))
    with pytest.raises(ConfigError, match="RSA with 2048 bits"):
        check_certificate(weak.certificate, "a")
    odd = certificate_of("a", key=ec.generate_private_key(ec.SECP384R1()))
    with pytest.raises(ConfigError, match="curve secp384r1"):
        check_certificate(odd.certificate, "a")


def test_a_file_with_a_second_certificate_is_refused(parties: dict[str, Identity]) -> None:
    """The fingerprint shows the first, but TLS would trust both: a stranger could ride along."""
    double = parties["b"].certificate + certificate_of("x", host=server_name("b")).certificate
    with pytest.raises(ConfigError, match="one certificate and nothing else"):
        Endpoint(parties["a"], {"b": Partner("b", double, "127.0.0.1:1")})
    with pytest.raises(ConfigError, match="one certificate and nothing else"):
        fingerprint(double)


def test_an_endpoint_with_a_bad_certificate_does_not_open(parties: dict[str, Identity]) -> None:
    with pytest.raises(ConfigError, match="is that of 'c'"):
        Endpoint(parties["a"], {"b": Partner("b", parties["c"].certificate)})
    expired = certificate_of("a", starts=NOW - datetime.timedelta(days=9))
    with pytest.raises(ConfigError, match="has expired"):
        Endpoint(expired, {})
