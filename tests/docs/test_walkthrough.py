"""The README's two-terminal walkthrough, typed as it is written, on two terminals."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from tests.kills.harness import free_ports

from colonnade.demos import DEMOS, write_demo

README = Path(__file__).parents[2] / "README.md"
LIMIT_SECONDS = 120.0


class Terminal:
    """One person's terminal: types a command, answers yes when asked, and remembers what was shown."""

    def __init__(self, folder: Path, command: str) -> None:
        self._screen, theirs = pty.openpty()
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "PATH": path},
        )
        os.close(theirs)
        self.shown = ""
        self._answered = 0

    def look(self) -> None:
        """Take in what is shown, and answer what is asked."""
        ready, _, _ = select.select([self._screen], [], [], 0.1)
        if ready:
            try:
                self.shown += os.read(self._screen, 65536).decode(errors="replace")
            except OSError:  # the other end is closed
                time.sleep(0.1)
        while self.shown.count("[y/N]") > self._answered:
            self._answered += 1
            os.write(self._screen, b"y\n")

    def wait_for(self, pattern: str) -> str:
        """Wait until something is shown."""
        limit = time.monotonic() + LIMIT_SECONDS
        while (found := re.search(pattern, self.shown)) is None:
            assert time.monotonic() < limit, self.shown
            self.look()
        return found.group(1)

    @property
    def has_ended(self) -> bool:
        """Tell whether the command is over."""
        return self._process.poll() is not None

    def close(self) -> str:
        """Take in the rest, and see that the command ended well."""
        for _ in range(5):
            self.look()
        os.close(self._screen)
        if not self.has_ended:
            self._process.kill()
            self._process.wait()
        assert self._process.returncode == 0, self.shown
        return self.shown


def finish(*terminals: Terminal) -> list[str]:
    """Sit at all terminals until every command has ended."""
    limit = time.monotonic() + LIMIT_SECONDS
    while not all(one.has_ended for one in terminals) and time.monotonic() < limit:
        for one in terminals:
            one.look()
    return [one.close() for one in terminals]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_organisations_on_two_terminals(tmp_path: Path) -> None:
    first_port, second_port = free_ports(2)
    section = README.read_text().split("## Two organisations, two terminals")[1].split("\n## ")[0]
    section = section.replace("7443", str(first_port)).replace("7444", str(second_port))
    commands = re.findall(r"```sh\n# terminal (\d)[^\n]*\n(.*?)```", section, re.DOTALL)
    assert [terminal for terminal, _ in commands] == ["1", "2"] * 4
    init, pair, run, predict = ((commands[i][1], commands[i + 1][1]) for i in range(0, 8, 2))
    write_demo(tmp_path / "colonnade-demo", DEMOS["splitnn"])

    for command in init:
        finish(Terminal(tmp_path, command))
    inviting = Terminal(tmp_path, pair[0])
    code = inviting.wait_for(r"--code ([0-9-]+)")
    joining = Terminal(tmp_path, pair[1].replace("CODE", code))
    invited, joined = finish(inviting, joining)
    assert "Paired with laboratory" in invited
    assert "Paired with hospital" in joined

    hospital, laboratory = finish(*(Terminal(tmp_path, command) for command in run))
    assert "CutGradient" in hospital.split("[y/N]")[0], "consent comes before anything leaves"
    assert "BlindedIds" in laboratory.split("[y/N]")[0]
    assert "together (federated)" in hospital
    assert "together (federated)" not in laboratory
    for party in ("hospital", "laboratory"):
        assert (tmp_path / party / "runs" / "breast-cancer" / "report.html").exists()

    finish(*(Terminal(tmp_path, command) for command in predict))
    scores = pd.read_csv(tmp_path / "scores.csv")
    assert scores["probability_malignant"].between(0, 1).all()
    assert len(scores) == 447
