"""One party's side of private set intersection: with whom, what it keeps, and what it may be told."""

from __future__ import annotations

import dataclasses
import hashlib
import secrets
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from colonnade.alignment.ecdh import (
    Side,
    Tokens,
    answer_count,
    answer_partner,
    ask_count,
    ask_partner,
    random_order,
    rows_of_tokens,
)
from colonnade.alignment.history import AlignmentHistory
from colonnade.alignment.messages import (
    RESULT_BYTES,
    SALT_BYTES,
    AlignmentOffer,
    AlignmentOpening,
    DeclaredFormat,
    SharedCount,
    SharedRows,
)
from colonnade.alignment.store import AlignmentStore, Unfinished, identity_of
from colonnade.data import (
    IdFormat,
    PartyTable,
    explain_few_shared,
    explain_nothing_shared,
    id_marks,
    normalised_ids,
)
from colonnade.errors import AlignmentError, FewRowsShared, PolicyRefused, WrongContent
from colonnade.session import Channel, Session

__all__ = ["Intersection", "PartnerRows", "Places", "partners_of"]

Places = npt.NDArray[np.int64]

FEW = 0.5
"""Where less than this share of the smaller table is shared, ids may be written differently."""


@dataclasses.dataclass(frozen=True)
class PartnerRows:
    """What a party knows about one partner's rows after an alignment; None where it is not told."""

    rows: int | None
    shared: int | None


def partners_of(session: Session) -> tuple[Channel, ...]:
    """Return the lines to those with whom this party looks for shared rows: none where it has no rows itself."""
    method, plan = session.method, session.plan
    return tuple(channel for channel in session.all_channels if method.are_aligned(plan, session.party, channel.peer))


