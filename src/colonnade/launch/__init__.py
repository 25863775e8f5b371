"""Wire parties, transports and methods into runs."""

from colonnade.launch.estimator import VerticalClassifier, VerticalRegressor
from colonnade.launch.load import load_run
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate

__all__ = ["Run", "VerticalClassifier", "VerticalRegressor", "load_run", "simulate"]
