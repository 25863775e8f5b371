"""`colonnade run`."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from colonnade.cli.consent import ask_consent
from colonnade.cli.output import (
    Interrupted,
    Waiting,
    echo,
    examples,
    make_app,
    print_json,
    print_table,
    readable_bytes,
    say,
    shown_progress,
    words_by_party,
)
from colonnade.engine import open_engine
from colonnade.errors import ConfigError
from colonnade.launch.home import PartyHome, read_party_home, read_run_file, table_in_words
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.metrics import Evaluation, headline_of
from colonnade.session import Finding, Party, RunPlan
from colonnade.text import command

YES = "given by --yes"
app = make_app("Take part in a run, or carry it out with all its parties on this machine.")


@app.command(
    epilog=examples(
        "colonnade run run.toml                   (in a party's home: joins its partners)",
        "colonnade run --home bank ../run.toml    (the same, from elsewhere)",
        "colonnade run --local run.toml           (all parties on this machine, a process each)",
        "colonnade run --local run.toml --home bank=../bank --json",
        "colonnade run --simulate run.toml        (all parties in one process)",
        "colonnade run --stage validate run.toml  (another stage of the method, if it has one)",
        "colonnade run --stage finetune run.toml  (goes on from runs/NAME-pretrain, or from [run] after)",
        "colonnade demo                           (writes a run.toml and two homes to learn from)",
    )
)
def run(
    file: Annotated[Path, typer.Argument(metavar="RUN.TOML", help="What all parties agreed on.")],
    local: Annotated[
        bool, typer.Option("--local", help="All parties on this machine, each a process of its own, over mutual TLS.")
    ] = False,
    simulated: Annotated[
        bool, typer.Option("--simulate", help="All parties in this process: the quickest way to try settings.")
    ] = False,
    home: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FOLDER",
            help="The party's home. Default: this folder. With --local or --simulate write PARTY=FOLDER, once for each "
            "party; default: a folder of the party's name beside run.toml.",
        ),
    ] = None,
    stage: Annotated[
        str | None,
        typer.Option(
            metavar="STAGE",
            help="The stage of the method, which all parties name alike. Default: the one in run.toml, or else train. "
            "'colonnade methods NAME' lists a method's stages.",
        ),
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the run is kept. Default: runs/NAME in the home, or beside run.toml with --local; "
            "runs/NAME-STAGE for another stage than train."
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            help="From which score on a row of two classes is called positive, in place of the rule that validation "
            "rows decide, or of threshold in [evaluate]. Only the label holder needs to give it."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an earlier run in that folder.")] = False,
    compare: Annotated[
        bool,
        typer.Option(
            help="Also train with the label holder's columns only and, where all parties are on this machine, with all "
            "columns in one place."
        ),
    ] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before the first message leaves.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Show no progress.")] = False,
) -> None:
    """Take part in a run with partners who give the same command in their own homes.

    The command waits for the partners and checks that all hold the same run.toml. If a party is killed or cut off, the
    others wait for it; the same command again goes on from the last checkpoint that all have.
    """
    if local and simulated:
        raise ConfigError("--local and --simulate exclude each other. Leave out one of them.")
    how: dict[str, Any] = {
        "overwrite": overwrite,
        "compare": compare,
        "quiet": quiet,
        "stage": stage,
        "threshold": threshold,
    }
    if local or simulated:
        finished = run_all(file, home or [], folder, local=local, **how)
    else:
        finished = run_one(file, home or [], folder, yes=yes, **how)
    show_outcome(finished, json)


def run_all(
    file: Path,
    home: list[str],
    folder: Path | None,
    *,
    local: bool,
    overwrite: bool,
    compare: bool,
    quiet: bool,
    stage: str | None = None,
    threshold: float | None = None,
) -> Run:
    """Carry out a run.toml with all its parties on this machine."""
    plan = read_run_file(file, stage).at_threshold(threshold)
    _warn_of_test_keys(plan)
    homes = find_homes(plan.parties, file.parent, home)
    note_unused_matches(plan, *homes.values())
    run_folder = RunFolder(folder or file.parent / "runs" / plan.folder_name, file.read_bytes())
    with (
        resumable(run_folder.path, overwrite),
        run_folder.held(overwrite=overwrite),
        shown_progress(lead_of(plan), quiet) as observer,
    ):
        talk = silent if quiet else say
        if local:
            from colonnade.launch.local import run_locally

            return run_locally(plan, file, homes, run_folder, compare=compare, observer=observer, say=talk)
        from colonnade.launch.simulation import simulate_plan
        from colonnade.methods import method_named

        parties = {}
        for party, where in homes.items():
            table = where.table_for(method_named(plan.method), plan)
            parties[party] = Party(table, policy=where.policy)
            for text in table_in_words(party, table, plan):
                talk(text)
        with open_engine("auto") as engine:
            return simulate_plan(plan, parties, folder=run_folder, compare=compare, observer=observer, engine=engine)


def _warn_of_test_keys(plan: RunPlan) -> None:
    from colonnade.crypto import INSECURE_TEST

    if plan.config.get("key_size") == INSECURE_TEST:
        say("Warning: key_size = 'insecure_test' can be broken. Use it with made-up data only; the report will say so.")


def note_unused_matches(plan: RunPlan, *homes: PartyHome) -> None:
    """Say that a list of matches is not used; another run of the same home may use it, so it is no error."""
    for home in homes:
        if home.names_matches and plan.alignment.protocol != "given":
            say(
                f"Note: run.toml finds shared rows by {plan.alignment.protocol}, so the list of matches that "
                f'{home.folder / "party.toml"} names is not used. To use it, agree on [alignment] protocol = "given".'
            )


def silent(text: str) -> None:
    """Say nothing, for ``--quiet``."""


def run_one(
    file: Path,
    home: list[str],
    folder: Path | None,
    *,
    overwrite: bool,
    compare: bool,
    yes: bool,
    quiet: bool,
    stage: str | None = None,
    threshold: float | None = None,
) -> Run:
    """Take part in a run as one party, from its home."""
    from colonnade.launch.join import join

    plan = read_run_file(file, stage)
    _warn_of_test_keys(plan)
    where = find_home(home, file)
    note_unused_matches(plan, where)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    place = folder or where.folder / "runs" / plan.folder_name
    with resumable(place, overwrite), shown_progress(where.name, quiet) as observer:
        return join(
            file,
            where.folder,
            consent=YES if yes else ask_consent,
            stage=stage,
            threshold=threshold,
            folder=place,
            overwrite=overwrite,
            compare=compare,
            observer=observer,
            watcher=Waiting(where, quiet),
        )


@contextmanager
def resumable(folder: Path, overwrite: bool = False) -> Iterator[None]:
    """Turn the user's interrupt into a sentence on how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        without = ", without --overwrite" if overwrite else ""
        raise Interrupted(
            f"Interrupted; what was done is kept in {folder}. "
            f"To go on from the last checkpoint, run the same command again{without}."
        ) from None


