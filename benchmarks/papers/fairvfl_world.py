"""Adult and MovieLens as FairVFL's platforms hold them, models by the product, and what their codes give away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import torch

from benchmarks.papers.playing import play_parties
from colonnade import FairVFL, PartyTable
from colonnade.data import AlignedRows, Split
from colonnade.datasets import adult_platforms, movielens_platforms
from colonnade.methods.fairvfl.aggregator import Fusion
from colonnade.methods.fairvfl.inputs import FieldCoder, Inputs, TextCoder, coder_from_json
from colonnade.methods.fairvfl.maths import noise_by_row
from colonnade.methods.fairvfl.networks import build_local, build_mapper, build_task
from colonnade.methods.fairvfl.tasks import CandidateReader, clicks_of, ranked
from colonnade.metrics import (
    GroupCounts,
    class_scores,
    demographic_parity_gap,
    equal_opportunity_gap,
    equalised_odds_gap,
    evaluate,
    measure_inference,
    rank_impressions,
)
from colonnade.nn import ATTACKS, attack, tensors_under
from colonnade.session import Holding, ModelPart, Result, RunPlan
from colonnade.settings import config_to_json

Rows = npt.NDArray[Any]

SERVER = "server"
ADULT_TRAIN, ADULT_VALIDATION, ADULT_TEST = 16_000, 4_000, 10_000
MOVIE_ROWS = 8_000
NOTHING = Holding(
    PartyTable.nothing(SERVER),
    AlignedRows(np.empty(0, np.int64), np.empty(0, np.int64), "no rows"),
    Split(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)),
)


@dataclass(frozen=True)
class World:
    """What all platforms hold, in the same order of rows, and how rows are divided."""

    tables: Mapping[str, PartyTable]
    split: Split
    roles: Mapping[str, tuple[str, ...]]

    def holding(self, party: str) -> Holding:
        """Return what a party brings."""
        if party == SERVER:
            return NOTHING
        table = self.tables[party]
        rows = np.arange(table.rows)
        return Holding(table, AlignedRows(rows, np.empty(0, np.int64), "given by the experiment"), self.split)

    @property
    def coders(self) -> tuple[str, ...]:
        """Return the platforms with columns."""
        return self.roles["feature_holder"]

    @property
    def label_holder(self) -> str:
        """Return the platform with the task."""
        return self.roles["label_holder"][0]

    def attribute(self, name: str) -> npt.NDArray[np.int64]:
        """Return the class of every row."""
        values = self.tables[name].values(name)
        return np.unique(values.astype(str), return_inverse=True)[1].astype(np.int64)


@cache
def adult_world(seed: int) -> World:
    """Return Adult, drawn and dealt by the seed."""
    rows = ADULT_TRAIN + ADULT_VALIDATION + ADULT_TEST
    frames = adult_platforms(rows=rows, seed=seed)
    order = np.random.default_rng(500 + seed).permutation(rows)
    return _world(frames, np.split(order, [ADULT_TRAIN, ADULT_TRAIN + ADULT_VALIDATION]))


def made_up_world(seed: int, rows: int = 200) -> World:
    """Return two platforms that can tell gender, and a task that it helps with."""
    random = np.random.default_rng(seed)
    gender, age = random.integers(0, 2, rows), random.integers(0, 3, rows)
    columns = random.normal(size=(rows, 4)) + np.outer(gender, (3.0, 0.0, 0.0, 3.0))
    income = columns[:, 0] - 1.5 + columns[:, 1] + columns[:, 2] + random.normal(size=rows) / 2 > 0
    frames = {
        "task": {"income": np.where(income, "high", "low")},
        "platform_1": {"a": columns[:, 0], "b": columns[:, 1]},
        "platform_2": {"c": columns[:, 2], "d": columns[:, 3]},
        "gender": {"gender": np.where(gender == 1, "f", "m")},
        "age": {"age": np.array(["young", "middle", "old"])[age]},
    }
    tables = {name: pd.DataFrame({"id": np.arange(rows), **own}) for name, own in frames.items()}
    return _world(tables, np.split(random.permutation(rows), [rows // 2, rows * 2 // 3]))


def _world(frames: Mapping[str, pd.DataFrame], parts: Sequence[Rows]) -> World:
    tables = {
        name: PartyTable(frame, id="id", label="income" if name == "task" else None, name=name)
        for name, frame in frames.items()
    }
    return World(tables, Split(*parts), _roles(tuple(name for name in frames if name.startswith("platform"))))


@cache
def movie_world(seed: int, rows: int = MOVIE_ROWS) -> World:
    """Return MovieLens: histories at three platforms, candidates at the task's."""
    frames = dict(movielens_platforms(seed=seed, rows=rows))
    parts = frames["task"]["part"].to_numpy()
    frames["task"] = frames["task"].drop(columns="part")
    tables = {}
    for name, frame in frames.items():
        label = "clicks" if name == "task" else None
        types: dict[str, Any] = {"history": "categorical", "user": "categorical"} if name in MOVIE_PLATFORMS else {}
        types |= {"clicks": "categorical", "candidates": "categorical"} if name == "task" else {}
        tables[name] = PartyTable(frame, id="id", label=label, types=types, name=name)
    split = Split(*(np.flatnonzero(parts == part) for part in ("train", "validation", "test")))
    return World(tables, split, _roles(MOVIE_PLATFORMS))


