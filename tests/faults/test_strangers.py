"""Strangers call at a listening port, in crowds; partners come in all the same, and their runs end as they would."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from subprocess import PIPE

import pytest
from tests.faults.strangers import few_descriptors, strangers
from tests.kills.harness import Homes

from colonnade.launch.pairing import Card, join
from colonnade.transport.grpc import Endpoint, GrpcLink, Partner, make_identity

pytestmark = pytest.mark.timeout(120)

BOTH = ("bank", "shop")


def listens(port: int, host: str = "127.0.0.1") -> None:
    """Wait until somebody listens here."""
    limit = time.monotonic() + 60
    while time.monotonic() < limit:
        try:
            socket.create_connection((host, port), 5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("nobody listens")


@contextmanager
def homes_in(folder: Path, epochs: int) -> Iterator[Homes]:
    homes = Homes(folder, BOTH, epochs=epochs)
    homes.make()
    try:
        yield homes
    finally:
        homes.stop()


def port_of(homes: Homes, party: str) -> int:
    found = re.search(r'listen = "127.0.0.1:(\d+)"', (homes.folder / party / "party.toml").read_text())
    assert found is not None
    return int(found[1])


def undisturbed(folder: Path, epochs: int) -> dict[str, bytes]:
    with homes_in(folder, epochs) as homes:
        for party in BOTH:
            homes.start(party)
        homes.wait(90)
        return homes.models()


@pytest.mark.slow
def test_a_run_among_strangers_ends_with_the_same_model(tmp_path: Path) -> None:
    """As in the issue: 2,000 are there before the partner comes, and 200 more come every second."""
    expected = undisturbed(tmp_path / "undisturbed", 3)
    with homes_in(tmp_path / "disturbed", 3) as homes, few_descriptors(1024):
        homes.start("shop")  # by rule the bank dials
        listens(port_of(homes, "shop"))
        with strangers(port_of(homes, "shop"), idle=2000, rate=200):
            homes.start("bank")
            homes.wait(90)
        assert homes.models() == expected
        homes.check_ledgers()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("descriptors", [256, 1024])
def test_a_long_run_among_strangers_ends_with_the_same_model(tmp_path: Path, descriptors: int) -> None:
    """Crowds at both doors come in the middle of the run, and each party comes back among them after it was killed."""
    expected = undisturbed(tmp_path / "undisturbed", 150)
    with homes_in(tmp_path / "disturbed", 150) as homes, few_descriptors(descriptors):
        for party in BOTH:
            homes.start(party)
        homes.wait_for_entries("shop", 60)
        with (
            strangers(port_of(homes, "bank"), idle=2000, rate=200),
            strangers(port_of(homes, "shop"), idle=2000, rate=200),
        ):
            for party in BOTH:
                homes.wait_for_entries(party, 300)
                assert homes.kill(party), homes.logs()
                homes.start(party)
                homes.wait_for_entries(party, 300)
            homes.wait()
        assert homes.models() == expected
        homes.check_ledgers()


HOST = """
import json, sys
from colonnade.errors import ConfigError, PeerLost
from colonnade.transport.grpc import Endpoint, Identity, Partner
facts = json.loads(sys.stdin.readline())
own = Identity("b", facts["key"].encode(), facts["certificate"].encode())
endpoint = Endpoint(own, {"a": Partner("a", facts["partner"].encode())}, facts["listen"])
try:
    endpoint.open()
except ConfigError:
    sys.exit(print(0, flush=True))
print(endpoint.port, flush=True)
while True:
    link = endpoint.link("a")
    try:
        while True:
            link.send([link.receive()])
    except PeerLost:
        pass
"""


@pytest.mark.parametrize(("host", "descriptors"), [("127.0.0.1", 256), ("[::1]", 64)])
def test_a_line_goes_on_and_new_ones_begin_among_strangers(host: str, descriptors: int) -> None:
    a, b = make_identity("a"), make_identity("b")
    facts = {"key": b.key.decode(), "certificate": b.certificate.decode(), "partner": a.certificate.decode()}
    with few_descriptors(descriptors):
        process = subprocess.Popen([sys.executable, "-c", HOST], stdin=PIPE, stdout=PIPE, text=True)
    with process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(facts | {"listen": f"{host}:0"}) + "\n")
            process.stdin.flush()
            port = int(process.stdout.readline() or 0)
            if not port:
                pytest.skip(f"this machine has no {host}")
            partner = Partner("b", b.certificate, f"{host}:{port}")
            talk_twice(Endpoint(a, {"b": partner}), lambda: strangers(port, idle=600, rate=200, host=host.strip("[]")))
        finally:
            process.kill()


def talk_twice(endpoint: Endpoint, crowd: Callable[[], AbstractContextManager[None]]) -> None:
    """Talk over a line that was there before the crowd, and over others that begin within it."""
    link = endpoint.link("b")
    echo(link)
    with crowd():
        for _ in range(50):
            echo(link)
            time.sleep(0.01)
        for _ in range(3):
            link = endpoint.link("b")
            echo(link)
    endpoint.close()


def echo(link: GrpcLink) -> None:
    content = os.urandom(2000)
    link.send([content])
    assert link.receive() == content


INVITER = """
import sys
from colonnade.launch.pairing import Card, invite, open_listener
from colonnade.transport.grpc import make_identity
bank = make_identity("bank")
with open_listener("127.0.0.1:0") as listener:
    print(listener.getsockname()[1], flush=True)
    card = invite(listener, "123-456-789", Card("bank", bank.certificate, ":7443"), lambda card: None)
print(card.name, flush=True)
"""


@pytest.mark.parametrize("descriptors", [64, 1024])
def test_a_partner_pairs_among_strangers(descriptors: int) -> None:
    shop = make_identity("shop")
    with (
        few_descriptors(descriptors),
        subprocess.Popen([sys.executable, "-c", INVITER], stdout=PIPE, text=True) as inviter,
    ):
        try:
            assert inviter.stdout is not None
            port = int(inviter.stdout.readline())
            with strangers(port, idle=2000, rate=200):
                card = join(f"127.0.0.1:{port}", "123-456-789", Card("shop", shop.certificate), lambda _: None)
                assert inviter.stdout.readline() == "shop\n"
            assert card.name == "bank"
        finally:
            inviter.kill()
