"""Settings of federated adversarial domain adaptation over feature groups."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.session import RunPlan
from colonnade.settings import at_least, described, marked

__all__ = ["Defence", "PrADA", "Tune", "cautions"]

Defence = Literal["none", "marvell", "coae", "marvell+coae"]
Tune = Literal["nothing", "unseen", "all"]

_MOST_GROUPS = 64


@described
@dataclass(frozen=True, kw_only=True)
class PrADA:
    """Settings of PrADA, agreed by all parties.

    Pre-training trains the feature holder's groups on the source's labels; fine-tuning fits the target's head on
    them. The paper's own settings are `PrADA.paper()`.
    """

    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Feature groups by name, each a list of the feature holder's columns; without any it proposes four from
    correlations."""
    interactions: bool = True
    """Every two groups also make a group together."""
    grouped: bool = True
    """`false` makes no groups: one network takes all columns and gives one number per row."""
    adaptation: bool = True
    """Groups learn not to tell source rows from target rows."""
    widths: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Layer widths of a group's network, by group (`a-b` for a pair); by default about as in the paper's Table 2."""
    aggregate: int = 1
    """How many numbers a group gives per row."""
    embeddings: Mapping[str, int] = field(default_factory=dict)
    """Numbers per category, by column; by default they grow slowly with the number of categories."""
    shared_tables: tuple[tuple[str, ...], ...] = ()
    """Lists of columns whose categories mean the same and share one embedding."""
    ties: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By column: categories that source rows hardly have, and the category each of them is like until fine-tuning."""
    tie_unseen: bool = True
    """Tie categories that hardly any source row has, and that are not tied, to the one most like them."""
    novelties: int = 0
    """Most categories that no source row has and that get a weight of their own in fine-tuning. It needs fewer
    `fine_epochs` than the layer has inputs: from more scores a target could read who has a category."""
    dropout: float = 0.1
    """The share of values set to zero while the networks train."""
    batch_norm: Literal["separate", "together"] = "together"
    """Whether the adversarial step normalises source and target rows by themselves, as the paper does, or in one batch.
    By themselves they can hardly be told apart from the start, so that there is nothing to adapt."""
    domain_weight: float = 0.1
    """The largest factor of the reversed gradient, the paper's lambda; it rises to this as 2 / (1 + exp(-10 q)) - 1."""
    domain_rate: float = 3.0
    """The discriminators' learning rate, as a multiple of the networks'."""
    domain_sampling: Literal["uniform", "density"] = "density"
    """Whether source rows of the adversarial step are drawn alike, or by how much they look like target rows."""

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. At each bank `auto` takes two values, text and up to 10 whole numbers for classes."""
    optimizer: str = "Adam"
    """The optimizer of the feature holder's networks: the name of a class in `torch.optim`."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    learning_rate: float = 3e-3
    """Its learning rate, above 0."""
    head_rate: float = 0.05
    """The learning rate of the scoring layer in pre-training, which follows SGD with momentum."""
    schedule: Literal["cosine", "paper", "constant"] = "cosine"
    """How both rates fall: along half a cosine to zero, as 1 / (1 + 10 q)^0.75 in the paper's code, or not at all."""
    momentum: float = 0.9
    """Of the scoring layer: how much of the last step goes into the next."""
    start: float = 1.0
    """Where all weights of groups start, before each party adds a small draw of its own."""
    expansion: Literal["steps", "none"] = "steps"
    """Whether the banks' numeric columns also enter as steps at their quantiles, or as they are only."""
    l2: float = 0.05
    """Weight decay of the scoring layer in pre-training, on the source's own columns."""
    epochs: int = marked(3, passes=True)
    """Most passes over a source's training rows."""
    batch_size: int = marked(256, batch=True)
    """Rows per step of pre-training. A small last batch joins the one before it."""
    patience: int = marked(0, within=(0, 0))
    """Epochs without a better validation before pre-training stops; 0 trains all. With one source only."""
    weight_average: float = 0.99
    """How much of the running average of the networks' weights each step keeps; the average is what is used. 0 takes
    the last weights."""

    tune: Tune = "nothing"
    """What of the feature holder's networks learns from a target's labels; `unseen` is categories that no source
    has."""
    tune_rate: float = 1e-2
    """The learning rate of what fine-tuning changes of the feature holder's networks."""
    fine_rate: float = 0.05
    """The learning rate of the scoring layer in fine-tuning."""
    fine_start: float | None = None
    """Where the weights of groups start in fine-tuning; by default at `start`."""
    fine_l2: float = 0.0125
    """Weight decay of the scoring layer in fine-tuning, on the target's own columns."""
    fine_epochs: int = marked(15, passes=True)
    """Most passes over a target's labelled training rows."""
    fine_batch_size: int = marked(256, batch=True)
    """Rows per step of fine-tuning."""
    fine_patience: int = marked(0, within=(0, 0))
    """As `patience`, for fine-tuning."""

    defence: Defence = "marvell"
    """What hides labels in the gradients that the feature holder gets: noise, secret codes of the classes, both, or
    nothing."""
    label_budget: float = 0.25
    """With `marvell`: how much one release of a gradient may tell classes apart, above 0, below 4; less is noisier."""
    direction_noise: float = 0.5
    """With `marvell`: further noise, in parts of the slopes' size: it blurs the weights, whose exact steps would tell
    sums over the true labels of a batch."""
    secret_start: bool = True
    """`false` draws initial weights of scoring layers from the run's seed, so that a run repeats; for research."""
    most_passes: int = 100
    """How often one row may be scored in a run; more epochs are refused, as from many scores banks learn the groups up
    to a linear map."""
    compare: Literal["none", "local", "vfl"] = "local"
    """What a target's model is held against: nothing, its own columns alone, or also a joint model without any
    source."""
    margin: float = 1.0
    """By how many standard deviations transfer may lose against these before the better one is used."""
    explanations: bool = False
    """Allow the stage `explain`, which shows a target what each group adds to each row's score."""
    pictures: bool = True
    """Draw the groups before and after training (t-SNE) in the feature holder's report."""

    precision: Literal["float32", "float64"] = "float32"
    """The arithmetic of the networks."""
    protection: Literal["paillier", "none"] = "paillier"
    """`none` sends the groups' numbers in the clear, for research; it marks the run's report."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of the feature holder's key. `insecure_test` has 1024 and marks the run and its report."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
    }

    def __post_init__(self) -> None:
        at_least(self, 1, "epochs", "fine_epochs", "batch_size", "fine_batch_size", "aggregate", "most_passes")
        at_least(self, 0, "patience", "fine_patience", "checkpoint_every", "novelties", "l2", "fine_l2", "margin")
        at_least(self, 0, "domain_weight", "direction_noise")
        for name in ("learning_rate", "head_rate", "fine_rate", "tune_rate", "domain_rate"):
            if not 0.0 < getattr(self, name) <= 100.0:
                raise ConfigError(f"config.{name} must be above 0, at most 100. Got {getattr(self, name)} instead.")
        for name in ("dropout", "momentum", "weight_average"):
            if not 0.0 <= getattr(self, name) < 1.0:
                raise ConfigError(f"config.{name} must be at least 0 and below 1. Got {getattr(self, name)} instead.")
        for name, rate in (("l2", self.head_rate), ("fine_l2", self.fine_rate)):
            if getattr(self, name) * rate >= 1.0:
                raise ConfigError(f"config.{name} times its learning rate must be below 1.")
        for name in ("start", "fine_start"):
            if abs(getattr(self, name) or 0.0) > 4.0:
                raise ConfigError(f"config.{name} must lie between -4 and 4. Got {getattr(self, name)} instead.")
        if not 0.0 < self.label_budget < 4.0:
            raise ConfigError(f"config.label_budget must be above 0 and below 4. Got {self.label_budget} instead.")
        if max(self.epochs, self.fine_epochs) > self.most_passes:
            raise ConfigError(
                f"A row would be scored more often than config.most_passes = {self.most_passes} allows. Lower epochs "
                "or fine_epochs, or raise most_passes if all parties accept what many scores of a row tell."
            )
        _check_groups(self)

    @classmethod
    def paper(cls, **changes: Any) -> PrADA:
        """Return the settings of the paper and its companion code, where they can be used; ``changes`` go on top."""
        settings: dict[str, Any] = {
            "batch_norm": "separate",
            "domain_weight": 1.0,
            "domain_rate": 1.0,
            "domain_sampling": "uniform",
            "optimizer": "SGD",
            "optimizer_options": {"momentum": 0.99, "weight_decay": 1e-5},
            "learning_rate": 6e-4,
            "head_rate": 6e-4,
            "schedule": "paper",
            "momentum": 0.99,
            "start": 0.0,
            "expansion": "none",
            "l2": 1e-5,
            "epochs": 6,
            "batch_size": 128,
            "weight_average": 0.0,
            "tune": "nothing",
            "fine_rate": 8e-4,
            "fine_l2": 0.0,
            "fine_epochs": 100,
            "fine_batch_size": 128,
            "defence": "none",
        }
        return cls(**(settings | changes))

    @property
    def is_sealed(self) -> bool:
        """Tell whether anything is encrypted."""
        return self.protection != "none"

    @property
    def uses_marvell(self) -> bool:
        """Tell whether noise is added to what the feature holder gets."""
        return "marvell" in self.defence

    @property
    def uses_disguise(self) -> bool:
        """Tell whether labels are replaced by soft codes."""
        return "coae" in self.defence

    def fall(self, progress: float) -> float:
        """Return what is left of the learning rates after a fraction of a phase."""
        if self.schedule == "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * progress)
        return (1.0 + 10.0 * progress) ** -0.75 if self.schedule == "paper" else 1.0

    def reversal(self, progress: float) -> float:
        """Return the factor lambda of the reversed gradient after a fraction of pre-training."""
        return self.domain_weight * (2.0 / (1.0 + math.exp(-10.0 * progress)) - 1.0)


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what people must know of a run beside its messages."""
    config = plan.config
    if config["protection"] == "none":
        yield (
            "Not encrypted: what this method encrypts crosses in the clear, and its receivers can read it (protection "
            "= 'none'). For research only."
        )
    yield from known_start(plan, "A bank can work out what its first scores say about the feature holder's columns.")
    if plan.stage == "explain" and config["explanations"]:
        yield (
            "Explained: the target is shown what each group adds to each row's score, which is more than the score. "
            "All parties accept that (explanations = true)."
        )
    if plan.stage in ("train", "finetune") and config["tune"] == "nothing" and config["compare"] != "vfl":
        targets, (holder,) = " and ".join(plan.roles["target"]), plan.roles["feature_holder"]
        masked = "" if config["protection"] == "none" else ", all of which is uniformly masked"
        stops = ", in which epochs validation gets better" if config["fine_patience"] else ""
        yield (
            f"No gradient goes back from the labels of {targets} (tune = 'nothing'): they leave no trace in what "
            f"{holder} gets{masked}. Beside it {holder} learns which rows have a label{stops} and which model is "
            "chosen."
        )


def _check_groups(config: PrADA) -> None:
    for name, columns in config.groups.items():
        if not name or "-" in name:
            raise ConfigError(f"config.groups has the name '{name}'. Use names without '-', which stands for pairs.")
        if not columns:
            raise ConfigError(f"config.groups.{name} has no columns. Name some, or remove it.")
    if len(config.groups) > _MOST_GROUPS:
        raise ConfigError(f"config.groups has {len(config.groups)} groups; at most {_MOST_GROUPS} are accepted.")
    every: Sequence[str] = [column for columns in config.groups.values() for column in columns]
    repeated = sorted({column for column in every if every.count(column) > 1})
    if repeated:
        raise ConfigError(f"config.groups names {', '.join(repeated)} twice. Put every column into one group.")
    for name, widths in config.widths.items():
        if not widths or not all(1 <= width <= 4096 for width in widths):
            raise ConfigError(f"config.widths.{name} must hold whole numbers from 1 to 4096.")
    for column, width in config.embeddings.items():
        if not 1 <= width <= 256:
            raise ConfigError(f"config.embeddings.{column} must be a whole number from 1 to 256. Got {width} instead.")
