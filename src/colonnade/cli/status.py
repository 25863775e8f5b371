"""`colonnade status`."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, readable_bytes, say
from colonnade.errors import ConfigError
from colonnade.launch.status import RunStatus, runs_in

app = make_app("Show the runs of a home: how far they are, and when each partner was last heard.")


@app.command(epilog=examples("colonnade status", "colonnade status --home bank --json"))
def status(
    home: Annotated[Path, typer.Option(help="The party's home, or a folder with a runs folder in it.")] = Path(),
    json: Annotated[bool, typer.Option("--json", help="Print the runs as JSON.")] = False,
) -> None:
    """Show every run in a home: state, step, rate, time left, bytes, and the last contact with each partner.

    Of a run that is over, steps and bytes are those of all of it.
    """
    if not home.is_dir():
        raise ConfigError(f"There is no folder {home}. Give a party's home with --home.")
    runs = runs_in(home / "runs")
    if json:
        print_json({"runs": [asdict(one) for one in runs]})
        return
    if not runs:
        say(f"There are no runs in {home / 'runs'} yet. Start one with 'colonnade run run.toml'.")
        return
    print_table(
        ["run", "party", "state", "step", "steps/s", "left", "sent", "received", "last contact"],
        [_row(one) for one in runs],
    )
    today = datetime.now(UTC).date().isoformat()
    for one in runs:
        if one.keep_until is not None and one.keep_until < today:
            echo(f"Retention: {one.name} was agreed to be kept until {one.keep_until}. Delete {one.folder}")


def _row(run: RunStatus) -> list[str]:
    total = f" of {run.total}" if run.total else ""
    contacts = ", ".join(f"{peer} {_ago(seconds)}" for peer, seconds in run.last_contact_seconds.items())
    return [
        run.name if run.stage == "train" else f"{run.name} ({run.stage})",
        run.party or "all here",
        run.state,
        "—" if run.step is None else f"{run.step}{total}",
        "—" if run.steps_per_second is None else f"{run.steps_per_second:.1f}",
        "—" if run.seconds_left is None else _duration(run.seconds_left),
        "—" if run.bytes_sent is None else readable_bytes(run.bytes_sent),
        "—" if run.bytes_received is None else readable_bytes(run.bytes_received),
        contacts or "—",
    ]


def _ago(seconds: float | None) -> str:
    return "never" if seconds is None else f"{_duration(seconds)} ago"


def _duration(seconds: float) -> str:
    """Return a time for people.

    >>> _duration(75)
    '1 min 15 s'
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"
