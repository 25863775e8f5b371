from __future__ import annotations

import json
import traceback
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import numpy as np
import pandas as pd
import pytest

from colonnade import data
from colonnade.data import Column, PartyTable, canonical_id_bytes
from colonnade.errors import TableError

CANARY = "canary8191"


def frame(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"id": [1, 2, 3], **columns})


def one_column(values: object, **options: object) -> tuple[Column, np.ndarray]:
    table = PartyTable(frame(x=values), id="id", **options)
    return table.columns[0], table.values("x")


def test_all_is_complete() -> None:
    assert all(hasattr(data, name) for name in data.__all__)
    public = {name for name in vars(data) if name[0].isalpha() and getattr(data, name).__class__.__name__ != "module"}
    assert public - {"annotations"} == set(data.__all__)


def test_a_table_knows_its_rows_columns_and_label() -> None:
    table = PartyTable(
        frame(age=[30, None, 41], job=["clerk", "", "baker"], churned=[0, 1, 0]), id="id", label="churned"
    )
    assert table.columns == (Column("age", "numeric", 1, 2), Column("job", "categorical", 1, 2))
    assert (table.rows, len(table), table.feature_names, table.has_label) == (3, 3, ("age", "job"), True)
    assert table.labels is not None
    assert table.labels.dtype == np.int64
    assert table.ids.tolist() == [1, 2, 3]
    assert all(type(identifier) is int for identifier in table.ids)
    assert table.values("job").tolist() == ["clerk", None, "baker"]


def test_the_callers_frame_can_change_afterwards() -> None:
    source = frame(x=[1.0, 2.0, 3.0], y=["a", "b", "c"])
    table = PartyTable(source, id="id")
    before = table.digest()
    source.loc[:, "x"] = 9.0
    source.loc[:, "y"] = "z"
    source.loc[:, "id"] = [7, 8, 9]
    assert table.digest() == before
    assert table.values("x").tolist() == [1.0, 2.0, 3.0]


def test_arrays_are_read_only() -> None:
    table = PartyTable(frame(x=[1.0, 2.0, 3.0]), id="id")
    with pytest.raises(ValueError, match="read-only"):
        table.values("x")[0] = 5.0


@pytest.mark.parametrize(
    ("values", "kind", "expected"),
    [
        ([True, False, True], "boolean", [1, 0, 1]),
        ([True, None, False], "boolean", [1, np.nan, 0]),
        ([1, 2, 3], "numeric", [1, 2, 3]),
        (pd.array([1, None, 3], dtype="Int64"), "numeric", [1, np.nan, 3]),
        (pd.array([True, None, False], dtype="boolean"), "boolean", [1, np.nan, 0]),
        ([1, 0, 1], "numeric", [1, 0, 1]),
        (np.array([True, 2, None], dtype=object), "numeric", [1, 2, np.nan]),
        (["1", " 2.5 ", "-3e1"], "numeric", [1, 2.5, -30]),
        (["1", " ", None], "numeric", [1, np.nan, np.nan]),
        (np.array([1, "2", None], dtype=object), "numeric", [1, 2, np.nan]),
        ([Decimal("1.5"), None, Decimal(2)], "numeric", [1.5, np.nan, 2]),
        (pd.to_datetime(["1970-01-02", None, "1970-01-01 12:00"], format="ISO8601"), "date", [1, np.nan, 0.5]),
        (pd.to_datetime(["1970-01-02T01:00+01:00"] * 3), "date", [1, 1, 1]),
        ([date(1970, 1, 2), None, date(1969, 12, 31)], "date", [1, np.nan, -1]),
        (
            np.array([datetime(1970, 1, 2), datetime(1970, 1, 2, tzinfo=timezone(timedelta(hours=1))), None], object),
            "date",
            [1, 1 - 1 / 24, np.nan],
        ),
        (pd.to_timedelta([12, 24, None], unit="h"), "numeric", [0.5, 1, np.nan]),
        ([None, None, None], "numeric", [np.nan] * 3),
        (["", " ", None], "numeric", [np.nan] * 3),
        (["1970-01-02", "1970-01-01 12:00", None], "date", [1, 0.5, np.nan]),
        (["ja", " NEIN", None], "boolean", [1, 0, np.nan]),
        (["1_000", "2_000", "3"], "categorical", ["1_000", "2_000", "3"]),
        (["a", None, "\t"], "categorical", ["a", None, None]),
        (pd.Categorical([1, 2, None]), "categorical", ["1", "2", None]),
        ([UUID(int=1), UUID(int=2), None], "categorical", [str(UUID(int=1)), str(UUID(int=2)), None]),
    ],
)
def test_kinds_follow_from_the_cells(values: object, kind: str, expected: list[object]) -> None:
    column, read = one_column(values)
    assert column.kind == kind
    assert PartyTable(frame(x=values), id="id").take([1, 0]).columns[0].kind == kind
    assert one_column(values, types={"x": "categorical"})[0].kind == "categorical"
    assert column.missing == pd.isna(pd.Series(expected, dtype=object)).sum()
    if kind != "categorical":
        assert read.dtype == np.float64
        np.testing.assert_array_equal(read, np.array(expected, dtype=float))
    else:
        assert read.tolist() == expected


