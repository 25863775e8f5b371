"""The same model without the partners, and with all columns in one place: what federating gains, and its ceiling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from colonnade.data import AlignedRows, PartyTable
from colonnade.metrics import Evaluation
from colonnade.session import Holding, Method, RunPlan

__all__ = ["compare_with_baselines", "join_tables"]

PlayAlone = Callable[[Method, RunPlan, Any, str, Holding], Evaluation | None]


def compare_with_baselines(
    method: Method, plan: RunPlan, config: Any, holdings: Mapping[str, Holding], play_alone: PlayAlone
) -> dict[str, Evaluation | None]:
    """Train on the same rows with the label holder's columns only, and with all columns in one table.

    Only methods whose lead can play without partners have these.
    """
    others_may_be_absent = all(role.at_least == 0 for role in method.roles if role.name != method.lead)
    (lead,) = plan.roles[method.lead]
    if not others_may_be_absent or len(holdings) < 2:
        return {}
    found: dict[str, Evaluation | None] = {}
    if holdings[lead].table.columns:
        found["alone"] = play_alone(method, plan, config, lead, holdings[lead])
    found["central"] = play_alone(method, plan, config, lead, join_tables(lead, holdings))
    return found


def join_tables(lead: str, holdings: Mapping[str, Holding]) -> Holding:
    """Put all parties' columns of the shared rows into one table. Only a simulation can."""
    own = holdings[lead]
    count = len(own.aligned)
    columns: dict[str, Any] = {"id": np.arange(count)}
    types = {}
    for party, holding in holdings.items():
        for column in holding.table.columns:
            name = f"{party}: {column.name}"
            columns[name] = holding.table.values(column.name)[holding.aligned.positions]
            types[name] = column.kind
    if own.table.labels is not None:
        columns["label"] = own.table.labels[own.aligned.positions]
    table = PartyTable(pd.DataFrame(columns), id="id", label="label", types=types, name="all columns in one place")
    return Holding(table, AlignedRows(np.arange(count), np.empty(0, np.int64), "already in one place"), own.split)
