"""Vertical federated learning as a scikit-learn estimator, for research on one matrix.

The estimator gives every party its columns of the matrix and simulates the federated run, so a pipeline, a
cross-validation or a grid search measures what the federation would learn.
"""

from colonnade.estimator.vertical import VerticalClassifier, VerticalRegressor

__all__ = ["VerticalClassifier", "VerticalRegressor"]
