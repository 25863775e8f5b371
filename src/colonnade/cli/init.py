"""`colonnade init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import examples, make_app, print_json, program, say
from colonnade.launch.home import make_home, own_certificate

app = make_app("Make a party's home: key, certificate and a commented party.toml.")


@app.command(
    epilog=examples(
        "colonnade init bank",
        "colonnade init bank --listen 0.0.0.0:7443",
        "colonnade init shop --folder /srv/colonnade/shop --json",
    )
)
def init(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What partners and run.toml call this party.")],
    folder: Annotated[
        Path | None, typer.Option(help="Where the home is made. Default: a folder of that name here.")
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Where this machine waits for partners.")
    ] = "0.0.0.0:7443",  # nobody without a pinned certificate is answered there
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a party's home: key.pem, certificate.pem, party.toml, and a folder for partners' certificates.

    Nothing that is there already is changed. A party.toml of this name is kept and gets a key beside it.
    """
    place = folder or Path(name)
    had_settings = (place / "party.toml").exists()
    make_home(place, name, listen)
    own = own_certificate(place)
    if json:
        print_json({"name": name, "folder": str(place), "fingerprint": own.fingerprint, "expires": str(own.expires)})
        return
    typer.echo(f"Home:        {place}")
    typer.echo(f"Fingerprint: {own.fingerprint}")
    typer.echo(f"Valid until: {own.expires:%Y-%m-%d}")
    if had_settings:
        say(f"{place}/party.toml was there already and is kept as it is; --listen does not change it.")
    here = "" if place.resolve() == Path.cwd() else f" --home {place}"
    say(
        f"\nNext:\n"
        f"  1. Fill in [table] in {place}/party.toml.\n"
        f"  2. Pair: run '{program()} pair{here} --invite', and let your partner type what it shows; or the other way "
        "round.\n"
        f"{place}/key.pem is this party's identity. Do not copy it anywhere but into a backup of yours."
    )
