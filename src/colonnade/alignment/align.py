"""Find the rows all parties share, whatever the protocol: both sides, side by side."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from colonnade.alignment.ecdh import answer_partner, ask_partner, random_order
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    DeclaredFormat,
    GivenRows,
    SharedCount,
    SharedRows,
)
from colonnade.alignment.store import AlignmentStore, Unfinished, identity_of
from colonnade.data import (
    LETTERS,
    AlignedRows,
    IdFormat,
    PartyTable,
    explain_nothing_shared,
    id_marks,
    matched_rows,
    normalised_ids,
    rows_of_marks,
)
from colonnade.errors import AlignmentError, ConfigError, WrongContent
from colonnade.session import Alignment, Channel, Session

__all__ = ["align", "align_in_one_place", "align_with_each", "count_shared"]

Places = npt.NDArray[np.int64]

_ECDH = "ecdh: private set intersection, so that no party shows an id the other does not have"
_GIVEN = "given: rows matched by another tool, in the same order at all parties"
_SALT = _RESULT = 16
_LONGEST_ID = 2**20
_MOST_PARTS = 64
_MOST_IDS = 2**32


def align(session: Session, table: PartyTable) -> AlignedRows:
    """Find the rows that all parties of a session hold; the order depends on the seed and the ids only."""
    if not session.all_channels:
        own = id_marks(table.ids, session.seed("alignment"))
        return AlignedRows(*rows_of_marks(own, np.sort(own)), "one party only")
    if session.plan.alignment.protocol == "given":
        return _take_given(session, table)
    if session.plan.alignment.mode != "both_learn":
        raise ConfigError(
            f"alignment.mode = '{session.plan.alignment.mode}' does not tell all parties which rows they share, so "
            "nothing can be trained or scored. Use both_learn, or 'colonnade align' to look only."
        )
    positions = _Meeting(session, table).shared_by_all()
    return _aligned(positions, table.rows, _ECDH)


def align_with_each(session: Session, table: PartyTable) -> dict[str, AlignedRows]:
    """Find the rows that the lead shares with each other party, pair by pair; there may be none.

    In the mode "one_learns" only the lead does, and the others return nothing.
    """
    if session.plan.alignment.mode == "size_only":
        raise ConfigError("alignment.mode = 'size_only' tells nobody which rows are shared. Count them instead.")
    found = _Meeting(session, table).shared_with_each()
    return {peer: _aligned(positions, table.rows, _ECDH) for peer, positions in found.items()}


def count_shared(session: Session, table: PartyTable) -> dict[str, int]:
    """Find only how many rows the lead shares with each other party; nobody learns which."""
    return _Meeting(session, table).sizes()


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
    ordered = shared[np.argsort(id_marks(own.ids[shared], seed))]
    found = {party: rows[ordered] for party, rows in places.items()} | {lead: ordered}
    return {party: _aligned(found[party], tables[party].rows, _ECDH) for party in tables}


class _Meeting:
    """One party's side of finding shared rows."""

    def __init__(self, session: Session, table: PartyTable) -> None:
        self._session, self._table = session, table
        self._rule = session.plan.alignment
        self._is_lead = session.role == session.method.lead
        self._peers = session.all_channels if self._is_lead else (session.channel(session.method.lead),)
        self._ids = {
            peer.peer: normalised_ids(table.ids_for(peer.peer), self._rule, where=table.name) for peer in self._peers
        }
        self._store = AlignmentStore(session.alignments)
        self._states: dict[str, Unfinished] = {}

    def shared_by_all(self) -> Places:
        """Return this party's rows that all parties hold, in the agreed order."""
        return self._lead_all() if self._is_lead else self._follow()

    def shared_with_each(self) -> dict[str, Places]:
        """Return this party's rows that the lead shares with it, or the lead's that it shares with each."""
        if self._is_lead:
            return {peer.peer: self._share(peer) for peer in self._peers}
        (lead,) = self._peers
        if self._rule.mode == "both_learn":
            return {lead.peer: self._follow(may_be_none=True)}
        self._answer(lead)
        self._unfinished(lead).discard()
        return {}

    def _share(self, peer: Channel) -> Places:
        """Return the lead's rows that one partner has too, and tell it if it may know."""
        rows, places = self._meet(peer, peer.receive(AlignmentOffer))
        if self._rule.mode == "both_learn":
            return self._announce({peer: (rows, places)}, rows)
        self._unfinished(peer).discard()
        return self._in_order(rows)

    def sizes(self) -> dict[str, int]:
        """Return how many rows are shared with each."""
        if not self._is_lead:
            (lead,) = self._peers
            self._answer(lead, sizes_only=True)
            self._unfinished(lead).discard()
            count = lead.receive(SharedCount).count
            if not 0 <= count <= len(self._rows(lead)):
                raise WrongContent(f"'{lead.peer}' announces more shared rows than '{self._session.party}' has.")
            return {lead.peer: count}
        found = {}
        for peer in self._peers:
            rows, _ = self._meet(peer, peer.receive(AlignmentOffer), sizes_only=True)
            found[peer.peer] = len(rows)
            self._unfinished(peer).discard()
            peer.send(SharedCount(len(rows)))
        return found

    def _lead_all(self) -> Places:
        offers = {peer: self._checked(peer.receive(AlignmentOffer), peer) for peer in self._peers}
        identity = self._identity()
        held = set(self._store.results(identity)).intersection(*(offer.held for offer in offers.values()))
        if held:
            result = max(held)
            for peer in self._peers:
                peer.send(AlignmentOpening(len(self._rows(peer)), b"", result, 0))
            return self._store.load(identity, result)
        met = {peer: self._meet(peer, offer) for peer, offer in offers.items()}
        shared = np.arange(self._table.rows)
        for rows, _ in met.values():
            shared = np.intersect1d(shared, rows, assume_unique=True)
        if not len(shared):
            for peer in self._peers:
                self._unfinished(peer).discard()
            strangers = [peer for peer, (rows, _) in met.items() if not len(rows)] or self._peers
            formats = {self._session.party: IdFormat.of(self._table.ids_for(strangers[0].peer))}
            formats |= {peer.peer: _format_of(offers[peer].format, peer) for peer in strangers}
            raise AlignmentError(explain_nothing_shared(formats, self._rule))
        return self._announce(met, shared)

    def _announce(self, met: Mapping[Channel, tuple[Places, Places]], shared: Places) -> Places:
        """Put shared rows into the agreed order, and tell every partner its own places."""
        ordered = self._in_order(shared)
        result = secrets.token_bytes(_RESULT)
        # Kept before anyone is told: a partner that has it must find it here.
        self._keep(result, ordered)
        for peer, (rows, places) in met.items():
            place_of = np.full(self._table.rows, -1)
            place_of[rows] = places
            peer.send(SharedRows(place_of[ordered], result))
            self._unfinished(peer).discard()
        return ordered

    def _in_order(self, shared: Places) -> Places:
        return shared[np.argsort(id_marks(self._table.ids[shared], self._session.seed("alignment")))]

    def _meet(self, peer: Channel, offer: AlignmentOffer, *, sizes_only: bool = False) -> tuple[Places, Places]:
        """Return the lead's rows that one partner has too, and their places among the partner's blinded ids."""
        self._checked(offer, peer)
        rows, state = self._rows(peer), self._unfinished(peer)
        if state.salt and state.salt == offer.unfinished and not sizes_only:
            state.pieces = min(state.pieces, offer.finished_pieces)
        else:
            state.begin(secrets.token_bytes(_SALT), random_order(rows))
        peer.send(AlignmentOpening(len(rows), state.salt, None, state.pieces))
        session = self._session
        own, theirs = ask_partner(
            peer, session.engine, self._ids[peer.peer], state, offer.count, self._told(peer), sizes_only=sizes_only
        )
        if len(np.unique(own)) != len(own):
            raise WrongContent(f"'{peer.peer}' returned the same blinded id more than once.")
        _, first, second = np.intersect1d(own, theirs, assume_unique=True, return_indices=True)
        session.ledger.mark(
            "aligned", peer=peer.peer, own=len(rows), theirs=offer.count, shared=len(first), sizes_only=sizes_only
        )
        return state.sent_order[first], second

    def _follow(self, *, may_be_none: bool = False) -> Places:
        """Return this party's rows that the lead announces."""
        (lead,) = self._peers
        reused = self._answer(lead)
        if reused is not None:
            return self._store.load(self._identity(), reused)
        shared = lead.receive(SharedRows)
        places, order = shared.places, self._unfinished(lead).sent_order
        fits = places.dtype == np.int64 and places.ndim == 1 and len(np.unique(places)) == len(places)
        fits = fits and bool(((places >= 0) & (places < len(order))).all()) and (may_be_none or len(places) > 0)
        if not fits or len(shared.result) != _RESULT:
            raise WrongContent(f"'{lead.peer}' announces shared rows that '{self._session.party}' does not have.")
        positions: Places = order[places]
        self._keep(shared.result, positions)
        self._unfinished(lead).discard()
        return positions

    def _answer(self, lead: Channel, *, sizes_only: bool = False) -> bytes | None:
        """Offer this party's ids to the lead and blind the lead's; or return the name of an earlier result to use."""
        state, rows, identity = self._unfinished(lead), self._rows(lead), self._identity()
        held = () if sizes_only else self._store.results(identity)
        declared = DeclaredFormat(**dataclasses.asdict(IdFormat.of(self._table.ids_for(lead.peer))))
        lead.send(AlignmentOffer(len(rows), declared, held, state.salt, state.pieces))
        opening = lead.receive(AlignmentOpening)
        if opening.reuse is not None:
            if opening.reuse not in held:
                raise WrongContent(f"'{lead.peer}' wants to use a result that '{self._session.party}' does not have.")
            return opening.reuse
        fits = 0 <= opening.count <= _MOST_IDS and len(opening.salt) == _SALT
        if not fits or not 0 <= opening.first_piece <= state.pieces:
            raise WrongContent(f"'{lead.peer}' opens the alignment in a way no version of colonnade does.")
        if opening.first_piece or (opening.salt == state.salt and not sizes_only):
            if opening.salt != state.salt:
                raise WrongContent(
                    f"'{lead.peer}' goes on with an alignment that '{self._session.party}' did not begin."
                )
            state.pieces = opening.first_piece
        else:
            state.begin(opening.salt, random_order(rows))
        session = self._session
        answer_partner(
            lead, session.engine, self._ids[lead.peer], state, opening.count, self._told(lead), sizes_only=sizes_only
        )
        session.ledger.mark("aligned", peer=lead.peer, own=len(rows), theirs=opening.count, sizes_only=sizes_only)
        return None

    def _keep(self, result: bytes, positions: Places) -> None:
        if len(positions):
            self._store.save(self._identity(), result, positions)

    def _rows(self, peer: Channel) -> Places:
        """Return the rows that have an id for this partner."""
        return np.flatnonzero([bool(one) for one in self._ids[peer.peer]])

    def _identity(self) -> str:
        """Return what stands for this party's ids, the partners and the rule: a result holds for these."""
        facts = [*self._session.plan.parties, repr(self._rule), str(self._session.plan.seed)]
        return identity_of([one for ids in self._ids.values() for one in ids], *facts)

    def _unfinished(self, peer: Channel) -> Unfinished:
        if peer.peer not in self._states:
            identity = identity_of(self._ids[peer.peer], self._session.plan.digest(), peer.peer)
            self._states[peer.peer] = self._store.unfinished(peer.peer, identity)
        return self._states[peer.peer]

    def _told(self, peer: Channel) -> Callable[[int, int], None]:
        return lambda done, total: self._session.show(f"alignment with {peer.peer}", done, total)

    def _checked(self, offer: AlignmentOffer, peer: Channel) -> AlignmentOffer:
        fits = 0 <= offer.count <= _MOST_IDS and offer.finished_pieces >= 0
        if not fits or not all(len(one) == _RESULT for one in offer.held):
            raise WrongContent(f"'{peer.peer}' offers its ids in a way no version of colonnade does.")
        return offer


