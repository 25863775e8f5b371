"""Tables as they are: whatever a file's dialect and wherever text comes from, no column is misread."""

from __future__ import annotations

import re
import sqlite3
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.data import Column, Dialect, PartyTable, read_table
from colonnade.errors import TableError
from colonnade.launch.home import read_party_home
from colonnade.session import ModelPart

CANARY = "canary8191"


def of(*cells: str | None, **options: Any) -> tuple[Column, list[Any]]:
    """Return a column of texts as a table reads it."""
    frame = pd.DataFrame({"id": range(len(cells)), "x": pd.Series(cells, dtype=object)})
    table = PartyTable(frame, id="id", **options)
    return table.all_columns[0], table.values("x").tolist()


def written(path: Path, text: str, encoding: str = "utf-8") -> Path:
    path.write_bytes(text.encode(encoding))
    return path


def test_a_german_banks_file_is_read_without_preparation(tmp_path: Path) -> None:
    random, rows = np.random.default_rng(4), 400
    truth = pd.DataFrame(
        {
            "amount": np.round(random.lognormal(7, 1.5, rows), 2),
            "since": pd.Timestamp("2001-01-01") + pd.to_timedelta(random.integers(0, 7000, rows), unit="D"),
            "married": random.random(rows) < 0.5,
            "town": random.choice(["Köln", "Düsseldorf", "Bonn; Süd"], rows),
            "share": random.integers(0, 100, rows).astype(float),
            "zip": random.choice(["01067", "50667", "53113"], rows),
        }
    )
    german = pd.DataFrame(
        {
            "Kundennr": [f" kd{number:08d}" for number in range(rows)],
            "amount": [f"{one:,.2f}".translate(str.maketrans(",.", ".,")) for one in truth["amount"]],
            "since": truth["since"].dt.strftime("%d.%m.%Y"),
            "married": truth["married"].map({True: "ja", False: "nein"}),
            "town": truth["town"],
            "share": [f"{one:.0f} %" for one in truth["share"]],
            "zip": truth["zip"],
            "iban": [f"DE{random.integers(10**9)}" for _ in range(rows)],
        }
    )
    german.loc[[3, 50], "amount"] = "k.A."
    truth.loc[[3, 50], "amount"] = np.nan
    german.to_csv(tmp_path / "kunden.csv", sep=";", index=False, encoding="cp1252")
    table = read_table(tmp_path / "kunden.csv", id="Kundennr")
    kinds = ["numeric", "date", "boolean", "categorical", "numeric", "categorical"]
    assert [column.kind for column in table.columns] == kinds
    clean = PartyTable(truth.assign(id=german["Kundennr"]), id="id")
    for name in table.feature_names:
        np.testing.assert_array_equal(table.values(name), clean.values(name))
    amount, *_, iban = table.all_columns
    assert amount.notes == ("2 of 400 cells hold a word such as n/a or unknown, which counts as missing.",)
    assert iban.left_out == "identifier"
    assert table.dialect == Dialect(separator=";", quote='"', encoding="cp1252", decimal=",", dates="day first")
    assert table.describe()["dialect"]["decimal"] == ","


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("1603,00", "7,5"), [1603, 7.5]),
        (("1.603,00", "7,5", "-2.000.000,25"), [1603, 7.5, -2000000.25]),
        (("1,603.00", "7.5"), [1603, 7.5]),
        (("1 603,00", "12 000"), [1603, 12000]),
        (("1\u202f603,00", "1\u00a0000"), [1603, 1000]),
        (("1'603.00", "1\u2019000"), [1603, 1000]),
        (("1.603.000", "12.000"), [1603000, 12000]),
        (("1,603,000", "12,000"), [1603000, 12000]),
        (("1.603,00 EUR", "-7,50 EUR"), [1603, -7.5]),
        (("$1,603.00", "$7"), [1603, 7]),
        (("-€ 12.50", "€ 3"), [-12.5, 3]),
        (("1.603,00 €", "7,50"), [1603, 7.5]),
        (("12 %", "7.5 %"), [12, 7.5]),
        (("1e3", "+2.5"), [1000, 2.5]),
        (("1,5", "n/a", "-", "#NV", None), [1.5, np.nan, np.nan, np.nan, np.nan]),
        (("0.125", "1.250"), [0.125, 1.25]),
    ],
)
def test_numbers_are_read_as_they_are_written(cells: tuple[str, ...], expected: list[float]) -> None:
    column, values = of(*cells)
    assert column.kind == "numeric"
    np.testing.assert_array_equal(values, expected)


