"""A party's home: who may read it, what it pins, and how keys are renewed."""

from __future__ import annotations

import datetime
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from colonnade.errors import ConfigError
from colonnade.launch import identity as module
from colonnade.launch.home import read_party_home
from colonnade.launch.identity import (
    HomeRenewals,
    accept_succession,
    activate_next_identity,
    check_address,
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
    unpin_partner,
)
from colonnade.transport.grpc import Identity, fingerprint, make_identity

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)
SHOP, TELCO = make_identity("shop"), make_identity("telco")


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    return make_home(tmp_path / "bank", "bank", "0.0.0.0:7443")


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def use(folder: Path, identity: Identity) -> None:
    """Put another identity into a home."""
    (folder / "key.pem").write_bytes(identity.key)
    (folder / "certificate.pem").write_bytes(identity.certificate)


# Making and loading


def test_a_new_home_is_whole_and_its_settings_can_be_read(bank: Path) -> None:
    found = read_party_home(bank, "bank")
    assert found.listen == "0.0.0.0:7443"
    identity = load_identity(bank, "bank")
    assert identity.name == "bank"
    assert own_certificate(bank).fingerprint == fingerprint(identity.certificate)
    assert paired(bank) == {}
    assert pending_succession(bank) is None


def test_a_party_that_only_dials_has_no_listen(tmp_path: Path) -> None:
    assert read_party_home(make_home(tmp_path / "shop", "shop", None)).listen is None


def test_private_files_are_for_their_owner_whatever_the_umask(
    tmp_path: Path, umask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "chmod", lambda *_, **__: pytest.fail("a file was readable before chmod"))
    bank = make_home(tmp_path / "deep" / "bank", "bank", None)
    pin_partner(bank, SHOP.certificate, "shop.example:7443")
    start_rotation(bank)
    HomeRenewals(bank).delivered("shop")
    assert mode(bank) == mode(bank / "partners") == 0o700
    files = [path for path in bank.rglob("*") if path.is_file()]
    assert len(files) == 8
    assert {path.name: oct(mode(path)) for path in files} == {path.name: oct(0o600) for path in files}
    activate_next_identity(bank)
    assert mode(bank / "key.pem") == 0o600


def test_init_changes_nothing_that_is_there(bank: Path) -> None:
    before = {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"already has a key.*--rotate.*move the folder away"):
        make_home(bank, "bank", None)
    assert before == {path: path.read_bytes() for path in bank.rglob("*") if path.is_file()}


def test_init_gives_a_key_to_a_home_that_has_only_settings(tmp_path: Path) -> None:
    settings = '[party]\nname = "bank"\n[table]\nsource = "t.csv"\nid = "k"\n'
    (tmp_path / "party.toml").write_text(settings)
    make_home(tmp_path, "bank", "0.0.0.0:7443")
    assert (tmp_path / "party.toml").read_text() == settings
    assert load_identity(tmp_path, "bank")


def test_init_refuses_another_partys_home_and_half_a_home(tmp_path: Path) -> None:
    (tmp_path / "party.toml").write_text('[party]\nname = "shop"\n[table]\nsource = "t.csv"\nid = "k"\n')
    with pytest.raises(ConfigError, match="home of 'shop'"):
        make_home(tmp_path, "bank", None)
    make_home(tmp_path, "shop", None)
    (tmp_path / "key.pem").unlink()
    kept = (tmp_path / "certificate.pem").read_bytes()
    with pytest.raises(ConfigError, match=r"certificate\.pem but no key\.pem.*backup"):
        make_home(tmp_path, "shop", None)
    assert (tmp_path / "certificate.pem").read_bytes() == kept


