"""Keys and certificates: who a party is on the wire.

Every party makes its own key and signs its own certificate. There is no authority: partners exchange certificates
once and pin them, so a certificate is accepted because it is exactly the one a partner gave us.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from colonnade.errors import ConfigError
from colonnade.text import LONGEST_NAME, shown

__all__ = ["Identity", "check_certificate", "fingerprint", "make_identity", "name_of", "server_name"]

# P-256 with ECDSA: no RSA certificate can exist, which is what keeps TLS 1.2 out (see endpoint.py).
_CURVE = ec.SECP256R1()
_DAYS = 825
_BOTH_ENDS = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)
# Without this TLS accepts whatever a pinned key has signed, although the certificate says that it is no authority.
_SIGNS_HANDSHAKES_ONLY = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)

E = TypeVar("E", bound=x509.ExtensionType)


@dataclass(frozen=True)
class Identity:
    """A party's own key and certificate, as PEM."""

    name: str
    key: bytes
    certificate: bytes

    def __repr__(self) -> str:
        return f"Identity({self.name!r}, {fingerprint(self.certificate)})"


def make_identity(name: str, *, days: int = _DAYS, starts: datetime.datetime | None = None) -> Identity:
    """Make a fresh key and a certificate signed by it."""
    key = ec.generate_private_key(_CURVE)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = starts or datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + datetime.timedelta(days=days))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(server_name(name))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(_BOTH_ENDS), critical=False)
        .add_extension(_SIGNS_HANDSHAKES_ONLY, critical=True)
        .sign(key, hashes.SHA256())
    )
    return Identity(
        name,
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()),
        certificate.public_bytes(serialization.Encoding.PEM),
    )


def server_name(name: str) -> str:
    """Return the host name a certificate carries for a party; addresses change, this does not.

    >>> server_name("Bank_1")
    'bank-5f1.colonnade.invalid'
    """
    # Host names know neither case nor underscores: what is not a lower-case letter, digit or dash is spelt out.
    letters = (one if one.isascii() and (one.isalnum() or one == "-") else f"-{ord(one):x}" for one in name.lower())
    plain = "".join(letters)
    return f"{plain}.colonnade.invalid"


def fingerprint(certificate: bytes) -> str:
    """Return the SHA-256 of a certificate in groups that two people can compare by telephone."""
    digest = _parse(certificate).fingerprint(hashes.SHA256()).hex()
    return " ".join(digest[start : start + 4] for start in range(0, len(digest), 4))


def name_of(certificate: bytes) -> str:
    """Return the party a certificate names."""
    names = _parse(certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if len(names) != 1:
        raise ConfigError("The certificate does not name one party. Ask your partner for the file colonnade made.")
    # Whoever made it chose the name, so that it may have to be shown before anybody has agreed to it.
    return shown(str(names[0].value), LONGEST_NAME)


def check_certificate(certificate: bytes, name: str, *, now: datetime.datetime | None = None) -> None:
    """Refuse a certificate that is not a party's own, has the wrong dates, a weak key, another name or other powers."""
    parsed = _parse(certificate)
    if name_of(certificate) != name:
        raise ConfigError(f"The certificate is that of '{name_of(certificate)}', not of '{name}'. Pair again.")
    _check_key(parsed, name)
    _check_dates(parsed, name, now or datetime.datetime.now(datetime.UTC))
    try:
        parsed.verify_directly_issued_by(parsed)
    except (InvalidSignature, ValueError, TypeError):
        raise ConfigError(f"The certificate of '{name}' is not signed by its own key. Pair again.") from None
    _check_powers(parsed, name)


def _check_key(parsed: x509.Certificate, name: str) -> None:
    key = parsed.public_key()
    if isinstance(key, ec.EllipticCurvePublicKey):
        found = f"on the curve {key.curve.name}"
    elif isinstance(key, rsa.RSAPublicKey):
        found = f"of RSA with {key.key_size} bits"
    else:
        found = "of another kind"
    if not isinstance(key, ec.EllipticCurvePublicKey) or key.curve.name != _CURVE.name:
        raise ConfigError(
            f"The certificate of '{name}' has a key {found}, not P-256. Its party must make a new one with 'colonnade "
            "init'."
        )
    if not isinstance(parsed.signature_hash_algorithm, hashes.SHA256):
        raise ConfigError(f"The certificate of '{name}' is not signed with SHA-256. Its party must make a new one.")


def _check_dates(parsed: x509.Certificate, name: str, moment: datetime.datetime) -> None:
    if moment < parsed.not_valid_before_utc:
        raise ConfigError(f"The certificate of '{name}' is not valid yet. Check the clocks of both machines.")
    if moment > parsed.not_valid_after_utc:
        raise ConfigError(f"The certificate of '{name}' has expired. Its party must make a new one and pair again.")


def _check_powers(parsed: x509.Certificate, name: str) -> None:
    """Refuse what may vouch for others: TLS would let in whoever shows a certificate that this one has signed."""
    try:
        basics = _extension(parsed, x509.BasicConstraints)
        usage = _extension(parsed, x509.KeyUsage)
        ends = _extension(parsed, x509.ExtendedKeyUsage)
        hosts = _extension(parsed, x509.SubjectAlternativeName)
    except (ValueError, x509.DuplicateExtension):
        raise ConfigError(f"The certificate of '{name}' cannot be understood. Pair again.") from None
    if basics is None or basics.ca:
        raise ConfigError(
            f"The certificate of '{name}' is that of an authority, or does not say that it is none, so it could let in "
            "strangers. Use the one that 'colonnade init' made."
        )
    if usage != _SIGNS_HANDSHAKES_ONLY:
        raise ConfigError(
            f"The certificate of '{name}' is for another use than handshakes. Use the one that 'colonnade init' made."
        )
    if ends is None or set(ends) != set(_BOTH_ENDS):
        raise ConfigError(
            f"The certificate of '{name}' is not for both ends of a line. Use the one that 'colonnade init' made."
        )
    if hosts is None or list(hosts) != [x509.DNSName(server_name(name))]:
        raise ConfigError(
            f"The certificate of '{name}' does not carry the host name {server_name(name)} alone. Use the one that "
            "'colonnade init' made."
        )


def _extension(parsed: x509.Certificate, kind: type[E]) -> E | None:
    try:
        return parsed.extensions.get_extension_for_class(kind).value
    except x509.ExtensionNotFound:
        return None


def read_certificate(path: Path) -> bytes:
    """Read a certificate file."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"The certificate {path} cannot be read ({error.strerror}).") from None
    _parse(content)
    return content


def _parse(certificate: bytes) -> x509.Certificate:
    # Exactly one block: TLS would trust a second certificate in the file, which no fingerprint shows.
    if certificate.count(b"-----BEGIN") != 1:
        raise ConfigError(
            "A certificate file must hold one certificate and nothing else. Ask your partner for it again."
        )
    try:
        return x509.load_pem_x509_certificate(certificate)
    except ValueError:
        raise ConfigError("A file that should hold a certificate does not. Ask your partner for it again.") from None
