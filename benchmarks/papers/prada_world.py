"""Rows of a public data set as three parties hold them, with the rows that each bank trains, validates and tests on.

The product divides shared rows by fractions; the experiment's rows are given. So role functions are played here with
rows that are prepared, everything else being the product's own: sessions, channels, messages and ledgers.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from colonnade import PartyTable, PrADA
from colonnade.data import AlignedRows, Split
from colonnade.datasets import CENSUS_GROUPS, CENSUS_SHARED, CENSUS_WIDTHS, census_income
from colonnade.errors import PeerFailed, PeerLost
from colonnade.launch.settings import config_to_json
from colonnade.methods.prada import METHOD
from colonnade.session import Holding, ModelPart, Pair, Party, Result, RunPlan, Session, play
from colonnade.transport import MemoryHub

HOLDER, SOURCE, TARGET = "company", "sister", "bank"
CENSUS = {"groups": CENSUS_GROUPS, "embeddings": CENSUS_WIDTHS, "shared_tables": CENSUS_SHARED}


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
) -> dict[str, Result]:
    """Play one stage between threads and return every party's result."""
    roles = {"feature_holder": (HOLDER,)}
    roles |= {role: (party,) for role, party in (("target", TARGET), ("source", SOURCE)) if party in banks}
    plan = RunPlan(name="paper", method="prada", roles=roles, seed=seed, config=config_to_json(config))
    plan = replace(METHOD.in_stage(plan, stage), after=None)
    hub = MemoryHub(plan.parties)
    found: dict[str, Result] = {}
    errors: list[BaseException] = []

    def run(party: str) -> None:
        peers = [peer for peer in plan.parties if peer != party and METHOD.are_connected(plan, party, peer)]
        session = Session(Party(party), METHOD, plan, {peer: hub.link(party, peer) for peer in peers})
        try:
            holding = world.holding(party, plan, (parts or {}).get(party))
            found[party] = play(session, lambda _: holding, config)
        except BaseException as error:
            errors.append(error)
        finally:
            hub.leave(party)

    threads = [threading.Thread(target=run, args=(party,)) for party in plan.parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((one for one in errors if not isinstance(one, PeerFailed | PeerLost)), errors[0])
    return found


def census_world(seed: int, positives: int, *, source_columns: Sequence[str] = ()) -> World:
    """Return the experiment on Census-Income: the source's customers are no postgraduates, the target's are."""
    data = census_income(positives=positives, seed=seed)
    dropped = [name for name in ("age", "gender", "capital_gain", "capital_loss", "dividends")]
    dropped = [name for name in dropped if source_columns and name not in source_columns]
    label = "income_over_50k"
    source = PartyTable(data.source, id="id", label=label, drop=dropped, name="source")
    target = PartyTable(data.target, id="id", label=label, unlabelled=True, name="target")
    none = np.empty(0, np.int64)
    return World(
        PartyTable(data.company, id="id", name="company"),
        {TARGET: target, SOURCE: source},
        {
            SOURCE: Rows(data.source_train, data.source_validation, none),
            TARGET: Rows(
                np.concatenate([data.target_labelled, data.target_unlabelled]), data.target_validation, data.target_test
            ),
        },
    )


def parts_of(results: Mapping[str, Result]) -> dict[str, Any]:
    """Return every party's part of the model."""
    return {party: one.part for party, one in results.items() if one.part is not None}
