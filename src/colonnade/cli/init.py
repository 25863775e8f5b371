"""`colonnade init`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, say
from colonnade.errors import ConfigError
from colonnade.launch.identity import make_home, own_certificate
from colonnade.text import command

app = make_app("Make a party's home: key, certificate and a commented party.toml.")


@app.command(
    epilog=examples(
        "colonnade init bank",
        "colonnade init bank --listen 0.0.0.0:7443",
        "colonnade init bank --table customers.csv --id customer --label churned",
        "colonnade init shop --folder /srv/colonnade/shop --json",
        "colonnade init helper --no-table         (for roles that hold no table)",
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
    table: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The party's table, for party.toml; or a database URL."),
    ] = None,
    id_column: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="The column that names the row.")
    ] = None,
    label_column: Annotated[
        str | None, typer.Option("--label", metavar="COLUMN", help="The column to predict, at the party that has it.")
    ] = None,
    no_table: Annotated[
        bool, typer.Option("--no-table", help="This party holds no table, and only plays roles that need none.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Make a party's home: key.pem, certificate.pem, party.toml, and a folder for partners' certificates.

    Nothing that is there already is changed. A party.toml of this name is kept and gets a key beside it.
    """
    if no_table and (table or id_column or label_column):
        raise ConfigError("--no-table excludes --table, --id and --label. Choose what this party holds.")
    place = folder or Path(name)
    had_settings = (place / "party.toml").exists()
    make_home(
        place,
        name,
        listen,
        source="FILL-IN.csv" if table is None else _seen_from(place, table),
        id_column=id_column or "FILL-IN",
        label_column=label_column,
        has_table=not no_table,
    )
    own = own_certificate(place)
    if json:
        print_json({"name": name, "folder": str(place), "fingerprint": own.fingerprint, "expires": str(own.expires)})
        return
    echo(f"Home:        {place}")
    echo(f"Fingerprint: {own.fingerprint}")
    echo(f"Valid until: {own.expires:%Y-%m-%d}")
    if had_settings:
        say(f"{place}/party.toml was there already and is kept as it is; no option changes it.")
    is_filled = had_settings or no_table or (table is not None and id_column is not None)
    doctor, invite = command("doctor", home=place), command("pair", "--invite", home=place)
    first = f"See whether all is well: {doctor}" if is_filled else f"Fill in [table] in {place}/party.toml."
    say(
        f"\nNext:\n"
        f"  1. {first}\n"
        f"  2. Pair; your partner types what this shows, or the other way round: {invite}\n"
        f"{place}/key.pem is this party's identity. Do not copy it anywhere but into a backup of yours."
    )


def _seen_from(home: Path, table: str) -> str:
    """Return a table's path as party.toml wants it, relative to the home; a database URL stays as it is."""
    return table if "://" in table else os.path.relpath(table, home)
