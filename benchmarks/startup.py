"""How fast the command answers: `colonnade --help` against `python -c pass`, interleaved."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.form import Findings, main


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def measure(arguments: argparse.Namespace) -> Findings:
    colonnade = str(Path(sys.executable).parent / "colonnade")
    nothing, help_text = [sys.executable, "-c", "pass"], [colonnade, "--help"]
    pairs = [(seconds(nothing), seconds(help_text)) for _ in range(1 if arguments.quick else arguments.repetitions)]
    findings = Findings()
    findings.figures["python_pass_seconds"] = statistics.median(a for a, _ in pairs)
    findings.figures["help_seconds"] = statistics.median(b for _, b in pairs)
    findings.bar("help_ratio", statistics.median(b / a for a, b in pairs), at_most=8)
    return findings


if __name__ == "__main__":
    main(
        (__doc__ or "").strip(),
        measure,
        lambda parser: parser.add_argument("--repetitions", type=int, default=15),
    )
