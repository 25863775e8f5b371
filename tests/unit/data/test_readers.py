from __future__ import annotations

import gzip
import sqlite3
import sys
import traceback
from pathlib import Path

import pandas as pd
import pytest

from colonnade.data import PartyTable, read_table
from colonnade.errors import TableError

from .conftest import PASSWORD, PostgresServer

CANARY = "canary8191"


def refused(source: object, **options: object) -> str:
    """Return the error's text, having checked that not even its traceback shows a cell or a password."""
    with pytest.raises(TableError) as caught:
        read_table(source, **{"id": "id", **options})
    shown = "".join(traceback.format_exception(caught.value))
    assert CANARY not in shown
    assert PASSWORD not in shown
    return str(caught.value)


@pytest.fixture
def customers() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": [11, 12, 13],
            "age": [30.25, None, 0.1],
            "visits": [3, 4, 5],
            "job": ["clerk", None, "baker, head"],
            "since": pd.to_datetime(["2020-01-01", "2021-05-06", None]),
            "member": [True, False, True],
            "y": [0, 1, 1],
        }
    )


def test_every_file_format_gives_the_same_table(tmp_path: Path, customers: pd.DataFrame) -> None:
    customers.to_csv(tmp_path / "a.csv", index=False)
    customers.to_csv(tmp_path / "b.csv.gz", index=False)
    customers.to_csv(tmp_path / "c.tsv", index=False, sep="\t")
    customers.to_csv(tmp_path / "d.csv", index=False, sep=";")
    customers.to_csv(tmp_path / "e.csv", index=False, encoding="utf-8-sig", lineterminator="\r\n")
    customers.to_parquet(tmp_path / "f.parquet")
    customers.set_index("id").to_parquet(tmp_path / "g.parquet")
    customers.iloc[[0, 1, 2]].set_index(pd.Index([5, 9, 1])).to_parquet(tmp_path / "h.parquet")
    tables = [PartyTable.read(path.name, id="id", label="y", folder=tmp_path) for path in sorted(tmp_path.iterdir())]
    assert [table.name for table in tables[:2]] == ["a.csv", "b.csv.gz"]
    kinds = {column.name: column.kind for column in tables[0].columns}
    numeric = dict.fromkeys(["age", "visits"], "numeric")
    assert kinds == numeric | {"job": "categorical", "since": "date", "member": "boolean"}
    digest = PartyTable(customers, id="id", label="y").digest()
    assert [table.digest() for table in tables] == [digest] * 8


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (["7", "8"], [7, 8]),
        (["007", "8"], ["007", "8"]),
        (["+7", "8"], ["+7", "8"]),
        (["-0", "8"], ["-0", "8"]),
        (["-7", "0"], [-7, 0]),
        (["NA", "null"], ["NA", "null"]),
        (["7.0", "8.0"], [7, 8]),
        (["7.0", "08.0"], ["7.0", "08.0"]),
        (["18446744073709551615", "8"], [2**64 - 1, 8]),
        (["123456789012345678901", "8"], ["123456789012345678901", "8"]),
        ([" 7", "8"], [" 7", "8"]),
    ],
)
def test_csv_ids_become_numbers_only_if_nothing_is_lost(
    tmp_path: Path, written: list[str], expected: list[object]
) -> None:
    (tmp_path / "a.csv").write_text("x,id\n" + "".join(f"1,{identifier}\n" for identifier in written))
    assert read_table("a.csv", id="id", folder=tmp_path).ids.tolist() == expected


