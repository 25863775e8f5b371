"""`colonnade pair`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.output import Interrupted, echo, examples, make_app, print_json, print_table, say
from colonnade.errors import ConfigError, HandshakeRefused
from colonnade.launch import identity
from colonnade.launch.home import PartyHome, read_party_home
from colonnade.session.files import write_whole
from colonnade.text import command

app = make_app("Exchange certificates with a partner, and renew your own.")

_MOST_FILE_BYTES = 65536
_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104  # only compared with
# What to do: the options that go with it.
_TOGETHER = {
    "FILE": ("--address", "--fingerprint", "--replace"),
    "--export": ("FILE",),
    "--invite": ("--listen", "--reachable", "--replace"),
    "--code": ("--address", "--reachable", "--replace"),
    "--list": (),
    "--remove": (),
    "--rotate": ("--activate",),
}


@dataclass(frozen=True, kw_only=True)
class _Asked:
    """What the user typed."""

    file: Path | None
    home: PartyHome
    address: str | None
    fingerprint: str | None
    listen: str | None
    reachable: str | None
    replace: bool
    activate: bool
    json: bool

    @property
    def folder(self) -> Path:
        return self.home.folder


@app.command(
    epilog=examples(
        "colonnade pair --invite                                          by code: you",
        "colonnade pair --code 123-456-789 --address bank.example:7443    by code: your partner",
        "colonnade pair --export bank.pem                                 by file: send it",
        "colonnade pair shop.pem --address shop.example:7443              by file: theirs",
        "colonnade pair --list",
        "colonnade pair --remove shop",
        "colonnade pair --rotate                                          renew your key",
        "colonnade pair shop.succession                                   a partner renewed its key",
    )
)
def pair(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE", help="A partner's certificate or succession; with --export, where to write."),
    ] = None,
    home_folder: Annotated[Path, typer.Option("--home", metavar="FOLDER", help="This party's home.")] = Path(),
    export: Annotated[bool, typer.Option("--export", help="Write the own certificate to FILE, or print it.")] = False,
    invite: Annotated[bool, typer.Option("--invite", help="Show a one-time code and wait for the partner.")] = False,
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="The one-time code the partner's --invite shows.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Where the partner is. Required with --code.")
    ] = None,
    fingerprint: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="The fingerprint the partner read to you; compared instead of asking."),
    ] = None,
    listen: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Where --invite waits. Default: listen in party.toml."),
    ] = None,
    reachable: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            help="Where partners reach this party in a run, to tell the partner. Default: from listen in party.toml.",
        ),
    ] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Accept a new certificate for a partner that is paired already.")
    ] = False,
    list_all: Annotated[bool, typer.Option("--list", help="Show who is paired.")] = False,
    remove: Annotated[str | None, typer.Option(metavar="NAME", help="Accept this partner no more.")] = None,
    rotate: Annotated[
        bool, typer.Option("--rotate", help="Make the next key, and a succession that partners accept.")
    ] = False,
    activate: Annotated[
        bool, typer.Option("--activate", help="With --rotate: use the next key now; all partners have the succession.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Exchange certificates with a partner, by code or by file, and renew your own.

    A partner is accepted because its certificate is exactly the one pinned here; there is no authority.
    Exit code 0: done. 2: something given cannot be used. 4: fingerprint, code or partner is not the right one.
    """
    given: dict[str, Any] = {
        "FILE": file,
        "--export": export,
        "--invite": invite,
        "--code": code,
        "--list": list_all,
        "--remove": remove,
        "--rotate": rotate,
        "--address": address,
        "--fingerprint": fingerprint,
        "--listen": listen,
        "--reachable": reachable,
        "--replace": replace,
        "--activate": activate,
    }
    task = _task({name for name, value in given.items() if value is not None and value is not False})
    asked = _Asked(
        file=file,
        home=read_party_home(home_folder),
        address=address,
        fingerprint=fingerprint,
        listen=listen,
        reachable=reachable,
        replace=replace,
        activate=activate,
        json=json,
    )
    if task == "FILE":
        _by_file(asked)
    elif task == "--export":
        _export(asked)
    elif task == "--invite":
        _invite(asked)
    elif task == "--code":
        _join(asked, str(code))
    elif task == "--list":
        _list(asked)
    elif task == "--remove":
        _remove(asked, str(remove))
    else:
        _rotate(asked)


