"""Scores as a table."""

from __future__ import annotations

import numpy as np
import pandas as pd

from colonnade.data import AlignedRows, PartyTable
from colonnade.session import Scores


def test_every_column_of_an_id_is_a_column_of_the_scores() -> None:
    frame = pd.DataFrame({"first": ["Zoe", "Ann", "Bob"], "born": [1990, 1991, 1992], "loyalty": ["007", None, "008"]})
    table = PartyTable(frame, id=["first", "born"], partner_ids={"shop": "loyalty"})
    aligned = AlignedRows(np.array([2, 0]), np.array([1]), "test")
    scores = Scores("binary", np.arange(2), np.array([0.75, 0.25]), classes=("no", "yes"))
    found = scores.as_table(table, aligned.positions)
    assert found.to_dict(orient="list") == {
        "first": ["Zoe", "Bob"],
        "born": [1990, 1992],
        "probability_yes": [0.25, 0.75],
        "prediction": ["no", "yes"],
    }
