from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from colonnade.datasets import FATE_EXAMPLES, fate_example
from colonnade.errors import ConfigError, TableError


def test_data_is_read_from_the_folder_the_user_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "fate_vertical_examples"
    folder.mkdir()
    for side in ("guest", "host"):
        pd.DataFrame({"id": [1, 2], side: [3, 4]}).to_parquet(folder / f"breast_hetero_{side}.parquet")
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    assert {side: list(frame.columns) for side, frame in fate_example("breast_hetero").items()} == {
        "guest": ["id", "guest"],
        "host": ["id", "host"],
    }


def test_missing_data_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"FATE.*COLONNADE_DATA"):
        fate_example("breast_hetero")


def test_an_unknown_example_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'breast_hetero'"):
        fate_example("breast_heter")


@pytest.mark.parametrize("name", FATE_EXAMPLES)
def test_every_example_has_its_id_and_label(name: str) -> None:
    try:
        frames = fate_example(name)
    except TableError as missing:
        pytest.skip(str(missing))
    identifier, label = FATE_EXAMPLES[name]
    assert label in frames["guest"].columns
    assert label not in frames["host"].columns
    assert set(frames["guest"][identifier]) == set(frames["host"][identifier])
