"""Every example runs as a user would run it, without a warning."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda script: script.stem)
def test_example_runs(script: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves files behind"


@pytest.mark.parametrize(
    "is_real", [pytest.param(False, id="made up"), pytest.param(True, id="real", marks=pytest.mark.slow)]
)
def test_the_homes_of_the_credit_example_train_and_score(tmp_path: Path, is_real: bool) -> None:
    """With small keys and few steps; `colonnade run --local run.toml` in the folder itself takes about two minutes."""
    folder, example = tmp_path / "ftl_credit", ROOT / "examples" / "ftl_credit"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    settings = (folder / "run.toml").read_text()
    for name, value in (("width", '2\nkey_size = "insecure_test"'), ("iterations", "2"), ("labelled_rows", "40")):
        settings, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", settings, flags=re.MULTILINE)
        assert count == 1
    (folder / "run.toml").write_text(settings)
    elsewhere = {} if is_real else {"COLONNADE_DATA": str(tmp_path / "nowhere")}

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", *words],
            cwd=folder,
            env={**os.environ, **elsewhere},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    said = command("make_tables.py")
    assert ("made-up" in said) != ("real clients" in said.replace("the real ones", ""))
    if is_real and "made-up" in said:
        pytest.skip("the data is not on this machine")
    assert "Transfer against learning alone" in command("-m", "colonnade", "run", "--simulate", "run.toml", "--quiet")
    predict = ("predict", "runs/credit", "--table", "shop=shop/new.csv", "--output", "scores.csv")
    command("-m", "colonnade", *predict)
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["client", "prediction"]
    assert len(scores) == len(pd.read_csv(folder / "shop" / "new.csv"))
    command("-m", "colonnade", "audit", "verify", "runs/credit")


def test_the_homes_of_the_census_example_train_explain_and_score(tmp_path: Path) -> None:
    """With small keys and few steps; `colonnade run --local run.toml` in the folder itself takes about a minute."""
    folder, example = tmp_path / "prada_census", ROOT / "examples" / "prada_census"
    shutil.copytree(example, folder, ignore=shutil.ignore_patterns("runs", "*.csv", "alignments"))
    settings = (folder / "run.toml").read_text()
    for name, value in (("epochs", '1\nkey_size = "insecure_test"\npictures = false'), ("fine_epochs", "2")):
        settings, count = re.subn(rf"^{name} = .*$", f"{name} = {value}", settings, flags=re.MULTILINE)
        assert count == 1
    (folder / "run.toml").write_text(settings.replace("margin = 5.0", "margin = 100.0"))

    def command(*words: str) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", *words],
            cwd=folder,
            env={**os.environ, "COLONNADE_DATA": str(tmp_path / "nowhere")},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "made-up" in command("make_tables.py")
    assert "[config.groups]" in command("-m", "colonnade", "groups", "data", "--count", "3")
    run = ("-m", "colonnade", "run", "--simulate", "run.toml", "--quiet")
    assert "Whether transfer helped" in command(*run)
    assert "What moves the score" in command(*run, "--stage", "explain")
    tables = ("--table", "bank=bank/new.csv", "--table", "data=data/new.csv")
    command("-m", "colonnade", "predict", "runs/census", *tables, "--output", "scores.csv")
    scores = pd.read_csv(folder / "scores.csv")
    assert list(scores.columns) == ["id", "score", "prediction"]
    assert len(scores) == len(pd.read_csv(folder / "bank" / "new.csv"))
    command("-m", "colonnade", "audit", "verify", "runs/census")