def test_object_and_string_storage_are_read_alike() -> None:
    for dtype in (object, "str", "string"):
        column, read = one_column(pd.Series(["a", None, "b"], dtype=dtype))
        assert column == Column("x", "categorical", 1, 2)
        assert read.tolist() == ["a", None, "b"]


def test_a_few_words_among_numbers_are_a_slip_until_the_user_says_otherwise() -> None:
    cells = ["31", "44", "plenty", "27"]
    assert "1 of its 4 cells are no numbers: row 3 of the table" in refused(pd.DataFrame({"id": range(4), "x": cells}))
    assert (
        PartyTable(pd.DataFrame({"id": range(4), "x": cells}), id="id", types={"x": "categorical"}).columns[0].distinct
        == 4
    )


def test_an_override_to_categorical_makes_text_of_everything() -> None:
    _, read = one_column(np.array([1, "a", 2.5], dtype=object), types={"x": "categorical"})
    assert read.tolist() == ["1", "a", "2.5"]
    _, read = one_column([1.0, np.nan, 2.5], types={"x": "categorical"})
    assert read.tolist() == ["1", None, "2.5"]
    _, read = one_column(pd.to_datetime(["2020-01-01", "2020-01-02", None]), types={"x": "categorical"})
    assert read.tolist() == ["2020-01-01", "2020-01-02", None]


def test_an_override_to_numeric_reads_categories_as_numbers() -> None:
    column, read = one_column(pd.Categorical(["1", "2", "1"]), types={"x": "numeric"})
    assert column.kind == "numeric"
    assert read.tolist() == [1, 2, 1]


def refused(source: object, **options: object) -> str:
    """Return the error's text, having checked that not even its traceback shows a cell."""
    with pytest.raises(TableError) as caught:
        PartyTable(source, **{"id": "id", **options})
    shown = "".join(traceback.format_exception(caught.value))
    assert CANARY not in shown
    assert "8191" not in shown
    message = str(caught.value)
    assert message.count(". ") >= 1, "one sentence what happened, one what to do"
    return message


def test_mixed_types_are_refused_with_counts_and_a_remedy() -> None:
    source = pd.DataFrame({"id": range(5), "x": np.array([8191, 2, CANARY, CANARY, None], dtype=object)})
    message = refused(source, name="bank")
    assert "Column 'x' of bank mixes kinds: 2 numbers and 2 texts that are none (rows 3 and 4 of" in message
    assert 'types = {x = "categorical"}' in message


def test_dates_beside_text_are_refused() -> None:
    assert "mixes kinds" in refused(frame(x=np.array([date(2020, 1, 1), CANARY, None], dtype=object)))


