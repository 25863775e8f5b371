"""What a step of FedCVT costs in the clear, against the same step in one place.

At the sizes of NUS-WIDE: 634 and 1000 columns, codes of 96 and 96 numbers, 10 classes, batches
of 128 shared and twice 256 other rows, single precision. Two parties are threads of this process (`simulate`), which
speak over memory and keep ledgers; the other side trains the same networks by the same losses in plain PyTorch, with
one fused Adam for all. Both sides run on one core and count by processor time. Training goes on for few and for many
epochs, and the difference makes the time of a step, so that set-up and evaluation do not count, but the ends of epochs
do, at both. The two sides are interleaved; the ratio is that of medians.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.form import Findings, main, say
from colonnade.data import PartyTable
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate
from colonnade.methods.fedcvt import FedCVT
from colonnade.session import Evaluate

MOST_TIMES_CENTRAL = 1.5
HELD_OUT = Evaluate(test_fraction=0.1, validation_fraction=0.1)


@dataclass(frozen=True, kw_only=True)
class World:
    """How many rows and columns two parties have; the first has the label."""

    shared: int
    own: int
    columns: tuple[int, int]
    classes: int = 10

    def frames(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return both tables: columns are mixtures of what makes the label, with noise."""
        random = np.random.default_rng(0)
        count, hidden = self.shared + 2 * self.own, 20
        causes = random.normal(size=(count, hidden))
        label = (causes @ random.normal(size=(hidden, self.classes))).argmax(axis=1)
        found = []
        for place, (name, width) in enumerate(zip("ab", self.columns, strict=True)):
            start = self.shared + place * self.own
            rows = np.r_[0 : self.shared, start : start + self.own]
            values = causes[rows] @ random.normal(size=(hidden, width)) + random.normal(size=(len(rows), width))
            frame = pd.DataFrame(values, columns=[f"{name}{column}" for column in range(width)])
            frame["id"] = rows
            found.append(frame.assign(label=label[rows]) if place == 0 else frame)
        return found[0], found[1]


# --- level 0 against one place ---------------------------------------------------------------------------------------


