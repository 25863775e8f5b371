"""A peer that lies while shared rows are looked for: each case is refused by name, at once, without much memory."""

from __future__ import annotations

import dataclasses
import hashlib
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.alignment.intersecting import Intersected, intersect, table, tables_of
from tests.unit.alignment.test_cut_short import cut_at

from colonnade.alignment import align, align_with_each, count_shared, ecdh
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    DeclaredFormat,
    GivenRows,
    IdMarks,
    SharedCount,
    SharedRows,
    ShuffledMarks,
    TwiceBlindedIds,
)
from colonnade.crypto.blinding import (
    Blinder,
    blind,
    blind_each,
    draw_secret,
    evaluate,
    join_ids,
    multiply,
    unblind_each,
)
from colonnade.data import PartyTable
from colonnade.errors import AlignmentError, ColonnadeError, OutOfStep, PeerLost, RoleFailed, WrongContent
from colonnade.session import Alignment, Channel, Session

P = 2**256 - 2**32 - 977
FORMAT = DeclaredFormat(False, "all", 1, 1, 1, 1, False, False, False, False, (), "none", True, 1)
IDS = [1, 2, 3]
NAMES = [b"i1", b"i2", b"i3"]
SALT = b"s" * 32
SECRET = draw_secret()


def as_rows(content: bytes, width: int) -> np.ndarray:
    return np.frombuffer(content, np.uint8).reshape(-1, width)


def joint(of_lead: bytes, of_other: bytes) -> Blinder:
    return Blinder(SECRET, hashlib.sha256(of_lead + of_other).digest())


def points(ids: list[bytes] = NAMES) -> np.ndarray:
    """Return ids blinded, where it does not matter with which salt: the other side cannot tell."""
    return as_rows(blind_each(Blinder(SECRET, SALT), join_ids(ids)), 33)


def multiplied(of: np.ndarray) -> np.ndarray:
    return as_rows(multiply(Blinder(SECRET, b""), of.tobytes()), 33)


def outputs(own: Blinder, returned: np.ndarray, ids: list[bytes]) -> np.ndarray:
    pairs = [row.tobytes() + one for row, one in zip(returned, ids, strict=True)]
    return as_rows(unblind_each(own, join_ids(pairs)), 24)


def hashed(of: np.ndarray) -> np.ndarray:
    return as_rows(b"".join(hashlib.sha256(row.tobytes()).digest()[:12] for row in of), 12)


class Lie:
    """An honest party but for what a test replaces: one message of its own."""

    def __init__(self, **changes: Any) -> None:
        self.changes = changes

    def send(self, peer: Channel, honest: Any) -> None:
        change = self.changes.get(type(honest).__name__)
        said = honest if change is None else change(honest) if callable(change) else change
        for one in said if isinstance(said, list) else [said]:
            peer.send(one)

    def as_partner(self, session: Session, own: PartyTable) -> None:
        """Play the party that the lead asks."""
        peer = session.channel("lead")
        self.send(peer, AlignmentOffer(3, SALT, FORMAT, (), b"", 0))
        blinder = joint(peer.receive(AlignmentOpening).salt, SALT)
        self.send(peer, TwiceBlindedIds(multiplied(peer.receive(BlindedIds).points)))
        self.send(peer, IdMarks(np.ascontiguousarray(as_rows(evaluate(blinder, join_ids(NAMES)), 24)[:, :12])))
        peer.receive(SharedRows)

    def as_lead(self, session: Session, own: PartyTable) -> None:
        """Play the lead."""
        peer = session.channel("helper")
        blinder = joint(SALT, peer.receive(AlignmentOffer).salt)
        self.send(peer, AlignmentOpening(3, SALT, FORMAT, None, 0))
        self.send(peer, BlindedIds(as_rows(blind_each(blinder, join_ids(NAMES)), 33)))
        found = outputs(blinder, peer.receive(TwiceBlindedIds).points, NAMES)
        marks = peer.receive(IdMarks).marks
        assert sorted(map(bytes, marks)) == sorted(map(bytes, found[:, :12])), "the honest side evaluates as we do"
        self.send(peer, SharedRows(np.ascontiguousarray(found[[2, 0], 12:]), bytes(16)))

    def as_counted_partner(self, session: Session, own: PartyTable) -> None:
        """Play the party that the lead asks where only sizes count."""
        peer = session.channel("lead")
        self.send(peer, AlignmentOffer(3, SALT, FORMAT, (), b"", 0))
        blinder = joint(peer.receive(AlignmentOpening).salt, SALT)
        self.send(peer, BlindedIds(as_rows(blind(blinder, join_ids(NAMES)), 33)))
        self.send(peer, ShuffledMarks(hashed(multiplied(peer.receive(BlindedIds).points))))
        peer.receive(SharedCount)

    def as_counting_lead(self, session: Session, own: PartyTable) -> None:
        """Play the lead where only sizes count."""
        peer = session.channel("helper")
        blinder = joint(SALT, peer.receive(AlignmentOffer).salt)
        self.send(peer, AlignmentOpening(3, SALT, FORMAT, None, 0))
        self.send(peer, BlindedIds(as_rows(blind(blinder, join_ids(NAMES)), 33)))
        theirs = hashed(multiplied(peer.receive(BlindedIds).points))
        assert sorted(map(bytes, theirs)) == sorted(map(bytes, peer.receive(ShuffledMarks).marks))
        self.send(peer, SharedCount(3))


