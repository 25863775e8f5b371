"""Find the rows all parties share, whatever the protocol."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from colonnade.alignment.intersection import Intersection, PartnerRows, Places, partners_of
from colonnade.alignment.messages import GivenRows
from colonnade.data import AlignedRows, PartyTable, id_marks, matched_rows, normalised_ids, rows_of_marks
from colonnade.errors import AlignmentError, ConfigError
from colonnade.session import Alignment, Session

__all__ = ["Overlap", "align", "align_in_one_place", "align_with_each", "count_shared", "find_overlap"]

_ECDH = "ecdh: private set intersection, so that no party shows an id the other does not have"
_REUSED = f"{_ECDH}; found before and used again"
_GIVEN = "given: rows matched by another tool, in the same order at all parties"
_NONE = "none: this party holds no table"


@dataclasses.dataclass(frozen=True, eq=False)
class Overlap:
    """What a party knows after an alignment alone."""

    rows: int
    partners: dict[str, PartnerRows]
    """Of the lead: every other party; of each of these: the lead."""
    shared: int | None
    """How many rows all parties have, or None where this party is not told."""
    is_reused: bool
    aligned: AlignedRows
    """The shared rows, where this party may know them; otherwise all of them are rest."""
    hints: tuple[str, ...] = ()
    """By which rule more rows might be shared, where they are few."""

    def to_json(self) -> dict[str, Any]:
        """Return what the party learnt, as JSON values; None where it is not told."""
        return {
            "rows": self.rows,
            "partners": {partner: dataclasses.asdict(one) for partner, one in self.partners.items()},
            "shared": self.shared,
            "rest": None if self.shared is None else self.rows - self.shared,
            "reused": self.is_reused,
            "hints": list(self.hints),
        }


def find_overlap(session: Session, table: PartyTable) -> Overlap:
    """Find shared rows, or only how many there are, as the run's alignment.mode says, and nothing else."""
    parties = session.method.parties_with_rows(session.plan)
    if session.party not in parties:
        return Overlap(0, {}, None, False, _nothing(_NONE))
    mode = session.plan.alignment.mode
    if session.plan.alignment.protocol == "given" or not partners_of(session):
        if mode != "both_learn":
            raise ConfigError(f"Rows that another tool matched are known to all, so mode = '{mode}' cannot be used.")
        aligned = align(session, table)
        partners = {peer.peer: PartnerRows(None, len(aligned)) for peer in partners_of(session)}
        return Overlap(table.rows, partners, len(aligned), False, aligned)
    intersection = Intersection(session, table)
    return dataclasses.replace(_overlap(session, table, intersection), hints=tuple(intersection.hints))


def _overlap(session: Session, table: PartyTable, intersection: Intersection) -> Overlap:
    mode, is_pair = session.plan.alignment.mode, len(session.method.parties_with_rows(session.plan)) == 2
    nothing = _aligned(np.empty(0, np.int64), table.rows, _ECDH)
    if mode == "both_learn":
        positions = intersection.shared_by_all()
        aligned = _aligned(positions, table.rows, _REUSED if intersection.is_reused else _ECDH)
        if is_pair:
            intersection.partners = {
                peer: PartnerRows(one.rows, len(aligned)) for peer, one in intersection.partners.items()
            }
        return Overlap(table.rows, intersection.partners, len(aligned), intersection.is_reused, aligned)
    if mode == "size_only":
        counts = intersection.sizes()
        partners = {peer: PartnerRows(intersection.partners[peer].rows, count) for peer, count in counts.items()}
        return Overlap(table.rows, partners, next(iter(counts.values())) if is_pair else None, False, nothing)
    found = list(intersection.shared_with_each().values())
    if not found:
        return Overlap(table.rows, intersection.partners, None, False, nothing)
    by_all = found[0]
    for positions in found[1:]:
        by_all = by_all[np.isin(by_all, positions)]
    return Overlap(table.rows, intersection.partners, len(by_all), False, _aligned(by_all, table.rows, _ECDH))