def test_numeric_override_on_text_is_refused_with_the_count_of_rows() -> None:
    message = refused(frame(x=[CANARY, CANARY, "3"]), types={"x": "numeric"})
    assert "is set to numeric, but 2 of its 3 cells are no numbers" in message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([8191.0, np.inf, -np.inf], "2 infinite numbers"),
        (["8191", "inf", "1"], "1 infinite numbers"),
        ([8191, 10**400, 1], "1 infinite numbers"),
        ([[CANARY], {"a": CANARY}, None], "2 cells that hold lists"),
        ([b"canary8191", None, None], "(bytes)"),
        ([8191 + 1j, 2j, 3j], "(complex)"),
    ],
)
def test_cells_that_cannot_be_used_are_refused(values: list[object], expected: str) -> None:
    assert expected in refused(frame(x=values))


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"id": "idd"}, "Did you mean 'id'?"),
        ({"label": "agee"}, "Did you mean 'age'?"),
        ({"drop": ["agee"]}, "named under drop. Did you mean 'age'?"),
        ({"types": {"agee": "numeric"}}, "named under types. Did you mean 'age'?"),
        ({"types": {"age": "numerical"}}, "Did you mean 'numeric'?"),
        ({"label": "id"}, "both id and label"),
        ({"drop": ["id"]}, "both id and drop"),
        ({"label": "age", "drop": ["age"]}, "both label and drop"),
    ],
)
def test_names_that_do_not_fit_are_refused(options: dict[str, object], expected: str) -> None:
    assert expected in refused(frame(age=[8191, 2, 3]), **options)


@pytest.mark.parametrize("options", [{}, {"drop": ["age"]}, {"label": "age"}])
def test_a_table_may_have_no_feature_columns(options: dict[str, object]) -> None:
    source = frame(age=[1, 2, 3]) if options else frame()
    table = PartyTable(source, id="id", **options)
    assert table.columns == ()
    assert table.rows == 3
    assert table.take([2, 0]).ids.tolist() == [table.ids[2], table.ids[0]]
    assert table.describe()["columns"] == []
    assert table.digest() != table.take([0]).digest()


def test_an_id_in_the_index_is_pointed_out() -> None:
    assert "reset_index()" in refused(frame(x=[1, 2, 3]).set_index("id"))


def test_duplicate_ids_are_counted() -> None:
    source = pd.DataFrame({"id": [8191, 8191, 8191, 4, 4, 5], "x": 1.0})
    assert "2 ids that occur more than once, in 5 rows" in refused(source)


@pytest.mark.parametrize("ids", [[1.0, np.nan, 8191.0], [CANARY, None, " "], [CANARY, "", "b"]])
def test_missing_ids_are_counted(ids: list[object]) -> None:
    count = pd.Series(ids).replace(["", " "], None).isna().sum()
    assert f"empty in {count} of 3 rows" in refused(pd.DataFrame({"id": ids, "x": 1.0}))


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([1.0, 2.0, 3.0], [1, 2, 3]),
        (np.array([1, 2, 3], dtype=np.uint8), [1, 2, 3]),
        ([2**64 - 1, 2**63, 1], [2**64 - 1, 2**63, 1]),
        ([Decimal(5), Decimal(6), Decimal(7)], [5, 6, 7]),
        (["007", "7", "x"], ["007", "7", "x"]),
        (np.array([np.int64(4), 5, np.int32(6)], dtype=object), [4, 5, 6]),
        ([UUID(int=1), UUID(int=2), UUID(int=3)], [str(UUID(int=number)) for number in (1, 2, 3)]),
    ],
)
def test_ids_become_plain_ints_or_text(ids: object, expected: list[object]) -> None:
    read = PartyTable(pd.DataFrame({"id": ids, "x": 1.0}), id="id").ids
    assert read.tolist() == expected
    assert [type(identifier) for identifier in read] == [type(identifier) for identifier in expected]


@pytest.mark.parametrize("ids", [[0.5, 8191.0], [True, False], [2.0**60, 8191.0], [b"canary8191", b"x"]])
def test_ids_that_identify_nothing_are_refused(ids: list[object]) -> None:
    assert "cannot be ids" in refused(pd.DataFrame({"id": ids, "x": 1.0}))


