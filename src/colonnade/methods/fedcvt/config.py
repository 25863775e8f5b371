"""Settings of FedCVT."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.session import ALIGN, RunPlan
from colonnade.settings import at_least, described, marked

__all__ = ["FEDCVT", "KINDS", "LOCAL", "SCORES_ALONE", "FedCVT", "Variant", "cautions"]

FEDCVT, LOCAL = "fedcvt", "local"
KINDS = ("shared", "unique")
SCORES_ALONE = ("fedcvt", "mftl", "ftl")
"""The models that can score rows which only a feature holder knows."""
_NAMES = ("fedcvt", "vanilla", "wide", "mean_fill", "mftl", "ftl", "local")
_WIDEST = 2**14


@dataclass(frozen=True)
class Variant:
    """What one candidate model consists of."""

    name: str
    kinds: tuple[str, ...]
    """The codes of a party, one network each."""
    has_party_heads: bool
    uses_own_rows: bool
    """Whether the label holder's unmatched rows take part."""
    uses_partner_rows: bool
    """Whether unmatched rows of feature holders take part."""


@described
@dataclass(frozen=True, kw_only=True)
class FedCVT:
    """Settings of FedCVT, agreed by all parties.

    Weights and temperature are the paper's for tables.
    """

    level: Literal[0, 1, 2] = 0
    """What protects codes: 0 nothing, 1 clipping and noise, 2 encryption."""
    candidates: tuple[Literal["fedcvt", "vanilla", "wide", "mean_fill", "mftl", "ftl", "local"], ...] = (
        "fedcvt",
        "vanilla",
        "local",
    )
    """What is trained; the best on validation rows is used, for each situation."""
    hidden: tuple[int, ...] = ()
    """Widths of the layers before the codes."""
    shared_width: int = 96
    """How many numbers a shared code has, at all parties."""
    unique_width: int = 96
    """How many numbers a unique code has; as many as a shared one, unless `orthogonality` is `dsn`."""
    activation: Literal["relu", "tanh", "sigmoid", "gelu"] = "relu"
    """The function after every layer of a configured network."""
    images: Mapping[str, tuple[int, int, int]] = field(default_factory=dict)
    """Parties whose columns are pixels, channel by channel: channels, height and width by party. They get
    convolutions."""
    channels: tuple[int, ...] = (32, 64, 128)
    """For images: the width of each block of two convolutions and a pooling."""
    pull: float = 0.1
    """The weight of how far shared codes of a shared row are apart."""
    own_fit: float = 0.1
    """The weight of how far estimates of the label holder's codes are off."""
    partner_fit: float = 0.1
    """The same for feature holders' codes."""
    own_orthogonality: float = 0.1
    """The weight of how far the label holder's two codes are from orthogonal."""
    partner_orthogonality: float = 0.1
    """The same for feature holders' codes."""
    orthogonality: Literal["inner", "gram", "dsn"] = "inner"
    """Which formula that is."""
    pair_reduction: Literal["sum", "mean"] = "sum"
    """Whether squared distances are summed or averaged over a code's numbers."""
    temperature: float = 0.5
    """How flat attention is: below 1 it is sharper."""
    threshold: float = 0.5
    """How sure all heads must be of a label they give, from 0 up to, but not including, 1."""
    agreement: float = 0.25
    """With numbers as labels: how far predictions may differ to agree, in standard deviations of the label."""
    warmup_epochs: int = marked(1, within=(0, 1))
    """Epochs before any feature holder's row gets a label."""
    estimated_weight: float = 1.0
    """What a row with an estimated view counts in the losses of the joint head and of feature holders' heads."""
    codes: Literal["both", "shared", "unique"] = "both"
    """Use both codes, or one only."""
    estimate: bool = True
    """Learn from unmatched rows, by estimates; `false` uses shared rows only."""
    cross_view: bool = True
    """Each party's codes also have a head of their own."""
    pseudo_labels: bool = True
    """Give labels to feature holders' own rows."""
    self_mask: bool = True
    """Keep a shared row from looking at itself when it is estimated."""
    attention: Literal["paper", "anchored"] = "paper"
    """Compare shared codes across parties, or `anchored` within one party. Level 2 is always anchored."""
    detached: bool = False
    """Treat attention as constant when gradients are taken. Level 2 always does."""
    memory_bank: int = 0
    """How many earlier rows attention also looks at; 0 looks at the batch only."""
    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes."""
    optimizer: str = "Adam"
    """The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`."""
    learning_rate: float = 0.005
    """The optimizer's learning rate, above 0."""
    weight_decay: float = 1e-5
    """Its weight decay."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    gradient_clip: float = 5.0
    """The largest norm of a party's gradient in one step; 0 leaves gradients as they are."""
    epochs: int = marked(30, passes=True)
    """Most epochs of each candidate."""
    batch_size: int = marked(128, batch=True)
    """Shared rows per step."""
    own_batch_size: int = marked(256, batch=True)
    """Rows per step of each party's own."""
    patience: int = marked(5, within=(0, 0))
    """Epochs without a better validation loss before training stops; 0 trains all and keeps the last."""
    anchors: int = 512
    """Most shared training rows by which views are estimated after training."""
    precision: Literal["float32", "float64"] = "float32"
    """The arithmetic of all networks, and the type of what crosses."""
    secret_start: bool = True
    """`false` draws first weights and the order of unmatched rows from the run's seed, so that a run repeats; for
    research."""
    checkpoint_every: int = 0
    """Steps between checkpoints within an epoch; the end of an epoch always makes one."""
    partner_answers: Literal["predictions", "none"] = "predictions"
    """What a feature holder is told about rows that only it knows. Gradients in training may tell it more."""
    clip: float = 1.0
    """At level 1: the norm that a row's codes are clipped to."""
    noise: float = 1.0
    """At level 1: the standard deviation of noise on each number of a code, in parts of `clip`."""
    delta: float = 1e-5
    """At level 1: the delta that epsilon is told for."""
    defence: Literal["none", "marvell"] = "none"
    """Noise that the label holder adds to gradients, at levels 0 and 1, so that they tell less about labels and kept
    rows."""
    label_budget: float = 0.25
    """With `marvell`: what one release of a gradient may tell, above 0, below 4; less is noisier."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """At level 2: bits of all keys. `insecure_test` has 1024 and marks the run and its report."""
    head_rate: float = 0.1
    """At level 2: the learning rate of the head's shared weights, which follow SGD with momentum."""
    head_momentum: float = 0.9
    """At level 2: how much of their last step goes into the next."""
    sealed_pull: Literal["off", "one_sided"] = "off"
    """At level 2: `one_sided` sends shared codes with level 1's noise, to pull the label holder's."""
    sealed_fit: Literal["auto", "off"] = "auto"
    """At level 2: `auto` has fit terms where they do not give attention away."""
    least_keys: float = 5.0
    """At level 2: over how many shared rows the attention of an unmatched row must effectively spread."""

    @classmethod
    def sharp(cls, **changes: Any) -> FedCVT:
        """Return settings for a partner that knows as much about the label or more: what was best on such tables here.

        Attention is sharper, penalties are weaker, and rows with an estimated view count less.
        """
        names = ("pull", "own_fit", "partner_fit", "own_orthogonality", "partner_orthogonality")
        sharper: dict[str, Any] = dict.fromkeys(names, 0.01)
        sharper |= {"learning_rate": 0.003, "temperature": 0.1, "estimated_weight": 0.2, "weight_decay": 0.01}
        return cls(**sharper | {"own_batch_size": 128, "epochs": 80, "patience": 20} | changes)

    @classmethod
    def paper(cls, **changes: Any) -> FedCVT:
        """Return the paper's settings: it compares nothing, and a row's estimate may look at the row itself."""
        own: dict[str, Any] = {"candidates": ("fedcvt",), "self_mask": False, "gradient_clip": 0.0}
        return cls(**own | changes)

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
    }

    def __post_init__(self) -> None:
        positive = ("temperature", "learning_rate", "clip", "noise", "agreement", "head_rate")
        for name in positive:
            if not getattr(self, name) > 0.0:
                raise ConfigError(f"config.{name} must be above 0. Got {getattr(self, name)} instead.")
        at_least(self, 0, "pull", "own_fit", "partner_fit", "own_orthogonality", "partner_orthogonality")
        at_least(self, 0, "weight_decay", "estimated_weight", "gradient_clip", "least_keys")
        at_least(self, 0, "patience", "warmup_epochs", "checkpoint_every", "memory_bank")
        at_least(self, 1, "epochs", "batch_size", "own_batch_size")
        at_least(self, 2, "anchors")
        for name, values in (
            ("hidden", self.hidden),
            ("widths", (self.shared_width, self.unique_width)),
            ("channels", self.channels),
        ):
            if not all(1 <= one <= _WIDEST for one in values):
                raise ConfigError(f"config.{name} must be whole numbers from 1 to {_WIDEST}.")
        if self._mixes_widths:
            raise ConfigError(
                f"config.shared_width is {self.shared_width} and config.unique_width {self.unique_width}, but "
                f"orthogonality = '{self.orthogonality}' multiplies a row's two codes, which must be equally wide. "
                "Make them so, or choose 'dsn'."
            )
        if not 0.0 <= self.threshold < 1.0:
            raise ConfigError(f"config.threshold must be at least 0 and below 1. Got {self.threshold} instead.")
        if not 0.0 <= self.head_momentum < 1.0:
            raise ConfigError(f"config.head_momentum must be at least 0 and below 1. Got {self.head_momentum} instead.")
        if not 0.0 < self.delta < 1.0:
            raise ConfigError(f"config.delta must be above 0 and below 1. Got {self.delta} instead.")
        if not 0.0 < self.label_budget < 4.0:
            raise ConfigError(f"config.label_budget must be above 0 and below 4. Got {self.label_budget} instead.")
        if not self.candidates or len(set(self.candidates)) < len(self.candidates):
            raise ConfigError(f"config.candidates must name models, each once. Known: {', '.join(_NAMES)}.")
        if "weight_decay" in self.optimizer_options:
            raise ConfigError("Set config.weight_decay itself, not within optimizer_options.")
        if self.level == 2:
            self._check_sealed()

    @property
    def _mixes_widths(self) -> bool:
        is_used = self.codes == "both" and (self.own_orthogonality > 0.0 or self.partner_orthogonality > 0.0)
        return is_used and self.orthogonality != "dsn" and self.shared_width != self.unique_width

    def _check_sealed(self) -> None:
        """Refuse at level 2 what only works on codes that cross."""
        open_only = [name for name in self.candidates if name in ("mean_fill", "mftl", "ftl")]
        if open_only:
            raise ConfigError(
                f"config.candidates names {', '.join(open_only)}, which need codes in the clear. Use level = 0 or 1 "
                "for them, or leave them out."
            )
        if self.memory_bank:
            raise ConfigError("config.memory_bank keeps codes of partners, which level = 2 does not give. Set it to 0.")
        if self.defence != "none":
            raise ConfigError("config.defence works at levels 0 and 1. Set it to 'none' at level 2.")

    @property
    def is_sealed(self) -> bool:
        """Tell whether codes are encrypted."""
        return self.level == 2

    @property
    def is_noised(self) -> bool:
        """Tell whether codes carry noise."""
        return self.level == 1

    @property
    def is_anchored(self) -> bool:
        """Tell whether attention stays within one party's codes of shared rows."""
        return self.is_sealed or self.attention == "anchored"

    @property
    def is_detached(self) -> bool:
        """Tell whether attention's weights are constants when gradients are taken."""
        return self.is_sealed or self.detached

    @property
    def kinds(self) -> tuple[str, ...]:
        """Return the kinds of codes that the method itself uses."""
        return KINDS if self.codes == "both" else (self.codes,)

    @property
    def joint_candidates(self) -> tuple[str, ...]:
        """Return the candidates that take more than one party, in the order they are trained."""
        return tuple(name for name in self.candidates if name != LOCAL)

    def width_of(self, kind: str) -> int:
        """Return how many numbers a code has."""
        return self.shared_width if kind == "shared" else self.unique_width

    def variant(self, name: str) -> Variant:
        """Return what a candidate consists of."""
        if name == FEDCVT:
            return Variant(name, self.kinds, self.cross_view, self.estimate, self.estimate)
        if name == "mean_fill":
            return Variant(name, KINDS, False, True, False)
        if name in ("mftl", "ftl"):
            return Variant(name, ("shared",), False, True, False)
        return Variant(name, KINDS if name == "wide" else ("shared",), False, name == LOCAL, False)


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what a run gives away beside what its messages do."""
    config, trains = plan.config, plan.stage == "train"
    if not plan.roles.get("feature_holder") or set(config["candidates"]) <= {LOCAL} or plan.stage == ALIGN:
        return
    yield from known_start(plan, "The label holder can solve the first codes for the feature holders' columns.")
    released = "What the releases of one row add up to is in each feature holder's own report."
    if trains and config["level"] == 1:
        yield f"Level 1: codes cross clipped and with noise. {released}"
    if config["level"] == 2:
        yield (
            "Level 2: codes cross encrypted only. The label holder gets what they add to scores, batch by batch, by "
            "weights that change: the more of these, the more they tell about the codes. Fewer epochs give fewer. "
            "Encryption does not hide labels: noise on gradients (defence = 'marvell') is for levels 0 and 1."
        )
    if trains and config["level"] == 2 and config["sealed_pull"] != "off":
        yield f"Codes with noise: shared codes also cross clipped and with noise (sealed_pull). {released}"