class Intersection:
    """One party's side of finding shared rows."""

    def __init__(self, session: Session, table: PartyTable) -> None:
        self._session, self._table = session, table
        self._rule = session.plan.alignment
        self._is_lead = session.role == session.lead
        self._peers = partners_of(session)
        self._ids = {
            peer.peer: normalised_ids(table.ids_for(peer.peer), self._rule, where=table.title_of_ids_for(peer.peer))
            for peer in self._peers
        }
        self._store = AlignmentStore(session.alignments)
        self._states: dict[str, Unfinished] = {}
        self._history = AlignmentHistory(session.history)
        # Scoring one new row is no run in the sense of minimum_shared_rows.
        self._has_minimum = session.stage != "predict"
        self._formats: dict[str, IdFormat] = {}
        self._own_formats: dict[str, IdFormat] = {}
        self.partners: dict[str, PartnerRows] = {}
        self.is_reused = False
        self.hints: list[str] = []
        """By which rule more rows might be shared, where they are few."""

    def shared_by_all(self) -> Places:
        """Return this party's rows that all parties hold, in the agreed order."""
        return self._lead_all() if self._is_lead else self._follow(may_be_none=self._may_be_none)

    def shared_with_each(self) -> dict[str, Places]:
        """Return this party's rows that the lead shares with it, or the lead's that it shares with each."""
        if self._is_lead:
            return {peer.peer: self._share(peer, offer) for peer, offer in self._offers().items()}
        (lead,) = self._peers
        if self._rule.mode == "both_learn":
            return {lead.peer: self._follow(may_be_none=True)}
        if self._has_minimum:
            self._session.policy.check_counts_are_told(self._session.party)
        opening = self._offer(lead)
        if opening.reuse is None:
            self._answer(lead, opening)
        self._unfinished(lead).discard()
        return {}

    def _share(self, peer: Channel, offer: AlignmentOffer) -> Places:
        """Return the lead's rows that one partner has too, and tell it if it may know."""
        rows, tokens = self._intersect(peer, offer)
        if self._rule.mode == "both_learn":
            return self._announce({peer: (rows, tokens)}, rows)
        self._unfinished(peer).discard()
        self._judge({peer: len(rows)}, len(rows))
        return self._in_order(rows)

    def sizes(self) -> dict[str, int]:
        """Return how many rows are shared with each."""
        if not self._is_lead:
            (lead,) = self._peers
            opening = self._offer(lead, sizes_only=True)
            answer_count(self._side(lead))
            self._note_answer(lead, opening.count, sizes_only=True)
            self._unfinished(lead).discard()
            count = lead.receive(SharedCount, own_rows=len(self._rows(lead))).count
            self._history.note("found", lead.peer, shared=count)
            self._judge({lead: count}, count)
            return {lead.peer: count}
        found = {}
        for peer, offer in self._offers(sizes_only=True).items():
            self._open(peer, offer, sizes_only=True)
            count = found[peer.peer] = ask_count(self._side(peer))
            self._note_found(peer, offer.count, count, sizes_only=True)
            self._unfinished(peer).discard()
            self._judge({peer: count}, count)
            peer.send(SharedCount(count))
        return found

    def _lead_all(self) -> Places:
        offers = {peer: self._receive_offer(peer) for peer in self._peers}
        identity = self._identity()
        held = set(self._store.results(identity)).intersection(*(offer.held for offer in offers.values()))
        if held:
            result = max(held)
            found = self._store.load(identity, result)
            self._note_reuse({peer: offer.count for peer, offer in offers.items()}, len(found))
            for peer in self._peers:
                # What a kill right after the last message may have left.
                self._unfinished(peer).discard()
                peer.send(AlignmentOpening(len(self._rows(peer)), b"", self._declared(peer), result, 0))
            return found
        self._check_budgets(offers)
        by_peer = {peer: self._intersect(peer, offer) for peer, offer in offers.items()}
        shared = np.arange(self._table.rows)
        for rows, _ in by_peer.values():
            shared = np.intersect1d(shared, rows, assume_unique=True)
        if not len(shared) and not self._may_be_none:
            for peer in self._peers:
                self._unfinished(peer).discard()
            strangers = [peer for peer, (rows, _) in by_peer.items() if not len(rows)] or self._peers
            formats = self._formats_with(*strangers)
            raise AlignmentError(explain_nothing_shared(formats, self._rule, is_agreed=not self._has_minimum))
        return self._announce(by_peer, shared)

    @property
    def _may_be_none(self) -> bool:
        """Tell whether parties need not share a row: where others are scored too."""
        return self._session.method.stage(self._session.stage).rows == "shared and rest"

    def _announce(self, by_peer: Mapping[Channel, tuple[Places, Tokens]], shared: Places) -> Places:
        """Put shared rows into the agreed order, and tell every partner by the tokens that it knows."""
        if self._has_minimum and len(shared) < self._session.policy.minimum_shared_rows:
            for peer in by_peer:
                self._unfinished(peer).discard()
        self._judge({peer: len(rows) for peer, (rows, _) in by_peer.items()}, len(shared))
        ordered = self._in_order(shared)
        result = secrets.token_bytes(RESULT_BYTES)
        # Kept before anyone is told: a partner that has it must find it here.
        self._keep(result, ordered)
        for peer, (rows, tokens) in by_peer.items():
            place_of = np.empty(self._table.rows, np.int64)
            place_of[rows] = np.arange(len(rows))
            peer.send(SharedRows(tokens[place_of[ordered]], result))
            self._unfinished(peer).discard()
        return ordered

    def _in_order(self, shared: Places) -> Places:
        return shared[np.argsort(id_marks(self._table.ids[shared], self._session.seed("alignment"), self._rule))]

    def _intersect(self, peer: Channel, offer: AlignmentOffer) -> tuple[Places, Tokens]:
        """Return the lead's rows that one partner has too, and the tokens by which the partner knows them."""
        self._open(peer, offer)
        rows, tokens = ask_partner(self._side(peer))
        self._note_found(peer, offer.count, len(rows))
        return rows, tokens

    def _open(self, peer: Channel, offer: AlignmentOffer, *, sizes_only: bool = False) -> None:
        """Begin an alignment with one partner, or go on with one that was cut short."""
        rows, state = self._rows(peer), self._unfinished(peer)
        self._check_sizes(peer, offer.count)
        is_known = bool(state.salt) and (state.salt, state.their_count) == (offer.unfinished, offer.count)
        if is_known and not sizes_only:
            state.pieces = min(state.pieces, offer.finished_pieces)
            peer.send(AlignmentOpening(len(rows), state.salt, self._declared(peer), None, state.pieces))
            return
        self._begin(peer, offer.count)
        share = secrets.token_bytes(SALT_BYTES)
        state.begin(_joint_salt(share, offer.salt), random_order(rows), offer.count)
        peer.send(AlignmentOpening(len(rows), share, self._declared(peer), None, 0))

    def _follow(self, *, may_be_none: bool = False) -> Places:
        """Return this party's rows that the lead announces."""
        (lead,) = self._peers
        opening = self._offer(lead)
        if opening.reuse is not None:
            found = self._store.load(self._identity(), opening.reuse)
            self._note_reuse({lead: opening.count}, len(found))
            return found
        own = self._answer(lead, opening)
        shared = lead.receive(SharedRows)
        places = rows_of_tokens(shared.tokens, own)
        if places is None or not (may_be_none or len(places)):
            raise WrongContent(
                f"'{lead.peer}' announces shared rows that '{self._session.party}' does not have, that it did not ask "
                "about, or more than once; or none. Nothing of it was kept."
            )
        positions: Places = self._unfinished(lead).sent_order[places]
        self._history.note("found", lead.peer, shared=len(positions))
        self._keep(shared.result, positions)
        self._unfinished(lead).discard()
        self._judge({lead: len(positions)}, len(positions))
        return positions

    def _offer(self, lead: Channel, *, sizes_only: bool = False) -> AlignmentOpening:
        """Offer this party's ids to the lead; return how it goes on, with this party's side made ready for it."""
        state, rows, identity = self._unfinished(lead), self._rows(lead), self._identity()
        held = () if sizes_only else self._store.results(identity)
        if not held and (sizes_only or not state.salt):
            self._check_budget(lead.peer)
        share = secrets.token_bytes(SALT_BYTES)
        lead.send(AlignmentOffer(len(rows), share, self._declared(lead), held, state.salt, state.answered))
        opening = lead.receive(AlignmentOpening, held=held, answered=state.answered)
        self._formats[lead.peer] = IdFormat(**dataclasses.asdict(opening.format))
        self.partners[lead.peer] = PartnerRows(opening.count, None)
        if opening.reuse is not None:
            state.discard()
            return opening
        self._check_sizes(lead, opening.count)
        if state.salt and opening.salt == state.salt and not sizes_only:
            if opening.count != state.their_count:
                raise WrongContent(
                    f"'{lead.peer}' goes on with an alignment that was cut short, but with another number of ids than "
                    "before. Begin anew at both parties if its table has changed."
                )
            return opening
        if opening.first_piece or len(opening.salt) != SALT_BYTES:
            raise WrongContent(
                f"'{lead.peer}' goes on with an alignment that '{self._session.party}' did not begin, or gives no "
                "share of a salt."
            )
        self._begin(lead, opening.count)
        state.begin(_joint_salt(opening.salt, share), random_order(rows), opening.count)
        return opening

    def _answer(self, lead: Channel, opening: AlignmentOpening) -> Tokens:
        """Answer what the lead asks; return the tokens of this party's rows, in the order in which they were sent."""
        tokens = answer_partner(self._side(lead), opening.first_piece)
        self._note_answer(lead, opening.count)
        return tokens

    def _side(self, peer: Channel) -> Side:
        return Side(peer, self._session.engine, self._ids[peer.peer], self._unfinished(peer), self._told(peer))

    def _note_answer(self, lead: Channel, theirs: int, *, sizes_only: bool = False) -> None:
        own = len(self._rows(lead))
        self._session.ledger.mark("aligned", peer=lead.peer, own=own, theirs=theirs, sizes_only=sizes_only)

    def _note_found(self, peer: Channel, theirs: int, shared: int, *, sizes_only: bool = False) -> None:
        own = len(self._rows(peer))
        self._session.ledger.mark(
            "aligned", peer=peer.peer, own=own, theirs=theirs, shared=shared, sizes_only=sizes_only
        )
        self._history.note("found", peer.peer, shared=shared)
        self.partners[peer.peer] = PartnerRows(theirs, shared)

    def _offers(self, *, sizes_only: bool = False) -> dict[Channel, AlignmentOffer]:
        offers = {peer: self._receive_offer(peer) for peer in self._peers}
        self._check_budgets(offers, sizes_only=sizes_only)
        return offers

    def _check_budgets(self, offers: Mapping[Channel, AlignmentOffer], *, sizes_only: bool = False) -> None:
        """Refuse before the first partner gets anything, not when it is the turn of the one that asked too often."""
        for peer, offer in offers.items():
            salt = self._unfinished(peer).salt
            if sizes_only or not salt or salt != offer.unfinished:
                self._check_budget(peer.peer)

    def _check_budget(self, partner: str) -> None:
        with self._noted(partner):
            self._allow(partner, self._history.begun_with(partner))

    def _begin(self, peer: Channel, theirs: int) -> None:
        """Write down that shared rows are looked for anew, before the first blinded id leaves."""
        own, ids = len(self._rows(peer)), identity_of(self._ids[peer.peer])
        facts = {**self._about(), "ids": ids, "own": own, "theirs": theirs}
        with self._noted(peer.peer):
            earlier = self._history.begin(peer.peer, lambda count: self._allow(peer.peer, count), **facts)
        self._session.ledger.mark("aligning", peer=peer.peer, own=own, theirs=theirs, earlier=earlier)

    def _allow(self, partner: str, earlier: int) -> None:
        self._session.policy.check_earlier_alignments(self._session.party, partner, earlier)

    @contextmanager
    def _noted(self, partner: str) -> Iterator[None]:
        """Keep a refusal both in the run's ledger and, as a refused run may leave no folder, in the home."""
        try:
            yield
        except PolicyRefused:
            self._session.ledger.mark("refused", rule="maximum_alignments", peer=partner)
            self._history.note("refused", partner, **self._about())
            raise

    def _about(self) -> dict[str, str]:
        return {"run": self._session.plan.name, "stage": self._session.stage, "mode": self._rule.mode}

    def _check_sizes(self, peer: Channel, theirs: int) -> None:
        if self._has_minimum:
            self._session.policy.check_table_sizes(self._session.party, peer.peer, len(self._rows(peer)), theirs)

    def _judge(self, found: Mapping[Channel, int], shared: int) -> None:
        """Refuse too few shared rows; where few are shared with a partner, say by which rule there might be more."""
        if not self._has_minimum:
            return
        policy, hints = self._session.policy, []
        for peer, count in found.items():
            rows = min(len(self._rows(peer)), self.partners[peer.peer].rows or 0)
            if count < max(FEW * rows, min(policy.minimum_shared_rows, rows)):
                hints.append(explain_few_shared(count, rows, self._formats_with(peer), self._rule))
        hints = [hint for hint in hints if hint]
        try:
            policy.check_shared_rows(self._session.party, shared)
        except PolicyRefused as refused:
            raise PolicyRefused(" ".join([str(refused), *hints])) from None
        for hint in hints:
            self.hints.append(hint)
            warnings.warn(hint, FewRowsShared, stacklevel=2)

    def _formats_with(self, *peers: Channel) -> dict[str, IdFormat]:
        """Return what ids look like here and at partners, the lead's first: the same at both sides."""
        own = {self._session.party: self._own_format(peers[0])}
        theirs = {peer.peer: self._formats[peer.peer] for peer in peers}
        return own | theirs if self._is_lead else theirs | own

    def _declared(self, peer: Channel) -> DeclaredFormat:
        return DeclaredFormat(**dataclasses.asdict(self._own_format(peer)))

    def _own_format(self, peer: Channel) -> IdFormat:
        # Usually the same ids for all partners, and there may be millions.
        title = self._table.title_of_ids_for(peer.peer)
        if title not in self._own_formats:
            self._own_formats[title] = IdFormat.of(self._table.ids_for(peer.peer))
        return self._own_formats[title]

    def _receive_offer(self, peer: Channel) -> AlignmentOffer:
        offer = peer.receive(AlignmentOffer)
        self._formats[peer.peer] = IdFormat(**dataclasses.asdict(offer.format))
        return offer

    def _note_reuse(self, theirs: Mapping[Channel, int | None], shared: int) -> None:
        for peer, count in theirs.items():
            self.partners[peer.peer] = PartnerRows(count, None)
        self._judge(dict.fromkeys(theirs, shared), shared)
        self.is_reused = True
        for peer, count in theirs.items():
            own = len(self._rows(peer))
            self._session.ledger.mark("aligned", peer=peer.peer, own=own, theirs=count, shared=shared, reused=True)

    def _keep(self, result: bytes, positions: Places) -> None:
        if len(positions):
            self._store.save(self._identity(), result, positions)

    def _rows(self, peer: Channel) -> Places:
        """Return the rows that have an id for this partner."""
        return np.flatnonzero([bool(one) for one in self._ids[peer.peer]])

    def _identity(self) -> str:
        """Return what stands for this party's ids, the partners and the rule: a result holds for these."""
        parties = self._session.method.parties_with_rows(self._session.plan)
        facts = [*parties, repr(self._rule), str(self._session.plan.seed)]
        return identity_of([one for ids in self._ids.values() for one in ids], *facts)

    def _unfinished(self, peer: Channel) -> Unfinished:
        if peer.peer not in self._states:
            identity = identity_of(self._ids[peer.peer], self._session.plan.digest(), peer.peer)
            self._states[peer.peer] = self._store.unfinished(peer.peer, identity)
        return self._states[peer.peer]

    def _told(self, peer: Channel) -> Callable[[int, int], None]:
        return lambda done, total: self._session.show(f"alignment with {peer.peer}", done, total)


def _joint_salt(of_lead: bytes, of_other: bytes) -> bytes:
    # Of both: a lead that could give two partners the same one could pass on to each what the other sent.
    return hashlib.sha256(of_lead + of_other).digest()
