"""How fast the command answers: `colonnade --help` against `python -c pass`, interleaved.

With `--installation` also how long a fresh base installation takes and how large it is: a new virtual environment, the
torch that `make` pins, then colonnade without extras. The time is that of the network and of pip's cache, too.
"""

from __future__ import annotations

import argparse
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.form import Findings, main

ROOT = Path(__file__).resolve().parents[1]
# It was 1,609 in November 2026; the room is for newer releases of what is not pinned.
MOST_MEGABYTES = 1610.0


def seconds(command: list[str]) -> float:
    started = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def installed() -> tuple[float, float]:
    """Return the seconds that a fresh base installation takes, and its megabytes."""
    torch = re.search(r"install --quiet (torch==\S+)", (ROOT / "Makefile").read_text())
    assert torch is not None
    with tempfile.TemporaryDirectory() as folder:
        # Of a copy, as building leaves files beside the sources.
        source, place = Path(folder) / "source", Path(folder) / "venv"
        shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, source)
        took = seconds([sys.executable, "-m", "venv", str(place)])
        for what in (torch.group(1), str(source)):
            took += seconds([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", what])
        taken = sum(path.lstat().st_size for path in place.rglob("*") if not path.is_dir() or path.is_symlink())
    return took, taken / 1e6


def measure(arguments: argparse.Namespace) -> Findings:
    colonnade = str(Path(sys.executable).parent / "colonnade")
    nothing, help_text = [sys.executable, "-c", "pass"], [colonnade, "--help"]
    pairs = [(seconds(nothing), seconds(help_text)) for _ in range(1 if arguments.quick else arguments.repetitions)]
    findings = Findings()
    findings.figures["python_pass_seconds"] = statistics.median(a for a, _ in pairs)
    findings.figures["help_seconds"] = statistics.median(b for _, b in pairs)
    if arguments.installation and not arguments.quick:
        figures = findings.figures
        figures["installation_seconds"], figures["installation_megabytes"] = installed()
        findings.bar("installation_megabytes", figures["installation_megabytes"], at_most=MOST_MEGABYTES)
    findings.bar("help_ratio", statistics.median(b / a for a, b in pairs), at_most=8)
    return findings


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--installation", action="store_true", help="also install into a fresh environment: minutes")


if __name__ == "__main__":
    main((__doc__ or "").strip(), measure, options)
