"""The same model without the partners, and with all columns in one place: what federating gains, and its ceiling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from colonnade import alignment
from colonnade.alignment import align_in_one_place
from colonnade.data import AlignedRows, PartyTable
from colonnade.errors import TrainingFailed, UsageError
from colonnade.methods import method_named
from colonnade.metrics import Evaluation
from colonnade.session import (
    Holding,
    Method,
    Observer,
    Participant,
    RunPlan,
    Scores,
    Session,
    derive_seed,
    play,
    taking_part,
)
from colonnade.settings import validated

__all__ = ["ceiling", "join_tables", "scores_alone"]


def scores_alone(session: Session, config: Any, holding: Holding, observer: Observer | None) -> Scores | None:
    """Score held-out rows by the same model trained on the same rows by the label holder alone, if it has partners."""
    if session.role != session.lead or not session.all_channels or not holding.table.columns:
        return None
    return _play_alone(session.method, session.plan, config, holding, observer)


def ceiling(plan: RunPlan, tables: Mapping[str, PartyTable], observer: Observer | None) -> dict[str, Evaluation]:
    """Judge the same model trained with all columns in one place: only where all tables are on one machine."""
    method = method_named(plan.method)
    if len(method.parties_with_rows(plan)) < 2 or not _can_be_alone(method, plan):
        return {}  # before the tables are joined: parties need not have a row in common that all of them know
    config = validated(method.config, plan.config, "config")
    found = _play_alone(method, plan, config, join_tables(method, plan, tables), observer)
    judged = None if found is None else found.at(plan.evaluate.threshold).evaluation()
    return {} if judged is None else {"central": judged}


def join_tables(method: Method, plan: RunPlan, tables: Mapping[str, PartyTable]) -> Holding:
    """Put the columns that all parties have of the shared rows into one table."""
    lead = method.leader_of(plan)
    seed = derive_seed(plan.seed, "alignment")
    with_rows = {party: tables[party] for party in method.parties_with_rows(plan)}
    aligned = align_in_one_place(with_rows, lead, plan.alignment, seed)
    count = len(aligned[lead])
    columns: dict[str, Any] = {"id": np.arange(count)}
    types = {}
    for party, rows in aligned.items():
        for column in tables[party].columns:
            name = f"{party}: {column.name}"
            columns[name] = tables[party].values(column.name)[rows.positions]
            if column.kind == "date":
                columns[name] = pd.to_datetime(columns[name], unit="D", utc=True)
            else:
                types[name] = column.kind
    labels = tables[lead].labels
    if labels is not None:
        columns["label"] = labels[aligned[lead].positions]
    table = PartyTable(
        pd.DataFrame(columns),
        id="id",
        label="label",
        types=types,
        most_categories=max(tables[party].most_categories for party in aligned),
        name="all columns in one place",
    )
    rows = AlignedRows(np.arange(count), np.empty(0, np.int64), "already in one place")
    is_divided = alignment.divides_by_labels(method, plan)
    return Holding(table, rows, plan.split(count, alignment.split_number(plan, table, rows) if is_divided else 0))


def _play_alone(
    method: Method, plan: RunPlan, config: Any, holding: Holding, observer: Observer | None
) -> Scores | None:
    """Train as the only party, where the method's lead can; nothing crosses."""
    if not _can_be_alone(method, plan):
        return None
    lead = method.leader_of(plan)
    solo = replace(plan, roles={method.lead_in(plan): (lead,)})
    # Shown as what it is: not the run itself, and not to be taken for its start.
    relabelled = None if observer is None else lambda progress: observer(replace(progress, stage="comparison"))
    try:
        session = Session(Participant(lead), method, solo, {}, observer=relabelled)
        with taking_part(session):
            result = play(session, holding, config)
    except (UsageError, TrainingFailed):
        # What cannot be learned alone, from columns that say nothing, must not cost what was learned together.
        return None
    return result.scores


def _can_be_alone(method: Method, plan: RunPlan) -> bool:
    """Tell whether one party can play the stage without others."""
    return plan.stage == "train" and all(
        role.at_least == 0 for role in method.roles if role.name != method.lead_in(plan)
    )
