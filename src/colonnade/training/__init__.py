"""The spine: what every method gets, so that a method is its paper and nothing else."""

from __future__ import annotations

from colonnade.training.inputs import Inputs

__all__ = ["Inputs"]
