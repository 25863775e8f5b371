"""What federating costs: the same split network trained by `simulate` and in plain PyTorch.

Two parties, 100,000 rows, 40 columns, batch 256, float32, ledger on (in memory and hash-chained). Both sides start
from the same two data frames: the plain side joins them, standardises, and trains the two encoders and the head as
one module with one optimizer. The plain side uses torch's defaults; colonnade asks for torch's fused optimizers and
slices its batches once per epoch, so against plain code tuned in the same way the ratio is higher.
The two are interleaved and the median of the ratios is reported. Peak memory is measured in fresh processes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.form import Findings, main, say

COLUMNS, BATCH, HIDDEN, CUT = 40, 256, 64, 32


def make_frames(rows: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    generator = np.random.default_rng(0)
    values = generator.normal(size=(rows, COLUMNS))
    logits = values @ generator.normal(size=COLUMNS) / 4
    half = COLUMNS // 2
    own = pd.DataFrame(values[:, :half], columns=[f"a{i}" for i in range(half)])
    other = pd.DataFrame(values[:, half:], columns=[f"b{i}" for i in range(half)])
    own["id"] = other["id"] = np.arange(rows)
    own["y"] = (generator.random(rows) < 1 / (1 + np.exp(-logits))).astype(int)
    return own, other.sample(frac=1, random_state=1)


def train_federated(frames: tuple[pd.DataFrame, pd.DataFrame], epochs: int) -> float:
    import colonnade as cn

    own = cn.PartyTable(frames[0], id="id", label="y")
    # Private alignment has a benchmark of its own; here the rows are put in order as the plain side does.
    other = cn.PartyTable(frames[0][["id"]].merge(frames[1], on="id"), id="id")
    config = cn.SplitNN(
        hidden=(HIDDEN,),
        cut_width=CUT,
        epochs=epochs,
        minimum_steps=0,
        batch_size=BATCH,
        patience=0,
        secret_start=False,
    )
    given = cn.Alignment(protocol="given")
    return cn.simulate(config, {"bank": own, "shop": other}, seed=1, launch=cn.Launch(alignment=given)).metrics["auc"]


def train_plain(frames: tuple[pd.DataFrame, pd.DataFrame], epochs: int) -> float:
    import torch
    from sklearn.metrics import roc_auc_score
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits

    joined = frames[0].merge(frames[1], on="id")
    targets = torch.from_numpy(joined.pop("y").to_numpy(np.float32))
    values = joined.drop(columns="id").to_numpy(np.float64)
    order = np.random.default_rng(1).permutation(len(values))
    test, validation, train = np.split(order, [len(order) // 5, len(order) * 3 // 10])
    mean, deviation = values[train].mean(0), values[train].std(0)
    features = torch.from_numpy(((values - mean) / deviation).astype(np.float32))
    half = COLUMNS // 2

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Sequential(nn.Linear(half, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CUT), nn.ReLU())
            self.other = nn.Sequential(nn.Linear(half, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, CUT), nn.ReLU())
            self.head = nn.Linear(2 * CUT, 1)

        def forward(self, rows: torch.Tensor) -> torch.Tensor:
            return self.head(torch.cat([self.own(rows[:, :half]), self.other(rows[:, half:])], dim=1)).squeeze(1)

    torch.manual_seed(1)
    network = Network()
    optimizer = torch.optim.Adam(network.parameters())
    for epoch in range(epochs):
        network.train()
        shuffled = np.random.default_rng(epoch).permutation(train)
        total = 0.0
        for start in range(0, len(shuffled), BATCH):
            rows = shuffled[start : start + BATCH]
            optimizer.zero_grad()
            loss = binary_cross_entropy_with_logits(network(features[rows]), targets[rows])
            loss.backward()
            optimizer.step()
            total += loss.item() * len(rows)
        network.eval()
        with torch.no_grad():
            binary_cross_entropy_with_logits(network(features[validation]), targets[validation]).item()
    with torch.no_grad():
        return float(roc_auc_score(targets[test].numpy(), network(features[test]).sigmoid().numpy()))


SIDES = {"federated": train_federated, "plain": train_plain}


def peak_memory(side: str, rows: int, epochs: int) -> float:
    """Return the peak memory of a fresh process that trains one side, in MiB."""
    command = [
        sys.executable,
        "-m",
        "benchmarks.overhead",
        "--peak",
        side,
        "--rows",
        str(rows),
        "--epochs",
        str(epochs),
    ]
    return float(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["peak"])


def measure(arguments: argparse.Namespace) -> Findings:
    if arguments.quick:
        arguments.rows, arguments.epochs, arguments.repetitions = 3000, 1, 1
    frames = make_frames(arguments.rows)
    if arguments.peak:
        SIDES[arguments.peak](frames, arguments.epochs)
        # Not ru_maxrss: that one counts the parent's memory at the moment of the fork, too.
        status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
        print(json.dumps({"peak": int(status["VmHWM"].split()[0]) / 1024}))
        sys.exit(0)
    for train in SIDES.values():
        train(make_frames(2000), 1)  # imports and first-call costs are not what is compared
    seconds: dict[str, list[float]] = {side: [] for side in SIDES}
    auc: dict[str, float] = {}
    for repetition in range(arguments.repetitions):
        for side, train in SIDES.items():
            started = time.perf_counter()
            auc[side] = train(frames, arguments.epochs)
            seconds[side].append(time.perf_counter() - started)
        say(
            f"round {repetition + 1}/{arguments.repetitions}: "
            + ", ".join(f"{s} {v[-1]:.2f} s" for s, v in seconds.items())
        )
    ratios = [a / b for a, b in zip(seconds["federated"], seconds["plain"], strict=True)]
    rounds = range(min(arguments.repetitions, 3))
    memory = {side: statistics.median(peak_memory(side, arguments.rows, 1) for _ in rounds) for side in SIDES}
    findings = Findings()
    figures: dict[str, Any] = findings.figures
    figures |= {
        "rows": arguments.rows,
        "columns": COLUMNS,
        "batch": BATCH,
        "epochs": arguments.epochs,
        "precision": "float32",
    }
    for side in SIDES:
        figures[f"{side}_seconds"] = statistics.median(seconds[side])
        figures[f"{side}_auc"] = auc[side]
        figures[f"{side}_peak_mib"] = memory[side]
    figures["time_ratio_aim"] = 1.3
    findings.bar("time_ratio", statistics.median(ratios), at_most=1.8)
    findings.bar("peak_memory_ratio", memory["federated"] / memory["plain"], at_most=1.3)
    findings.bar("auc_apart", abs(auc["federated"] - auc["plain"]), at_most=0.01)
    return findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--peak", choices=list(SIDES), help=argparse.SUPPRESS)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, add_arguments)
