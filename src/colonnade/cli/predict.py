"""`colonnade predict`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import make_app, print_json, say
from colonnade.cli.run import find_homes
from colonnade.data import TableEncoder
from colonnade.errors import ConfigError, TableError, did_you_mean
from colonnade.launch.load import load_run

app = make_app("Score new rows with a finished run.")


@app.command(
    epilog="Example:  colonnade predict runs/churn --table bank=new_bank.csv --table shop=new_shop.csv --output scores.csv"
)
def predict(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    table: Annotated[
        list[str], typer.Option(help="PARTY=FILE with that party's columns of the new rows; once per party.")
    ],
    output: Annotated[Path | None, typer.Option(help="A .csv or .parquet file. Default: CSV on stdout.")] = None,
    home: Annotated[list[str] | None, typer.Option(help="PARTY=FOLDER. Default: beside the runs folder.")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the scores as JSON.")] = False,
) -> None:
    """Score rows that all parties know. The label holder gets the scores; every message goes into a new ledger."""
    run = load_run(folder)
    parties = run.plan.parties
    files = _files(table, parties)
    homes = find_homes(parties, folder.resolve().parent.parent, home or [])
    tables = {}
    for party in parties:
        encoder = run.parts[party].document.get("table_encoder")
        types = TableEncoder.from_json(encoder).types if encoder else {}
        tables[party] = homes[party].read_new_rows(files[party], types)
    if output is not None and output.suffix not in (".csv", ".parquet"):
        raise ConfigError(f"'{output.name}' is neither .csv nor .parquet. Choose one of the two.")
    scores = run.predict(tables)
    if json:
        print_json({"rows": len(scores), "scores": scores.to_dict(orient="records")})
    elif output is None:
        scores.to_csv(sys.stdout, index=False)
    else:
        try:
            scores.to_csv(output, index=False) if output.suffix == ".csv" else scores.to_parquet(output, index=False)
        except OSError as error:
            raise TableError(f"{output} cannot be written ({error.strerror}). Check the folder.") from None
        say(f"{len(scores)} rows scored, written to {output}")


def _files(given: list[str], parties: tuple[str, ...]) -> dict[str, str]:
    files = {}
    for word in given:
        party, found, file = word.partition("=")
        if not found or not file:
            raise ConfigError(f"'{word}' does not name a table. Write --table PARTY=FILE.")
        if party not in parties:
            raise ConfigError(f"'{party}' is not a party of this run. {did_you_mean(party, parties)}")
        files[party] = file
    missing = [party for party in parties if party not in files]
    if missing:
        raise ConfigError(f"No table was given for {', '.join(missing)}. Add --table {missing[0]}=FILE.")
    return files
