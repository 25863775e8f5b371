"""The doctor finds what would stop a run, says PASS or FAIL, and names the way out."""

from __future__ import annotations

import dataclasses
import datetime
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.kills.harness import Homes
from tests.unit.session import toys

from colonnade.errors import ColonnadeError
from colonnade.launch import doctor
from colonnade.launch.doctor import Finding, examine_home, examine_peer
from colonnade.launch.home import read_party_home
from colonnade.launch.identity import load_identity, load_partners
from colonnade.session import Participant, Session, handshake
from colonnade.session.control import Hello
from colonnade.transport.grpc import Endpoint, GrpcLink, make_identity
from colonnade.transport.grpc import link as link_module

pytestmark = pytest.mark.timeout(120)

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
HOME_CHECKS = ["home", "key", "certificate", "partner shop", "table", "disk", "engine", "port"]
PROBES = ["message of 1 KiB", "message of 1 MiB", "message of 16 MiB"]


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    made = Homes(tmp_path, ("bank", "shop"))
    made.make()
    return made


@pytest.fixture
def bank(homes: Homes) -> Path:
    return homes.folder / "bank"


def edit(home: Path, old: str, new: str) -> None:
    path = home / "party.toml"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def without(home: Path, *beginnings: str) -> None:
    path = home / "party.toml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if not line.startswith(beginnings)))


def use(home: Path, days: int, starts: datetime.datetime) -> None:
    identity = make_identity("bank", days=days, starts=starts)
    (home / "key.pem").write_bytes(identity.key)
    (home / "certificate.pem").write_bytes(identity.certificate)


# --- a home alone -------------------------------------------------------------------------------------------------


def test_a_good_home_passes_every_check(bank: Path) -> None:
    findings = list(examine_home(bank))
    assert [one.check for one in findings] == HOME_CHECKS
    assert all(one.passed for one in findings), findings
    seen = {one.check: one.seen for one in findings}
    assert "belongs to 'bank'" in seen["home"]
    assert "mode 600" in seen["key"]
    assert "more days" in seen["certificate"]
    assert "at 127.0.0.1:" in seen["partner shop"]
    assert seen["table"] == "400 rows, 3 columns used (3 numbers), label label"
    assert "GiB free" in seen["disk"]
    assert "ready after" in seen["engine"]
    assert "is free" in seen["port"]


def test_a_certificate_that_ends_soon_passes_but_says_so(bank: Path) -> None:
    use(bank, 10, NOW - DAY)
    (found,) = [one for one in examine_home(bank) if one.check == "certificate"]
    assert found.passed
    assert "8 more days, soon" in found.seen
    assert "colonnade pair --rotate" in found.fix


def test_a_configured_engine_is_tried(bank: Path) -> None:
    with (bank / "party.toml").open("a") as file:
        file.write('\n[engine]\nkind = "pool"\nworkers = 2\n')
    (found,) = [one for one in examine_home(bank) if one.check == "engine"]
    assert found.passed
    assert found.seen.startswith("pool with 2 workers, ready after")


def test_an_engine_that_cannot_be_opened_fails(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "none")
    monkeypatch.setitem(sys.modules, "ray", None)
    with (bank / "party.toml").open("a") as file:
        file.write('\n[engine]\nkind = "ray"\n')
    (found,) = [one for one in examine_home(bank) if one.check == "engine"]
    assert not found.passed
    assert "pip install 'colonnade[ray]'" in found.seen
    assert "[engine]" in found.fix


def expire_partner(home: Path) -> None:
    certificate = make_identity("shop", days=1, starts=NOW - 3 * DAY).certificate
    (home / "partners" / "shop.pem").write_bytes(certificate)


