"""A party's home: its key, its certificate, its partners' pinned certificates, and how they are renewed.

::

    bank/
      party.toml            the user's own file; pairing may append a [partners.NAME] block, and changes nothing else
      key.pem               the private key
      certificate.pem       goes to partners
      partners/
        shop.pem            pinned: shop is whoever owns this certificate's key
        shop.previous.pem   the certificate before a succession, until the new one has been seen
        shop.delivered      the fingerprint of our next certificate, once shop has it
      next-key.pem          during a rotation: what key.pem will be
      next-certificate.pem
      alignments/           results of alignments, and which were begun; see 'colonnade align'

Everything but ``party.toml`` is made with mode 0600 from its first byte.
"""

from __future__ import annotations

import datetime
import os
import re
import shlex
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization

from colonnade.errors import ConfigError, did_you_mean
from colonnade.launch.home import PartyHome, new_party_file, read_party_home
from colonnade.session.files import write_whole
from colonnade.session.plan import check_name
from colonnade.text import command, toml_key
from colonnade.transport.grpc.certificates import (
    Identity,
    check_certificate,
    fingerprint,
    make_identity,
    name_of,
    read_certificate,
)
from colonnade.transport.grpc.endpoint import Partner
from colonnade.transport.grpc.succession import HEADING, check_succession, make_succession, successor_in

__all__ = [
    "HomeRenewals",
    "PartyCertificate",
    "Pinned",
    "accept_succession",
    "activate_next_identity",
    "check_address",
    "check_partner",
    "describe_certificate",
    "has_our_next",
    "is_succession",
    "load_identity",
    "load_partners",
    "make_home",
    "own_certificate",
    "paired",
    "pending_succession",
    "pin_partner",
    "previous_certificate",
    "start_rotation",
    "succession_of",
    "unpin_partner",
]

