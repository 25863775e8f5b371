"""Numbers as steps and slopes for a linear model."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable, StepEncoder
from colonnade.errors import TableError

COUNT = 200


def table(seed: int = 0, **changes: object) -> PartyTable:
    generator = np.random.default_rng(seed)
    columns: dict[str, object] = {
        "id": np.arange(COUNT),
        "age": generator.integers(20, 80, COUNT).astype(float),
        "gain": np.where(generator.random(COUNT) < 0.8, 0.0, generator.exponential(5000, COUNT)),
        "flag": generator.integers(0, 2, COUNT),
        "job": generator.choice(["clerk", "smith"], COUNT),
    }
    return PartyTable(pd.DataFrame({**columns, **changes}), id="id", name="bank")


def test_a_spread_column_gets_slopes_and_a_mostly_constant_one_gets_steps() -> None:
    encoder = StepEncoder.fit(table(), np.arange(COUNT))
    names = encoder.names
    assert any(name.startswith("age beyond") for name in names)
    assert "gain is not 0" in names
    assert any(name.startswith("gain above") for name in names)
    assert not any("flag beyond" in name or "flag is not" in name for name in names), "two values have no steps"
    assert encoder.width == len(names) == len(encoder.column_of)
    assert set(encoder.column_of) == {"age", "gain", "flag", "job"}
    assert encoder.column_of[names.index("gain is not 0")] == "gain"


def test_outputs_are_standardised_on_training_rows() -> None:
    training = np.arange(0, COUNT, 2)
    encoder = StepEncoder.fit(table(), training)
    values = encoder.transform(table(), training)
    added = values[:, encoder.plain.width :]
    assert np.abs(added.mean(axis=0)).max() < 1e-12
    assert np.allclose(added.std(axis=0), 1.0)
    assert np.isfinite(encoder.transform(table(), np.arange(COUNT))).all()


def test_missing_and_far_cells_stay_finite() -> None:
    encoder = StepEncoder.fit(table(), np.arange(COUNT))
    odd = np.array([np.nan, 1e300, -1e300, 0.0] * 50)
    values = encoder.transform(table(age=odd, gain=odd), np.arange(COUNT))
    assert np.isfinite(values).all()
    missing = table(age=np.full(COUNT, np.nan), job=[None] * COUNT)
    assert np.isfinite(encoder.transform(missing, np.arange(COUNT))).all()


def test_without_expansion_it_is_the_plain_encoder() -> None:
    encoder = StepEncoder.fit(table(), np.arange(COUNT), expands=False)
    assert encoder.width == encoder.plain.width
    assert (
        encoder.transform(table(), np.arange(9)) == encoder.plain.transform(table(), np.arange(9), np.float64)
    ).all()


def test_a_table_of_ids_alone_has_no_outputs() -> None:
    ids = PartyTable(pd.DataFrame({"id": [1, 2, 3]}), id="id")
    encoder = StepEncoder.fit(ids, np.arange(3))
    assert encoder.transform(ids, np.arange(3)).shape == (3, 0)


def test_an_encoder_survives_json_and_damage_is_refused() -> None:
    encoder = StepEncoder.fit(table(), np.arange(COUNT))
    saved = json.loads(json.dumps(encoder.to_json()))
    again = StepEncoder.from_json(saved)
    assert (again.transform(table(1), np.arange(COUNT)) == encoder.transform(table(1), np.arange(COUNT))).all()
    assert again.names == encoder.names
    assert "gain" not in repr(encoder)
    for damage in ({"version": 9}, {"expanded": [["age"]]}, {"means": ["x"]}, {"means": [1.0]}):
        with pytest.raises(TableError):
            StepEncoder.from_json({**saved, **damage})