BROKEN: dict[str, tuple[Callable[[Path], object], str, str, str]] = {
    "no key": (lambda home: (home / "key.pem").unlink(), "key", "No such file", "colonnade init"),
    "a key others can read": (lambda home: (home / "key.pem").chmod(0o644), "key", "has mode 644", "chmod 600"),
    "an expired certificate": (
        lambda home: use(home, 1, NOW - 3 * DAY),
        "certificate",
        "expired on",
        "'colonnade init' and pair again",
    ),
    "a certificate of tomorrow": (lambda home: use(home, 9, NOW + DAY), "certificate", "is not valid before", "init"),
    "no certificate": (
        lambda home: (home / "certificate.pem").unlink(),
        "certificate",
        "certificate.pem is missing",
        "Restore a backup",
    ),
    "no partner": (lambda home: (home / "partners" / "shop.pem").unlink(), "partners", "none", "'colonnade pair'"),
    "a damaged partner": (
        lambda home: (home / "partners" / "shop.pem").write_text("hello"),
        "partners",
        "shop.pem",
        "colonnade pair --remove",
    ),
    "an expired partner": (expire_partner, "partner shop", "'shop' has expired", "Pair again with 'colonnade pair'"),
    "nowhere to meet": (
        lambda home: without(home, "listen", "address", "[partners"),
        "partner shop",
        "dials us",
        "Set listen in [party], or an address in [partners.shop]",
    ),
    "no table": (lambda home: (home / "table.csv").unlink(), "table", "table.csv", "[table] in party.toml"),
    "no such column": (
        lambda home: edit(home, 'id = "id"', 'id = "customer"'),
        "table",
        "customer",
        "[table] in party.toml",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_fails_alone_and_the_fix_is_named(kind: str, bank: Path) -> None:
    change, check, seen, fix = BROKEN[kind]
    change(bank)
    failed = [one for one in examine_home(bank) if not one.passed]
    assert [one.check for one in failed] == [check], failed
    assert seen in failed[0].seen
    assert fix in failed[0].fix


@pytest.mark.parametrize("kind", ["nothing there", "no party.toml", "not TOML", "unknown setting"])
def test_what_is_no_home_ends_the_examination(kind: str, bank: Path, tmp_path: Path) -> None:
    if kind == "no party.toml":
        (bank / "party.toml").unlink()
    elif kind == "not TOML":
        (bank / "party.toml").write_text("[party\n")
    elif kind == "unknown setting":
        edit(bank, "listen =", "listens =")
    (found,) = examine_home(tmp_path / "elsewhere" if kind == "nothing there" else bank)
    assert (found.check, found.passed) == ("home", False)
    assert "colonnade init NAME" in found.fix


def test_a_taken_port_fails(bank: Path) -> None:
    host, _, port = str(read_party_home(bank).listen).rpartition(":")
    with socket.create_server((host, int(port))):
        failed = [one for one in examine_home(bank) if not one.passed]
    assert [one.check for one in failed] == ["port"]
    assert "in use" in failed[0].seen
    assert 'listen = "127.0.0.1:' in failed[0].fix


def test_a_full_disk_fails(bank: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100 * 2**20))
    failed = [one for one in examine_home(bank) if not one.passed]
    assert [(one.check, one.seen) for one in failed] == [("disk", "0.1 GiB free")]
    assert "--folder" in failed[0].fix


def test_a_party_that_only_dials_has_no_port_to_check(bank: Path) -> None:
    without(bank, "listen")
    findings = list(examine_home(bank))
    assert [one.check for one in findings] == HOME_CHECKS[:-1]
    assert all(one.passed for one in findings)


# --- two homes ----------------------------------------------------------------------------------------------------


def examine_both(homes: Homes, **others: Callable[[], Any]) -> dict[str, list[Finding]]:
    """Let both parties give the command at the same time, or let one do something else."""
    found: dict[str, list[Finding]] = {}

    def examine(name: str) -> None:
        peer = "shop" if name == "bank" else "bank"
        if name in others:
            others[name]()
        else:
            found[name] = list(examine_peer(homes.folder / name, peer))

    threads = [threading.Thread(target=examine, args=(name,), name=name, daemon=True) for name in ("bank", "shop")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads), "the doctor hangs"
    return found


def test_two_parties_that_reach_each_other_pass_in_both_directions(homes: Homes) -> None:
    for name, findings in examine_both(homes).items():
        checks = ["connection", "version", "clock", *PROBES, "other direction"]
        assert [one.check for one in findings] == checks, (name, findings)
        assert all(one.passed for one in findings), (name, findings)
        assert findings[-1].seen == "'shop' can dial 'bank' too"
        assert "MiB/s" in findings[-2].seen


def test_where_one_only_dials_the_other_direction_is_not_tried(homes: Homes) -> None:
    without(homes.folder / "shop", "listen")
    without(homes.folder / "bank", "address", "[partners")
    for findings in examine_both(homes).values():
        assert all(one.passed for one in findings)
        assert findings[-1].seen == "not tried: only one of the two can be dialled"


@pytest.mark.parametrize("changes", [{"version": "9.9.9"}, {"version": "9.9.9", "messages": bytes(32)}])
def test_another_package_is_told_and_other_messages_fail_on_both_sides(
    homes: Homes, monkeypatch: pytest.MonkeyPatch, changes: dict[str, Any]
) -> None:
    real = handshake._hello

    def hello(session: Session) -> Hello:
        made = real(session)
        return dataclasses.replace(made, **changes) if session.party == "shop" else made

    monkeypatch.setattr(handshake, "_hello", hello)
    for party, findings in examine_both(homes).items():
        second = findings[1]
        assert (second.check, second.passed) == ("version", "messages" not in changes)
        assert "9.9.9" in second.seen or party == "shop"
        if "messages" in changes:
            assert len(findings) == 2
            assert "Install the same version at both" in second.fix
        else:
            assert all(one.passed for one in findings)


def test_another_version_of_the_transport_fails_at_who_sees_it(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link_module, "DEAD_SECONDS", 2.0)
    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 4.0)
    real = GrpcLink.outgoing

    def outgoing(link: GrpcLink, stream: int) -> Iterator[bytes]:
        for place, chunk in enumerate(real(link, stream)):
            yield chunk[:1] + b"\x09" + chunk[2:] if place == 0 and link.party == "shop" else chunk

    monkeypatch.setattr(GrpcLink, "outgoing", outgoing)
    found = examine_both(homes)
    (last,) = [one for one in found["bank"] if not one.passed]
    assert last.check == "version"
    assert "speaks version 9" in last.seen
    assert "Install the same version" in last.fix
    assert [one.check for one in found["shop"] if not one.passed] == ["connection"]


