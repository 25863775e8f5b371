"""A key is renewed over the line: partners pin the next certificate because the present key vouches for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from colonnade.errors import ConfigError
from colonnade.launch.home import read_party_home
from colonnade.launch.identity import (
    HomeRenewals,
    activate_next_identity,
    has_our_next,
    load_identity,
    load_partners,
    make_home,
    own_certificate,
    paired,
    pending_succession,
    pin_partner,
    previous_certificate,
    start_rotation,
)
from colonnade.transport.grpc import Endpoint, GrpcLink, Identity, Partner, make_identity, server_name
from colonnade.transport.grpc import endpoint as endpoint_module
from colonnade.transport.grpc.succession import MOST_BYTES, make_succession

import grpc  # isort: skip  # after colonnade, which sets the ciphers

pytestmark = pytest.mark.timeout(60)

SOON = 10.0
RENEW = "/colonnade.Line/Renew"
BOTH = ["bank", "shop"]


@dataclass(frozen=True)
class Homes:
    """The bank listens and the shop dials; both have homes on disk."""

    folder: Path

    def home(self, name: str) -> Path:
        return self.folder / name

    def pinned(self, at: str) -> str:
        """The fingerprint a party has pinned for the other."""
        return paired(self.home(at))[other(at)].fingerprint

    def door(self, name: str, port: int | None = None) -> Endpoint:
        """Open a party's door as a new process would."""
        home = read_party_home(self.home(name))
        activate_next_identity(home.folder)
        partners = load_partners(home, [other(name)])
        listen = "127.0.0.1:0" if name == "bank" else None
        endpoint = Endpoint(load_identity(home.folder, name), partners, listen, renewals=HomeRenewals(home.folder))
        endpoint.open()
        if port is not None:
            endpoint.learn_address("bank", f"127.0.0.1:{port}")
        return endpoint

    @contextmanager
    def connected(self) -> Iterator[tuple[Endpoint, Endpoint]]:
        bank = self.door("bank")
        shop = self.door("shop", bank.port)
        try:
            meet(bank, shop)
            yield bank, shop
        finally:
            shop.close()
            bank.close()

    def connect(self) -> None:
        with self.connected():
            pass


def meet(bank: Endpoint, shop: Endpoint) -> None:
    there, here = bank.link("shop"), shop.link("bank")
    talk(there, here, shop)


def talk(there: GrpcLink, here: GrpcLink, shop: Endpoint) -> None:
    assert here.wait_until_up(SOON), shop.trouble
    assert there.wait_until_up(SOON)
    here.send([b"hello"])
    assert there.receive() == b"hello"


def other(name: str) -> str:
    return "shop" if name == "bank" else "bank"


@pytest.fixture
def homes(tmp_path: Path) -> Homes:
    found = Homes(tmp_path)
    for name in BOTH:
        make_home(tmp_path / name, name, None)
        # So that the settings are whole; nobody reads the table here.
        text = f'[party]\nname = "{name}"\n[table]\nsource = "table.csv"\nid = "id"\n'
        (tmp_path / name / "party.toml").write_text(text)
    for name in BOTH:
        pin_partner(found.home(name), own_certificate(found.home(other(name))).certificate, None)
    return found


def test_without_a_rotation_nothing_is_renewed(homes: Homes) -> None:
    before = [homes.pinned(name) for name in BOTH]
    homes.connect()
    assert [homes.pinned(name) for name in BOTH] == before
    assert [previous_certificate(homes.home(name), other(name)) for name in BOTH] == [None, None]


@pytest.mark.parametrize("who", BOTH, ids=["who listens", "who dials"])
def test_a_connection_delivers_the_next_certificate_and_the_next_start_uses_it(homes: Homes, who: str) -> None:
    whom = other(who)
    present = own_certificate(homes.home(who))
    following, _ = start_rotation(homes.home(who))
    assert has_our_next(homes.home(who), whom) is False

    homes.connect()
    assert has_our_next(homes.home(who), whom) is True
    assert homes.pinned(whom) == following.fingerprint
    assert previous_certificate(homes.home(whom), who) == present.certificate
    assert own_certificate(homes.home(who)).fingerprint == present.fingerprint, "the door was open with this one"

    with homes.connected():
        assert own_certificate(homes.home(who)).fingerprint == following.fingerprint
        assert pending_succession(homes.home(who)) is None
        assert previous_certificate(homes.home(whom), who) is None, "the new one was seen, so the old one is over"
    homes.connect()


