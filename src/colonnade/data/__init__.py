"""A party's own data: tables, readers, shared rows, splits, batches and the encoders fitted on them.

Nothing in this room sends anything. Its errors carry names, kinds and counts, never a cell's content.
"""

from __future__ import annotations

from colonnade.data.columns import Column, Kind
from colonnade.data.encoders import LabelEncoder, TableEncoder, Task
from colonnade.data.readers import read_frame, read_table
from colonnade.data.rows import AlignedRows, IdFormat, Split, align_by_equality, batches, order_ids, split_rows
from colonnade.data.table import PartyTable, canonical_id_bytes

__all__ = [
    "AlignedRows",
    "Column",
    "IdFormat",
    "Kind",
    "LabelEncoder",
    "PartyTable",
    "Split",
    "TableEncoder",
    "Task",
    "align_by_equality",
    "batches",
    "canonical_id_bytes",
    "order_ids",
    "read_frame",
    "read_table",
    "split_rows",
]
