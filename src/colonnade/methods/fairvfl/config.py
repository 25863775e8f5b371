"""Settings of FairVFL."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.messages.declaration import Plan
from colonnade.session import RunPlan
from colonnade.settings import at_least, described, marked

__all__ = ["AGGREGATOR", "FairVFL", "cautions", "hides_attributes", "removes", "trains_plain_model"]

AGGREGATOR = "aggregator"

_WIDEST = 2**14
_LARGEST_EPSILON = 50.0


@described
@dataclass(frozen=True, kw_only=True)
class FairVFL:
    """Settings of FairVFL, agreed by all parties.

    Feature holders' codes become one code at the aggregator, from which the label holder predicts. For each attribute
    a mapper at the aggregator makes a small protected code, and the party with the attribute tries to tell it from
    that; what helps it is removed from the code. Defaults are those that stood up to strong attackers; `paper` gives
    the paper's.
    """

    attributes: tuple[str, ...] = ()
    """The sensitive columns, by name. They are never inputs; whoever has one of them helps to remove it. Without any
    the model is a plain vertical one."""
    removal: Literal["robust", "paper"] = "robust"
    """How attributes are removed: from a narrow, normalised code with noise and by faster adversaries, or as in the
    paper, where a strong attacker still reads them."""
    removal_weight: float = 1.0
    """How much removing an attribute counts against the task: the paper's lambda. With 0 it is only measured."""
    removal_weights: Mapping[str, float] = field(default_factory=dict)
    """Other weights for some attributes."""
    warm_up: float = 1.0
    """Over how many epochs the weights of removal grow from 0. All at once they would destroy the task."""
    cool_down: float = 0.5
    """Over which last share of the steps the model's learning rate falls to nothing, while adversaries keep theirs.
    Otherwise the last few steps of their contest decide how much of an attribute is left."""
    contrastive_weight: float = 0.25
    """How much mappers hide of which code a protected code was made: the paper's gamma."""
    mapper_step: Literal["joint", "sequential", "merged"] = "joint"
    """How mappers learn from both losses: in one step, in two after each other, or in one with half of the messages."""
    confusion: bool = False
    """Aim mappers and codes at adversaries that cannot decide, instead of ones that are wrong."""
    nearest: int = 5
    """Among how many rows with the most similar protected codes a row's counterpart is drawn."""
    relevance: Literal["cosine", "dot"] = "cosine"
    """By what similarity is measured for that."""
    adversary_every: int = 1
    """Attributes are removed in every so many-th step, with so many times the weight."""

    code_width: int = 8
    """How many numbers the code has that leaves the aggregator, with `robust`."""
    code_noise: float = 0.5
    """The standard deviation of the noise on that code, in training and in use, with `robust`."""
    discriminator_steps: int = 2
    """How many steps an adversary takes for one of the model, with `robust`."""
    discriminator_rate: float = 5.0
    """The learning rate of adversaries and mappers, as a multiple of `learning_rate`, with `robust`."""
    protected_width: int = 4
    """How many numbers an attribute's holder gets about a row; little more than evidence of the classes needs."""
    protected_widths: Mapping[str, int] = field(default_factory=dict)
    """Other widths for some attributes."""
    protected_noise: float = 1.0
    """The standard deviation of the noise on these numbers."""

    label_epsilon: float | None = 3.0
    """The privacy loss of an attribute's values, which are answered at random with it before they give gradients; none
    or 0 where the aggregator may read them from gradients."""
    gradient_clip: float = 0.0
    """The norm to which each row of an adversary's gradient is shortened before noise; 0 leaves it."""
    gradient_noise: float = 0.0
    """The standard deviation of noise on it, in parts of `gradient_clip`."""

    local: Literal["mlp", "tabnet", "autoint", "naml", "lstur", "nrms"] = "mlp"
    """What makes a party's code of its columns; the last three read texts."""
    locals: Mapping[str, str] = field(default_factory=dict)
    """Other models for some parties."""
    embedding: int = 32
    """How many numbers a category, a bin or a word becomes."""
    bins: int = 100
    """Into how many bins of about equally many rows numbers are divided."""
    text: str = "history"
    """For models that read texts: the column of texts, items separated by `" | "`, the latest last."""
    reader: str = "user"
    """The column that says whose texts they are, for `lstur`, where a party has it."""
    candidates: str = "candidates"
    """For ranking: the label holder's column of candidates, texts separated by `" | "`."""
    words: int = 12
    """How many words of a text count."""
    items: int = 30
    """How many of a row's latest items count."""

    width: int = 128
    """How many numbers a party's code has; a multiple of `heads`."""
    heads: int = 8
    """How many heads attention over the parties' codes has."""
    scale: bool = True
    """Divide attention by the root of a head's width; the paper does not."""
    aggregation: Literal["attention", "concat_mlp"] = "attention"
    """How codes become one: attention, or as in the authors' code layers over all side by side."""
    pooling_hidden: int = 200
    """The hidden width of the attention that pools them."""
    task_cut: Literal["label_holder", "server"] = "label_holder"
    """Where the task's model is: at the label holder, which then gets the code, or at the aggregator, which then sends
    scores only, made of the code without noise."""
    task_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of the task's model."""
    mapper_hidden: tuple[int, ...] = (256, 128)
    """Widths of the hidden layers of mappers."""
    contrastive_hidden: tuple[int, ...] = (256, 256)
    """Widths of the hidden layers of contrastive discriminators."""
    discriminator_hidden: tuple[int, ...] = (128,)
    """Widths of the hidden layers of the attributes' adversaries."""

    task: Literal["auto", "binary", "multiclass", "regression", "ranking"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes, and never decides
    for `ranking`."""
    optimizer: str = "Adam"
    """The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    learning_rate: float = 5e-4
    """The optimizer's learning rate, above 0."""
    clip_gradient: float = 5.0
    """The largest norm of a party's gradient in one step; 0 leaves gradients as they are."""
    dropout: float = 0.2
    """The share of values set to zero while training, from 0 up to, but not including, 1."""
    batch_size: int = marked(128, batch=True)
    """Rows per step."""
    epochs: int = marked(8, passes=True)
    """Passes over the training rows. All are trained, and the last weights are kept."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
    precision: Literal["float32", "float64"] = "float32"
    """The arithmetic of all networks, and the type of what crosses."""
    secret_start: bool = True
    """`false` draws first weights and noise from the run's seed, so that a run repeats; others can then work out
    columns."""

    safeguard: bool = True
    """Refuse to score with a model that is no better than a constant answer on held-out rows, or from which an audit
    reads almost as much of an attribute as from a plain model."""
    sweep: tuple[float, ...] = (0.0, 0.3, 1.0, 3.0)
    """For the stage `sweep`: how many times the weights of removal to train with."""
    attackers: int = 5
    """For the audit: of how many networks an attacker is made."""
    audit_rows: int = 20_000
    """For the audit: most training rows whose codes attackers are given."""
    audit_plain: bool = True
    """For the audit: train a plain model to compare with. Attackers are given its code too."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """For the audit: bits of the label holder's key. `insecure_test` has 1024 and marks the run."""
    count_epsilon: float | None = None
    """For the audit: the privacy loss of a row in one attribute's counts; none or 0 adds no noise."""
    smallest_group: int = 5
    """For the audit: groups of fewer rows are not counted."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
    }

    def __post_init__(self) -> None:
        self._check_numbers()
        if len(set(self.attributes)) < len(self.attributes):
            raise ConfigError("config.attributes names a column twice.")
        for name in ("removal_weights", "protected_widths"):
            unknown = sorted(set(getattr(self, name)) - set(self.attributes))
            if unknown:
                raise ConfigError(f"config.{name} names {unknown[0]}, which config.attributes does not.")
        if self.width % self.heads:
            raise ConfigError(f"config.width = {self.width} must be a multiple of config.heads = {self.heads}.")
        if self.gradient_noise and not self.gradient_clip:
            raise ConfigError("config.gradient_noise needs config.gradient_clip: noise is in terms of that norm.")
        if not self.sweep or not all(math.isfinite(one) and one >= 0.0 for one in self.sweep):
            raise ConfigError("config.sweep must be numbers of at least 0.")
        models = ("mlp", "tabnet", "autoint", "naml", "lstur", "nrms")
        if not set(self.locals.values()) <= set(models):
            raise ConfigError(f"config.locals must name models among {', '.join(models)}.")
        if self.confusion and self.mapper_step == "merged":
            raise ConfigError(
                "config.confusion needs a gradient of its own for the code, which config.mapper_step = 'merged' saves. "
                "Use 'joint' or 'sequential'."
            )
        if self.task == "ranking" and self.task_cut == "server":
            raise ConfigError(
                "config.task = 'ranking' compares codes with candidates, which only the label holder has."
            )

    def _check_numbers(self) -> None:
        for name in ("learning_rate", "discriminator_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"config.{name} must be a number above 0. Got {value} instead.")
        plain = (
            "removal_weight",
            "contrastive_weight",
            "warm_up",
            "code_noise",
            "protected_noise",
            "clip_gradient",
            "gradient_clip",
            "gradient_noise",
        )
        for name, value in [
            *((name, getattr(self, name)) for name in plain),
            *((f"removal_weights of '{name}'", one) for name, one in self.removal_weights.items()),
        ]:
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"config.{name} must be at least 0. Got {value} instead.")
        at_least(self, 1, "batch_size", "epochs", "nearest", "adversary_every", "discriminator_steps", "attackers")
        at_least(self, 0, "checkpoint_every")
        if not 0.0 <= self.cool_down <= 1.0:
            raise ConfigError(f"config.cool_down must be at least 0 and at most 1. Got {self.cool_down} instead.")
        if not 0.0 <= self.dropout < 1.0:
            raise ConfigError(f"config.dropout must be at least 0 and below 1. Got {self.dropout} instead.")
        if self.bins < 2 or self.words < 1 or self.items < 1 or self.audit_rows < 100 or self.smallest_group < 1:
            raise ConfigError(
                "config.bins must be at least 2, words, items and smallest_group at least 1, audit_rows at least 100."
            )
        for name in ("label_epsilon", "count_epsilon"):
            value = getattr(self, name)
            if value is not None and not 0.0 <= value <= _LARGEST_EPSILON:
                raise ConfigError(
                    f"config.{name} must be at least 0 and at most {_LARGEST_EPSILON:g}. Got {value} instead."
                )
        widths = (
            *(self.width, self.heads, self.embedding, self.code_width, self.protected_width, self.pooling_hidden),
            *self.protected_widths.values(),
            *(*self.task_hidden, *self.mapper_hidden, *self.contrastive_hidden, *self.discriminator_hidden),
        )
        if not all(1 <= one <= _WIDEST for one in widths):
            raise ConfigError(f"config's widths must be whole numbers from 1 to {_WIDEST}.")

    @property
    def is_robust(self) -> bool:
        """Tell whether codes are narrow, normalised and noised."""
        return self.removal == "robust"

    @property
    def unified_width(self) -> int:
        """Return the width of the code that the task's model reads."""
        return self.code_width if self.is_robust else self.width

    @property
    def noise(self) -> float:
        """Return the standard deviation of the noise on the code."""
        return self.code_noise if self.is_robust else 0.0

    @property
    def adversary_steps(self) -> int:
        """Return how many steps a discriminator takes for one of the model."""
        return self.discriminator_steps if self.is_robust else 1

    @property
    def adversary_rate(self) -> float:
        """Return the learning rate of bias discriminators and of the mappers before them."""
        return self.learning_rate * (self.discriminator_rate if self.is_robust else 1.0)

    @property
    def hides_attributes(self) -> bool:
        """Tell whether adversaries' gradients are of randomised answers, or behind noise."""
        return bool(self.label_epsilon) or self.gradient_noise > 0

    @property
    def patience(self) -> int:
        """Return 0: all epochs are trained, so that no verdict tells anything about labels."""
        return 0

    def weight_of(self, attribute: str) -> float:
        """Return how much removing an attribute counts."""
        return self.removal_weights.get(attribute, self.removal_weight)

    def width_of(self, attribute: str) -> int:
        """Return the width of an attribute's protected code."""
        return self.protected_widths.get(attribute, self.protected_width)

    @property
    def removed(self) -> tuple[str, ...]:
        """Return the attributes that are removed; those of weight 0 are only measured."""
        return tuple(one for one in self.attributes if self.weight_of(one) > 0.0)

    def local_of(self, party: str) -> str:
        """Return which model a party's code comes from."""
        return self.locals.get(party, self.local)

    @property
    def is_compared(self) -> bool:
        """Tell whether an audit trains a plain model to compare with."""
        return self.audit_plain and bool(self.removed)

    @property
    def is_plain(self) -> bool:
        """Tell whether nothing is done against attributes: nothing removed, and the code whole and without noise."""
        return not self.removed and not self.is_robust

    def scaled(self, factor: float) -> FairVFL:
        """Return the same with so many times the weights of removal; with 0 the plain model."""
        if not factor:
            return self.plain()
        weights = {one: factor * self.weight_of(one) for one in self.attributes}
        return replace(self, removal_weight=factor * self.removal_weight, removal_weights=weights)

    def plain(self) -> FairVFL:
        """Return the same without removal: a plain vertical model, whose code is whole and without noise."""
        return replace(self, removal="paper", removal_weight=0.0, removal_weights={})

    @classmethod
    def paper(cls, **others: Any) -> FairVFL:
        """Return the paper's settings: wide codes, one step of the adversary, no noise, no randomised answers."""
        settings: dict[str, Any] = {
            "removal": "paper",
            "removal_weight": 10.0,
            "cool_down": 0.0,
            "label_epsilon": None,
            "protected_width": 64,
            "protected_noise": 0.0,
            "mapper_step": "sequential",
            "relevance": "dot",
            "scale": False,
            "width": 400,
            "heads": 20,
            "learning_rate": 1e-4,
            "batch_size": 32,
            "epochs": 10,
        }
        return cls(**settings | others)


def removes(plan: Plan) -> bool:
    """Tell whether a run removes anything at all."""
    config = plan.config
    return any(config["removal_weights"].get(one, config["removal_weight"]) for one in config["attributes"])


def hides_attributes(plan: Plan) -> bool:
    """Tell whether adversaries' gradients are of randomised answers, or behind noise."""
    return bool(plan.config["label_epsilon"]) or plan.config["gradient_noise"] > 0


def trains_plain_model(plan: Plan) -> bool:
    """Tell whether a stage trains a plain model to compare with."""
    if plan.stage == "sweep":
        return not all(plan.config["sweep"])
    return plan.stage == "audit" and plan.config["audit_plain"] and removes(plan)


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what a run gives away beside what its messages do."""
    yield from known_start(
        plan,
        "Noise and randomised answers follow from it too and hide nothing; the aggregator can solve first codes for "
        "columns.",
    )
    if removes(plan) and plan.stage in ("train", "sweep") and not hides_attributes(plan):
        yield (
            "Sensitive values at the aggregator: it can read them, row by row, from gradients of true values without "
            "noise (label_epsilon is not set)."
        )
    if trains_plain_model(plan):
        receivers = "those" if plan.config["task_cut"] == "server" else "the label holder and those"
        yield (
            f"Codes of a plain model: it is trained for comparison, and {receivers} with attributes get its code, "
            "whole and without noise, which tells much of all parties' columns (audit_plain, or 0 in sweep)."
        )
