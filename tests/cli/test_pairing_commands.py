"""`colonnade init` and `colonnade pair`, as two organisations would use them, and what they may get wrong."""

from __future__ import annotations

import asyncio.selector_events
import gc
import io
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import ProtocolError, UsageError
from colonnade.launch import pairing
from colonnade.launch.identity import own_certificate, paired, previous_certificate
from colonnade.transport.grpc import make_identity

INSTALLED = str(Path(sys.executable).parent / "colonnade")
USAGE, PEER = UsageError.exit_code, ProtocolError.exit_code
BY_FILE = ("pair", "shop.pem", "--home", "bank", "--address", "shop.example:7443")

pytestmark = pytest.mark.timeout(120)


@dataclass(frozen=True)
class Homes:
    """Two homes beside each other, and the shop's certificate as the bank got it."""

    folder: Path

    @property
    def bank(self) -> Path:
        return self.folder / "bank"

    @property
    def shop(self) -> Path:
        return self.folder / "shop"

    @property
    def fingerprint(self) -> str:
        return own_certificate(self.shop).fingerprint


@pytest.fixture
def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colonnade: Any) -> Homes:
    monkeypatch.chdir(tmp_path)
    assert colonnade("init", "bank", "--listen", f"127.0.0.1:{free_port()}").code == 0
    assert colonnade("init", "shop", "--listen", f"127.0.0.1:{free_port()}").code == 0
    assert colonnade("pair", "--home", "shop", "--export", "shop.pem").code == 0
    return Homes(tmp_path)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def type_in(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    """Let a person at a terminal answer."""

    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return line

    monkeypatch.setattr(sys, "stdin", Terminal())


class Inviting:
    """`colonnade pair --invite` in a process of its own."""

    def __init__(self, process: subprocess.Popen[str], code: str, address: str) -> None:
        self.process, self.code, self.address = process, code, address
        self.out = self.err = ""

    def end(self) -> int:
        self.out, self.err = self.process.communicate(timeout=60)
        return self.process.returncode


@contextmanager
def inviting(home: Path, *words: str) -> Iterator[Inviting]:
    command = [INSTALLED, "pair", "--invite", "--home", str(home), *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while "Ctrl-C" not in said:
            line = process.stderr.readline()
            assert line, said
            said += line
        found = re.search(r"colonnade pair --code (\d{3}-\d{3}-\d{3}) --address (\S+)", said)
        assert found is not None, said
        try:
            yield Inviting(process, found[1], found[2])
        finally:
            process.kill()


# Making a home


def test_init_tells_the_fingerprint_and_what_comes_next(tmp_path: Path, monkeypatch: Any, colonnade: Any) -> None:
    monkeypatch.chdir(tmp_path)
    made = colonnade("init", "bank")
    assert made.code == 0
    assert own_certificate(tmp_path / "bank").fingerprint in made.out
    assert "Fill in [table] in bank/party.toml" in made.err
    assert "pair --invite --home bank" in made.err
    assert 'listen = "0.0.0.0:7443"' in (tmp_path / "bank" / "party.toml").read_text()
    again = colonnade("init", "bank")
    assert again.code == USAGE
    assert "already has a key" in again.message
    other = colonnade("init", "shop", "--folder", "deep/er", "--json")
    assert other.json["fingerprint"] == own_certificate(tmp_path / "deep/er").fingerprint


def test_init_keeps_the_settings_that_are_there(tmp_path: Path, monkeypatch: Any, colonnade: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "party.toml").write_text('[party]\nname = "bank"\n[table]\nsource = "t.csv"\nid = "k"\n')
    made = colonnade("init", "bank", "--folder", ".")
    assert made.code == 0
    assert "kept as it is" in made.err
    assert colonnade("pair", "--list", "--json").json == []


# By file


def test_pairing_by_file_with_the_fingerprint_given(homes: Homes, colonnade: Any) -> None:
    loud = homes.fingerprint.upper().replace(" ", ":")
    done = colonnade(*BY_FILE, "--fingerprint", loud, "--json")
    assert done.code == 0
    assert done.json["paired"] == "shop"
    (listed,) = colonnade("pair", "--list", "--home", "bank", "--json").json
    assert listed["name"] == "shop"
    assert listed["fingerprint"] == homes.fingerprint
    assert listed["address"] == "shop.example:7443"
    assert listed["has_our_next_certificate"] is None
    assert listed["expires"].startswith("20")
    table = colonnade("pair", "--list", "--home", "bank").out
    assert "shop.example:7443" in table
    assert homes.fingerprint in table
    gone = colonnade("pair", "--remove", "shop", "--home", "bank")
    assert gone.code == 0
    assert "party.toml" in gone.err
    assert colonnade("pair", "--list", "--home", "bank").out == ""


def test_the_operator_is_shown_the_fingerprint_and_decides(homes: Homes, colonnade: Any, monkeypatch: Any) -> None:
    for answer in ("no\n", "\n", "", "maybe\n"):
        type_in(monkeypatch, answer)
        refused = colonnade(*BY_FILE)
        assert refused.code == PEER
        assert homes.fingerprint in refused.err
        assert "Is this the fingerprint shop reads to you?" in refused.err
        assert "nothing was pinned" in refused.message
        assert paired(homes.bank) == {}
    type_in(monkeypatch, "yes\n")
    done = colonnade(*BY_FILE)
    assert done.code == 0, done.err
    assert list(paired(homes.bank)) == ["shop"]


def test_export_prints_or_writes_the_certificate_and_never_the_key(homes: Homes, colonnade: Any) -> None:
    printed = colonnade("pair", "--export", "--home", "shop")
    assert printed.out.encode() == (homes.folder / "shop.pem").read_bytes()
    assert homes.fingerprint in printed.err
    assert "PRIVATE" not in printed.out + printed.err
    assert colonnade("pair", "--export", "shop.pem", "--home", "shop", "--json").json["file"] == "shop.pem"
    assert colonnade("pair", "--export", "--home", "shop", "--json").json["certificate"] == printed.out


# By code


def test_two_processes_pair_by_code(homes: Homes) -> None:
    with inviting(homes.bank, "--json") as invitation:
        command = [INSTALLED, "pair", "--home", "shop", "--code", invitation.code, "--address", invitation.address]
        joined = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert joined.returncode == 0, joined.stderr
        assert invitation.end() == 0, invitation.err
    assert "Paired with bank." in joined.stdout
    assert '"paired": "shop"' in invitation.out
    assert paired(homes.bank)["shop"].fingerprint == homes.fingerprint
    assert paired(homes.shop)["bank"].fingerprint == own_certificate(homes.bank).fingerprint
    for home, partner in ((homes.bank, homes.shop), (homes.shop, homes.bank)):
        listen = re.search(r'^listen = "(\S+)"', (partner / "party.toml").read_text(), re.MULTILINE)
        assert listen is not None
        block = f'\n[partners.{partner.name}]\naddress = "{listen[1]}"\n'
        assert block in (home / "party.toml").read_text(), "each knows where the other listens"


def test_a_wrong_code_ends_both_commands_and_names_no_code(homes: Homes, colonnade: Any) -> None:
    with inviting(homes.bank) as invitation:
        wrong = "000-000-001" if invitation.code == "000-000-000" else "000-000-000"
        joined = colonnade("pair", "--home", "shop", "--code", wrong, "--address", invitation.address)
        assert invitation.end() == PEER
    assert joined.code == PEER
    assert "did not accept the code" in joined.message
    assert "A wrong code was tried" in invitation.err
    assert "Make a new invitation" in invitation.err
    for said in (joined.err, invitation.err, joined.out, invitation.out):
        assert not re.search(r"\d{3}-\d{3}-\d{3}", said)
        assert "Traceback" not in said
    assert paired(homes.bank) == paired(homes.shop) == {}


def test_ctrl_c_ends_an_invitation_cleanly(homes: Homes) -> None:
    with inviting(homes.bank) as invitation:
        invitation.process.send_signal(signal.SIGINT)
        assert invitation.end() == 130
    assert "the code is void" in invitation.err
    assert "Traceback" not in invitation.err
    assert "Error" not in invitation.err


def test_ctrl_c_while_the_loop_is_being_made_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made = asyncio.selector_events.BaseSelectorEventLoop._make_self_pipe
    loops: list[asyncio.AbstractEventLoop] = []

    def interrupted(self: asyncio.AbstractEventLoop) -> None:
        loops.append(self)
        signal.raise_signal(signal.SIGINT)
        made(self)

    monkeypatch.setattr(asyncio.selector_events.BaseSelectorEventLoop, "_make_self_pipe", interrupted)
    complaints: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    card = pairing.Card("bank", b"", None)
    with pairing.open_listener("127.0.0.1:0") as listener, pytest.raises(KeyboardInterrupt):
        pairing.invite(listener, "123-456-789", card, lambda _: None)
    assert [loop.is_closed() for loop in loops] == [True]
    loops.clear()
    gc.collect()
    assert not complaints


@pytest.mark.parametrize(
    ("words", "shown", "told"),
    [
        (("--listen", "127.0.0.1:0"), r"127\.0\.0\.1:[1-9]\d+", r":\d+"),
        (("--listen", "0.0.0.0:0"), r"THIS-MACHINE:[1-9]\d+", r":\d+"),
        (("--listen", "0.0.0.0:0", "--reachable", "bank.example:7443"), r"bank\.example:[1-9]\d+", "bank.example:7443"),
    ],
    ids=["one address", "everywhere", "everywhere, and known where"],
)
def test_an_invitation_says_what_to_type_and_where_runs_are_reached(
    words: tuple[str, ...], shown: str, told: str, homes: Homes, colonnade: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cards: list[pairing.Card] = []

    def interrupted(listener: object, code: str, own: pairing.Card, accept: object) -> None:
        cards.append(own)
        raise KeyboardInterrupt

    monkeypatch.setattr(pairing, "invite", interrupted)
    said = colonnade(*home("--invite", *words))
    assert said.code == 130
    assert re.search(rf"colonnade pair --code \d{{3}}-\d{{3}}-\d{{3}} --address {shown}\n", said.err)
    assert ("THIS-MACHINE stands for" in said.err) is ("THIS-MACHINE" in shown)
    assert re.fullmatch(told, cards[0].address)


def test_another_certificate_for_a_paired_name_is_told_to_both(homes: Homes, colonnade: Any) -> None:
    assert colonnade(*BY_FILE, "--fingerprint", homes.fingerprint).code == 0
    assert colonnade("init", "shop", "--folder", "new").code == 0
    with inviting(homes.bank) as invitation:
        joined = colonnade("pair", "--home", "new", "--code", invitation.code, "--address", invitation.address)
        assert invitation.end() == USAGE
    assert "--replace" in invitation.err
    assert joined.code == PEER
    assert "'bank' did not accept" in joined.message
    assert paired(homes.bank)["shop"].fingerprint == homes.fingerprint


# Rotation


def test_a_key_is_renewed_by_file_without_comparing_fingerprints(homes: Homes, colonnade: Any) -> None:
    assert colonnade(*BY_FILE, "--fingerprint", homes.fingerprint).code == 0
    bank = own_certificate(homes.bank)
    (homes.folder / "bank.pem").write_bytes(bank.certificate)
    assert colonnade("pair", "bank.pem", "--home", "shop", "--fingerprint", bank.fingerprint).code == 0
    begun = colonnade("pair", "--rotate", "--home", "shop", "--json")
    assert begun.code == 0
    assert begun.json["is_active"] is False
    assert own_certificate(homes.shop).fingerprint == homes.fingerprint
    (listed,) = colonnade("pair", "--list", "--home", "shop", "--json").json
    assert listed["has_our_next_certificate"] is False
    assert "needs our next certificate" in colonnade("pair", "--list", "--home", "shop").out
    accepted = colonnade("pair", "shop/shop.succession", "--home", "bank")
    assert accepted.code == 0, accepted.err
    assert begun.json["fingerprint"] in accepted.out
    assert "not in use yet" in colonnade("pair", "--list", "--home", "bank").out
    assert previous_certificate(homes.bank, "shop") is not None
    switched = colonnade("pair", "--rotate", "--activate", "--home", "shop")
    assert switched.code == 0
    assert "bank" in switched.err
    assert own_certificate(homes.shop).fingerprint == begun.json["fingerprint"]
    assert colonnade("pair", "shop/shop.succession", "--home", "bank", "--json").json["succeeded"] == "shop"


def test_without_partners_a_new_key_is_used_at_once(homes: Homes, colonnade: Any) -> None:
    assert colonnade("pair", "--rotate", "--home", "shop", "--json").json["is_active"] is True
    assert own_certificate(homes.shop).fingerprint != paired_fingerprint(homes)


def paired_fingerprint(homes: Homes) -> str:
    from colonnade.launch.identity import describe_certificate

    return describe_certificate((homes.folder / "shop.pem").read_bytes()).fingerprint


# What may go wrong


@dataclass(frozen=True)
class Case:
    """One mistake: what the user typed, what they must be told, and what was changed before."""

    name: str
    words: tuple[str, ...]
    says: tuple[str, ...]
    code: int = USAGE
    change: Callable[[Homes], object] = lambda homes: None


def home(*words: str) -> tuple[str, ...]:
    return ("pair", *words, "--home", "bank")


def write(name: str, content: bytes) -> Callable[[Homes], object]:
    return lambda homes: (homes.folder / name).write_bytes(content)


def pinned(homes: Homes) -> None:
    """Pair the bank with another certificate of the shop."""
    (homes.bank / "partners" / "shop.pem").write_bytes(make_identity("shop").certificate)


def edited(old: str, new: str) -> Callable[[Homes], object]:
    def change(homes: Homes) -> None:
        path = homes.bank / "party.toml"
        path.write_text(re.sub(old, new, path.read_text(), flags=re.MULTILINE))

    return change


ABCD = "abcd " * 16
CASES = [
    Case("init without a name", ("init",), ("NAME", "colonnade init --help")),
    Case("init with a bad name", ("init", "a/b"), ("'a/b'", "Use letters")),
    Case("init with a bad address", ("init", "x", "--listen", "7443"), ("HOST:PORT", "'7443'")),
    Case("init over a home", ("init", "bank"), ("already has a key", "--rotate")),
    Case("init over a file", ("init", "shop.pem"), ("is a file", "--folder")),
    Case("init in another's home", ("init", "x", "--folder", "bank"), ("already has a key",)),
    Case("pair without a word", ("pair",), ("--invite", "colonnade pair --help")),
    Case("two things at once", home("--invite", "--list"), ("--invite and --list", "one of them")),
    Case("file and code", home("shop.pem", "--code", "123-456-789"), ("FILE and --code",)),
    Case("an option that does not go", home("--list", "--address", "a:1"), ("--address does not go with --list",)),
    Case("activate alone", home("--activate"), ("Say how to pair",)),
    Case("a misspelt option", home("--invit"), ("'--invit'", "Did you mean '--invite'?")),
    Case("not in a home", ("pair", "--list"), ("no party's home", "colonnade init")),
    Case("no such home", ("pair", "--list", "--home", "bnak"), ("no party's home", "--home")),
    Case("file missing", home("shp.pem"), ("no file 'shp.pem'",)),
    Case("file a folder", home("shop"), ("is a folder",)),
    Case("file empty", home("x.pem"), ("one certificate",), change=write("x.pem", b"")),
    Case("file a table", home("x.pem"), ("certificate",), change=write("x.pem", b"id,age\n1,2\n")),
    Case("file too large", home("x.pem"), ("too large",), change=write("x.pem", bytes(70000))),
    Case("file a key", home("shop/key.pem"), ("private key", "--export")),
    Case("our own certificate", home("bank/certificate.pem"), ("our own certificate",)),
    Case("a namesake", home("x.pem"), ("as we are",), change=write("x.pem", make_identity("bank").certificate)),
    Case(
        "a certificate with a path",
        home("x.pem"),
        ("cannot be the name",),
        change=write("x.pem", make_identity("../x").certificate),
    ),
    Case("nobody to ask", BY_FILE, ("Nobody is here", "--fingerprint")),
    Case("half a fingerprint", (*BY_FILE, "--fingerprint", "abcd"), ("64 digits", "quotation marks")),
    Case("fingerprint of something else", (*BY_FILE, "--fingerprint", ABCD), ("another fingerprint", "Nothing"), PEER),
    Case("bad address", home("shop.pem", "--address", "shop"), ("HOST:PORT",)),
    Case("paired otherwise", BY_FILE, ("another certificate", "--replace"), change=pinned),
    Case("remove a stranger", home("--remove", "shpo"), ("Did you mean 'shop'?",), change=pinned),
    Case("remove a path", home("--remove", "../key"), ("not paired",)),
    Case("code without address", home("--code", "123-456-789"), ("--address",)),
    Case("code too short", home("--code", "123-456", "--address", "a:1"), ("nine digits",)),
    Case("code of letters", home("--code", "abc-def-ghi", "--address", "a:1"), ("nine digits",)),
    Case("nobody there", home("--code", "123-456-789", "--address", "127.0.0.1:9"), ("Nobody answers",), PEER),
    Case("unknown host", home("--code", "123-456-789", "--address", "no.invalid:9"), ("Nobody answers",), PEER),
    Case("bad reachable", home("--invite", "--reachable", "x"), ("--reachable", "HOST:PORT")),
    Case("listen elsewhere", home("--invite", "--listen", "192.0.2.1:1"), ("Cannot listen", "--listen")),
    Case(
        "nowhere to listen",
        home("--invite"),
        ("does not say where", "--listen", "--code"),
        change=edited("^listen = .*", ""),
    ),
    Case("bad listen", home("--invite"), ("HOST:PORT",), change=edited("^listen = .*", 'listen = "here"')),
    Case(
        "key readable by all",
        home("--invite"),
        ("chmod 600",),
        change=lambda homes: (homes.bank / "key.pem").chmod(0o644),
    ),
    Case("no key", home("--rotate"), ("colonnade init",), change=lambda homes: (homes.bank / "key.pem").unlink()),
    Case("activate before rotate", home("--rotate", "--activate"), ("No rotation has begun", "--rotate")),
    Case("succession of a stranger", home("s"), ("'shop' is not paired",), change=lambda h: _rotated(h)),
    Case(
        "succession by a wrong key",
        home("s"),
        ("does not follow", "pair again"),
        change=lambda h: (_rotated(h), pinned(h)),
    ),
    Case(
        "succession cut off",
        home("s"),
        ("damaged",),
        change=lambda h: (_rotated(h), (h.folder / "s").write_bytes((h.folder / "s").read_bytes()[:99])),
    ),
    Case(
        "succession with a fingerprint",
        home("s", "--fingerprint", ABCD),
        ("Leave it out",),
        change=lambda h: _rotated(h),
    ),
    Case("export into a missing folder", home("--export", "no/x.pem"), ("no folder no",)),
    Case("export over something", home("--export", "shop.pem"), ("holds something else",)),
    Case("export into a folder", home("--export", "shop"), ("holds something else",)),
    Case("settings broken", home("--list"), ("not valid TOML",), change=edited("^name = .*", "name =")),
    Case(
        "pinned file damaged",
        home("--list"),
        ("shop.pem", "--remove shop"),
        change=lambda h: (h.bank / "partners" / "shop.pem").write_bytes(b"x"),
    ),
]


def _rotated(homes: Homes) -> None:
    from colonnade.launch.identity import start_rotation

    (homes.folder / "s").write_bytes(start_rotation(homes.shop)[1].read_bytes())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_mistake_is_told_in_one_message(case: Case, homes: Homes, colonnade: Any, monkeypatch: Any) -> None:
    case.change(homes)
    files = set(homes.folder.rglob("*"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    shown = colonnade(*case.words)
    assert shown.code == case.code, shown.err
    assert shown.out == ""
    for words in case.says:
        assert words in shown.message
    assert "Traceback" not in shown.err
    assert "unforeseen" not in shown.err
    assert len(shown.message) < 500
    assert re.search(r"[.?]\n$", shown.message)
    assert not re.search(r"\d{3}-\d{3}(?!.*such as)", shown.message.replace("such as 123-456-789", "")), "no code"
    assert "PRIVATE KEY-" not in shown.err
    assert set(homes.folder.rglob("*")) == files, "a mistake leaves no trace"


def test_an_address_in_use_is_told(homes: Homes, colonnade: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        shown = colonnade(*home("--invite", "--listen", f"127.0.0.1:{taken.getsockname()[1]}"))
    assert shown.code == USAGE
    assert "Address already in use" in shown.message


def test_what_answers_is_not_an_invitation(homes: Homes, colonnade: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pairing, "_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=hang_up)
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        shown = colonnade(*home("--code", "123-456-789", "--address", address))
        thread.join()
    assert shown.code == PEER
    assert "no invitation" in shown.message
