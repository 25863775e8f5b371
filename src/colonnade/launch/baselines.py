"""What a federated model is held against: the same without partners, with all columns in one place, and plain ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np
import pandas as pd

from colonnade import alignment
from colonnade.alignment import align_in_one_place
from colonnade.data import AlignedRows, LabelEncoder, PartyTable
from colonnade.errors import TrainingFailed, UsageError
from colonnade.exchanges.holdings import scores_in_terms_of
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
from colonnade.training import Alone, Inputs

__all__ = ["ceiling", "join_tables", "judge_plain", "scores_alone"]

Rows = np.ndarray[Any, Any]


def scores_alone(session: Session, config: Any, holding: Holding, observer: Observer | None) -> Scores | None:
    """Score held-out rows by the same model trained on the same rows by the label holder alone, if it has partners."""
    has_partners = session.role == session.lead and session.all_channels
    if not has_partners or not holding.table.columns or not _can_be_alone(session.method, session.plan):
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


def judge_plain(
    plan: RunPlan,
    tables: Mapping[str, PartyTable],
    parties: tuple[str, ...],
    later: Mapping[str, PartyTable] | None = None,
) -> Evaluation:
    """Judge the better of a regression and a forest of the columns that some parties have, on a run's test rows.

    It learns from the labels of the shared training rows; the label holder by itself also from rows that only it knows.
    With ``later``, which has the same parties' rows of other people, it is judged on these. Only possible where all
    tables are on this machine.
    """
    method = method_named(plan.method)
    (judge,), lead = method.judges_in(plan), method.leader_of(plan)
    is_paired = method.stage(plan.stage).rows == "pairwise"
    met = {judge, lead, *parties} if is_paired else set(method.parties_with_rows(plan))

    def matched(every: Mapping[str, PartyTable]) -> dict[str, AlignedRows]:
        here = {party: every[party] for party in plan.parties if party in met}
        return align_in_one_place(here, lead, plan.alignment, derive_seed(plan.seed, "alignment"))

    def labelled(every: Mapping[str, PartyTable], rows: Rows) -> tuple[Rows, Rows]:
        """Return the places in ``rows`` that have a label, and the labels."""
        table = every[judge]
        if table.labels is None:
            raise UsageError(f"The table of '{judge}' has no labels, so nothing can be judged by them.")
        known = np.flatnonzero(table.is_labelled[rows])
        return known, table.labels[rows[known]]

    aligned = matched(tables)
    told = (one for one, other in permutations(met, 2) if alignment.tells_split(method, plan, one, other))
    numbers = (alignment.split_number(plan, tables[one], aligned[one]) for one in told)
    split = plan.split(len(aligned[judge]), next(numbers, 0))
    places = {party: aligned[party].positions[split.train] for party in parties}
    if parties == (judge,):
        places[judge] = np.concatenate([places[judge], aligned[judge].rest])
    known, values = labelled(tables, places.get(judge, aligned[judge].positions[split.train]))
    if later is None:
        judged, tested = tables, {party: one.positions[split.test] for party, one in aligned.items()}
    else:
        judged, tested = later, {party: one.positions for party, one in matched(later).items()}
    there, truth = labelled(judged, tested[judge])
    blocks = []
    for party in parties:
        inputs = Inputs.fit(tables[party], places[party][known], splines=True)
        learned = inputs.transform(tables[party], places[party][known], dtype=np.float64)
        blocks.append((learned, inputs.transform(judged[party], tested[party][there], dtype=np.float64)))
    learned, held_out = (np.hstack(each) for each in zip(*blocks, strict=True))
    labels = LabelEncoder.of(tables[judge], plan.config.get("task", "auto"))
    seed = derive_seed(plan.seed, "alone")
    fitted = Alone.fit(labels.task, learned, labels.encode(values), len(labels.classes), seed)
    found = scores_in_terms_of(labels, fitted.scores(held_out), there, truth).evaluation()
    if found is None:
        raise UsageError("No labelled row is held out to judge by. Set evaluate.test_fraction.")
    return found


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
    labels, positive = tables[lead].labels, None
    if labels is not None:
        columns["label"] = labels[aligned[lead].positions]
        encoder = LabelEncoder.of(tables[lead], plan.config.get("task", "auto"))
        positive = encoder.classes[1] if encoder.task == "binary" else None
    table = PartyTable(
        pd.DataFrame(columns),
        id="id",
        label="label",
        positive=positive,
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
    """Train as the only party; nothing crosses."""
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