@pytest.mark.parametrize(
    ("other", "options", "expected", "said"),
    [
        ("7,5", {}, 1603, "as in other columns"),
        ("7.5", {}, 1.603, ""),
        ("7", {}, 1.603, 'decimal = "," in [table] says otherwise'),
        ("7", {"decimal": ","}, 1603, ""),
        ("7", {"thousands": "."}, 1603, ""),
        ("7", {"decimal": "."}, 1.603, ""),
    ],
)
def test_what_can_be_read_in_two_ways_is_read_as_the_rest_of_the_table_and_said(
    other: str, options: dict[str, Any], expected: float, said: str
) -> None:
    frame = pd.DataFrame({"id": [1, 2], "x": ["1.603", "2.100"], "other": [other, other]})
    table = PartyTable(frame, id="id", **options)
    assert table.values("x")[0] == expected
    assert bool(table.all_columns[0].notes) == bool(said)
    assert said in "".join(table.all_columns[0].notes)


def test_semicolons_between_cells_speak_for_decimal_commas_and_days_first(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "id;x;day\n1;1.603;03/04/2017\n2;2.100;05/06/2017\n")
    written(tmp_path / "b.csv", "id,x,day\n1,1.603,03/04/2017\n2,2.100,05/06/2017\n")
    first, other = (read_table(tmp_path / name, id="id") for name in ("a.csv", "b.csv"))
    assert (first.values("x")[0], other.values("x")[0]) == (1603, 1.603)
    assert (first.values("day")[0], other.values("day")[0]) == (17259, 17229)
    assert all("by default" in column.notes[0] for table in (first, other) for column in table.columns)


@pytest.mark.parametrize(
    ("cells", "options", "expected", "said"),
    [
        (("2017-03-14", "2017-1-2"), {}, [17239, 17168], ""),
        (("2017-03-14 12:00", "2017-03-14T06:00:00.000Z"), {}, [17239.5, 17239.25], ""),
        (("2017-03-14T01:00+01:00", "2017-03-14T00:00:00+00:00"), {}, [17239, 17239], ""),
        (("14.03.2017", "3.4.2017"), {}, [17239, 17259], ""),
        (("14.03.17", "3.4.85"), {}, [17239, 5571], ""),
        (("14/03/2017", "03/04/2017"), {}, [17239, 17259], ""),
        (("03/14/2017", "03/04/2017"), {}, [17239, 17229], ""),
        (("2017/03/14", "2017/04/03"), {}, [17239, 17259], ""),
        (("03/03/2017", "04/04/2017"), {}, [17228, 17260], ""),
        (("03/04/2017", "03/05/2017"), {"dates": "day first"}, [17259, 17289], ""),
        (("03/04/2017", "03/05/2017"), {"dates": "month first"}, [17229, 17230], ""),
        (("03/04/2017", "07/05/2017"), {}, [17229, 17352], 'dates = "day first" in [table] says otherwise'),
        (("14. Mrz 2017", "3. April 2017"), {}, [17239, 17259], ""),
        (("14-Mar-2017", "3-APR-17 06:00"), {}, [17239, 17259.25], ""),
        (("March 14, 2017", "Apr 3 2017"), {}, [17239, 17259], ""),
        (("14/03/2017", "unbekannt"), {}, [17239, np.nan], "1 of 2 cells hold a word"),
    ],
)
def test_dates_are_read_as_a_whole_column_shows(
    cells: tuple[str, ...], options: dict[str, Any], expected: list[float], said: str
) -> None:
    column, values = of(*cells, **options)
    assert column.kind == "date"
    np.testing.assert_array_equal(values, expected)
    assert bool(column.notes) == bool(said)
    assert said in "".join(column.notes)


