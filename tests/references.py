"""Independent, obvious versions of what the product does cleverly."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import numpy as np
import pandas as pd

from colonnade.data import PartyTable, canonical_id_bytes

TOY_ROWS = 150


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


def toy(task: str, parties: int, *, label_holder_has_columns: bool = True) -> dict[str, pd.DataFrame]:
    """Return one frame per party whose columns together explain the label, each in its own order."""
    generator = np.random.default_rng(5)
    widths = {"bank": 3 if label_holder_has_columns else 0, "shop": 4, "telco": 2}
    names = list(widths)[:parties]
    blocks = {name: generator.normal(size=(TOY_ROWS, widths[name])) * 3 + 1 for name in names}
    signal = np.hstack(list(blocks.values())) @ generator.normal(size=sum(widths[name] for name in names))
    signal = signal + generator.normal(size=TOY_ROWS)
    frames = {
        name: pd.DataFrame(block, columns=[f"{name}{i}" for i in range(block.shape[1])]).assign(id=np.arange(TOY_ROWS))
        for name, block in blocks.items()
    }
    labels = {
        "binary": (signal > np.median(signal)).astype(int),
        "multiclass": np.digitize(signal, np.quantile(signal, [0.2, 0.6])),
        "regression": signal,
    }
    frames["bank"]["y"] = labels[task]
    # Each party has the rows in its own order, and a few nobody else has.
    return {
        name: frame.sample(frac=1, random_state=i).iloc[: TOY_ROWS - 3 * i]
        for i, (name, frame) in enumerate(frames.items())
    }