class Central(nn.Module):
    """The networks and losses of FedCVT, all rows in one place: encoders of both parties and all heads."""

    def __init__(self, columns: Sequence[int], config: FedCVT, classes: int) -> None:
        super().__init__()
        self.config = config
        width = config.shared_width + config.unique_width
        self.shared = nn.ModuleList([nn.Linear(one, config.shared_width) for one in columns])
        self.unique = nn.ModuleList([nn.Linear(one, config.unique_width) for one in columns])
        self.heads = nn.ModuleList([nn.Linear(width, classes) for _ in columns])
        self.joint = nn.Linear(2 * width, classes)

    def outputs(self, features: Sequence[Tensor]) -> Tensor:
        """Return the joint head's scores of rows that all parties know."""
        codes = [net[place](one).relu() for place, one in enumerate(features) for net in (self.shared, self.unique)]
        found: Tensor = self.joint(torch.cat(codes, dim=1))
        return found

    def loss(
        self, features: Sequence[Tensor], count: int, targets: Tensor, own_targets: Tensor, *, labels_partner: bool
    ) -> Tensor:
        """Return a step's loss; of each party's rows the first are shared."""
        config = self.config
        shared = [net(one).relu() for net, one in zip(self.shared, features, strict=True)]
        unique = [net(one).relu() for net, one in zip(self.unique, features, strict=True)]
        whole = [torch.cat(pair, dim=1) for pair in zip(shared, unique, strict=True)]
        views = [[one[:count] for one in whole], [whole[0][count:], self._estimate(shared, unique, 0, count)]]
        wanted = [targets, own_targets]
        if labels_partner:
            full = [self._estimate(shared, unique, 1, count), whole[1][count:]]
            with torch.no_grad():
                outputs = [self.joint(torch.cat(full, dim=1))]
                outputs += [head(view) for head, view in zip(self.heads, full, strict=True)]
                sure, guesses = torch.stack([one.softmax(dim=1) for one in outputs]).max(dim=2)
                kept = (guesses == guesses[0]).all(dim=0) & (sure.min(dim=0).values > config.threshold)
            views.append([one[kept] for one in full])
            wanted.append(guesses[0][kept])
        every = [torch.cat(one) for one in zip(*views, strict=True)]
        answers = torch.cat(wanted)
        loss: Tensor = functional.cross_entropy(self.joint(torch.cat(every, dim=1)), answers)
        for head, view in zip(self.heads, every, strict=True):
            loss = loss + functional.cross_entropy(head(view), answers)
        loss = loss + config.pull * (shared[0][:count] - shared[1][:count]).square().sum(dim=1).mean()
        for wanted_of, source, weight in ((0, 1, config.own_fit), (1, 0, config.partner_fit)):
            guess = self._estimate(shared, unique, source, count, of_shared=True)
            loss = loss + weight * (guess - whole[wanted_of][:count]).square().sum(dim=1).mean()
        for place, weight in enumerate((config.own_orthogonality, config.partner_orthogonality)):
            loss = loss + weight * (shared[place] * unique[place]).sum(dim=1).square().mean()
        return loss

    def _estimate(
        self, shared: Sequence[Tensor], unique: Sequence[Tensor], source: int, count: int, *, of_shared: bool = False
    ) -> Tensor:
        """Estimate the other party's codes of the source's own rows, or of the shared ones."""
        rows, other = slice(None, count) if of_shared else slice(count, None), 1 - source
        everyone, anchors = shared[other], unique[source][:count]
        found = []
        for queries, keys, values in (
            (shared[source][rows], everyone, everyone),
            (unique[source][rows], anchors, unique[other][:count]),
        ):
            logits = queries @ keys.T / (math.sqrt(queries.shape[1]) * self.config.temperature)
            if of_shared:
                itself = torch.eye(len(queries), len(keys), dtype=torch.bool)
                logits = logits.masked_fill(itself, -torch.inf)
            found.append(logits.softmax(dim=1) @ values)
        return torch.cat(found, dim=1)


def train_central(frames: tuple[pd.DataFrame, pd.DataFrame], world: World, config: FedCVT, epochs: int) -> None:
    """Train in one place, in batches like those of the federated side."""
    tables, positions = [], []
    order = np.random.default_rng(1).permutation(world.shared)
    held = int(world.shared * HELD_OUT.test_fraction), int(world.shared * HELD_OUT.validation_fraction)
    validation, train = order[held[0] : sum(held)], order[sum(held) :]
    own = np.arange(world.shared, world.shared + world.own)
    for frame in frames:
        values = frame.drop(columns=["id", "label"], errors="ignore").to_numpy(np.float64)
        learned = values[np.concatenate([train, own])]
        tables.append(torch.from_numpy(((values - learned.mean(0)) / learned.std(0)).astype(np.float32)))
        positions.append(own)
    labels = torch.from_numpy(frames[0]["label"].to_numpy(np.int64, copy=True))
    torch.manual_seed(1)
    network = Central(world.columns, config, world.classes)
    optimizer = torch.optim.Adam(
        network.parameters(), lr=config.learning_rate, weight_decay=config.weight_decay, fused=True
    )
    random, total = np.random.default_rng(2), 0.0
    for epoch in range(epochs):
        passes = [_batches(random, train, config.batch_size)]
        passes += [_batches(random, one, config.own_batch_size) for one in positions]
        steps = max(len(one) for one in passes)
        for step in range(steps):
            shared, *own_rows = (one[step % len(one)] for one in passes)
            features = [
                table[torch.from_numpy(np.concatenate([shared, rows]))]
                for table, rows in zip(tables, own_rows, strict=True)
            ]
            optimizer.zero_grad()
            loss = network.loss(
                features,
                len(shared),
                labels[torch.from_numpy(shared)],
                labels[torch.from_numpy(own_rows[0])],
                labels_partner=epoch >= config.warmup_epochs,
            )
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), config.gradient_clip)
            optimizer.step()
            total += loss.item()
        with torch.no_grad():
            places = torch.from_numpy(validation)
            held_out = [table[places] for table in tables]
            functional.cross_entropy(network.outputs(held_out), labels[places]).item()
        _ = {name: value.clone() for name, value in network.state_dict().items()}