def quickly(tables: dict[str, PartyTable], honest: str, **how: Any) -> Intersected:
    began = time.monotonic()
    tracemalloc.start()
    try:
        met = intersect(tables, **how)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert time.monotonic() - began < 10
    assert peak < 50e6, f"{peak / 1e6:.0f} MB"
    return met


def refused(error: Any, words: str, kind: type[ColonnadeError] = WrongContent) -> None:
    assert type(error) is kind, repr(error)
    assert not isinstance(error, RoleFailed)
    assert words in str(error), str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 400


def against_lead(words: str, kind: type[ColonnadeError] = WrongContent, *, step: Any = align, **changes: Any) -> None:
    lie = Lie(**changes)
    partner = lie.as_counted_partner if step is count_shared else lie.as_partner
    met = quickly(tables_of(IDS, IDS), "bank", step={"bank": step, "shop": partner})
    refused(met.outcomes["bank"], words, kind)
    assert "'shop'" in str(met.outcomes["bank"])


def against_partner(
    words: str,
    kind: type[ColonnadeError] = WrongContent,
    *,
    step: Any = align,
    folder: Path | None = None,
    **changes: Any,
) -> None:
    lie = Lie(**changes)
    lead = lie.as_counting_lead if step is count_shared else lie.as_lead
    met = quickly(tables_of(IDS, IDS), "shop", step={"bank": lead, "shop": step}, folder=folder)
    refused(met.outcomes["shop"], words, kind)
    assert "'bank'" in str(met.outcomes["shop"])


def test_honest_scripts_are_accepted() -> None:
    """The scripts below differ from these in one message each."""
    met = intersect(tables_of(IDS, IDS), step={"shop": Lie().as_partner})
    assert sorted(met.outcomes["bank"].positions) == [0, 1, 2]
    met = intersect(tables_of(IDS, IDS), step={"bank": Lie().as_lead})
    assert sorted(met.outcomes["shop"].positions) == [0, 2]
    for roles in ({"bank": count_shared, "shop": Lie().as_counted_partner}, {"bank": Lie().as_counting_lead}):
        met = intersect(tables_of(IDS, IDS), step={"shop": count_shared} | roles)
        assert [one for one in met.outcomes.values() if one] == [{"shop" if "shop" in roles else "bank": 3}]


# Points


Points = BlindedIds | TwiceBlindedIds


def first_is(content: bytes) -> Callable[[Points], Points]:
    def change(honest: Points) -> Points:
        changed = honest.points.copy()
        changed[1] = np.frombuffer(content, np.uint8)
        return type(honest)(changed)

    return change


def prefix_is(first: int) -> Callable[[Points], Points]:
    def change(honest: Points) -> Points:
        changed = honest.points.copy()
        changed[2, 0] = first
        return type(honest)(changed)

    return change


