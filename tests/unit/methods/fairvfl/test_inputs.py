"""A party's columns as whole numbers: bins, categories, words."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import colonnade as cn
from colonnade.errors import ConfigError, TableError
from colonnade.methods.fairvfl.inputs import FieldCoder, TextCoder, coder_from_json, split_texts


def table_of(**columns: Any) -> cn.PartyTable:
    frame = pd.DataFrame(columns)
    return cn.PartyTable(frame.assign(id=np.arange(len(frame))), id="id", name="shop")


def rows(count: int) -> np.ndarray:
    return np.arange(count)


def through_json(coder: FieldCoder | TextCoder) -> FieldCoder | TextCoder:
    return coder_from_json(json.loads(json.dumps(coder.to_json(), sort_keys=True)))


# Fields


def test_numbers_fall_into_bins_of_equally_many_training_rows() -> None:
    table = table_of(a=np.arange(100.0))
    coder = FieldCoder.fit(table, ["a"], rows(100), 4)
    codes = coder.transform(table, rows(100)).by_row[0][:, 0]
    assert torch.bincount(codes).tolist() == [0, 25, 25, 25, 25]
    assert codes.tolist() == sorted(codes.tolist())
    assert coder.sizes == (5,)


def test_bins_are_those_of_training_rows_and_take_numbers_of_any_size() -> None:
    table = table_of(a=[1.0, 2.0, 3.0, 4.0, -1e300, 1e300, 2.5])
    coder = FieldCoder.fit(table, ["a"], rows(4), 2)
    assert coder.edges == {"a": (2.5,)}
    # A number on an edge belongs to the bin above it.
    assert coder.transform(table, rows(7)).by_row[0][:, 0].tolist() == [1, 1, 2, 2, 1, 2, 2]


def test_a_column_of_few_numbers_has_no_empty_bins_between_equal_edges() -> None:
    table = table_of(a=[0.0] * 50 + [1.0] * 50)
    coder = FieldCoder.fit(table, ["a"], rows(100), 100)
    found = coder.transform(table, rows(100)).by_row[0][:, 0]
    assert len(coder.edges["a"]) <= 3
    assert len(set(found[:50].tolist())) == len(set(found[50:].tolist())) == 1
    assert found[0] != found[99]
    assert found.max() < coder.sizes[0]


def test_categories_count_from_1_in_the_order_of_their_names() -> None:
    table = table_of(kind=["red", "blue", "red", "green"])
    coder = FieldCoder.fit(table, ["kind"], rows(4), 5)
    assert coder.sizes == (4,)
    assert coder.transform(table, rows(4)).by_row[0][:, 0].tolist() == [3, 1, 3, 2]


def test_what_is_missing_or_unknown_is_0_and_only_what_is_missing_is_not_there() -> None:
    table = table_of(a=[1.0, np.nan, np.nan, 4.0], kind=["red", "blue", None, None])
    coder = FieldCoder.fit(table, ["kind", "a"], np.array([0, 3]), 2)
    found = coder.transform(table, rows(4))
    assert found.by_row[0].tolist() == [[1, 1], [0, 0], [0, 0], [0, 2]]
    # The second row has a category that no training row has: nobody knows what it means, but it is there.
    assert found.is_there.tolist() == [True, True, False, True]


def test_fields_keep_the_order_that_was_asked_for_and_rows_that_of_positions() -> None:
    table = table_of(a=[1.0, 2.0, 3.0], kind=["x", "y", "z"], b=[30.0, 20.0, 10.0])
    coder = FieldCoder.fit(table, ["b", "kind", "a"], rows(3), 3)
    assert coder.fields == ("b", "kind", "a")
    found = coder.transform(table, np.array([2, 0])).by_row[0]
    assert found.tolist() == [[1, 3, 3], [3, 1, 1]]
    (taken,) = coder.transform(table, rows(3)).take(torch.tensor([2, 0]))
    assert taken.tolist() == found.tolist()


def test_a_column_without_any_known_number_has_one_bin_and_the_missing_one() -> None:
    table = table_of(a=[np.nan, np.nan, 3.0])
    coder = FieldCoder.fit(table, ["a"], rows(2), 5)
    assert coder.sizes == (2,)
    assert coder.transform(table, rows(3)).by_row[0][:, 0].tolist() == [0, 0, 1]


def test_a_column_that_lacks_all_cells_later_is_missing() -> None:
    before = table_of(a=[1.0, 2.0, 3.0], kind=["x", "y", "z"])
    coder = FieldCoder.fit(before, ["a", "kind"], rows(3), 3)
    later = table_of(a=[None, None], kind=[None, None])
    found = coder.transform(later, rows(2))
    assert found.by_row[0].tolist() == [[0, 0], [0, 0]]
    assert not found.is_there.any()


def test_fields_survive_json() -> None:
    generator = np.random.default_rng(1)
    table = table_of(a=generator.normal(size=60), kind=generator.choice(["x", "y", "é"], 60), b=generator.random(60))
    coder = FieldCoder.fit(table, ["b", "kind", "a"], rows(40), 7)
    again = through_json(coder)
    assert isinstance(again, FieldCoder)
    assert again.sizes == coder.sizes
    assert torch.equal(again.transform(table, rows(60)).by_row[0], coder.transform(table, rows(60)).by_row[0])


def test_a_table_without_a_field_is_refused_by_its_name() -> None:
    coder = FieldCoder.fit(table_of(income=[1.0, 2.0], b=[3.0, 4.0]), ["income", "b"], rows(2), 3)
    with pytest.raises(TableError, match="shop has no column 'income'"):
        coder.transform(table_of(b=[3.0, 4.0]), rows(2))


def test_saved_inputs_of_another_kind_are_refused() -> None:
    with pytest.raises(ConfigError, match="another version"):
        coder_from_json({"kind": "pictures"})


# Texts


def words_of(coder: TextCoder, found: Any, row: int) -> list[list[str]]:
    """Return the items of a row as words again."""
    names = {place: word for word, place in coder.words.items()} | {coder.vocabulary - 1: "?"}
    return [
        [names[int(one)] for one in found.texts[place] if one] for place in found.by_row[0][row].tolist() if place > 0
    ]


def twice(count: int) -> Any:
    """Return the first rows two times over: a word of one row alone is not learned."""
    return np.repeat(np.arange(count), 2)


TEXTS = ["Rain in Spain | the plain", "rain", None, "sun | snow | rain again"]


def test_texts_become_words_without_case_by_item() -> None:
    assert split_texts("Rain in  Spain | the plain") == [["rain", "in", "spain"], ["the", "plain"]]
    assert split_texts(None) == split_texts(float("nan")) == []
    table = table_of(history=TEXTS)
    coder = TextCoder.fit(table, "history", twice(4), longest=4, items=3)
    assert list(coder.words) == sorted(coder.words)
    assert sorted(coder.words.values()) == list(range(1, 9))
    found = coder.transform(table, rows(4))
    assert words_of(coder, found, 0) == [["rain", "in", "spain"], ["the", "plain"]]
    assert words_of(coder, found, 3) == [["sun"], ["snow"], ["rain", "again"]]
    assert found.is_there.tolist() == [True, True, False, True]
    assert found.by_row[0][2].tolist() == [0, 0, 0]


def test_every_different_text_is_there_once_and_the_first_is_none() -> None:
    table = table_of(history=["a b | c", "c | a b", "a b"])
    coder = TextCoder.fit(table, "history", rows(3), longest=3, items=2)
    found = coder.transform(table, rows(3))
    assert found.texts is not None
    assert found.texts.tolist() == [[0, 0, 0], [1, 2, 0], [3, 0, 0]]
    assert found.by_row[0].tolist() == [[1, 2], [2, 1], [1, 0]]
    texts, places = found.take(torch.tensor([2, 1]))
    assert texts is found.texts
    assert places.tolist() == [[1, 0], [2, 1]]


def test_words_that_no_two_training_rows_have_share_a_place() -> None:
    table = table_of(history=["rain again", "snow again rain", "hail rain | hail | again", "hail | hail", "  "])
    coder = TextCoder.fit(table, "history", rows(2), longest=2, items=3)
    assert set(coder.words) == {"rain", "again"}
    assert coder.vocabulary == 4
    found = coder.transform(table, rows(5))
    # An item of which no word is known is still an item: a candidate must not give its place to the next.
    assert words_of(coder, found, 1) == [["?", "again"]]
    assert words_of(coder, found, 2) == [["?", "rain"], ["?"], ["again"]]
    assert words_of(coder, found, 3) == [["?"], ["?"]]
    assert found.is_there.tolist() == [True, True, True, True, False]


def test_of_long_rows_the_latest_items_and_of_long_texts_the_first_words_count() -> None:
    table = table_of(history=["one | two | three | four five six seven"])
    coder = TextCoder.fit(table, "history", twice(1), longest=2, items=3)
    assert words_of(coder, coder.transform(table, rows(1)), 0) == [["two"], ["three"], ["four", "five"]]


def test_readers_of_training_rows_are_known_and_others_are_0() -> None:
    table = table_of(history=["a", "b", "a", "b"], user=["zoe", "ann", "zoe", "new"])
    coder = TextCoder.fit(table, "history", rows(3), longest=2, items=2, reader="user")
    assert coder.transform(table, rows(4)).by_row[1].tolist() == [2, 1, 2, 0]
    # Without such a column nobody's name is needed.
    alone = TextCoder.fit(table_of(history=["a", "b"]), "history", rows(2), longest=2, items=2, reader="user")
    assert alone.readers is None
    assert len(alone.transform(table_of(history=["a"]), rows(1)).by_row) == 1


@pytest.mark.parametrize("reader", [None, "user"])
def test_texts_survive_json(reader: str | None) -> None:
    table = table_of(history=TEXTS, user=["zoe", "ann", "bob", "zoe"])
    coder = TextCoder.fit(table, "history", rows(3), longest=4, items=3, reader=reader)
    again = through_json(coder)
    assert again == coder
    one, other = coder.transform(table, rows(4)), again.transform(table, rows(4))
    assert one.texts is not None
    assert other.texts is not None
    assert torch.equal(one.texts, other.texts)
    assert all(torch.equal(a, b) for a, b in zip(one.by_row, other.by_row, strict=True))


def test_a_table_without_texts_is_refused_by_its_name() -> None:
    with pytest.raises(TableError, match="shop has no column 'history'"):
        TextCoder.fit(table_of(story=["a"]), "history", rows(1), longest=2, items=2)
