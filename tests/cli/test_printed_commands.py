"""Commands that the product prints can be pasted into a shell as they are, whatever folders are called."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from colonnade.demos import DEMOS, write_demo
from colonnade.text import command

AWKWARD = "my run's folder"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and a shell that finds the command."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(line: str) -> int:
    return subprocess.run(["bash", "-c", line], capture_output=True, timeout=120).returncode


def words_of(line: str) -> list[str]:
    """What a shell makes of a line."""
    told = subprocess.run(["bash", "-c", f"printf '%s\\0' {line}"], capture_output=True, text=True, check=True).stdout
    return told.split("\0")[:-1]


@pytest.mark.parametrize("name", [AWKWARD, 'a "b" $HOME', "-", "ünder", "a\\b", "two  spaces", "*", "~"])
def test_a_shell_gives_back_the_words_of_a_command(name: str, here: Path) -> None:
    (here / name).mkdir()
    assert words_of(command("run", name)) == ["colonnade", "run", name]
    assert words_of(command("doctor", home=Path(name))) == ["colonnade", "doctor", "--home", name]
    assert command("doctor", home=here) == "colonnade doctor", "the folder we are in need not be named"


def test_the_next_commands_after_init_and_a_run_work_as_they_are_printed(here: Path, colonnade: Any) -> None:
    made = colonnade("init", "bank", "--folder", f"{AWKWARD}/bank", "--no-table")
    doctor, invite = re.findall(r"^  \d\. [^:]*: (.*)$", made.err, re.MULTILINE)
    assert words_of(doctor) == ["colonnade", "doctor", "--home", f"{AWKWARD}/bank"]
    assert words_of(invite) == ["colonnade", "pair", "--invite", "--home", f"{AWKWARD}/bank"]
    again = colonnade("init", "bank", "--folder", f"{AWKWARD}/bank")
    assert [words_of(one)[-2:] for one in re.findall(r"`(.*?)`", again.err)] == [["--home", f"{AWKWARD}/bank"]] * 2

    write_demo(here / AWKWARD, DEMOS["splitnn"])
    run_toml = here / AWKWARD / "run.toml"
    run_toml.write_text(run_toml.read_text().replace("[config]", "[config]\nepochs = 1\nminimum_steps = 0"))
    done = colonnade("run", "--simulate", "--quiet", "--no-compare", f"{AWKWARD}/run.toml")
    assert done.code == 0, done.err
    lines = dict(re.findall(r"^(\w+): +(.*)$", done.out, re.MULTILINE))
    tables = {"hospital": "patients.csv", "laboratory": "measurements.csv"}
    score = lines["Score"]
    for party, file in tables.items():
        score = score.replace(f"{party}=FILE", f"'{party}={here}/'\"{AWKWARD}\"'/{party}/{file}'")
    assert typed(lines["Ledgers"]) == 0
    assert colonnade(*words_of(score)[1:]).code == 0


@pytest.mark.slow
def test_the_demo_s_next_and_score_commands_work_as_they_are_printed(here: Path, colonnade: Any) -> None:
    done = colonnade("demo", "--folder", AWKWARD)
    lines = dict(re.findall(r"^(\w+): +(.*)$", done.out, re.MULTILINE))
    assert typed(lines["Score"]) == 0
    assert typed(lines["Next"].partition("then: ")[2]) == 0
