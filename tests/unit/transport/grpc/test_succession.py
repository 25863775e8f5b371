"""A succession is accepted because the pinned key signed it, and for no other reason."""

from __future__ import annotations

import datetime
import struct
from collections.abc import Callable

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from colonnade.errors import ConfigError
from colonnade.transport.grpc import Identity, make_identity
from colonnade.transport.grpc import succession as module
from colonnade.transport.grpc.succession import HEADING, check_succession, make_succession, successor_in

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
OLD, NEW, OTHER = make_identity("bank"), make_identity("bank"), make_identity("bank")


def forged(*, signer: Identity = OLD, before: Identity = OLD, after: Identity = NEW) -> bytes:
    """A statement that says of ``before`` what ``signer`` signs."""
    key = serialization.load_pem_private_key(signer.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    digest, der = module._digest(before.certificate), module._der(after.certificate)
    signature = key.sign(module._signed(digest, der), ec.ECDSA(hashes.SHA256()))
    return HEADING + digest + module._sized(der) + module._sized(signature)


def weak_identity() -> Identity:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "bank")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(NOW - DAY)
        .not_valid_after(NOW + DAY)
        .sign(key, hashes.SHA256())
    )
    return Identity("bank", b"", certificate.public_bytes(serialization.Encoding.PEM))


def test_the_pinned_key_may_name_the_next_certificate() -> None:
    statement = make_succession(OLD, NEW)
    assert check_succession(statement, OLD.certificate, "bank") == NEW.certificate
    assert successor_in(statement) == ("bank", NEW.certificate)
    assert len(statement) < module.MOST_BYTES


def test_a_chain_of_successions_is_followed_link_by_link() -> None:
    first, second = make_succession(OLD, NEW), make_succession(NEW, OTHER)
    pinned = check_succession(first, OLD.certificate, "bank")
    assert check_succession(second, pinned, "bank") == OTHER.certificate
    with pytest.raises(ConfigError, match="does not follow"):
        check_succession(second, OLD.certificate, "bank")


def test_an_older_succession_does_not_bring_the_older_certificate_back() -> None:
    back = make_succession(OLD, NEW)
    with pytest.raises(ConfigError, match="older"):
        check_succession(back, NEW.certificate, "bank")
    with pytest.raises(ConfigError, match="older"):
        check_succession(back, OTHER.certificate, "bank")


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "signed by another key": (lambda: forged(signer=OTHER), "not signed by the key that is pinned"),
    "signed by the new key itself": (lambda: forged(signer=NEW), "not signed by the key that is pinned"),
    "about another certificate": (lambda: forged(before=OTHER), "does not follow"),
    "another name": (lambda: forged(after=make_identity("shop")), "'shop', not of 'bank'"),
    "expired": (lambda: forged(after=make_identity("bank", days=1, starts=NOW - 3 * DAY)), "expired"),
    "not valid yet": (lambda: forged(after=make_identity("bank", starts=NOW + DAY)), "not valid yet"),
    "weak key": (lambda: forged(after=weak_identity()), "not P-256"),
    "itself": (lambda: forged(after=OLD), "pinned already"),
    "nothing": (lambda: b"", "not a succession"),
    "a certificate": (lambda: NEW.certificate, "not a succession"),
    "heading only": (lambda: HEADING, "damaged"),
    "cut off": (lambda: make_succession(OLD, NEW)[:-1], "damaged"),
    "something after it": (lambda: make_succession(OLD, NEW) + b"\0", "damaged"),
    "too large": (lambda: make_succession(OLD, NEW) + bytes(5000), "not a succession"),
    "a length that lies": (lambda: HEADING + bytes(32) + struct.pack(">H", 65535) + b"x", "damaged"),
    "no certificate inside": (
        lambda: HEADING + module._digest(OLD.certificate) + module._sized(b"xx") + module._sized(b"yy"),
        "not signed",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_succession_is_refused_when_it_is(case: str) -> None:
    make, says = REFUSED[case]
    with pytest.raises(ConfigError, match=says):
        check_succession(make(), OLD.certificate, "bank")


def test_every_flipped_bit_is_noticed() -> None:
    statement = make_succession(OLD, NEW)
    for place in range(0, len(statement), 3):
        changed = bytearray(statement)
        changed[place] ^= 1
        with pytest.raises(ConfigError):
            check_succession(bytes(changed), OLD.certificate, "bank")


def test_a_signature_made_for_something_else_does_not_count() -> None:
    # A signature over the same content without our heading, as another protocol might make it.
    key = serialization.load_pem_private_key(OLD.key, password=None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    digest, der = module._digest(OLD.certificate), module._der(NEW.certificate)
    signature = key.sign(digest + module._sized(der), ec.ECDSA(hashes.SHA256()))
    with pytest.raises(ConfigError, match="not signed"):
        check_succession(HEADING + digest + module._sized(der) + module._sized(signature), OLD.certificate, "bank")


def test_an_expired_certificate_names_no_successor() -> None:
    old = make_identity("bank", days=1, starts=NOW - 3 * DAY)
    with pytest.raises(ConfigError, match="expired"):
        check_succession(make_succession(old, NEW), old.certificate, "bank")


def test_another_name_cannot_follow() -> None:
    with pytest.raises(ConfigError, match="cannot follow"):
        make_succession(OLD, make_identity("shop"))