def _batches(random: np.random.Generator, rows: npt.NDArray[np.int64], size: int) -> list[npt.NDArray[np.int64]]:
    return list(np.array_split(random.permutation(rows), math.ceil(len(rows) / size)))


def train_federated(frames: tuple[pd.DataFrame, pd.DataFrame], config: FedCVT) -> Run:
    tables = {"bank": PartyTable(frames[0], id="id", label="label"), "shop": PartyTable(frames[1], id="id")}
    return simulate(config, tables, seed=1, evaluate=HELD_OUT)


def measure_open(findings: Findings, rounds: int, *, quick: bool) -> None:
    world = World(shared=60, own=64, columns=(6, 8)) if quick else World(shared=160, own=1024, columns=(634, 1000))
    few, many = (1, 2) if quick else (4, 24)
    config = FedCVT(candidates=("fedcvt",), patience=0, epochs=many)
    frames = world.frames()
    steps = math.ceil(world.own / config.own_batch_size)
    seconds: dict[str, list[float]] = {"federated": [], "central": []}
    walls: dict[str, list[float]] = {"federated": [], "central": []}

    runs: list[Run] = []

    def federated(epochs: int) -> None:
        runs[:] = [train_federated(frames, replace(config, epochs=epochs))]

    def central(epochs: int) -> None:
        train_central(frames, world, config, epochs)

    for train in (federated, central):
        train(1)  # imports and first-call costs are not what is compared
    for number in range(rounds):
        for side, train in (("federated", federated), ("central", central)):
            taken = []
            for epochs in (few, many):
                wall, processor = time.perf_counter(), time.process_time()
                train(epochs)
                taken.append((time.perf_counter() - wall, time.process_time() - processor))
            walls[side].append((taken[1][0] - taken[0][0]) / (steps * (many - few)))
            seconds[side].append((taken[1][1] - taken[0][1]) / (steps * (many - few)))
        each = ", ".join(f"{side} {values[-1] * 1000:.1f} ms" for side, values in seconds.items())
        say(f"Level 0, round {number + 1} of {rounds}: a step takes {each}")
    medians = {side: statistics.median(values) for side, values in seconds.items()}
    messages, size = crossed_in_step(runs[0])
    findings.figures |= {
        "level_0_messages_per_step": messages,
        "level_0_bytes_per_step": size,
        "level_0_step_seconds": medians["federated"],
        "level_0_central_step_seconds": medians["central"],
        "level_0_steps_per_second": 1 / medians["federated"],
        "level_0_steps_per_second_on_the_wall": 1 / statistics.median(walls["federated"]),
        "level_0_rounds_milliseconds": {
            side: [round(one * 1000, 2) for one in values] for side, values in seconds.items()
        },
    }
    ratio = medians["federated"] / medians["central"]
    findings.bar("level 0: step over a central one", ratio, at_most=MOST_TIMES_CENTRAL)


def crossed_in_step(run: Run) -> tuple[int, int]:
    """Return how many messages and bytes a run's first step takes, as the ledgers have it."""
    sent = [
        entry.content["bytes"]
        for ledger in run.ledgers.values()
        for entry in ledger.messages()
        if entry.kind == "sent" and entry.content["step"] == 1 and entry.content["message"] != "EpochVerdict"
    ]
    return len(sent), sum(sent)


def measure(arguments: argparse.Namespace) -> Findings:
    torch.set_num_threads(1)
    findings = Findings()
    findings.figures |= {"cores": len(os.sched_getaffinity(0)), "load_average": round(os.getloadavg()[0], 2)}
    rounds = 1 if arguments.quick else arguments.rounds
    measure_open(findings, rounds, quick=arguments.quick)
    findings.figures["load_average_after"] = round(os.getloadavg()[0], 2)
    return findings


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=3, help="how often each is measured")


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
