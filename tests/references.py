"""Independent, obvious versions of what the product does cleverly."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

from colonnade.data import PartyTable, canonical_id_bytes


def shared_rows(tables: Mapping[str, PartyTable], seed: int) -> dict[str, list[int]]:
    """Return each party's rows of the ids all of them hold, in the order the wire protocol prescribes."""
    shared = set.intersection(*(set(table.ids.tolist()) for table in tables.values()))
    agreed = sorted(shared, key=lambda identifier: order_key(identifier, seed))
    return {party: [table.ids.tolist().index(one) for one in agreed] for party, table in tables.items()}


def order_key(identifier: int | str, seed: int) -> int:
    """Return the mark of one id, by plain arithmetic."""
    if isinstance(identifier, int) and -(2**63) <= identifier < 2**63:
        mixed = identifier % 2**64 ^ int.from_bytes(hashlib.sha256(b"%d" % seed).digest()[:8], "little")
        mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31
    return int.from_bytes(hashlib.sha256(b"%d\x00" % seed + canonical_id_bytes(identifier)).digest()[:8], "big")
