"""Whether `colonnade plan` tells the truth: its forecast against the run that follows, both as a user gives them.

For each shape of synthetic tables, homes are made in a folder of their own; then `colonnade plan --json` and
`colonnade run --local --no-compare` follow one another a few times. Seconds are those each party's outcome.json
records: from the greeting to its kept result, without the start of the processes and the reading of the tables; of
all parties the longest. Bytes are those of the ledgers.

The ratio of times is the larger of forecast over fact and fact over forecast. The speed of a shared machine changes
from second to second, so the bar holds the median over the rounds; all of them are shown, and beside them the time of
one modular multiplication right before the forecast, between forecast and run, and after the run.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.form import Findings, main, say
from colonnade.crypto.costs import measure_multiplication
from colonnade.ledger import Ledger

MOST_TIMES_OFF, MOST_BYTES_OFF = 1.5, 1.1


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Tables and settings of one run."""

    rows: int
    columns: dict[str, int]
    """The first party holds the label."""
    classes: int
    settings: str

    def make(self, folder: Path, key: str) -> Path:
        """Write homes and run.toml, and return the latter."""
        random = np.random.default_rng(0)
        values = {party: random.normal(size=(self.rows, width)) for party, width in self.columns.items()}
        score = sum(one.sum(axis=1) for one in values.values()) + random.normal(size=self.rows)
        label = np.digitize(score, np.quantile(score, np.arange(1, self.classes) / self.classes))
        lead, *others = self.columns
        for party, numbers in values.items():
            frame = pd.DataFrame(numbers, columns=[f"{party}_{place}" for place in range(numbers.shape[1])])
            frame.insert(0, "id", [f"c{row:06}" for row in range(self.rows)])
            about = f'[party]\nname = "{party}"\n[table]\nsource = "table.csv"\nid = "id"\n'
            if party == lead:
                frame["label"] = label
                about += 'label = "label"\n'
            (folder / party).mkdir(parents=True)
            frame.to_csv(folder / party / "table.csv", index=False)
            (folder / party / "party.toml").write_text(about)
        roles = f'{{ label_holder = "{lead}", feature_holder = {json.dumps(others)} }}'
        file = folder / "run.toml"
        file.write_text(
            f'[run]\nname = "forecast"\nmethod = "secure_lr"\nroles = {roles}\nseed = 7\n'
            # The guard of few columns stays out of it: here only time and bytes matter.
            f"[config]\nkey_size = {key}\nallow_leak = true\n{self.settings}\n"
        )
        return file


SHAPES = {
    "two parties": Shape(rows=2000, columns={"bank": 10, "shop": 12}, classes=2, settings="epochs = 3"),
    "three parties, three classes": Shape(
        rows=600, columns={"bank": 4, "shop": 25, "telco": 8}, classes=3, settings="epochs = 2\nbatch_size = 64"
    ),
}


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    key, rounds = ('"insecure_test"', 1) if arguments.quick else ("2048", arguments.rounds)
    findings.figures |= {"key": key.strip('"'), "rounds": rounds, "cores": len(os.sched_getaffinity(0))}
    for name, shape in SHAPES.items():
        with tempfile.TemporaryDirectory() as folder:
            _measure_shape(name, shape.make(Path(folder), key), rounds, findings)
    findings.figures["load_average_after"] = round(os.getloadavg()[0], 2)
    return findings


def _measure_shape(name: str, file: Path, rounds: int, findings: Findings) -> None:
    ratios, bytes_ratios, figures = [], [], []
    for number in range(rounds):
        say(f"{name}, round {number + 1} of {rounds} …")
        speeds = [measure_multiplication(4096)]
        forecast = _command("plan", str(file))
        speeds.append(measure_multiplication(4096))
        # A kept alignment would be used again, and the forecast is of a first run.
        for kept in file.parent.glob("*/alignments"):
            shutil.rmtree(kept)
        outcome = _command("run", str(file), "--local", "--no-compare", "--quiet", "--overwrite")
        speeds.append(measure_multiplication(4096))
        folder = Path(outcome["folder"])
        seconds = max(
            json.loads((folder / party / "outcome.json").read_text())["seconds"] for party in outcome["parties"]
        )
        ratios.append(_ratio(forecast["seconds"], seconds))
        for party, expected in forecast["bytes_sent"].items():
            sent = sum(Ledger.read(folder / party / "ledger.jsonl").bytes_sent().values())
            bytes_ratios.append(_ratio(expected, sent))
        figures.append(
            {
                "forecast_seconds": round(forecast["seconds"], 2),
                "run_seconds": round(seconds, 2),
                "ratio": round(ratios[-1], 3),
                "slowdown_seen_by_forecast": round(forecast["costs"]["slowdown"], 2),
                "multiplication_microseconds": [round(one * 1e6, 1) for one in speeds],
                "load_average": round(os.getloadavg()[0], 2),
            }
        )
    findings.figures[name] = figures
    findings.bar(f"{name}: time", statistics.median(ratios), at_most=MOST_TIMES_OFF)
    findings.bar(f"{name}: bytes", max(bytes_ratios), at_most=MOST_BYTES_OFF)


def _ratio(one: float, other: float) -> float:
    return max(one / other, other / one)


def _command(*words: str) -> Any:
    done = subprocess.run(
        [sys.executable, "-m", "colonnade", *words, "--json"], stdout=subprocess.PIPE, timeout=900, check=True
    )
    return json.loads(done.stdout)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="how often each shape is forecast and run")


if __name__ == "__main__":
    main(__doc__ or "", measure, _options)
