"""A step of FairVFL against the same step in one place.

Three feature platforms, two sensitive ones, a server and a task platform, as threads of one process (simulate) with
messages, ledgers and all guards, against the same networks, losses and updates trained centrally in plain PyTorch with
the machine to itself. Sizes are the product's defaults (batches of 128, codes of 128, a narrow code of 8 with noise,
two steps of each adversary), float32. A step's time is the difference between many epochs and one. The rounds are
interleaved, and the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.form import Findings, main, say
from colonnade import Evaluate, FairVFL, PartyTable, simulate
from colonnade.methods.fairvfl.maths import counterparts, pair_loss
from colonnade.methods.fairvfl.networks import (
    build_aggregator,
    build_contrastive,
    build_discriminator,
    build_mapper,
    build_task,
)
from colonnade.nn import EmbeddingMLP

MOST_TIMES_CENTRAL = 2.0
ROLES = {
    "label_holder": "task",
    "feature_holder": ["one", "two", "three"],
    "aggregator": "server",
    "attribute_holder": ["state", "bureau"],
}


class Steps:
    """The same data for both sides: twelve fields, a label, two attributes."""

    def __init__(self, rows: int, settings: dict[str, Any]) -> None:
        random = np.random.default_rng(0)
        self.rows, self.settings = rows, settings
        fields = random.integers(0, 40, size=(rows, 12))
        gender, age = random.integers(0, 2, rows), random.integers(0, 4, rows)
        label = ((fields[:, 0] + fields[:, 5]) > 40).astype(int)
        self.fields, self.label = torch.from_numpy(fields), torch.from_numpy(label).float()
        self.attributes = {"gender": torch.from_numpy(gender), "age": torch.from_numpy(age)}
        ids = np.arange(rows)
        self.tables = {"task": PartyTable(pd.DataFrame({"id": ids, "y": label}), id="id", label="y")}
        for place, name in enumerate(("one", "two", "three")):
            own = {f"f{field}": [f"c{one}" for one in fields[:, field]] for field in range(4 * place, 4 * place + 4)}
            self.tables[name] = PartyTable(pd.DataFrame({"id": ids, **own}), id="id")
        for name, column, values in (("state", "gender", gender), ("bureau", "age", age)):
            frame = pd.DataFrame({"id": ids, column: [f"g{one}" for one in values]})
            self.tables[name] = PartyTable(frame, id="id")

    def config(self, epochs: int) -> FairVFL:
        return FairVFL(attributes=("gender", "age"), epochs=epochs, **self.settings)

    def ours(self, epochs: int) -> float:
        """Return the seconds of a whole simulation."""
        began = time.perf_counter()
        held_out = Evaluate(test_fraction=0.0, validation_fraction=0.0)
        simulate(self.config(epochs), self.tables, roles=ROLES, evaluate=held_out)
        return time.perf_counter() - began

    def central(self, epochs: int) -> float:
        """Return the seconds of the same steps in plain PyTorch."""
        config = self.config(epochs)
        began = time.perf_counter()
        central = Central(config)
        for _ in range(epochs):
            order = torch.randperm(self.rows)
            for batch in order.split(config.batch_size):
                central.step(self.fields[batch], self.label[batch], {k: v[batch] for k, v in self.attributes.items()})
        return time.perf_counter() - began


class Central:
    """All networks in one place, with torch's own optimizers."""

    def __init__(self, config: FairVFL) -> None:
        self.config = config
        self.locals = nn.ModuleList(
            EmbeddingMLP((41,) * 4, config.width, seed=place, embedding_width=config.embedding, dropout=config.dropout)
            for place in range(3)
        )
        self.aggregator = build_aggregator(config, 3, 1)
        self.task = build_task(config, 1, 2)
        self.mappers = {name: build_mapper(config, name, 3) for name in config.attributes}
        self.contrastive = {name: build_contrastive(config, name, 4) for name in config.attributes}
        classes = {"gender": 2, "age": 4}
        self.bias = {name: build_discriminator(config, name, classes[name], 5) for name in config.attributes}
        rate = config.learning_rate
        self.main = torch.optim.Adam([*self.locals.parameters(), *self.aggregator.parameters()], lr=rate)
        self.for_task = torch.optim.Adam(self.task.parameters(), lr=rate)
        self.for_mapper = {name: torch.optim.Adam(one.parameters(), lr=rate) for name, one in self.mappers.items()}
        self.for_pairs = {name: torch.optim.Adam(one.parameters(), lr=rate) for name, one in self.contrastive.items()}
        faster = config.adversary_rate
        self.for_bias = {name: torch.optim.Adam(one.parameters(), lr=faster) for name, one in self.bias.items()}
        self.generator = torch.Generator().manual_seed(0)

    def step(self, fields: torch.Tensor, label: torch.Tensor, attributes: dict[str, torch.Tensor]) -> None:
        config = self.config
        codes = torch.stack([one(fields[:, 4 * k : 4 * k + 4]) for k, one in enumerate(self.locals)], dim=1)
        code = self.aggregator(codes, torch.ones(codes.shape[:2], dtype=torch.bool))
        code = code + torch.randn_like(code) * config.noise
        leaf = code.detach().requires_grad_()
        self.for_task.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(self.task(leaf).squeeze(1), label)
        loss.backward()
        self._learn(self.for_task, self.task)
        total = leaf.grad
        fixed = leaf.detach()
        for name, wanted in attributes.items():
            mapper, pairs, bias = self.mappers[name], self.contrastive[name], self.bias[name]
            protected = mapper(fixed)
            same = torch.zeros(len(fixed), len(fixed), dtype=torch.bool)
            others = counterparts(protected.detach(), same, config.nearest, config.relevance, self.generator)
            self.for_pairs[name].zero_grad()
            pair_loss(pairs, protected.detach(), fixed, fixed[others]).backward()
            self._learn(self.for_pairs[name], pairs)
            sent = (protected + torch.randn_like(protected) * config.protected_noise).detach()
            for _ in range(config.adversary_steps):
                self.for_bias[name].zero_grad()
                nn.functional.cross_entropy(bias(sent), wanted).backward()
                self._learn(self.for_bias[name], bias)
            self.for_mapper[name].zero_grad()
            noised = protected + torch.randn_like(protected) * config.protected_noise
            hidden = pair_loss(pairs, protected, fixed, fixed[others])
            (nn.functional.cross_entropy(bias(noised), wanted) - config.contrastive_weight * hidden).backward()
            self._learn(self.for_mapper[name], mapper)
            again = fixed.clone().requires_grad_()
            mapped = mapper(again)
            mapped = mapped + torch.randn_like(mapped) * config.protected_noise
            (found,) = torch.autograd.grad(nn.functional.cross_entropy(bias(mapped), wanted), again)
            total = total - config.weight_of(name) * found
        self.main.zero_grad()
        code.backward(total)
        nn.utils.clip_grad_norm_(self.locals.parameters(), config.clip_gradient)
        nn.utils.clip_grad_norm_(self.aggregator.parameters(), config.clip_gradient)
        self.main.step()

    def _learn(self, optimizer: torch.optim.Optimizer, module: nn.Module) -> None:
        nn.utils.clip_grad_norm_(module.parameters(), self.config.clip_gradient)
        optimizer.step()


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    findings.figures |= {"cores": len(os.sched_getaffinity(0)), "load_average": round(os.getloadavg()[0], 2)}
    rows, many, rounds = (128, 1, 1) if arguments.quick else (6400, 4, arguments.rounds)
    world = Steps(rows, {"width": 32, "heads": 4, "batch_size": 64} if arguments.quick else {})
    steps = -(-rows // world.config(1).batch_size)
    sides = {"ours": world.ours, "central": world.central}
    for play in sides.values():
        play(1)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, play in sides.items():
            few, more = play(1), play(1 + many)
            taken[name].append((more - few) / (many * steps))
        each = ", ".join(f"{name} {1000 * one[-1]:.1f} ms" for name, one in taken.items())
        say(f"Step, round {number + 1} of {rounds}: {each}")
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    findings.figures |= {"step_seconds": seconds["ours"], "step_central_seconds": seconds["central"]}
    findings.bar("step_times_central", seconds["ours"] / seconds["central"], at_most=MOST_TIMES_CENTRAL)
    findings.figures["load_average_after"] = round(os.getloadavg()[0], 2)
    return findings


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
