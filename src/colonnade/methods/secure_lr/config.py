"""Settings of secure regression."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from colonnade.errors import ConfigError
from colonnade.settings import described, marked

__all__ = ["MOST_EPOCHS", "SecureLR"]

MOST_EPOCHS = 3
"""The most epochs where the settings leave their number open."""
# A coefficient does not move further than this, whatever the steps.
_MOST_INFLUENCE = 1.0


@described
@dataclass(frozen=True, kw_only=True)
class SecureLR:
    """Settings of secure regression, agreed by all parties.

    Every epoch opens a number about every row, and steps within an epoch open nothing: so epochs are few and batches
    small.
    """

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` decides from the training labels."""
    learning_rate: float = 0.14
    """The step along the gradient of the mean loss, above 0."""
    schedule: Literal["cosine", "constant"] = "cosine"
    """`cosine` lets the learning rate fall to zero at the last epoch; `constant` keeps it."""
    momentum: float = 0.8
    """How much of the last step goes into the next, from 0 up to, but not including, 1."""
    l2: float = 1e-4
    """The penalty: half of it times the squared coefficients, without the intercept, is added to the mean loss. In
    terms of scikit-learn's C it is 1 / (C times rows)."""
    epochs: int = marked(0, passes=True)
    """Passes over the training rows; 0 takes as many as the guard allows, at most 3."""
    batch_size: int = marked(0, batch=True)
    """Rows per step; 0 takes 16, or 8 where there is one epoch only."""
    patience: int = marked(0, within=(0, 0))
    """Epochs without a better validation loss before training stops; 0 trains all and keeps the last."""
    minimum_support: int = 10
    """In how many training rows, at least, each encoded column of a feature holder differs from its most frequent
    value."""
    coefficient_noise: float = 1.0
    """The standard deviation of noise on coefficients that are given up, in units of what one row's label can move; 0
    adds none."""
    allow_leak: bool = False
    """Train although the guard of the feature holders' columns objects; all ledgers and the report say so."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of the feature holders' keys. `insecure_test` has 1024 and marks the run and its report."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""

    def __post_init__(self) -> None:
        least = {"epochs": 0, "batch_size": 0, "patience": 0, "minimum_support": 0, "checkpoint_every": 0}
        for name, lowest in least.items():
            if getattr(self, name) < lowest:
                raise ConfigError(f"config.{name} must be at least {lowest}. Got {getattr(self, name)} instead.")
        if not 0.0 < self.learning_rate <= 100.0:
            raise ConfigError(f"config.learning_rate must be above 0, at most 100. Got {self.learning_rate} instead.")
        if not 0.0 <= self.momentum < 1.0:
            raise ConfigError(f"config.momentum must be at least 0 and below 1. Got {self.momentum} instead.")
        if not 0.0 <= self.coefficient_noise <= 4.0:
            raise ConfigError(f"config.coefficient_noise must be from 0 to 4. Got {self.coefficient_noise} instead.")
        if not 0.0 <= self.l2 * self.learning_rate < 1.0:
            raise ConfigError(
                f"config.l2 must be at least 0, and l2 times learning_rate below 1. Got l2 = {self.l2} instead."
            )

    def for_epochs(self, epochs: int) -> SecureLR:
        """Return the settings with what they leave open, for so many epochs."""
        return replace(self, epochs=epochs, batch_size=self.batch_size or (16 if epochs > 1 else 8))

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after a fraction of all steps."""
        return self.learning_rate * (0.5 + 0.5 * math.cos(math.pi * progress) if self.schedule == "cosine" else 1.0)

    def influence(self, rows: int) -> float:
        """Return how far the label of one of so many training rows moves the coefficient of a column that is 1 there.

        In each epoch a label moves it by at most the learning rate over the rows of a batch, and momentum repeats that.
        """
        rate = self.learning_rate * (0.5 if self.schedule == "cosine" else 1.0)
        moved = self.epochs * rate / (min(self.batch_size, rows) * (1.0 - self.momentum))
        return min(moved, _MOST_INFLUENCE)

    @property
    def key(self) -> str:
        """Return the key size by name."""
        return str(self.key_size)
