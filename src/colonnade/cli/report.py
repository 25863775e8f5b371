"""`colonnade report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json
from colonnade.errors import ConfigError
from colonnade.launch.run_folder import load_run

app = make_app("Write the HTML report of a finished run again.")


@app.command(epilog=examples("colonnade report runs/churn", "colonnade report runs/churn --output churn.html"))
def report(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The folder of a finished run.")],
    output: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write it. Default: report.html in the run's folder.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print what the report says as JSON and write nothing.")] = False,
) -> None:
    """Write one self-contained HTML file: data, metrics, what crossed, settings."""
    run = load_run(folder)
    if json:
        print_json(run.to_json())
        return
    try:
        echo(str(run.report(output)))
    except OSError as error:
        raise ConfigError(
            f"{output or folder} cannot be written ({error.strerror}). Choose another --output."
        ) from None
