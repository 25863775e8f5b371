"""Rows that another tool has matched: which rows of this party, in the order that all parties share."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.ids import canonical_id_bytes
from colonnade.data.table import PartyTable
from colonnade.errors import TableError

__all__ = ["MatchedRows", "matched_rows"]

_KEY = "match"


@dataclass(frozen=True, eq=False)
class MatchedRows:
    """A party's rows in the agreed order, and what each is matched by: the same at every party."""

    positions: npt.NDArray[np.int64]
    keys: tuple[bytes, ...]


def matched_rows(table: PartyTable, matches: pd.DataFrame | None = None) -> MatchedRows:
    """Find a table's rows in a list of matches; without a list, all rows are matched in the order they have.

    The list has the table's id columns, and may have a column ``match`` with a token that is the same at all parties.
    Without it the ids themselves must be the same.
    """
    if matches is None:
        return MatchedRows(np.arange(table.rows), tuple(canonical_id_bytes(one) for one in table.ids))
    missing = [name for name in table.id_columns if name not in matches.columns]
    if missing:
        raise TableError(
            f"The list of matches for {table.name} has no column {', '.join(missing)}. It needs the table's id columns "
            f"and, where parties name a person differently, a column '{_KEY}' with a token both sides share."
        )
    listed = PartyTable(
        matches[list(table.id_columns)], id=list(table.id_columns), name=f"The list of matches for {table.name}"
    )
    row_of = {str(one): row for row, one in enumerate(table.ids)}
    positions = np.array([row_of.get(str(one), -1) for one in listed.ids], dtype=np.int64)
    unknown = int((positions < 0).sum())
    if unknown:
        raise TableError(
            f"{unknown} of {len(positions)} ids in the list of matches are not in {table.name}. Make the list from "
            "this very table, with ids written in the same way."
        )
    if _KEY in matches.columns:
        repeated = int(matches[_KEY].duplicated(keep=False).sum())
        missing_keys = int(matches[_KEY].isna().sum())
        if repeated or missing_keys:
            raise TableError(
                f"The column '{_KEY}' of the list of matches for {table.name} is empty in {missing_keys} rows and "
                f"repeats itself in {repeated} of {len(matches)}. Give every matched row a token of its own."
            )
        return MatchedRows(positions, tuple(str(one).encode("utf-8", "surrogatepass") for one in matches[_KEY]))
    return MatchedRows(positions, tuple(canonical_id_bytes(one) for one in listed.ids))