@pytest.mark.parametrize(
    "cells", [("31/31/2017", "01/02/2017"), ("14/03/2017", "03/14/2017"), ("30.02.2017", "1.2.2017")]
)
def test_what_is_in_no_calendar_is_no_date(cells: tuple[str, ...]) -> None:
    assert of(*cells)[0].kind == "categorical"


@pytest.mark.parametrize(
    ("cells", "kind"),
    [
        (("true", "FALSE", None), "boolean"),
        (("Ja", "nein"), "boolean"),
        (("oui", "non"), "boolean"),
        (("y", "n"), "boolean"),
        (("ja", "ja"), "boolean"),
        (("f", "m"), "categorical"),
        (("f", "f"), "categorical"),
        (("ja", "nein", "unbekannt"), "categorical"),
        (("0", "1"), "numeric"),
    ],
)
def test_booleans_are_two_words_that_go_together(cells: tuple[str, ...], kind: str) -> None:
    assert of(*cells)[0].kind == kind


@pytest.mark.parametrize(
    ("kind", "cells", "expected"),
    [
        ("date", ("20170314", "20170403"), [17239, 17259]),
        ("boolean", ("0", "1"), [0, 1]),
        ("numeric", ("007", "8"), [7, 8]),
        ("numeric", ("ja", "nein"), [1, 0]),
        ("categorical", ("2017-03-14", "1"), ["2017-03-14", "1"]),
    ],
)
def test_a_kind_can_be_set(kind: Any, cells: tuple[str, ...], expected: list[Any]) -> None:
    column, values = of(*cells, types={"x": kind})
    assert (column.kind, values) == (kind, expected)
    numbers = pd.DataFrame({"id": [1, 2], "x": [20170314, 20170403]})
    assert PartyTable(numbers, id="id", types={"x": "date"}).values("x").tolist() == [17239, 17259]
    with pytest.raises(TableError, match="is set to boolean, but its cells are not all"):
        PartyTable(numbers, id="id", types={"x": "boolean"})


def test_shares_of_a_hundred_and_of_one_are_not_taken_for_the_same() -> None:
    assert of("12 %", "0.12")[0].kind == "categorical"


def test_a_label_is_one_class_however_it_is_spelt(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "id;late\n1;ja\n2; ja\n3;JA\n4;nein\n5;Nein \n6;nein\n")
    table = read_table(tmp_path / "a.csv", id="id", label="late", positive="ja")
    assert table.labels is not None
    assert table.labels.tolist() == ["ja", "ja", "ja", "nein", "nein", "nein"]
    written(tmp_path / "b.csv", "id;grade\n1;A \n2;a\n3; A\n")
    labels = read_table(tmp_path / "b.csv", id="id", label="grade").labels
    assert labels is not None
    assert labels.tolist() == ["A", "a", "A"]


@pytest.mark.parametrize("column", ["amount", "paid out", "Währung", "a.b", 'the "sum"'])
def test_printed_settings_are_settings_whatever_a_column_is_called(column: str) -> None:
    frame = pd.DataFrame({"id": range(200), column: [f"c{number}d" for number in range(200)]})
    (note,) = PartyTable(frame, id="id").all_columns[0].notes
    settings = tomllib.loads(re.findall(r"types = \{.*\}", note)[0])
    assert PartyTable(frame, id="id", **settings).feature_names == (column,)
    with pytest.raises(TableError) as caught:
        PartyTable(frame.assign(**{column: ["1.5"] * 199 + ["none of these"]}), id="id")
    settings = tomllib.loads(re.findall(r"drop = \[.*\]", str(caught.value))[0])
    assert PartyTable(frame, id="id", **settings).all_columns == ()


def test_cells_that_do_not_fit_are_named_by_row_and_the_advice_repairs_them(tmp_path: Path) -> None:
    frame = pd.DataFrame({"id": range(300), "amount": [f"{number}.5" for number in range(300)]})
    frame.loc[[3, 15, 19], "amount"] = CANARY
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(TableError) as caught:
        read_table(tmp_path / "a.csv", id="id")
    said = str(caught.value)
    assert "3 of its 300 cells are no numbers: rows 5, 17 and 21 of the file" in said
    assert "categorical" not in said
    assert CANARY not in said
    assert 'drop = ["amount"]' in said
    assert read_table(tmp_path / "a.csv", id="id", drop=["amount"]).rows == 300
    frame.loc[[3, 15, 19], "amount"] = ""
    assert PartyTable(frame, id="id").columns[0].missing == 3
    codes = frame.assign(amount=["A1", *map(str, range(299))])
    with pytest.raises(TableError, match=r'codes rather than amounts, set types = \{amount = "categorical"\}'):
        PartyTable(codes, id="id")
    days = frame.assign(amount=["2017-03-14"] * 299 + [CANARY])
    with pytest.raises(TableError, match="looks like dates, but 1 of its 300 cells are no dates: row 300 of the table"):
        PartyTable(days, id="id")


