"""CoAE: labels are disguised by a secret auto-encoder before anything is trained on them.

Y. Liu et al., "Batch label inference and replacement attacks in black-boxed vertical federated learning",
arXiv:2112.05409. The encoder turns each class into a soft code, the network learns the codes, and the decoder turns its
outputs back into classes. Both stay with the label holder. The paper means it against labels inferred from averaged
gradients; here it is against model completion, in which a partner fits a head to its own outputs. We have not measured
how much it helps there.

Each class has one code. So who sees gradients can still tell which rows belong together, and with two classes that is
the label up to its name. Combine it with MARVELL; by itself it means something for four classes and more.
"""

from __future__ import annotations

import hashlib
import hmac
import math
from collections.abc import Mapping

import torch

from colonnade.errors import CheckpointBroken, ConfigError, TrainingFailed

__all__ = ["MOST_CLASSES", "LabelDisguise"]

MOST_CLASSES = 20
"""With more, the auto-encoder takes too long to train."""

# Two layers of the encoder, two of the decoder.
_NAMES = tuple(
    f"{half}.{layer}.{kind}" for half in ("encoder", "decoder") for layer in "01" for kind in ("weight", "bias")
)
_WIDEST = 1296
# A code this sure of one class is that class by another name. Codes this close no network tells apart.
_SUREST, _CLOSEST, _DECODED = 0.9, 0.02, 0.99
_ATTEMPTS = 5


class LabelDisguise:
    """An encoder of classes into soft codes, and its decoder."""

    def __init__(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Take trained weights; `train` and `from_state` make them."""
        self._weights = [weights[name] for name in _NAMES]
        self.classes = len(self._weights[0])

    def __repr__(self) -> str:
        return f"LabelDisguise({self.classes} classes)"

    @classmethod
    def train(
        cls,
        classes: int,
        key: bytes,
        *,
        contrast: float = 0.0,
        entropy: float = 0.5,
        learning_rate: float = 2e-3,
        steps: int = 3000,
        keep_renaming: bool = False,
    ) -> LabelDisguise:
        """Train a disguise from a secret key, and again from another start if the code is of no use.

        ``contrast`` is the paper's weight on codes unlike the class itself, ``entropy`` that on codes unlike any class.
        With two classes and a contrast above 0 the code ends as an exchange of the two, which hides nothing; that is
        refused unless ``keep_renaming``, which is for tests. The key must not follow from the run's seed: partners know
        it. Takes seconds.
        """
        if not 2 <= classes <= MOST_CLASSES:
            raise ConfigError(f"CoAE disguises labels of 2 to {MOST_CLASSES} classes; these have {classes}.")
        flaw = ""
        for attempt in range(_ATTEMPTS):
            seed = hmac.digest(key, b"colonnade label disguise %d" % attempt, hashlib.sha256)
            generator = torch.Generator().manual_seed(int.from_bytes(seed[:8], "little") >> 1)
            disguise = cls(_fit(classes, generator, contrast, entropy, learning_rate, steps))
            flaw = disguise._flaw(keep_renaming)
            if not flaw:
                return disguise
        raise TrainingFailed(
            f"The label disguise (CoAE) cannot be used after {_ATTEMPTS} attempts: {flaw}. "
            "Use the defence marvell without coae."
        )

    def encode(self, targets: torch.Tensor) -> torch.Tensor:
        """Return the codes of rows of class probabilities, such as one-hot ones."""
        with torch.no_grad():
            return _half(targets.double(), self._weights[:4]).exp()

    def decode(self, probabilities: torch.Tensor) -> torch.Tensor:
        """Return class probabilities for a network's probabilities of codes."""
        with torch.no_grad():
            return _half(probabilities.double(), self._weights[4:]).exp()

    @property
    def codes(self) -> torch.Tensor:
        """Return the code of every class, one per row. Keep it secret."""
        return self.encode(torch.eye(self.classes, dtype=torch.float64))

    @property
    def warnings(self) -> tuple[str, ...]:
        """Say what this disguise does not do."""
        found = []
        if self._is_renaming:
            what = "an exchange (swap) of the two classes" if self.classes == 2 else "a renaming of the classes"
            found.append(f"The label disguise is {what} and hides nothing.")
        if self.classes == 2:
            found.append(
                "With two classes every code stands for one class, so the sign of a slope still splits the rows by "
                "label. Combine coae with marvell."
            )
        elif self.classes == 3:
            found.append("With three classes a label disguise leaves few ways to name groups of rows: weak by itself.")
        return tuple(found)

    def state(self) -> dict[str, torch.Tensor]:
        """Return the weights, for a checkpoint or a model's part. They are as secret as the labels."""
        return dict(zip(_NAMES, self._weights, strict=True))

    @classmethod
    def from_state(cls, tensors: Mapping[str, torch.Tensor]) -> LabelDisguise:
        """Take up what `state` returned."""
        if not set(_NAMES) <= tensors.keys():
            raise CheckpointBroken("The weights of the label disguise are missing. Restore the files or run again.")
        return cls(tensors)

    @property
    def _is_renaming(self) -> bool:
        return bool((self.codes.max(dim=1).values > _SUREST).any())

    def _flaw(self, keep_renaming: bool) -> str:
        """Return what is wrong with the code, or nothing."""
        codes = self.codes
        distances = torch.cdist(codes, codes, p=1.0) + torch.eye(self.classes)
        if not bool((distances > _CLOSEST).all()):
            return "two classes have the same code"
        if not bool((self.decode(codes).diagonal() > _DECODED).all()):
            return "codes are not decoded exactly"
        if self._is_renaming and not keep_renaming:
            return "the code is only another name of a class"
        return ""


def _half(values: torch.Tensor, weights: list[torch.Tensor]) -> torch.Tensor:
    """Return the logarithms of an encoder's or decoder's outputs."""
    first, first_bias, second, second_bias = weights
    return torch.log_softmax(torch.relu(values @ first + first_bias) @ second + second_bias, dim=1)


def _fit(
    classes: int, generator: torch.Generator, contrast: float, entropy: float, learning_rate: float, steps: int
) -> dict[str, torch.Tensor]:
    """Train both halves on one row per class by Adam, written out: torch's own would load its compiler for it."""
    hidden = min((6 * classes) ** 2, _WIDEST)
    weights = []
    for inputs, outputs in ((classes, hidden), (hidden, classes)) * 2:
        for shape in ((inputs, outputs), (outputs,)):
            draw = torch.rand(shape, generator=generator, dtype=torch.float64)
            weights.append(((2.0 * draw - 1.0) / math.sqrt(inputs)).requires_grad_())
    first, second = ([torch.zeros_like(weight) for weight in weights] for _ in range(2))
    wanted = torch.eye(classes, dtype=torch.float64)
    for step in range(1, steps + 1):
        log_codes = _half(wanted, weights[:4])
        codes = log_codes.exp()
        loss = -(wanted * _half(codes, weights[4:])).sum(1).mean()
        loss = loss + contrast * (wanted * log_codes).sum(1).mean() + entropy * (codes * log_codes).sum(1).mean()
        gradients = torch.autograd.grad(loss, weights)
        with torch.no_grad():
            for weight, gradient, mean, square in zip(weights, gradients, first, second, strict=True):
                mean.mul_(0.9).add_(gradient, alpha=0.1)
                square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                length = (square / (1.0 - 0.999**step)).sqrt_().add_(1e-8)
                weight.addcdiv_(mean, length, value=-learning_rate / (1.0 - 0.9**step))
    return dict(zip(_NAMES, (weight.detach() for weight in weights), strict=True))
