"""A party's own data: tables, readers, shared rows, splits, batches and the encoders fitted on them.

Nothing in this room sends anything. Its errors carry names, kinds and counts, never a cell's content.
"""

from __future__ import annotations

from colonnade.data.codes import CodedColumn, CodeEncoder
from colonnade.data.columns import Column, Kind
from colonnade.data.dialect import DateOrder, Dialect
from colonnade.data.encoders import TableEncoder
from colonnade.data.id_formats import DIGITS, LETTERS, IdFormat, explain_few_shared, explain_nothing_shared
from colonnade.data.ids import SEPARATORS, Id, IdRule, canonical_id_bytes, normalised_ids
from colonnade.data.labels import LabelEncoder, Task
from colonnade.data.linked import LINK_COLUMNS, digest_with_lists, linked_rows
from colonnade.data.matched import MatchedRows, matched_rows
from colonnade.data.readers import read_frame
from colonnade.data.rows import (
    AlignedRows,
    Split,
    batches,
    id_marks,
    most_even_split,
    rows_of_marks,
    split_rows,
)
from colonnade.data.steps import StepEncoder
from colonnade.data.table import PartyTable

__all__ = [
    "DIGITS",
    "LETTERS",
    "LINK_COLUMNS",
    "SEPARATORS",
    "AlignedRows",
    "CodeEncoder",
    "CodedColumn",
    "Column",
    "DateOrder",
    "Dialect",
    "Id",
    "IdFormat",
    "IdRule",
    "Kind",
    "LabelEncoder",
    "MatchedRows",
    "PartyTable",
    "Split",
    "StepEncoder",
    "TableEncoder",
    "Task",
    "batches",
    "canonical_id_bytes",
    "digest_with_lists",
    "explain_few_shared",
    "explain_nothing_shared",
    "id_marks",
    "linked_rows",
    "matched_rows",
    "most_even_split",
    "normalised_ids",
    "read_frame",
    "read_table",
    "rows_of_marks",
    "split_rows",
]

read_table = PartyTable.read
