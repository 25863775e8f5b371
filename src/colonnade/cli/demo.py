"""`colonnade demo`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, print_json, print_table, say
from colonnade.cli.run import outcome, run_all, show_outcome
from colonnade.demos import DEMOS, Demo, Figures, first_line, judge_controls, rows_to_score, verdict, write_demo
from colonnade.errors import ConfigError, RunFolderError, did_you_mean
from colonnade.text import command

app = make_app("Show a method on data at hand, beside what it must be better than.")


@app.command(
    epilog=examples(
        "colonnade demo                  (a split network, in seconds)",
        "colonnade demo fedcvt           (another method; at most a minute)",
        "colonnade demo --folder /tmp/demo --json",
    )
)
def demo(
    method: Annotated[str, typer.Argument(help=f"One of {', '.join(DEMOS)}.")] = "splitnn",
    folder: Annotated[
        Path | None,
        typer.Option(
            help="Where the parties' folders and the run are put. Default: colonnade-demo, or colonnade-demo-METHOD.",
            show_default=False,
        ),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """Show a method on tables that come with the package, beside its natural control, at its default settings.

    The demo writes homes and a run.toml as real parties would have them, carries the run out with a process for each
    party, trains what the model is held against on the same rows, and says whether the model is ahead.
    """
    if method not in DEMOS:
        raise ConfigError(f"There is no demo of '{method}'. {did_you_mean(method, DEMOS)}")
    shown = DEMOS[method]
    place = folder or Path("colonnade-demo" if method == "splitnn" else f"colonnade-demo-{method}")
    if place.exists() and not place.is_dir():
        raise RunFolderError(f"{place} is a file. Choose another place with --folder.")
    if place.exists() and any(place.iterdir()) and not _is_demo(place, shown):
        raise RunFolderError(f"{place} holds other things. Choose another place with --folder.")
    say(" ".join(one for one in (shown.about, shown.data, shown.note) if one))
    write_demo(place, shown)
    say(f"The parties and their agreement are in {place}/: {', '.join(f'{one}/' for one in shown.parties)}, run.toml")
    file = place / "run.toml"
    runs = {
        stage: run_all(file, [], None, local=True, overwrite=True, compare=shown.compares, quiet=json, stage=stage)
        for stage in shown.stages
    }
    from colonnade.launch.home import read_party_home
    from colonnade.methods import method_named

    plan = runs["train"].plan
    tables = {
        party: read_party_home(place / party).read_table()
        for party in method_named(plan.method).parties_with_rows(plan)
    }
    found = judge_controls(shown, runs, tables)
    said = verdict(shown, found)
    if json:
        print_json(
            outcome(runs["train"])
            | {"held against": {name: _values(one) for name, one in found.items()}, "verdict": said}
        )
        return
    for stage, run in runs.items():
        if len(runs) > 1:
            echo(f"\n{stage}")
        show_outcome(run, False, rows_to_score(place, shown))
    _show(shown, found, said)
    echo(f"\nNext:    edit {file}, then: {command('run', '--local', file, '--overwrite')}")


def _show(shown: Demo, found: Mapping[str, Figures], said: tuple[str, ...]) -> None:
    """Print what everything comes to, and the verdict."""
    (_, figures), *_ = found.items()
    echo("\nHeld against what else could be done, on the same held-out rows")
    print_table(
        ["model", *figures],
        [
            [name, *(f"{one[what].value:.3f}" if what in one else "—" for what in figures)]
            for name, one in found.items()
        ],
    )
    for sentence in said:
        echo(f"Verdict: {sentence}")


def _values(figures: Figures) -> dict[str, float]:
    return {what: one.value for what, one in figures.items()}


def _is_demo(folder: Path, shown: Demo) -> bool:
    """Tell whether an earlier demo made this folder, so that nothing of the user's is overwritten."""
    try:
        return (folder / "run.toml").read_text(encoding="utf-8").startswith(first_line(shown))
    except (OSError, UnicodeDecodeError):
        return False
