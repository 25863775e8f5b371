"""Categories as codes."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from colonnade.data import CodeEncoder, PartyTable
from colonnade.errors import ConfigError, TableError


def table(**columns: list[object]) -> PartyTable:
    count = len(next(iter(columns.values())))
    return PartyTable(pd.DataFrame({"id": range(count), **columns}), id="id", name="firm")


BASIC = {
    "job": ["clerk", "smith", None, "clerk", "nurse"],
    "was": ["smith", "clerk", "baker", None, "baker"],
    "age": [20, 30, 40, 50, 60],
}
FIRST = np.arange(4)


def test_codes_begin_at_one_and_missing_or_unknown_is_zero() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), FIRST)
    assert encoder.tables == {"job": ("clerk", "smith"), "was": ("baker", "clerk", "smith")}
    assert encoder.codes(table(**BASIC), np.arange(5)).tolist() == [[1, 3], [2, 2], [0, 1], [1, 0], [0, 1]]
    assert encoder.numbers.transform(table(**BASIC), FIRST).std() == pytest.approx(1.0)


def test_columns_may_share_a_table() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), FIRST, shared=[("job", "was")])
    assert encoder.tables == {"job": ("baker", "clerk", "smith")}
    assert encoder.codes(table(**BASIC), FIRST).tolist() == [[2, 3], [3, 2], [0, 1], [2, 0]]


def test_chosen_columns_only_and_in_the_order_given() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), FIRST, columns=["was", "age"])
    assert [one.column for one in encoder.coded] == ["was"]
    assert encoder.numbers.width == 1


def test_an_encoder_survives_json_and_says_nothing_in_its_repr() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), FIRST, shared=[("job", "was")])
    again = CodeEncoder.from_json(json.loads(json.dumps(encoder.to_json())))
    assert again == encoder
    assert "clerk" not in repr(encoder)


@pytest.mark.parametrize(
    "damage",
    [
        lambda saved: saved.pop("coded"),
        lambda saved: saved.update(version=2),
        lambda saved: saved.update(tables=[]),
        lambda saved: saved.update(tables={}),
        lambda saved: saved.update(coded=[["job"]]),
        lambda saved: saved.pop("numbers"),
    ],
)
def test_a_damaged_encoder_is_refused(damage: object) -> None:
    saved = json.loads(json.dumps(CodeEncoder.fit(table(**BASIC), FIRST).to_json()))
    damage(saved)  # type: ignore[operator]
    with pytest.raises(TableError):
        CodeEncoder.from_json(saved)


def test_wrong_wishes_are_refused_with_a_sentence() -> None:
    with pytest.raises(TableError, match="no feature column 'jbo'"):
        CodeEncoder.fit(table(**BASIC), FIRST, columns=["jbo"])
    with pytest.raises(TableError, match="no feature column 'jbo'"):
        CodeEncoder.fit(table(**BASIC), FIRST, shared=[("jbo", "was")])
    with pytest.raises(ConfigError, match="twice"):
        CodeEncoder.fit(table(**BASIC), FIRST, shared=[("job", "was"), ("was",)])
    with pytest.raises(ConfigError, match="age, which is numeric"):
        CodeEncoder.fit(table(**BASIC), FIRST, shared=[("job", "age")])


def test_a_column_that_has_nothing_left_is_all_unknown() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), FIRST)
    empty = {**BASIC, "job": [None] * 5}
    assert encoder.codes(table(**empty), np.arange(5))[:, 0].tolist() == [0] * 5


def test_a_column_without_any_category_in_training_rows_has_an_empty_table() -> None:
    encoder = CodeEncoder.fit(table(**BASIC), np.array([2]), columns=["job"])
    assert encoder.tables == {"job": ()}
    assert encoder.codes(table(**BASIC), np.arange(5)).tolist() == [[0]] * 5
