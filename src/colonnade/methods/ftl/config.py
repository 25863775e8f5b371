"""Settings of federated transfer learning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from colonnade.errors import ConfigError
from colonnade.exchanges.holdings import known_start
from colonnade.session import RunPlan
from colonnade.settings import at_least, described, marked

__all__ = ["FTL", "cautions"]

# Codes of more numbers would make moments of millions of ciphertexts.
_WIDEST = 1024
# Beyond this the row signals would leave the range in which they are encrypted.
_MOST_GAMMA = 16.0


@described
@dataclass(frozen=True, kw_only=True)
class FTL:
    """Settings of federated transfer learning, agreed by all parties.

    The loss is the mean over the labelled shared rows, plus ``gamma`` times the mean alignment loss of all shared rows,
    plus ``decay`` / 2 times the squared weights of both encoders. In the paper's sums that is gamma * labelled / shared
    and decay * labelled.
    """

    task: Literal["auto", "binary", "multiclass", "regression"] = "auto"
    """What is learned. `auto` takes two values, text and up to 10 whole numbers for classes."""
    width: int = 32
    """How many numbers a code has, at both parties: the paper's d."""
    hidden: tuple[int, ...] = ()
    """Widths of the encoder's layers before the last one."""
    activation: Literal["sigmoid", "tanh"] = "sigmoid"
    """The function after every layer of a configured encoder."""
    trained_layers: int = 0
    """How many of the last layers learn together; the others stay as pre-training left them. 0 means all."""
    loss: Literal["taylor", "squared"] = "taylor"
    """The logistic loss to second order, or the squared error, which regression always has."""
    alignment: Literal["distance", "dot"] = "distance"
    """How the two codes of a shared row are drawn together: squared distance, or dot product."""
    gamma: float = 0.1
    """The weight of the mean alignment loss, at most 16."""
    decay: float = 0.001
    """The penalty: half of it times the squared weights of both encoders, without biases."""
    labelled_rows: int = 0
    """How many shared training rows, chosen at random, bring their label into the loss; 0 means all."""
    batch_size: int = marked(0, batch=True)
    """Shared rows per step; 0 takes all. The guard looks at one step."""
    iterations: int = marked(30, passes=True)
    """Most steps."""
    optimizer: str = "Adam"
    """The name of a class in `torch.optim`; not `LBFGS`, `Muon` or `SparseAdam`."""
    learning_rate: float = 0.03
    """The optimizer's learning rate, above 0."""
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    """More arguments of that class."""
    tolerance: float = marked(1e-5, within=(0, 0))
    """Training stops when the loss moves by less than this fraction at three looks; only with `batch_size` at 0."""
    loss_every: int = 1
    """Iterations from one look at the loss to the next; 0 never looks."""
    pretrain_epochs: int = 0
    """Epochs of the auto-encoder that prepares each encoder on its party's own rows."""
    reconstruction: float = 0.1
    """The weight of the auto-encoder's loss while training together; without it codes may shrink to one point."""
    protection: Literal["paillier", "none"] = "paillier"
    """`none` sends codes and signals in the clear, for research; it marks the run's report."""
    reveal: Literal["gradients", "rows"] = "gradients"
    """`rows` takes any module as encoder, but shows the source all codes and the target all labels."""
    key_size: Literal[2048, 3072, "insecure_test"] = 2048
    """Bits of both parties' keys. `insecure_test` has 1024 and marks the run and its report."""
    guard: float = 2.0
    """How many times more unknowns than equations a step must have; with fewer, a party could solve for codes."""
    allow_leak: bool = False
    """Train although the guard objects; all ledgers and the report say so."""
    noise: float = 0.0
    """The standard deviation of what each party adds to gradients that it opens for the other, to protect its own
    codes."""
    safeguard: bool = True
    """Also train the target's columns on the labelled rows alone, and use what does better on validation rows."""
    margin: float = 0.0
    """How much better transfer must do than learning alone."""
    folds: int = 5
    """Parts of the source's labelled rows in the stage `validate`."""
    source_weights: Mapping[str, float] = field(default_factory=dict)
    """With several sources, how much each one's score counts: a table by party; 1 by default."""
    secret_start: bool = True
    """`false` draws first weights from the run's seed, so that a run repeats; partners then know them, and the guard
    counts columns."""
    checkpoint_every: int = 1
    """Iterations between checkpoints."""

    REPLACED: ClassVar[Mapping[str, str]] = {
        "optimiser": "Write optimizer.",
        "optimiser_options": "Write optimizer_options.",
    }

    def __post_init__(self) -> None:
        at_least(self, 0, "trained_layers", "labelled_rows", "batch_size", "loss_every", "pretrain_epochs")
        at_least(self, 1, "width", "iterations", "checkpoint_every")
        at_least(self, 2, "folds")
        for name in ("gamma", "decay", "tolerance", "reconstruction", "noise", "guard"):
            if not 0.0 <= getattr(self, name) < float("inf"):
                raise ConfigError(f"config.{name} must be a number of at least 0. Got {getattr(self, name)} instead.")
        for width in (self.width, *self.hidden):
            if not 1 <= width <= _WIDEST:
                raise ConfigError(f"config.width and config.hidden must be 1 to {_WIDEST}. Got {width} instead.")
        if not self.learning_rate > 0.0:
            raise ConfigError(f"config.learning_rate must be above 0. Got {self.learning_rate} instead.")
        if self.trained_layers > len(self.hidden) + 1:
            raise ConfigError(
                f"config.trained_layers is {self.trained_layers}, but the encoder has {len(self.hidden) + 1} layers."
            )
        if self.gamma > _MOST_GAMMA:
            raise ConfigError(f"config.gamma must be at most {_MOST_GAMMA}. Got {self.gamma} instead.")
        if self.guard < 1.0:
            raise ConfigError(
                "config.guard must be at least 1. To go without it, set allow_leak = true; that is noted."
            )
        if not self.gamma and self.is_sealed and not self.allow_leak:
            raise ConfigError(
                "config.gamma = 0 leaves nothing but labels in the target's gradients, so that it could work them out. "
                "Set it above 0, or allow_leak = true, which is noted."
            )
        if self.noise and (self.protection == "none" or self.reveal == "rows"):
            raise ConfigError("config.noise belongs to protection = 'paillier' and reveal = 'gradients'. Set it to 0.")
        if self.protection == "none" and self.reveal == "rows":
            raise ConfigError("config.reveal = 'rows' has no meaning with protection = 'none'. Leave it out.")
        if any(not 0.0 <= weight < float("inf") for weight in self.source_weights.values()):
            raise ConfigError("config.source_weights must be numbers of at least 0.")

    @property
    def is_sealed(self) -> bool:
        """Tell whether anything is encrypted."""
        return self.protection == "paillier"


def cautions(plan: RunPlan) -> Iterator[str]:
    """Say what a run gives away beside what its messages do."""
    if plan.config["protection"] == "none":
        yield (
            "Not encrypted: what this method encrypts crossed in the clear, and its receivers could read it "
            "(protection = 'none'). For research only."
        )
    if plan.config["reveal"] == "rows":
        yield (
            "Rows revealed: the source sees the target's codes, and the target can tell every label used (reveal = "
            "'rows'). This is not what the paper protects."
        )
    yield from known_start(plan, "A party can solve its first gradients for the other's columns of shared rows.")