def _task(given: set[str]) -> str:
    """Return the one thing the user asks for; refuse two, none, and options that do not go with it."""
    # A file beside --export is only where to write.
    tasks = [name for name in _TOGETHER if name in given and not (name == "FILE" and "--export" in given)]
    if not tasks:
        raise ConfigError(
            "Say how to pair: --invite, --code with --address, or a partner's certificate FILE. "
            "See 'colonnade pair --help'."
        )
    if len(tasks) > 1:
        raise ConfigError(f"{tasks[0]} and {tasks[1]} do not go together. Leave out one of them.")
    (task,) = tasks
    for name in sorted(given - {task, *_TOGETHER[task]}):
        raise ConfigError(f"{name} does not go with {task}. Leave it out, or see 'colonnade pair --help'.")
    return task


# By file


def _export(asked: _Asked) -> None:
    own = identity.own_certificate(asked.folder)
    if asked.file is None:
        if asked.json:
            print_json(
                {"name": own.name, "fingerprint": own.fingerprint, "certificate": own.certificate.decode("ascii")}
            )
            return
        sys.stdout.write(own.certificate.decode("ascii"))
    else:
        if not asked.file.parent.is_dir():
            raise ConfigError(f"There is no folder {asked.file.parent} to write to. Make it, or choose another place.")
        if asked.file.exists() and (asked.file.is_dir() or asked.file.read_bytes() != own.certificate):
            raise ConfigError(f"{asked.file} exists and holds something else. Choose another name.")
        write_whole(asked.file, own.certificate)
        if asked.json:
            print_json({"name": own.name, "fingerprint": own.fingerprint, "file": str(asked.file)})
            return
    say(f"The fingerprint of {own.name}, to read to your partner over the telephone:\n{own.fingerprint}")


def _by_file(asked: _Asked) -> None:
    content = _read(asked)
    if identity.is_succession(content):
        if asked.fingerprint is not None or asked.address is not None or asked.replace:
            raise ConfigError(
                "A succession takes no --fingerprint, --address or --replace: the old key vouches for it. Leave it out."
            )
        _accept_succession(asked, content)
        return
    found = identity.check_partner(asked.folder, content, replace=asked.replace)
    if asked.address is not None:
        identity.check_address(asked.address, "The address of the partner")
    _compare(found, asked)
    _tell(identity.pin_partner(asked.folder, content, asked.address, replace=asked.replace), asked)


def _read(asked: _Asked) -> bytes:
    path = asked.file or Path()
    if path.is_dir():
        raise ConfigError(f"{path} is a folder. Give the certificate file your partner sent.")
    if not path.exists():
        names = [one.name for one in path.parent.glob("*.pem")] if path.parent.is_dir() else []
        near = get_close_matches(path.name, names, n=1)
        hint = f"Did you mean '{path.with_name(near[0])}'?" if near else "Ask your partner for its certificate."
        raise ConfigError(f"There is no file '{path}'. {hint}")
    with path.open("rb") as file:
        content = file.read(_MOST_FILE_BYTES + 1)
    if len(content) > _MOST_FILE_BYTES:
        raise ConfigError(f"{path} is too large to be a certificate. Ask your partner for it again.")
    return content


def _compare(found: identity.PartyCertificate, asked: _Asked) -> None:
    """Let the operator, or the fingerprint given, decide whether this is the partner's certificate."""
    if asked.fingerprint is not None:
        words = asked.fingerprint.replace(" ", "").replace(":", "").lower()
        if len(words) != 64 or not set(words) <= set("0123456789abcdef"):
            raise ConfigError(
                "A fingerprint has 64 digits and letters from a to f. Give all of it, in quotation marks: "
                "--fingerprint 'abcd 0123 …'."
            )
        if words != found.fingerprint.replace(" ", ""):
            raise HandshakeRefused(
                f"The certificate of '{found.name}' has another fingerprint than the one given: it was changed on its "
                "way, or the wrong file was sent. Nothing was pinned; ask your partner for the file again."
            )
        return
    if not sys.stdin.isatty():
        raise ConfigError(
            f"Nobody is here to compare the fingerprint of '{found.name}'. Give the one your partner read to you with "
            "--fingerprint, or run this on a terminal."
        )
    say(f"This is a certificate of '{found.name}', valid until {found.expires:%Y-%m-%d}. Its fingerprint:\n")
    say(f"    {found.fingerprint}\n")
    say(f"Telephone {found.name}, on a number you know already.")
    if not _says_yes(f"Is this the fingerprint {found.name} reads to you?"):
        raise HandshakeRefused(
            f"The fingerprint of '{found.name}' was not confirmed, so nothing was pinned. Ask your partner for the "
            "certificate again, by another way."
        )