def test_ids_of_two_kinds_are_refused_unless_made_one() -> None:
    source = pd.DataFrame({"id": np.array([8191, "8191", "a"], dtype=object), "x": 1.0})
    assert "mixes 1 numbers and 2 texts" in refused(source)
    assert "2 rows" in refused(source, types={"id": "categorical"})  # now they collide, and that is said
    assert "1 of 3 ids are not whole" in refused(source, types={"id": "numeric"})
    assert PartyTable(frame(x=1.0), id="id", types={"id": "categorical"}).ids.tolist() == ["1", "2", "3"]
    text = pd.DataFrame({"id": ["07", "8"], "x": 1.0})
    assert PartyTable(text, id="id", types={"id": "numeric"}).ids.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([8191, 8191, 8191], "same value in all 3 rows"),
        ([CANARY, CANARY, CANARY], "same value in all 3 rows"),
        ([None, None, None], "empty in every row"),
        ([CANARY, None, "b"], "empty in 1 of 3 rows"),
        ([8191.0, np.inf, 1.0], "1 infinite"),
    ],
)
def test_labels_that_cannot_be_learnt_are_refused(labels: list[object], expected: str) -> None:
    assert expected in refused(frame(y=labels), label="y")


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ([True, False, True], np.array([True, False, True])),
        ([0, 1, 0], np.array([0, 1, 0])),
        ([0.5, 1, 0], np.array([0.5, 1, 0])),
        (["0", "1", "0"], np.array([0, 1, 0])),
        (["0.5", "1", "0"], np.array([0.5, 1, 0])),
        (["01", "02", "01"], np.array(["01", "02", "01"], dtype=object)),
        (["yes", "no", "yes"], np.array(["yes", "no", "yes"], dtype=object)),
        (pd.Categorical(["yes", "no", "yes"]), np.array(["yes", "no", "yes"], dtype=object)),
    ],
)
def test_labels_keep_what_they_are(labels: object, expected: np.ndarray) -> None:
    read = PartyTable(frame(y=labels), id="id", label="y").labels
    assert read is not None
    assert read.dtype == expected.dtype
    assert read.tolist() == expected.tolist()


def test_a_label_holder_needs_no_features() -> None:
    assert PartyTable(frame(y=[0, 1, 0]), id="id", label="y").feature_names == ()


def test_frames_without_rows_or_with_repeated_or_empty_names_are_refused() -> None:
    assert "no rows" in refused(frame(x=1.0).iloc[:0])
    assert "occur more than once: x" in refused(pd.DataFrame([[1, 2, 3]], columns=["id", "x", "x"]))
    assert "Column 2" in refused(pd.DataFrame([[1, 2, 3]], columns=["id", "", "x"]))
    assert "instead of a pandas DataFrame" in refused({"id": [1]})


def test_take_keeps_kinds_and_may_be_empty_or_constant() -> None:
    table = PartyTable(frame(job=["a", None, "b"], y=[0, 1, 0]), id="id", label="y")
    part = table.take([1])
    assert part.columns == (Column("job", "categorical", 1, 0, left_out="empty"),)
    assert part.ids.tolist() == [2]
    assert part.labels is not None
    assert part.labels.tolist() == [1]
    assert table.take(np.array([2, 0])).values("job").tolist() == ["b", "a"]
    assert table.take([]).rows == 0


@pytest.mark.parametrize("positions", [[3], [-1], [0, 0], [0.5], [True, False, True], [[0]]])
def test_take_refuses_positions_that_are_no_rows(positions: list[object]) -> None:
    with pytest.raises(TableError):
        PartyTable(frame(x=1.0), id="id").take(positions)


def test_values_of_an_unknown_column_suggest_one() -> None:
    with pytest.raises(TableError, match="Did you mean 'income'"):
        PartyTable(frame(income=1.0), id="id").values("incom")


def test_describe_and_repr_show_no_cell() -> None:
    source = pd.DataFrame({"id": [CANARY, "b"], "x": [CANARY, "c"], "n": [8191, 1], "y": [CANARY, "d"]})
    table = PartyTable(source, id="id", label="y", name="bank")
    summary = json.dumps(table.describe())
    assert json.loads(summary) == {
        "name": "bank",
        "rows": 2,
        "id": "id",
        "label": "y",
        "dialect": {},
        "columns": [
            {"name": name, "kind": kind, "missing": 0, "distinct": 2, "left_out": "", "notes": []}
            for name, kind in (("x", "categorical"), ("n", "numeric"))
        ],
        "partner_ids": {},
    }
    assert "8191" not in summary + repr(table)


