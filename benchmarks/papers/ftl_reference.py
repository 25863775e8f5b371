"""Federated transfer learning in one process, without any protection: what the product must equal.

Y. Liu, Y. Kang, C. Xing, T. Chen, Q. Yang, "A Secure Federated Transfer Learning Framework", 2020, with the corrections
of our sheet. All rows of both parties are here, and torch finds the gradients: there is no protocol.

The mathematics has two encoders. One belongs to the party that has labels: the mean of its codes, weighted by the
centred labels, is the translator Φ. The other party's codes are scored with it: φ = (u − mean of the labelled party's
codes) Φ'. Transfer cross-validation swaps the two, so nothing here says "source" or "target".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy.typing as npt
import torch
from torch import Tensor, nn

from colonnade.nn import mlp
from colonnade.session.seeds import derive_seed

__all__ = ["Array", "Curve", "Model", "Rows", "Settings", "auto_encoder", "pretrain", "train"]

Array: TypeAlias = npt.NDArray[Any]

# The purposes for which the product draws initial weights, when its parties are called "source" and "target".
_PURPOSES = ("source", "source/target")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How to train. Weights are those of mean losses, so they do not depend on how many rows there are."""

    widths: tuple[int, ...] = (32,)  # of the encoder's layers; the last one is the paper's d
    loss: Literal["taylor", "logistic", "squared"] = "taylor"
    alignment: Literal["distance", "dot"] = "distance"
    alignment_weight: float = 0.1  # the paper's γ times pairs over labelled rows
    weight_decay: float = 0.001  # the paper's λ over labelled rows; biases are left alone
    learning_rate: float = 0.03
    iterations: int = 30
    batch_size: int | None = None  # of the pairs; the translator always sees all rows
    # Scores without the offset are all of one sign where codes are: see section 8 of the sheet.
    offset: Literal["gradient", "detached", "prediction", "none"] = "gradient"
    centres_labels: bool = True
    pretraining_epochs: int = 0
    # Without it, both encoders may agree on a constant code, which aligns perfectly and says nothing.
    autoencoder_weight: float = 0.1
    seed: int = 0


@dataclass(frozen=True)
class Rows:
    """One party's training rows, and those of them whose labels may be used: numbers (+1, -1), a column per class."""

    columns: Array
    labelled: Array
    labels: Array


@dataclass(frozen=True)
class Model:
    """Two encoders and the translator with its offset."""

    labelled: nn.Sequential
    scored: nn.Sequential
    translator: Tensor  # classes x d
    centre: Tensor  # d

    def scores(self, columns: Array) -> Array:
        """Return φ for rows of the scored party: a column per class."""
        with torch.no_grad():
            codes = self.scored(torch.from_numpy(columns))
            scores: Array = ((codes - self.centre) @ self.translator.T).numpy()
        return scores


Curve: TypeAlias = Callable[[int, float, Model], None]
"""Called after every iteration with its number, the loss before its step and the model after it."""


def auto_encoder(settings: Settings, columns: int, side: int) -> tuple[nn.Sequential, nn.Sequential]:
    """Return a party's encoder and decoder: 0 is the labelled party's, 1 the scored one's."""
    encoder_seed, decoder_seed = (
        derive_seed(settings.seed, f"{what}/{_PURPOSES[side]}") for what in ("encoder", "decoder")
    )
    widths = (columns, *settings.widths)
    encoder = mlp(widths, seed=encoder_seed, activation="sigmoid", activate_output=True, dtype=torch.float64)
    return encoder, mlp((settings.widths[-1], columns), seed=decoder_seed, dtype=torch.float64)


def pretrain(encoder: nn.Sequential, decoder: nn.Sequential, columns: Tensor, epochs: int, seed: int) -> None:
    """Train an encoder to keep what its columns say."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=1e-3)
    for _ in range(epochs):
        order = torch.randperm(len(columns), generator=generator)
        for start in range(0, len(order), 128):
            optimizer.zero_grad()
            _rebuilding_error(encoder, decoder, columns[order[start : start + 128]]).backward()  # type: ignore[no-untyped-call]
            optimizer.step()


def train(
    settings: Settings,
    labelled: Rows,
    scored: Rows,
    pairs: tuple[Array, Array],
    *,
    start: Model | None = None,
    watch: Curve | None = None,
) -> Model:
    """Train both encoders; `pairs` are the positions of the same people among the rows of one and of the other.

    With `start` its encoders go on learning, in place.
    """
    columns = tuple(torch.from_numpy(side.columns) for side in (labelled, scored))
    encoders, decoders = zip(
        *(auto_encoder(settings, part.shape[1], side) for side, part in enumerate(columns)), strict=True
    )
    if start is not None:
        encoders = (start.labelled, start.scored)
    for part in zip(encoders, decoders, columns, strict=True):
        pretrain(*part, settings.pretraining_epochs, settings.seed)
    modules = (*encoders, *(decoders if settings.autoencoder_weight else ()))
    optimizer = torch.optim.Adam([one for module in modules for one in module.parameters()], lr=settings.learning_rate)
    generator = torch.Generator().manual_seed(settings.seed)

    known, labels = torch.from_numpy(labelled.labelled), torch.from_numpy(labelled.labels)
    loss_rows, targets = torch.from_numpy(scored.labelled), torch.from_numpy(scored.labels)
    left, right = torch.from_numpy(pairs[0]), torch.from_numpy(pairs[1])

    def translate() -> tuple[Tensor, Tensor, Tensor]:
        codes = encoders[0](columns[0])
        centred = labels - labels.mean(dim=0) if settings.centres_labels else labels
        return codes, centred.T @ codes[known] / len(known), codes[known].mean(dim=0)

    def step(chosen: Tensor, rows: Tensor, wanted: Tensor) -> float:
        optimizer.zero_grad()
        codes, translator, centre = translate()
        subtracted = {"gradient": centre, "detached": centre.detach()}.get(settings.offset, torch.zeros_like(centre))
        scores = (encoders[1](columns[1][rows]) - subtracted) @ translator.T
        loss = _loss(settings.loss, wanted, scores)
        if settings.alignment_weight and len(chosen):
            apart = _alignment(settings.alignment, codes[left[chosen]], encoders[1](columns[1][right[chosen]]))
            loss = loss + settings.alignment_weight * apart
        loss = loss + settings.weight_decay * (_penalty(encoders[0]) + _penalty(encoders[1]))
        if settings.autoencoder_weight:
            errors = [_rebuilding_error(*part) for part in zip(encoders, decoders, columns, strict=True)]
            loss = loss + settings.autoencoder_weight * torch.stack(errors).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        return float(loss.detach())

    def model() -> Model:
        with torch.no_grad():
            _, translator, centre = translate()
        centre = torch.zeros_like(centre) if settings.offset == "none" else centre
        return Model(encoders[0], encoders[1], translator, centre)

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
        values = nn.functional.softplus(-labels * scores)
    else:
        values = (labels - scores).square() / 2
    return values.sum(dim=1).mean()


def _alignment(name: str, left: Tensor, right: Tensor) -> Tensor:
    values = (left - right).square() if name == "distance" else -left * right
    return values.sum(dim=1).mean()


def _penalty(encoder: nn.Sequential) -> Tensor:
    """Return half the squared weights."""
    weights = [layer.weight for layer in encoder if isinstance(layer, nn.Linear)]
    return torch.stack([weight.square().sum() for weight in weights]).sum() / 2


def _rebuilding_error(encoder: nn.Sequential, decoder: nn.Sequential, columns: Tensor) -> Tensor:
    return nn.functional.mse_loss(decoder(encoder(columns)), columns)
