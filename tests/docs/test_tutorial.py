"""The tutorial's shell blocks, typed as they are written, in a folder whose name needs quotes."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from colonnade.cli import main
from colonnade.errors import LedgerBroken, PolicyRefused
from colonnade.launch.home import PartyHome
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.simulation import simulate_plan
from colonnade.methods import method_named
from colonnade.session import Party, RunPlan

PAGE = Path(__file__).parents[2] / "docs" / "tutorial-first-run.md"
# What the page says of these steps' last command.
CODES = {5: LedgerBroken.exit_code}


def typed(line: str) -> int:
    """Give one command: ours in this process, as loading torch anew for each would take most of the time."""
    words = shlex.split(line)
    if words[0] != "colonnade":
        return subprocess.run(["bash", "-c", line]).returncode
    with pytest.raises(SystemExit) as ending:
        main(words[1:])
    return int(ending.value.code or 0)


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1
    file.write_text(text.replace(old, new))


def in_this_process(
    plan: RunPlan, file: Path, homes: Mapping[str, PartyHome], folder: RunFolder, *, compare: bool, **_: object
) -> Run:
    """What stands for processes of their own, which take most of the time."""
    method = method_named(plan.method)
    parties = {party: Party(home.table_for(method, plan), policy=home.policy) for party, home in homes.items()}
    return simulate_plan(plan, parties, folder=folder, compare=compare)


@pytest.mark.parametrize("launch", ["simulated", pytest.param("local", marks=pytest.mark.slow)])
def test_every_shell_block_does_what_the_tutorial_says(
    launch: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if launch == "simulated":
        monkeypatch.setattr("colonnade.launch.local.run_locally", in_this_process)
    folder = tmp_path / "my run's folder"
    folder.mkdir()
    monkeypatch.chdir(folder)
    run_toml, laboratory = (Path("colonnade-demo") / name for name in ("run.toml", "laboratory/party.toml"))
    for step, section in enumerate(re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)[1:], 1):
        if step == 6:
            assert "In `colonnade-demo/run.toml` write `cut_width = 4` below `[config]`" in section
            edit(run_toml, "[config]", "[config]\ncut_width = 4")
        lines = [
            line
            for block in re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
            for line in block.replace("make demo", "colonnade demo").replace("\\\n", " ").splitlines()
        ]
        codes = [typed(line) for line in lines]
        assert codes == [0] * (len(codes) - 1) + [CODES.get(step, 0)] * min(len(codes), 1), capfd.readouterr().err
        if step == 6:
            assert 'Now set `never_send = ["PLAIN"]` under `[policy]`' in section
            edit(laboratory, "[policy]", '[policy]\nnever_send = ["PLAIN"]')
            assert typed(lines[-1]) == PolicyRefused.exit_code
            assert Path("colonnade-demo/runs/breast-cancer/report.html").exists(), "the earlier run is still there"
            edit(laboratory, '[policy]\nnever_send = ["PLAIN"]', "[policy]")
    assert Path("scores.csv").read_text().count("\n") > 400