def _take_given(session: Session, table: PartyTable) -> AlignedRows:
    """Take rows as another tool matched them, if all parties have as many and by the same keys."""
    digest = hashlib.sha256(b"colonnade given" + session.seed("alignment").to_bytes(8, "little"))
    matched = matched_rows(table, table.matches)
    for key in matched.keys:
        digest.update(len(key).to_bytes(4, "little") + key)
    own = GivenRows(len(matched.keys), digest.digest())
    is_lead = session.role == session.method.lead
    peers = session.all_channels if is_lead else (session.channel(session.method.lead),)
    for peer in peers:
        peer.send(own)
        theirs = peer.receive(GivenRows)
        if (theirs.count, theirs.digest) != (own.count, own.digest):
            raise AlignmentError(
                f"The rows given as matched differ between '{session.party}' ({own.count}) and '{peer.peer}' "
                f"({theirs.count}), or are in another order. Make both lists anew from one matching."
            )
    return _aligned(matched.positions, table.rows, _GIVEN)


def _aligned(positions: Places, rows: int, protocol: str) -> AlignedRows:
    is_rest = np.ones(rows, dtype=bool)
    is_rest[positions] = False
    return AlignedRows(positions, np.flatnonzero(is_rest), protocol)


def _format_of(declared: DeclaredFormat, channel: Channel) -> IdFormat:
    # These words stand in an error that people read, so they must be ones we know.
    if declared.letters not in LETTERS or not (
        0 <= declared.shortest <= declared.longest <= _LONGEST_ID and 1 <= declared.parts <= _MOST_PARTS
    ):
        raise WrongContent(f"'{channel.peer}' describes its ids in a way no version of colonnade does.")
    return IdFormat(**dataclasses.asdict(declared))
