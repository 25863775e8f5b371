"""A peer that lies while shared rows are looked for: each case is refused by name, at once, without much memory."""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.adversary.hostile import any_text
from tests.unit.alignment.meeting import Meeting, meet, table, tables_of

from colonnade.alignment import align, align_with_each, count_shared, ecdh
from colonnade.alignment.messages import (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    DeclaredFormat,
    GivenRows,
    SharedCount,
    SharedRows,
    TwiceBlindedIds,
)
from colonnade.crypto.blinding import Blinder, blind, blind_again, draw_secret, join_ids
from colonnade.data import PartyTable
from colonnade.errors import AlignmentError, ColonnadeError, OutOfStep, PeerLost, RoleFailed, WrongContent
from colonnade.session import Alignment, Channel, Session

P = 2**256 - 2**32 - 977
FORMAT = DeclaredFormat(False, True, 1, 1, False, False, "none", 1)
IDS = [1, 2, 3]
NAMES = [b"i1", b"i2", b"i3"]
SALT = b"s" * 16
SECRET = draw_secret()


def as_rows(content: bytes, width: int) -> np.ndarray:
    return np.frombuffer(content, np.uint8).reshape(-1, width)


def points(salt: bytes = SALT, ids: list[bytes] = NAMES) -> np.ndarray:
    return as_rows(blind(Blinder(SECRET, salt), join_ids(ids)), 33)


def marks(of: np.ndarray) -> np.ndarray:
    return as_rows(blind_again(Blinder(SECRET, b""), of.tobytes()), 12)


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
        self.send(peer, AlignmentOffer(3, FORMAT, (), b"", 0))
        salt = peer.receive(AlignmentOpening).salt
        self.send(peer, BlindedIds(points(salt)))
        self.send(peer, TwiceBlindedIds(marks(peer.receive(BlindedIds).points)))
        peer.receive(SharedRows)

    def as_lead(self, session: Session, own: PartyTable) -> None:
        """Play the lead."""
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        self.send(peer, AlignmentOpening(3, SALT, None, 0))
        self.send(peer, BlindedIds(points()))
        theirs = marks(peer.receive(BlindedIds).points)
        answers = peer.receive(TwiceBlindedIds).marks
        assert sorted(map(bytes, theirs)) == sorted(map(bytes, answers)), "the honest side blinds as we do"
        self.send(peer, SharedRows(np.array([2, 0]), bytes(16)))


def quickly(tables: dict[str, PartyTable], honest: str, **how: Any) -> Meeting:
    began = time.monotonic()
    tracemalloc.start()
    try:
        met = meet(tables, **how)
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
    met = quickly(tables_of(IDS, IDS), "bank", step={"bank": step, "shop": lie.as_partner})
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
    met = quickly(tables_of(IDS, IDS), "shop", step={"bank": lie.as_lead, "shop": step}, folder=folder)
    refused(met.outcomes["shop"], words, kind)
    assert "'bank'" in str(met.outcomes["shop"])


def test_honest_scripts_are_accepted() -> None:
    """The scripts below differ from these in one message each."""
    met = meet(tables_of(IDS, IDS), step={"shop": Lie().as_partner})
    assert sorted(met.outcomes["bank"].positions) == [0, 1, 2]
    met = meet(tables_of(IDS, IDS), step={"bank": Lie().as_lead})
    assert len(met.outcomes["shop"].positions) == 2


# Points


def first_is(content: bytes) -> Callable[[BlindedIds], BlindedIds]:
    def change(honest: BlindedIds) -> BlindedIds:
        changed = honest.points.copy()
        changed[1] = np.frombuffer(content, np.uint8)
        return BlindedIds(changed)

    return change


def prefix_is(first: int) -> Callable[[BlindedIds], BlindedIds]:
    def change(honest: BlindedIds) -> BlindedIds:
        changed = honest.points.copy()
        changed[2, 0] = first
        return BlindedIds(changed)

    return change