def _says_yes(question: str) -> bool:
    sys.stderr.write(f"{question} [yes/no] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("yes", "y")


# By code


def _invite(asked: _Asked) -> None:
    from colonnade.launch import pairing

    listen = asked.listen or asked.home.listen
    if listen is None:
        raise ConfigError(
            "party.toml does not say where this party listens. Give --listen HOST:PORT; or let your partner invite and "
            "use --code here."
        )
    own = pairing.Card(asked.home.name, _own(asked), asked.reachable or _port_only(asked.home.listen))
    code = pairing.make_code()
    pinned: list[identity.Pinned] = []

    def accept(card: pairing.Card) -> None:
        pinned.append(identity.pin_partner(asked.folder, card.certificate, card.address or None, replace=asked.replace))

    with pairing.open_listener(listen) as listener:
        say(_how_to_join(code, listen, asked.reachable, listener.getsockname()[1]))
        try:
            with _waiting("Waiting for the partner. Ctrl-C ends the invitation."):
                pairing.invite(listener, code, own, accept)
        except KeyboardInterrupt:
            raise Interrupted("Interrupted; the code is void and nobody was paired.") from None
    _tell(pinned[0], asked)


def _how_to_join(code: str, listen: str, reachable: str | None, port: int) -> str:
    host = identity.check_address(reachable or listen, "The address to listen on", lowest=0)[0]
    lines = ["Read this to your partner over the telephone. In the partner's home:", ""]
    place = "THIS-MACHINE" if host in _WILDCARDS else (f"[{host}]" if ":" in host else host)
    lines += [f"    colonnade pair --code {code} --address {place}:{port}", ""]
    if host in _WILDCARDS:
        lines.append("THIS-MACHINE stands for the name or number by which the partner reaches this machine.")
    return "\n".join([*lines, "The code is good for one try."])


def _join(asked: _Asked, text: str) -> None:
    from colonnade.launch import pairing

    if asked.address is None:
        raise ConfigError("--code needs --address HOST:PORT too: where the partner's invitation waits.")
    code = pairing.read_code(text)
    own = pairing.Card(asked.home.name, _own(asked), asked.reachable or _as_far_as_known(asked.home.listen))

    def check(found: pairing.Card) -> None:
        identity.check_partner(asked.folder, found.certificate, replace=asked.replace)

    card = pairing.join(asked.address, code, own, check)
    _tell(identity.pin_partner(asked.folder, card.certificate, card.address or None, replace=asked.replace), asked)


def _own(asked: _Asked) -> bytes:
    if asked.reachable is not None:
        identity.check_address(asked.reachable, "--reachable")
    # The whole identity is loaded: a certificate without its key would be no use to the partner.
    return identity.load_identity(asked.folder, asked.home.name).certificate


def _port_only(listen: str | None) -> str:
    """Tell the port alone: the partner knows the host, for it has just dialled it."""
    return "" if listen is None else f":{identity.check_address(listen, 'party.listen in party.toml')[1]}"


def _as_far_as_known(listen: str | None) -> str:
    """Tell the own address, but only the port of a party that listens everywhere."""
    if listen is None:
        return ""
    host, port = identity.check_address(listen, "party.listen in party.toml")
    return f":{port}" if host in _WILDCARDS else listen


@contextmanager
def _waiting(words: str) -> Iterator[None]:
    """Show that the command waits; moving on a terminal, still elsewhere."""
    if not sys.stderr.isatty():
        say(words)
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(words):
        yield


def _tell(pinned: identity.Pinned, asked: _Asked) -> None:
    partner = pinned.partner
    if asked.json:
        print_json(
            {
                "paired": partner.name,
                "fingerprint": partner.fingerprint,
                "expires": str(partner.expires),
                "address": pinned.address,
                "advice": pinned.advice,
            }
        )
        return
    echo(f"Paired with {partner.name}.")
    echo(f"Fingerprint: {partner.fingerprint}")
    if pinned.advice is not None:
        say(pinned.advice)
    elif pinned.address is not None:
        say(f"Address: {pinned.address}, in {asked.folder / 'party.toml'}. Change it there if {partner.name} moves.")
    else:
        say(
            f"The address of {partner.name} is not known. That is fine if it dials you; else add "
            f"[partners.{partner.name}] to {asked.folder / 'party.toml'}."
        )


# Who is paired, and rotation


def _list(asked: _Asked) -> None:
    found = identity.paired(asked.folder)
    rows = [
        {
            "name": name,
            "fingerprint": partner.fingerprint,
            "expires": str(partner.expires),
            "address": asked.home.partners.get(name),
            "has_our_next_certificate": identity.has_our_next(asked.folder, name),
            "may_still_use_its_previous_certificate": identity.previous_certificate(asked.folder, name) is not None,
        }
        for name, partner in found.items()
    ]
    if asked.json:
        print_json(rows)
        return
    if not rows:
        say(f"Nobody is paired with {asked.home.name}. To begin: {command('pair', '--invite', home=asked.folder)}")
        return
    print_table(
        ["partner", "valid until", "address", "rotation", "fingerprint"],
        [
            [
                str(row["name"]),
                str(row["expires"])[:10],
                str(row["address"] or "—"),
                _rotation(row),
                str(row["fingerprint"]),
            ]
            for row in rows
        ],
    )


def _rotation(row: dict[str, Any]) -> str:
    notes = []
    if row["has_our_next_certificate"] is not None:
        notes.append("has our next certificate" if row["has_our_next_certificate"] else "needs our next certificate")
    if row["may_still_use_its_previous_certificate"]:
        notes.append("its new certificate is not in use yet")
    return "; ".join(notes) or "—"


def _remove(asked: _Asked, name: str) -> None:
    identity.unpin_partner(asked.folder, name)
    if asked.json:
        print_json({"removed": name})
        return
    echo(f"{name} is no longer paired.")
    if name in asked.home.partners:
        say(f"Its address is still in {asked.folder / 'party.toml'}; delete [partners.{name}] if you like.")


def _rotate(asked: _Asked) -> None:
    if asked.activate:
        waiting = [name for name in identity.paired(asked.folder) if identity.has_our_next(asked.folder, name) is False]
        if not identity.activate_next_identity(asked.folder, at_once=True):
            raise ConfigError(
                f"No rotation has begun. Begin one with `{command('pair', '--rotate', home=asked.folder)}`."
            )
        _tell_rotation(asked, identity.own_certificate(asked.folder), None)
        if waiting and not asked.json:
            say(f"Make sure that these have accepted {asked.home.name}.succession: {', '.join(waiting)}.")
        return
    following, statement = identity.start_rotation(asked.folder)
    # Without partners nobody has to be told.
    is_active = identity.activate_next_identity(asked.folder)
    _tell_rotation(asked, following, None if is_active else statement)


def _tell_rotation(asked: _Asked, certificate: identity.PartyCertificate, statement: Path | None) -> None:
    if asked.json:
        print_json(
            {
                "fingerprint": certificate.fingerprint,
                "expires": str(certificate.expires),
                "is_active": statement is None,
                "succession": None if statement is None else str(statement),
            }
        )
        return
    if statement is None:
        echo(f"The new key is in use, until {certificate.expires:%Y-%m-%d}.")
        echo(f"Fingerprint: {certificate.fingerprint}")
        return
    echo(f"The next certificate is made; the present one stays in use until every partner has it: {statement}")
    say(
        f"Send {statement.name} to each partner; it may be read by anyone. The partner runs 'colonnade pair "
        f"{statement.name}'. When all have: {command('pair', '--rotate', '--activate', home=asked.folder)}"
    )


def _accept_succession(asked: _Asked, statement: bytes) -> None:
    name = identity.succession_of(statement)
    accepted = identity.accept_succession(asked.folder, name, statement)
    if asked.json:
        print_json({"succeeded": name, "fingerprint": accepted.fingerprint, "expires": str(accepted.expires)})
        return
    echo(f"{name} has a new certificate, signed for by its old key; it is pinned.")
    echo(f"Fingerprint: {accepted.fingerprint}")
