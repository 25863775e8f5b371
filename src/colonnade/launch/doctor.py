"""Find out what would stop a run, before there is one."""

from __future__ import annotations

import os
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography import x509

from colonnade import __version__
from colonnade.engine import Work
from colonnade.errors import (
    ColonnadeError,
    ConfigError,
    EngineFailed,
    FrameRefused,
    HandshakeRefused,
    OutOfStep,
    PeerFailed,
    PeerLost,
)
from colonnade.launch.home import PartyHome, read_party_home, shape_in_words
from colonnade.launch.identity import HomeRenewals, load_identity, load_partners, own_certificate, paired
from colonnade.messages import ANYONE, PLAIN, message
from colonnade.session import Alignment, Method, Participant, Role, RunPlan, Session, Stage
from colonnade.session.handshake import greet
from colonnade.text import command
from colonnade.transport.grpc import Endpoint, GrpcLink

__all__ = ["Finding", "examine_home", "examine_peer"]

_LEAST_FREE_BYTES = 1 << 30
_SOON_DAYS = 30
_LARGEST_CLOCK_GAP = 30.0
_PROBES = {"1 KiB": 1 << 10, "1 MiB": 1 << 20, "16 MiB": 16 << 20}
_PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Finding:
    """One thing looked at: whether it is well, what was seen, and what to do if it is not."""

    check: str
    passed: bool
    seen: str
    fix: str = ""


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="doctor")
class Clock:
    """The sender's time, and whether it could dial and be dialled.

    Reveals: the sender's time, and whether it could dial and be dialled.
    """

    seconds: float
    dials: bool
    listens: bool


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="doctor")
class Probe:
    """Zeros, to see whether and how fast they get through. Reveals: nothing but how many zeros get through."""

    content: bytes


def examine_home(folder: Path) -> Iterator[Finding]:
    """Look at everything a run needs on this side."""
    try:
        home = read_party_home(folder)
    except ColonnadeError as error:
        yield Finding("home", False, str(error), "Make a home with 'colonnade init NAME', or name it with --home.")
        return
    yield Finding("home", True, f"{folder} belongs to '{home.name}'")
    key = _permissions(folder / "key.pem", home.name)
    yield key
    yield _certificate(home, has_key=key.passed)
    yield from _partners(home)
    yield _attempted("table", lambda: _table(home), "Correct [table] in party.toml.")
    free = shutil.disk_usage(folder).free
    yield Finding(
        "disk",
        free >= _LEAST_FREE_BYTES,
        f"{free / 2**30:.1f} GiB free",
        "Free at least 1 GiB, or keep runs elsewhere with --folder.",
    )
    yield _attempted("engine", lambda: _engine(home), "Correct [engine] in party.toml.")
    if home.listen is not None:
        port = _attempted("port", lambda: _listen(str(home.listen)), "Stop what uses the port, perhaps a run")
        yield port if port.passed else replace(port, fix=f"{port.fix}; or {_other_port(home.listen)}.")