NO_POINTS: dict[str, Callable[[Points], Points]] = {
    "not on the curve": first_is(b"\x02" + (5).to_bytes(32, "big")),
    "on the twist": first_is(b"\x03" + (0).to_bytes(32, "big")),
    "x is p": first_is(b"\x02" + P.to_bytes(32, "big")),
    "x beyond p, on the curve modulo p": first_is(b"\x02" + (P + 1).to_bytes(32, "big")),
    "largest": first_is(b"\x02" + b"\xff" * 32),
    "all zeros": first_is(bytes(33)),
    **{f"prefix {first}": prefix_is(first) for first in (0, 1, 4, 5, 6, 7, 0x82)},
}


@pytest.mark.parametrize("kind", NO_POINTS)
def test_what_is_no_point_is_refused(kind: str) -> None:
    against_lead("no point of the curve", TwiceBlindedIds=NO_POINTS[kind])
    against_partner("no point of the curve", BlindedIds=NO_POINTS[kind])
    against_lead("no point of the curve", step=count_shared, BlindedIds=NO_POINTS[kind])
    against_partner("no point of the curve", step=count_shared, BlindedIds=NO_POINTS[kind])


def test_a_repeated_point_is_refused_where_it_would_tell_which_rows_are_shared() -> None:
    """Where only sizes count, what comes back twice would be recognised in any order."""

    def repeated(honest: BlindedIds) -> BlindedIds:
        return BlindedIds(honest.points[[0, 1, 0]])

    against_lead("the same blinded id more than once", step=count_shared, BlindedIds=repeated)
    against_partner("the same blinded id more than once", step=count_shared, BlindedIds=repeated)
    same = ShuffledMarks(np.zeros((3, 12), np.uint8))
    against_lead("the same blinded id more than once", step=count_shared, ShuffledMarks=same)


def test_a_point_repeated_in_another_piece_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecdh, "PIECE", 2)
    rule = Alignment(mode="size_only")

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(3, SALT, FORMAT, None, 0))
        for piece in (points()[:2], points()[:1]):
            peer.send(BlindedIds(piece))
            peer.receive(BlindedIds)
        peer.receive(ShuffledMarks)

    met = intersect(tables_of(IDS, IDS), step={"bank": lead, "shop": count_shared}, rule=rule)
    refused(met.outcomes["shop"], "the same blinded id more than once")
    assert not met.crossed(ShuffledMarks)


def shared_with(partner: Callable[[Channel, Blinder], None], count: int = 3) -> Any:
    """Let a partner answer in its own way; return how the lead ends."""

    def play(session: Session, own: PartyTable) -> None:
        peer = session.channel("lead")
        peer.send(AlignmentOffer(count, SALT, FORMAT, (), b"", 0))
        partner(peer, joint(peer.receive(AlignmentOpening).salt, SALT))
        peer.receive(SharedRows)

    return intersect(tables_of(IDS, IDS), step={"shop": play}).outcomes["bank"]


def marks_of(found: bytes) -> IdMarks:
    return IdMarks(np.ascontiguousarray(as_rows(found, 24)[:, :12]))


WRONG_ANSWERS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "our own points": lambda ours: ours,
    "in another order": lambda ours: multiplied(ours)[[1, 2, 0]],
    "one for all": lambda ours: multiplied(ours)[[0, 0, 0]],
    "of another secret": lambda ours: as_rows(multiply(Blinder(draw_secret(), b""), ours.tobytes()), 33),
    "the negatives": lambda ours: multiplied(ours) ^ np.array([1] + [0] * 32, np.uint8),
}


@pytest.mark.parametrize("kind", WRONG_ANSWERS)
def test_points_that_are_not_ours_times_the_secret_match_nothing(kind: str) -> None:
    """A partner that answers wrongly loses the rows; it cannot make others of ours look shared."""

    def partner(peer: Channel, blinder: Blinder) -> None:
        ours = peer.receive(BlindedIds).points
        peer.send(TwiceBlindedIds(WRONG_ANSWERS[kind](ours)))
        peer.send(marks_of(evaluate(blinder, join_ids(NAMES))))

    ended = shared_with(partner)
    if kind == "one for all":
        # Where the lead's first id came back to it, in its random order, one row is its due.
        assert type(ended) is AlignmentError or len(ended) <= 1
    else:
        assert type(ended) is AlignmentError, repr(ended)


