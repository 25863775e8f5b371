"""Settings of the split network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.session import RunPlan
from colonnade.settings import at_least, described, marked

if TYPE_CHECKING:
    import torch

__all__ = ["WIDEST", "SplitNN", "cautions", "check_weights"]

WIDEST = 2**16
"""The most numbers a layer gives per row, and so the widest cut a partner accepts."""
MOST_AHEAD = 16
"""The most batches that a feature holder may be ahead."""

# Training keeps about six copies (gradients, the optimizer's, the best so far): 5 GB in float64.
_MOST_WEIGHTS = 100_000_000


@described
@dataclass(frozen=True, kw_only=True)
class SplitNN:
    """Settings of the split network, agreed by all parties."""

    hidden: tuple[int, ...] = (256,)
    """Widths of the hidden layers of every encoder."""
    cut_width: int = 32
    """How many numbers an encoder gives per row; this is what crosses."""
    members: int = 8
    """How many small heads the label holder has, each on its own part of the codes; the score is their mean. Fewer
    where `cut_width` cannot be divided by them."""
    head_hidden: tuple[int, ...] = (16,)
    """Widths of the hidden layers of each of these heads; without any, the parties' columns only add up."""
    dropout: float = 0.2
    """The share of values set to zero while training, from 0 up to, but not including, 1."""
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes."""
    class_weights: Literal["none", "balanced"] | tuple[float, ...] = "none"
    """Weights in the loss: none, by inverse frequency, or a list: of two classes the positive one last, else in order
    of their names."""
    optimizer: str = "AdamW"
    """The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`."""
    learning_rate: float = 1e-3
    """The optimizer's learning rate, above 0."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class, such as `weight_decay`."""
    schedule: Literal["constant", "cosine"] = "constant"
    """`cosine` lets the learning rate fall to zero at the last epoch; `constant` keeps it."""
    epochs: int = marked(60, passes=True)
    """Most passes over the training rows."""
    minimum_steps: int = marked(1200, floor=True)
    """On a small table an epoch is several passes, so that all epochs together have at least so many steps."""
    batch_size: int = marked(0, batch=True)
    """Rows per step; 0 takes an eighth of the training rows, at least 32 and at most 256."""
    patience: int = marked(10, within=(0, 0))
    """Epochs without a better validation loss before training stops; 0 trains all and keeps the last."""
    look_ahead: int = 0
    """How many batches a feature holder sends before it waits for the first one's gradient. With long delays 1 or 2
    save time; gradients are then for weights of a step or two before."""
    precision: Literal["float32", "float64"] = "float32"
    """The arithmetic of all networks, and the type of what crosses."""
    secret_start: bool = True
    """`false` draws first weights from the run's seed, so that a run repeats; partners can then work out columns."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
    defence: Literal["none", "marvell", "coae", "marvell+coae"] = "none"
    """What the label holder does so that gradients tell less about labels: noise on them, secret codes of the classes,
    or both."""
    label_budget: float = 0.25
    """With `marvell`: what one release of a gradient may tell, above 0, below 4; less is noisier."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
        "activation": "Pass a module of your own where you need another function than the default.",
        "merge": "Codes are always put side by side. Remove it.",
        "encoders": "Set hidden and cut_width for all parties, or pass a module of your own.",
    }

    def __post_init__(self) -> None:
        widths = {"hidden": self.hidden, "head_hidden": self.head_hidden, "cut_width": (self.cut_width,)}
        for name, each in widths.items():
            if wrong := [width for width in each if not 1 <= width <= WIDEST]:
                raise ConfigError(
                    f"config.{name} must hold whole numbers of at least 1 and at most {WIDEST}. Got {wrong[0]} instead."
                )
        # With one input each, as the tables are not known yet; what is too large even so can be refused at once.
        check_weights("Each encoder", (1, *self.hidden, self.cut_width), "hidden or cut_width")
        check_weights("The head", (1, *self.head_hidden, 1), "head_hidden")
        at_least(self, 1, "epochs", "members")
        at_least(self, 0, "batch_size", "minimum_steps", "patience", "look_ahead", "checkpoint_every")
        if self.look_ahead > MOST_AHEAD:
            raise ConfigError(f"config.look_ahead must be at most {MOST_AHEAD}. Got {self.look_ahead} instead.")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"config.dropout must be at least 0 and below 1. Got {self.dropout} instead.")
        if not self.learning_rate > 0.0:
            raise ConfigError(f"config.learning_rate must be above 0. Got {self.learning_rate} instead.")
        if not 0.0 < self.label_budget < 4.0:
            raise ConfigError(f"config.label_budget must be above 0 and below 4. Got {self.label_budget} instead.")
        if isinstance(self.class_weights, tuple) and not all(weight > 0 for weight in self.class_weights):
            raise ConfigError("config.class_weights must all be above 0.")

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of all arithmetic."""
        import torch

        return torch.float64 if self.precision == "float64" else torch.float32


def check_weights(network: str, widths: Sequence[int], settings: str) -> None:
    """Refuse a network that would hardly fit in memory, before any of it is made."""
    weights = sum((inputs + 1) * outputs for inputs, outputs in pairwise(widths))
    if weights > _MOST_WEIGHTS:
        raise ConfigError(
            f"{network} needs {weights:,} weights, and at most {_MOST_WEIGHTS:,} are accepted. Lower {settings}."
        )


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what a run gives away beside what its messages do."""
    yield from known_start(
        plan,
        "The label holder can solve its first batch for the other parties' columns, repeat their steps and so follow "
        "them through every training row; a feature holder can read numbers to predict off its first gradient.",
    )