def test_the_digest_sees_every_part_and_no_storage_type() -> None:
    source = frame(n=[1, 2, 3], c=["a", "b", None], y=[0, 1, 1])
    digest = PartyTable(source, id="id", label="y").digest()
    stored_otherwise = source.astype({"n": "Float64", "c": object, "id": "int32", "y": "Int8"})
    assert PartyTable(stored_otherwise, id="id", label="y", name="other").digest() == digest
    changes = [
        source.assign(n=[1, 2, 4]),
        source.assign(c=["a", "b", "c"]),
        source.assign(c=["b", "a", None]),
        source.assign(y=[0, 0, 1]),
        source.assign(id=["1", "2", "3"]),
        source.rename(columns={"n": "m"}),
        source.iloc[::-1],
        source.drop(columns="n"),
    ]
    digests = {PartyTable(changed, id="id", label="y").digest() for changed in changes}
    assert len(digests | {digest}) == len(changes) + 1


def test_canonical_bytes_tell_numbers_from_text() -> None:
    assert canonical_id_bytes(7) != canonical_id_bytes("7")
    assert canonical_id_bytes(-(10**30)) == b"i-" + b"1" + b"0" * 30
    assert canonical_id_bytes("é") == "sé".encode()


def people(**columns: object) -> pd.DataFrame:
    return pd.DataFrame({"first": ["Zoe", "Zoe", "Ann"], "born": [1990, 1991, 1990], "x": [1.0, 2.0, 3.0], **columns})


def test_an_id_may_be_made_of_several_columns() -> None:
    table = PartyTable(people(), id=["first", "born"])
    assert table.ids.tolist() == [("Zoe", 1990), ("Zoe", 1991), ("Ann", 1990)]
    assert (table.id_columns, table.id_column, table.feature_names) == (("first", "born"), "first + born", ("x",))
    assert {name: part.tolist() for name, part in table.id_parts.items()} == {
        "first": ["Zoe", "Zoe", "Ann"],
        "born": [1990, 1991, 1990],
    }
    assert table.take([2, 0]).ids.tolist() == [("Ann", 1990), ("Zoe", 1990)]
    assert table.take([]).id_parts["first"].tolist() == []
    assert table.describe()["id"] == "first + born"
    assert table.digest() != PartyTable(people(), id=["born", "first"]).digest()
    assert table.digest() != PartyTable(people(born=["1990", "1991", "1990"]), id=["first", "born"]).digest()


def test_a_list_of_one_column_is_that_column() -> None:
    one, other = (PartyTable(frame(x=1.0), id=id) for id in ("id", ["id"]))
    assert other.ids.tolist() == [1, 2, 3]
    assert (other.id_column, other.id_columns, other.digest()) == ("id", ("id",), one.digest())


def test_types_hold_for_each_column_of_an_id() -> None:
    source = people(born=["07", "08", "09"])
    assert PartyTable(source, id=["first", "born"], types={"born": "numeric"}).ids[0] == ("Zoe", 7)
    assert PartyTable(people(), id=["first", "born"], types={"born": "categorical"}).ids[0] == ("Zoe", "1990")


def test_dates_in_ids_are_written_as_files_write_them() -> None:
    days = ["1990-01-02", "1990-01-03", "1990-01-04"]
    for stored in (days, pd.to_datetime(days), [date.fromisoformat(day) for day in days]):
        assert PartyTable(people(born=stored), id=["first", "born"]).ids[0] == ("Zoe", "1990-01-02")


def test_composite_ids_that_identify_nothing_are_counted() -> None:
    source = pd.DataFrame({"a": [CANARY, CANARY, "b", "b", "c"], "b": [8191, 8191, 8191, 1, 1]})
    said = refused(source, id=["a", "b"], name="bank")
    assert "The id 'a + b' of bank has 1 ids that occur more than once, in 2 rows" in said
    source = pd.DataFrame({"a": [CANARY, None, " ", "d"], "b": [8191, 8191, np.nan, np.nan]})
    assert "is empty in 3 of 4 rows ('a' in 2, 'b' in 2)" in refused(source, id=["a", "b"])
    source = pd.DataFrame({"a": [CANARY, "b"], "b": [0.5, 8191.0]})
    assert "The id column 'b' of table has values that cannot be ids: 1 of type float" in refused(source, id=["a", "b"])
    source = pd.DataFrame({"a": [CANARY, "b"], "b": np.array(["x", 8191], dtype=object)})
    assert "The id column 'b' of table mixes 1 numbers and 1 texts" in refused(source, id=["a", "b"])


