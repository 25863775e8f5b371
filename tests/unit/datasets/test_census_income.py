"""Census-Income as three parties: two banks and a company."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from colonnade.datasets import CENSUS_GROUPS, CENSUS_SHARED, CENSUS_WIDTHS, CensusIncome, census_income
from colonnade.errors import ConfigError, TableError

POSTGRADUATE = {"Masters degree", "Professional degree", "Doctorate"}


@cache
def census(**settings: Any) -> CensusIncome:
    try:
        return census_income(**settings)
    except TableError as missing:
        pytest.skip(str(missing))


def test_each_part_has_the_published_number_of_rows_and_positives() -> None:
    data = census()
    source, target = (bank.set_index("id")["income_over_50k"] for bank in (data.source, data.target))
    counts = {
        "source_train": (source, 80_000, 8_000),
        "source_validation": (source, 7_153, 718),
        "target_labelled": (target, 4_000, 40),
        "target_validation": (target, 2_401, 905),
        "target_test": (target, 2_401, 926),
    }
    for part, (labels, rows, positives) in counts.items():
        assert labels[getattr(data, part)].value_counts().to_dict() == {0: rows - positives, 1: positives}, part
    assert len(data.target_unlabelled) == 5_597
    assert target[data.target_unlabelled].isna().all()
    assert (len(source), len(target)) == (87_153, 14_399)


def test_parts_do_not_overlap_and_the_company_knows_everyone() -> None:
    data = census()
    parts = [data.source_train, data.source_validation, data.target_labelled, data.target_unlabelled]
    everyone = np.concatenate([*parts, data.target_validation, data.target_test])
    assert len(set(everyone)) == len(everyone) == len(data.company)
    assert set(data.company["id"]) == set(everyone)


def test_only_the_target_bank_has_postgraduates() -> None:
    data = census()
    education = data.company.set_index("id")["education"]
    assert set(education[data.target["id"]]) == POSTGRADUATE
    assert not set(education[data.source["id"]]) & POSTGRADUATE


def test_the_company_has_thirty_columns_in_the_paper_s_widths() -> None:
    company = census().company
    columns = [column for group in CENSUS_GROUPS.values() for column in group]
    assert list(company.columns) == ["id", *columns]
    assert len(columns) == 30
    assert {group: sum(CENSUS_WIDTHS[column] for column in names) for group, names in CENSUS_GROUPS.items()} == {
        "emp": 28,
        "demo": 25,
        "migr": 56,
        "house": 27,
    }
    for shared in CENSUS_SHARED:
        assert len({CENSUS_WIDTHS[column] for column in shared}) == 1
    assert not company.isna().any(axis=None)
    assert (company["education"].nunique(), company["age_range"].nunique()) == (12, 11)


def test_a_seed_draws_training_rows_and_leaves_the_rows_that_judge() -> None:
    settings = {"source_rows": 2_000, "labelled": 500, "positives": 20}
    first, again, other = (census_income_of(seed, settings) for seed in (1, 1, 2))
    assert first.source.equals(again.source)
    assert first.target.equals(again.target)
    assert set(first.source_train) != set(other.source_train)
    assert set(first.target_labelled) != set(other.target_labelled)
    for part in ("source_validation", "target_validation", "target_test"):
        assert np.array_equal(getattr(first, part), getattr(other, part))
        assert np.array_equal(getattr(first, part), getattr(census(), part))


def census_income_of(seed: int, settings: dict[str, int]) -> CensusIncome:
    census()  # skips where there is no data
    return census_income(**settings, seed=seed)


@pytest.mark.parametrize("settings", [{"source_rows": 90_000}, {"labelled": 10, "positives": 11}])
def test_more_rows_than_there_are_is_refused(settings: dict[str, int]) -> None:
    census()
    with pytest.raises(ConfigError, match="rows to draw from"):
        census_income(**settings)


def test_missing_data_says_where_to_get_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLONNADE_DATA", str(tmp_path))
    with pytest.raises(TableError, match=r"Get it from .*COLONNADE_DATA"):
        census_income()
