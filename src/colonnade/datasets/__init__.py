"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.breast_cancer import breast_cancer
from colonnade.datasets.fate_examples import FATE_EXAMPLES, fate_example

__all__ = ["FATE_EXAMPLES", "breast_cancer", "fate_example"]