def test_an_absent_partner_fails_with_the_command_it_should_give(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 1.0)
    (found,) = examine_peer(homes.folder / "bank", "shop")
    assert (found.check, found.passed) == ("connection", False)
    assert found.seen == "'shop' did not answer for 1 s. nothing listens there yet"
    assert "'shop' gives 'colonnade doctor --peer bank'" in found.fix


def test_a_partner_that_has_not_paired_with_us_fails(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_SECONDS", 2.0)
    stranger = make_identity("bank")
    (homes.folder / "shop" / "partners" / "bank.pem").write_bytes(stranger.certificate)
    found = examine_both(homes)
    assert [(one.check, one.passed) for one in found["bank"]] == [("connection", False)]
    assert "refuses our certificate" in found["bank"][0].seen
    assert "paired with each other's present certificate" in found["bank"][0].fix


def test_clocks_far_apart_fail_on_both_sides(homes: Homes, monkeypatch: pytest.MonkeyPatch) -> None:
    def now() -> float:
        return time.time() + (600.0 if threading.current_thread().name == "shop" else 0.0)

    monkeypatch.setattr(doctor, "time", SimpleNamespace(time=now, monotonic=time.monotonic))
    for findings in examine_both(homes).values():
        (failed,) = [one for one in findings if not one.passed]
        assert failed.check == "clock"
        assert 590 < float(failed.seen.split()[0]) < 610
        assert "NTP" in failed.fix
        assert findings[-1].check == "other direction", "the rest is looked at all the same"


def test_a_partner_that_waits_for_a_run_is_told_apart(homes: Homes) -> None:
    def waits() -> None:
        with other_program(homes, "shop", "bank") as session, pytest.raises(ColonnadeError):
            handshake.greet(session)

    findings = examine_both(homes, shop=waits)["bank"]
    assert [(one.check, one.passed) for one in findings] == [("connection", True), ("version", False)]
    assert "'shop' must give 'colonnade doctor', not 'colonnade run'" in findings[-1].fix


@contextmanager
def other_program(homes: Homes, name: str, peer: str) -> Iterator[Session]:
    """A party's door with another run behind it."""
    home = read_party_home(homes.folder / name)
    endpoint = Endpoint(load_identity(home.folder, name), load_partners(home, [peer]), home.listen)
    endpoint.open()
    link = endpoint.link(peer)
    try:
        yield Session(Participant(name), toys.method(), toys.plan((peer, name)), {peer: link})
    finally:
        link.close()
        endpoint.close()


@pytest.mark.parametrize("kind", ["not paired", "no key", "port taken", "no home"])
def test_a_home_that_cannot_connect_is_one_more_finding(kind: str, homes: Homes, bank: Path) -> None:
    """The command goes on to print what it found, also as JSON."""
    taken = None
    if kind == "not paired":
        (bank / "partners" / "shop.pem").unlink()
    elif kind == "no key":
        (bank / "key.pem").unlink()
    elif kind == "no home":
        (bank / "party.toml").unlink()
    else:
        host, _, port = str(read_party_home(bank).listen).rpartition(":")
        taken = socket.create_server((host, int(port)))
    try:
        (found,) = examine_peer(bank, "shop")
    finally:
        if taken is not None:
            taken.close()
    assert (found.check, found.passed) == ("connection", False)
    assert "'colonnade doctor' alone" in found.fix
