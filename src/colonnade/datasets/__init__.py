"""Public data, split vertically between parties; one file per data set."""

from colonnade.datasets.breast_cancer import breast_cancer

__all__ = ["breast_cancer"]