def test_a_partner_cannot_recognise_a_whole_set_by_one_mark() -> None:
    """With one factor for all of our ids, their sum times the secret would be that of a guessed set."""
    from coincurve import PublicKey

    def partner(peer: Channel, blinder: Blinder) -> None:
        def summed(rows: np.ndarray) -> bytes:
            return PublicKey.combine_keys([PublicKey(row.tobytes()) for row in rows]).format()

        ours = peer.receive(BlindedIds).points
        peer.send(TwiceBlindedIds(as_rows(summed(multiplied(ours)) * 3, 33)))
        guess = summed(as_rows(blind(blinder, join_ids(NAMES)), 33))
        tag = b"colonnade-psi-v1-secp256k1_2HashDH_SHA-256_"
        peer.send(marks_of(hashlib.sha256(tag + blinder.salt + guess + NAMES[0]).digest()[:24]))

    assert type(shared_with(partner, count=1)) is AlignmentError


def test_a_repeated_mark_counts_once() -> None:
    def partner(peer: Channel, blinder: Blinder) -> None:
        peer.send(TwiceBlindedIds(multiplied(peer.receive(BlindedIds).points)))
        peer.send(marks_of(evaluate(blinder, join_ids([b"i2"] * 3))))

    assert shared_with(partner).positions.tolist() == [1]


# Counts


@pytest.mark.parametrize("step", [align, count_shared])
def test_a_large_count_takes_no_memory_until_the_ids_come(step: Any) -> None:
    """Four thousand million ids would be possible; without them, the honest party only waits."""
    count = 2**32

    def partner(session: Session, own: PartyTable) -> None:
        peer = session.channel("lead")
        peer.send(AlignmentOffer(count, SALT, FORMAT, (), b"", 0))
        peer.receive(BlindedIds) if peer.receive(AlignmentOpening) else None

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(count, SALT, FORMAT, None, 0))

    for liar, honest, code in (("shop", "bank", partner), ("bank", "shop", lead)):
        met = quickly(tables_of(IDS, IDS), honest, step={liar: code, honest: step})
        assert type(met.outcomes[honest]) is PeerLost


@pytest.mark.parametrize("count", [0, 2, 4, 40_000])
def test_a_count_that_differs_from_what_comes_is_refused(count: int) -> None:
    for changes in ({"count": count},):
        lie = Lie(AlignmentOffer=lambda honest, changes=changes: dataclasses.replace(honest, **changes))
        error = intersect(tables_of(IDS, IDS), step={"shop": lie.as_partner}).outcomes["bank"]
        # Of a partner without ids nothing more is read.
        assert type(error) in ((WrongContent, OutOfStep) if count else (AlignmentError,)), repr(error)
        lie = Lie(AlignmentOpening=lambda honest, changes=changes: dataclasses.replace(honest, **changes))
        error = intersect(tables_of(IDS, IDS), step={"bank": lie.as_lead}).outcomes["shop"]
        assert type(error) in (WrongContent, OutOfStep), repr(error)


# The opening


@pytest.mark.parametrize("salt", [b"", SALT[:-1]], ids=len)
def test_a_lead_cannot_keep_back_its_share_of_the_salt(salt: bytes) -> None:
    for count in (0, 3):
        opening = AlignmentOpening(count, salt, FORMAT, None, 0)
        against_partner("no share of a salt", AlignmentOpening=opening)


def test_a_lead_cannot_skip_pieces() -> None:
    against_partner(
        "first_piece is 1 where 0 to 0 is accepted",
        AlignmentOpening=lambda honest: dataclasses.replace(honest, first_piece=1),
    )


@pytest.mark.parametrize("result", [b"", bytes(16), b"../../../../etc/passwd"], ids=len)
def test_a_result_that_we_do_not_have_is_not_used(result: bytes, tmp_path: Path) -> None:
    reuse = AlignmentOpening(3, b"", FORMAT, result, 0)
    against_partner("Its field reuse is none of the values that are accepted", AlignmentOpening=reuse)
    intersect(tables_of(IDS, IDS), folder=tmp_path)
    against_partner("Its field reuse is none of the values that are accepted", AlignmentOpening=reuse, folder=tmp_path)


