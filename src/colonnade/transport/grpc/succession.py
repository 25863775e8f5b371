"""A succession statement: the old key of a party names the certificate that follows it.

Whoever has pinned the old certificate can check the statement and pin the new one without a human comparing
fingerprints. Its bytes: the heading, the SHA-256 of the old certificate (32 bytes), the new certificate and the
signature, each behind its length (u16, big-endian). Nothing may follow.

The statement is as good as the old key: whoever stole that key can write one. After a theft remove the partner and
pair again.
"""

from __future__ import annotations

import datetime
import struct

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from colonnade.errors import ConfigError
from colonnade.transport.grpc.certificates import Identity, check_certificate, fingerprint, name_of

__all__ = ["HEADING", "MOST_BYTES", "check_succession", "make_succession", "successor_in"]

HEADING = b"colonnade succession 1\n"
MOST_BYTES = 4096
# The key also signs TLS handshakes and its own certificate; this heading keeps the three kinds of signature apart.
_DOMAIN = b"colonnade: this certificate follows that one, version 1\0"
_ALGORITHM = ec.ECDSA(hashes.SHA256())
_DIGEST_BYTES = 32


def make_succession(old: Identity, new: Identity) -> bytes:
    """Let the old key say that the new certificate follows its own."""
    if old.name != new.name:
        raise ConfigError(f"'{new.name}' cannot follow '{old.name}'. Both certificates must carry one name.")
    key = serialization.load_pem_private_key(old.key, password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"The key of '{old.name}' is no elliptic-curve key. Make a new one with 'colonnade init'.")
    before, after = _digest(old.certificate), _der(new.certificate)
    signature = key.sign(_signed(before, after), _ALGORITHM)
    return HEADING + before + _sized(after) + _sized(signature)


def check_succession(statement: bytes, pinned: bytes, name: str, *, now: datetime.datetime | None = None) -> bytes:
    """Return the certificate that follows the pinned one, as PEM; refuse whatever the pinned key did not sign."""
    check_certificate(pinned, name, now=now)
    before, after, signature = _parts(statement)
    if before != _digest(pinned):
        raise ConfigError(
            f"The succession does not follow the certificate pinned for '{name}': it belongs to another party, is an "
            "older one, or was accepted already. Ask for the newest, or pair again."
        )
    key = x509.load_pem_x509_certificate(pinned).public_key()
    try:
        # check_certificate has made sure that this is an elliptic-curve key.
        key.verify(signature, _signed(before, after), _ALGORITHM)  # type: ignore[union-attr, call-arg, arg-type]
    except InvalidSignature:
        raise ConfigError(
            f"The succession is not signed by the key that is pinned for '{name}'. Do not use it; ask '{name}' by "
            "telephone."
        ) from None
    new = _pem(after)
    check_certificate(new, name, now=now)
    if fingerprint(new) == fingerprint(pinned):
        raise ConfigError(f"The succession of '{name}' names the certificate that is pinned already. Nothing to do.")
    return new


def successor_in(statement: bytes) -> tuple[str, bytes]:
    """Return the name and the certificate a statement carries. Nothing is checked yet but its form."""
    new = _pem(_parts(statement)[1])
    return name_of(new), new


def _parts(statement: bytes) -> tuple[bytes, bytes, bytes]:
    if len(statement) > MOST_BYTES or not statement.startswith(HEADING):
        raise ConfigError("This is not a succession. Ask your partner for the file 'colonnade pair --rotate' made.")
    rest = statement[len(HEADING) :]
    before, rest = rest[:_DIGEST_BYTES], rest[_DIGEST_BYTES:]
    after, rest = _take(rest)
    signature, rest = _take(rest)
    if rest:
        raise _damaged()
    return before, after, signature


def _take(content: bytes) -> tuple[bytes, bytes]:
    if len(content) < 2:
        raise _damaged()
    (length,) = struct.unpack_from(">H", content)
    if length == 0 or len(content) < 2 + length:
        raise _damaged()
    return content[2 : 2 + length], content[2 + length :]


def _sized(content: bytes) -> bytes:
    return struct.pack(">H", len(content)) + content


def _damaged() -> ConfigError:
    return ConfigError("The succession is cut off or damaged. Ask your partner for the file again.")


def _signed(before: bytes, after: bytes) -> bytes:
    return _DOMAIN + before + _sized(after)


def _digest(certificate: bytes) -> bytes:
    return bytes.fromhex(fingerprint(certificate))


def _der(certificate: bytes) -> bytes:
    return x509.load_pem_x509_certificate(certificate).public_bytes(serialization.Encoding.DER)


def _pem(der: bytes) -> bytes:
    try:
        return x509.load_der_x509_certificate(der).public_bytes(serialization.Encoding.PEM)
    except ValueError:
        raise _damaged() from None
