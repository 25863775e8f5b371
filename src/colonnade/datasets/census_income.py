"""Census-Income (KDD): 299285 people of the US census surveys of 1994 and 1995, 18568 of whom earn over 50000 a year.

US Census Bureau; UCI Machine Learning Repository (2000), CC BY 4.0. Split as in PrADA's experiment: a source bank whose
customers have no postgraduate degree, a target bank whose customers have one, and a company that knows more of both.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.datasets.files import data_file
from colonnade.errors import ConfigError

__all__ = ["CENSUS_GROUPS", "CENSUS_SHARED", "CENSUS_WIDTHS", "CensusIncome", "census_income"]

CENSUS_GROUPS = {
    "emp": ("worker_class", "industry", "occupation", "unemployment_reason", "full_or_part_time", "self_employed"),
    "demo": (
        "education",
        "race",
        "age_range",
        "gender",
        "marital_status",
        "union_member",
        "veterans_benefits",
        "veterans_form",
    ),
    "migr": (
        "previous_region",
        "previous_state",
        "move_between_areas",
        "move_between_regions",
        "move_within_region",
        "same_house_last_year",
        "moved_from_sunbelt",
        "hispanic_origin",
        "father_birthplace",
        "mother_birthplace",
        "birthplace",
        "citizenship",
    ),
    "house": ("tax_filing", "household_role", "household_summary", "parents_present"),
}
"""The company's columns by subject: employment, demography, migration and household."""

CENSUS_WIDTHS = {
    "worker_class": 4,
    "industry": 8,
    "occupation": 6,
    "unemployment_reason": 4,
    "full_or_part_time": 4,
    "self_employed": 2,
    "education": 6,
    "race": 3,
    "age_range": 6,
    "gender": 1,
    "marital_status": 3,
    "union_member": 2,
    "veterans_benefits": 2,
    "veterans_form": 2,
    "previous_region": 4,
    "previous_state": 8,
    "move_between_areas": 6,
    "move_between_regions": 6,
    "move_within_region": 6,
    "same_house_last_year": 3,
    "moved_from_sunbelt": 3,
    "hispanic_origin": 5,
    "father_birthplace": 4,
    "mother_birthplace": 4,
    "birthplace": 4,
    "citizenship": 3,
    "tax_filing": 4,
    "household_role": 10,
    "household_summary": 10,
    "parents_present": 3,
}
"""How many numbers PrADA's experiment embeds each of the company's columns in."""

CENSUS_SHARED = (
    ("move_between_areas", "move_between_regions", "move_within_region"),
    ("father_birthplace", "mother_birthplace", "birthplace"),
    ("household_role", "household_summary"),
)
"""The company's columns that have categories in common and share one embedding."""

_ORIGIN = "archive.ics.uci.edu/dataset/117 (each of the two files saved as Parquet, with column names added)"
_POSTGRADUATE = ("Masters degree", "Professional degree", "Doctorate")
_LABEL = "income_over_50k"

_COMPANY = {
    "class_of_worker": "worker_class",
    "major_industry_code": "industry",
    "major_occupation_code": "occupation",
    "reason_for_unemployment": "unemployment_reason",
    "full_or_part_time_employment_stat": "full_or_part_time",
    "own_business_or_self_employed": "self_employed",
    "education": "education",
    "race": "race",
    "sex": "gender",
    "marital_stat": "marital_status",
    "member_of_a_labor_union": "union_member",
    "veterans_benefits": "veterans_benefits",
    "fill_inc_questionnaire_for_veterans_admin": "veterans_form",
    "region_of_previous_residence": "previous_region",
    "state_of_previous_residence": "previous_state",
    "migration_code_change_in_msa": "move_between_areas",
    "migration_code_change_in_reg": "move_between_regions",
    "migration_code_move_within_reg": "move_within_region",
    "live_in_this_house_1_year_ago": "same_house_last_year",
    "migration_prev_res_in_sunbelt": "moved_from_sunbelt",
    "hispanic_origin": "hispanic_origin",
    "country_of_birth_father": "father_birthplace",
    "country_of_birth_mother": "mother_birthplace",
    "country_of_birth_self": "birthplace",
    "citizenship": "citizenship",
    "tax_filer_stat": "tax_filing",
    "detailed_household_and_family_stat": "household_role",
    "detailed_household_summary_in_household": "household_summary",
    "family_members_under_18": "parents_present",
}
_AGES = (18, 25, 30, 35, 40, 45, 50, 55, 60, 65)
_AGE_RANGES = ("under 18", *(f"{low} to {high - 1}" for low, high in pairwise(_AGES)), "65 or over")

