"""Alignment in the open: the same rows everywhere, an explained failure, and no trust in what a peer sends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.references import order_key, shared_rows
from tests.unit.session.toys import Play, plan

from colonnade.alignment import MESSAGES, align, align_in_one_place
from colonnade.alignment.plain import DeclaredFormat, IdMarks, SharedMarks
from colonnade.data import PartyTable, Split
from colonnade.errors import AlignmentError, PeerFailed, PolicyRefused, WrongContent
from colonnade.messages import PLAIN, declaration_of
from colonnade.session import Holding, Policy, Result, Session, derive_seed
from colonnade.session.handshake import greet

PARTIES = ("bank", "shop", "telco")
NOTHING = np.empty(0, np.int64)
FORMAT = DeclaredFormat(False, True, 1, 2, False, False, "none")

# A few values that often meet, and every kind of id there is: text, 64-bit numbers and larger ones.
numbers = st.integers(0, 12) | st.sampled_from([2**63 - 1, -(2**63), 2**63, -(2**70), 2**200]) | st.integers()
texts = st.sampled_from(["0", "1", "2", "Zürich", "x" * 300]) | st.text(min_size=1).map(lambda text: f"c{text}")
# A table's ids are all numbers or all text; parties may differ in which.
tables_of_ids = st.lists(numbers, min_size=1, max_size=20, unique=True) | st.lists(
    texts, min_size=1, max_size=20, unique=True
)


def table(ids: list[Any], name: str = "table") -> PartyTable:
    return PartyTable(pd.DataFrame({"id": pd.Series(ids, dtype=object), "x": 1.0}), id="id", name=name)


def play_alignment(tables: dict[str, PartyTable], seed: int = 1, **how: Any) -> tuple[Play, dict[str, Any], dict]:
    """Align in a real session over memory; return what each party found beside how it ended."""
    found = {}

    def prepare(session: Session) -> Holding:
        found[session.party] = aligned = align(session, tables[session.party])
        return Holding(tables[session.party], aligned, Split(NOTHING, NOTHING, NOTHING))

    parties = tuple(tables)
    plans = dict.fromkeys(parties, plan(parties, seed=seed))
    played = Play(parties, plans=plans, prepare=prepare, messages=MESSAGES, **how)
    return played, played.run(), found


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(tables_of_ids, min_size=2, max_size=3), st.integers(0, 2**63 - 1))
def test_every_party_finds_the_rows_of_the_reference(lists: list[list[Any]], seed: int) -> None:
    tables = {party: table(ids, party) for party, ids in zip(PARTIES, lists, strict=False)}
    expected = shared_rows(tables, derive_seed(seed, "alignment"))
    _, outcomes, found = play_alignment(tables, seed)
    if not expected["bank"]:
        assert isinstance(outcomes["bank"], AlignmentError)
        assert found == {}
        return
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    in_one_place = align_in_one_place(tables, derive_seed(seed, "alignment"))
    for party, one in tables.items():
        for aligned in (found[party], in_one_place[party]):
            assert aligned.positions.tolist() == expected[party]
            assert aligned.rest.tolist() == sorted(set(range(one.rows)) - set(expected[party]))


@pytest.mark.parametrize("count", [2, 3])
def test_ids_of_all_kinds_are_aligned(count: int) -> None:
    whole: list[Any] = [5, 0, -1, 2**62, -(2**63), 2**63, 2**90, -(2**90)]
    for ids in (whole, [f"c{number}" for number in range(8)]):
        tables = {
            party: table([*np.roll(np.array(ids, dtype=object), place)[: 8 - place]])
            for place, party in enumerate(PARTIES[:count])
        }
        expected = shared_rows(tables, derive_seed(1, "alignment"))
        assert len(expected["bank"]) >= 4
        _, _, found = play_alignment(tables)
        assert {party: aligned.positions.tolist() for party, aligned in found.items()} == expected


def test_a_party_alone_has_all_its_rows_in_the_agreed_order() -> None:
    one = table([3, 1, 2])
    found: list[Any] = []

    def prepare(session: Session) -> Holding:
        found.append(align(session, one))
        return Holding(one, found[0], Split(NOTHING, NOTHING, NOTHING))

    Play(("bank",), prepare=prepare, messages=MESSAGES).run()
    assert found[0].positions.tolist() == shared_rows({"bank": one}, derive_seed(1, "alignment"))["bank"]
    assert len(found[0].rest) == 0


def test_only_marks_cross_and_only_between_each_party_and_the_lead() -> None:
    tables = {
        party: table([f"customer-{number}" for number in range(9 + place)]) for place, party in enumerate(PARTIES)
    }
    played, _, _ = play_alignment(tables)
    crossed = [
        (party, entry.content["peer"], entry.content["message"], entry.content["shapes"])
        for party, session in played.sessions.items()
        for entry in session.ledger.read().messages()
        if entry.kind == "sent" and entry.content["message"] in ("IdMarks", "SharedMarks")
    ]
    assert [one[:3] for one in crossed] == [
        ("bank", "shop", "SharedMarks"),
        ("bank", "telco", "SharedMarks"),
        ("shop", "bank", "IdMarks"),
        ("telco", "bank", "IdMarks"),
    ]
    assert [list(shapes.values()) for *_, shapes in crossed] == [[[9]], [[9]], [[10]], [[11]]]
    assert not any(b"customer-" in frame for _, _, frame in played.frames)


# Nothing shared


@pytest.mark.parametrize("count", [2, 3])
def test_an_empty_alignment_is_explained_alike_to_everyone(count: int) -> None:
    given: dict[str, list[Any]] = {"bank": ["AB8191", "AC17"], "shop": ["ab8191 ", "ac17"], "telco": [8191, 17]}
    tables = {party: table(ids, party) for party, ids in list(given.items())[:count]}
    played, outcomes, found = play_alignment(tables)
    assert found == {}
    error = outcomes.pop("bank")
    assert type(error) is AlignmentError
    assert "bank: text, length 4-6, upper case" in str(error)
    assert "shop: text, length 4-7, lower case, some with spaces around" in str(error)
    assert ("telco: whole numbers, length 2-4" in str(error)) is (count == 3)
    for heard in outcomes.values():
        assert isinstance(heard, PeerFailed)
        assert (heard.party, heard.cause, heard.returns) == ("bank", str(error), False)
    assert not any(word in str(error) for word in ("8191", "AB", "ab8", "17"))
    sent = [entry.content["message"] for one in played.sessions.values() for entry in one.ledger.read().messages()]
    assert "SharedMarks" not in sent


# The policy


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_party_that_never_sends_in_the_open_does_not_align_in_the_open(party: str) -> None:
    tables = {name: table([1, 2, 3]) for name in ("bank", "shop")}
    played, outcomes, found = play_alignment(tables, policies={party: Policy(never_send=("PLAIN",))})
    assert type(outcomes[party]) is PolicyRefused
    assert "is PLAIN" in str(outcomes[party])
    assert found == {}
    assert [entry.content["message"] for entry in played.sessions[party].ledger.read().messages()][:1] != ["Hello"]
    assert not any(b"IdMarks" in frame for _, _, frame in played.frames)


def test_the_declarations_say_that_marks_hide_nothing() -> None:
    for cls in MESSAGES:
        assert declaration_of(cls).protection == PLAIN
    assert "can guess" in declaration_of(IdMarks).reveals


# A peer that lies


def against_lead(code: Callable[[Session], Any]) -> Any:
    """Return what the lead ends with when the helper does this in place of alignment."""
    one = table([1, 2, 3])

    def hostile(session: Session) -> None:
        greet(session)
        code(session)

    def prepare(session: Session) -> Holding:
        return Holding(one, align(session, one), Split(NOTHING, NOTHING, NOTHING))

    return Play(prepare=prepare, messages=MESSAGES, code={"shop": hostile}).run()["bank"]


def against_helper(marks: Callable[[Session], np.ndarray]) -> Any:
    """Return what the helper ends with when the lead announces these marks."""
    one = table([1, 2, 3])

    def hostile(session: Session) -> None:
        greet(session)
        session.channel("helper").receive(IdMarks)
        session.channel("helper").send(SharedMarks(marks(session)))

    def prepare(session: Session) -> Holding:
        return Holding(one, align(session, one), Split(NOTHING, NOTHING, NOTHING))

    return Play(prepare=prepare, messages=MESSAGES, code={"bank": hostile}).run()["shop"]


def own(session: Session) -> np.ndarray:
    """Return the marks of 1, 2 and 3, as the honest party has them, in order."""
    return np.sort(np.array([order_key(one, session.seed("alignment")) for one in (1, 2, 3)], np.uint64))


WRONG_FORMS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "signed": lambda marks: marks.view(np.int64),
    "float": lambda marks: marks.astype(np.float64),
    "not a number": lambda marks: np.full(3, np.nan),
    "small": lambda marks: np.arange(3, dtype=np.uint8),
    "truths": lambda marks: np.ones(3, bool),
    "2-d": lambda marks: marks[:, None],
    "2-d of nothing": lambda marks: np.empty((0, 3), np.uint64),
    "0-d": lambda marks: marks[:1].reshape(()),
    "twice": lambda marks: np.repeat(marks, 2),
    "all the same": lambda marks: np.zeros(5, np.uint64),
}


@pytest.mark.parametrize("form", WRONG_FORMS)
def test_marks_of_another_form_are_refused(form: str) -> None:
    error = against_lead(lambda session: session.channel("lead").send(IdMarks(WRONG_FORMS[form](own(session)), FORMAT)))
    assert type(error) is WrongContent, repr(error)
    assert "IdMarks from 'shop'" in str(error)
    error = against_helper(lambda session: WRONG_FORMS[form](own(session)))
    assert type(error) is WrongContent, repr(error)
    assert "from 'bank'" in str(error) or "'bank' announces" in str(error)


def test_marks_in_the_order_of_a_table_are_fine_and_shared_marks_in_another_order_are_not() -> None:
    error = against_lead(lambda session: session.channel("lead").send(IdMarks(own(session)[::-1].copy(), FORMAT)))
    assert type(error) is not WrongContent
    for order in ([2, 1, 0], [1, 0, 2], [0, 2, 1]):
        error = against_helper(lambda session, order=order: own(session)[order])
        assert type(error) is WrongContent, repr(error)


@pytest.mark.parametrize("marks", [[0], [2**64 - 1], [0, 2**64 - 1], list(range(1000))], ids=len)
def test_shared_marks_that_the_receiver_does_not_have_are_refused(marks: list[int]) -> None:
    for keeps_own in (False, True):

        def announced(session: Session, keeps_own: bool = keeps_own) -> np.ndarray:
            return np.union1d(np.array(marks, np.uint64), own(session) if keeps_own else np.empty(0, np.uint64))

        error = against_helper(announced)
        assert type(error) is WrongContent, repr(error)
        assert "'shop' does not have" in str(error)


def test_an_empty_list_of_shared_marks_is_refused() -> None:
    """An honest lead that finds nothing shared says so and stops."""
    error = against_helper(lambda session: np.empty(0, np.uint64))
    assert type(error) is WrongContent, repr(error)


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
    ],
    ids=lambda changes: ",".join(changes),
)
def test_absurd_formats_are_refused_and_not_repeated(changes: dict[str, Any]) -> None:
    absurd = DeclaredFormat(**{**vars(FORMAT), **changes})
    # Marks that are not shared, so that the format would be read out to everyone.
    error = against_lead(lambda session: session.channel("lead").send(IdMarks(np.zeros(1, np.uint64), absurd)))
    assert type(error) is WrongContent, repr(error)
    assert "describe ids" in str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 200