@pytest.mark.parametrize("name", ["", "../bank", "a b", ".hidden", "x" * 65, "bänk"])
def test_init_refuses_a_name_that_cannot_be_one(name: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        make_home(tmp_path / "home", name, None)
    assert list(tmp_path.iterdir()) == []


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no key": (lambda home: (home / "key.pem").unlink(), r"no key\.pem\. Run `.* init bank --folder"),
    "readable by the group": (lambda home: (home / "key.pem").chmod(0o640), r"chmod 600 .*key\.pem"),
    "readable by others": (lambda home: (home / "key.pem").chmod(0o604), r"chmod 600 .*key\.pem"),
    "no key in it": (lambda home: (home / "key.pem").write_bytes(b"hello"), "does not hold a private key"),
    "no certificate": (lambda home: (home / "certificate.pem").unlink(), r"certificate\.pem is missing"),
    "no certificate in it": (lambda home: (home / "certificate.pem").write_bytes(b"hello"), "one certificate"),
    "another key": (lambda home: (home / "key.pem").write_bytes(SHOP.key), "does not belong to"),
    "another name": (lambda home: use(home, SHOP), "'shop', but party.toml names this party 'bank'"),
    "expired": (
        lambda home: use(home, make_identity("bank", days=1, starts=NOW - 3 * DAY)),
        r"expired on .*colonnade init.*pair again",
    ),
    "not valid yet": (lambda home: use(home, make_identity("bank", starts=NOW + DAY)), "not valid before.*clock"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_an_identity_is_refused_with_its_own_words_when_it_is(case: str, bank: Path) -> None:
    change, says = BROKEN[case]
    change(bank)
    with pytest.raises(ConfigError, match=says):
        load_identity(bank, "bank")


def test_a_folder_without_settings_is_no_home(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no party's home.*--home"):
        read_party_home(tmp_path)


# Partners


def test_a_pinned_partner_is_found_with_its_address(bank: Path) -> None:
    pinned = pin_partner(bank, SHOP.certificate, "shop.example:7443")
    assert (pinned.address, pinned.advice) == ("shop.example:7443", None)
    pin_partner(bank, TELCO.certificate, None)
    partners = load_partners(read_party_home(bank), ["shop", "telco"])
    assert partners["shop"].certificate == SHOP.certificate
    assert partners["shop"].address == "shop.example:7443"
    assert partners["telco"].address is None
    assert list(paired(bank)) == ["shop", "telco"]


def test_an_unknown_partner_is_refused_with_a_suggestion(bank: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"'shop' is not paired with this party\. Nobody is paired yet\..*colonnade pair"
    ):
        load_partners(read_party_home(bank), ["shop"])
    pin_partner(bank, SHOP.certificate, None)
    with pytest.raises(ConfigError, match="Did you mean 'shop'"):
        load_partners(read_party_home(bank), ["shpo"])


def test_an_expired_partner_is_refused(bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, None)
    (bank / "partners" / "shop.pem").write_bytes(make_identity("shop", days=1, starts=NOW - 3 * DAY).certificate)
    with pytest.raises(ConfigError, match="'shop' has expired"):
        load_partners(read_party_home(bank), ["shop"])


def test_another_certificate_for_a_paired_name_needs_replace(bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, None)
    pin_partner(bank, SHOP.certificate, None)
    other = make_identity("shop")
    with pytest.raises(ConfigError, match=r"another certificate.*--replace"):
        pin_partner(bank, other.certificate, None)
    assert paired(bank)["shop"].certificate == SHOP.certificate
    pin_partner(bank, other.certificate, None, replace=True)
    assert paired(bank)["shop"].certificate == other.certificate


def test_we_are_not_our_own_partner(bank: Path) -> None:
    with pytest.raises(ConfigError, match="our own certificate"):
        pin_partner(bank, own_certificate(bank).certificate, None)
    for name in ("bank", "Bank"):
        with pytest.raises(ConfigError, match="as we are"):
            pin_partner(bank, make_identity(name).certificate, None, replace=True)
    assert paired(bank) == {}


@pytest.mark.parametrize(
    ("certificate", "says"),
    [
        (make_identity("../../evil").certificate, "cannot be the name"),
        (make_identity("\x1b[31mred").certificate, "cannot be the name"),
        (make_identity("Shop").certificate, "differs only in case"),
        (make_identity("x.previous").certificate, "another name"),
        (SHOP.key, "private key"),
        (SHOP.certificate + TELCO.certificate, "one certificate"),
        (make_identity("telco", days=1, starts=NOW - 3 * DAY).certificate, "expired"),
        (b"", "one certificate"),
    ],
    ids=["path", "escape", "case", "reserved", "key", "two", "expired", "empty"],
)
def test_a_certificate_that_cannot_be_pinned_leaves_no_trace(certificate: bytes, says: str, bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, None)
    before = sorted(bank.parent.rglob("*"))
    with pytest.raises(ConfigError, match=says) as refused:
        pin_partner(bank, certificate, None, replace=True)
    assert "\x1b" not in str(refused.value)
    assert sorted(bank.parent.rglob("*")) == before


def test_a_removed_partner_is_gone_with_all_that_belonged_to_it(bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, "shop.example:7443")
    start_rotation(bank)
    HomeRenewals(bank).delivered("shop")
    unpin_partner(bank, "shop")
    assert list((bank / "partners").iterdir()) == []
    with pytest.raises(ConfigError, match="'shop' is not paired"):
        unpin_partner(bank, "shop")
    with pytest.raises(ConfigError, match="not paired"):
        unpin_partner(bank, "../key")
    assert (bank / "key.pem").exists()


def test_a_damaged_pinned_certificate_is_named_and_can_be_removed(bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, None)
    (bank / "partners" / "shop.pem").write_bytes(b"hello")
    with pytest.raises(ConfigError, match=r"shop\.pem.*--remove shop"):
        paired(bank)
    unpin_partner(bank, "shop")
    assert paired(bank) == {}


# Addresses in party.toml


def test_an_address_is_appended_and_the_users_lines_stay(bank: Path) -> None:
    path = bank / "party.toml"
    path.chmod(0o640)
    before = path.read_text().rstrip("\n")
    path.write_text(before)
    pin_partner(bank, SHOP.certificate, "shop.example:7443")
    assert path.read_text().startswith(before)
    assert mode(path) == 0o640
    assert read_party_home(bank).partners == {"shop": "shop.example:7443"}
    pinned = pin_partner(bank, SHOP.certificate, "shop.example:7443")
    assert pinned.advice is None
    assert path.read_text().count("[partners.shop]") == 2, "one in the note at the top, one of ours"


def test_another_address_is_told_and_not_written(bank: Path) -> None:
    pin_partner(bank, SHOP.certificate, "shop.example:7443")
    before = (bank / "party.toml").read_bytes()
    pinned = pin_partner(bank, SHOP.certificate, "new.example:7443")
    assert pinned.address == "shop.example:7443"
    assert pinned.advice is not None
    assert "new.example:7443" in pinned.advice
    assert (bank / "party.toml").read_bytes() == before


def test_an_address_for_a_partner_with_an_id_only_is_left_to_the_user(bank: Path) -> None:
    path = bank / "party.toml"
    path.write_text(path.read_text() + '\n[partners.shop]\nid = "loyalty_no"\n')
    before = path.read_bytes()
    pinned = pin_partner(bank, SHOP.certificate, "shop.example:7443")
    assert pinned.address is None
    assert pinned.advice == f"Add the address of 'shop' to [partners.shop] in {path}: shop.example:7443."
    assert path.read_bytes() == before
    assert read_party_home(bank).partners == {}


def test_a_name_with_dots_gets_its_own_block(bank: Path) -> None:
    pin_partner(bank, make_identity("shop.south").certificate, "shop.example:7443")
    assert read_party_home(bank).partners == {"shop.south": "shop.example:7443"}


def test_partners_written_as_an_inline_table_are_left_to_the_user(bank: Path) -> None:
    path = bank / "party.toml"
    path.write_text("partners = { telco = { address = 'telco.example:1' } }\n" + path.read_text())
    pinned = pin_partner(bank, SHOP.certificate, "shop.example:7443")
    assert pinned.advice is not None
    assert "Add the address" in pinned.advice
    assert read_party_home(bank).partners == {"telco": "telco.example:1"}


@pytest.mark.parametrize(
    "address",
    [
        "",
        "shop",
        "shop:",
        ":7443",
        "shop:0",
        "shop:70000",
        'shop"\nlisten = "x:1',
        "shop .example:1",
        "[shop:1",
        "::1:1",
    ],
)
def test_an_address_that_is_none_is_refused(address: str, bank: Path) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        pin_partner(bank, SHOP.certificate, address)
    assert paired(bank) == {}


def test_addresses_are_taken_apart() -> None:
    assert check_address("[fe80::1]:7443", "x") == ("fe80::1", 7443)
    assert check_address("127.0.0.1:0", "x", lowest=0) == ("127.0.0.1", 0)


# Rotation


@pytest.fixture
def shop(tmp_path: Path, bank: Path) -> Path:
    """A home that is paired with the bank's."""
    folder = make_home(tmp_path / "shop", "shop", None)
    pin_partner(folder, own_certificate(bank).certificate, None)
    pin_partner(bank, own_certificate(folder).certificate, None)
    return folder


def test_a_rotation_goes_round_without_a_human(bank: Path, shop: Path) -> None:
    pin_partner(bank, TELCO.certificate, None)
    old = load_identity(bank, "bank")
    following, file = start_rotation(bank)
    assert file == bank / "bank.succession"
    assert has_our_next(bank, "shop") is False
    statement = pending_succession(bank)
    assert statement is not None
    accept_succession(shop, "bank", statement)
    assert paired(shop)["bank"].fingerprint == following.fingerprint
    assert previous_certificate(shop, "bank") == old.certificate
    HomeRenewals(bank).delivered("shop")
    assert has_our_next(bank, "shop") is True
    assert activate_next_identity(bank) is False, "telco does not have it"
    assert load_identity(bank, "bank") == old
    HomeRenewals(bank).delivered("telco")
    assert activate_next_identity(bank) is True
    new = load_identity(bank, "bank")
    assert fingerprint(new.certificate) == following.fingerprint
    assert new.key != old.key
    assert pending_succession(bank) is None
    assert has_our_next(bank, "shop") is None
    assert activate_next_identity(bank) is False
    HomeRenewals(shop).seen("bank")
    assert previous_certificate(shop, "bank") is None
    assert list(paired(shop)) == ["bank"]
    assert not list(bank.glob("next-*"))


def test_a_second_rotation_follows_the_first(bank: Path, shop: Path) -> None:
    for _ in range(2):
        start_rotation(bank)
        assert has_our_next(bank, "shop") is False, "an old note counts for nothing"
        accept_succession(shop, "bank", (bank / "bank.succession").read_bytes())
        HomeRenewals(bank).delivered("shop")
        assert activate_next_identity(bank)
    assert paired(shop)["bank"].fingerprint == own_certificate(bank).fingerprint


def test_a_note_of_a_rotation_that_was_given_up_counts_for_nothing(bank: Path, shop: Path) -> None:
    start_rotation(bank)
    HomeRenewals(bank).delivered("shop")
    for path in bank.glob("next-*"):
        path.unlink()
    start_rotation(bank)
    assert has_our_next(bank, "shop") is False
    assert activate_next_identity(bank) is False


def test_accepting_again_changes_nothing(bank: Path, shop: Path) -> None:
    _, file = start_rotation(bank)
    first = accept_succession(shop, "bank", file.read_bytes())
    kept = previous_certificate(shop, "bank")
    assert accept_succession(shop, "bank", file.read_bytes()) == first
    assert previous_certificate(shop, "bank") == kept


def test_rotating_twice_before_activation_keeps_the_next_key(bank: Path, shop: Path) -> None:
    first, file = start_rotation(bank)
    file.unlink()
    again, _ = start_rotation(bank)
    assert first == again
    assert accept_succession(shop, "bank", file.read_bytes()).fingerprint == first.fingerprint


def test_a_succession_of_a_stranger_or_by_a_wrong_key_is_refused(bank: Path, shop: Path) -> None:
    from colonnade.transport.grpc.succession import make_succession

    forged = make_succession(make_identity("bank"), make_identity("bank"))
    with pytest.raises(ConfigError, match="does not follow"):
        accept_succession(shop, "bank", forged)
    real = load_identity(bank, "bank")
    thief = Identity("bank", make_identity("bank").key, real.certificate)
    with pytest.raises(ConfigError, match="not signed by the key"):
        accept_succession(shop, "bank", make_succession(thief, make_identity("bank")))
    with pytest.raises(ConfigError, match="'telco', not of 'bank'"):
        accept_succession(shop, "bank", make_succession(TELCO, make_identity("telco")))
    with pytest.raises(ConfigError, match="'telco' is not paired"):
        accept_succession(shop, "telco", make_succession(TELCO, make_identity("telco")))
    assert paired(shop)["bank"].certificate == real.certificate
    assert previous_certificate(shop, "bank") is None


@pytest.mark.parametrize("crash_after", [0, 1])
def test_a_crash_between_key_and_certificate_is_mended(
    crash_after: int, bank: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    following, _ = start_rotation(bank)
    replace, calls = os.replace, 0

    def failing(source: Path, target: Path) -> None:
        nonlocal calls
        calls += 1
        if calls > crash_after:
            raise OSError("power is out")
        replace(source, target)

    monkeypatch.setattr(module.os, "replace", failing)
    with pytest.raises(OSError, match="power is out"):
        activate_next_identity(bank)
    monkeypatch.undo()
    identity = load_identity(bank, "bank")
    assert (fingerprint(identity.certificate) == following.fingerprint) is (crash_after == 1)
    activate_next_identity(bank)
    assert own_certificate(bank).fingerprint == following.fingerprint


def test_pinning_anew_ends_a_rotation_that_was_under_way(bank: Path, shop: Path) -> None:
    _, file = start_rotation(bank)
    accept_succession(shop, "bank", file.read_bytes())
    pin_partner(shop, make_identity("bank").certificate, None, replace=True)
    assert previous_certificate(shop, "bank") is None