def test_csv_ids_set_to_text_stay_text(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n7,1\n8,2\n")
    assert read_table(tmp_path / "a.csv", id="id", types={"id": "categorical"}).ids.tolist() == ["7", "8"]


def test_a_categorical_csv_column_keeps_leading_zeros_and_text_keeps_na(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,zip,country,n\n7,007,NA,NA\n8,7,FR,3\n")
    table = read_table(tmp_path / "a.csv", id="id", types={"zip": "categorical"})
    assert table.values("zip").tolist() == ["007", "7"]
    assert table.values("country").tolist() == ["NA", "FR"]
    assert table.columns[2].missing == 1


def test_quoted_line_breaks_are_part_of_a_cell(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('id,x\n7,"a\nb, ""c"""\n8,d\n')
    assert read_table(tmp_path / "a.csv", id="id").values("x").tolist() == ['a\nb, "c"', "d"]


def test_every_id_column_of_a_csv_keeps_its_zeros(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("area,number,card,loyalty,x\n030,17,7,,1\n040,18,8,007,2\n050,19,,008,3\n")
    table = read_table(
        tmp_path / "a.csv",
        id=["area", "number"],
        partner_ids={"shop": "loyalty", "post": "card", "telco": ["area", "x"]},
    )
    assert table.ids.tolist() == [("030", 17), ("040", 18), ("050", 19)]
    assert table.ids_for("shop").tolist() == [None, "007", "008"]
    assert table.ids_for("post").tolist() == [7, 8, None]
    assert table.ids_for("telco").tolist() == [("030", 1), ("040", 2), ("050", 3)]
    assert table.feature_names == ()


def test_the_separator_is_the_one_that_shows_all_id_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("first;last,name;x\nZoe;A,B;1\nAnn;C,D;2\n")
    assert read_table(tmp_path / "a.csv", id=["first", "last,name"]).ids.tolist() == [("Zoe", "A,B"), ("Ann", "C,D")]
    assert "Did you mean 'first'" in refused("a.csv", folder=tmp_path, id=["firts", "x"])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_what_a_spreadsheet_adds_is_no_data(tmp_path: Path, encoding: str) -> None:
    """Neither the line that names the separator, nor the separator at the end of every line."""
    (tmp_path / "a.csv").write_bytes("sep=|\r\nid|town|\r\n7|Köln|\r\n8|Bonn|\r\n".encode(encoding))
    table = read_table(tmp_path / "a.csv", id="id")
    assert table.ids.tolist() == [7, 8]
    assert table.names == ("town",)
    assert table.values("town").tolist() == ["Köln", "Bonn"]


def test_a_title_above_the_header_is_told(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("Customers of 2019\n\nid;x;y\n1;2;3\n2;3;4\n")
    assert "has 2 lines above its header. Take them out" in refused("a.csv", folder=tmp_path, id="id")


def test_a_missing_file_suggests_a_similar_one(tmp_path: Path) -> None:
    (tmp_path / "customers.csv").write_text("id,x\n1,2\n")
    assert "Did you mean 'customers.csv'?" in refused("customer.csv", folder=tmp_path)
    assert "does not exist either" in refused("nowhere/customer.csv", folder=tmp_path)


def test_folders_empty_files_and_unknown_suffixes_are_refused(tmp_path: Path) -> None:
    for name in ("empty.csv", "empty.parquet"):
        (tmp_path / name).touch()
        assert "empty file" in refused(name, folder=tmp_path)
    (tmp_path / "blank.csv").write_text("\ufeff\n \n")
    assert "no text" in refused("blank.csv", folder=tmp_path)
    (tmp_path / "headeronly.csv").write_text("id,x\n")
    assert "no rows" in refused("headeronly.csv", folder=tmp_path)
    assert "is a folder" in refused(tmp_path)
    (tmp_path / "a.xlsx").write_bytes(b"PK\x03\x04")
    assert ".csv, .csv.gz, .tsv, .parquet" in refused("a.xlsx", folder=tmp_path)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.csv", b"PAR1....PAR1", "a Parquet file"),
        ("a.csv", gzip.compress(b"id,x\n1,2\n", mtime=0), "a gzip archive"),
        ("a.csv", b"PK\x03\x04 workbook", "an Excel workbook"),
        ("a.csv", b"id,x\n1,\x00canary8191\n", "binary data"),
        ("a.csv.gz", b"id,x\n1,canary8191\n", "should be a gzip archive"),
        ("a.csv.gz", gzip.compress(b"PAR1", mtime=0), "a Parquet file"),
        ("a.parquet", b"id,x\n1,canary8191\n", "should be a Parquet file"),
        ("a.parquet", b"PAR1 canary8191", "its end is missing"),
        ("a.parquet", b"PAR1 canary8191 PAR1", "damaged Parquet"),
        ("a.csv.gz", gzip.compress(b"id,x\n1,canary8191\n", mtime=0)[:-12], "damaged gzip"),
    ],
)
def test_a_file_that_is_not_what_its_name_says_is_refused(
    tmp_path: Path, name: str, content: bytes, expected: str
) -> None:
    (tmp_path / name).write_bytes(content)
    assert expected in refused(name, folder=tmp_path)


def test_a_nul_byte_far_down_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"id,x\n" + b"1,canary8191\n" * 100_000 + b"2,\x00\n")
    assert "NUL" in refused("a.csv", folder=tmp_path)


@pytest.mark.parametrize("row", ["2,canary8191", "2,b,c,canary8191", "2"])
def test_ragged_rows_are_counted(tmp_path: Path, row: str) -> None:
    (tmp_path / "a.csv").write_text(f"id,x,y\n1,a,b\n{row}\n{row}\n3,a,b\n")
    message = refused("a.csv", folder=tmp_path)
    assert "2 rows that do not have the 3 fields" in message
    assert f"has {row.count(',') + 1}" in message


def test_a_repeated_header_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x,x\n1,2,3\n")
    assert "occur more than once: x" in refused("a.csv", folder=tmp_path)
    (tmp_path / "b.csv").write_text("id,id,x\n1,2,3\n")
    assert "occur more than once: id" in refused("b.csv", folder=tmp_path)


def test_an_unknown_id_column_in_a_csv_suggests_one(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("customer_id,x\n1,2\n")
    assert "Did you mean 'customer_id'?" in refused("a.csv", folder=tmp_path, id="customerid")


def test_missing_csv_ids_are_counted(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,2\n,3\n")
    assert "empty in 1 of 2 rows" in refused("a.csv", folder=tmp_path)


def test_query_and_table_belong_to_databases(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,x\n1,2\n")
    assert "is a file" in refused("a.csv", folder=tmp_path, table="t")
    assert "neither query nor table" in refused("sqlite://")
    assert "both query and table" in refused("sqlite://", query="SELECT 1", table="t")


@pytest.fixture
def sqlite_folder(tmp_path: Path) -> Path:
    connection = sqlite3.connect(tmp_path / "shop.db")
    connection.execute('CREATE TABLE "order lines" (id TEXT, amount REAL, kind TEXT)')
    rows = [("007", 1.5, "a:b"), ("008", None, "it's 5% :off")]
    connection.executemany('INSERT INTO "order lines" VALUES (?, ?, ?)', rows)
    connection.commit()
    connection.close()
    return tmp_path


def test_sqlite_tables_and_queries_are_read(sqlite_folder: Path) -> None:
    table = read_table("sqlite:///shop.db", id="id", table="order lines", folder=sqlite_folder)
    assert table.name == "database table 'order lines'"
    assert table.ids.tolist() == ["007", "008"]
    query = "SELECT id, amount FROM \"order lines\" WHERE kind LIKE '%5\\%% :off' ESCAPE '\\'"
    assert read_table("sqlite:///shop.db", id="id", query=query, folder=sqlite_folder).ids.tolist() == ["008"]


def test_sqlite_mistakes_are_explained(sqlite_folder: Path) -> None:
    url = "sqlite:///shop.db"
    assert "Did you mean 'order lines'?" in refused(url, table="orderlines", folder=sqlite_folder)
    assert "no such column: amuont" in refused(url, query='SELECT amuont FROM "order lines"', folder=sqlite_folder)
    assert "syntax error" in refused(url, query="SELEC 1", folder=sqlite_folder)
    assert "Use a SELECT" in refused(url, query='DELETE FROM "order lines"', folder=sqlite_folder)
    assert read_table(url, id="id", table="order lines", folder=sqlite_folder).rows == 2, "nothing was deleted"
    assert "Did you mean 'shop.db'?" in refused("sqlite:///shpo.db", table="t", folder=sqlite_folder)
    assert not (sqlite_folder / "shpo.db").exists(), "reading must not create a database"
    (sqlite_folder / "a.db").write_text("id,x\n1,canary8191\n")
    assert "should be an SQLite database" in refused("sqlite:///a.db", table="t", folder=sqlite_folder)


def test_urls_that_lead_nowhere_are_explained_without_the_password(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be taken apart" in refused(f"postgresql://u:{PASSWORD}@host:port/db", table="t")
    assert "knows no database 'postgrse'" in refused(f"postgrse://u:{PASSWORD}@host/db", table="t")
    message = refused(f"postgresql+psycopg://u:{PASSWORD}@127.0.0.1:1/db?application_name={PASSWORD}", table="t")
    assert "Cannot connect to postgresql+psycopg://u:***@127.0.0.1:1/db" in message
    monkeypatch.setitem(sys.modules, "psycopg", None)
    message = refused(f"postgresql+psycopg://u:{PASSWORD}@host/db", table="t")
    assert "pip install colonnade[postgres]" in message


def run_sql(server: PostgresServer, *statements: str) -> None:
    import psycopg

    address = {"host": str(server.folder), "port": server.port, "user": "owner", "dbname": "postgres"}
    with psycopg.connect(**address) as connection:
        for statement in statements:
            connection.execute(statement)


def test_postgres_tables_and_queries_are_read(postgres: PostgresServer) -> None:
    run_sql(
        postgres,
        "CREATE SCHEMA sales",
        "CREATE TABLE sales.customers"
        " (id bigint, key uuid, age numeric, since date, seen timestamptz, job text, y bool)",
        "INSERT INTO sales.customers VALUES"
        " (1, gen_random_uuid(), 1.5, '1970-01-02', '1970-01-01 12:00+00', 'clerk 50%', true),"
        " (9007199254740993, gen_random_uuid(), NULL, NULL, NULL, NULL, false)",
        "CREATE VIEW sales.clerks AS SELECT id, age FROM sales.customers",
    )
    table = read_table(postgres.url, id="id", label="y", table="sales.customers")
    assert table.ids.tolist() == [1, 9007199254740993]
    kinds = {column.name: (column.kind, column.missing) for column in table.columns}
    assert kinds == {
        "key": ("categorical", 0),
        "age": ("numeric", 1),
        "since": ("date", 1),
        "seen": ("date", 1),
        "job": ("categorical", 1),
    }
    assert (table.values("since")[0], table.values("seen")[0]) == (1.0, 0.5)
    assert table.labels is not None
    assert table.labels.tolist() == [True, False]
    assert read_table(postgres.socket_url, id="id", table="sales.clerks").rows == 2
    query = "SELECT id::text AS id, age FROM sales.customers WHERE job LIKE '%50\\%' AND age > 1.0::numeric"
    assert read_table(postgres.url, id="id", query=query).ids.tolist() == ["1"]


def test_postgres_mistakes_are_explained_without_rows_or_password(postgres: PostgresServer) -> None:
    run_sql(postgres, "CREATE TABLE orders (id int, note text)", f"INSERT INTO orders VALUES (1, '{CANARY}')")
    assert "Did you mean 'orders'?" in refused(postgres.url, table="order")
    assert 'column "notes" does not exist' in refused(postgres.url, query="SELECT notes FROM orders")
    # PostgreSQL's own message quotes the cell here; ours must not.
    message = refused(postgres.url, query="SELECT id, note::int AS n FROM orders")
    assert "(InvalidTextRepresentation)" in message
    wrong = postgres.url.replace(PASSWORD, f"not-{PASSWORD}")
    assert "Cannot connect to postgresql+psycopg://owner:***@127.0.0.1" in refused(wrong, table="orders")