def align(session: Session, table: PartyTable) -> AlignedRows:
    """Find the rows that all parties with rows hold; the order depends on the seed and the ids only.

    A party without rows has no part in it, and gets nothing.
    """
    if session.party not in session.method.parties_with_rows(session.plan):
        return _nothing(_NONE)
    if not partners_of(session):
        own = id_marks(table.ids, session.seed("alignment"), session.plan.alignment)
        return AlignedRows(*rows_of_marks(own, np.sort(own)), "one party only")
    if session.plan.alignment.protocol == "given":
        return _take_given(session, table)
    if session.plan.alignment.mode != "both_learn":
        raise ConfigError(
            f"alignment.mode = '{session.plan.alignment.mode}' does not tell all parties which rows they share, so "
            "nothing can be trained or scored. Use both_learn, or 'colonnade align' to look only."
        )
    intersection = Intersection(session, table)
    positions = intersection.shared_by_all()
    protocol = _REUSED if intersection.is_reused else _ECDH
    return _aligned(positions, table.rows, protocol, " ".join(intersection.hints))


def align_with_each(session: Session, table: PartyTable) -> dict[str, AlignedRows]:
    """Find the rows that the lead shares with each other party, pair by pair; there may be none.

    In the mode "one_learns" only the lead does, and the others return nothing, as a party without rows always does.
    """
    if not partners_of(session):
        return {}
    if session.plan.alignment.mode == "size_only":
        raise ConfigError("alignment.mode = 'size_only' tells nobody which rows are shared. Count them instead.")
    intersection = Intersection(session, table)
    found = intersection.shared_with_each()
    hint = " ".join(intersection.hints)
    return {peer: _aligned(positions, table.rows, _ECDH, hint) for peer, positions in found.items()}


def count_shared(session: Session, table: PartyTable) -> dict[str, int]:
    """Find only how many rows the lead shares with each other party; nobody learns which."""
    return Intersection(session, table).sizes() if partners_of(session) else {}


def align_in_one_place(
    tables: Mapping[str, PartyTable], lead: str, rule: Alignment, seed: int
) -> dict[str, AlignedRows]:
    """Find what `align` finds, where all tables are in one place: for the comparison only a simulation can make."""
    own = tables[lead]
    if rule.protocol == "given":
        return {
            party: _aligned(matched_rows(table, table.matches).positions, table.rows, _GIVEN)
            for party, table in tables.items()
        }
    shared, places = np.arange(own.rows), {}
    for party, table in tables.items():
        if party != lead:
            theirs = normalised_ids(table.ids_for(lead), rule, where=table.name)
            row_of = {one: row for row, one in enumerate(theirs) if one}
            ours = normalised_ids(own.ids_for(party), rule, where=own.name)
            places[party] = np.array([row_of.get(one, -1) for one in ours], dtype=np.int64)
            shared = shared[places[party][shared] >= 0]
    ordered = shared[np.argsort(id_marks(own.ids[shared], seed, rule))]
    found = {party: rows[ordered] for party, rows in places.items()} | {lead: ordered}
    return {party: _aligned(found[party], tables[party].rows, _ECDH) for party in tables}


def _take_given(session: Session, table: PartyTable) -> AlignedRows:
    """Take rows as another tool matched them, if all parties have as many and by the same keys."""
    digest = hashlib.sha256(b"colonnade given" + session.seed("alignment").to_bytes(8, "little"))
    matched = matched_rows(table, table.matches)
    for key in matched.keys:
        digest.update(len(key).to_bytes(4, "little") + key)
    own = GivenRows(len(matched.keys), digest.digest())
    for peer in partners_of(session):
        peer.send(own)
        theirs = peer.receive(GivenRows)
        if (theirs.count, theirs.digest) != (own.count, own.digest):
            raise AlignmentError(
                f"The rows given as matched differ between '{session.party}' ({own.count}) and '{peer.peer}' "
                f"({theirs.count}), or are in another order. Make both lists anew from one matching."
            )
    if session.stage != "predict":
        session.policy.check_shared_rows(session.party, len(matched.keys))
    return _aligned(matched.positions, table.rows, _GIVEN)


def _nothing(protocol: str) -> AlignedRows:
    return AlignedRows(np.empty(0, np.int64), np.empty(0, np.int64), protocol)


def _aligned(positions: Places, rows: int, protocol: str, hint: str = "") -> AlignedRows:
    is_rest = np.ones(rows, dtype=bool)
    is_rest[positions] = False
    return AlignedRows(positions, np.flatnonzero(is_rest), protocol, hint)
