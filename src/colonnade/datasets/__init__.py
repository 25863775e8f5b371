"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.breast_cancer import breast_cancer
from colonnade.datasets.default_credit import default_credit
from colonnade.datasets.fate_examples import FATE_EXAMPLES, fate_example
from colonnade.datasets.wikipedia_crossmodal import WIKIPEDIA_CATEGORIES, wikipedia_crossmodal

__all__ = [
    "FATE_EXAMPLES",
    "WIKIPEDIA_CATEGORIES",
    "breast_cancer",
    "default_credit",
    "fate_example",
    "wikipedia_crossmodal",
]
