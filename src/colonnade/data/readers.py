"""Read a party's table from a CSV, TSV or Parquet file or from a database.

A reader's own complaints often quote the cell they stumbled on, and a driver's the password it was given. So none of
them is passed on: every error here is written anew, raised `from None`, with names, counts and line numbers only.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import pandas as pd

from colonnade.data.columns import Kind
from colonnade.data.dialect import Dialect, with_dialect
from colonnade.data.ids import column_names, whole_number_of
from colonnade.errors import TableError, did_you_mean

if TYPE_CHECKING:
    from sqlalchemy import URL, Connection, Engine, TextClause

__all__ = ["read_frame", "title_of"]

_SUFFIXES = (".csv", ".csv.gz", ".tsv", ".parquet")
_CHUNK = 1 << 20
_LINES_SHOWN = 200
_LINES_ABOVE = 20
# What a spreadsheet is told by a first line that is no row.
_SEPARATOR_LINE = re.compile(r"\ufeff?[sS]ep=([^\r\n])\r?\n")
_APOSTROPHES = re.compile(r"(?:^|[,;\t|])'[^']*'(?=[,;\t|\r\n]|$)")
_SUFFIX_OF = {b"PAR1": ".parquet", b"\x1f\x8b": ".csv.gz"}
_MAGIC = {
    b"PAR1": "a Parquet file",
    b"\x1f\x8b": "a gzip archive",
    b"PK\x03\x04": "a zip archive or an Excel workbook",
    b"\xd0\xcf\x11\xe0": "an old Excel workbook",
    b"SQLite format 3\x00": "an SQLite database",
}


def read_frame(
    source: str | Path,
    *,
    id: str | Sequence[str],
    types: Mapping[str, Kind] | None = None,
    dialect: Dialect = Dialect(),  # noqa: B008 - frozen
    query: str | None = None,
    table: str | None = None,
    folder: str | Path | None = None,
) -> pd.DataFrame:
    """Read the frame behind a PartyTable, for callers that choose columns before building it; see `PartyTable.read`.

    `id` names every id column, whether ids are made of several or differ by partner. Of `dialect`, what is None is
    found out; columns of text files stay text, beside ids.
    """
    if "://" in str(source):
        return _read_database(str(source), query=query, table=table, folder=folder)
    path = Path(folder or ".") / Path(source).expanduser()
    if query is not None or table is not None:
        raise TableError(
            f"'{path.name}' is a file, but query or table is set as if it were a database. "
            f"Remove the setting, or give a database URL."
        )
    return _read_file(path, ids=column_names(id), types=dict(types or {}), dialect=dialect)


def title_of(source: str | Path, table: str | None) -> str:
    """Return what errors call a source that was given no name; a URL is not shown, as it may hold a password."""
    if "://" not in str(source):
        return Path(source).name
    return f"database table '{table}'" if table else "the query's result"


# Files


def _read_file(path: Path, *, ids: tuple[str, ...], types: Mapping[str, Kind], dialect: Dialect) -> pd.DataFrame:
    name = path.name
    suffix = next((suffix for suffix in sorted(_SUFFIXES, key=len)[::-1] if name.lower().endswith(suffix)), None)
    if path.is_dir():
        inside = sorted(file.name for file in path.iterdir() if file.name.endswith(_SUFFIXES))
        hint = f"Did you mean '{name}/{inside[0]}'?" if inside else f"Name one file inside it ({', '.join(_SUFFIXES)})."
        raise TableError(f"'{name}' is a folder. {hint}")
    if not path.exists():
        raise TableError(f"There is no file '{name}' in the folder '{path.parent}'. {_similar_file(path)}")
    if suffix is None:
        raise TableError(
            f"'{name}' has a suffix colonnade does not read. If it is text of cells and separators, rename it to "
            f"'{path.with_suffix('.csv').name}', also in source; else use one of {', '.join(_SUFFIXES)}."
        )
    try:
        if path.stat().st_size == 0:
            raise TableError(f"'{name}' is an empty file. Check that the export behind it finished.")
        if suffix == ".parquet":
            return _read_parquet(path)
        return _read_csv(path, suffix=suffix, ids=ids, types=types, dialect=dialect)
    except OSError as error:
        raise TableError(f"'{name}' cannot be read ({type(error).__name__}). Check its permissions.") from None


def _similar_file(path: Path) -> str:
    if not path.parent.is_dir():
        return "That folder does not exist either; check the path."
    return did_you_mean(path.name, [file.name for file in path.parent.iterdir() if file.name.endswith(_SUFFIXES)])


def _read_parquet(path: Path) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.parquet as pq

    with path.open("rb") as file:
        head = file.read(16)
        file.seek(-min(4, path.stat().st_size), 2)
        tail = file.read(4)
    if head[:4] != b"PAR1":
        raise _not_what_its_name_says(path, head, expected="a Parquet file")
    if tail != b"PAR1":
        raise TableError(f"'{path.name}' begins as a Parquet file but its end is missing. Copy or export it again.")
    try:
        with pq.ParquetFile(path) as file:
            frame: pd.DataFrame = file.read().to_pandas(date_as_object=False)
    except (pa.ArrowException, OSError):
        raise TableError(f"'{path.name}' is a damaged Parquet file. Copy or export it again.") from None
    # An id that was a frame's index when the file was written is a column to us.
    index_columns = [level for level in frame.index.names if level is not None and level not in frame.columns]
    return frame.reset_index(level=index_columns) if index_columns else frame


def _read_csv(
    path: Path, *, suffix: str, ids: tuple[str, ...], types: Mapping[str, Kind], dialect: Dialect
) -> pd.DataFrame:
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    compressed = suffix == ".csv.gz"
    encoding = _check_text(path, compressed=compressed, given=dialect.encoding)
    dialect, header, skipped = _look_into(path, replace(dialect, encoding=encoding), suffix=suffix, ids=ids)
    ragged: list[int] = []

    def note_ragged(row: Any) -> str:
        ragged.append(int(row.actual_columns))
        return "skip"

    try:
        frame: pd.DataFrame = arrow_csv.read_csv(
            pa.input_stream(str(path), compression="gzip" if compressed else None),
            read_options=arrow_csv.ReadOptions(encoding="utf8" if encoding == "utf-8" else encoding, skip_rows=skipped),
            # A row that does not fit its header is a fault in the file; pandas would fill or shift it in silence.
            parse_options=arrow_csv.ParseOptions(
                delimiter=dialect.separator,
                quote_char=dialect.quote or False,
                newlines_in_values=True,
                invalid_row_handler=note_ragged,
            ),
            # What text means is decided in one place for all sources, so that all of it stays text here.
            convert_options=arrow_csv.ConvertOptions(column_types=dict.fromkeys(header, pa.string())),
        ).to_pandas()
    except pa.ArrowException:
        raise TableError(
            f"'{path.name}' cannot be read as a table of {len(header)} columns. "
            f"Look for an unclosed quote or a cell of more than a million characters."
        ) from None
    if ragged:
        above = " If lines above the header name the table, take them out." if len(header) == 1 else ""
        raise TableError(
            f"'{path.name}' has {len(ragged)} rows that do not have the {len(header)} fields of its header, separated "
            f"by {_in_words(dialect.separator)}; the first of them has {ragged[0]}. Quote cells that contain the "
            f"separator and export the file again, or, if it is another one, set separator.{above}"
        )
    # Of lines that end with a separator, what follows it is no column.
    nameless = {n for n, name in enumerate(frame.columns) if not name.strip() and _is_blank(frame.iloc[:, n])}
    if nameless:
        frame = frame.iloc[:, [n for n in range(frame.shape[1]) if n not in nameless]].copy()
    for id in ids:
        if header.count(id) == 1 and types.get(id) is None:
            frame[id] = _whole_numbers_or_text(frame[id])
    return with_dialect(frame, dialect)


def _is_blank(column: pd.Series[Any]) -> bool:
    return not column.fillna("").str.strip().any()


def _whole_numbers_or_text(column: pd.Series[Any]) -> pd.Series[Any]:
    """Return ids as whole numbers if every one prints as one, or as its float; else as written. Some may be missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        written = pa.array(column, from_pandas=True)
        whole = pc.cast(written, pa.int64())
        if not whole.null_count and pc.all(pc.equal(pc.cast(whole, written.type), written)).as_py():
            return pd.Series(whole.to_numpy(), index=column.index, name=column.name)
    except pa.ArrowInvalid:
        pass  # some are empty, too large or no numbers
    texts = [text if isinstance(text, str) and text.strip() else None for text in column.tolist()]
    numbers = [None if text is None else whole_number_of(text) for text in texts]
    if [one is None for one in numbers] != [text is None for text in texts]:
        return column
    return pd.Series(numbers, dtype=object, index=column.index)


