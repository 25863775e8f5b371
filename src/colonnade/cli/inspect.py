"""`colonnade inspect`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table
from colonnade.errors import ConfigError

if TYPE_CHECKING:
    import pandas as pd

    from colonnade.data import PartyTable
    from colonnade.training import InspectedColumn, Inspection

app = make_app("Look at a table: each column, how it is encoded, and what looks wrong.")

_KINDS = {"numeric": "number", "categorical": "category"}
_MOST_PROPOSED = 5


@app.command(
    epilog=examples(
        "colonnade inspect                                  (in a party's home: the table that party.toml names)",
        "colonnade inspect bank --json",
        "colonnade inspect customers.csv                    (says which columns could be the id)",
        "colonnade inspect customers.csv --id customer --label churned",
    )
)
def inspect(
    where: Annotated[
        Path, typer.Argument(metavar="[FILE|HOME]", help="A table, or the home of a party. Default: this folder.")
    ] = Path(),
    id: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="For a file: the column that names the row. Once for each, if several do."),
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="For a file: the column to predict, if it is there.")
    ] = None,
    drop: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="For a file: a column to ignore. Once for each.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    """Read a table as a run would, and say what it makes of it.

    Every column is shown with its kind, missing cells and different values, how networks get it and as how many
    numbers, or why it is left out, and what looks wrong with it. Nothing is sent. No value of a cell is shown but the
    label's classes, with their counts.
    """
    table = _table(where, tuple(id or ()), label, drop or [])
    # After the table, which may be wrong: this loads torch.
    from colonnade.training import inspect_table

    found = inspect_table(table)
    if json:
        print_json(found.to_json())
    else:
        _show(found)


def _table(where: Path, id: Sequence[str], label: str | None, drop: Sequence[str]) -> PartyTable:
    if where.is_dir():
        from colonnade.launch.home import read_party_home

        if id or label or drop:
            raise ConfigError(f"--id, --label and --drop are for a file; a home says all in {where / 'party.toml'}.")
        home = read_party_home(where)
        if not home.has_table:
            raise ConfigError(f"'{home.name}' holds no table: {where / 'party.toml'} has no [table]. Name a file.")
        return home.read_table()
    from colonnade.data import read_frame, read_table

    if not id:
        raise ConfigError(_which_id(where, read_frame(where, id=())))
    return read_table(where, id=id, label=label, drop=drop)


def _which_id(where: Path, frame: pd.DataFrame) -> str:
    """Say how to name the id, with the columns that could be it."""
    unique = [name for name in frame.columns if frame[name].notna().all() and frame[name].is_unique]
    unique.sort(key=lambda name: _counts_rows(frame[name]))  # no partner knows rows by their place in this file
    fitting = [str(name) for name in unique]
    command = f"colonnade inspect {shlex.quote(str(where))} --id"
    if not fitting:
        return (
            f"Say which column of {where.name} names the row: {command} COLUMN. No column has another value in every "
            "row; several together may: give --id once for each."
        )
    shown = ", ".join(f"'{name}'" for name in fitting[:_MOST_PROPOSED])
    more = len(fitting) - _MOST_PROPOSED
    others = f" and {more} more" if more > 0 else ""
    return (
        f"Say which column of {where.name} names the row. These have another value in every row: {shown}{others}. "
        f"For the first: {command} {shlex.quote(fitting[0])}"
    )


def _counts_rows(cells: Any) -> bool:
    """Tell whether cells that differ are whole numbers without a gap."""
    import pandas as pd

    numbers = pd.to_numeric(cells, errors="coerce")
    return bool((numbers % 1 == 0).all() and numbers.max() - numbers.min() + 1 == len(numbers))


def _show(found: Inspection) -> None:
    echo(found.in_short(found.name).splitlines()[0])
    echo(f"id {found.id}: {found.id_format}")
    if found.label is not None:
        about = found.label
        missing = f", {about.missing:,} missing" if about.missing else ""
        shown = sorted(about.classes.items(), key=lambda one: -one[1])
        classes = ", ".join(f"{name} {count:,}" for name, count in shown) or f"{about.distinct:,} different values"
        echo(f"label {about.name}: {about.task}, {classes}{missing}")
        if about.sentence:
            echo(about.sentence)
    if found.dialect:
        echo("written with " + ", ".join(f"{name} {value!r}" for name, value in found.dialect.items()))
    if found.columns:
        echo()
        head = ["column", "kind", "missing", "distinct", "numbers", "encoded as"]
        print_table(head, [_row(one, found.rows) for one in found.columns])
    left_out = [f"{one.name}: {note}" for one in found.columns if one.left_out for note in one.notes]
    for title, notes in (("What looks wrong:", found.looks_wrong), ("Left out:", left_out)):
        if notes:
            echo("\n".join(["", title, *(f"  {note}" for note in notes)]))
    if not found.looks_wrong:
        echo("\nNothing looks wrong.")


def _row(column: InspectedColumn, rows: int) -> list[str]:
    missing = f"{column.missing / rows:.0%}" if 2 * column.missing >= 0.01 * rows else f"{column.missing:,}"
    encoded = f"left out: {column.left_out}" if column.left_out else column.encoded
    counts = [missing, f"{column.distinct:,}", f"{column.outputs:,}"]
    return [column.name, _KINDS.get(column.kind, column.kind), *counts, encoded]
