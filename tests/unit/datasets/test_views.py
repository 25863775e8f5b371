"""Data sets in which every party sees the same things in its own way."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable, TableEncoder
from colonnade.datasets import CIFAR10_CLASSES, MFEAT_VIEWS, bank_marketing, cifar10_halves, digits_halves, mfeat
from colonnade.errors import ConfigError, TableError


def tables_of(load: Callable[..., dict[str, pd.DataFrame]], **settings: Any) -> dict[str, pd.DataFrame]:
    try:
        return load(**settings)
    except TableError as missing:
        pytest.skip(str(missing))


def width(frame: pd.DataFrame, label: str | None = None) -> int:
    return TableEncoder.fit(PartyTable(frame, id="id", label=label)).width


def test_mfeat_gives_each_party_its_views_and_one_the_label() -> None:
    tables = tables_of(mfeat)
    assert (width(tables["a"], "digit"), width(tables["b"])) == (76, 64)
    assert "digit" not in tables["b"].columns
    assert tables["a"]["digit"].value_counts().to_dict() == dict.fromkeys(range(10), 200)
    assert tables["a"]["id"].equals(tables["b"]["id"])
    assert tables["a"]["id"].is_unique


def test_mfeat_takes_any_number_of_parties_and_views() -> None:
    views = {"one": ("fac", "mor"), "two": ("kar",), "three": ("pix", "zer", "fou")}
    tables = tables_of(mfeat, views=views, label_at="three")
    assert {party: frame.shape[1] - 1 - ("digit" in frame) for party, frame in tables.items()} == {
        "one": 222,
        "two": 64,
        "three": 363,
    }
    assert [party for party, frame in tables.items() if "digit" in frame] == ["three"]
    for party, frame in tables.items():
        assert {name[:3] for name in frame.columns.drop(["id", "digit"], errors="ignore")} == set(views[party])
    assert sum(int(words.split()[0]) for words in MFEAT_VIEWS.values()) == 649


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"label_at": "c"}, "no party 'c' to carry the label"),
        ({"views": {"a": ("fuo",), "b": ("kar",)}}, "Did you mean 'fou'"),
        ({"views": {"a": "fou", "b": ("kar",)}}, "views of 'a' as a tuple"),
        ({"views": {"a": (), "b": ("kar",)}}, "views of 'a' as a tuple"),
        ({"views": {}}, "no party"),
    ],
)
def test_mfeat_refuses_what_it_does_not_know(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        mfeat(**settings)


@pytest.mark.parametrize("label_at", ["bank", "campaign"])
def test_bank_marketing_has_two_sides_and_no_duration(label_at: str) -> None:
    tables = tables_of(bank_marketing, label_at=label_at)
    assert {side: frame.shape[1] - 1 - (side == label_at) for side, frame in tables.items()} == {
        "bank": 7,
        "campaign": 12,
    }
    assert [side for side, frame in tables.items() if "y" in frame] == [label_at]
    assert not any("duration" in frame for frame in tables.values())
    assert tables[label_at]["y"].value_counts().to_dict() == {"no": 36548, "yes": 4640}
    assert tables["bank"]["id"].tolist() == tables["campaign"]["id"].tolist() == list(range(1, 41189))


def test_digits_halves_put_together_are_the_digits() -> None:
    from sklearn.datasets import load_digits

    tables = digits_halves()
    assert (tables["left"].shape, tables["right"].shape) == ((1797, 34), (1797, 33))
    whole = tables["left"].merge(tables["right"], on="id")
    names = [f"pixel_{row}_{column}" for row in range(8) for column in range(8)]
    assert np.array_equal(whole[names].to_numpy(), load_digits().data)
    assert np.array_equal(whole["digit"].to_numpy(), load_digits().target)


def test_photographs_are_cut_in_the_middle_and_keep_their_published_colours() -> None:
    tables = tables_of(cifar10_halves, rows=300)
    halves = [frame.filter(regex="^p").to_numpy() for frame in (tables["left"], tables["right"])]
    assert [half.dtype for half in halves] == [np.float32, np.float32]
    assert halves[0].shape == (300, 3 * 32 * 16)
    # The first training photograph, a frog: its upper left and upper right corners.
    left, right = (half[0].reshape(3, 32, 16) for half in halves)
    assert left[:, 0, 0].tolist() == [59, 62, 63]
    assert right[:, 0, -1].tolist() == [148, 124, 103]
    assert tables["left"]["label"].head(5).tolist() == ["frog", "truck", "truck", "deer", "automobile"]
    assert "label" not in tables["right"]
    assert tables["left"]["id"].equals(tables["right"]["id"])
    assert set(tables["left"]["label"]) == set(CIFAR10_CLASSES)


def test_test_photographs_have_ids_of_their_own_and_the_label_may_be_on_the_right() -> None:
    train, test = (tables_of(cifar10_halves, part=part, label_at="right", rows=50) for part in ("train", "test"))
    assert not set(train["left"]["id"]) & set(test["left"]["id"])
    assert test["left"]["id"].head(3).tolist() == [50_000, 50_001, 50_002]
    assert test["right"]["label"].head(5).tolist() == ["cat", "ship", "ship", "airplane", "frog"]
    assert "label" not in test["left"]


def test_all_photographs_are_near_their_lossless_copies() -> None:
    exact, near = (
        tables_of(cifar10_halves, lossless=lossless, rows=200)["right"].set_index("id").filter(regex="^p")
        for lossless in (True, False)
    )
    both = exact.index.intersection(near.index)
    assert len(both) > 150
    assert 2 < (exact.loc[both] - near.loc[both]).abs().to_numpy().mean() < 10


@pytest.mark.parametrize("rows", [0, 20_001])
def test_more_photographs_than_there_are_is_refused(rows: int) -> None:
    tables_of(cifar10_halves, rows=1)
    with pytest.raises(ConfigError, match="Give 1 to 20000"):
        cifar10_halves(rows=rows)


def test_photographs_without_pillow_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    tables_of(cifar10_halves, rows=1)
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "PIL":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install pillow"):
        cifar10_halves(rows=1)


@pytest.mark.parametrize(
    ("load", "settings", "said"),
    [
        (bank_marketing, {"label_at": "banc"}, "bank"),
        (cifar10_halves, {"label_at": "lefft"}, "left"),
        (cifar10_halves, {"part": "validation"}, "test"),
    ],
)
def test_an_unknown_side_is_refused(load: Callable[..., Any], settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load(**settings)


@pytest.mark.parametrize("load", [mfeat, bank_marketing, cifar10_halves])
def test_missing_data_says_where_to_get_it(
    load: Callable[..., Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        load()