def _check_text(path: Path, *, compressed: bool, given: str | None) -> str:
    """Return the encoding of a text file, by its first bytes and by decoding it; refuse a file that is no text."""
    with path.open("rb") as file:
        head = file.read(16)
    if compressed and head[:2] != b"\x1f\x8b":
        raise _not_what_its_name_says(path, head, expected="a gzip archive of CSV text")
    try:
        with _open_bytes(path, compressed=compressed) as file:
            head = file.read(_CHUNK)
        wide = _wide_encoding(head)
        if _kind_by_magic(head) or (b"\x00" in head and not wide and given is None):
            raise _not_what_its_name_says(path, head[:16], expected="CSV text")
        for encoding in [given or wide or "utf-8", *([] if given or wide else ["cp1252"])]:
            is_blank = _decoded(path, encoding, compressed=compressed)
            if is_blank:
                raise TableError(f"'{path.name}' has no text in it. Check that the export behind it finished.")
            if is_blank is not None:
                return encoding
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise TableError(f"'{path.name}' is a damaged gzip archive. Copy or compress it again.") from None
    what = f"is not encoded in {given}, as set" if given else "is encoded in none of UTF-8, UTF-16 and cp1252"
    raise TableError(
        f"'{path.name}' {what}. Set encoding to what the program that wrote it uses, such as cp850 or mac_roman, or "
        f"save it again as UTF-8."
    )