_PARTY, _KEY, _CERTIFICATE, _PARTNERS = "party.toml", "key.pem", "certificate.pem", "partners"
_NEXT_KEY, _NEXT_CERTIFICATE = "next-key.pem", "next-certificate.pem"
_PREVIOUS, _DELIVERED = ".previous", ".delivered"
_ADDRESS = re.compile(r"(?P<host>[A-Za-z0-9](?:[A-Za-z0-9._-]{0,252})|\[[0-9A-Fa-f:.]{2,45}\]):(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class PartyCertificate:
    """A party's certificate, and what people want to know about it."""

    name: str
    certificate: bytes
    fingerprint: str
    expires: datetime.datetime


@dataclass(frozen=True)
class Pinned:
    """What pinning a partner came to."""

    partner: PartyCertificate
    address: str | None
    """Where party.toml now says the partner is."""
    advice: str | None
    """What is left for the user to do in party.toml."""


# The home itself


def make_home(
    folder: Path,
    name: str,
    listen: str | None,
    *,
    source: str = "FILL-IN.csv",
    id_column: str = "FILL-IN",
    label_column: str | None = None,
    has_table: bool = True,
) -> Path:
    """Make a party's home; nothing that is there already is changed.

    A ``party.toml`` that carries this name is kept, so that a home without a key gets one.
    """
    check_name("party", name)
    if listen is not None:
        check_address(listen, "The address to listen on")
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file. Choose another place with --folder.")
    _refuse_taken_home(folder, name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    folder.mkdir(mode=0o700, exist_ok=True)
    (folder / _PARTNERS).mkdir(mode=0o700, exist_ok=True)
    identity = make_identity(name)
    # The key comes last: an interrupted init can be given again, for nothing that matters is there before it.
    if not (folder / _PARTY).exists():
        table = {"source": source, "id": id_column, "label": label_column} if has_table else None
        write_whole(folder / _PARTY, new_party_file({"name": name, "listen": listen}, table).encode())
    write_whole(folder / _CERTIFICATE, identity.certificate)
    write_whole(folder / _KEY, identity.key)
    return folder


def _refuse_taken_home(folder: Path, name: str) -> None:
    if (folder / _KEY).exists():
        raise ConfigError(
            f"{folder} already has a key. To use that home: `{command('pair', '--invite', home=folder)}`. To renew its "
            f"key: `{command('pair', '--rotate', home=folder)}`. To begin anew, move the folder away first."
        )
    for file in (_CERTIFICATE, _NEXT_KEY, _NEXT_CERTIFICATE):
        if (folder / file).exists():
            raise ConfigError(
                f"{folder} has a {file} but no {_KEY}. Restore {_KEY} from a backup; or move {file} away, run this "
                "again, and pair again with every partner."
            )
    if (folder / _PARTY).exists() and (owner := read_party_home(folder).name) != name:
        raise ConfigError(f"{folder} is the home of '{owner}'. Choose another place with --folder, or use that name.")


def load_identity(folder: Path, name: str) -> Identity:
    """Read a party's own key and certificate; refuse what could not work or is not kept safely."""
    _finish_activation(folder)
    key_path, certificate_path = folder / _KEY, folder / _CERTIFICATE
    key = _read_key(key_path, name, folder)
    if not certificate_path.exists():
        raise ConfigError(
            f"{certificate_path} is missing, but {_KEY} is there. Restore it from a backup; or move the key away, run "
            f"`{_init(name, folder)}` and pair again."
        )
    certificate = read_certificate(certificate_path)
    parsed = x509.load_pem_x509_certificate(certificate)
    if not _belong_together(key, certificate):
        raise ConfigError(
            f"{certificate_path} does not belong to {key_path}. Restore the two from the same backup; or move both "
            f"away, run `{_init(name, folder)}` and pair again."
        )
    if name_of(certificate) != name:
        raise ConfigError(
            f"{certificate_path} is for '{name_of(certificate)}', but party.toml names this party '{name}'. Correct "
            "the name in party.toml, or make a home for the new name with 'colonnade init'."
        )
    now = datetime.datetime.now(datetime.UTC)
    if now < parsed.not_valid_before_utc:
        raise ConfigError(
            f"{certificate_path} is not valid before {parsed.not_valid_before_utc:%Y-%m-%d %H:%M} UTC. Check this "
            "machine's clock."
        )
    if now > parsed.not_valid_after_utc:
        raise ConfigError(
            f"{certificate_path} expired on {parsed.not_valid_after_utc:%Y-%m-%d}. Move it and {_KEY} away, run "
            f"`{_init(name, folder)}` and pair again. Next time, 'colonnade pair --rotate' before "
            "that day saves the pairing."
        )
    check_certificate(certificate, name)
    return Identity(name, key, certificate)


def _read_key(path: Path, name: str, folder: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        content = path.read_bytes()
    except FileNotFoundError:
        raise ConfigError(
            f"{folder} has no {_KEY}. Run `{_init(name, folder)}`; it keeps the party.toml there."
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror}). Only its owner may: use that account.") from None
    if mode & 0o077:
        raise ConfigError(
            f"{path} can be read by others on this machine. Run `chmod 600 {shlex.quote(str(path))}`; if someone may "
            "have copied it, make a new home and pair again."
        )
    return content


def _belong_together(key: bytes, certificate: bytes) -> bool:
    try:
        own = serialization.load_pem_private_key(key, password=None).public_key()
    except (ValueError, TypeError):
        raise ConfigError(
            f"{_KEY} does not hold a private key, or one under a password. Restore it from a backup; or move it away, "
            "run 'colonnade init' and pair again."
        ) from None
    form = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
    return own.public_bytes(*form) == x509.load_pem_x509_certificate(certificate).public_key().public_bytes(*form)


def _init(name: str, folder: Path) -> str:
    return command("init", name, "--folder", folder)


def own_certificate(folder: Path) -> PartyCertificate:
    """Return this party's own certificate."""
    _finish_activation(folder)
    path = folder / _CERTIFICATE
    if not path.exists():
        raise ConfigError(f"{folder} has no {_CERTIFICATE}. Run `{_init('NAME', folder)}` first.")
    return describe_certificate(read_certificate(path))


def describe_certificate(certificate: bytes) -> PartyCertificate:
    """Say whose certificate this is; refuse a name that could not be a file's."""
    if b"PRIVATE KEY" in certificate:
        raise ConfigError(
            "This is a private key, which must never leave its machine. Use the certificate: 'colonnade pair --export'."
        )
    name = name_of(certificate)
    check_name("party", name)
    expires = x509.load_pem_x509_certificate(certificate).not_valid_after_utc
    return PartyCertificate(name, certificate, fingerprint(certificate), expires)


def check_address(address: str, what: str, *, lowest: int = 1) -> tuple[str, int]:
    """Take an address apart; it goes into TOML files and on the command line, so its letters are few.

    >>> check_address("bank.example:7443", "The address")
    ('bank.example', 7443)
    >>> check_address("[::1]:7443", "The address")
    ('::1', 7443)
    """
    found = _ADDRESS.fullmatch(address)
    if found is None or not lowest <= int(found["port"]) <= 65535:
        example = f"0.0.0.0:{address}" if address.isascii() and address.isdigit() else "bank.example:7443"
        raise ConfigError(f"{what} must be HOST:PORT, such as {example}. Got {address!r} instead.")
    return found["host"].strip("[]"), int(found["port"])


# Partners


def paired(folder: Path) -> dict[str, PartyCertificate]:
    """Return every paired partner with its pinned certificate."""
    return {name: _pinned(folder, name) for name in _paired_names(folder)}


def _paired_names(folder: Path) -> list[str]:
    found = (path.name.removesuffix(".pem") for path in (folder / _PARTNERS).glob("*.pem"))
    return sorted(name for name in found if not name.endswith(_PREVIOUS))


def _check_paired(folder: Path, name: str) -> None:
    known = _paired_names(folder)
    if name not in known:
        hint = did_you_mean(name, known) if known else "Nobody is paired yet."
        raise ConfigError(f"'{name}' is not paired with this party. {hint} To pair: 'colonnade pair --help'.")


def _pinned(folder: Path, name: str) -> PartyCertificate:
    path = _partner_file(folder, name)
    try:
        found = describe_certificate(read_certificate(path))
    except ConfigError as error:
        remove = command("pair", "--remove", name, home=folder)
        raise ConfigError(f"{path}: {error} Or remove the partner (`{remove}`) and pair again.") from None
    if found.name != name:
        raise ConfigError(f"{path} is the certificate of '{found.name}'. Remove '{name}' and pair again.")
    return found


def _partner_file(folder: Path, name: str, suffix: str = ".pem") -> Path:
    # Names come from certificates, which others made.
    check_name("party", name)
    return folder / _PARTNERS / f"{name}{suffix}"


def load_partners(home: PartyHome, names: Iterable[str]) -> dict[str, Partner]:
    """Return these partners, each with its pinned certificate and, if party.toml has one, its address."""
    partners = {}
    for name in names:
        _check_paired(home.folder, name)
        certificate = _pinned(home.folder, name).certificate
        check_certificate(certificate, name)
        previous = previous_certificate(home.folder, name)
        partners[name] = Partner(name, certificate, home.partners.get(name), previous)
    return partners


def check_partner(folder: Path, certificate: bytes, *, replace: bool = False) -> PartyCertificate:
    """Refuse a certificate that this home must not pin."""
    found = describe_certificate(certificate)
    own = own_certificate(folder)
    if found.fingerprint == own.fingerprint:
        raise ConfigError("This is our own certificate. Ask your partner for theirs: 'colonnade pair --export'.")
    if found.name.lower() == own.name.lower():
        raise ConfigError(f"The partner is called '{found.name}', as we are. One of the two must choose another name.")
    if found.name.lower().endswith(_PREVIOUS):
        raise ConfigError(f"'{found.name}' cannot be paired: '{_PREVIOUS}' is ours to use. Ask for another name.")
    check_certificate(certificate, found.name)
    for name in _paired_names(folder):
        if name != found.name and name.lower() == found.name.lower():
            raise ConfigError(f"'{name}' is paired, and '{found.name}' differs only in case. Ask for another name.")
        # A damaged file may be replaced, too, but not by chance.
        if name == found.name and not replace and _pinned_fingerprint(folder, name) != found.fingerprint:
            raise ConfigError(
                f"'{name}' is paired with another certificate. Ask '{name}' by telephone whether it made a new one; "
                "if so, give --replace."
            )
    return found


def _pinned_fingerprint(folder: Path, name: str) -> str | None:
    """Return the fingerprint pinned for a partner, or None where there is none or the file is damaged."""
    try:
        return _pinned(folder, name).fingerprint
    except ConfigError:
        return None


def pin_partner(folder: Path, certificate: bytes, address: str | None, *, replace: bool = False) -> Pinned:
    """Accept a partner's certificate from now on, and note its address if none is noted.

    The caller has made sure that the certificate is the partner's: by fingerprint or by code.
    """
    partner = check_partner(folder, certificate, replace=replace)
    if address is not None:
        check_address(address, f"The address of '{partner.name}'")
    if _pinned_fingerprint(folder, partner.name) != partner.fingerprint:
        # What was agreed under another certificate ends with it.
        _partner_file(folder, partner.name, _DELIVERED).unlink(missing_ok=True)
        _partner_file(folder, partner.name, f"{_PREVIOUS}.pem").unlink(missing_ok=True)
        (folder / _PARTNERS).mkdir(mode=0o700, exist_ok=True)
        write_whole(_partner_file(folder, partner.name), certificate)
    noted, advice = _note_address(folder, partner.name, address)
    return Pinned(partner, noted, advice)


def unpin_partner(folder: Path, name: str) -> None:
    """Accept a partner's certificate no more."""
    _check_paired(folder, name)
    # The pinned one last: an interrupted removal can be given again.
    for suffix in (_DELIVERED, f"{_PREVIOUS}.pem", ".pem"):
        _partner_file(folder, name, suffix).unlink(missing_ok=True)


def _note_address(folder: Path, name: str, address: str | None) -> tuple[str | None, str | None]:
    """Append a partner's address to party.toml, unless one is there; return what it says now, and any advice."""
    path = folder / _PARTY
    text = path.read_text(encoding="utf-8")
    before = tomllib.loads(text).get("partners", {})
    noted = before.get(name, {}).get("address")
    if address is None or noted == address:
        return noted, None
    if name in before and noted is None:
        return None, f"Add the address of '{name}' to [partners.{name}] in {path}: {address}."
    if name in before:
        return noted, (
            f"{path} says that '{name}' is at {noted}; now it was {address}. Change [partners.{name}] if it moved."
        )
    block = f'\n[partners.{toml_key(name)}]\naddress = "{address}"\n'
    if text and not text.endswith("\n"):
        block = "\n" + block
    try:
        after = tomllib.loads(text + block).get("partners", {})
    except tomllib.TOMLDecodeError:
        after = {}
    if after != {**before, name: {"address": address}}:
        # For example an inline table, which a block cannot add to.
        return None, f"Add the address of '{name}' to the partners in {path}: {address}."
    # Appended, so that the user's own lines, their owner and their permissions stay as they are.
    with path.open("ab") as file:
        file.write(block.encode())
        file.flush()
        os.fsync(file.fileno())
    return address, None


# Rotation: our own next key


def start_rotation(folder: Path) -> tuple[PartyCertificate, Path]:
    """Make the next key and certificate; return the certificate, and the file with the succession statement.

    While a rotation is under way, only the statement is written again.
    """
    name = own_certificate(folder).name
    load_identity(folder, name)
    if pending_succession(folder) is None:
        new = make_identity(name)
        # The certificate last: it is what says that a rotation has begun.
        write_whole(folder / _NEXT_KEY, new.key)
        write_whole(folder / _NEXT_CERTIFICATE, new.certificate)
    statement = folder / f"{name}.succession"
    write_whole(statement, make_succession(load_identity(folder, name), _next_identity(folder, name)))
    return describe_certificate(read_certificate(folder / _NEXT_CERTIFICATE)), statement


def pending_succession(folder: Path) -> bytes | None:
    """Return the statement that partners still need, or None when no rotation is under way."""
    if not (folder / _NEXT_CERTIFICATE).exists() or not (folder / _NEXT_KEY).exists():
        return None
    name = own_certificate(folder).name
    return make_succession(load_identity(folder, name), _next_identity(folder, name))


def _next_identity(folder: Path, name: str) -> Identity:
    key = _read_key(folder / _NEXT_KEY, name, folder)
    certificate = read_certificate(folder / _NEXT_CERTIFICATE)
    if not _belong_together(key, certificate):
        raise ConfigError(
            f"{_NEXT_KEY} and {_NEXT_CERTIFICATE} in {folder} do not belong together. Delete both and rotate again."
        )
    check_certificate(certificate, name)
    return Identity(name, key, certificate)


def has_our_next(folder: Path, partner: str) -> bool | None:
    """Tell whether a partner has our next certificate; None when no rotation is under way."""
    path, note = folder / _NEXT_CERTIFICATE, _partner_file(folder, partner, _DELIVERED)
    if not path.exists():
        return None
    # A note from an earlier rotation names another certificate.
    return note.exists() and note.read_bytes() == fingerprint(read_certificate(path)).encode()


def activate_next_identity(folder: Path, *, at_once: bool = False) -> bool:
    """Switch to the next key when every paired partner has its certificate, or at once; tell whether it happened."""
    if pending_succession(folder) is None:
        return False
    if not at_once and not all(has_our_next(folder, name) for name in _paired_names(folder)):
        return False
    os.replace(folder / _NEXT_KEY, folder / _KEY)
    _finish_activation(folder)
    return True


def _finish_activation(folder: Path) -> None:
    """Bring the certificate after the key; also when a crash came between the two."""
    following = folder / _NEXT_CERTIFICATE
    if not following.exists() or (folder / _NEXT_KEY).exists() or not (folder / _KEY).exists():
        return
    if _belong_together((folder / _KEY).read_bytes(), read_certificate(following)):
        os.replace(following, folder / _CERTIFICATE)
        for name in _paired_names(folder):
            _partner_file(folder, name, _DELIVERED).unlink(missing_ok=True)


# Rotation: a partner's next key


def is_succession(content: bytes) -> bool:
    """Tell a succession from a certificate."""
    return content.startswith(HEADING)


def succession_of(statement: bytes) -> str:
    """Return whom a statement speaks of; whether it is true is not known yet."""
    name = successor_in(statement)[0]
    check_name("party", name)
    return name


def accept_succession(folder: Path, partner: str, statement: bytes) -> PartyCertificate:
    """Pin the certificate that follows a partner's pinned one; keep that one until the new has been seen.

    Accepting the same statement again changes nothing: the partner may not have heard that we have it.
    """
    name, new = succession_of(statement), successor_in(statement)[1]
    if name != partner:
        raise ConfigError(f"The succession is that of '{name}', not of '{partner}'. Ask '{partner}' for its own.")
    _check_paired(folder, name)
    pinned = _pinned(folder, name)
    if fingerprint(new) == pinned.fingerprint:
        return pinned
    accepted = check_succession(statement, pinned.certificate, name)
    if fingerprint(accepted) == own_certificate(folder).fingerprint:
        raise ConfigError(f"The succession of '{name}' names our own certificate. Do not use it.")
    write_whole(_partner_file(folder, name, f"{_PREVIOUS}.pem"), pinned.certificate)
    write_whole(_partner_file(folder, name), accepted)
    return describe_certificate(accepted)


def previous_certificate(folder: Path, partner: str) -> bytes | None:
    """Return the certificate a partner may still use, because its new one has not been seen yet."""
    path = _partner_file(folder, partner, f"{_PREVIOUS}.pem")
    return read_certificate(path) if path.exists() else None


class HomeRenewals:
    """Lets partners' lines carry successions from home to home; see `Renewals` of the endpoint."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def own(self) -> bytes:
        """Return our own statement, if a rotation is under way."""
        return pending_succession(self._folder) or b""

    def accept(self, peer: str, statement: bytes) -> bool:
        """Pin a partner's next certificate if its present key signed for it; a bad statement changes nothing."""
        try:
            accept_succession(self._folder, peer, statement)
        except ConfigError:
            return False
        return True

    def delivered(self, peer: str) -> None:
        """Note that a partner has our next certificate."""
        if pending_succession(self._folder) is not None:
            following = read_certificate(self._folder / _NEXT_CERTIFICATE)
            write_whole(_partner_file(self._folder, peer, _DELIVERED), fingerprint(following).encode())

    def seen(self, peer: str) -> None:
        """Forget a partner's previous certificate: it has shown that it uses the new one."""
        _partner_file(self._folder, peer, f"{_PREVIOUS}.pem").unlink(missing_ok=True)
