from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_a_hundred_thousand_mutated_frames_do_nothing_but_get_refused() -> None:
    """In a process of its own, because an audit hook cannot be taken off again."""
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.unit.messages.storm"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    counts = json.loads(ran.stdout)
    assert counts["events"] == [], "decoding must not open, import, run or connect to anything"
    assert counts["faults"] == []
    assert counts["fault_count"] == 0
    assert counts["whole"] + counts["bodies"] == 100_000
    assert counts["whole_accepted"] == 0
    # Both outcomes must occur, or the mutations would not reach the decoder.
    assert counts["bodies_refused"] > 20_000
    assert counts["bodies_accepted"] > 1_000
    assert counts["bodies_refused"] + counts["bodies_accepted"] == counts["bodies"]
