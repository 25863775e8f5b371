"""Settings of multi-party dual learning."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal, TypeVar

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.session import RunPlan
from colonnade.settings import at_least, described, marked

__all__ = ["COLLABORATOR", "COMPLETED", "JOINT", "LEMMA", "MPDL", "cautions", "found_by"]

COLLABORATOR = "collaborator"
JOINT, COMPLETED = "joint", "completed"
"""The two models of a run: learned from shared rows alone, and from completed rows too."""
LEMMA = ("lemma", "lemma_shared")
"""The paper's noise, which does not give what its lemma says."""

_WIDEST = 2**14
Value = TypeVar("Value")


def found_by(name: str, patterns: Mapping[str, Value]) -> Value | None:
    """Return what the first pattern that fits a column's name stands for."""
    return next((value for pattern, value in patterns.items() if fnmatchcase(name, pattern)), None)


@described
@dataclass(frozen=True, kw_only=True)
class MPDL:
    """Settings of multi-party dual learning, agreed by all parties.

    Generators learn the other side's columns on shared rows; completed rows enlarge what the classifier learns from.
    Columns are named by patterns such as ``"age"``, ``"pixel_*"`` or ``"*"``; the first that fits counts.
    """

    bounds: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """The public least and greatest value of numeric columns, by name or pattern. Every column that is released with
    noise needs them; they must not be taken from the table, whose extremes are somebody's values."""
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The public categories of categorical columns, by name or pattern, needed as `bounds` are."""
    common_columns: tuple[str, ...] = ()
    """Columns that all holders have, by name or pattern: nobody generates or releases them, and the label holder feeds
    them to the classifier."""

    mechanism: Literal["cell_ldp", "row_gaussian", "none", "lemma", "lemma_shared"] = "cell_ldp"
    """What protects the columns of shared rows that generators learn from: noise for every cell, noise counted by row,
    nothing, or the noise of the paper's lemma, which does not protect a row."""
    epsilon: float = 1.0
    """The privacy loss of one cell, above 0; less is noisier. Cells of a row add up."""
    epsilons: Mapping[str, float] = field(default_factory=dict)
    """Other values for some columns, by name or pattern."""
    sigma: float = 1.0
    """With `row_gaussian`: the standard deviation of noise, for columns scaled to 0 to 1."""
    delta: float = 1e-5
    """The delta that a row's epsilon is told for."""
    dp_scope: Literal["targets", "all"] = "targets"
    """Whether noise is on what others learn from only, or, as in the paper, on everything a network is given."""
    paper_mode: bool = False
    """Allow what the paper does and does not protect: `mechanism` at `lemma` or `lemma_shared`, and `links` at
    `confusion`."""

    exchange: Literal["release", "interactive"] = "release"
    """Release shared rows' columns once, or, as in the paper, send generators gradients step by step."""
    generator: Literal["ridge", "mlp", "mean"] = "ridge"
    """What generates columns: a ridge regression, the paper's perceptron, or, as a control, the columns' mean."""
    penalties: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0)
    """The ridge penalties per row that are tried on a fifth of the rows."""
    generator_hidden: int | None = None
    """The perceptron's hidden width; by default half of its inputs and outputs together."""
    generator_epochs: int = marked(10, passes=True)
    """Its passes over the shared rows."""
    generator_rate: float = 0.1
    """Its learning rate, above 0."""
    generator_optimizer: str = "SGD"
    """Its optimizer: the name of a class in `torch.optim`."""
    generator_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    dual_weight: float = 0.0
    """The weight of the dual penalty, with `generator` at `mlp`; the paper's 0.01 is 0.005 here. It sends a number per
    row and step that no noise covers unless `dp_scope` is `all`."""
    dual_weights: Mapping[str, float] = field(default_factory=dict)
    """Other weights for the generators of some parties."""
    dual_consent: bool = False
    """Allow a dual penalty, or `exchange` at `interactive`, though `dp_scope` at `targets` leaves what they send
    without noise."""
    dual_form: Literal["kde_generated", "gaussian_conditional"] = "kde_generated"
    """The paper's penalty, or that of conditional densities."""
    dual_scale: Literal["per_dim", "raw"] = "per_dim"
    """Divide the penalty's logarithms by the number of columns, or leave them `raw`."""
    dual_clip: float = 5.0
    """How large these may be."""
    support: int = 2000
    """Most released rows by which a density is estimated."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of all keys. `insecure_test` has 1024 and marks the run and its report."""

    folds: int = 5
    """Into how many parts shared training rows are divided to compare both models, beside validation rows; 0 makes
    none."""
    fold_rounds: int = 2
    """How many of these parts are tried at most."""
    fold_gain: float = marked(0.15, within=(1e9, 1e9))
    """A gain in accuracy, or R², above which no further part is tried."""
    strict_folds: bool = False
    """Give every part generators that never saw it; otherwise, as in the paper, generators go on from part to part."""

    completion: Literal["own_copy", "ship", "secure_block"] = "own_copy"
    """Where generated columns enter: weights of their own at the party that generates them, the owner's weights after
    the columns were sent, or the owner's weights under encryption."""
    block_consent: bool = False
    """Allow `completion` at `secure_block`, though the owner can solve the gradients of its weights for the generated
    columns, unless there are more rows than hidden units times steps."""
    augment: bool = True
    """Shared rows also stand for rows that only a feature holder knows, with all other columns generated."""
    hidden: int | None = None
    """The width of the classifier's first layer, to which all holders contribute; by default half of all inputs and
    outputs, at most 512."""
    dense: tuple[int, ...] = ()
    """Further layers at the collaborator; by default none for tables, 128 and 64 for images, and one as wide as the
    first for graphs."""
    image: tuple[int, int, int] | None = None
    """Where columns are pixels: channels, height and width of the whole picture; a column's name ends with its place in
    the flattened picture. The classifier is then convolutional."""
    channels: tuple[int, ...] = (16, 32)
    """For images: the width of each convolution; the first is the first layer."""
    kernel_size: int = 5
    """For images: how many pixels wide and high kernels are; odd."""
    kernels: Literal["untied", "tied"] = "untied"
    """For images: each holder has kernels of its own, or all have the same, which all then know."""
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes."""
    optimizer: str = "SGD"
    """The classifier's optimizer: the name of a class in `torch.optim`."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    learning_rate: float = 0.1
    """Its learning rate, above 0."""
    clip_gradient: float = 5.0
    """The largest norm of a party's gradient in one step; 0 leaves gradients as they are."""
    completed_weight: Literal["equal", "residual"] = "equal"
    """Whether a completed row counts as much as a whole one, or less the worse its columns can be generated."""
    batch_size: int = marked(64, batch=True)
    """Rows per step."""
    epochs: int = marked(20, passes=True)
    """Passes over all rows, of each training."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
    precision: Literal["float32", "float64"] = "float32"
    """The arithmetic of the classifier."""
    secret_start: bool = True
    """`false` draws first weights from the run's seed, so that a run repeats; the collaborator can then work out
    columns."""
    links: Literal["he_share", "edge_ldp", "confusion"] = "he_share"
    """For graphs: how the other holder's columns are added up along links: under encryption, along links that are told
    with noise, or by the paper's flow, which gives links away."""
    link_epsilon: float = 1.0
    """For graphs, with `edge_ldp`: the privacy loss of one link, above 0."""
    graph_rows: Literal["unit_length", "sums"] = "unit_length"
    """For graphs: whether the collaborator gives sums over few and many neighbours the same length."""
    suggested_links: int = 0
    """For graphs: for how many pairs of people, of whom each holder knows one, both holders are told that a link is
    likely: those whose neighbours are most alike."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
        "generator_optimiser": "Write generator_optimizer.",
    }

    def __post_init__(self) -> None:
        self._check_numbers()
        for name, (low, high) in self.bounds.items():
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ConfigError(f"config.bounds of '{name}' must be two numbers, the lower first. Got {low}, {high}.")
        for name, levels in self.levels.items():
            if len(levels) < 2 or len(set(levels)) < len(levels):
                raise ConfigError(f"config.levels of '{name}' must be two different categories or more.")
        if self.mechanism in LEMMA and not self.paper_mode:
            raise ConfigError(
                f"config.mechanism = '{self.mechanism}' is the noise of the paper's lemma, which does not give the "
                "privacy it claims. Use 'cell_ldp', or set paper_mode = true to reproduce the paper."
            )
        if self.links == "confusion" and not self.paper_mode:
            raise ConfigError(
                "config.links = 'confusion' is the paper's flow, from which the other holder finds out links. Use "
                "'he_share', or set paper_mode = true to reproduce the paper."
            )
        if self.dual_is_on:
            self._check_dual()
        if self.exchange == "interactive" and not self._covers_all:
            raise ConfigError(
                "config.exchange = 'interactive' sends generated columns of every shared row in every step, which "
                "dp_scope = 'targets' does not cover with noise. Use dp_scope = 'all', or set dual_consent = true."
            )
        if self.exchange == "interactive" and self.mechanism == "none" and not self.dual_consent:
            raise ConfigError(
                "config.exchange = 'interactive' with mechanism = 'none' lets each holder work out the other's columns "
                "as they are. Use another mechanism, or set dual_consent = true."
            )
        if self.exchange == "interactive" and self.generator != "mlp":
            raise ConfigError(
                f"config.exchange = 'interactive' trains step by step, which a generator '{self.generator}' does not. "
                "Use generator = 'mlp', or exchange = 'release'."
            )
        if self.folds == 1:
            raise ConfigError("config.folds must be 0 or at least 2.")
        if self.image is not None and len(self.channels) < 1:
            raise ConfigError("config.channels must name at least one layer where image is given.")
        if self.kernels == "tied" and self.image is None:
            raise ConfigError("config.kernels = 'tied' needs config.image: only convolutions share their weights.")
        if self.completion == "secure_block" and not self.block_consent:
            raise ConfigError(
                "config.completion = 'secure_block' encrypts generated columns, but the gradients that train the "
                "owner's weights let it solve for them: it discloses what 'ship' does. Set block_consent = true if you "
                "want it."
            )
        if self.completion == "secure_block" and self.image is not None:
            raise ConfigError("config.completion = 'secure_block' works on tables only. Remove image, or use another.")

    def _check_numbers(self) -> None:
        for name in ("epsilon", "link_epsilon", "sigma", "dual_clip", "learning_rate", "generator_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0.0):
                raise ConfigError(f"config.{name} must be a number above 0. Got {value} instead.")
        for name in ("dual_weight", "clip_gradient", "fold_gain"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ConfigError(f"config.{name} must be at least 0. Got {value} instead.")
        at_least(self, 1, "batch_size", "epochs", "generator_epochs", "support", "fold_rounds")
        at_least(self, 0, "folds", "checkpoint_every", "suggested_links")
        if not 0.0 < self.delta < 1.0:
            raise ConfigError(f"config.delta must be above 0 and below 1. Got {self.delta} instead.")
        widths = (
            *self.dense,
            *self.channels,
            *(one for one in (self.hidden, self.generator_hidden) if one is not None),
        )
        if not all(1 <= one <= _WIDEST for one in widths):
            raise ConfigError(f"config's widths and channels must be whole numbers from 1 to {_WIDEST}.")
        if self.kernel_size % 2 == 0 or not 1 <= self.kernel_size <= 31:
            raise ConfigError("config.kernel_size must be odd, and at most 31.")
        if not self.penalties or not all(math.isfinite(one) and one > 0 for one in self.penalties):
            raise ConfigError("config.penalties must be numbers above 0.")
        if not all(math.isfinite(one) and one > 0 for one in self.epsilons.values()):
            raise ConfigError("config.epsilons must be numbers above 0.")

    def _check_dual(self) -> None:
        if self.generator != "mlp":
            raise ConfigError(f"A dual penalty trains generator = 'mlp' only. Got generator = '{self.generator}'.")
        if not self._covers_all:
            raise ConfigError(
                "A dual penalty sends a number about each row that dp_scope = 'targets' does not cover with noise. "
                "Use dp_scope = 'all', or set dual_consent = true."
            )

    @property
    def _covers_all(self) -> bool:
        """Tell whether noise covers what crosses step by step, or nobody minds."""
        return self.dp_scope == "all" or self.mechanism == "none" or self.dual_consent

    @property
    def dual_is_on(self) -> bool:
        """Tell whether generators get a dual penalty."""
        return self.dual_weight > 0.0 or any(one > 0.0 for one in self.dual_weights.values())

    def completes_alone(self, role: str) -> bool:
        """Tell whether a holder has weights of its own for the columns it generates, and so needs no other holder."""
        return self.completion == "own_copy" and (role == "label_holder" or self.augment)

    @property
    def patience(self) -> int:
        """Return 0: all epochs are trained, so that no verdict tells anything about labels."""
        return 0

    @property
    def upper_layers(self) -> tuple[int, ...]:
        """Return the widths of the dense layers at the collaborator."""
        return self.dense or ((128, 64) if self.image is not None else ())

    def epsilon_of(self, column: str) -> float:
        """Return the privacy loss of one cell of a column."""
        own = found_by(column, self.epsilons)
        return self.epsilon if own is None else own

    def is_common(self, column: str) -> bool:
        """Tell whether all holders have a column."""
        return any(fnmatchcase(column, pattern) for pattern in self.common_columns)

    @classmethod
    def paper(cls, **others: Any) -> MPDL:
        """Return the paper's settings: its generators, dual penalty, noise and exchange, and no augmented rows."""
        settings: dict[str, Any] = {
            "generator": "mlp",
            "exchange": "interactive",
            "mechanism": "lemma_shared",
            "paper_mode": True,
            "dp_scope": "all",
            "epsilon": 0.5,
            "dual_weight": 0.005,
            "completion": "ship",
            "augment": False,
        }
        return cls(**settings | others)


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what a run gives away beside what its messages do."""
    yield from known_start(
        plan, "The collaborator can solve the first sums for columns, and holders the first gradients for labels."
    )
    if plan.config["mechanism"] in LEMMA:
        yield (
            "Unsound noise: the noise of the paper's lemma does not give the privacy it claims (paper_mode = true). "
            "See the method's page."
        )
