"""Links between a party's own rows, such as who knows whom: which rows they join; and a digest that covers them."""

from __future__ import annotations

import hashlib

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.matched import matched_rows
from colonnade.data.table import PartyTable
from colonnade.errors import TableError

__all__ = ["LINK_COLUMNS", "digest_with_lists", "linked_rows"]

LINK_COLUMNS = ("from", "to")


def linked_rows(table: PartyTable, links: pd.DataFrame | None) -> npt.NDArray[np.int64]:
    """Return the pairs of rows that a list of links joins: each pair once, the lower row first.

    The list has the columns ``from`` and ``to`` with ids of the table. A link has no direction, and none joins a row
    to itself.
    """
    if links is None:
        return np.empty((0, 2), np.int64)
    missing = [name for name in LINK_COLUMNS if name not in links.columns]
    if missing:
        raise TableError(
            f"The list of links for {table.name} has no column '{missing[0]}'. It needs the columns 'from' and 'to', "
            "with ids of the table in both."
        )
    if len(table.id_columns) != 1:
        raise TableError(
            f"Links for {table.name} name rows by one id, but its id is made of {len(table.id_columns)} columns. Give "
            "the table one id column."
        )
    row_of = {str(one): row for row, one in enumerate(table.ids)}
    ends = [[row_of.get(str(one), -1) for one in links[name]] for name in LINK_COLUMNS]
    pairs = np.sort(np.array(ends, dtype=np.int64).T.reshape(-1, 2), axis=1)
    unknown = int((pairs < 0).any(axis=1).sum())
    if unknown:
        raise TableError(
            f"{unknown} of {len(pairs)} links for {table.name} name an id that the table does not have. A party's "
            "links are among its own rows: remove the others, or write ids in the same way."
        )
    looped = int((pairs[:, 0] == pairs[:, 1]).sum())
    if looped:
        raise TableError(f"{looped} of {len(pairs)} links for {table.name} join a row to itself. Remove them.")
    return np.unique(pairs, axis=0)


def digest_with_lists(table: PartyTable) -> str:
    """Return what stands for a table and, where it has them, for its lists of matched rows and of links."""
    if table.matches is None and table.links is None:
        return table.digest()
    digest = hashlib.sha256(table.digest().encode())
    if table.matches is not None:
        matched = matched_rows(table, table.matches)
        digest.update(matched.positions.astype("<i8").tobytes())
        for key in matched.keys:
            digest.update(len(key).to_bytes(4, "little") + key)
    if table.links is not None:
        digest.update(b"links" + linked_rows(table, table.links).astype("<i8").tobytes())
    return digest.hexdigest()