MOVIE_PLATFORMS = ("liked", "disliked", "genres")


def _roles(platforms: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {
        "label_holder": ("task",),
        "feature_holder": platforms,
        "aggregator": (SERVER,),
        "attribute_holder": ("gender", "age"),
    }


def played(world: World, config: FairVFL, seed: int) -> dict[str, Result]:
    """Train with the product, all parties as threads."""
    plan = RunPlan(name="paper", method="fairvfl", roles=world.roles, seed=seed, config=config_to_json(config))
    return play_parties(plan, config, world.holding)


class Assembled:
    """A trained model with all its parts in one place."""

    def __init__(self, world: World, config: FairVFL, results: Mapping[str, Result]) -> None:
        self._world, self._config = world, config
        self.parts: dict[str, ModelPart] = {
            party: result.part for party, result in results.items() if result.part is not None
        }
        server = self.parts[SERVER]
        channels: Any = [SimpleNamespace(peer=party) for party in server.document["coders"]]
        self._fusion = Fusion(config, channels, 0, bytes(32))
        self._fusion.network.load_state_dict(tensors_under("learned/aggregator.", server.tensors))
        self._fusion.network.eval()
        self._key = bytes.fromhex(server.document["serving_key"])

    def codes(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the codes of all rows, without noise and as they leave."""
        values, there = [], []
        for party in self.parts[SERVER].document["coders"]:
            coder = coder_from_json(self.parts[party].document["coder"])
            inputs = _inputs(self._world, party, coder)
            module = build_local(self._config, party, coder, 0)
            module.load_state_dict(tensors_under("local.", self.parts[party].tensors))
            values.append(applied(module, inputs))
            there.append(torch.from_numpy(inputs.is_there))
        known = torch.stack(values, dim=1)
        mask = torch.stack(there, dim=1)
        with torch.no_grad():
            clear = self._fusion.network(known, mask)
        if not self._config.noise:
            return clear, clear
        drawn = noise_by_row(self._key, clear, clear.shape[1])
        return clear, clear + drawn.to(clear.dtype) * self._config.noise

    def logits(self, clear: torch.Tensor, noised: torch.Tensor) -> torch.Tensor:
        """Return the scores of all rows, as the label holder gets them."""
        server, task = self.parts[SERVER], self.parts[self._world.label_holder]
        outputs = int(task.document["outputs"])
        with torch.no_grad():
            if self._config.task_cut == "server":
                network = build_task(self._config, outputs, 0).eval()
                network.load_state_dict(tensors_under("learned/task.", server.tensors))
                return network(clear)
            if self._config.task == "ranking":
                coder = TextCoder.from_json(task.document["candidates"])
                inputs = _inputs(self._world, self._world.label_holder, coder)
                reader = CandidateReader(self._config, task.document["reader"], coder, 0).eval()
                reader.load_state_dict(tensors_under("task.", task.tensors))
                assert inputs.texts is not None
                return ranked(reader, noised, inputs.texts, inputs.by_row[0])
            network = build_task(self._config, outputs, 0).eval()
            network.load_state_dict(tensors_under("task.", task.tensors))
            return network(noised)

    def protected(self, noised: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return the protected codes, as they leave."""
        found = {}
        server = self.parts[SERVER]
        for name in server.document["attributes"]:
            mapper = build_mapper(self._config, name, 0).eval()
            mapper.load_state_dict(tensors_under(f"mapper/{name}/mapper.", server.tensors))
            with torch.no_grad():
                values = mapper(noised)
            drawn = torch.randn(values.shape, generator=torch.Generator().manual_seed(1))
            found[name] = values + drawn.to(values.dtype) * self._config.protected_noise
        return found


def _inputs(world: World, party: str, coder: FieldCoder | TextCoder) -> Inputs:
    table = world.tables[party]
    return coder.transform(table, np.arange(table.rows))


def applied(module: torch.nn.Module, inputs: Inputs, size: int = 4096) -> torch.Tensor:
    """Return what a local model makes of all rows."""
    module.eval()
    with torch.no_grad():
        parts = torch.arange(len(inputs.is_there)).split(size)
        return torch.cat([module(*inputs.take(part)) for part in parts])


def read_attribute(
    world: World, codes: torch.Tensor, name: str, kinds: tuple[str, ...] = ATTACKS, members: int = 5, seed: int = 77
) -> dict[str, Any]:
    """Return what attackers read of an attribute from codes of all rows."""
    values, classes = codes.double().numpy(), world.attribute(name)
    split = world.split
    found = {}
    for kind in kinds:
        said = attack(
            kind,
            values[split.train],
            classes[split.train],
            values[split.validation],
            classes[split.validation],
            values[split.test],
            classes=int(classes.max()) + 1,
            seed=seed,
            members=members,
        )
        measured = measure_inference(classes[split.test], said.test, classes[split.validation], said.validation)
        found[kind] = measured.to_json()
    return found


def task_numbers(world: World, logits: torch.Tensor) -> dict[str, float]:
    """Return how good the task is on test rows, and how groups are decided for, at 0.5 and at the base rate."""
    rows = world.split.test
    labels = world.tables[world.label_holder].labels
    assert labels is not None
    truth = np.unique(labels.astype(str), return_inverse=True)[1]
    scores = torch.sigmoid(logits[:, 0].double()).numpy()
    base = float(truth[world.split.train].mean())
    found: dict[str, float] = {"auc": float(evaluate("binary", truth[rows], scores[rows], (0, 1)).metrics["auc"])}
    for name, decided in (("", scores >= 0.5), (" at base rate", scores >= base)):
        measured = class_scores(truth[rows], decided[rows].astype(np.int64))
        for key, value in measured.to_json().items():
            found[f"{key}{name}"] = float(value)
        for attribute in ("gender", "age"):
            groups = world.attribute(attribute)
            counts = GroupCounts.from_rows(truth[rows], decided[rows].astype(np.int64), groups[rows])
            for gap, measure in (
                ("parity", demographic_parity_gap),
                ("odds", equalised_odds_gap),
                ("opportunity", equal_opportunity_gap),
            ):
                one = measure(counts)
                found[f"{gap} {attribute}{name}"] = float("nan") if one.value is None else one.value
    return found


def ranking_numbers(world: World, logits: torch.Tensor) -> dict[str, float]:
    """Return how well candidates of test rows are ranked, and by how much groups differ in it."""
    rows = world.split.test
    labels = world.tables[world.label_holder].labels
    assert labels is not None
    clicks = clicks_of(labels[rows])
    is_there = (clicks >= 0).numpy()
    scores = logits[torch.from_numpy(rows)].double().numpy()[:, : clicks.shape[1]]
    impressions = np.repeat(np.arange(len(rows)), is_there.sum(axis=1))
    ranking = rank_impressions(scores[is_there], clicks.numpy()[is_there], impressions)
    found = dict(ranking.means())
    for attribute in ("gender", "age"):
        gap = ranking.gap("auc", world.attribute(attribute)[rows])
        found[f"gap {attribute}"] = float("nan") if gap.value is None else gap.value
    return found
