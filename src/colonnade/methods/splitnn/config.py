"""Settings of the split network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from colonnade.errors import ConfigError

__all__ = ["PartyEncoder", "SplitNN"]


@dataclass(frozen=True, kw_only=True)
class PartyEncoder:
    """One party's encoder, where it differs from the others'."""

    hidden: tuple[int, ...] = (64,)
    cut_width: int = 32

    def __post_init__(self) -> None:
        _check_widths("encoders.hidden", self.hidden)
        _check_widths("encoders.cut_width", (self.cut_width,))


@dataclass(frozen=True, kw_only=True)
class SplitNN:
    """Settings of the split network, agreed by all parties.

    ``encoders`` overrides ``hidden`` and ``cut_width`` for named parties. ``patience`` counts epochs without a better
    validation loss before training stops; 0 trains all epochs and keeps the last weights.
    """

    hidden: tuple[int, ...] = (64,)
    cut_width: int = 32
    head_hidden: tuple[int, ...] = ()
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = "relu"
    dropout: float = 0.0
    merge: Literal["concatenate", "sum"] = "concatenate"
    encoders: Mapping[str, PartyEncoder] = field(default_factory=dict)
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    optimiser: str = "Adam"
    learning_rate: float = 1e-3
    optimiser_options: Mapping[str, Any] = field(default_factory=dict)
    epochs: int = 50
    batch_size: int = 256
    patience: int = 8
    precision: Literal["float32", "float64"] = "float32"
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 makes one at the end of every epoch. An epoch's end always makes one."""

    def __post_init__(self) -> None:
        _check_widths("hidden", self.hidden)
        _check_widths("head_hidden", self.head_hidden)
        _check_widths("cut_width", (self.cut_width,))
        for name, lowest in (("epochs", 1), ("batch_size", 1), ("patience", 0), ("checkpoint_every", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"config.{name} must be at least {lowest}. Got {getattr(self, name)} instead.")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"config.dropout must be at least 0 and below 1. Got {self.dropout} instead.")
        if not self.learning_rate > 0.0:
            raise ConfigError(f"config.learning_rate must be above 0. Got {self.learning_rate} instead.")
        if isinstance(self.class_weights, tuple) and not all(weight > 0 for weight in self.class_weights):
            raise ConfigError("config.class_weights must all be above 0.")

    def encoder_of(self, party: str) -> PartyEncoder:
        """Return the shape of one party's encoder."""
        return self.encoders.get(party, PartyEncoder(hidden=self.hidden, cut_width=self.cut_width))


def _check_widths(name: str, widths: tuple[int, ...]) -> None:
    if any(width < 1 for width in widths):
        raise ConfigError(f"config.{name} must hold whole numbers of at least 1. Got {list(widths)} instead.")
