"""`colonnade report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import make_app, print_json
from colonnade.launch.load import load_run
from colonnade.launch.record import record_of

app = make_app("Write the HTML report of a finished run again.")


@app.command(epilog="Examples:  colonnade report runs/churn   |   colonnade report runs/churn --output churn.html")
def report(
    folder: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    output: Annotated[
        Path | None, typer.Option(help="Where to write it. Default: report.html in the run's folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what the report says as JSON and write nothing.")] = False,
) -> None:
    """Write one self-contained HTML file: data, metrics, what crossed, settings."""
    run = load_run(folder)
    if json:
        print_json(record_of(run).to_json())
        return
    typer.echo(str(run.report(output)))