NO_POINTS: dict[str, Callable[[BlindedIds], BlindedIds]] = {
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
    against_lead("no point of the curve", BlindedIds=NO_POINTS[kind])
    against_partner("no point of the curve", BlindedIds=NO_POINTS[kind])


def test_a_repeated_point_is_refused() -> None:
    def repeated(honest: BlindedIds) -> BlindedIds:
        return BlindedIds(honest.points[[0, 1, 0]])

    against_lead("the same blinded id more than once", BlindedIds=repeated)
    against_partner("the same blinded id more than once", BlindedIds=repeated)
    for step in (count_shared, align_with_each):
        against_lead("the same blinded id more than once", step=step, BlindedIds=repeated)
        against_partner("the same blinded id more than once", step=step, BlindedIds=repeated)


def test_a_point_repeated_in_another_piece_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ecdh, "PIECE", 2)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(3, SALT, None, 0))
        for piece in (points()[:2], points()[:1]):
            peer.send(BlindedIds(piece))
            peer.receive(BlindedIds)
            peer.receive(TwiceBlindedIds)

    refused(meet(tables_of(IDS, IDS), step={"bank": lead}).outcomes["shop"], "the same blinded id more than once")

    def partner(session: Session, own: PartyTable) -> None:
        peer = session.channel("lead")
        peer.send(AlignmentOffer(3, FORMAT, (), b"", 0))
        salt = peer.receive(AlignmentOpening).salt
        for piece in (points(salt)[:2], points(salt)[:1]):
            peer.send(BlindedIds(piece))
            peer.send(TwiceBlindedIds(marks(peer.receive(BlindedIds).points)))

    refused(meet(tables_of(IDS, IDS), step={"shop": partner}).outcomes["bank"], "the same blinded id more than once")


WRONG_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "one too few": lambda rows: rows[:2],
    "one too many": lambda rows: np.concatenate([rows, rows[:1]]),
    "none": lambda rows: rows[:0],
    "narrow": lambda rows: np.ascontiguousarray(rows[:, 1:]),
    "wide": lambda rows: np.repeat(rows, 2, axis=1),
    "flat": lambda rows: rows.reshape(-1),
    "deep": lambda rows: rows[None],
    "turned": lambda rows: np.ascontiguousarray(rows.T),
    "signed": lambda rows: rows.view(np.int8),
    "truths": lambda rows: rows > 9,
    "large": lambda rows: rows.astype(np.int64),
    "floats": lambda rows: rows.astype(np.float64),
    "not a number": lambda rows: np.full(rows.shape, np.nan),
    "0-d": lambda rows: np.array(3, np.uint8),
}


@pytest.mark.parametrize("form", WRONG_FORMS)
def test_points_and_marks_of_another_form_are_refused(form: str) -> None:
    change = WRONG_FORMS[form]
    against_lead("", BlindedIds=lambda honest: BlindedIds(change(honest.points)))
    against_lead("", TwiceBlindedIds=lambda honest: TwiceBlindedIds(change(honest.marks)))
    against_partner("", BlindedIds=lambda honest: BlindedIds(change(honest.points)))


def test_marks_that_repeat_are_refused() -> None:
    same = TwiceBlindedIds(np.zeros((3, 12), np.uint8))
    against_lead("the same blinded id more than once", TwiceBlindedIds=same)


def test_our_own_points_sent_back_match_nothing() -> None:
    """A partner without a secret that reflects what it gets does not look like one that has our ids."""

    def mirror(session: Session, own: PartyTable) -> None:
        peer = session.channel("lead")
        peer.send(AlignmentOffer(3, FORMAT, (), b"", 0))
        peer.receive(AlignmentOpening)
        ours = peer.receive(BlindedIds)
        peer.send(ours)
        peer.send(TwiceBlindedIds(marks(ours.points)))

    assert type(meet(tables_of(IDS, IDS), step={"shop": mirror}).outcomes["bank"]) is AlignmentError


# Counts


@pytest.mark.parametrize("count", [-1, -(2**70), 2**33, 2**60, 2**63, 2**64, 2**12000])
def test_counts_that_no_table_has_are_refused_before_anything_is_made(count: int) -> None:
    words = "in a way no version of colonnade does"
    against_lead(words, AlignmentOffer=lambda honest: dataclasses.replace(honest, count=count))
    against_lead(words, step=count_shared, AlignmentOffer=lambda honest: dataclasses.replace(honest, count=count))
    against_partner(words, AlignmentOpening=lambda honest: dataclasses.replace(honest, count=count))
    against_partner(words, step=count_shared, AlignmentOpening=lambda honest: dataclasses.replace(honest, count=count))