def _decoded(path: Path, encoding: str, *, compressed: bool) -> bool | None:
    """Tell whether a file is blank; None where it is not in this encoding."""
    try:
        decoder = codecs.getincrementaldecoder(encoding)()
    except LookupError:
        raise TableError(
            f"encoding is set to '{encoding}', which Python does not know. Use a name such as utf-8, cp1252 or utf-16."
        ) from None
    is_blank, is_wide = True, encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32"))
    with _open_bytes(path, compressed=compressed) as file:
        while chunk := file.read(_CHUNK):
            if b"\x00" in chunk and not is_wide:
                raise TableError(f"'{path.name}' has NUL bytes and so is no CSV text. Copy or export it again.")
            try:
                text = decoder.decode(chunk)
            except UnicodeDecodeError:
                return None
            is_blank = is_blank and not text.strip("\ufeff \t\r\n")
        try:
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return None
    return is_blank


def _wide_encoding(head: bytes) -> str | None:
    """Return the form of UTF-16 that a text begins in, by its byte order mark or by where its zeros are."""
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    zeros = [head[start : start + 2000 : 2].count(0) for start in (0, 1)]
    many = len(head[:2000]) // 4
    if many and max(zeros) > many and min(zeros) == 0:
        return "utf-16-le" if zeros[1] else "utf-16-be"
    return None


def _look_into(path: Path, dialect: Dialect, *, suffix: str, ids: tuple[str, ...]) -> tuple[Dialect, list[str], int]:
    """Return how a file's cells are separated and quoted, the names in its header, and how many lines are before it.

    The separator is the one that shows most id columns, then the one by which most rows have as many cells as the
    header.
    """
    with _open_bytes(path, compressed=suffix == ".csv.gz") as file:
        sample = codecs.getincrementaldecoder(str(dialect.encoding))().decode(file.read(_CHUNK))
    told = _SEPARATOR_LINE.match(sample)
    if told:
        sample = sample[told.end() :]
        dialect = replace(dialect, separator=dialect.separator or told.group(1))
    lines = sample.lstrip("\ufeff\r\n").splitlines(keepends=True)
    shown = lines[: _LINES_SHOWN if len(lines) > 1 else 1]
    quote = dialect.quote
    if quote is None:
        wrapped = sum(len(_APOSTROPHES.findall(line)) for line in shown)
        quote = "'" if 2 * wrapped > len(shown) and not any('"' in line for line in shown) else '"'
    separators = [dialect.separator] if dialect.separator else ["\t"] if suffix == ".tsv" else [",", ";", "\t", "|"]

    def rows(separator: str, some: list[str]) -> Iterator[list[str]]:
        how = {"quotechar": quote} if quote else {"quoting": csv.QUOTE_NONE}
        return csv.reader(some, delimiter=separator, **how)

    def shows(separator: str) -> tuple[int, float]:
        try:
            header, *others = (row for row in rows(separator, shown) if row)
        except (csv.Error, ValueError):
            return 0, 0.0
        fitting = sum(len(row) == len(header) for row in others[: -1 if len(others) > 1 else None])
        return len({*ids} & {*header}), fitting / max(len(others), 1) if len(header) > 1 else 0.0

    separator = max(separators, key=shows)
    try:
        header = next(row for row in rows(separator, lines) if row)
    except csv.Error:
        header = []
    for number, line in enumerate(lines[:_LINES_ABOVE] if ids and not {*ids} & {*header} else []):
        if any({*ids} <= {*next(rows(one, [line.rstrip("\r\n")]), [])} for one in separators):
            raise TableError(f"'{path.name}' has {number} lines above its header. Take them out of the file.")
    return replace(dialect, separator=separator, quote=quote), header, int(told is not None)


