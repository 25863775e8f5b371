"""Settings of secure regression."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.settings import at_least, described, marked

__all__ = ["SecureLR"]

_STEPS = "Steps follow from the columns, which are whitened. Remove it."


@described
@dataclass(frozen=True, kw_only=True)
class SecureLR:
    """Settings of secure regression, agreed by all parties."""

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes."""
    epochs: int = marked(0, passes=True)
    """Passes over the training rows, each of which opens numbers about every row. 0 takes 2, or 1 where the guard of
    columns allows no more."""
    minimum_support: int = 10
    """How many training rows, at least, make up each encoded column of a feature holder, and each direction of them."""
    coefficient_noise: float = 1.0
    """The standard deviation of noise on coefficients that are given up, in units of what one row's label can move; 0
    adds none."""
    allow_leak: bool = False
    """Train although the guard of the feature holders' columns objects; ledgers and the report say so."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of the feature holders' keys. `insecure_test` has 1024 and marks the run and its report."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("learning_rate", "momentum", "schedule"), _STEPS),
        **dict.fromkeys(("batch_size", "checkpoint_every"), "Every step takes all training rows. Remove it."),
        "patience": "There are too few epochs to stop early. Remove it.",
        "l2": "The label holder's penalty is chosen on its own rows, and whitening sets the partners'. Remove it.",
    }

    def __post_init__(self) -> None:
        at_least(self, 0, "epochs", "minimum_support")
        if not 0.0 <= self.coefficient_noise <= 4.0:
            raise ConfigError(f"config.coefficient_noise must be from 0 to 4. Got {self.coefficient_noise} instead.")