# Files


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "cp1252"])
@pytest.mark.parametrize("quote", ['"', "'"])
def test_a_files_dialect_is_found_out_and_remembered(tmp_path: Path, separator: str, encoding: str, quote: str) -> None:
    lines = [["id", "town", "x"], *([str(row), f"{quote}Köln{separator} Süd{quote}", "1"] for row in range(20))]
    written(tmp_path / "a.csv", "\r\n".join(separator.join(line) for line in lines), encoding)
    table = read_table(tmp_path / "a.csv", id="id")
    assert table.values("town").tolist() == [f"Köln{separator} Süd"] * 20
    assert table.feature_names == ("town", "x")
    stored = "utf-8" if encoding == "utf-8-sig" else encoding
    assert table.dialect == Dialect(separator=separator, quote=quote, encoding=stored)
    assert table.take([1]).dialect == table.dialect


def test_a_dialect_can_be_set(tmp_path: Path) -> None:
    written(tmp_path / "a.csv", "id^x\n1^~a^b~\n", "cp850")
    table = read_table(tmp_path / "a.csv", id="id", separator="^", quote="~", encoding="cp850")
    assert table.values("x").tolist() == ["a^b"]
    written(tmp_path / "b.csv", 'id;x\n1;5" wide\n')
    assert read_table(tmp_path / "b.csv", id="id", quote="").values("x").tolist() == ['5" wide']


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"separator": ";;"}, "separator is ';;'. Use one character"),
        ({"quote": "''"}, "Use one character or none"),
        ({"encoding": "utf-9"}, "which Python does not know"),
        ({"decimal": ";"}, "decimal is ';'"),
        ({"decimal": ".", "thousands": "."}, "both set to '.'"),
        ({"dates": "day last"}, "Did you mean 'day first'"),
        ({"most_categories": 0}, "from 1 on"),
        ({"encoding": "utf-8"}, "is not encoded in utf-8, as set"),
    ],
)
def test_settings_that_cannot_be_are_refused(tmp_path: Path, options: dict[str, Any], said: str) -> None:
    written(tmp_path / "a.csv", "id,x\n1,é\n", "cp1252")
    with pytest.raises(TableError, match=re.escape(said)):
        read_table(tmp_path / "a.csv", id="id", **options)


# What is no feature


def test_identifiers_texts_and_names_are_left_out_unless_a_type_is_set() -> None:
    random, rows = np.random.default_rng(0), 500
    frame = pd.DataFrame(
        {
            "id": range(rows),
            "order_nr": random.permutation(rows * 7)[:rows],
            "counter": np.arange(rows) + 10,
            "account": [f"DE{number:07d}" for number in range(rows)],
            "surname": [f"Name {'abcdefghij'[number % 10]} {number}x" for number in range(rows)],
            "remark": [f"paid {number} times and called us" for number in range(rows)],
            "amount": random.permutation(rows * 7)[:rows],
            "zip": random.integers(10000, 10400, rows).astype(str),
            "code": [f"c{one}" for one in random.integers(0, 400, rows)],
            "rate": random.normal(size=rows),
            "born": pd.Timestamp("1960-01-01") + pd.to_timedelta(np.arange(rows) * 9, unit="D"),
        }
    )
    table = PartyTable(frame, id="id")
    reasons = {column.name: column.left_out for column in table.all_columns if column.left_out}
    assert reasons == {
        "order_nr": "identifier",
        "counter": "identifier",
        "account": "identifier",
        "surname": "nearly every value differs",
        "remark": "free text",
    }
    assert table.feature_names == tuple(column.name for column in table.columns) == (
        "amount", "zip", "code", "rate", "born",
    )  # fmt: skip
    assert table.take(range(40)).feature_names == table.feature_names
    assert len(table.values("remark")) == rows
    notes = {column.name: column.notes for column in table.all_columns}
    assert notes["account"] == (
        'Left out (identifier): 500 different values in 500 cells. types = {account = "categorical"} takes it in.',
    )
    assert "the 50 most frequent are told apart" in notes["code"][0]
    kept = PartyTable(frame, id="id", types={"account": "categorical", "order_nr": "numeric"})
    assert {"account", "order_nr"} <= set(kept.feature_names)
    assert "used because types names it" in kept.columns[1].notes[0]