def _in_words(separator: str | None) -> str:
    return "a tab" if separator == "\t" else f"'{separator}'"


def _open_bytes(path: Path, *, compressed: bool) -> IO[bytes] | gzip.GzipFile:
    if compressed:
        return gzip.open(path, "rb")
    return path.open("rb")


def _kind_by_magic(head: bytes) -> str | None:
    return next((kind for magic, kind in _MAGIC.items() if head.startswith(magic)), None)


def _not_what_its_name_says(path: Path, head: bytes, *, expected: str) -> TableError:
    kind = _kind_by_magic(head) or ("binary data" if b"\x00" in head else "something else")
    suffix = next((one for magic, one in _SUFFIX_OF.items() if head.startswith(magic)), None)
    stem = path.name.removesuffix(".gz").rpartition(".")[0]
    remedy = f"Rename it to '{stem}{suffix}', also in source" if suffix else "Rename it to what it is"
    return TableError(
        f"'{path.name}' should be {expected} by its name, but its content is {kind}. {remedy}, or export it again."
    )


# Databases


def _read_database(source: str, *, query: str | None, table: str | None, folder: str | Path | None) -> pd.DataFrame:
    import sqlalchemy as sa

    if (query is None) == (table is None):
        given = "both query and table" if query is not None else "neither query nor table"
        raise TableError(f"A database source was given with {given}. Set exactly one of them.")
    try:
        url = sa.make_url(source)
    except (sa.exc.ArgumentError, ValueError):
        raise TableError(
            "The source looks like a database URL but cannot be taken apart. "
            "Write it as dialect+driver://user:password@host:port/database, with special characters percent-encoded."
        ) from None
    if url.get_backend_name() == "sqlite":
        url = _sqlite_in_folder(url, folder)
    engine = _engine(url)
    try:
        with _connect(engine, url) as connection:
            statement = _statement(connection, query=query, table=table)
            try:
                result = connection.execute(statement)
                if not result.returns_rows:
                    raise TableError("The query returns no rows at all by its nature. Use a SELECT.")
                frame = pd.DataFrame.from_records([tuple(row) for row in result], columns=list(result.keys()))
                return frame if table is None else _with_booleans(frame, connection, table)
            except sa.exc.SQLAlchemyError as error:
                what = "query" if table is None else f"table '{table}'"
                raise TableError(f"The {what} failed at {_shown(url)}{_reason(error)} {_QUERY_ADVICE}") from None
    finally:
        engine.dispose()


_QUERY_ADVICE = "Try it in a database client with the same user."


def _statement(connection: Connection, *, query: str | None, table: str | None) -> TextClause:
    import sqlalchemy as sa

    if table is None:
        # SQLAlchemy would take `:word` for a parameter; a query here has none.
        return sa.text((query or "").replace(":", "\\:"))
    schema, _, bare = table.rpartition(".")
    inspector = sa.inspect(connection)
    try:
        if not inspector.has_table(bare, schema=schema or None):
            names = inspector.get_table_names(schema or None) + inspector.get_view_names(schema or None)
            raise TableError(f"The database has no table or view '{table}'. {did_you_mean(bare, names)}")
    except sa.exc.SQLAlchemyError as error:
        raise TableError(
            f"The tables of {_shown(connection.engine.url)} cannot be listed{_reason(error)} {_QUERY_ADVICE}"
        ) from None
    quote = connection.dialect.identifier_preparer.quote
    qualified = f"{quote(schema)}.{quote(bare)}" if schema else quote(bare)
    return sa.text(f"SELECT * FROM {qualified}".replace(":", "\\:"))  # noqa: S608 (quoted by the dialect)


