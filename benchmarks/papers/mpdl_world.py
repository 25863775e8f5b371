"""Public data as two parties hold it in multi-party dual learning, and what the paper compares with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from torch import nn

from benchmarks.papers.playing import play_parties
from colonnade import MPDL, PartyTable
from colonnade.data import AlignedRows, Split
from colonnade.datasets import (
    bank_full,
    breast_cancer_views,
    cifar10_views,
    mnist_views,
)
from colonnade.methods.mpdl.completion import Completion
from colonnade.methods.mpdl.dual import Others
from colonnade.methods.mpdl.generators import empty_generator
from colonnade.methods.mpdl.networks import build_block, build_upper
from colonnade.methods.mpdl.rows import Scale
from colonnade.methods.mpdl.units import UnitSpace
from colonnade.nn import mlp, tensors_under
from colonnade.session import Holding, ModelPart, Result, RunPlan
from colonnade.settings import config_to_json

Rows = np.ndarray[Any, Any]

MNIST_ROWS, CIFAR_ROWS, CIFAR_TESTS, BANK_ROWS = 10_000, 2_000, 1_000, 6_000
NOTHING = AlignedRows(np.empty(0, np.int64), np.empty(0, np.int64), "no rows")


@dataclass(frozen=True)
class Source:
    """A data set: both parties' columns of all rows, of which the last are to test on, if they are given."""

    tables: Mapping[str, pd.DataFrame]
    label: str
    id: str
    train: int
    common: tuple[str, ...] = ()
    image: tuple[int, int, int] | None = None


@cache
def source_of(data: str, seed: int) -> Source:
    """Return a data set; b has the label."""
    if data == "mnist":
        parts = [mnist_views(part="train", rows=MNIST_ROWS, seed=seed), mnist_views(part="test")]
        return Source(_joined(parts), "digit", "id", MNIST_ROWS, ("common_*",), (1, 28, 28))
    if data == "cifar10":
        parts = [
            cifar10_views(part="train", rows=CIFAR_ROWS),
            cifar10_views(part="test", rows=CIFAR_TESTS),
        ]
        return Source(_joined(parts), "label", "id", CIFAR_ROWS, ("common_*",), (3, 32, 32))
    if data == "bank":
        tables = bank_full(coded=True, seed=0)
        count = len(tables["b"])
        rows = np.random.default_rng(seed).permutation(count)[:BANK_ROWS]
        chosen = {party: table.iloc[rows].reset_index(drop=True) for party, table in tables.items()}
        return Source(chosen, "y", "id", round(0.9 * BANK_ROWS))
    tables = breast_cancer_views()
    if data == "breast swapped":
        diagnosis = tables["b"].pop("diagnosis")
        tables = {"a": tables["b"], "b": tables["a"].assign(diagnosis=diagnosis)}
    count = len(tables["b"])
    rows = np.random.default_rng(seed).permutation(count)
    chosen = {party: table.iloc[rows].reset_index(drop=True) for party, table in tables.items()}
    return Source(chosen, "diagnosis", "patient", round(0.9 * count))


def _joined(parts: list[dict[str, pd.DataFrame]]) -> dict[str, pd.DataFrame]:
    return {party: pd.concat([one[party] for one in parts], ignore_index=True) for party in parts[0]}


@dataclass(frozen=True)
class World:
    """What both parties hold at one share of common rows."""

    source: Source
    tables: Mapping[str, PartyTable]
    aligned: Mapping[str, AlignedRows]
    split: Split
    shared: Rows
    b_only: Rows
    a_only: Rows
    test: Rows

    def holding(self, party: str) -> Holding:
        """Return what a party brings."""
        if party == "c":
            nothing = np.empty(0, np.int64)
            return Holding(PartyTable.nothing("c"), NOTHING, Split(nothing, nothing, nothing))
        return Holding(self.tables[party], self.aligned[party], self.split)


def make_world(data: str, gamma: float, seed: int) -> World:
    """Divide training rows: shared, b's own, a's own, as in the paper."""
    source = source_of(data, seed)
    total = len(source.tables["b"])
    order = np.random.default_rng(1000 + seed).permutation(source.train)
    ends = [round(gamma * source.train), round((0.5 + gamma / 2) * source.train)]
    shared, b_only, a_only = np.split(order, ends)
    test = np.arange(source.train, total)
    together = np.concatenate([shared, test])
    tables, aligned = {}, {}
    for party, own in (("a", a_only), ("b", b_only)):
        chosen = source.tables[party].iloc[np.concatenate([together, own])].reset_index(drop=True)
        label = source.label if source.label in chosen else None
        tables[party] = PartyTable(chosen, id=source.id, label=label, name=party)
        places = np.arange(len(chosen))
        aligned[party] = AlignedRows(places[: len(together)], places[len(together) :], "given by the experiment")
    count = len(shared)
    split = Split(np.arange(count), np.empty(0, np.int64), np.arange(count, len(together)))
    return World(source, tables, aligned, split, shared, b_only, a_only, test)


