"""Settings of secure regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from colonnade.errors import ConfigError

__all__ = ["SecureLR"]


@dataclass(frozen=True, kw_only=True)
class SecureLR:
    """Settings of secure regression, agreed by all parties.

    The loss is the mean over a batch's rows plus ``l2`` / 2 times the squared coefficients; the intercept is not
    penalised. ``patience`` counts epochs without a better validation loss before training stops; 0 trains all epochs
    and keeps the last weights.
    """

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    learning_rate: float = 0.1
    momentum: float = 0.9
    l2: float = 1e-4
    epochs: int = 30
    batch_size: int = 256
    patience: int = 5
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

    @property
    def key(self) -> str:
        """Return the key size by name."""
        return str(self.key_size)
