"""Public data as parties hold it that share few rows: who has which columns, whose rows are which, what is held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.papers.playing import play_parties
from colonnade import PartyTable
from colonnade.data import AlignedRows, Split
from colonnade.datasets import cifar10_halves, digits_halves, mfeat, wikipedia_crossmodal
from colonnade.methods.fedcvt import FedCVT
from colonnade.session import Holding, Result, RunPlan
from colonnade.settings import config_to_json

Rows = np.ndarray[Any, Any]

VIEWS = {
    "fou / kar": (("fou",), ("kar",)),
    "zer / fou": (("zer",), ("fou",)),
    "fac+fou+kar / pix+zer+mor": (("fac", "fou", "kar"), ("pix", "zer", "mor")),
    "fou / kar / zer": (("fou",), ("kar",), ("zer",)),
    "fou / kar / zer / mor": (("fou",), ("kar",), ("zer",), ("mor",)),
    "fou / kar / zer / mor / pix / fac": (("fou",), ("kar",), ("zer",), ("mor",), ("pix",), ("fac",)),
}
HALF = (3, 32, 16)
VALIDATION = 200
CIFAR_TRAIN, CIFAR_TEST, CIFAR_VALIDATION = 20_000, 3_000, 1_000


@dataclass(frozen=True)
class Source:
    """A data set: every party's columns of all rows, and which rows are held out always."""

    tables: Mapping[str, pd.DataFrame]
    label: str
    test: Rows | None = None
    validation: Rows | None = None
    tests: int = 0
    """How many rows are drawn to test on, where the data has no test rows of its own."""
    images: bool = False


@cache
def source_of(data: str) -> Source:
    """Return a data set; the first table has the label."""
    if data.startswith("digits"):
        tables = digits_halves()
        return Source({"a": tables["left"], "b": tables["right"]}, "digit", tests=540)
    if data.startswith("mfeat "):
        views = VIEWS[data.removeprefix("mfeat ")]
        names = "abcdef"[: len(views)]
        return Source(mfeat(views=dict(zip(names, views, strict=True)), label_at="a"), "digit", tests=500)
    if data.startswith("wikipedia "):
        first = data.removeprefix("wikipedia ").partition(" / ")[0]
        tables = wikipedia_crossmodal(label_at=first)
        other = next(side for side in tables if side != first)
        # The data's own split: its first 2173 articles are for training.
        return Source({"a": tables[first], "b": tables[other]}, "category", test=np.arange(2173, 2866))
    train, test = (cifar10_halves(part=part, label_at="left", lossless=True) for part in ("train", "test"))
    held_out = CIFAR_TEST + CIFAR_VALIDATION
    tables = {
        party: pd.concat([train[side].iloc[:CIFAR_TRAIN], test[side].iloc[:held_out]], ignore_index=True)
        for party, side in (("a", "left"), ("b", "right"))
    }
    for table in tables.values():
        table["id"] = np.arange(len(table))
    # Validation rows come from the test images too, so that a tenth of 20,000 can be shared.
    last = np.arange(CIFAR_TRAIN, CIFAR_TRAIN + held_out)
    return Source(tables, "label", test=last[:CIFAR_TEST], validation=last[CIFAR_TEST:], images=True)


@dataclass(frozen=True)
class World:
    """What every party holds: its table, and which of its rows are shared, held out, or its own."""

    tables: Mapping[str, PartyTable]
    aligned: Mapping[str, AlignedRows]
    split: Split
    images: bool
    distinct: int
    """How many different people, images or articles there are to train on."""

    def holding(self, party: str) -> Holding:
        """Return what a party brings."""
        return Holding(self.tables[party], self.aligned[party], self.split)


def make_world(data: str, shared: int | None, seed: int, nonaligned: str = "disjoint") -> World:
    """Draw rows to hold out and to share; ``shared`` None shares all that is not held out.

    Other rows are halved among the parties (``disjoint``), or all parties have them and do not know
    (``hidden_overlap``, as in the paper).
    """
    source = source_of(data)
    count = len(next(iter(source.tables.values())))
    draw = np.random.default_rng(1000 + seed)
    test = source.test if source.test is not None else draw.permutation(count)[: source.tests]
    rest = draw.permutation(np.setdiff1d(np.arange(count), test))
    if source.validation is None:
        validation, rest = np.split(rest, (VALIDATION,))
    else:
        validation, rest = source.validation, np.setdiff1d(rest, source.validation)
        rest = draw.permutation(rest)
    common, others = np.split(rest, (len(rest) if shared is None else shared,))
    parties = list(source.tables)
    own = dict(zip(parties, np.array_split(others, len(parties)), strict=True))
    if nonaligned == "hidden_overlap":
        own = dict.fromkeys(parties, others)
    together = np.concatenate([common, validation, test])
    tables, aligned = {}, {}
    for party, frame in source.tables.items():
        chosen = frame.iloc[np.concatenate([together, own[party]])].reset_index(drop=True)
        has_label = source.label in chosen
        tables[party] = PartyTable(chosen, id="id", label=source.label if has_label else None, name=party)
        places = np.arange(len(chosen))
        aligned[party] = AlignedRows(places[: len(together)], places[len(together) :], "given by the experiment")
    ends = np.cumsum([len(common), len(validation), len(test)])
    split = Split(np.arange(ends[0]), np.arange(ends[0], ends[1]), np.arange(ends[1], ends[2]))
    return World(tables, aligned, split, source.images, len(common) + len(np.unique(others)))


def played(world: World, config: FedCVT, seed: int) -> dict[str, Result]:
    """Train with the product, all parties as threads."""
    label, *others = world.tables
    roles: dict[str, Sequence[str]] = {"label_holder": (label,), "feature_holder": tuple(others)}
    plan = RunPlan(name="paper", method="fedcvt", roles=roles, seed=seed, config=config_to_json(config))
    return play_parties(plan, config, world.holding)
