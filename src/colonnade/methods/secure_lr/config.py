"""Settings of secure regression."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from colonnade.errors import ConfigError

__all__ = ["SecureLR"]


@dataclass(frozen=True, kw_only=True)
class SecureLR:
    """Settings of secure regression, agreed by all parties.

    The loss is the mean over a batch's rows plus ``l2`` / 2 times the squared coefficients; the intercept is not
    penalised. ``patience`` counts epochs without a better validation loss before training stops and the best weights
    are kept; 0 trains all epochs and keeps the last, which suits a learning rate that falls to zero.
    """

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    learning_rate: float = 0.2
    schedule: Literal["cosine", "constant"] = "cosine"
    """How the learning rate falls: along half a cosine to zero at the last epoch, or not at all."""
    momentum: float = 0.9
    l2: float = 1e-4
    epochs: int = 20
    batch_size: int = 128
    patience: int = 0
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of the feature holders' keys; insecure_test has 1024, for tests only, and marks the run and its report."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 makes one at the end of every epoch. An epoch's end always makes one."""

    def __post_init__(self) -> None:
        for name, lowest in (("epochs", 1), ("batch_size", 1), ("patience", 0), ("checkpoint_every", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"config.{name} must be at least {lowest}. Got {getattr(self, name)} instead.")
        if not 0.0 < self.learning_rate <= 100.0:
            raise ConfigError(f"config.learning_rate must be above 0, at most 100. Got {self.learning_rate} instead.")
        if not 0.0 <= self.momentum < 1.0:
            raise ConfigError(f"config.momentum must be at least 0 and below 1. Got {self.momentum} instead.")
        if not 0.0 <= self.l2 * self.learning_rate < 1.0:
            raise ConfigError(
                f"config.l2 must be at least 0, and l2 times learning_rate below 1. Got l2 = {self.l2} instead."
            )

    def rate_at(self, progress: float) -> float:
        """Return the learning rate after a fraction of all steps."""
        return self.learning_rate * (0.5 + 0.5 * math.cos(math.pi * progress) if self.schedule == "cosine" else 1.0)

    @property
    def key(self) -> str:
        """Return the key size by name."""
        return str(self.key_size)