def test_wrong_names_of_id_columns_are_refused() -> None:
    source = people(loyalty=[1, 2, 3])
    assert "Did you mean 'first'" in refused(source, id=["firts", "born"])
    assert "names no column under id" in refused(source, id=[])
    assert "twice under id" in refused(source, id=["first", "first"])
    assert "'first' as both id and label" in refused(source, id=["first", "born"], label="first")
    assert "under both id and drop" in refused(source, id=["first", "born"], drop=["born"])
    assert "reset_index()" in refused(source.set_index("born"), id=["first", "born"])
    options = {"id": ["first", "born"]}
    for wrong, said in [
        ({"shop": "loyal"}, "no column 'loyal', named under the id for partner 'shop'. Did you mean 'loyalty'"),
        ({"shop": []}, "names no column under the id for partner 'shop'"),
        ({"shop": "x"}, "'x' as both the id for partner 'shop' and label"),
    ]:
        assert said in refused(source, **options, partner_ids=wrong, label="x")
    assert "under both the id for partner 'shop' and drop" in refused(
        source, **options, partner_ids={"shop": "loyalty"}, drop=["loyalty"]
    )


def test_a_partner_may_know_rows_by_another_id_and_not_know_some() -> None:
    source = frame(loyalty=[70.0, None, 90.0], area=["030", "030", ""], number=[1, 2, 3], age=[30, 40, 50])
    table = PartyTable(source, id="id", partner_ids={"shop": "loyalty", "telco": ["area", "number"]}, name="bank")
    assert table.feature_names == ("age",)
    assert table.ids_for("shop").tolist() == [70, None, 90]
    assert table.ids_for("telco").tolist() == [("030", 1), ("030", 2), None]
    assert table.ids_for("post") is table.ids
    assert table.title_of_ids_for("shop") == "The id column 'loyalty' of bank for partner 'shop'"
    assert table.title_of_ids_for("telco") == "The id 'area + number' of bank for partner 'telco'"
    assert table.title_of_ids_for("post") == "The id column 'id' of bank"
    assert table.describe()["partner_ids"] == {
        "shop": {"id": "loyalty", "missing": 1},
        "telco": {"id": "area + number", "missing": 1},
    }
    part = table.take([2, 1])
    assert (part.ids_for("shop").tolist(), part.ids_for("telco").tolist()) == ([90, None], [None, ("030", 2)])
    with pytest.raises(ValueError, match="read-only"):
        table.ids_for("shop")[0] = 5


def test_the_digest_sees_partners_ids() -> None:
    source = frame(loyalty=[7, 8, 9], card=[7, 8, 9], x=1.0)
    changes = [
        (source, {}),
        (source, {"shop": "loyalty"}),
        (source, {"shop": "card"}),
        (source, {"post": "loyalty"}),
        (source, {"shop": ["loyalty", "card"]}),
        (source.assign(loyalty=[7, 8, None]), {"shop": "loyalty"}),
        (source.assign(loyalty=["7", "8", "9"]), {"shop": "loyalty"}),
    ]
    assert len({PartyTable(one, id="id", partner_ids=ids).digest() for one, ids in changes}) == len(changes)
    one, other = ({"a": "loyalty", "b": "card"}, {"b": "card", "a": "loyalty"})
    assert (
        PartyTable(source, id="id", partner_ids=one).digest() == PartyTable(source, id="id", partner_ids=other).digest()
    )


def test_partners_ids_that_identify_nothing_are_counted() -> None:
    source = pd.DataFrame({"id": range(5), "loyalty": [CANARY, CANARY, None, None, "b"]})
    said = refused(source, partner_ids={"shop": "loyalty"}, name="bank")
    assert "The id column 'loyalty' of bank for partner 'shop' has 1 ids that occur more than once, in 2 rows" in said
    source = source.assign(loyalty=None)
    assert "for partner 'shop' is empty in every row" in refused(source, partner_ids={"shop": "loyalty"})
    source = source.assign(loyalty=[0.5, None, 8191.0, None, 1.0])
    assert "1 of type float" in refused(source, partner_ids={"shop": "loyalty"})
