"""Rows of a public data set as three parties hold them, with the rows that each bank trains, validates and tests on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.papers.playing import play_parties
from colonnade import PartyTable, PrADA
from colonnade.data import AlignedRows, Split
from colonnade.datasets import CENSUS_GROUPS, CENSUS_SHARED, CENSUS_WIDTHS, census_income, default_credit
from colonnade.methods.prada import METHOD
from colonnade.session import Holding, ModelPart, Pair, Result, RunPlan
from colonnade.settings import config_to_json

HOLDER, SOURCE, TARGET = "company", "sister", "bank"
NOBODY = np.empty(0, np.int64)
LOW_LIMIT = 50_000
CREDIT: dict[str, Any] = {
    "groups": {
        "status": ("PAY_0", *(f"PAY_{month}" for month in range(2, 7))),
        "bills": tuple(f"BILL_AMT{month}" for month in range(1, 7)),
        "payments": tuple(f"PAY_AMT{month}" for month in range(1, 7)),
    }
}
MADE_UP: dict[str, Any] = {"groups": {"one": ("c0", "c1"), "two": ("c2", "c3")}, "key_size": "insecure_test"}
CENSUS: dict[str, Any] = {"groups": CENSUS_GROUPS, "embeddings": CENSUS_WIDTHS, "shared_tables": CENSUS_SHARED}


@dataclass(frozen=True)
class Rows:
    """Which people a bank trains, validates and tests on, by id."""

    train: np.ndarray
    validation: np.ndarray
    test: np.ndarray


@dataclass(frozen=True)
class World:
    """Three tables, and the banks' rows."""

    company: PartyTable
    banks: Mapping[str, PartyTable]
    rows: Mapping[str, Rows]

    def pair(self, table: PartyTable, bank: str) -> Pair:
        """Return the rows that a party shares with a bank, in the order of ids."""
        rows = self.rows[bank]
        parts = [np.sort(one) for one in (rows.train, rows.validation, rows.test)]
        every = np.sort(np.concatenate(parts))
        place_of = pd.Index(table.ids)
        aligned = AlignedRows(place_of.get_indexer(every), np.empty(0, np.int64), "given by the experiment")
        return Pair(aligned, Split(*(np.searchsorted(every, one) for one in parts)))

    def holding(self, party: str, plan: RunPlan, part: ModelPart | None) -> Holding:
        """Return what a party brings."""
        if party == HOLDER:
            present = [bank for bank in self.banks if bank in plan.parties]
            pairs = {bank: self.pair(self.company, bank) for bank in present}
            first = pairs[present[0]]
            return Holding(self.company, first.aligned, first.split, part=part, pairs=pairs)
        pair = self.pair(self.banks[party], party)
        return Holding(self.banks[party], pair.aligned, pair.split, part=part, pairs={HOLDER: pair})


def play_stage(
    world: World,
    config: PrADA,
    stage: str,
    *,
    seed: int,
    parts: Mapping[str, ModelPart] | None = None,
    banks: Sequence[str] = (TARGET, SOURCE),
    lines: dict[str, list[dict[str, Any]]] | None = None,
) -> dict[str, Result]:
    """Play one stage between threads and return every party's result; ``lines`` takes what they record on the way."""
    roles = {"feature_holder": (HOLDER,)}
    roles |= {role: (party,) for role, party in (("target", TARGET), ("source", SOURCE)) if party in banks}
    plan = RunPlan(name="paper", method="prada", roles=roles, seed=seed, config=config_to_json(config))
    plan = replace(METHOD.in_stage(plan, stage), after=None)
    return play_parties(plan, config, lambda party: world.holding(party, plan, (parts or {}).get(party)), lines)


def census_world(seed: int, positives: int) -> World:
    """Return the experiment on Census-Income: the source's customers are no postgraduates, the target's are."""
    data = census_income(positives=positives, seed=seed)
    label = "income_over_50k"
    return World(
        PartyTable(data.company, id="id", name="company"),
        {
            TARGET: PartyTable(data.target, id="id", label=label, unlabelled=True, name="target"),
            SOURCE: PartyTable(data.source, id="id", label=label, name="source"),
        },
        {
            SOURCE: Rows(data.source_train, data.source_validation, NOBODY),
            TARGET: Rows(
                np.concatenate([data.target_labelled, data.target_unlabelled]), data.target_validation, data.target_test
            ),
        },
    )


