"""Private alignment finds what plain set intersection finds, at every party, in the same order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from tests.unit.alignment.intersecting import (
    PARTIES,
    SEED,
    expected_rows,
    intersect,
    plain,
    rest_of,
    shuffled,
    table,
    tables_of,
)
from tests.unit.session.toys import Play, plan

from colonnade.alignment import MESSAGES, align, align_in_one_place, align_with_each, count_shared, ecdh
from colonnade.alignment.messages import BlindedIds, IdMarks, SharedCount, SharedRows, ShuffledMarks, TwiceBlindedIds
from colonnade.data import PartyTable, Split
from colonnade.engine.pool import PoolEngine
from colonnade.errors import AlignmentError, ConfigError, PeerFailed, PeerLost, PolicyRefused, TableError
from colonnade.messages import MASKED, PLAIN, declaration_of
from colonnade.session import Alignment, Holding, Policy, Result, Session, derive_seed

NOTHING = np.empty(0, np.int64)
ROOMY = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

# A few values that often intersect, and every kind of id there is: text, 64-bit numbers and larger ones.
numbers = st.integers(0, 12) | st.sampled_from([2**63 - 1, -(2**63), 2**63, -(2**70), 2**200]) | st.integers()
words = st.sampled_from(["0", "1", " 2", "Zürich", "Zu\u0308rich", "ZÜRICH", "straße", "STRASSE", "İ", "ﬁ", "x" * 300])
texts = words | st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
digits = st.integers(0, 12).map(str) | st.integers(0, 12).map(lambda number: f" 00{number}") | st.just("+7")
# A table's ids are all numbers or all text; parties may differ in which.
ids_of = {
    "keep": st.lists(numbers, min_size=1, max_size=20) | st.lists(texts, min_size=1, max_size=20),
    "text": st.lists(numbers, min_size=1, max_size=20) | st.lists(texts | digits, min_size=1, max_size=20),
    "number": st.lists(numbers, min_size=1, max_size=20) | st.lists(digits, min_size=1, max_size=20),
}


@st.composite
def situations(draw: st.DrawFn) -> tuple[Alignment, list[list[Any]]]:
    rule = Alignment(
        trim=draw(st.booleans()),
        case=draw(st.sampled_from(["keep", "fold"])),
        type=draw(st.sampled_from(["keep", "text", "number"])),
    )
    if rule.type == "number":
        rule = Alignment(trim=True, case=rule.case, type="number")
    lists = draw(st.lists(ids_of[rule.type], min_size=2, max_size=3))
    # The first of those that the rule makes equal: a table must not repeat an id.
    return rule, [list({plain(one, rule): one for one in reversed(ids)}.values()) for ids in lists]


def found_everywhere(tables: dict[str, PartyTable], rule: Alignment | None = None, seed: int = SEED) -> None:
    """Check one alignment against the reference, and the shortcut for simulations with it."""
    expected = expected_rows(tables, rule, seed)
    met = intersect(tables, rule=rule, seed=seed)
    if not expected["bank"]:
        assert type(met.outcomes["bank"]) is AlignmentError
        assert all(type(met.outcomes[party]) is PeerLost for party in tables if party != "bank")
        return
    assert met.rows() == expected
    in_one_place = align_in_one_place(tables, "bank", rule or Alignment(), derive_seed(seed, "alignment"))
    for party, one in tables.items():
        for aligned in (met.outcomes[party], in_one_place[party]):
            assert aligned.positions.tolist() == expected[party]
            assert aligned.rest.tolist() == rest_of(one.rows, expected[party])
            assert aligned.protocol.startswith("ecdh: private set intersection")


@ROOMY
@given(situations(), st.integers(0, 2**63 - 1), st.sampled_from([1, 3, ecdh.PIECE]))
def test_every_party_finds_the_rows_of_the_reference(
    situation: tuple[Alignment, list[list[Any]]], seed: int, piece: int
) -> None:
    rule, lists = situation
    assume(all(all(str(one).strip() for one in ids) for ids in lists))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ecdh, "PIECE", piece)
        found_everywhere(tables_of(*lists), rule, seed)


@pytest.mark.parametrize("count", [2, 3])
def test_ids_of_all_kinds_are_aligned(count: int) -> None:
    whole: list[Any] = [5, 0, -1, 2**62, -(2**63), 2**63, 2**90, -(2**90)]
    for ids in (whole, [f"c{number}" for number in range(8)]):
        lists = [[*np.roll(np.array(ids, dtype=object), place)[: 8 - place]] for place in range(count)]
        assert len(expected_rows(tables_of(*lists))["bank"]) >= 4
        found_everywhere(tables_of(*lists))


@pytest.mark.parametrize("count", [2, 3])
def test_identical_tables_and_single_rows(count: int) -> None:
    found_everywhere(tables_of(*[[f"c{number}" for number in range(40)]] * count))
    found_everywhere(tables_of(*[["only"]] * count))
    found_everywhere(tables_of([1, 2, 3], *[[3]] * (count - 1)))


def test_numbers_and_texts_meet_by_the_declared_rule_only() -> None:
    tables = tables_of([7, 8, 9], ["9", "7", "10"])
    found_everywhere(tables, Alignment(type="text"))
    assert expected_rows(tables, Alignment(type="text"))["bank"]
    found_everywhere(tables)
    assert not expected_rows(tables)["bank"]
    padded = tables_of([7, 8, 9], ["009", "007", "010"])
    assert not expected_rows(padded, Alignment(type="text"))["bank"]
    found_everywhere(padded, Alignment(type="text"))
    found_everywhere(padded, Alignment(type="number"))
    assert sorted(expected_rows(padded, Alignment(type="number"))["bank"]) == [0, 2]


def test_unicode_meets_in_one_form_and_in_any_case_if_so_agreed() -> None:
    tables = tables_of(["Zürich", "STRASSE", "Ångström", "東京"], ["straße", "Zu\u0308rich", "a\u030angström", "東京"])
    found_everywhere(tables)
    assert sorted(expected_rows(tables)["bank"]) == [0, 3]
    found_everywhere(tables, Alignment(case="fold"))
    assert sorted(expected_rows(tables, Alignment(case="fold"))["bank"]) == [0, 1, 2, 3]


def test_an_id_of_several_columns_is_one_id() -> None:
    def named(rows: list[tuple[Any, ...]], name: str) -> PartyTable:
        frame = pd.DataFrame(rows, columns=["first", "number"])
        return PartyTable(frame.assign(x=1.0), id=["first", "number"], name=name)

    tables = {
        "bank": named([("Zoe", 1), ("Zoe", 2), ("Ann", 1), ("a:1:s", 3)], "bank"),
        "shop": named([("Ann", 1), ("Zoe", 2), ("Ann", 2), ("a", 3)], "shop"),
    }
    found_everywhere(tables)
    assert sorted(expected_rows(tables)["bank"]) == [1, 2]
    mixed = tables | {"shop": named([("ann", "1"), ("zoe ", "2"), ("zoe", "9")], "shop")}
    found_everywhere(mixed, Alignment(case="fold", type="text"))
    assert sorted(expected_rows(mixed, Alignment(case="fold", type="text"))["bank"]) == [1, 2]


def customers() -> dict[str, PartyTable]:
    """A bank that knows its rows by a card to the shop and by a phone to the operator, where there is one."""
    bank = pd.DataFrame(
        {
            "id": [1, 2, 3, 4, 5, 6],
            "card": pd.Series(["c1", "c2", None, "c4", "c5", "c6"], dtype=object),
            "phone": pd.Series([None, "p2", "p3", "p4", "p5", "p9"], dtype=object),
            "x": 1.0,
        }
    )
    shop = pd.DataFrame({"own": range(4), "card": ["c5", "c4", "c1", "c2"], "x": 1.0})
    return {
        "bank": PartyTable(bank, id="id", partner_ids={"shop": "card", "telco": ["phone"]}, name="bank"),
        "shop": PartyTable(shop, id="own", partner_ids={"bank": "card"}, name="shop"),
        "telco": table(["p4", "p9", "p5", "p1", "p2"], "telco"),
    }


def test_every_partner_may_know_the_rows_by_an_id_of_its_own() -> None:
    tables = customers()
    found_everywhere(tables)
    assert sorted(expected_rows(tables)["bank"]) == [1, 3, 4]
    met = intersect({party: tables[party] for party in ("bank", "shop")})
    assert sorted(met.rows()["bank"]) == [0, 1, 3, 4]
    # Rows that have no id for a partner are not counted, let alone sent.
    assert len(met.points("bank", "shop")) == 5
    assert [mark.count for mark in met.crossed() if hasattr(mark, "salt")] == [4, 5]


@ROOMY
@given(st.lists(st.none() | st.integers(0, 15), min_size=2, max_size=16), st.lists(st.integers(0, 15), min_size=1))
def test_missing_ids_of_a_partner_are_rows_it_does_not_share(known: list[int | None], theirs: list[int]) -> None:
    seen: set[Any] = set()
    cards = [None if one in seen or seen.add(one) else one for one in known]
    assume(any(one is not None for one in cards))
    frame = pd.DataFrame({"id": [f"r{row}" for row in range(len(cards))], "card": pd.Series(cards, dtype=object)})
    tables = {
        "bank": PartyTable(frame, id="id", partner_ids={"shop": "card"}, name="bank"),
        "shop": table(sorted(set(theirs)), "shop"),
    }
    found_everywhere(tables)


@pytest.mark.parametrize("sizes", [(7, 7), (6, 8), (1, 20), (20, 1), (14, 14), (15, 13), (22, 36)])
def test_any_number_of_pieces_gives_the_same_rows(sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = ([f"c{number}" for number in range(size)] for size in sizes)
    tables = tables_of(first, second[::-1])
    whole = intersect(tables).rows()
    monkeypatch.setattr(ecdh, "PIECE", 7)
    met = intersect(tables)
    assert met.rows() == whole == expected_rows(tables)
    pieces = [-(-size // 7) for size in sizes]
    assert (
        len(met.crossed(BlindedIds, "bank", "shop")) == len(met.crossed(TwiceBlindedIds, "shop", "bank")) == pieces[0]
    )
    assert len(met.crossed(IdMarks, "shop", "bank")) == pieces[1]
    assert len(met.marks("shop", "bank")) == sizes[1]
    assert len(met.points("bank", "shop")) == sizes[0]


def test_the_order_depends_on_the_seed_and_the_ids_not_on_the_files() -> None:
    ids = [f"c{number}" for number in range(30)]
    tables = tables_of(ids, ids[5:], ids[:25])

    def ordered(given: dict[str, PartyTable], seed: int) -> list[list[str]]:
        rows = intersect(given, seed=seed).rows()
        return [given[party].ids[rows[party]].tolist() for party in given]

    first = ordered(tables, 1)
    assert first[0] == first[1] == first[2]
    assert len(first[0]) == 20
    mixed = {party: shuffled(one, place) for place, (party, one) in enumerate(tables.items())}
    assert ordered(mixed, 1) == first
    assert ordered(mixed, 2) != first
    assert sorted(ordered(mixed, 2)[0]) == sorted(first[0])


def test_a_party_alone_has_all_its_rows_in_the_agreed_order() -> None:
    met = intersect({"bank": table([3, 1, 2])})
    assert met.rows() == expected_rows({"bank": table([3, 1, 2])})
    assert len(met.outcomes["bank"].rest) == 0


def test_a_pool_of_processes_gives_the_same_rows() -> None:
    ids = [f"c{number}" for number in range(900)]
    tables = tables_of(ids, ids[450:] + [f"d{number}" for number in range(450)])
    with PoolEngine(2) as engine:
        assert len(engine.parts(900, ecdh._SECONDS_EACH)) > 1
        assert intersect(tables, engine=engine).rows() == expected_rows(tables)


def test_ids_that_the_rule_makes_equal_are_refused_by_their_owner() -> None:
    met = intersect(tables_of(["a", "b"], ["A", "a", "b"]), rule=Alignment(case="fold"))
    assert type(met.outcomes["shop"]) is TableError
    assert "1 ids that occur more than once" in str(met.outcomes["shop"])


# Nothing shared


def play_alignment(tables: dict[str, PartyTable], rule: Alignment | None = None, **how: Any) -> tuple[Any, Any, Any]:
    """Align in a whole session; return what each party found beside how it ended."""
    found = {}

    def prepare(session: Session) -> Holding:
        found[session.party] = aligned = align(session, tables[session.party])
        return Holding(tables[session.party], aligned, Split(NOTHING, NOTHING, NOTHING))

    parties = tuple(tables)
    plans = dict.fromkeys(parties, plan(parties, alignment=rule or Alignment()))
    played = Play(parties, plans=plans, prepare=prepare, messages=MESSAGES, **how)
    return played, played.run(), found


def test_a_whole_session_aligns_and_goes_on() -> None:
    _, outcomes, found = play_alignment(tables_of([1, 2, 3], [2, 3], [3, 2, 5]))
    assert all(isinstance(one, Result) for one in outcomes.values()), outcomes
    assert len({len(one) for one in found.values()}) == 1


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
    assert 'case = "fold"' in str(error)
    assert "spaces around ids may" not in str(error), "the rule trims, so spaces are no cause"
    for heard in outcomes.values():
        assert isinstance(heard, PeerFailed)
        assert (heard.party, heard.cause, heard.returns) == ("bank", str(error), False)
    assert not any(word in str(error) for word in ("8191", "AB", "ab8", "17"))
    sent = [entry.content["message"] for one in played.sessions.values() for entry in one.ledger.read().messages()]
    assert "SharedRows" not in sent


def test_an_empty_alignment_is_explained_by_the_ids_that_were_compared() -> None:
    tables = customers() | {"telco": table([17, 18], "telco")}
    error = intersect(tables).outcomes["bank"]
    assert type(error) is AlignmentError
    assert "bank: text, length 2" in str(error)
    assert "telco: whole numbers" in str(error)
    assert "shop" not in str(error), "the bank shares rows with it"


# Other modes


def test_what_is_shared_with_each_is_found_pair_by_pair() -> None:
    tables = tables_of([1, 2, 3, 4], [2, 3, 9], [4, 3])
    met = intersect(tables, step=align_with_each)
    for other in ("shop", "telco"):
        pair = expected_rows({party: tables[party] for party in ("bank", other)})
        assert met.outcomes["bank"][other].positions.tolist() == pair["bank"]
        assert met.outcomes[other]["bank"].positions.tolist() == pair[other]
    with pytest.raises(ConfigError, match="size_only"):
        raise intersect(tables, step=align_with_each, rule=Alignment(mode="size_only")).outcomes["bank"]


def test_that_nothing_is_shared_with_one_is_a_result_too(tmp_path: Path) -> None:
    tables = tables_of([1, 2, 3, 4], [2, 3, 9], [5])
    met = intersect(tables, step=align_with_each, folder=tmp_path)
    assert [len(met.outcomes["bank"][other]) for other in ("shop", "telco")] == [2, 0]
    assert len(met.outcomes["telco"]["bank"]) == 0
    assert met.outcomes["telco"]["bank"].rest.tolist() == [0]
    # And none that a run could take for shared rows.
    pair = {party: tables[party] for party in ("bank", "telco")}
    intersect(pair, step=align_with_each, folder=tmp_path)
    assert type(intersect(pair, folder=tmp_path).outcomes["bank"]) is AlignmentError


def test_where_one_learns_the_others_are_told_nothing(tmp_path: Path) -> None:
    tables = tables_of([1, 2, 3, 4], [2, 3, 9], [4, 3])
    met = intersect(tables, step=align_with_each, rule=Alignment(mode="one_learns"), folder=tmp_path)
    assert [sorted(met.outcomes["bank"][other].positions) for other in ("shop", "telco")] == [[1, 2], [2, 3]]
    assert met.outcomes["shop"] == met.outcomes["telco"] == {}
    assert not met.crossed(SharedRows)
    assert not met.crossed(SharedCount)
    assert not list(tmp_path.rglob("state.json"))


@pytest.mark.filterwarnings("ignore::colonnade.errors.FewRowsShared")
@pytest.mark.parametrize("piece", [2, 7, ecdh.PIECE])
def test_sizes_are_counted_with_each_and_told_to_each(
    piece: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ecdh, "PIECE", piece)
    tables = tables_of(list(range(20)), list(range(15, 30)), list(range(100, 103)))
    met = intersect(tables, step=count_shared, rule=Alignment(mode="size_only"), folder=tmp_path)
    assert met.outcomes == {"bank": {"shop": 5, "telco": 0}, "shop": {"bank": 5}, "telco": {"bank": 0}}
    assert not met.crossed(SharedRows)
    assert not list(tmp_path.rglob("state.json"))


@pytest.mark.parametrize("mode", ["one_learns", "size_only"])
def test_nothing_is_trained_where_not_all_may_know_the_rows(mode: Any) -> None:
    met = intersect(tables_of([1, 2], [2, 3]), rule=Alignment(mode=mode))
    for outcome in met.outcomes.values():
        assert type(outcome) is ConfigError
        assert mode in str(outcome)
    assert not met.crossed()


# The policy and the declarations


@pytest.mark.parametrize("party", ["bank", "shop"])
@pytest.mark.parametrize("protection", ["PLAIN", "MASKED"])
def test_a_party_that_never_sends_such_a_thing_does_not_align(party: str, protection: str) -> None:
    played, outcomes, found = play_alignment(
        tables_of([1, 2, 3], [1, 2, 3]), policies={party: Policy(never_send=(protection,))}
    )
    assert type(outcomes[party]) is PolicyRefused
    assert f"is {protection}" in str(outcomes[party])
    assert found == {}
    assert [entry.content["message"] for entry in played.sessions[party].ledger.read().messages()] == ["Failed"]


def test_the_declarations_say_what_hides_ids_and_what_does_not() -> None:
    masked = {cls for cls in MESSAGES if declaration_of(cls).protection == MASKED}
    assert masked == {BlindedIds, TwiceBlindedIds, IdMarks, ShuffledMarks}
    assert all(declaration_of(cls).protection == PLAIN for cls in set(MESSAGES) - masked)


def test_only_declared_messages_cross_and_only_between_each_party_and_the_lead() -> None:
    tables = tables_of(*[[f"customer-{number}" for number in range(9 + place)] for place in range(3)])
    met = intersect(tables)
    sent = {
        party: [
            (entry.content["peer"], entry.content["message"], list(entry.content["shapes"].values()))
            for entry in session.ledger.read().messages()
            if entry.kind == "sent" and entry.content["message"] != "Hello"
        ]
        for party, session in met.sessions.items()
    }
    for place, party in enumerate(PARTIES[1:], 1):
        assert sent[party] == [
            ("bank", "AlignmentOffer", []),
            ("bank", "TwiceBlindedIds", [[9, 33]]),
            ("bank", "IdMarks", [[9 + place, 12]]),
        ]
        assert [one[1:] for one in sent["bank"] if one[0] == party] == [
            ("AlignmentOpening", []),
            ("BlindedIds", [[9, 33]]),
            ("SharedRows", [[9, 12]]),
        ]
    assert not any(b"customer-" in frame for _, _, frame in met.frames)
