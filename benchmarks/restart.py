"""How long a killed party takes from the same command again to its first new step.

Parties in homes of their own on this machine, over mutual TLS. At seeded random moments one of them, sometimes all, are
killed with SIGKILL and started again at once. The clock runs from the start of the process (Python and torch have to
load first) to the first message of a step the party had not made before. Every run must end with the byte-identical
model of an undisturbed one.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path

from tests.kills.harness import Homes, disturb

from benchmarks.form import Findings, main, say


def undisturbed(folder: Path, parties: tuple[str, ...], epochs: int) -> dict[str, bytes]:
    homes = Homes(folder, parties, epochs)
    homes.make()
    try:
        for party in parties:
            homes.start(party)
        homes.wait()
        return homes.models()
    finally:
        homes.stop()


def measure(arguments: argparse.Namespace) -> Findings:
    epochs = 40
    if arguments.quick:
        arguments.runs, arguments.kills, epochs = 1, 1, 10
    seconds: list[float] = []
    kills = different = 0
    with tempfile.TemporaryDirectory() as name:
        for parties in (("bank", "shop"), ("bank", "shop", "telecom"))[: 1 if arguments.quick else 2]:
            expected = undisturbed(Path(name) / f"whole{len(parties)}", parties, epochs)
            for seed in range(arguments.runs):
                homes = Homes(Path(name) / f"run{len(parties)}-{seed}", parties, epochs)
                homes.make()
                try:
                    restarts = disturb(homes, arguments.kills, seed)
                    homes.check_ledgers()
                    different += homes.models() != expected
                finally:
                    homes.stop()
                kills += len(restarts)
                seconds += [one.seconds for one in restarts if one.seconds is not None]
                say(f"{len(parties)} parties, run {seed + 1}: {kills} kills, slowest restart {max(seconds):.2f} s")
    findings = Findings()
    ordered = sorted(seconds)
    findings.figures |= {
        "kills": kills,
        "restarts_measured": len(seconds),
        "median_seconds": statistics.median(seconds),
        "slowest_seconds": ordered[-1],
    }
    findings.bar("models_that_differ", different, at_most=0, at_any_size=True)
    findings.bar(
        "seconds_at_the_99th_percentile", ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))], at_most=5.0
    )
    return findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=10, help="disturbed runs with two parties, and as many with three")
    parser.add_argument("--kills", type=int, default=5, help="kills in each run")


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, add_arguments)
