"""Adult as FairVFL's platforms: permitted fields, income, gender and age, each elsewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from colonnade.data import PartyTable
from colonnade.datasets import ADULT_FIELDS, AGE_CLASSES, adult, adult_platforms, age_classes
from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError, TableError

SIDES = {"task", "gender", "age"}


def loaded(**settings: Any) -> dict[str, pd.DataFrame]:
    try:
        return adult_platforms(**settings)
    except TableError as missing:
        pytest.skip(str(missing))


def fields_of(tables: dict[str, pd.DataFrame]) -> list[list[str]]:
    return [list(table.columns[1:]) for name, table in tables.items() if name not in SIDES]


@pytest.mark.parametrize(
    ("platforms", "sizes"), [(1, [12]), (3, [4, 4, 4]), (5, [3, 3, 2, 2, 2]), (12, [1] * 12)], ids=str
)
def test_permitted_fields_are_dealt_completely_once_and_evenly(platforms: int, sizes: list[int]) -> None:
    tables = loaded(rows=100, platforms=platforms)
    assert set(tables) == SIDES | {f"platform_{number}" for number in range(1, platforms + 1)}
    hands = fields_of(tables)
    assert [len(hand) for hand in hands] == sizes
    assert Counter(field for hand in hands for field in hand) == Counter(ADULT_FIELDS)
    assert len(ADULT_FIELDS) == 12


def test_only_the_sensitive_platforms_hold_sex_or_age_and_only_the_task_holds_income() -> None:
    tables = loaded()
    for name, table in tables.items():
        assert ("gender" in table.columns) == (name == "gender")
        assert ("age" in table.columns) == (name == "age")
        assert ("income" in table.columns) == (name == "task")
        assert "sex" not in table.columns
        assert not table.isna().any(axis=None)
    assert [list(tables[name].columns) for name in ("task", "gender", "age")] == [
        ["id", "income"],
        ["id", "gender"],
        ["id", "age"],
    ]


def test_all_platforms_have_the_same_thirty_thousand_people_in_the_same_order() -> None:
    tables = loaded()
    ids = tables["task"]["id"]
    assert len(ids) == ids.nunique() == 30_000
    assert ids.is_monotonic_increasing
    assert ids.str.fullmatch(r"person_\d{5}").all()
    assert all(table["id"].equals(ids) for table in tables.values())


def test_everyone_together_has_the_published_counts() -> None:
    tables = loaded(rows=48_842)
    assert tables["task"]["income"].value_counts().to_dict() == {"<=50K": 37_155, ">50K": 7_841 + 3_846}
    assert tables["gender"]["gender"].value_counts().to_dict() == {"male": 32_650, "female": 16_192}
    assert set(tables["age"]["age"]) == set(AGE_CLASSES)
    whole = pd.concat([table.set_index("id") for table in tables.values()], axis=1)
    has_unknown = (whole == "?").any(axis=1).to_numpy()
    assert (has_unknown[:32_561].sum(), has_unknown[32_561:].sum()) == (2_399, 1_221)


def test_a_draw_keeps_the_shares_of_everyone() -> None:
    tables = loaded(seed=3)
    assert (tables["task"]["income"] == ">50K").mean() == pytest.approx(11_687 / 48_842, abs=0.005)
    assert (tables["gender"]["gender"] == "female").mean() == pytest.approx(16_192 / 48_842, abs=0.005)


def test_each_platform_tells_of_a_person_what_the_files_tell() -> None:
    tables = loaded(rows=2_000, seed=1)
    parts = [pd.read_parquet(data_file(f"adult/adult_{part}.parquet", "")) for part in ("train", "test")]
    published = pd.concat(parts, ignore_index=True)
    published = published.iloc[[int(name.removeprefix("person_")) for name in tables["task"]["id"]]]
    for name, table in tables.items():
        if name not in SIDES:
            for field in table.columns[1:]:
                assert table[field].tolist() == published[field.replace("_", "-")].tolist()
    assert tables["gender"]["gender"].tolist() == [sex.lower() for sex in published["sex"]]
    assert tables["task"]["income"].tolist() == [income.rstrip(".") for income in published["income"]]
    young = (published["age"] < 25).to_numpy()
    old = (published["age"] >= 50).to_numpy()
    assert np.array_equal(tables["age"]["age"] == "<=24", young)
    assert np.array_equal(tables["age"]["age"] == ">=50", old)


def test_numbers_stay_numbers() -> None:
    tables = loaded(rows=500, platforms=1)
    kinds = {column.name: column.kind for column in PartyTable(tables["platform_1"], id="id").columns}
    assert {name for name, kind in kinds.items() if kind == "numeric"} == {
        *("fnlwgt", "education_num", "capital_gain", "capital_loss", "hours_per_week"),
    }


def test_the_seed_draws_the_people_and_deals_the_fields() -> None:
    first, again, other = (loaded(rows=300, seed=seed) for seed in (1, 1, 2))
    assert all(first[name].equals(again[name]) for name in first)
    assert first["task"]["id"].tolist() != other["task"]["id"].tolist()
    assert fields_of(first) != fields_of(other)
    # How many people there are does not change whose fields are whose.
    assert fields_of(loaded(rows=301, seed=1)) == fields_of(first)


def test_ages_fall_into_four_classes() -> None:
    ages = np.array([17, 24, 25, 34, 35, 49, 50, 90])
    assert age_classes(ages) == ["<=24", "<=24", "25-34", "25-34", "35-49", "35-49", ">=50", ">=50"]


def test_counts_that_cannot_be_are_refused() -> None:
    loaded(rows=1)
    for rows in (0, 48_843):
        with pytest.raises(ConfigError, match="Give 1 to 48842"):
            adult(rows=rows)
    for platforms in (0, 13):
        with pytest.raises(ConfigError, match="Give 1 to 12"):
            adult_platforms(platforms=platforms)


def test_missing_data_says_where_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        adult_platforms()
