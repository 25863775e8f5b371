"""The meter of what noised gradients give away beside columns, learned from weak labels and no others."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from colonnade.metrics import area_under_roc
from colonnade.privacy import LeakMeter, Marvell, SecretNoise, auc_bound
from colonnade.privacy import leak as module

Array = np.ndarray[Any, Any]
ROWS, BATCH, EPOCHS, BUDGET = 2400, 200, 3, 0.25
RANDOM = np.random.default_rng(1)
SIGNAL = RANDOM.normal(size=ROWS)
COLUMNS = {
    "telling": np.stack([SIGNAL + 0.4 * RANDOM.normal(size=ROWS), RANDOM.normal(size=ROWS)], axis=1),
    "unrelated": RANDOM.normal(size=(ROWS, 6)),
}
LABELS = {2: (SIGNAL > 0.8).astype(int), 3: np.digitize(SIGNAL, [-0.5, 0.5]), 0: SIGNAL}


def meter_of(classes: int, columns: Array | None, key: bytes = bytes(32)) -> tuple[Marvell, LeakMeter]:
    """Return a meter after a short run whose model has learned nothing yet."""
    labels = LABELS[classes]
    meter = LeakMeter(labels, classes, area_under_roc)
    marvell = Marvell(BUDGET, SecretNoise(key), classes=classes, meter=meter)
    for epoch in range(EPOCHS):
        order = np.random.default_rng(epoch).permutation(ROWS)
        for start in range(0, ROWS, BATCH):
            rows = order[start : start + BATCH]
            if columns is not None:
                meter.saw(rows, columns[rows])
            slopes = np.eye(max(classes, 1))[labels[rows]] - 1.0 / classes if classes > 2 else labels[rows][:, None]
            marvell.protect((0.5 - slopes) / BATCH, labels[rows], epoch * ROWS + start, rows)
        meter.end_epoch()
    return marvell, meter


def measured(marvell: Marvell) -> dict[str, Any]:
    found = marvell.measured()
    assert found is not None
    return found.to_json()


@pytest.mark.parametrize(("classes", "gain"), [(2, 0.15), (3, 0.1), (0, 0.15)])
def test_columns_that_tell_of_labels_add_to_what_releases_tell(classes: int, gain: float) -> None:
    found = measured(meter_of(classes, COLUMNS["telling"])[0])
    assert found["with_columns"] > found["over_all_releases"] + gain
    if classes == 2:
        assert found["with_columns"] > auc_bound(BUDGET * EPOCHS) == found["bound_over_all_releases"]


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_columns_that_tell_nothing_add_nothing(classes: int) -> None:
    found = measured(meter_of(classes, COLUMNS["unrelated"])[0])
    assert found["with_columns"] == pytest.approx(found["over_all_releases"], abs=0.02)


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_without_columns_nothing_is_said_of_them(classes: int) -> None:
    assert measured(meter_of(classes, None)[0])["with_columns"] is None


def test_columns_are_learned_from_releases_and_not_from_labels() -> None:
    """Where releases say nothing, telling columns do not help: the truth only scores."""
    labels = LABELS[2]
    meter = LeakMeter(labels, 2, area_under_roc)
    rows = np.arange(ROWS)
    meter.saw(rows, COLUMNS["telling"])
    noise = np.random.default_rng(4).normal(size=(ROWS, 1))
    meter.add(rows, noise, noise)
    found = meter.measured(0.25, 0.7, lambda *_: 0.7)
    assert found.with_columns == pytest.approx(0.5, abs=0.06)


def test_what_was_seen_last_counts_and_rows_beyond_the_most_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_ROWS", 1000)
    _, meter = meter_of(2, COLUMNS["unrelated"])
    slots = meter.state()["slots"].numpy()
    assert (slots >= 0).sum() == 1000
    assert sorted(slots[slots >= 0]) == list(range(1000))
    rows = np.arange(ROWS)
    meter.saw(rows, COLUMNS["unrelated"] + 1.0)
    kept = meter.state()["columns.columns"].numpy()
    assert kept.shape == (1000, 6)
    assert np.allclose(kept[slots[slots >= 0]], COLUMNS["unrelated"][slots >= 0] + 1.0, atol=1e-6)


def test_columns_from_several_sources_stand_side_by_side() -> None:
    marvell, meter = meter_of(2, COLUMNS["unrelated"])
    meter.saw(np.arange(ROWS), COLUMNS["telling"], "another model")
    assert measured(marvell)["with_columns"] > measured(marvell)["over_all_releases"] + 0.15


@pytest.mark.parametrize("classes", [2, 3, 0])
def test_a_meter_goes_on_from_its_state(classes: int) -> None:
    marvell, meter = meter_of(classes, COLUMNS["telling"])
    expected = measured(marvell)
    state = meter.state()
    meter.load_state(meter_of(classes, None)[1].state())
    assert measured(marvell)["with_columns"] is None
    meter.load_state(state)
    assert measured(marvell) == expected


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300, 0.0])
def test_odd_columns_do_not_end_a_run(value: float) -> None:
    columns = COLUMNS["telling"].copy()
    columns[::2] = value
    assert 0.4 < measured(meter_of(2, columns)[0])["with_columns"] < 1.0


def test_a_few_rows_are_too_few() -> None:
    meter = LeakMeter(LABELS[2][:10], 2, area_under_roc)
    rows, evidence = np.arange(10), SIGNAL[:10, None]
    meter.saw(rows, COLUMNS["telling"][:10])
    meter.add(rows, evidence, evidence)
    assert meter.measured(0.25, 0.7, lambda *_: 0.7).with_columns is None
