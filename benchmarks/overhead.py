"""What federating costs: the same split network trained by `simulate` and in plain PyTorch tuned the same way.

Two parties, 100,000 rows, 40 columns, batch 256, float32, ledger on (in memory and hash-chained). The plain side gets
the inputs that colonnade makes of the same two data frames, and trains the two encoders and the head as one module with
one fused optimizer, on rows that are put in order once in a pass and sliced.

Counted is training: from the moment at which both parties' inputs are ready to that at which the held-out rows' codes
have arrived, with the validation after each pass. Of the federated run the label holder's own ledger tells both. Not
counted is what plain code would not do, or does alike: reading tables, the handshake, making inputs, and the model of
own columns alone with which the federated one is compared; `federated_whole_seconds` has all of it.
The two are interleaved and the median of the ratios is reported, for the shipped network; `lean_time_ratio` is that of
one with a quarter of its arithmetic. Peak memory is measured in fresh processes.

At the end comes what a long way between the parties costs, and what batches sent ahead save of it: `benchmarks.delay`.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from benchmarks import delay
from benchmarks.form import Findings, main, say

if TYPE_CHECKING:
    from colonnade import PartyTable, SplitNN

COLUMNS, BATCH = 40, 256
# A network with little arithmetic, of which messages and bookkeeping are a larger part.
LEAN = {"hidden": (64,), "head_hidden": (), "members": 1, "dropout": 0.0}


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


def train_federated(frames: tuple[pd.DataFrame, pd.DataFrame], epochs: int, **changes: Any) -> tuple[float, float]:
    """Return the seconds of training and the AUC."""
    import colonnade as cn

    # Private alignment has a benchmark of its own; here the rows are put in order as the plain side does.
    given = cn.Alignment(protocol="given")
    run = cn.simulate(settings(epochs, **changes), tables_of(frames), seed=1, launch=cn.Launch(alignment=given))
    entries = [one for one in run.ledgers["bank"].entries if one.kind == "received"]
    begun = next(one for one in entries if one.content["message"] == "CutWidth")
    ended = next(one for one in reversed(entries) if one.content["message"] == "HeldOutActivations")
    moments = [datetime.fromisoformat(one.time).timestamp() for one in (begun, ended)]
    return moments[1] - moments[0], run.metrics["auc"]


def settings(epochs: int, **changes: Any) -> SplitNN:
    import colonnade as cn

    # The shipped network; for so many epochs, as early stopping would compare trainings of different lengths.
    fixed: dict[str, Any] = {"batch_size": BATCH, "patience": 0, "minimum_steps": 0, "secret_start": False}
    return cn.SplitNN(epochs=epochs, **fixed | changes)


def tables_of(frames: tuple[pd.DataFrame, pd.DataFrame]) -> dict[str, PartyTable]:
    import colonnade as cn

    other = frames[0][["id"]].merge(frames[1], on="id")
    return {"bank": cn.PartyTable(frames[0], id="id", label="y"), "shop": cn.PartyTable(other, id="id")}


def train_plain(frames: tuple[pd.DataFrame, pd.DataFrame], epochs: int, **changes: Any) -> tuple[float, float]:
    """Return the seconds of training and the AUC."""
    import torch
    from sklearn.metrics import roc_auc_score
    from torch import nn
    from torch.nn.functional import binary_cross_entropy_with_logits

    from colonnade.nn import Heads
    from colonnade.training import Inputs

    order = np.random.default_rng(1).permutation(len(frames[0]))
    test, validation, train = np.split(order, [len(order) // 5, len(order) * 3 // 10])
    every, features = np.arange(len(order)), []
    for table in tables_of(frames).values():
        inputs = Inputs.fit(table, train, splines=True)
        features.append(torch.from_numpy(inputs.transform(table, every, dtype=np.float32)))
    targets = torch.from_numpy(frames[0]["y"].to_numpy(np.float32))

    shipped = settings(epochs, **changes)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            (hidden,), cut, dropout = shipped.hidden, shipped.cut_width, shipped.dropout
            self.encoders = nn.ModuleList(
                nn.Sequential(nn.Linear(one.shape[1], hidden), nn.ReLU(), nn.Dropout(dropout), nn.Linear(hidden, cut))
                for one in features
            )
            members = shipped.members
            self.head = Heads([cut, cut], shipped.head_hidden, 1, members=members, seed=1, dropout=dropout)

        def forward(self, own: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
            codes = torch.cat([self.encoders[0](own), self.encoders[1](other)], dim=1)
            return self.head(codes).squeeze(2)

    torch.manual_seed(1)
    network = Network()
    started = time.perf_counter()
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, fused=True)
    for epoch in range(epochs):
        network.train()
        shuffled = torch.from_numpy(np.random.default_rng(epoch).permutation(train))
        own, other, wanted = (one.index_select(0, shuffled) for one in (*features, targets))
        total = 0.0
        for start in range(0, len(train), BATCH):
            rows = slice(start, start + BATCH)
            optimizer.zero_grad()
            found = network(own[rows], other[rows])
            loss = binary_cross_entropy_with_logits(found, wanted[rows, None].expand_as(found))
            loss.backward()
            optimizer.step()
            total += loss.item() * len(wanted[rows])
        network.eval()
        with torch.no_grad():
            found = network(*(one[validation] for one in features))
            binary_cross_entropy_with_logits(found.mean(1), targets[validation]).item()
    with torch.no_grad():
        scores = network(*(one[np.concatenate([validation, test])] for one in features)).sigmoid().mean(1)
    seconds = time.perf_counter() - started
    return seconds, float(roc_auc_score(targets[test].numpy(), scores[len(validation) :].numpy()))


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
    whole: dict[str, list[float]] = {side: [] for side in SIDES}
    auc: dict[str, float] = {}
    for repetition in range(arguments.repetitions):
        for side, train in SIDES.items():
            started = time.perf_counter()
            trained, auc[side] = train(frames, arguments.epochs)
            seconds[side].append(trained)
            whole[side].append(time.perf_counter() - started)
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
        figures[f"{side}_whole_seconds"] = statistics.median(whole[side])
        figures[f"{side}_auc"] = auc[side]
        figures[f"{side}_peak_mib"] = memory[side]
    if not arguments.quick:
        lean = {side: [train(frames, arguments.epochs, **LEAN)[0] for _ in rounds] for side, train in SIDES.items()}
        figures["lean_time_ratio"] = statistics.median(lean["federated"]) / statistics.median(lean["plain"])
    findings.bar("time_ratio", statistics.median(ratios), at_most=1.5)
    findings.bar("peak_memory_ratio", memory["federated"] / memory["plain"], at_most=1.3)
    findings.bar("auc_apart", abs(auc["federated"] - auc["plain"]), at_most=0.01)
    if not arguments.quick:
        delay.add_to(findings, quick=False)
    return findings


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--peak", choices=list(SIDES), help=argparse.SUPPRESS)


if __name__ == "__main__":
    main((__doc__ or "").splitlines()[0], measure, add_arguments)
