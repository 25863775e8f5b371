"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.breast_cancer import breast_cancer
from colonnade.datasets.census_income import (
    CENSUS_GROUPS,
    CENSUS_SHARED,
    CENSUS_WIDTHS,
    CensusIncome,
    census_income,
)
from colonnade.datasets.default_credit import default_credit
from colonnade.datasets.fate_examples import FATE_EXAMPLES, fate_example
from colonnade.datasets.wikipedia_crossmodal import WIKIPEDIA_CATEGORIES, wikipedia_crossmodal

__all__ = [
    "CENSUS_GROUPS",
    "CENSUS_SHARED",
    "CENSUS_WIDTHS",
    "FATE_EXAMPLES",
    "WIKIPEDIA_CATEGORIES",
    "CensusIncome",
    "breast_cancer",
    "census_income",
    "default_credit",
    "fate_example",
    "wikipedia_crossmodal",
]
