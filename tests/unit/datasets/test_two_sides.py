"""Data sets whose columns fall into two natural sides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import pytest

from colonnade.data import PartyTable, TableEncoder
from colonnade.datasets import WIKIPEDIA_CATEGORIES, default_credit, give_me_some_credit, wikipedia_crossmodal
from colonnade.errors import ConfigError, TableError


def tables_of(load: Callable[..., dict[str, pd.DataFrame]], **settings: Any) -> dict[str, pd.DataFrame]:
    try:
        return load(**settings)
    except TableError as missing:
        pytest.skip(str(missing))


def width(frame: pd.DataFrame, label: str | None) -> int:
    return TableEncoder.fit(PartyTable(frame, id="id", label=label)).width


@pytest.mark.parametrize("label_at", ["profile", "payment"])
def test_credit_has_fifteen_and_eighteen_columns_and_one_label(label_at: str) -> None:
    tables = tables_of(default_credit, label_at=label_at)
    other = "payment" if label_at == "profile" else "profile"
    assert {side: width(frame, "default" if side == label_at else None) for side, frame in tables.items()} == {
        "profile": 15,
        "payment": 18,
    }
    assert "default" not in tables[other].columns
    assert int(tables[label_at]["default"].sum()) == 6636
    assert len(tables["profile"]) == 30000
    assert tables["profile"]["id"].equals(tables["payment"]["id"])


def test_credit_codes_are_words_where_the_data_explain_them() -> None:
    profile = tables_of(default_credit)["profile"]
    assert set(profile["SEX"]) == {"male", "female"}
    assert set(profile["MARRIAGE"]) == {"married", "single", "others", "code 0"}
    assert profile["EDUCATION"].value_counts()["university"] == 14030


@pytest.mark.parametrize("label_at", ["application", "bureau"])
def test_borrowers_have_four_and_six_columns_and_one_label(label_at: str) -> None:
    tables = tables_of(give_me_some_credit, label_at=label_at)
    assert {side: len(set(frame.columns) - {"id", "late"}) for side, frame in tables.items()} == {
        "application": 4,
        "bureau": 6,
    }
    assert [side for side, frame in tables.items() if "late" in frame.columns] == [label_at]
    assert (len(tables[label_at]), int(tables[label_at]["late"].sum())) == (150000, 10026)
    assert tables["application"]["id"].equals(tables["bureau"]["id"])
    assert int(tables["application"]["MonthlyIncome"].isna().sum()) == 29731


def test_borrowers_drawn_at_random_are_the_same_on_both_sides() -> None:
    tables = tables_of(give_me_some_credit, rows=500)
    assert tables["application"]["id"].equals(tables["bureau"]["id"])
    assert tables["bureau"]["id"].is_unique
    assert len(tables["bureau"]) == 500
    assert tables_of(give_me_some_credit, rows=500)["bureau"].equals(tables["bureau"])
    with pytest.raises(ConfigError, match="Give 1 to 150000"):
        give_me_some_credit(rows=0)


@pytest.mark.parametrize("label_at", ["image", "text"])
def test_wikipedia_has_two_views_and_ten_categories(label_at: str) -> None:
    tables = tables_of(wikipedia_crossmodal, label_at=label_at)
    assert {side: width(frame, "category" if side == label_at else None) for side, frame in tables.items()} == {
        "image": 128,
        "text": 10,
    }
    assert [side for side, frame in tables.items() if "category" in frame.columns] == [label_at]
    counts = tables[label_at]["category"].value_counts()
    assert set(counts.index) == set(WIKIPEDIA_CATEGORIES)
    assert (counts["warfare"], counts["biology"], counts["geography"]) == (451, 360, 340)


@pytest.mark.parametrize(
    ("load", "wrong", "right"),
    [
        (default_credit, "pay", "pay"),
        (give_me_some_credit, "bureaux", "bureau"),
        (wikipedia_crossmodal, "txt", "text"),
    ],
)
def test_an_unknown_side_is_refused(load: Callable[..., Any], wrong: str, right: str) -> None:
    with pytest.raises(ConfigError, match=right):
        load(label_at=wrong)


@pytest.mark.parametrize("load", [default_credit, give_me_some_credit, wikipedia_crossmodal])
def test_missing_data_says_where_to_get_it(
    load: Callable[..., Any], tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        load()
