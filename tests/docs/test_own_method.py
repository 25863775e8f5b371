"""The method of "Write your own method" works as a user would install it: from its own folder, beside colonnade."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import colonnade
from colonnade.datasets import breast_cancer
from colonnade.testing import CHECKS

ROOT = Path(__file__).resolve().parents[2]
RUN = """
[run]
name = "own"
method = "assisted"
roles = { label_holder = "hospital", feature_holder = "laboratory" }

[config]
rounds = 5
"""
PARTY = """
[party]
name = "{name}"

[table]
source = "table.csv"
id = "patient"
{label}
"""


# Several commands in one process: loading torch takes longer than all of them.
COMMANDS = """
import json, sys
from colonnade.cli import main
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as ending:
        if ending.code:
            raise
    print(END)
"""
END = "----- end of a command"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the package into a folder, without a network; return its source."""
    folder = tmp_path_factory.mktemp("own")
    source, site = folder / "source", folder / "site"
    shutil.copytree(ROOT / "examples" / "own_method", source)
    options = ("--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check")
    subprocess.run([sys.executable, "-m", "pip", "install", *options, "--target", site, source], check=True)
    return source


def run(package: Path, *words: str, folder: Path | None = None) -> str:
    paths = (package.parent / "site", Path(colonnade.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-W", "error", *words],
        cwd=folder or package,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def commands(package: Path, *lines: tuple[str, ...], folder: Path | None = None) -> list[str]:
    """Return what each command prints."""
    *said, _ = run(package, "-c", COMMANDS.replace("END", repr(END)), json.dumps(lines), folder=folder).split(END)
    return said


def test_the_command_knows_it_and_says_whose_it_is(package: Path) -> None:
    said, document = commands(package, ("methods",), ("methods", "assisted", "--json"))
    assert re.search(r"assisted .*\(from colonnade-assisted 0\.1\.0\)", said)
    (about,) = json.loads(document)
    assert about["package"] == "colonnade-assisted 0.1.0"
    assert {one["message"] for one in about["messages"]} == {"Residuals", "Fitted"}


def test_what_the_page_shows_runs(package: Path) -> None:
    page = (ROOT / "docs" / "how-to-write-a-method.md").read_text(encoding="utf-8")
    (shown,) = (block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "cn.simulate" in block)
    assert float(run(package, "-c", shown)) > 0.9


def test_it_is_planned_runs_between_processes_predicts_and_is_audited(package: Path, tmp_path: Path) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    for name, label in (("hospital", 'label = "diagnosis"'), ("laboratory", "")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "party.toml").write_text(PARTY.format(name=name, label=label))
        breast_cancer()[name].to_csv(tmp_path / name / "table.csv", index=False)
    tables = [word for name in ("hospital", "laboratory") for word in ("--table", f"{name}={name}/table.csv")]
    planned, *_ = commands(
        package,
        ("plan", "run.toml"),
        ("run", "--local", "run.toml", "--quiet"),
        ("predict", "runs/own", *tables, "--output", "scores.csv"),
        ("audit", "verify", "runs/own"),
        folder=tmp_path,
    )
    assert "Fitted" in planned
    report = (tmp_path / "runs" / "own" / "report.html").read_text(encoding="utf-8")
    for words in (
        "the package colonnade-assisted 0.1.0 brings it",
        "<strong>Columns in effect:</strong> hospital gets Fitted from laboratory without protection",
        "colonnade 0.1.0 with colonnade-assisted 0.1.0",
    ):
        assert words in report
    opened = json.loads((tmp_path / "runs" / "own" / "hospital" / "ledger.jsonl").read_text().splitlines()[0])
    assert "with colonnade-assisted 0.1.0" in json.dumps(opened)
    assert (tmp_path / "scores.csv").read_text().startswith("patient,probability_malignant,prediction")


def test_its_own_tests_pass(package: Path) -> None:
    """Over memory and over gRPC, with resume."""
    said = run(package, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests")
    assert f"{2 * len(CHECKS)} passed" in said
