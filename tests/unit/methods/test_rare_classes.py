"""No table is refused because all rows of a class were held out: what could not be learned is counted and said."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.recorder.variants import VARIANTS, Variant

import colonnade as cn
from colonnade.data import LabelEncoder

# By method, also where a defence makes something of the classes.
PLAYED = {
    "splitnn": "marvell and coae",
    "secure_lr": "no noise",
    "ftl": "in the clear",
    "prada": "in the clear, coae",
    "fedcvt": "level 0, marvell",
    "mpdl": "noise by cell",
    "fairvfl": "robust",
}
VARIANT = {(one.method, one.name): one for one in VARIANTS}


@contextmanager
def rows_learned() -> Iterator[dict[str, np.ndarray]]:
    """Note which rows of its table a party with labels learns from."""
    learned: dict[str, np.ndarray] = {}
    of = LabelEncoder.of

    def noted(table: cn.PartyTable, task: str, places: Any = None) -> LabelEncoder:
        if places is not None:
            learned[table.name] = places
        return of(table, task, places)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LabelEncoder, "of", noted)
        yield learned


def relabelled(table: cn.PartyTable, learned: np.ndarray, classes: int) -> cn.PartyTable:
    """Return a table in which one class more occurs in rows that are not learned from, and no class beside others."""
    frame = pd.DataFrame({column.name: table.values(column.name) for column in table.columns})
    label = (np.arange(table.rows) % (classes - 1)).astype(float)
    label[np.setdiff1d(np.arange(table.rows), learned)] = classes - 1
    assert set(label[learned]) == set(range(classes - 1))
    label[~table.is_labelled] = np.nan
    frame = frame.assign(id=table.ids, y=label)
    return cn.PartyTable(frame, id="id", label="y", name=table.name, unlabelled=not table.is_labelled.all())


def played(variant: Variant, tables: Mapping[str, cn.PartyTable]) -> cn.Run:
    # The same rows are held out whatever their labels are.
    fair = {"stratify": False} if "stratify" in {one.name for one in dataclasses.fields(cn.Evaluate)} else {}
    evaluate = dataclasses.replace(variant.evaluate, **fair)
    stage = variant.stages[0]
    return cn.simulate(
        dataclasses.replace(variant.config, task="auto"),
        tables,
        seed=3,
        roles=variant.roles_in(stage),
        stage=stage,
        evaluate=evaluate,
    )


@pytest.mark.parametrize(
    ("method", "name", "classes"), [(*one, 3) for one in PLAYED.items()] + [("secure_lr", PLAYED["secure_lr"], 2)]
)
def test_a_class_that_is_held_out_altogether_is_counted_and_not_refused(method: str, name: str, classes: int) -> None:
    variant = VARIANT[method, name]
    tables = variant.tables(variant.stages[0])
    with rows_learned() as learned:
        played(variant, tables)
    tables |= {party: relabelled(tables[party], rows, classes) for party, rows in learned.items()}
    run = played(variant, tables)
    found = [one for name, one in run.findings.items() if name.startswith("classes without training rows")]
    assert len(found) == len(learned)
    for one in found:
        assert one.values["classes"] == 1
        assert one.values["rows"] > 0
        assert "held-out rows are of them" in one.text
    assert all(np.isfinite(list(one.metrics.values())).all() for one in run.evaluations.values())