def played(world: World, config: MPDL, seed: int) -> dict[str, Result]:
    """Train with the product, all three parties as threads."""
    roles = {"label_holder": ("b",), "feature_holder": ("a",), "collaborator": ("c",)}
    plan = RunPlan(name="paper", method="mpdl", roles=roles, seed=seed, config=config_to_json(config))
    return play_parties(plan, config, world.holding)


# What the paper compares with, in plain PyTorch: every model sees all it needs.


@dataclass(frozen=True)
class Plain:
    """All numbers of a world in one place: columns of both, standardised, and classes."""

    a: torch.Tensor
    b: torch.Tensor
    labels: torch.Tensor
    classes: int


def plain(world: World) -> Plain:
    """Return the numbers that the comparisons learn from."""
    source = world.source
    numbers = {}
    for party, table in source.tables.items():
        values = table.drop(columns=[source.id, *([source.label] if source.label in table else [])]).to_numpy(float)
        low, high = values[: source.train].min(0), values[: source.train].max(0)
        unit = (values - low) / np.maximum(high - low, 1e-9)
        mean, spread = unit[: source.train].mean(0), np.maximum(unit[: source.train].std(0), 0.1)
        numbers[party] = torch.from_numpy(((unit - mean) / spread).astype(np.float32))
    classes, labels = np.unique(source.tables["b"][source.label], return_inverse=True)
    return Plain(numbers["a"], numbers["b"], torch.from_numpy(labels), len(classes))


def targets_of(world: World) -> Rows:
    """Return the classes of test rows as numbers."""
    return np.asarray(plain(world).labels[world.test])


def direct(world: World, side: str, rows: Rows, seed: int, hidden: int, epochs: int = 20) -> float:
    """Return the accuracy on test rows of a model of one side's columns on these rows."""
    data = plain(world)
    inputs = {"a": data.a, "b": data.b, "both": torch.cat([data.a, data.b], dim=1)}[side]
    network = mlp((inputs.shape[1], hidden, data.classes), seed=seed)
    _fit(network, inputs[rows], data.labels[rows], seed, epochs)
    return _accuracy(network(inputs[world.test]), data.labels[world.test])


def ftl(world: World, seed: int, *, with_own_labels: bool = False, width: int = 64, epochs: int = 30) -> float:
    """Return the accuracy on a's test rows of codes that are aligned with b's, where labels are at b.

    An auto-encoder of two layers for each party, codes of shared rows pulled together, a classifier on b's codes;
    ``with_own_labels`` also puts the labels of shared rows on a's codes.
    """
    data = plain(world)
    networks = nn.ModuleDict()
    for place, (name, inputs) in enumerate((("a", data.a.shape[1]), ("b", data.b.shape[1]))):
        networks[f"{name} in"] = mlp((inputs, 128, width), seed=seed * 10 + place)
        networks[f"{name} out"] = mlp((width, 128, inputs), seed=seed * 10 + 3 + place)
    networks["head"] = nn.Sequential(nn.ReLU(), *mlp((width, 64, data.classes), seed=seed * 10 + 7))
    optimizer = torch.optim.Adam(networks.parameters(), lr=1e-3)
    draw = np.random.default_rng(seed)
    labelled = np.concatenate([world.shared, world.b_only])
    everyone_a = np.concatenate([world.shared, world.a_only])
    size = 64
    for _ in range(epochs):
        order = draw.permutation(labelled)
        for start in range(0, len(order), size):
            own = order[start : start + size]
            common = draw.choice(world.shared, min(size, len(world.shared)), replace=False)
            others = draw.choice(everyone_a, size)
            codes_b, codes = networks["b in"](data.b[own]), networks["a in"](data.a[common])
            loss = nn.functional.cross_entropy(networks["head"](codes_b), data.labels[own])
            loss = loss + nn.functional.mse_loss(codes, networks["b in"](data.b[common]))
            if with_own_labels:
                loss = loss + nn.functional.cross_entropy(networks["head"](codes), data.labels[common])
            rebuilt = networks["a out"](networks["a in"](data.a[others]))
            loss = loss + 0.1 * nn.functional.mse_loss(rebuilt, data.a[others])
            loss = loss + 0.1 * nn.functional.mse_loss(networks["b out"](codes_b), data.b[own])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    with torch.no_grad():
        return _accuracy(networks["head"](networks["a in"](data.a[world.test])), data.labels[world.test])


