"""Lists of links: which rows they join, and lists that do not fit."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable, linked_rows
from colonnade.errors import TableError


def table(ids: list[object], **settings: object) -> PartyTable:
    return PartyTable(pd.DataFrame({"id": ids, "age": range(len(ids))}), id="id", name="bank", **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("ids", [["x", "y", "z"], [7, 8, 9], ["007", "008", "009"]])
def test_pairs_come_once_and_in_order(ids: list[object]) -> None:
    links = pd.DataFrame({"from": [ids[2], ids[0], ids[1]], "to": [ids[0], ids[2], ids[0]], "since": [1, 2, 3]})
    assert linked_rows(table(ids), links).tolist() == [[0, 1], [0, 2]]


def test_ids_are_compared_as_they_are_written() -> None:
    with pytest.raises(TableError, match="1 of 1 links for bank name an id"):
        linked_rows(table(["007", "008"]), pd.DataFrame({"from": ["7"], "to": ["008"]}))


def test_no_links_are_no_error() -> None:
    assert linked_rows(table([1, 2]), None).shape == (0, 2)
    assert linked_rows(table([1, 2]), pd.DataFrame({"from": [], "to": []})).shape == (0, 2)


def test_a_table_keeps_its_links_but_not_for_a_part_of_it() -> None:
    links = pd.DataFrame({"from": [1], "to": [2]})
    whole = table([1, 2, 3], links=links)
    assert whole.links is links
    assert whole.take([0, 2]).links is None
    assert whole.digest() == table([1, 2, 3]).digest()


@pytest.mark.parametrize(
    ("links", "words"),
    [
        ({"from": [1, 2], "to": [2, 5]}, "1 of 2 links for bank name an id that the table does not have"),
        ({"from": [1, None], "to": [2, 2]}, "1 of 2 links"),
        ({"from": [1], "to": [1]}, "join a row to itself"),
        ({"from": [1], "with": [2]}, "no column 'to'"),
    ],
)
def test_lists_that_do_not_fit(links: dict[str, list[object]], words: str) -> None:
    with pytest.raises(TableError, match=words):
        linked_rows(table([1, 2, 3]), pd.DataFrame(links, dtype=object))


def test_an_id_of_two_columns_cannot_be_linked() -> None:
    frame = pd.DataFrame({"first": [1, 2], "second": [3, 4], "age": [5, 6]})
    with pytest.raises(TableError, match="made of 2 columns"):
        linked_rows(PartyTable(frame, id=["first", "second"]), pd.DataFrame({"from": [1], "to": [2]}))


def test_pairs_are_whole_numbers() -> None:
    assert linked_rows(table([1, 2]), pd.DataFrame({"from": [1], "to": [2]})).dtype == np.int64
