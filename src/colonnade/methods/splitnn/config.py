"""Settings of the split network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from colonnade.errors import ConfigError

__all__ = ["WIDEST", "PartyEncoder", "SplitNN", "check_weights"]

WIDEST = 2**16
"""The most numbers a layer gives per row, and so the widest cut a partner accepts."""

# Training keeps about six copies (gradients, the optimiser's, the best so far): 5 GB in float64.
_MOST_WEIGHTS = 100_000_000


@dataclass(frozen=True, kw_only=True)
class PartyEncoder:
    """One party's encoder, where it differs from the others'."""

    hidden: tuple[int, ...] = (64,)
    cut_width: int = 32

    def __post_init__(self) -> None:
        _check_widths("encoders.hidden", self.hidden)
        _check_widths("encoders.cut_width", (self.cut_width,))
        check_weights("An encoder of config.encoders", (1, *self.hidden, self.cut_width), "hidden or cut_width")


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
    secret_start: bool = True
    """Whether first weights are secret. Without, a run repeats from its seed, and partners can work out columns."""
    checkpoint_every: int = 0
    """Steps between checkpoints; 0 makes one at the end of every epoch. An epoch's end always makes one."""
    defence: Literal["none", "marvell", "coae", "marvell+coae"] = "none"
    """What the label holder does so that gradients tell less about labels."""
    label_budget: float = 0.25
    """With marvell: the divergence of the two classes' gradients that one release may leave."""

    def __post_init__(self) -> None:
        _check_widths("hidden", self.hidden)
        _check_widths("head_hidden", self.head_hidden)
        _check_widths("cut_width", (self.cut_width,))
        # With one input each, as the tables are not known yet; what is too large even so can be refused at once.
        check_weights("Each encoder", (1, *self.hidden, self.cut_width), "hidden or cut_width")
        check_weights("The head", (1, *self.head_hidden, 1), "head_hidden")
        for name, lowest in (("epochs", 1), ("batch_size", 1), ("patience", 0), ("checkpoint_every", 0)):
            if getattr(self, name) < lowest:
                raise ConfigError(f"config.{name} must be at least {lowest}. Got {getattr(self, name)} instead.")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"config.dropout must be at least 0 and below 1. Got {self.dropout} instead.")
        if not self.learning_rate > 0.0:
            raise ConfigError(f"config.learning_rate must be above 0. Got {self.learning_rate} instead.")
        if not 0.0 < self.label_budget < 4.0:
            raise ConfigError(f"config.label_budget must be above 0 and below 4. Got {self.label_budget} instead.")
        if isinstance(self.class_weights, tuple) and not all(weight > 0 for weight in self.class_weights):
            raise ConfigError("config.class_weights must all be above 0.")

    def encoder_of(self, party: str) -> PartyEncoder:
        """Return the shape of one party's encoder."""
        return self.encoders.get(party, PartyEncoder(hidden=self.hidden, cut_width=self.cut_width))


def check_weights(network: str, widths: Sequence[int], settings: str) -> None:
    """Refuse a network that would hardly fit in memory, before any of it is made."""
    weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
    if weights > _MOST_WEIGHTS:
        raise ConfigError(
            f"{network} needs {weights:,} weights, and at most {_MOST_WEIGHTS:,} are accepted. Lower {settings}."
        )


def _check_widths(name: str, widths: tuple[int, ...]) -> None:
    for width in widths:
        if not 1 <= width <= WIDEST:
            raise ConfigError(
                f"config.{name} must hold whole numbers of at least 1 and at most {WIDEST}. Got {width} instead."
            )
