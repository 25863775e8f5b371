"""Rows that another tool has matched: taken as they are, once both sides have the same."""

from __future__ import annotations

from typing import Any

import pandas as pd
import pytest
from tests.unit.alignment.intersecting import intersect, table, tables_of

from colonnade.alignment import align_in_one_place
from colonnade.alignment.messages import GivenRows
from colonnade.data import PartyTable
from colonnade.errors import AlignmentError, PeerLost, TableError
from colonnade.session import Alignment

RULE = Alignment(protocol="given")
IDS = [f"c{number}" for number in range(9)]


def matched(one: PartyTable, ids: list[Any], tokens: list[Any] | None = None) -> PartyTable:
    columns: dict[str, Any] = {"id": pd.Series(ids, dtype=object)}
    one.matches = pd.DataFrame(columns if tokens is None else {**columns, "match": tokens})
    return one


def refused(tables: dict[str, PartyTable]) -> str:
    met = intersect(tables, rule=RULE)
    error = met.outcomes["bank"]
    assert type(error) is AlignmentError, repr(error)
    assert all(type(one) in (AlignmentError, PeerLost) for one in met.outcomes.values())
    assert type(met.outcomes["shop"]) is AlignmentError, "both learn why"
    assert not any(one in str(error) for one in IDS)
    return str(error)


@pytest.mark.parametrize("count", [2, 3])
def test_without_lists_equal_tables_are_taken_row_by_row(count: int) -> None:
    tables = tables_of(*[IDS] * count)
    met = intersect(tables, rule=RULE)
    assert met.rows() == {party: list(range(9)) for party in tables}
    assert all(one.protocol.startswith("given:") for one in met.outcomes.values())
    assert {type(message) for message in met.crossed()} == {GivenRows}
    assert {(message.count, len(message.digest)) for message in met.crossed()} == {(9, 32)}
    in_one_place = align_in_one_place(tables, "bank", RULE, 1)
    assert {party: one.positions.tolist() for party, one in in_one_place.items()} == met.rows()


def test_lists_choose_and_order_the_rows() -> None:
    listed = ["c7", "c2", "c4"]
    tables = {"bank": matched(table(IDS, "bank"), listed), "shop": matched(table(IDS[::-1], "shop"), listed)}
    met = intersect(tables, rule=RULE)
    assert met.rows() == {"bank": [7, 2, 4], "shop": [1, 6, 4]}
    assert met.outcomes["bank"].rest.tolist() == [0, 1, 3, 5, 6, 8]


def test_a_list_may_match_different_ids_by_a_token() -> None:
    theirs = [f"d{number}" for number in range(9)]
    tables = {
        "bank": matched(table(IDS, "bank"), ["c3", "c0"], ["m1", "m2"]),
        "shop": matched(table(theirs, "shop"), ["d8", "d1"], ["m1", "m2"]),
    }
    assert intersect(tables, rule=RULE).rows() == {"bank": [3, 0], "shop": [8, 1]}
    tables["shop"] = matched(table(theirs, "shop"), ["d8", "d1"], ["m2", "m1"])
    assert "in another order" in refused(tables)


@pytest.mark.parametrize("count", [2, 3])
def test_other_rows_another_order_and_another_length_are_refused(count: int) -> None:
    for theirs in ([*IDS[1:], "new"], IDS[::-1], IDS[:-1]):
        words = refused(tables_of(IDS, theirs, *[IDS] * (count - 2)))
        assert "'bank' (9)" in words
        assert f"'shop' ({len(theirs)})" in words


def test_ids_that_run_together_are_not_the_same_list() -> None:
    refused(tables_of(["ab", "c"], ["a", "bc"]))


def test_a_list_that_does_not_fit_the_table_is_refused_by_its_owner_without_an_id() -> None:
    for listed, words in (
        (pd.DataFrame({"id": ["c1", "c99"]}), "1 of 2 ids in the list of matches are not in shop"),
        (pd.DataFrame({"customer": ["c1"]}), "has no column id"),
        (pd.DataFrame({"id": ["c1", "c1"]}), "more than once"),
    ):
        tables = tables_of(IDS, IDS)
        tables["shop"].matches = listed
        error = intersect(tables, rule=RULE).outcomes["shop"]
        assert type(error) is TableError
        assert words in str(error)
        assert not any(one in str(error) for one in ("c1", "c99"))


def test_a_digest_is_of_the_run_as_well() -> None:
    tables = tables_of(IDS, IDS)
    digests = [intersect(tables, rule=RULE, seed=seed).crossed(GivenRows)[0].digest for seed in (1, 1, 2)]
    assert digests[0] == digests[1] != digests[2]