# One table, many sources

COLUMNS = {
    "whole": st.integers(-(10**6), 10**6),
    "real": st.floats(-1e9, 1e9).map(lambda one: round(one, 4)),
    "flag": st.booleans(),
    "day": st.dates(pd.Timestamp("1900-01-01").date(), pd.Timestamp("2100-01-01").date()),
    "bit": st.integers(0, 1),
    "word": st.sampled_from(["clerk", "baker, head", "Köln", "NA", 'say "a"', "x;y"]),
}


@settings(deadline=None, max_examples=25)
@given(
    data=st.data(), name=st.sampled_from(sorted(COLUMNS)), rows=st.integers(3, 40), separator=st.sampled_from(",;\t")
)
def test_a_table_has_the_same_kinds_from_every_source(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, rows: int, separator: str
) -> None:
    cells = data.draw(st.lists(st.none() | COLUMNS[name], min_size=rows, max_size=rows))
    folder = tmp_path_factory.mktemp("sources")
    frame = pd.DataFrame({"id": range(rows), name: pd.Series(cells, dtype=object)})
    if name in ("whole", "bit", "real"):
        frame[name] = frame[name].astype(float if name == "real" else "Int64")
    if name == "flag":
        frame[name] = frame[name].astype("boolean")
    as_text = frame.assign(**{name: [None if pd.isna(one) else str(one) for one in frame[name]]})
    frame.to_csv(folder / "a.csv", index=False, sep=separator)
    frame.to_parquet(folder / "b.parquet")
    import sqlalchemy as sa

    engine = sa.create_engine(f"sqlite:///{folder / 'c.db'}")
    frame.to_sql("t", engine, index=False)
    as_text.to_sql("u", engine, index=False)
    engine.dispose()
    tables = [
        PartyTable(frame, id="id"),
        PartyTable(as_text, id="id"),
        read_table("a.csv", id="id", folder=folder),
        read_table("b.parquet", id="id", folder=folder),
        read_table("sqlite:///c.db", id="id", folder=folder, table="t"),
        read_table("sqlite:///c.db", id="id", folder=folder, query="SELECT * FROM u"),
    ]
    seen = {(table.all_columns[0].kind, table.all_columns[0].left_out, table.digest()) for table in tables}
    assert len(seen) == 1, [table.all_columns for table in tables]


def test_sqlite_columns_of_mixed_cells_are_read_by_the_same_rules(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, x)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(1, 1603.5), (2, "1.704,25"), (3, "n/a")])
        connection.commit()
    table = read_table("sqlite:///a.db", id="id", folder=tmp_path, table="t")
    np.testing.assert_array_equal(table.values("x"), [1603.5, 1704.25, np.nan])
    assert "counts as missing" in table.columns[0].notes[0]


def test_new_rows_are_read_as_those_of_the_training_were(tmp_path: Path) -> None:
    written(tmp_path / "party.toml", '[party]\nname = "bank"\n[table]\nsource = "none.csv"\nid = "id"\n')
    written(tmp_path / "new.csv", "id,x,day\n1,1.603,03/04/2017\n")
    document = {"types": {"x": "numeric", "day": "date"}}
    for decimal, dates, expected in ((",", "day first", [1603, 17259]), (".", "month first", [1.603, 17229])):
        part = ModelPart({}, {**document, "written": {"decimal": decimal, "dates": dates}})
        table = read_party_home(tmp_path).read_new_rows(str(tmp_path / "new.csv"), part)
        assert [table.values(name)[0] for name in ("x", "day")] == expected
