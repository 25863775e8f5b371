"""Settings of secure regression."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

from colonnade.errors import ConfigError

__all__ = ["MOST_EPOCHS", "SecureLR"]

MOST_EPOCHS = 3
"""The most epochs where the settings leave their number open."""
# A coefficient does not move further than this, whatever the steps.
_MOST_INFLUENCE = 1.0


@dataclass(frozen=True, kw_only=True)
class SecureLR:
    """Settings of secure regression, agreed by all parties.

    The loss is the mean over a batch's rows plus ``l2`` / 2 times the squared coefficients; the intercept is not
    penalised. ``patience`` counts epochs without a better validation loss before training stops and the best weights
    are kept; 0 trains all epochs and keeps the last, which suits a learning rate that falls to zero.

    Every epoch opens a number about every row, and steps within an epoch open nothing: so epochs are few and batches
    small.
    """

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    learning_rate: float = 0.14
    schedule: Literal["cosine", "constant"] = "cosine"
    """How the learning rate falls: along half a cosine to zero at the last epoch, or not at all."""
    momentum: float = 0.8
    l2: float = 1e-4
    epochs: int = 0
    """Passes over the training rows; 0 takes as many as the guard allows, at most 3."""
    batch_size: int = 0
    """Rows per step; 0 takes 16, or 8 where there is one epoch only."""
    patience: int = 0
    minimum_support: int = 10
    """Training rows in which each encoded column of a feature holder differs from its most frequent value, at least."""
    coefficient_noise: float = 1.0
    """The deviation of the noise on coefficients that are given up, in units of one row's influence; 0 adds none."""
    allow_leak: bool = False
    """Train although the guard of the feature holders' columns objects; this is noted."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of the feature holders' keys; insecure_test has 1024, for tests only, and marks the run and its report."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 makes one at the end of every epoch. An epoch's end always makes one."""

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
