"""Every example runs as a user would run it, without a warning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
