"""The spine: what every method gets, so that a method is its paper and nothing else."""

from colonnade.training.alone import Alone
from colonnade.training.choice import Choice, choose

__all__ = ["Alone", "Choice", "choose"]