def _fit(network: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, seed: int, epochs: int) -> None:
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    draw = np.random.default_rng(seed)
    for _ in range(epochs):
        order = torch.from_numpy(draw.permutation(len(inputs)))
        for start in range(0, len(order), 64):
            batch = order[start : start + 64]
            loss = nn.functional.cross_entropy(network(inputs[batch]), labels[batch])
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(network.parameters(), 5.0)
            optimizer.step()


def _accuracy(logits: torch.Tensor, labels: torch.Tensor) -> float:
    return float((logits.argmax(dim=1) == labels).double().mean())


# What the trained parts give, put together in one place: the sums that masks and encryption give, without them.


@dataclass(frozen=True)
class Assembled:
    """The model of a run with all its parts in one place, and held-out rows of both parties."""

    config: MPDL
    completions: Mapping[str, Completion]
    parts: Mapping[str, ModelPart]
    rows: Rows

    @classmethod
    def of(cls, world: World, config: MPDL, results: Mapping[str, Result]) -> Assembled:
        """Put together what all parties have after a run, with their test rows."""
        roles = {"label_holder": ("b",), "feature_holder": ("a",), "collaborator": ("c",)}
        plan = RunPlan(name="paper", method="mpdl", roles=roles)
        parts = {party: result.part for party, result in results.items() if result.part is not None}
        completions = {}
        for party, other in (("a", "b"), ("b", "a")):
            part, table = parts[party], world.tables[party]
            space = UnitSpace.from_json(part.document["space"])
            units = torch.from_numpy(space.transform(table, np.arange(table.rows)))
            others = Others((other,), (tuple(part.document["others"][0]),), None)
            generator = empty_generator(config, space.width, others.width)
            generator.load(tensors_under("generator/", part.tensors))
            seat: Any = SimpleNamespace(role=plan.role_of(party), party=party, plan=plan, all_channels=())
            scale = Scale(part.tensors["scale/mean"], part.tensors["scale/spread"])
            found = completions[party] = Completion(seat, config, space, units, scale, others, generator)
            found.generated_scale = Scale(part.tensors["generated/mean"], part.tensors["generated/spread"])
        test = world.aligned["b"].positions[world.split.test]
        return cls(config, completions, parts, test)

    def logits(self, model: str, known_to: str) -> torch.Tensor:
        """Return the scores of test rows: of rows that both know, or with only one party's columns."""
        part = self.parts["c"]
        upper = build_upper(self.config, int(part.document["hidden"]), int(part.document["outputs"]), 0)
        upper.load_state_dict(tensors_under(f"{model}/upper.", part.tensors))
        with torch.no_grad():
            return cast(torch.Tensor, upper(self._first(model, known_to)))

    def _first(self, model: str, known_to: str) -> torch.Tensor:
        if known_to == "both":
            parts = [self._block(party, model, one.whole_with(self.rows, model)) for party, one in self._all()]
            return parts[0] + parts[1]
        own = self.completions[known_to]
        if self.config.completes_alone("label_holder" if known_to == "b" else "feature_holder") or model == "joint":
            return self._block(known_to, model, own.alone(self.rows, model))
        other = "b" if known_to == "a" else "a"
        peer: Any = SimpleNamespace(peer=other, peer_role="label_holder" if other == "b" else "feature_holder")
        told = own.meant_for(peer, own.generated(self.rows).double())
        first = self._block(known_to, model, own.whole_with(self.rows, model))
        return first + self._block(other, model, self.completions[other].given(told, model))

    def _all(self) -> list[tuple[str, Completion]]:
        return list(self.completions.items())

    def _block(self, party: str, model: str, inputs: torch.Tensor) -> torch.Tensor:
        weights = tensors_under(f"{model}/block.", self.parts[party].tensors)
        block = build_block(self.config, inputs.shape[1], int(self.parts[party].document["hidden"]), 0)
        block.load_state_dict(weights)
        return cast(torch.Tensor, block(inputs))

    def inference_errors(self, party: str) -> tuple[float, float]:
        """Return how far the other's generated columns are from the real ones, on test rows, and how far their mean."""
        other = self.completions["b" if party == "a" else "a"]
        width = other.own_width
        real = other.units[torch.from_numpy(self.rows)][:, :width]
        generated = self.completions[party].generated(self.rows)[:, :width].double()
        error = float((generated - real).abs().nanmean())
        return error, float((real.nanmean(dim=0) - real).abs().nanmean())
