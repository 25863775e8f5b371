"""`colonnade run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.output import (
    Interrupted,
    examples,
    make_app,
    print_json,
    print_table,
    program,
    readable_bytes,
    say,
    shown_progress,
    words_by_party,
)
from colonnade.data import PartyTable
from colonnade.launch.files import PartyHome, read_party_home, read_run_file
from colonnade.launch.folder import RunFolder
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate_plan
from colonnade.metrics import headline
from colonnade.session import RunPlan

app = make_app("Carry out a run.toml with all its parties on this machine.")


@app.command(
    epilog=examples(
        "colonnade run run.toml",
        "colonnade run run.toml --home bank=../bank --json",
        "colonnade run run.toml --folder runs/second --no-compare",
        "colonnade demo      (writes a run.toml and two homes to learn from)",
    )
)
def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.TOML", help="What all parties agreed on.")],
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARTY=FOLDER",
            help="The folder with a party's party.toml; once per party. Default: a folder of the party's name beside "
            "run.toml.",
        ),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Where the run is kept. Default: runs/NAME beside run.toml.")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Delete an earlier run in that folder first.")] = False,
    compare: Annotated[
        bool, typer.Option(help="Also train with the label holder's columns only and with all columns in one place.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Simulate a run: every party is a thread of this process, reads its own table and exchanges recorded messages.

    An interrupted run goes on from its last checkpoint when the same command is given again.
    """
    finished = run_file(file, home or [], folder, overwrite=overwrite, compare=compare, quiet=quiet)
    show_outcome(finished, json)


def run_file(file: Path, home: list[str], folder: Path | None, *, overwrite: bool, compare: bool, quiet: bool) -> Run:
    """Carry out a run.toml, write its report and return it."""
    plan = read_run_file(file)
    homes = find_homes(plan.parties, file.parent, home)
    target = folder or file.parent / "runs" / plan.name
    agreed = file.read_bytes()
    try:
        with (
            RunFolder(target, agreed).held(overwrite=overwrite) as run_folder,
            shown_progress(_lead(plan), quiet) as observer,
        ):
            tables = {}
            for party, where in homes.items():
                tables[party] = where.read_table()
                if not quiet:
                    say(_shape(party, tables[party]))
            policies = {party: where.policy for party, where in homes.items()}
            return simulate_plan(plan, tables, policies=policies, folder=run_folder, compare=compare, observer=observer)
    except KeyboardInterrupt:
        without = ", without --overwrite" if overwrite else ""
        raise Interrupted(
            f"Interrupted; what was done is kept in {target}. "
            f"To go on from the last checkpoint, run the same command again{without}."
        ) from None


def _shape(party: str, table: PartyTable) -> str:
    return f"{party}: {table.rows} rows, {len(table.columns)} columns{', label' if table.has_label else ''}"


def find_homes(parties: tuple[str, ...], beside: Path, given: list[str]) -> dict[str, PartyHome]:
    """Read the home of every party: where the user says, else a folder of its name."""
    folders = words_by_party("--home", "folder", given, parties)
    return {party: read_party_home(Path(folders.get(party, beside / party)), party) for party in parties}


def show_outcome(run: Run, as_json: bool, new_rows: Mapping[str, Path] | None = None) -> None:
    """Print what a finished run came to, and how to score rows with it, such as those in ``new_rows``."""
    if as_json:
        print_json(outcome(run))
        return
    print_table(
        ["party", "role", "rows", "shared", "columns", "sent"],
        [
            [
                party,
                run.plan.role_of(party),
                str(run.tables[party]["rows"]),
                str(run.tables[party]["shared_rows"]),
                str(len(run.tables[party]["columns"])),
                readable_bytes(run.bytes_sent(party)),
            ]
            for party in run.plan.parties
        ],
    )
    lead = _lead(run.plan)
    words = {
        "alone": f"{lead} alone",
        "together": "together (federated)",
        "central": "central (all columns in one place)",
    }
    if run.evaluations:
        task = run.evaluations["together"].task
        names = [headline(task), *[name for name in _SHOWN[task] if name != headline(task)]]
        typer.echo("")
        print_table(
            [f"on {run.rows['test']} held-out rows", *[name.replace("_", " ") for name in names]],
            [
                [words[which], *[_number(run.evaluations[which].metrics.get(name)) for name in names]]
                for which in words
                if which in run.evaluations
            ],
        )
    tables = " ".join(f"--table {party}={(new_rows or {}).get(party, 'FILE')}" for party in run.plan.parties)
    typer.echo(f"\nReport:  {run.folder}/report.html")
    typer.echo(f"Ledgers: {program()} audit verify {run.folder}")
    typer.echo(f"Score:   {program()} predict {run.folder} {tables}")


_SHOWN = {
    "binary": ("auc", "ks", "accuracy", "log_loss"),
    "multiclass": ("accuracy", "macro_f1", "macro_auc", "log_loss"),
    "regression": ("r2", "rmse", "mae"),
}


def outcome(run: Run) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    return {
        "run": run.plan.name,
        "method": run.plan.method,
        "digest": run.plan.digest(),
        "folder": str(run.folder),
        "report": str(Path(str(run.folder)) / "report.html"),
        "seconds": run.seconds,
        "rows": run.rows,
        "parties": {
            party: {
                "role": run.plan.role_of(party),
                "rows": run.tables[party]["rows"],
                "shared_rows": run.tables[party]["shared_rows"],
                "bytes_sent": run.ledgers[party].bytes_sent(),
            }
            for party in run.plan.parties
        },
        "metrics": {name: evaluation.metrics for name, evaluation in run.evaluations.items()},
    }


def _lead(plan: RunPlan) -> str:
    from colonnade.methods import method_named

    return plan.roles[method_named(plan.method).lead][0]


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
