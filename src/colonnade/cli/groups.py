"""`colonnade groups`."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, say
from colonnade.errors import ConfigError, UsageError
from colonnade.text import is_plain

if TYPE_CHECKING:
    from colonnade.data import PartyTable

app = make_app("Propose feature groups for a run of prada, to rename and edit.")

_FILES = (".csv", ".csv.gz", ".tsv", ".parquet")
_COUNT, _WIDTH = 4, 100


@app.command(
    epilog=examples(
        "colonnade groups data                            (a home: reads the table that its party.toml names)",
        "colonnade groups people.csv --id person --count 6",
        "colonnade groups people.csv --id person --drop income --json",
        "colonnade groups data >> run.toml                (then rename the groups and move columns)",
    )
)
def groups(
    where: Annotated[Path, typer.Argument(metavar="HOME|FILE", help="The feature holder's home, or its table.")],
    count: Annotated[
        int | None, typer.Option(metavar="N", help="How many groups; their pairs come on top. Default: 4.")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="For a file: the column that names the row, which joins none.")
    ] = None,
    drop: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="For a file: a column to leave out, such as a label. Once for each."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the groups as JSON.")] = False,
) -> None:
    """Put columns that say alike things into one group, and print a [config.groups] table for run.toml.

    The table is read and compared here, and nothing is sent. What is printed holds names of columns and no value. All
    parties of a run will see it, because it is part of what they agree on.
    """
    table = _table(where, id, drop or [])
    names = [column.name for column in table.columns]
    if not names:
        raise ConfigError(f"{where} has no feature columns to make groups of. Check its table and its drop list.")
    count = min(_COUNT, len(names)) if count is None else count
    if not 1 <= count <= len(names):
        raise UsageError(f"--count must be from 1 to {len(names)}, the number of columns here. Got {count} instead.")
    # After the table, which may be wrong: this loads torch.
    from colonnade.methods.prada import propose_groups

    found = propose_groups(table, count)
    if json:
        print_json({"groups": {name: list(columns) for name, columns in found.items()}})
        return
    echo("\n".join(_toml(found)))
    numbers = len(found) * (len(found) + 1) // 2
    say(
        f"{len(names)} columns of {table.rows} rows in {len(found)} groups: {numbers} with their pairs (interactions = "
        "true). Give them names that will mean something in an explanation, and move columns as you see fit."
    )


def _table(where: Path, id: str | None, drop: Sequence[str]) -> PartyTable:
    if where.is_dir():
        from colonnade.launch.home import read_party_home

        if id is not None or drop:
            raise ConfigError(f"--id and --drop are for a file; a home says both in {where / 'party.toml'}.")
        return read_party_home(where).read_table()
    if not where.exists() or not where.name.endswith(_FILES):
        raise ConfigError(
            f"{where} is neither a party's home nor a table. Give a folder, or one of {', '.join(_FILES)}."
        )
    if id is None:
        raise ConfigError(f"Say which column of {where} names the row: --id COLUMN.")
    from colonnade.data import read_table

    return read_table(str(where.resolve()), id=id, drop=drop, name=where.name)


def _toml(found: Mapping[str, Sequence[str]]) -> list[str]:
    lines = ["[config.groups]"]
    for name, columns in found.items():
        # A basic string of TOML is written as one of JSON.
        written = [jsonlib.dumps(column, ensure_ascii=not is_plain(column)) for column in columns]
        whole = f"{name} = [{', '.join(written)}]"
        lines += [whole] if len(whole) <= _WIDTH else [f"{name} = [", *(f"    {one}," for one in written), "]"]
    return lines
