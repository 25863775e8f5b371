"""`colonnade predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import examples, make_app, print_json, say, words_by_party
from colonnade.cli.run import find_homes
from colonnade.data import TableEncoder
from colonnade.errors import ConfigError, TableError
from colonnade.launch.load import load_run

app = make_app("Score new rows with a finished run.")


@app.command(
    epilog=examples(
        "colonnade predict runs/churn --table bank=new_bank.csv --table shop=new_shop.csv",
        "colonnade predict runs/churn --table bank=b.parquet --table shop=s.parquet --output scores.csv",
    )
)
def predict(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run.")],
    table: Annotated[
        list[str],
        typer.Option(metavar="PARTY=FILE", help="A file with that party's columns of the new rows; once per party."),
    ],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A .csv or .parquet file. Default: CSV on stdout.")
    ] = None,
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY=FOLDER",
            help="The folder with a party's party.toml. Default: a folder of the party's name beside the runs folder.",
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score rows that all parties know. The label holder gets the scores; every message goes into a new ledger."""
    run = load_run(folder)
    parties = run.plan.parties
    files = words_by_party("--table", "file", table, parties)
    missing = [party for party in parties if party not in files]
    if missing:
        raise ConfigError(f"No table was given for {', '.join(missing)}. Add --table {missing[0]}=FILE.")
    if output is not None:
        _check_output(output)
    homes = find_homes(parties, folder.resolve().parent.parent, home or [])
    tables = {}
    for party in parties:
        encoder = run.parts[party].document.get("table_encoder")
        types = TableEncoder.from_json(encoder).types if encoder else {}
        tables[party] = homes[party].read_new_rows(files[party], types)
    scores = run.predict(tables, policies={party: where.policy for party, where in homes.items()})
    lead = run.plan.roles[run.method.lead][0]
    say(
        f"{len(scores)} rows scored; {lead} gave {tables[lead].rows}, and only rows that all parties know have a score."
    )
    if output is not None:
        try:
            scores.to_csv(output, index=False) if output.suffix == ".csv" else scores.to_parquet(output, index=False)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TableError(f"{output} cannot be written ({reason}). Choose another --output.") from None
        say(f"Written to {output}")
    if json:
        print_json({"rows": len(scores), "scores": scores.to_dict(orient="records")})
    elif output is None:
        scores.to_csv(sys.stdout, index=False)


def _check_output(output: Path) -> None:
    """Refuse a place for the scores before anything is computed or crosses."""
    if output.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"'{output.name}' is neither .csv nor .parquet. Choose one of the two.")
    if output.is_dir() or not output.parent.is_dir():
        why = "it is a folder" if output.is_dir() else f"there is no folder {output.parent}"
        raise ConfigError(f"{output} cannot be written: {why}. Choose another --output.")