@pytest.mark.parametrize("step", [align, count_shared])
def test_a_large_count_takes_no_memory_until_the_ids_come(step: Any) -> None:
    """Four thousand million ids would be possible; without them, the honest party only waits."""
    count = 2**32

    def partner(session: Session, own: PartyTable) -> None:
        peer = session.channel("lead")
        peer.send(AlignmentOffer(count, FORMAT, (), b"", 0))
        peer.receive(BlindedIds) if peer.receive(AlignmentOpening) else None

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(count, SALT, None, 0))
        peer.receive(BlindedIds)

    for liar, honest, code in (("shop", "bank", partner), ("bank", "shop", lead)):
        met = quickly(tables_of(IDS, IDS), honest, step={liar: code, honest: step})
        assert type(met.outcomes[honest]) is PeerLost


@pytest.mark.parametrize("count", [0, 2, 4, 40_000])
def test_a_count_that_differs_from_what_comes_is_refused(count: int) -> None:
    for changes in ({"count": count},):
        lie = Lie(AlignmentOffer=lambda honest, changes=changes: dataclasses.replace(honest, **changes))
        error = meet(tables_of(IDS, IDS), step={"shop": lie.as_partner}).outcomes["bank"]
        assert type(error) in (WrongContent, OutOfStep), repr(error)
        lie = Lie(AlignmentOpening=lambda honest, changes=changes: dataclasses.replace(honest, **changes))
        error = meet(tables_of(IDS, IDS), step={"bank": lie.as_lead}).outcomes["shop"]
        assert type(error) in (WrongContent, OutOfStep), repr(error)


@pytest.mark.parametrize("count", [-1, 4, 2**60, 2**12000, -(2**12000)])
def test_a_number_of_shared_rows_that_cannot_be_is_refused(count: int) -> None:
    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(3, SALT, None, 0))
        peer.send(BlindedIds(points()))
        peer.receive(BlindedIds)
        peer.receive(TwiceBlindedIds)
        peer.send(SharedCount(count))

    rule = Alignment(mode="size_only")
    met = quickly(tables_of(IDS, IDS), "shop", step={"bank": lead, "shop": count_shared}, rule=rule)
    refused(met.outcomes["shop"], "shared rows")


# The opening


@pytest.mark.parametrize("salt", [b"", b"s", SALT[:-1], SALT + b"s", b"s" * 2**20], ids=len)
def test_a_salt_of_another_length_is_refused(salt: bytes) -> None:
    against_partner(
        "in a way no version of colonnade does",
        AlignmentOpening=lambda honest: dataclasses.replace(honest, salt=salt),
    )


@pytest.mark.parametrize("piece", [1, 2**60, 2**12000, -1, -(2**12000)])
def test_a_lead_cannot_skip_pieces(piece: int) -> None:
    against_partner(
        "in a way no version of colonnade does",
        AlignmentOpening=lambda honest: dataclasses.replace(honest, first_piece=piece),
    )


@pytest.mark.parametrize("result", [b"", bytes(16), b"../../../../etc/passwd", b"x" * 2**20], ids=len)
def test_a_result_that_we_do_not_have_is_not_used(result: bytes, tmp_path: Path) -> None:
    reuse = AlignmentOpening(3, b"", result, 0)
    against_partner("a result that 'shop' does not have", AlignmentOpening=reuse)
    meet(tables_of(IDS, IDS), folder=tmp_path)
    against_partner("a result that 'shop' does not have", AlignmentOpening=reuse, folder=tmp_path)


@pytest.mark.parametrize("count", [-1, 2**60, 2**12000])
def test_an_earlier_result_is_not_used_with_an_absurd_count(count: int, tmp_path: Path) -> None:
    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        (result,) = peer.receive(AlignmentOffer).held
        peer.send(AlignmentOpening(count, b"", result, 0))

    meet(tables_of(IDS, IDS), folder=tmp_path)
    met = quickly(tables_of(IDS, IDS), "shop", step={"bank": lead}, folder=tmp_path)
    refused(met.outcomes["shop"], "in a way no version of colonnade does")
    assert all(len(str(entry.content)) < 2000 for entry in met.sessions["shop"].ledger.read().entries)


@pytest.mark.parametrize("held", [(b"",), (bytes(15),), (bytes(16), bytes(17)), (b"../../x",)], ids=str)
def test_names_of_results_of_another_length_are_refused(held: tuple[bytes, ...]) -> None:
    against_lead(
        "in a way no version of colonnade does", AlignmentOffer=lambda honest: dataclasses.replace(honest, held=held)
    )