_CODES = {
    "veterans_benefits": {0: "Not in universe", 1: "Yes", 2: "No"},
    "self_employed": {0: "Not in universe", 1: "Yes", 2: "No"},
}
_EDUCATION = {
    "Less than 1st grade": "Grade 6 or less",
    "1st 2nd 3rd or 4th grade": "Grade 6 or less",
    "5th or 6th grade": "Grade 6 or less",
    "7th and 8th grade": "Grades 7 to 9",
    "9th grade": "Grades 7 to 9",
    "10th grade": "Grades 10 to 12",
    "11th grade": "Grades 10 to 12",
    "12th grade no diploma": "Grades 10 to 12",
    "Associates degree-occup /vocational": "Associates degree, vocational",
    "Associates degree-academic program": "Associates degree, academic",
    "Bachelors degree(BA AB BS)": "Bachelors degree",
    "Masters degree(MA MS MEng MEd MSW MBA)": "Masters degree",
    "Prof school degree (MD DDS DVM LLB JD)": "Professional degree",
    "Doctorate degree(PhD EdD)": "Doctorate",
}
_MARITAL_STATUS = {
    "Married-civilian spouse present": "Married",
    "Married-A F spouse present": "Married",
    "Married-spouse absent": "Separated",
}
_REGIONS = {
    "United States": ("United-States",),
    "not known": ("?",),
    "Latin America": (
        *("Mexico", "Cuba", "Puerto-Rico", "Dominican-Republic", "Haiti", "Jamaica", "Trinadad&Tobago", "Guatemala"),
        *("El-Salvador", "Honduras", "Nicaragua", "Panama", "Columbia", "Ecuador", "Peru"),
    ),
    "Asia": (
        *("China", "Hong Kong", "Taiwan", "Japan", "South Korea", "Philippines", "Vietnam", "Cambodia", "Laos"),
        *("Thailand", "India", "Iran"),
    ),
    "Europe": (
        *("England", "Scotland", "Ireland", "Germany", "France", "Holand-Netherlands", "Italy", "Portugal", "Greece"),
        *("Poland", "Hungary", "Yugoslavia"),
    ),
    "Canada or US islands": ("Canada", "Outlying-U S (Guam USVI etc)"),
}
_REGION_OF = {country: region for region, countries in _REGIONS.items() for country in countries}

# The rows that results are judged on never depend on the seed of an experiment.
_FIXED_SEED = 17
_SOURCE_VALIDATION = (718, 6435)


@dataclass(frozen=True)
class CensusIncome:
    """Hold the three parties' tables, sorted by `id`, and which people each bank trains and tests on.

    The banks' label is `income_over_50k`: 0 or 1, and missing for the target bank's unlabelled people.
    """

    source: pd.DataFrame
    target: pd.DataFrame
    company: pd.DataFrame
    source_train: npt.NDArray[np.int64]
    source_validation: npt.NDArray[np.int64]
    target_labelled: npt.NDArray[np.int64]
    target_unlabelled: npt.NDArray[np.int64]
    target_validation: npt.NDArray[np.int64]
    target_test: npt.NDArray[np.int64]