def examine_peer(folder: Path, peer: str) -> Iterator[Finding]:
    """Talk to a partner that gives the same command: both directions, version, clock, throughput, message size."""
    try:
        home = read_party_home(folder)
        identity, partners = load_identity(folder, home.name), load_partners(home, [peer])
        endpoint = Endpoint(identity, partners, home.listen, renewals=HomeRenewals(folder))
        endpoint.open()
    except ConfigError as error:
        yield Finding("connection", False, str(error), "Mend this home first; 'colonnade doctor' alone looks at it.")
        return
    check = "connection"
    try:
        first, second = sorted([home.name, peer])
        plan = RunPlan(name="doctor", method="doctor", roles={"first": (first,), "second": (second,)})
        dials = partners[peer].address is not None
        facts = Clock(time.time(), dials, home.listen is not None)
        with _line(plan, home.name, endpoint.link(peer)) as session:
            yield Finding("connection", True, f"'{home.name}' and '{peer}' reach each other")
            other = greet(session).get(peer)
            seen = f"both run colonnade {__version__}"
            if other is not None:
                seen = f"this is colonnade {__version__} and '{peer}' runs {other}; both speak the same protocol"
            yield Finding("version", True, seen)
            theirs = yield from _talk(session, facts)
        both = facts.dials and facts.listens and theirs.dials and theirs.listens
        if not both:
            yield Finding("other direction", True, "not tried: only one of the two can be dialled")
            return
        check = "other direction"
        # The one that is dialled by rule dials now.
        with _line(plan, home.name, endpoint.link(peer, dials=home.name == second)) as session:
            greet(session)
            yield Finding("other direction", True, f"'{second}' can dial '{first}' too")
    except (FrameRefused, HandshakeRefused, OutOfStep) as refused:
        fix = f"Install the same version at both; '{peer}' must give 'colonnade doctor', not 'colonnade run'."
        yield Finding("version", False, str(refused), fix)
    except (PeerFailed, PeerLost) as lost:
        trouble = endpoint.trouble.get(peer, "")
        yield Finding(
            check,
            False,
            f"{lost} {trouble}".strip(),
            f"Check that '{peer}' gives 'colonnade doctor --peer {home.name}' at the same moment, its address in "
            "party.toml, the firewall, and that both paired with each other's present certificate.",
        )
    finally:
        endpoint.close()


def _talk(session: Session, facts: Clock) -> Any:
    """Compare clocks and send probes of growing size, both ways at once."""
    (channel,) = session.all_channels
    begin = time.monotonic()
    channel.send(Clock(time.time(), facts.dials, facts.listens))
    theirs = channel.receive(Clock)
    gap = abs(time.time() - theirs.seconds) - (time.monotonic() - begin) / 2
    yield Finding(
        "clock", gap < _LARGEST_CLOCK_GAP, f"{max(gap, 0):.1f} s apart", "Set both clocks, for example with NTP."
    )
    for title, size in _PROBES.items():
        begin = time.monotonic()
        channel.send(Probe(bytes(size)))
        got = len(channel.receive(Probe).content)
        took = time.monotonic() - begin
        speed = f"{2 * size / took / 2**20:.1f} MiB/s both ways together" if size > 1 << 19 else f"{took * 1000:.1f} ms"
        yield Finding(f"message of {title}", got == size, f"there and back: {speed}", "Look for a proxy on the way.")
    return theirs


@contextmanager
def _line(plan: RunPlan, own: str, link: GrpcLink) -> Iterator[Session]:
    try:
        if not link.wait_until_up(_PATIENCE_SECONDS):
            link.check_present()
            raise PeerLost(f"'{link.peer}' did not answer for {_PATIENCE_SECONDS:g} s.")
        yield Session(Participant(own), _DOCTOR, plan, {link.peer: link}, messages=(Clock, Probe))
    finally:
        link.close()


def _unplayed(session: Session, holding: Any, config: Any) -> Any:
    raise HandshakeRefused("The doctor trains nothing.")


_DOCTOR = Method(
    name="doctor",
    title="Doctor",
    citation="",
    situation="",
    config=dict,
    roles=(Role("first", "nothing"), Role("second", "nothing")),
    lead="first",
    stages={"train": Stage(roles={"first": _unplayed, "second": _unplayed})},
)


def _permissions(key: Path, name: str) -> Finding:
    fix = f"Run `chmod 600 {shlex.quote(str(key))}`."
    try:
        mode = stat.S_IMODE(os.stat(key).st_mode)
    except OSError as error:
        make = command("init", name, "--folder", key.parent)
        return Finding("key", False, f"{key}: {error.strerror}", f"Make one with `{make}`.")
    return Finding("key", mode & 0o077 == 0, f"{key} has mode {mode:o}", fix)


def _certificate(home: PartyHome, *, has_key: bool) -> Finding:
    folder = home.folder
    try:
        # What is wrong with the key has been said; the certificate may be sound.
        own = load_identity(folder, home.name).certificate if has_key else own_certificate(folder).certificate
    except ColonnadeError as error:
        return Finding(
            "certificate",
            False,
            str(error),
            "Restore a backup; or make a new key with 'colonnade init' and pair again.",
        )
    return _dates("certificate", own, "Renew it with 'colonnade pair --rotate'.")