def test_a_partner_that_claims_to_hold_any_result_gets_none_that_we_lack() -> None:
    """It only learns that the lead begins anew."""
    lie = Lie(AlignmentOffer=lambda honest: dataclasses.replace(honest, held=(bytes(16), b"x" * 16)))
    met = meet(tables_of(IDS, IDS), step={"shop": lie.as_partner})
    assert met.crossed(AlignmentOpening)[0].reuse is None
    assert len(met.outcomes["bank"]) == 3


@pytest.mark.parametrize("pieces", [-1, -(2**12000)])
def test_less_than_no_pieces_are_refused(pieces: int) -> None:
    against_lead(
        "in a way no version of colonnade does",
        AlignmentOffer=lambda honest: dataclasses.replace(honest, finished_pieces=pieces),
    )


@pytest.mark.parametrize("unfinished", [b"", SALT, bytes(16), b"x" * 2**20], ids=len)
def test_a_partner_cannot_make_the_lead_skip_pieces(unfinished: bytes) -> None:
    lie = Lie(
        AlignmentOffer=lambda honest: dataclasses.replace(honest, unfinished=unfinished, finished_pieces=2**12000)
    )
    met = meet(tables_of(IDS, IDS), step={"shop": lie.as_partner})
    opening = met.crossed(AlignmentOpening)[0]
    assert (opening.first_piece, len(opening.salt)) == (0, 16)
    assert opening.salt != unfinished
    assert len(met.outcomes["bank"]) == 3