def census_income(
    *, source_rows: int = 80_000, labelled: int = 4_000, positives: int = 40, seed: int = 0
) -> CensusIncome:
    """Return the tables of a source bank, of a target bank, and of a company that knows the customers of both.

    A tenth of the source bank's `source_rows` training rows are positive; of the target bank's `labelled` rows,
    `positives` are. The target's other training rows lose their label. `seed` draws the training rows; 7153 validation
    rows of the source and 2401 validation and 2401 test rows of the target are always the same.
    """
    train, test = (
        pd.read_parquet(data_file(f"census_income_kdd/census_income_{part}.parquet", _ORIGIN))
        for part in ("train", "test")
    )
    everyone = pd.concat([train, test], ignore_index=True)
    everyone.insert(0, "id", np.arange(1, len(everyone) + 1))
    everyone["education"] = everyone["education"].replace(_EDUCATION)
    everyone[_LABEL] = (everyone["income"] == "50000+.").astype("float64")

    positive = everyone[_LABEL].to_numpy() == 1
    postgraduate = everyone["education"].isin(_POSTGRADUATE).to_numpy()
    in_train = np.arange(len(everyone)) < len(train)

    fixed = np.random.default_rng(_FIXED_SEED)
    validation, testing = np.split(fixed.permutation(np.flatnonzero(postgraduate & ~in_train)), 2)
    source_validation = _draw(fixed, in_train & ~postgraduate, positive, *_SOURCE_VALIDATION)

    generator = np.random.default_rng(seed)
    source_left, target_left = in_train & ~postgraduate, in_train & postgraduate
    source_left[source_validation] = False
    source_train = _draw(generator, source_left, positive, source_rows // 10, source_rows - source_rows // 10)
    with_label = _draw(generator, target_left, positive, positives, labelled - positives)
    target_left[with_label] = False
    without_label = np.flatnonzero(target_left)

    everyone.loc[without_label, _LABEL] = np.nan
    source = np.sort(np.concatenate([source_train, source_validation]))
    target = np.sort(np.concatenate([with_label, without_label, validation, testing]))
    bank, ids = _bank(everyone), everyone["id"].to_numpy()
    return CensusIncome(
        source=bank.iloc[source].reset_index(drop=True),
        target=bank.iloc[target].reset_index(drop=True),
        company=_company(everyone.iloc[np.sort(np.concatenate([source, target]))].reset_index(drop=True)),
        source_train=ids[source_train],
        source_validation=ids[source_validation],
        target_labelled=ids[with_label],
        target_unlabelled=ids[without_label],
        target_validation=ids[np.sort(validation)],
        target_test=ids[np.sort(testing)],
    )


def _draw(
    generator: np.random.Generator,
    candidates: npt.NDArray[np.bool_],
    positive: npt.NDArray[np.bool_],
    positives: int,
    negatives: int,
) -> npt.NDArray[np.int64]:
    """Draw rows among the candidates, so many positive and so many negative ones, and sort them."""
    drawn = []
    for rows, count, kind in (
        (np.flatnonzero(candidates & positive), positives, "positive"),
        (np.flatnonzero(candidates & ~positive), negatives, "negative"),
    ):
        if not 0 <= count <= len(rows):
            raise ConfigError(f"There are {len(rows)} {kind} rows to draw from, so {count} cannot be drawn.")
        drawn.append(generator.choice(rows, count, replace=False))
    return np.sort(np.concatenate(drawn))


def _bank(everyone: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "id": everyone["id"],
            "age": everyone["age"],
            "gender": everyone["sex"],
            "capital_gain": everyone["capital_gains"],
            "capital_loss": everyone["capital_losses"],
            "dividends": everyone["dividends_from_stocks"],
            _LABEL: everyone[_LABEL],
        }
    )


def _company(everyone: pd.DataFrame) -> pd.DataFrame:
    table = everyone[["id", *_COMPANY]].rename(columns=_COMPANY)
    table["age_range"] = np.array(_AGE_RANGES, dtype=object)[np.searchsorted(_AGES, everyone["age"], side="right")]
    for column, words in _CODES.items():
        table[column] = table[column].map(words)
    table["marital_status"] = table["marital_status"].replace(_MARITAL_STATUS)
    table["hispanic_origin"] = table["hispanic_origin"].replace({"NA": "Do not know"})
    for column in ("father_birthplace", "mother_birthplace", "birthplace"):
        table[column] = table[column].map(_REGION_OF)
    columns = [column for group in CENSUS_GROUPS.values() for column in group]
    table[columns] = table[columns].apply(lambda cells: cells.str.strip().replace({"?": "not known"}))
    return table[["id", *columns]]
