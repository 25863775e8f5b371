"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.bank_marketing import bank_marketing
from colonnade.datasets.breast_cancer import breast_cancer
from colonnade.datasets.census_income import (
    CENSUS_GROUPS,
    CENSUS_SHARED,
    CENSUS_WIDTHS,
    CensusIncome,
    census_income,
)
from colonnade.datasets.cifar10 import CIFAR10_CLASSES, cifar10_halves
from colonnade.datasets.default_credit import default_credit
from colonnade.datasets.digits import digits_halves
from colonnade.datasets.fate_examples import FATE_EXAMPLES, fate_example
from colonnade.datasets.mfeat import MFEAT_VIEWS, mfeat
from colonnade.datasets.wikipedia_crossmodal import WIKIPEDIA_CATEGORIES, wikipedia_crossmodal

__all__ = [
    "CENSUS_GROUPS",
    "CENSUS_SHARED",
    "CENSUS_WIDTHS",
    "CIFAR10_CLASSES",
    "FATE_EXAMPLES",
    "MFEAT_VIEWS",
    "WIKIPEDIA_CATEGORIES",
    "CensusIncome",
    "bank_marketing",
    "breast_cancer",
    "census_income",
    "cifar10_halves",
    "default_credit",
    "digits_halves",
    "fate_example",
    "mfeat",
    "wikipedia_crossmodal",
]
