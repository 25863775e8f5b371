"""The experiments of the transfer learning paper run; how good the numbers are is the benchmark's own business."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.papers.ftl import SEEDS, TUNING_SEEDS, balanced, credit_partition, judged, spread
from benchmarks.papers.ftl_reference import Array, Rows, Settings, train

from colonnade.errors import TableError


def toy(rows: int, seed: int) -> tuple[Array, Array, Array]:
    """Two views of one hidden number, and its sign."""
    generator = np.random.default_rng(seed)
    hidden = generator.normal(size=rows)
    noise = 0.5 * generator.normal(size=(2, rows, 2))
    views = [np.column_stack([hidden, generator.normal(size=rows)]) + noise[side] for side in range(2)]
    return views[0], views[1], np.where(hidden > 0, 1.0, -1.0)[:, None]


def test_the_reference_transfers_labels_to_rows_without_any() -> None:
    left, right, labels = toy(400, 0)
    _, test, truth = toy(400, 1)
    everyone = np.arange(400)
    model = train(
        Settings(widths=(8,)),
        Rows(left, everyone, labels),
        Rows(right, everyone[:10], labels[:10]),
        (everyone, everyone),
    )
    score = judged((truth[:, 0] > 0).astype(np.int64), model.scores(test))
    assert score.auc > 0.75
    assert score.f1 > 0.65


def test_a_partition_is_balanced_and_its_parts_are_disjoint() -> None:
    labels = np.arange(200) % 4 == 0
    part = balanced(np.random.default_rng(0), np.arange(200), labels.astype(np.int64), (40, 20, 30), 10)
    assert [len(part.shared), len(part.source_only), len(part.test)] == [40, 20, 30]
    assert len(np.unique(np.concatenate([part.shared, part.source_only, part.test]))) == 90
    assert labels[part.shared].sum() == 20
    assert labels[part.shared[part.labelled]].sum() == 5
    with pytest.raises(ValueError, match="half of them of each class"):
        balanced(np.random.default_rng(0), np.arange(200), labels.astype(np.int64), (90, 20, 30), 10)


def test_rows_for_tuning_are_in_no_result() -> None:
    try:
        tuned = [credit_partition(100, seed, is_tuning=True) for seed in TUNING_SEEDS]
    except TableError as missing:
        pytest.skip(str(missing))
    reported = [credit_partition(100, seed) for seed in SEEDS]
    rows = [
        np.concatenate([row for part in parts for row in (part.shared, part.source_only, part.test)])
        for parts in (tuned, reported)
    ]
    assert not set(rows[0]) & set(rows[1])


def test_a_spread_of_one_partition_is_nothing() -> None:
    assert spread(np.array([0.5])) == "0.500 ± 0.000"
