"""Divide shared rows into parts with about the same share of every class, though one party alone knows the classes."""

from __future__ import annotations

from itertools import permutations

import numpy as np

from colonnade.alignment.messages import SplitNumber
from colonnade.data import AlignedRows, LabelEncoder, PartyTable, Split
from colonnade.errors import TableError
from colonnade.session import Method, RunPlan, Session

__all__ = ["agreed_split", "divides_by_labels", "is_matched_by_pair", "split_number", "tells_split"]


def is_matched_by_pair(method: Method, plan: RunPlan) -> bool:
    """Tell whether rows are shared, and divided, pair by pair."""
    is_pairwise = method.stage(plan.stage).rows == "pairwise" and len(method.parties_with_rows(plan)) > 2
    return is_pairwise and plan.alignment.protocol != "given"


def tells_split(method: Method, plan: RunPlan, party: str, peer: str) -> bool:
    """Tell whether a party's labels decide how the rows that it shares with a peer are divided.

    One party must know all labels of rows that are divided together, and have a channel to every other that has them.
    """
    with_rows, is_by_pair = method.parties_with_rows(plan), is_matched_by_pair(method, plan)
    sharing = {party, peer} if is_by_pair else {*with_rows}
    labelled = {one for one in sharing if method.has_label(plan.role_of(one))}
    return (
        plan.is_stratified
        and method.stage(plan.stage).rows != "own"
        and labelled == {party}
        and {party, peer} <= {*with_rows}
        and all(method.are_aligned(plan, party, other) for other in sharing - {party})
    )


def divides_by_labels(method: Method, plan: RunPlan) -> bool:
    """Tell whether anybody tells another how rows are divided."""
    return any(tells_split(method, plan, *pair) for pair in permutations(plan.parties, 2))


def agreed_split(session: Session, table: PartyTable, rows: AlignedRows, *peers: str) -> Split:
    """Divide rows that a party shares with these peers, or with all, as its labels or theirs decide."""
    method, plan, number = session.method, session.plan, 0
    # First, so that all parties refuse too few rows alike.
    split = plan.split(len(rows))
    channels = [one for one in session.all_channels if not peers or one.peer in peers]
    told = [one for one in channels if tells_split(method, plan, session.party, one.peer)]
    if told or method.parties_with_rows(plan) == (session.party,):
        number = split_number(plan, table, rows)
    for channel in told:
        channel.send(SplitNumber(number))
    for channel in channels:
        if tells_split(method, plan, channel.peer, session.party):
            number = channel.receive(SplitNumber).number
    return plan.split(len(rows), number) if number else split


def split_number(plan: RunPlan, table: PartyTable, rows: AlignedRows) -> int:
    """Return which way of dividing rows spreads their classes most evenly; the first of all where there are none.

    Rows without a label count as a class of their own.
    """
    if table.labels is None or not plan.is_stratified:
        return 0
    labels, is_known = table.labels[rows.positions], table.is_labelled[rows.positions]
    try:
        encoder = LabelEncoder.fit(labels[is_known], str(plan.config.get("task", "auto")))
    except TableError:
        return 0  # what is wrong with them is said where they are to be learned
    if encoder.task == "regression":
        return 0
    classes = np.full(len(labels), len(encoder.classes))
    classes[is_known] = encoder.encode(labels[is_known]).astype(np.int64)
    return plan.most_even_split(classes)