def _with_booleans(frame: pd.DataFrame, connection: Connection, table: str) -> pd.DataFrame:
    """Return a table with columns declared as booleans as such: SQLite stores them as 0 and 1."""
    import sqlalchemy as sa

    schema, _, bare = table.rpartition(".")
    for column in sa.inspect(connection).get_columns(bare, schema=schema or None):
        name = str(column["name"])
        if isinstance(column["type"], sa.Boolean) and name in frame and frame[name].dropna().isin((0, 1)).all():
            frame[name] = frame[name].astype("boolean")
    return frame


def _sqlite_in_folder(url: URL, folder: str | Path | None) -> URL:
    """Resolve a database file against `folder`, and refuse one that is not there: SQLite would create it."""
    if url.database in (None, "", ":memory:") or str(url.database).startswith("file:"):
        return url
    path = Path(folder or ".") / str(url.database)
    if not path.is_file():
        siblings = [file.name for file in path.parent.iterdir() if file.is_file()] if path.parent.is_dir() else []
        raise TableError(
            f"There is no SQLite file '{path.name}' in the folder '{path.parent}'. {did_you_mean(path.name, siblings)}"
        )
    with path.open("rb") as file:
        head = file.read(16)
    if head and not head.startswith(b"SQLite format 3\x00"):
        raise _not_what_its_name_says(path, head, expected="an SQLite database")
    return url.set(database=str(path))


def _engine(url: URL) -> Engine:
    import sqlalchemy as sa

    is_postgres = url.get_backend_name() == "postgresql"
    try:
        # libpq would wait for minutes on a host that does not answer.
        arguments = {"connect_timeout": 10} if is_postgres and "connect_timeout" not in url.query else {}
        return sa.create_engine(url, poolclass=sa.NullPool, connect_args=arguments)
    except sa.exc.NoSuchModuleError:
        raise TableError(
            f"SQLAlchemy knows no database '{url.drivername}'. "
            f"{did_you_mean(url.drivername, ['sqlite', 'postgresql+psycopg'])}"
        ) from None
    except ImportError as error:
        if is_postgres:
            remedy = "Run pip install colonnade[postgres] and begin the URL with postgresql+psycopg://."
        else:
            remedy = "Install that driver beside colonnade."
        raise TableError(
            f"The database driver '{error.name or url.drivername}' for {_shown(url)} is not installed. {remedy}"
        ) from None


def _connect(engine: Engine, url: URL) -> Connection:
    import sqlalchemy as sa

    try:
        return engine.connect()
    except sa.exc.SQLAlchemyError as error:
        said = str(getattr(error, "orig", None) or "").strip().splitlines()
        secrets = [str(url.password or ""), *(str(value) for value in url.query.values())]
        safe = said and not any(secret and secret in said[0] for secret in secrets)
        reason = f": {said[0].rstrip('.')}" if safe else ""
        raise TableError(
            f"Cannot connect to {_shown(url)}{reason}. "
            f"Check that the server runs, and the host, port, user and password."
        ) from None


def _shown(url: URL) -> str:
    """Return the URL for an error: no password, and no options, which may hold one too."""
    return url.set(query={}).render_as_string(hide_password=True)


def _reason(error: Exception) -> str:
    """Say why a statement failed, as far as that cannot quote a row.

    PostgreSQL's class 42 (unknown names, syntax, rights) and SQLite's messages on the same speak about the statement
    only. Any other message may quote a value, so only its type is told.
    """
    origin = getattr(error, "orig", None)
    state, diagnosis = getattr(origin, "sqlstate", None), getattr(origin, "diag", None)
    if state is not None and state.startswith("42") and diagnosis is not None:
        return f": {diagnosis.message_primary}."
    if str(origin).startswith(("no such table", "no such column", "no such function", 'near "')):
        return f": {origin}."
    return f" ({type(origin or error).__name__})."
