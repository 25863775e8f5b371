"""`colonnade demo`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from colonnade.cli.output import echo, examples, make_app, say
from colonnade.cli.run import run_all, show_outcome
from colonnade.datasets import breast_cancer
from colonnade.errors import RunFolderError
from colonnade.text import command

app = make_app("Train a two-party model on bundled data and write a report.")

_FILES = {"hospital": "patients.csv", "laboratory": "measurements.csv"}

_RUN = """\
# What hospital and laboratory agreed on. Both hold the same copy of this file.
[run]
name = "breast-cancer"
method = "splitnn"
roles = { label_holder = "hospital", feature_holder = "laboratory" }
seed = 7

[config]
hidden = [32]
cut_width = 16
batch_size = 64
learning_rate = 0.003

[evaluate]
test_fraction = 0.25
validation_fraction = 0.1
"""

_HOSPITAL = """\
# The hospital's own file. It never leaves the hospital.
[party]
name = "hospital"

[table]
source = "patients.csv"
id = "patient"
label = "diagnosis"

[policy]
methods = ["splitnn"]
partners = ["laboratory"]
minimum_shared_rows = 100
"""

_LABORATORY = """\
# The laboratory's own file. It never leaves the laboratory.
[party]
name = "laboratory"

[table]
source = "measurements.csv"
id = "patient"

[policy]
methods = ["splitnn"]
partners = ["hospital"]
minimum_shared_rows = 100
"""


@app.command(epilog=examples("colonnade demo", "colonnade demo --folder /tmp/demo --json"))
def demo(
    folder: Annotated[Path, typer.Option(help="Where the two parties' folders and the run are put.")] = Path(
        "colonnade-demo"
    ),
    json: Annotated[bool, typer.Option("--json", help="Print the outcome as JSON.")] = False,
) -> None:
    """A hospital with diagnoses and a laboratory with measurements train one model; neither sees the other's table.

    The data is scikit-learn's breast cancer set. The demo writes two homes and a run.toml as real parties would have
    them, then carries the run out.
    """
    if folder.exists() and not folder.is_dir():
        raise RunFolderError(f"{folder} is a file. Choose another place with --folder.")
    if folder.exists() and any(folder.iterdir()) and not _is_demo(folder):
        raise RunFolderError(f"{folder} holds other things. Choose another place with --folder.")
    write_demo(folder)
    say(f"Two parties and their agreement are in {folder}/: hospital/, laboratory/, run.toml")
    finished = run_all(folder / "run.toml", [], None, local=True, overwrite=True, compare=True, quiet=json)
    new_rows = {party: folder / party / file for party, file in _FILES.items()}
    show_outcome(finished, json, new_rows)
    if not json:
        again = command("run", "--local", folder / "run.toml", "--overwrite")
        echo(f"Next:    edit {folder}/run.toml, then: {again}")


def _is_demo(folder: Path) -> bool:
    """Tell whether an earlier demo made this folder, so that nothing of the user's is overwritten."""
    try:
        return (folder / "run.toml").read_text(encoding="utf-8").startswith(_RUN.splitlines()[0])
    except (OSError, UnicodeDecodeError):
        return False


def write_demo(folder: Path) -> None:
    """Write the two homes and the agreed run."""
    tables = breast_cancer()
    for party, text in (("hospital", _HOSPITAL), ("laboratory", _LABORATORY)):
        (folder / party).mkdir(parents=True, exist_ok=True)
        tables[party].to_csv(folder / party / _FILES[party], index=False)
        (folder / party / "party.toml").write_text(text)
    (folder / "run.toml").write_text(_RUN)