def test_a_partner_that_claims_to_hold_any_result_gets_none_that_we_lack() -> None:
    """It only learns that the lead begins anew."""
    lie = Lie(AlignmentOffer=lambda honest: dataclasses.replace(honest, held=(bytes(16), b"x" * 16)))
    met = intersect(tables_of(IDS, IDS), step={"shop": lie.as_partner})
    assert met.crossed(AlignmentOpening)[0].reuse is None
    assert len(met.outcomes["bank"]) == 3


@pytest.mark.parametrize("unfinished", [b"", SALT, bytes(16)], ids=len)
def test_a_partner_cannot_make_the_lead_skip_pieces(unfinished: bytes) -> None:
    lie = Lie(AlignmentOffer=lambda honest: dataclasses.replace(honest, unfinished=unfinished, finished_pieces=2**32))
    met = intersect(tables_of(IDS, IDS), step={"shop": lie.as_partner})
    opening = met.crossed(AlignmentOpening)[0]
    assert (opening.first_piece, len(opening.salt)) == (0, 32)
    assert opening.salt != unfinished
    assert len(met.outcomes["bank"]) == 3


def cut_short(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave an alignment after its first piece."""
    monkeypatch.setattr(ecdh, "PIECE", 2)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(3, SALT, FORMAT, None, 0))
        peer.send(BlindedIds(points()[:2]))
        peer.receive(TwiceBlindedIds)

    met = intersect(tables_of(IDS, IDS), step={"bank": lead}, folder=folder)
    assert type(met.outcomes["shop"]) is PeerLost


def test_a_lead_that_comes_back_cannot_ask_about_other_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on with what was cut short must not be a way to have more ids answered than were announced."""
    cut_short(tmp_path, monkeypatch)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.send(AlignmentOpening(3, peer.receive(AlignmentOffer).unfinished, FORMAT, None, 0))
        peer.send(BlindedIds(points([b"i8", b"i9"])))
        peer.receive(TwiceBlindedIds)

    met = intersect(tables_of(IDS, IDS), step={"bank": lead}, folder=tmp_path)
    refused(met.outcomes["shop"], "asks about other ids than before")
    assert not met.crossed(TwiceBlindedIds)


@pytest.mark.parametrize("count", [2, 4, 101])
def test_a_lead_that_comes_back_cannot_ask_about_more_ids(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, one alignment of three ids could be stretched to a hundred, and count as one."""
    cut_short(tmp_path, monkeypatch)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.send(AlignmentOpening(count, peer.receive(AlignmentOffer).unfinished, FORMAT, None, 1))
        for number in range(1, count // 2):
            peer.send(BlindedIds(points([b"a%d" % number, b"b%d" % number])))
            peer.receive(TwiceBlindedIds)

    met = intersect(tables_of(IDS, IDS), step={"bank": lead}, folder=tmp_path)
    refused(met.outcomes["shop"], "with another number of ids than before")
    assert not met.crossed(TwiceBlindedIds)


def test_a_partner_that_comes_back_cannot_bring_other_ids(tmp_path: Path) -> None:
    """A partner that was told, and pretends that it was not, would have more ids compared than it brought."""

    def partner(names: list[bytes], salt: bytes = b"") -> Callable[[Session, PartyTable], None]:
        def play(session: Session, own: PartyTable) -> None:
            peer = session.channel("lead")
            peer.send(AlignmentOffer(3, SALT, FORMAT, (), salt, 1 if salt else 0))
            opening = peer.receive(AlignmentOpening)
            if salt:
                assert (opening.salt, opening.first_piece) == (salt, 1), "the lead goes on"
                peer.send(marks_of(evaluate(Blinder(SECRET, salt), join_ids(names))))
                peer.receive(SharedRows)
            else:
                salts.append(joint(opening.salt, SALT).salt)
                peer.send(TwiceBlindedIds(multiplied(peer.receive(BlindedIds).points)))
                peer.send(marks_of(evaluate(joint(opening.salt, SALT), join_ids(names))))
                peer.receive(SharedRows)

        return play

    salts: list[bytes] = []
    with cut_at("bank", "sending", SharedRows, 1):
        told = intersect(tables_of(IDS, IDS), step={"shop": partner(NAMES[:1] * 3)}, folder=tmp_path)
    assert told.crossed(SharedRows)
    met = intersect(tables_of(IDS, IDS), step={"shop": partner(NAMES[1:2] * 3, salts[0])}, folder=tmp_path)
    refused(met.outcomes["bank"], "asks about other ids than before")
    assert not met.crossed(SharedRows)


def test_a_lead_cannot_go_on_with_another_salt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(tmp_path, monkeypatch)
    against_partner(
        "did not begin",
        AlignmentOpening=lambda honest: dataclasses.replace(honest, salt=b"x" * 32, first_piece=1),
        folder=tmp_path,
    )


# What the lead announces


def announcing(ids: list[bytes], said: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., None]:
    """Play a lead that brings some ids, and makes what it announces of their outputs and of the partner's marks."""

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        blinder = joint(SALT, peer.receive(AlignmentOffer).salt)
        peer.send(AlignmentOpening(len(ids), SALT, FORMAT, None, 0))
        peer.send(BlindedIds(as_rows(blind_each(blinder, join_ids(ids)), 33)))
        found = outputs(blinder, peer.receive(TwiceBlindedIds).points, ids)
        peer.send(SharedRows(np.ascontiguousarray(said(found, peer.receive(IdMarks).marks)), bytes(16)))

    return lead


STRANGERS = [b"x1", b"x2", b"x3"]
FORGERIES: dict[str, tuple[list[bytes], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "marks for tokens": (STRANGERS, lambda found, marks: marks),
    "tokens of strangers": (STRANGERS, lambda found, marks: found[:, 12:]),
    "a stranger among true ones": ([b"i1", b"i2", b"x3"], lambda found, marks: found[:, 12:]),
    "made up": (STRANGERS, lambda found, marks: np.frombuffer(draw_secret()[:24], np.uint8).reshape(2, 12)),
    "zeros": (STRANGERS, lambda found, marks: np.zeros((1, 12), np.uint8)),
    "one bit wrong": (NAMES, lambda found, marks: found[:, 12:] ^ np.array([0] * 11 + [1], np.uint8)),
    "own marks": (NAMES, lambda found, marks: found[:, :12]),
    "twice": (NAMES, lambda found, marks: found[[0, 1, 0], 12:]),
    "one twice and nothing else": (NAMES, lambda found, marks: found[[1, 1], 12:]),
    "more than there are": (NAMES, lambda found, marks: found[[0, 1, 2, 0], 12:]),
}


@pytest.mark.parametrize("step", [align, align_with_each])
@pytest.mark.parametrize("kind", FORGERIES)
def test_a_lead_cannot_declare_rows_shared_that_it_did_not_bring_and_find(kind: str, step: Any, tmp_path: Path) -> None:
    """Before, a lead without a single one of the shop's ids could declare all of its rows shared."""
    met = intersect(tables_of(IDS, IDS), step={"bank": announcing(*FORGERIES[kind]), "shop": step}, folder=tmp_path)
    refused(met.outcomes["shop"], "'bank' announces shared rows that 'shop' does not have")
    assert not list(tmp_path.rglob("*.rows")), "nothing of it is kept"


def test_a_lead_may_only_say_less_than_it_found() -> None:
    met = intersect(tables_of(IDS, IDS), step={"bank": announcing(NAMES, lambda found, marks: found[[1], 12:])})
    assert met.outcomes["shop"].positions.tolist() == [1]


def test_tokens_of_one_partner_prove_nothing_to_another() -> None:
    """What the lead learned from the telco about ids that only the telco has does not help it with the shop."""
    seen: list[np.ndarray] = []

    def lead(session: Session, own: PartyTable) -> None:
        for peer in session.channels("helper"):
            blinder = joint(SALT, peer.receive(AlignmentOffer).salt)
            peer.send(AlignmentOpening(3, SALT, FORMAT, None, 0))
            peer.send(BlindedIds(as_rows(blind_each(blinder, join_ids(NAMES)), 33)))
            seen.append(outputs(blinder, peer.receive(TwiceBlindedIds).points, NAMES))
            peer.receive(IdMarks)
        for peer, found in zip(session.channels("helper"), seen[::-1], strict=True):
            peer.send(SharedRows(np.ascontiguousarray(found[:, 12:]), bytes(16)))

    met = intersect(tables_of(IDS, IDS, IDS), step={"bank": lead})
    for party in ("shop", "telco"):
        refused(met.outcomes[party], f"announces shared rows that '{party}' does not have")


def test_among_three_the_lead_can_claim_that_all_hold_a_row() -> None:
    """What no token shows: `docs/limits.md` and the consent question say so."""

    def lead(session: Session, own: PartyTable) -> None:
        for peer in session.channels("helper"):
            announcing([b"i1"], lambda found, marks: found[:, 12:])(_Only(peer), own)

    class _Only:
        def __init__(self, peer: Channel) -> None:
            self.channel = lambda role: peer

    met = intersect(tables_of([1], [1, 2], [1, 3]), step={"bank": lead})
    assert [len(met.outcomes[party]) for party in ("shop", "telco")] == [1, 1]
    met = intersect(tables_of([1], [1, 2], [3, 4]), step={"bank": lead})
    assert len(met.outcomes["shop"]) == 1, "though the telco does not have it"
    refused(met.outcomes["telco"], "announces shared rows that 'telco' does not have")


def test_a_lead_cannot_compare_two_partners_with_each_other() -> None:
    """Before, a lead without ids that passed on what each sent could count what the two others share."""
    found: list[int] = []

    def lead(session: Session, own: PartyTable) -> None:
        peers = session.channels("helper")
        counts = [peer.receive(AlignmentOffer).count for peer in peers]
        for peer, count in zip(peers, counts[::-1], strict=True):
            peer.send(AlignmentOpening(count, SALT, FORMAT, None, 0))
        sent = [peer.receive(BlindedIds) for peer in peers]
        for peer, others in zip(peers, sent[::-1], strict=True):
            peer.send(others)
        first, second = ({row.tobytes() for row in peer.receive(ShuffledMarks).marks} for peer in peers)
        found.append(len(first & second))
        for peer in peers:
            peer.send(SharedCount(0))

    steps = {"bank": lead, "shop": count_shared, "telco": count_shared}
    tables = tables_of(["x"], list(range(50)), list(range(30, 90)))
    intersect(tables, step=steps, rule=Alignment(mode="size_only"))
    assert found == [0]


# Out of step, and lists made elsewhere


@pytest.mark.parametrize(
    "message",
    [
        SharedCount(3),
        SharedRows(np.zeros((1, 12), np.uint8), bytes(16)),
        GivenRows(3, bytes(32)),
        BlindedIds(np.zeros((3, 33), np.uint8)),
        TwiceBlindedIds(np.zeros((3, 33), np.uint8)),
        IdMarks(np.zeros((3, 12), np.uint8)),
        ShuffledMarks(np.zeros((3, 12), np.uint8)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_another_message_in_place_of_the_first_is_out_of_step(message: Any) -> None:
    against_lead("expected AlignmentOffer", OutOfStep, AlignmentOffer=message)
    against_partner("expected AlignmentOpening", OutOfStep, AlignmentOpening=message)


def test_a_list_that_is_not_ours_is_refused() -> None:
    def say(session: Session, own: PartyTable) -> None:
        (peer,) = session.all_channels
        peer.send(GivenRows(3, bytes(32)))
        peer.receive(GivenRows)

    for liar, honest in (("bank", "shop"), ("shop", "bank")):
        met = quickly(tables_of(IDS, IDS), honest, step={liar: say}, rule=Alignment(protocol="given"))
        error = met.outcomes[honest]
        assert type(error) is AlignmentError, repr(error)


def test_a_hostile_partner_does_not_spoil_what_is_kept_with_another(tmp_path: Path) -> None:
    tables = tables_of(IDS, IDS) | {"telco": table(IDS, "telco")}
    lie = Lie(TwiceBlindedIds=NO_POINTS["all zeros"])
    met = intersect(tables, step={"telco": lie.as_partner}, folder=tmp_path)
    refused(met.outcomes["bank"], "From 'telco'")
    again = intersect(tables, folder=tmp_path)
    assert {len(one) for one in again.rows().values()} == {3}
    assert again.crossed(AlignmentOpening, "bank", "shop")[0].first_piece == 1, "what was done with the shop is kept"