def find_home(given: list[str], file: Path) -> PartyHome:
    """Read the one home a party joins from."""
    if len(given) > 1 or (given and "=" in given[0] and not Path(given[0]).is_dir()):
        raise ConfigError("A party joins from one home: write --home FOLDER. PARTY=FOLDER goes with --local.")
    folder = Path(given[0] if given else ".")
    if not (folder / "party.toml").exists():
        raise ConfigError(
            f"{'This folder' if not given else folder} is no party's home: it has no party.toml. Go to the home, or "
            f"name it with --home. To carry out {file.name} with all parties on this machine, add --local."
        )
    return read_party_home(folder)


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
            [party, run.plan.role_of(party), *_shape(run, party), readable_bytes(run.bytes_sent(party))]
            for party in run.tables
        ],
    )
    has_rest = run.method.predicting.rows == "shared and rest"
    words = {
        "alone": f"{lead_of(run.plan)} alone",
        "together": "together (federated)",
        "average": "average of these two",
        # Rows that are not shared cannot be put together, so that such a method has more to learn from than this.
        "central": f"central ({'shared rows, ' if has_rest else ''}all columns in one place)",
    }
    if run.evaluations:
        first = run.evaluation or next(iter(run.evaluations.values()))
        names = [name for name in dict.fromkeys([headline_of(first), *_SHOWN[first.task]]) if name]
        calls = first.operating
        positives = "" if calls is None else f", {calls.positives} of them '{calls.positive}'"
        echo()
        print_table(
            [f"on {first.rows} held-out rows{positives}", *[name.replace("_", " ") for name in names]],
            [
                [
                    words[which] + (", serves" if which == run.served and "choice" in run.findings else ""),
                    *[_number(run.evaluations[which].metrics.get(name)) for name in names],
                ]
                for which in words
                if which in run.evaluations
            ],
        )
        _show_calls(first)
    for name, gain in run.gains.items():
        ahead = "together" if run.served == "alone" else run.served
        sure = f"95% interval {gain.low:+.4f} to {gain.high:+.4f}"
        echo(f"\n{ahead} − alone: {gain.value:+.4f} {name.replace('_', ' ')} ({sure})")
    for finding in run.findings.values():
        _show_finding(finding)
    echo(f"\nReport:  {run.folder}/report.html")
    echo(f"Ledgers: {command('audit', 'verify', str(run.folder))}")
    if run.can_score and not run.refusals:
        echo(f"Score:   {command('predict', str(run.folder), *_tables_to_score(run, new_rows or {}))}")
    for line in _next_stages(run):
        echo(f"Next:    {line}")


