"""Federated transfer learning in one process, without any protection: what the product must equal.

Y. Liu, Y. Kang, C. Xing, T. Chen, Q. Yang, "Secure Federated Transfer Learning", 2020, with the
corrections of our sheet. All rows of both parties are here, and torch finds the gradients: there is no protocol.

The mathematics has two encoders. One belongs to the party that has labels: the mean of its codes, weighted by the
centred labels, is the translator Φ. The other party's codes are scored with it: φ = (u − mean of the labelled party's
codes) Φ'. Transfer cross-validation swaps the two, so nothing here says "source" or "target".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

__all__ = ["Curve", "Encoder", "Model", "Rows", "Settings", "train"]

Array: TypeAlias = npt.NDArray[Any]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. Weights are those of mean losses, so they do not depend on how many rows there are."""

    widths: tuple[int, ...] = (32,)  # of the encoder's layers; the last one is the paper's d
    loss: Literal["taylor", "logistic", "squared"] = "taylor"
    alignment: Literal["distance", "dot"] = "distance"
    alignment_weight: float = 0.1  # the paper's γ times pairs over labelled rows
    weight_decay: float = 0.001  # the paper's λ over labelled rows; biases are left alone
    learning_rate: float = 0.01
    iterations: int = 100
    batch_size: int | None = None  # of the pairs; the translator always sees all rows
    # Scores without the offset are all of one sign where codes are: see section 8 of the sheet.
    offset: Literal["gradient", "detached", "prediction", "none"] = "gradient"
    centres_labels: bool = True
    pretraining_epochs: int = 0
    autoencoder_weight: float = 0.0
    seed: int = 0


@dataclass(frozen=True)
class Rows:
    """One party's training rows, and those of them whose labels may be used: numbers (+1, -1), a column per class."""

    columns: Array
    labelled: Array
    labels: Array


class Encoder:
    """Sigmoid layers in double precision, with Glorot's initial weights and no initial bias."""

    def __init__(self, columns: int, widths: tuple[int, ...], generator: torch.Generator) -> None:
        self.weights: list[Tensor] = []
        self.biases: list[Tensor] = []
        for inputs, outputs in zip((columns, *widths[:-1]), widths, strict=True):
            limit = math.sqrt(6 / (inputs + outputs))
            drawn = torch.rand(inputs, outputs, generator=generator, dtype=torch.float64)
            self.weights.append(((2 * drawn - 1) * limit).requires_grad_())
            self.biases.append(torch.zeros(outputs, dtype=torch.float64, requires_grad=True))

    def __call__(self, columns: Tensor) -> Tensor:
        """Return the codes u."""
        for weight, bias in zip(self.weights, self.biases, strict=True):
            columns = torch.sigmoid(columns @ weight + bias)
        return columns

    @property
    def parameters(self) -> list[Tensor]:
        """Return what is trained."""
        return [*self.weights, *self.biases]

    def penalty(self) -> Tensor:
        """Return half the squared weights."""
        return torch.stack([weight.square().sum() for weight in self.weights]).sum() / 2


@dataclass(frozen=True)
class Model:
    """Two encoders and the translator with its offset."""

    labelled: Encoder
    scored: Encoder
    translator: Tensor  # classes x d
    centre: Tensor  # d

    def scores(self, columns: Array) -> Array:
        """Return φ for rows of the scored party: a column per class."""
        with torch.no_grad():
            return ((self.scored(torch.from_numpy(columns)) - self.centre) @ self.translator.T).numpy()


Curve: TypeAlias = Callable[[int, float, Model], None]
"""Called after every iteration with its number, the loss before its step and the model after it."""


