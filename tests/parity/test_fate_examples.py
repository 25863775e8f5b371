"""On FATE's own example data, encrypted regression is as good as scikit-learn's on the joined columns."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from tests.references import shared_rows

import colonnade as cn
from colonnade.datasets import fate_example
from colonnade.errors import TableError
from colonnade.session import derive_seed

SEED = 3


def frames_of(name: str) -> dict[str, pd.DataFrame]:
    try:
        return fate_example(name)
    except TableError as missing:
        pytest.skip(str(missing))


def test_breast_hetero_is_within_two_thousandths_of_scikit_learn() -> None:
    frames = frames_of("breast_hetero")
    tables = {
        side: cn.PartyTable(frame, id="id", label="y" if "y" in frame else None) for side, frame in frames.items()
    }
    aligned = shared_rows(tables, derive_seed(SEED, "alignment"))
    count = len(aligned["guest"])
    order = np.random.Generator(np.random.PCG64(derive_seed(SEED, "split"))).permutation(count)
    test, train = order[: round(count * 0.2)], order[round(count * 0.2) + round(count * 0.1) :]
    blocks = [frames[side].drop(columns=["id", "y"], errors="ignore").to_numpy()[aligned[side]] for side in frames]
    columns, labels = np.hstack(blocks), frames["guest"]["y"].to_numpy()[aligned["guest"]]
    columns = (columns - columns[train].mean(0)) / columns[train].std(0)
    central = LogisticRegression(max_iter=1000).fit(columns[train], labels[train])
    expected = roc_auc_score(labels[test], central.predict_proba(columns[test])[:, 1])

    config = cn.SecureLR(coefficient_noise=0.0, key_size="insecure_test")
    run = cn.simulate(config, tables, seed=SEED, evaluate=cn.Evaluate(stratify=False))
    assert abs(run.metrics["auc"] - expected) <= 0.002
