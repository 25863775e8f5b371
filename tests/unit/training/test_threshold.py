"""The threshold that validation rows chose is kept with the model and calls new rows; a given one goes before."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.errors import ConfigError
from colonnade.session import ModelPart
from colonnade.training import Serving

ROWS = 300


def tables(labelled: bool = True) -> dict[str, cn.PartyTable]:
    random = np.random.default_rng(8)
    x = random.normal(size=(ROWS, 2))
    y = np.where(x.sum(axis=1) + random.normal(size=ROWS) > 1.8, 1, 0)
    bank = pd.DataFrame({"id": range(ROWS), "a": x[:, 0], "y": y})
    shop = pd.DataFrame({"id": range(ROWS), "b": x[:, 1]})
    label = {"label": "y"} if labelled else {"drop": ["y"]}
    return {
        "bank": cn.PartyTable(bank, id="id", name="bank", **label),
        "shop": cn.PartyTable(shop, id="id", name="shop"),
    }


def called(scores: pd.DataFrame) -> float:
    """Return the lowest probability of class 1 that was called 1, and check that all above it were."""
    probability = scores[[one for one in scores.columns if one not in ("id", "prediction")][-1]]
    lowest = float(probability[scores["prediction"] == 1].min())
    assert (scores["prediction"][probability >= lowest] == 1).all()
    return lowest


def test_new_rows_are_called_at_the_threshold_that_serves_or_at_one_that_is_given(tmp_path) -> None:
    run = cn.simulate(cn.SplitNN(epochs=3, hidden=(4,), cut_width=4), tables(), seed=2)
    chosen = run.evaluation.operating
    assert chosen.threshold < 0.45
    assert "validation rows" in chosen.rule
    run.parts["bank"].save(tmp_path)
    assert Serving.from_part(ModelPart.load(tmp_path)).threshold.value == chosen.threshold
    found = run.predict(tables(labelled=False))
    assert chosen.threshold <= called(found) < chosen.threshold + 0.05
    assert 0.05 <= called(run.predict(tables(labelled=False), threshold=0.05)) < 0.1

    evaluate = cn.Evaluate(threshold=0.15)
    given = cn.simulate(
        cn.SplitNN(epochs=3, hidden=(4,), cut_width=4), tables(), seed=2, evaluate=evaluate, compare=True
    )
    assert given.plan.digest() == run.plan.digest(), "it is nobody else's affair"
    assert {(one.operating.threshold, one.operating.rule) for one in given.evaluations.values()} == {
        (0.15, "It was set by hand.")
    }
    assert 0.15 <= called(given.predict(tables(labelled=False))) < 0.2


def test_a_threshold_is_a_probability() -> None:
    with pytest.raises(ConfigError, match=r"evaluate\.threshold must be from 0 to 1"):
        cn.Evaluate(threshold=1.5)