def _show_calls(evaluation: Evaluation) -> None:
    """Print from which score on rows are called positive, what that is worth, and what to mind."""
    said = []
    if (calls := evaluation.operating) is not None:
        worth = [f"{name} {_number(getattr(calls, name))}" for name in ("precision", "recall", "lift")]
        start = f"From a score of {calls.threshold:.6g} on a row is called '{calls.positive}'. {calls.rule}"
        said.append(f"{start} {calls.called} held-out rows are called so: {', '.join(worth)}.")
    for text in (*said, *(f"Mind: {one}" for one in evaluation.warnings)):
        echo()
        for line in textwrap.wrap(text, _TEXT_WIDTH):
            echo(line)


def _shape(run: Run, party: str) -> list[str]:
    """Return how many rows, shared rows and columns a party has, where its role has any."""
    if party not in run.method.parties_with_rows(run.plan):
        return ["—"] * 3
    about = run.tables[party]
    return [str(about["rows"]), str(about["shared_rows"]), str(sum(not one["left_out"] for one in about["columns"]))]


def _next_stages(run: Run) -> Iterator[str]:
    """Say which stages go on from this run, and what to write for them."""
    here = run.plan.stage
    for stage, about in run.method.stages.items():
        if here not in about.after or (about.needs and not run.plan.config[about.needs]):
            continue
        # A stage that could stand on several looks for the usual one, unless run.toml says otherwise.
        named = "" if here == about.after[0] else f', with after = "{run.plan.folder_name}" in run.toml'
        yield f"the same command with --stage {stage} goes on from here{named}"


def _show_finding(finding: Finding) -> None:
    echo(f"\n{finding.title}")
    for line in textwrap.wrap(finding.text, _TEXT_WIDTH):
        echo(line)
    if finding.columns and finding.rows:
        print_table(finding.columns, finding.rows)


def _tables_to_score(run: Run, new_rows: Mapping[str, Path]) -> list[str]:
    """Return the options by which rows to score are given: by every party, or by those whose rows are scored alone."""
    bringing = run.method.parties_with_rows(run.method.in_stage(run.plan, "predict"))
    if len(run.tables) < len(run.plan.parties):
        return ["--table", "FILE"] if set(run.tables) & set(bringing) else []
    return [word for party in bringing for word in ("--table", f"{party}={new_rows.get(party, 'FILE')}")]


_TEXT_WIDTH = 100
_SHOWN = {
    "binary": ("auc", "ks", "accuracy", "log_loss"),
    "multiclass": ("accuracy", "macro_f1", "macro_auc", "log_loss"),
    "regression": ("r2", "rmse", "mae"),
}


def outcome(run: Run) -> dict[str, Any]:
    """Return the outcome as JSON values."""
    with_rows = run.method.parties_with_rows(run.plan)
    return {
        "run": run.plan.name,
        "method": run.plan.method,
        "stage": run.plan.stage,
        "digest": run.plan.digest(),
        "folder": str(run.folder),
        "report": str(Path(str(run.folder)) / "report.html"),
        "seconds": run.seconds,
        "rows": run.rows,
        "refusals": run.refusals,
        "parties": {
            party: {
                "role": run.plan.role_of(party),
                "rows": run.tables[party]["rows"] if party in with_rows else None,
                "shared_rows": run.tables[party]["shared_rows"] if party in with_rows else None,
                "bytes_sent": run.ledgers[party].bytes_sent(),
            }
            for party in run.tables
        },
        "metrics": {name: evaluation.metrics for name, evaluation in run.evaluations.items()},
        "headline": None if run.evaluation is None else headline_of(run.evaluation),
        "operating": {
            name: evaluation.operating.to_json()
            for name, evaluation in run.evaluations.items()
            if evaluation.operating is not None
        },
        "warnings": [] if run.evaluation is None else list(run.evaluation.warnings),
        "positive": run.positive,
        "served": run.served if run.evaluations else None,
        "findings": {name: asdict(finding) for name, finding in run.findings.items()},
    }


def lead_of(plan: RunPlan) -> str:
    """Return the party that plays the lead."""
    from colonnade.methods import method_named

    return method_named(plan.method).leader_of(plan)


def _number(value: float | None) -> str:
    return "—" if value is None else f"{value:.4f}"