def _partners(home: PartyHome) -> Iterator[Finding]:
    try:
        names = list(paired(home.folder))
    except ColonnadeError as error:
        yield Finding("partners", False, str(error), "Remove it with 'colonnade pair --remove NAME' and pair again.")
        return
    if not names:
        yield Finding("partners", False, "none is paired", "Exchange certificates with 'colonnade pair'.")
    for name in names:
        try:
            partner = load_partners(home, [name])[name]
        except ColonnadeError as error:
            yield Finding(f"partner {name}", False, str(error), "Pair again with 'colonnade pair'.")
            continue
        found = _dates(f"partner {name}", partner.certificate, f"Ask '{name}' to renew it: 'colonnade pair --rotate'.")
        reach = f"at {partner.address}" if partner.address else "dials us"
        is_reachable = bool(partner.address or home.listen)
        fix = (
            found.fix if is_reachable else f"Set listen in [party], or an address in [partners.{name}], of party.toml."
        )
        yield Finding(found.check, found.passed and is_reachable, f"{found.seen}; {reach}", fix)


def _dates(check: str, certificate: bytes, fix: str) -> Finding:
    parsed = x509.load_pem_x509_certificate(certificate)
    now = datetime.now(UTC)
    days = (parsed.not_valid_after_utc - now).days
    if not parsed.not_valid_before_utc <= now <= parsed.not_valid_after_utc:
        return Finding(
            check, False, f"valid {parsed.not_valid_before_utc:%Y-%m-%d} to {parsed.not_valid_after_utc:%Y-%m-%d}", fix
        )
    soon = ", soon" if days < _SOON_DAYS else ""
    return Finding(check, True, f"valid for {days} more days{soon}", fix)


def _table(home: PartyHome) -> str:
    if not home.has_table:
        # Such a party is told no counts, so it could not keep these rules.
        refused = {
            "trainings": ("minimum_shared_rows", home.policy.minimum_shared_rows > 0),
            "predictions": ("predictions_per_day", home.policy.predictions_per_day is not None),
        }
        notes = [f"; {rule} in [policy] refuses all {what}" for what, (rule, is_set) in refused.items() if is_set]
        return f"none: this party can only play roles that hold no table{''.join(notes)}"
    table = home.read_table(Alignment(protocol="given") if home.names_matches else None)
    return shape_in_words(home.name, table).removeprefix(f"{home.name}: ")


def _engine(home: PartyHome) -> str:
    work = Work("colonnade.engine.probe:echo", "colonnade.engine.probe:prepare", b"")
    begin = time.monotonic()
    with home.engine.open() as engine:
        sent = [b"%d" % number for number in range(2)]
        if engine.map(work, sent) != sent:
            raise EngineFailed(f"The engine '{engine.name}' gave back something else than it was given.")
        took = time.monotonic() - begin
        workers = "" if engine.workers == 1 else f" with {engine.workers} workers"
        return f"{engine.name}{workers}, ready after {took:.1f} s"


def _listen(address: str) -> str:
    from colonnade.launch.pairing import open_listener  # not above: what else pairing needs takes long to load

    open_listener(address).close()
    return f"{address} is free"


def _other_port(address: str) -> str:
    """Return what to write to listen at the next port that is free."""
    host, _, port = address.rpartition(":")
    for number in range(int(port) + 1, min(int(port) + 50, 65536)) if port.isdigit() else ():
        try:
            _listen(f"{host}:{number}")
        except (ColonnadeError, OSError):
            continue
        return f'write listen = "{host}:{number}" in [party] and tell your partners'
    return "change listen in [party]"


def _attempted(check: str, attempt: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(check, True, attempt())
    except ColonnadeError as error:
        return Finding(check, False, str(error), fix)
    except (OSError, ValueError) as error:
        return Finding(check, False, getattr(error, "strerror", None) or str(error), fix)
