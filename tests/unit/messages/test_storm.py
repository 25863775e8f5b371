from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("scale", [0.2, *[pytest.param(scale, marks=pytest.mark.slow) for scale in (1, 10)]])
def test_mutated_frames_do_nothing_but_get_refused(scale: float) -> None:
    """In a process of its own, because an audit hook cannot be taken off again.

    Besides whole frames, bodies are mutated and given correct digests, so that the decoder itself is reached; those may
    happen to be valid messages, but nothing else.
    """
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.unit.messages.storm", str(scale)],
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
    assert (counts["whole"], counts["bodies"]) == (100_000 * scale, 50_000 * scale)
    assert counts["whole_accepted"] == 0
    # Both outcomes must occur, or the mutations would not reach the decoder.
    assert counts["bodies_refused"] > 20_000 * scale
    assert counts["bodies_accepted"] > 1_000 * scale
    assert counts["bodies_refused"] + counts["bodies_accepted"] == counts["bodies"]
