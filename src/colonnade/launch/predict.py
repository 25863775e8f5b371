"""Score new rows with a trained run, all parties in one process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from colonnade.data import PartyTable, Split
from colonnade.errors import ConfigError
from colonnade.launch.align import align_in_the_open
from colonnade.launch.folder import RunFolder
from colonnade.launch.settings import config_from_json
from colonnade.launch.threads import play_in_threads
from colonnade.session import Holding, Party, Policy, Scores, derive_seed

if TYPE_CHECKING:
    from torch import nn

    from colonnade.launch.run import Run

__all__ = ["predict_in_threads"]


def predict_in_threads(
    run: Run,
    tables: Mapping[str, PartyTable],
    modules: Mapping[str, nn.Module] | None,
    policies: Mapping[str, Policy] | None,
) -> tuple[Scores, PartyTable]:
    """Score new rows with a trained run; return the scores and the table of the party that learns them."""
    plan = replace(run.plan, stage="predict")
    config = config_from_json(run.method, plan.config)
    missing = sorted(set(plan.parties) ^ set(tables))
    if missing:
        raise ConfigError(f"Prediction needs one table per party of the run; check {', '.join(missing)}.")
    plan.check_parties("module", modules or ())
    plan.check_parties("policy", policies or ())
    aligned = align_in_the_open({party: tables[party] for party in plan.parties}, derive_seed(plan.seed, "alignment"))
    nothing = np.empty(0, np.int64)
    holdings = {
        party: Holding(
            tables[party],
            aligned[party],
            Split(nothing, nothing, nothing),
            part=run.parts[party],
            module=(modules or {}).get(party),
        )
        for party in plan.parties
    }
    folder = None if run.folder is None else RunFolder(run.folder).next_prediction()
    parties = {
        party: Party(party, (policies or {}).get(party, Policy()), None if folder is None else folder / party)
        for party in plan.parties
    }
    outcome = play_in_threads(run.method, plan, config, parties, holdings)
    party, scores = next((name, found.scores) for name, found in outcome.results.items() if found.scores is not None)
    # In the order of the label holder's own table, as people expect; the agreed order looks random to them.
    order = np.argsort(aligned[party].positions)
    values = replace(scores, rows=scores.rows[order], values=scores.values[order])
    return values, tables[party].take(aligned[party].positions[order])