def cut_short(folder: Path, ids: list[Any], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Leave an alignment after its first piece, and return its salt."""
    monkeypatch.setattr(ecdh, "PIECE", 2)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        peer.receive(AlignmentOffer)
        peer.send(AlignmentOpening(3, SALT, None, 0))
        peer.send(BlindedIds(points()[:2]))
        peer.receive(BlindedIds)
        peer.receive(TwiceBlindedIds)

    met = meet(tables_of(ids, ids), step={"bank": lead}, folder=folder)
    assert type(met.outcomes["shop"]) is PeerLost
    return SALT


def test_a_lead_that_comes_back_cannot_ask_about_other_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Going on with what was cut short must not be a way to have more ids answered than were announced."""
    salt = cut_short(tmp_path, IDS, monkeypatch)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        assert peer.receive(AlignmentOffer).unfinished == salt
        peer.send(AlignmentOpening(3, salt, None, 0))
        peer.send(BlindedIds(points(ids=[b"i8", b"i9"])))
        peer.receive(BlindedIds)
        peer.receive(TwiceBlindedIds)

    met = meet(tables_of(IDS, IDS), step={"bank": lead}, folder=tmp_path)
    refused(met.outcomes["shop"], "asks about other ids than before")
    assert not met.crossed(TwiceBlindedIds)


def test_a_lead_that_comes_back_with_a_repeated_id_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    salt = cut_short(tmp_path, IDS, monkeypatch)

    def lead(session: Session, own: PartyTable) -> None:
        peer = session.channel("helper")
        assert peer.receive(AlignmentOffer).finished_pieces == 1
        peer.send(AlignmentOpening(3, salt, None, 1))
        peer.send(BlindedIds(points()[:1]))
        peer.receive(BlindedIds)
        peer.receive(TwiceBlindedIds)
        peer.send(SharedRows(np.array([0]), bytes(16)))

    met = meet(tables_of(IDS, IDS), step={"bank": lead}, folder=tmp_path)
    refused(met.outcomes["shop"], "the same blinded id more than once")


def test_a_lead_cannot_go_on_with_another_salt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_short(tmp_path, IDS, monkeypatch)
    against_partner(
        "did not begin",
        AlignmentOpening=lambda honest: dataclasses.replace(honest, salt=b"x" * 16, first_piece=1),
        folder=tmp_path,
    )


# What the lead announces

ANNOUNCED: dict[str, np.ndarray] = {
    "one too far": np.array([0, 3]),
    "far too far": np.array([0, 2**62]),
    "negative": np.array([0, -1]),
    "smallest": np.array([-(2**63)]),
    "twice": np.array([1, 1]),
    "too many": np.array([0, 1, 2, 0]),
    "none": np.array([], np.int64),
    "2-d": np.array([[0], [1]]),
    "0-d": np.array(0),
    "small": np.array([0, 1], np.int32),
    "unsigned": np.array([0, 1], np.uint64),
    "floats": np.array([0.0, 1.0]),
    "not a number": np.array([np.nan]),
    "truths": np.array([True, False]),
    "other byte order": np.array([0, 1], ">i8").view("<i8"),
}


@pytest.mark.parametrize("form", ANNOUNCED)
def test_places_that_the_receiver_does_not_have_are_refused(form: str, tmp_path: Path) -> None:
    words = "announces shared rows that 'shop' does not have"
    against_partner(words, folder=tmp_path, SharedRows=SharedRows(ANNOUNCED[form], bytes(16)))
    assert not list(tmp_path.rglob("*.rows")), "nothing of it is kept"
    if form != "none":
        against_partner(words, step=align_with_each, SharedRows=SharedRows(ANNOUNCED[form], bytes(16)))


@pytest.mark.parametrize("result", [b"", bytes(15), bytes(17), b"../../../../tmp/x", b"x" * 2**20], ids=len)
def test_names_of_results_are_sixteen_bytes(result: bytes, tmp_path: Path) -> None:
    against_partner("announces shared rows", folder=tmp_path, SharedRows=SharedRows(np.array([0]), result))


# Formats


@pytest.mark.parametrize(
    "changes",
    [
        {"letters": "Upper"},
        {"letters": ""},
        {"letters": "\x1b[2J" + "x" * 1000},
        {"shortest": -1},
        {"shortest": 3, "longest": 2},
        {"longest": 2**21},
        {"longest": 2**5000},
        {"shortest": -(2**5000)},
        {"parts": 0},
        {"parts": -1},
        {"parts": 65},
        {"parts": 2**5000},
    ],
    ids=lambda changes: ",".join(f"{name}={str(value)[:9]!a}" for name, value in changes.items()),
)
def test_absurd_formats_are_refused_and_not_repeated(changes: dict[str, Any]) -> None:
    absurd = dataclasses.replace(FORMAT, **changes)
    # Ids that are not shared, so that the format would be read out to everyone.
    others = points(ids=[b"i7", b"i8", b"i9"])
    with any_text():
        against_lead(
            "AlignmentOffer" if "\x1b" in absurd.letters else "describes its ids in a way no version of colonnade does",
            AlignmentOffer=AlignmentOffer(3, absurd, (), b"", 0),
            BlindedIds=BlindedIds(others),
        )


# Out of step, and lists made elsewhere


@pytest.mark.parametrize(
    "message",
    [
        SharedCount(3),
        SharedRows(np.array([0]), bytes(16)),
        GivenRows(3, bytes(32)),
        BlindedIds(np.zeros((3, 33), np.uint8)),
        TwiceBlindedIds(np.zeros((3, 12), np.uint8)),
    ],
    ids=lambda message: type(message).__name__,
)
def test_another_message_in_place_of_the_first_is_out_of_step(message: Any) -> None:
    against_lead("expected AlignmentOffer", OutOfStep, AlignmentOffer=message)
    against_partner("expected AlignmentOpening", OutOfStep, AlignmentOpening=message)


@pytest.mark.parametrize(
    "message", [GivenRows(-1, b""), GivenRows(3, bytes(32)), GivenRows(2**12000, b"x" * 2**20)], ids=["a", "b", "c"]
)
def test_a_list_that_is_not_ours_is_refused_whatever_it_claims(message: GivenRows) -> None:
    def say(session: Session, own: PartyTable) -> None:
        (peer,) = session.all_channels
        peer.send(message)
        peer.receive(GivenRows)

    for liar, honest in (("bank", "shop"), ("shop", "bank")):
        met = quickly(tables_of(IDS, IDS), honest, step={liar: say}, rule=Alignment(protocol="given"))
        error = met.outcomes[honest]
        assert type(error) in (AlignmentError, WrongContent), repr(error)
        assert str(error).isprintable()
        assert len(str(error)) < 500


def test_a_hostile_partner_does_not_spoil_what_is_kept_with_another(tmp_path: Path) -> None:
    tables = tables_of(IDS, IDS) | {"telco": table(IDS, "telco")}
    lie = Lie(BlindedIds=NO_POINTS["all zeros"])
    met = meet(tables, step={"telco": lie.as_partner}, folder=tmp_path)
    refused(met.outcomes["bank"], "From 'telco'")
    again = meet(tables, folder=tmp_path)
    assert {len(one) for one in again.rows().values()} == {3}
    assert again.crossed(AlignmentOpening, "bank", "shop")[0].first_piece == 1, "what was done with the shop is kept"