def credit_world(seed: int, positives: int) -> World:
    """Return a stand-in for the loan data: the source's clients have a high credit limit, the target's a low one.

    The company knows how clients have paid for half a year. The target has 2000 labelled clients, so many of whom did
    not pay; 1500 are set apart to validate and 1500 to test, always the same.
    """
    tables = default_credit(label_at="profile")
    profile, payment = tables["profile"], tables["payment"]
    is_low = (profile["LIMIT_BAL"] <= LOW_LIMIT).to_numpy()
    fixed = np.random.default_rng(17)
    low = fixed.permutation(profile["id"].to_numpy()[is_low])
    validation, test, rest = np.split(low, (1500, 3000))
    high = fixed.permutation(profile["id"].to_numpy()[~is_low])
    source_validation, source_rest = np.split(high, (2000,))
    draw = np.random.default_rng(seed)
    by_id = profile.set_index("id")["default"]
    kinds = [draw.permutation(rest[by_id.loc[rest].to_numpy() == kind]) for kind in (1, 0)]
    labelled = np.concatenate([kinds[0][:positives], kinds[1][: 2000 - positives]])
    target = profile[is_low].copy()
    hidden = target["id"].isin(np.setdiff1d(rest, labelled))
    target["default"] = target["default"].astype(float).mask(hidden)
    source_train = draw.permutation(source_rest)[:18_000]
    return World(
        PartyTable(payment, id="id", name="company"),
        {
            TARGET: PartyTable(target, id="id", label="default", unlabelled=True, name="target"),
            SOURCE: PartyTable(profile[~is_low], id="id", label="default", name="source"),
        },
        {SOURCE: Rows(source_train, source_validation, NOBODY), TARGET: Rows(rest, validation, test)},
    )


def made_up_world(seed: int, positives: int) -> World:
    """Return a few made-up rows: of the target's, so many positives have a label, and as many others."""
    draw = np.random.default_rng(seed)
    ids = np.arange(280)
    latent = draw.normal(size=len(ids))
    company = pd.DataFrame({"id": ids})
    for place in range(4):
        company[f"c{place}"] = np.digitize(latent + draw.normal(size=len(ids)), (-1.0, 0.0, 1.0)).astype(str)
    banks = pd.DataFrame({"id": ids, "age": draw.normal(size=len(ids)), "label": (latent > 0).astype(float)})
    target, source = banks[180:].copy(), banks[:180]
    learned = target[:60]
    labelled = np.concatenate([learned["id"][learned["label"] == kind][:positives] for kind in (0.0, 1.0)])
    target.loc[learned.index[~learned["id"].isin(labelled)], "label"] = np.nan
    return World(
        PartyTable(company, id="id", name="company"),
        {
            TARGET: PartyTable(target, id="id", label="label", unlabelled=True, name="target"),
            SOURCE: PartyTable(source, id="id", label="label", name="source"),
        },
        {SOURCE: Rows(ids[:150], ids[150:180], NOBODY), TARGET: Rows(ids[180:240], ids[240:260], ids[260:])},
    )


def as_one(world: World) -> World:
    """Return a world in which both banks are one organisation: the target has the source's labelled rows too."""
    frames = []
    for table in world.banks.values():
        columns = {"id": table.ids, "label": table.labels}
        frames.append(pd.DataFrame(columns | {one.name: table.values(one.name) for one in table.columns}))
    both = PartyTable(pd.concat(frames), id="id", label="label", unlabelled=True, name="both")
    target, source = world.rows[TARGET], world.rows[SOURCE]
    train = np.concatenate([target.train, source.train])
    return World(world.company, {TARGET: both}, {TARGET: Rows(train, target.validation, target.test)})


def parts_of(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return every party's part of the model."""
    return {party: one.part for party, one in results.items() if one.part is not None}