@pytest.mark.parametrize("who", BOTH, ids=["who listens", "who dials"])
def test_the_previous_certificate_is_good_until_the_new_one_is_seen(
    homes: Homes, who: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_rotation(homes.home(who))
    homes.connect()
    with monkeypatch.context() as patched:
        # As if another partner had not been told yet: the party goes on with its present key.
        patched.setattr(__name__ + ".activate_next_identity", lambda folder: False)
        for _ in range(2):
            homes.connect()
            assert previous_certificate(homes.home(other(who)), who) is not None
    old = load_identity(homes.home(who), who)
    homes.connect()
    assert load_identity(homes.home(who), who) != old
    assert previous_certificate(homes.home(other(who)), who) is None
    with pytest.raises(AssertionError):
        reconnect_as(homes, who, old)


def reconnect_as(homes: Homes, who: str, identity: Identity) -> None:
    """Let a party come once more with a key it has given up."""
    folder = homes.home(who)
    partners = load_partners(read_party_home(folder), [other(who)])
    listen = "127.0.0.1:0" if who == "bank" else None
    again, peer = Endpoint(identity, partners, listen), None
    again.open()
    try:
        if who == "bank":
            peer = homes.door("shop", again.port)
            here, there = peer.link("bank"), again.link("shop")
        else:
            peer = homes.door("bank")
            again.learn_address("bank", f"127.0.0.1:{peer.port}")
            here, there = again.link("bank"), peer.link("shop")
        assert here.wait_until_up(1.0)
        assert there.wait_until_up(1.0)
    finally:
        again.close()
        if peer is not None:
            peer.close()


@pytest.mark.parametrize("who", BOTH, ids=["who listens", "who dials"])
def test_a_party_may_come_back_with_its_new_key_while_its_partner_runs_on(homes: Homes, who: str) -> None:
    """A party is killed in a run and started again; the partner's process knows its next certificate already."""
    start_rotation(homes.home(who))
    bank = homes.door("bank")
    shop = homes.door("shop", bank.port)
    doors = [bank, shop]
    try:
        meet(bank, shop)
        if who == "bank":
            bank.close()
            bank = homes.door("bank")
            shop.learn_address("bank", f"127.0.0.1:{bank.port}")
            doors.append(bank)
        else:
            shop.close()
            shop = homes.door("shop", bank.port)
            doors.append(shop)
        assert pending_succession(homes.home(who)) is None, "the next key is in use"
        meet(bank, shop)
        meet(bank, shop)
    finally:
        for door in reversed(doors):
            door.close()
    assert previous_certificate(homes.home(other(who)), who) is None


def test_both_may_renew_at_the_same_time(homes: Homes) -> None:
    following = {name: start_rotation(homes.home(name))[0].fingerprint for name in BOTH}
    homes.connect()
    for name in BOTH:
        assert has_our_next(homes.home(name), other(name)) is True
        assert homes.pinned(other(name)) == following[name]
    homes.connect()
    for name in BOTH:
        assert own_certificate(homes.home(name)).fingerprint == following[name]
        assert previous_certificate(homes.home(name), other(name)) is None
    homes.connect()


def test_a_chain_of_rotations_needs_no_human(homes: Homes) -> None:
    seen = set()
    for _ in range(3):
        seen.add(start_rotation(homes.home("bank"))[0].fingerprint)
        homes.connect()
        homes.connect()
        assert own_certificate(homes.home("bank")).fingerprint in seen
    assert len(seen) == 3


class Lying:
    """A party's renewals that say what they are told to."""

    def __init__(self, statement: bytes) -> None:
        self.statement, self.is_delivered = statement, False

    def own(self) -> bytes:
        return self.statement

    def accept(self, peer: str, statement: bytes) -> bool:
        return False

    def delivered(self, peer: str) -> None:
        self.is_delivered = True

    def seen(self, peer: str) -> None:
        raise AssertionError("no new certificate was ever shown")


def statements(homes: Homes, who: str) -> dict[str, bytes]:
    own, stranger = load_identity(homes.home(who), who), make_identity(who)
    good = make_succession(own, make_identity(who))
    return {
        "signed by another key": make_succession(stranger, make_identity(who)),
        "of another party": make_succession(
            load_identity(homes.home(other(who)), other(who)), make_identity(other(who))
        ),
        "with a changed signature": good[:-1] + bytes([good[-1] ^ 1]),
        "cut off": good[: len(good) // 2],
        "with more behind it": good + b"x",
        "garbage": b"\xff" * 100,
        "too long for a statement": good + bytes(MOST_BYTES),
        "too long for a renewal": good + bytes(endpoint_module._LARGEST_RENEWAL),
    }


FORGED = [
    "signed by another key",
    "of another party",
    "with a changed signature",
    "cut off",
    "with more behind it",
    "garbage",
    "too long for a statement",
    "too long for a renewal",
]


@pytest.mark.parametrize("who", BOTH, ids=["who listens", "who dials"])
@pytest.mark.parametrize("kind", FORGED)
def test_a_forged_statement_changes_nothing_and_the_line_works(homes: Homes, kind: str, who: str) -> None:
    before = {path: path.read_bytes() for path in homes.folder.rglob("*.pem")}
    lying = Lying(statements(homes, who)[kind])
    bank = homes.door("bank")
    shop = homes.door("shop", bank.port)
    (bank if who == "bank" else shop)._renewals = lying
    try:
        meet(bank, shop)
    finally:
        shop.close()
        bank.close()
    assert not lying.is_delivered
    assert {path: path.read_bytes() for path in homes.folder.rglob("*.pem")} == before


def renewal_by_hand(port: int | None, server: Identity, own: Identity | None, request: bytes) -> bytes:
    credentials = grpc.ssl_channel_credentials(
        server.certificate, own.key if own else None, own.certificate if own else None
    )
    options = [("grpc.ssl_target_name_override", server_name(server.name)), ("grpc.use_local_subchannel_pool", 1)]
    with grpc.secure_channel(f"127.0.0.1:{port}", credentials, options=options) as channel:
        return bytes(channel.unary_unary(RENEW)(request, timeout=SOON))


@pytest.mark.parametrize("kind", ["nobody", "unknown", "right name, other key"])
def test_a_stranger_learns_no_succession_and_leaves_none(homes: Homes, kind: str) -> None:
    start_rotation(homes.home("bank"))
    own = {"nobody": None, "unknown": make_identity("telco"), "right name, other key": make_identity("shop")}[kind]
    shop = load_identity(homes.home("shop"), "shop")
    statement = make_succession(shop, make_identity("shop"))
    before = homes.pinned("bank")
    with homes.connected() as (bank, _):
        server = load_identity(homes.home("bank"), "bank")
        (homes.home("bank") / "partners" / "shop.delivered").unlink()
        for request in (b"\0" + statement, b"\0", b"\1"):
            with pytest.raises(grpc.RpcError) as refused:
                renewal_by_hand(bank.port, server, own, request)
            assert refused.value.code() == grpc.StatusCode.UNAVAILABLE
    assert homes.pinned("bank") == before
    assert has_our_next(homes.home("bank"), "shop") is False, "nobody else can say that the shop has it"


def test_odd_requests_of_a_partner_do_no_harm(homes: Homes) -> None:
    with homes.connected() as (bank, _):
        server, shop = load_identity(homes.home("bank"), "bank"), load_identity(homes.home("shop"), "shop")
        for request in (b"", b"\0", b"\1", b"\2", b"\xff" * 1000, bytes(20_000)):
            assert renewal_by_hand(bank.port, server, shop, request) == b"\0"
    assert has_our_next(homes.home("bank"), "shop") is None


def test_a_word_that_all_was_delivered_counts_for_the_one_who_says_it(tmp_path: Path) -> None:
    """With two partners the key changes only when both have it."""
    home = make_home(tmp_path / "bank", "bank", None)
    pin_partner(home, make_identity("shop").certificate, None)
    pin_partner(home, make_identity("telco").certificate, None)
    start_rotation(home)
    HomeRenewals(home).delivered("shop")
    assert (has_our_next(home, "shop"), has_our_next(home, "telco")) == (True, False)
    assert not activate_next_identity(home)
    HomeRenewals(home).delivered("telco")
    assert activate_next_identity(home)


def test_a_party_without_a_home_answers_that_it_keeps_nothing(homes: Homes) -> None:
    """The processes of a local run have throw-away certificates, and nothing to renew."""
    bank, shop = make_identity("bank"), make_identity("shop")
    endpoint = Endpoint(bank, {"shop": Partner("shop", shop.certificate)}, "127.0.0.1:0")
    endpoint.open()
    try:
        statement = make_succession(shop, make_identity("shop"))
        assert renewal_by_hand(endpoint.port, bank, shop, b"\0" + statement) == b"\0"
    finally:
        endpoint.close()


def test_a_succession_for_our_own_certificate_is_refused(homes: Homes) -> None:
    own, shop = load_identity(homes.home("bank"), "bank"), load_identity(homes.home("shop"), "shop")
    with pytest.raises(ConfigError, match="one name"):
        make_succession(shop, own)