def train(
    settings: Settings,
    labelled: Rows,
    scored: Rows,
    pairs: tuple[Array, Array],
    *,
    start: Model | None = None,
    watch: Curve | None = None,
) -> Model:
    """Train both encoders; `pairs` are the positions of the same people among the rows of one and of the other."""
    generator = torch.Generator().manual_seed(settings.seed)
    sides = (labelled, scored)
    columns = tuple(torch.from_numpy(side.columns) for side in sides)
    if start is None:
        encoders = tuple(Encoder(part.shape[1], settings.widths, generator) for part in columns)
    else:
        encoders = (start.labelled, start.scored)
    decoders = tuple(_pretrain(*part, settings, generator) for part in zip(encoders, columns, strict=True))
    extra = [value for decoder in decoders for value in decoder] if settings.autoencoder_weight else []
    parameters = [*encoders[0].parameters, *encoders[1].parameters]
    optimiser = torch.optim.Adam([*parameters, *extra], lr=settings.learning_rate)

    known, labels = torch.from_numpy(labelled.labelled), torch.from_numpy(labelled.labels)
    loss_rows, targets = torch.from_numpy(scored.labelled), torch.from_numpy(scored.labels)
    left, right = torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])

    def translate() -> tuple[Tensor, Tensor, Tensor]:
        codes = encoders[0](columns[0])
        centred = labels - labels.mean(dim=0) if settings.centres_labels else labels
        return codes, centred.T @ codes[known] / len(known), codes[known].mean(dim=0)

    def step(chosen: Tensor, rows: Tensor, wanted: Tensor) -> float:
        optimiser.zero_grad()
        codes, translator, centre = translate()
        subtracted = {"gradient": centre, "detached": centre.detach()}.get(settings.offset, torch.zeros_like(centre))
        scores = (encoders[1](columns[1][rows]) - subtracted) @ translator.T
        loss = _loss(settings.loss, wanted, scores)
        if settings.alignment_weight and len(chosen):
            apart = _alignment(settings.alignment, codes[left[chosen]], encoders[1](columns[1][right[chosen]]))
            loss = loss + settings.alignment_weight * apart
        loss = loss + settings.weight_decay * (encoders[0].penalty() + encoders[1].penalty())
        if settings.autoencoder_weight:
            errors = [_rebuilding_error(*part) for part in zip(encoders, decoders, columns, strict=True)]
            loss = loss + settings.autoencoder_weight * torch.stack(errors).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        return float(loss.detach())

    def model() -> Model:
        with torch.no_grad():
            _, translator, centre = translate()
        return Model(*encoders, translator, torch.zeros_like(centre) if settings.offset == "none" else centre)

    for iteration in range(settings.iterations):
        chosen, rows = torch.arange(len(left)), torch.arange(len(loss_rows))
        if settings.batch_size is not None:
            chosen = torch.randperm(len(left), generator=generator)[: settings.batch_size]
            share = max(1, round(settings.batch_size * len(loss_rows) / len(left)))
            rows = torch.randperm(len(loss_rows), generator=generator)[:share]
        loss = step(chosen, loss_rows[rows], targets[rows])
        if watch is not None:
            watch(iteration + 1, loss, model())
    return model()


def _loss(name: str, labels: Tensor, scores: Tensor) -> Tensor:
    """Return the mean over rows of the loss, summed over classes."""
    if name == "taylor":
        values = math.log(2) - labels * scores / 2 + scores.square() / 8
    elif name == "logistic":
        values = torch.nn.functional.softplus(-labels * scores)
    else:
        values = (labels - scores).square() / 2
    return values.sum(dim=1).mean()


def _alignment(name: str, left: Tensor, right: Tensor) -> Tensor:
    values = (left - right).square() if name == "distance" else -left * right
    return values.sum(dim=1).mean()


def _pretrain(encoder: Encoder, columns: Tensor, settings: Settings, generator: torch.Generator) -> list[Tensor]:
    """Train an encoder to rebuild its columns, and return the decoder's layers: a weight and a bias in turn."""
    decoder: list[Tensor] = []
    for weight in reversed(encoder.weights):
        outputs, inputs = weight.shape
        limit = math.sqrt(6 / (inputs + outputs))
        drawn = torch.rand(inputs, outputs, generator=generator, dtype=torch.float64)
        decoder.append(((2 * drawn - 1) * limit).requires_grad_())
        decoder.append(torch.zeros(outputs, dtype=torch.float64, requires_grad=True))
    optimiser = torch.optim.Adam([*encoder.parameters, *decoder], lr=1e-3)
    for _ in range(settings.pretraining_epochs):
        for batch in torch.randperm(len(columns), generator=generator).split(128):
            optimiser.zero_grad()
            _rebuilding_error(encoder, decoder, columns[batch]).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
    return decoder


def _rebuilding_error(encoder: Encoder, decoder: list[Tensor], columns: Tensor) -> Tensor:
    hidden = encoder(columns)
    layers = list(zip(decoder[::2], decoder[1::2], strict=True))
    for weight, bias in layers[:-1]:
        hidden = torch.sigmoid(hidden @ weight + bias)
    weight, bias = layers[-1]
    return (hidden @ weight + bias - columns).square().mean()


def signs(labels: Array) -> Array:
    """Return labels 0 and 1 as one column of -1 and +1."""
    return np.where(np.asarray(labels) == 1, 1.0, -1.0)[:, None]
