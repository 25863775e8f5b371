"""One party's encoder: from its columns to a code in the common space. No session here.

The last layers are linear with an element-wise activation; the encrypted back-propagation reaches these. Whatever lies
before them is a body that learns only while the party pre-trains alone.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.errors import ConfigError
from colonnade.methods.ftl.config import FTL
from colonnade.nn import Learner, mlp
from colonnade.nn.draws import seeded_generator

__all__ = ["LARGEST_INPUT", "Apprentice", "Encoder", "Layers", "build_encoder"]

Numbers = npt.NDArray[np.float64]

LARGEST_INPUT = 10.0
"""Encoded columns are cut off here, in standard deviations."""

_PRETRAIN_BATCH, _PRETRAIN_RATE = 128, 1e-3
_FITTING = {nn.Sigmoid: "sigmoid", nn.Tanh: "tanh", nn.ReLU: "relu", nn.Identity: "identity"}
_BOUNDED = ("sigmoid", "tanh")


@dataclass(frozen=True)
class Layers:
    """What the trained layers gave for some rows: activations, with a column of ones, and slopes."""

    codes: Numbers
    inputs: list[Numbers]
    """The inputs of each trained layer, first to last, and ones for its bias."""
    slopes: list[Numbers]
    """The derivative of each trained layer's activation."""

    @classmethod
    def of(cls, activations: Sequence[Numbers], kinds: Sequence[str]) -> Layers:
        """Take apart the inputs of the first trained layer and the outputs of all of them."""
        inputs = [np.hstack([one, np.ones((len(one), 1))]) for one in activations[:-1]]
        return cls(activations[-1], inputs, list(map(_slope, kinds, activations[1:])))

    def take(self, rows: npt.NDArray[np.int64]) -> Layers:
        """Return the same for some of the rows."""
        return Layers(self.codes[rows], [one[rows] for one in self.inputs], [one[rows] for one in self.slopes])


class Encoder(nn.Module):
    """A frozen body, if there is one, and layers that learn together with the other party.

    Without such layers the body learns itself: then gradients at the codes must be known, not only those of parameters.
    """

    def __init__(self, body: nn.Module | None, linears: Sequence[nn.Linear], kinds: Sequence[str]) -> None:
        super().__init__()
        self.body = body if body is not None else nn.Identity()
        self.linears = nn.ModuleList(linears)
        self.kinds = tuple(kinds)
        self.freeze()

    @property
    def _stack(self) -> tuple[nn.Linear, ...]:
        return tuple(cast(nn.Linear, linear) for linear in self.linears)

    def freeze(self) -> None:
        """Leave the body out of training, if there are layers after it."""
        for parameter in self.body.parameters():
            parameter.requires_grad_(not self._stack)

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """Return the codes."""
        values: torch.Tensor = self.body(rows)
        for linear, kind in zip(self.linears, self.kinds, strict=True):
            values = _activate(kind, linear(values))
        return values

    def layers(self, rows: Numbers) -> Layers:
        """Return codes, activations and slopes of some rows."""
        with torch.no_grad():
            values = self.body(torch.from_numpy(rows))
            found = [values]
            for linear, kind in zip(self.linears, self.kinds, strict=True):
                found.append(_activate(kind, linear(found[-1])))
        return Layers.of([one.numpy() for one in found], self.kinds)

    def codes(self, rows: Numbers) -> Numbers:
        """Return the codes of some rows."""
        with torch.no_grad():
            codes: Numbers = self(torch.from_numpy(rows)).numpy()
        return codes

    @property
    def widths(self) -> tuple[int, ...]:
        """Return how many inputs each trained layer has."""
        return tuple(linear.in_features for linear in self._stack)

    @property
    def weights(self) -> list[Numbers]:
        """Return the trained layers' weights, outputs by inputs, without their biases."""
        return [linear.weight.detach().numpy() for linear in self._stack]

    def squared_weights(self) -> float:
        """Return the sum of all trained weights' squares; biases do not count."""
        return float(sum(weights.detach().square().sum() for weights in self._decaying))

    def add_gradients(self, gradients: Sequence[Numbers], scale: float) -> None:
        """Add gradients of the trained layers, each outputs by inputs and a last column for the bias."""
        for linear, gradient in zip(self._stack, gradients, strict=True):
            whole = torch.from_numpy(np.ascontiguousarray(gradient)) * scale
            _add(linear.weight, whole[:, :-1])
            _add(linear.bias, whole[:, -1])

    def add_row_gradients(self, rows: Numbers, signals: Numbers, scale: float) -> None:
        """Go on backwards from gradients at the codes."""
        if len(rows):
            (self(torch.from_numpy(rows)) * torch.from_numpy(signals * scale)).sum().backward()

    def add_decay(self, decay: float) -> None:
        """Pull the weights, not the biases, towards zero."""
        for weights in self._decaying:
            _add(weights, decay * weights.detach())

    @property
    def _decaying(self) -> list[torch.Tensor]:
        if self._stack:
            return [linear.weight for linear in self._stack]
        return [parameter for parameter in self.body.parameters() if parameter.ndim > 1]

    def jacobian_sums(self, rows: Numbers, cotangents: Iterable[Numbers]) -> list[Numbers]:
        """Return, for every set of weights over rows and code entries, the weighted sum of the codes' derivatives.

        ``cotangents`` are pieces of sets by rows by code entries. One array for each trained layer but the last: sets
        by parameters, a layer's parameters in the order of `add_gradients`.
        """
        below = self._stack[:-1]
        parameters = [one for linear in below for one in (linear.weight, linear.bias)]
        codes = self(torch.from_numpy(rows))
        found: list[list[torch.Tensor]] = [[] for _ in below]
        for piece in cotangents:
            made = torch.autograd.grad(
                codes, parameters, torch.from_numpy(piece), is_grads_batched=True, retain_graph=True
            )
            for layer, (weight, bias) in enumerate(zip(made[::2], made[1::2], strict=True)):
                found[layer].append(torch.cat([weight, bias[:, :, None]], dim=2).reshape(len(piece), -1))
        return [torch.cat(pieces).numpy() for pieces in found]


def build_encoder(config: FTL, party: str, inputs: int, seed: int, module: nn.Module | None) -> Encoder:
    """Return a party's encoder: the configured layers, or the user's own module taken apart."""
    if module is None:
        stack = mlp(
            (inputs, *config.hidden, config.width),
            seed=seed,
            activation=config.activation,
            activate_output=True,
            dtype=torch.float64,
        )
    else:
        own = copy.deepcopy(module).to(torch.float64)
        if not isinstance(own, nn.Sequential):
            own = nn.Sequential(own)
        stack = own
    encoder = _take_apart(stack, config)
    if not encoder.widths and config.is_sealed and config.reveal == "gradients":
        raise ConfigError(
            f"The encoder of '{party}' must be an nn.Sequential that ends with nn.Linear (with a bias) and nn.Sigmoid "
            "or nn.Tanh, so that gradients can be computed on ciphertexts. Layers of nn.Linear with nn.Sigmoid, "
            "nn.Tanh, nn.ReLU or nn.Identity right before them learn too; whatever comes earlier stays as it is."
        )
    try:
        with torch.no_grad():
            found = encoder(torch.zeros(2, inputs, dtype=torch.float64))
    except RuntimeError as error:
        raise ConfigError(
            f"The module of '{party}' cannot take its {inputs} encoded columns. Give it that many inputs."
        ) from error
    if found.shape != (2, config.width):
        raise ConfigError(f"The module of '{party}' must give {config.width} numbers per row: config.width.")
    return encoder


class Apprentice:
    """An encoder under training, and the decoder that asks it to keep what its rows say."""

    def __init__(self, config: FTL, encoder: Encoder, rows: Numbers, seed: int) -> None:
        self.encoder, self._rows, self._weight = encoder, torch.from_numpy(rows), config.reconstruction
        self._epochs, self._seed = config.pretrain_epochs, seed
        self.columns = rows.shape[1]
        modules: dict[str, nn.Module] = {"encoder": encoder}
        if self._weight or self._epochs:
            self._decoder = mlp((config.width, rows.shape[1]), seed=seed, dtype=torch.float64)
            modules["decoder"] = self._decoder
        self.learner = Learner(modules, config.optimizer, config.learning_rate, config.optimizer_options)

    def anew(self, config: FTL) -> Apprentice:
        """Return the same encoder with a fresh optimizer and decoder."""
        return Apprentice(config, self.encoder, self._rows.numpy(), self._seed)

    def pretrain(self) -> None:
        """Prepare the whole encoder, its body too, on the party's own rows."""
        if not self._epochs:
            return
        for parameter in self.encoder.parameters():
            parameter.requires_grad_(True)
        learner = Learner({"encoder": self.encoder, "decoder": self._decoder}, "Adam", _PRETRAIN_RATE, {})
        generator = seeded_generator(self._seed)
        for _ in range(self._epochs):
            order = torch.randperm(len(self._rows), generator=generator)
            for start in range(0, len(order), _PRETRAIN_BATCH):
                batch = order[start : start + _PRETRAIN_BATCH]
                learner.zero_gradients()
                self._error(self._rows[batch]).backward()  # type: ignore[no-untyped-call]
                learner.step()
        learner.zero_gradients()
        self.encoder.freeze()

    def rebuild(self) -> float:
        """Add the gradient of the auto-encoder's loss, which needs no other party, and return that loss."""
        if not self._weight:
            return 0.0
        loss = self._weight * self._error(self._rows)
        loss.backward()  # type: ignore[no-untyped-call]
        return float(loss.detach())

    def weights(self) -> dict[str, torch.Tensor]:
        """Return the encoder's weights; the decoder has served its time."""
        return {name: value for name, value in self.learner.weights().items() if not name.startswith("decoder.")}

    def _error(self, rows: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(self._decoder(self.encoder(rows)), rows)


def _take_apart(stack: nn.Sequential, config: FTL) -> Encoder:
    """Divide a stack into a body and the layers that the encrypted back-propagation reaches, if it ends with such."""
    modules, linears, kinds = list(stack), list[nn.Linear](), list[str]()
    while len(modules) >= 2 and isinstance(modules[-2], nn.Linear) and type(modules[-1]) in _FITTING:
        if config.trained_layers and len(linears) == config.trained_layers:
            break
        kinds.insert(0, _FITTING[type(modules.pop())])
        linears.insert(0, cast(nn.Linear, modules.pop()))
    if not linears or kinds[-1] not in _BOUNDED or any(linear.bias is None for linear in linears):
        return Encoder(stack, (), ())
    return Encoder(nn.Sequential(*modules) if modules else None, linears, kinds)


def _activate(kind: str, values: torch.Tensor) -> torch.Tensor:
    if kind == "identity":
        return values
    return {"sigmoid": torch.sigmoid, "tanh": torch.tanh, "relu": torch.relu}[kind](values)


def _slope(kind: str, values: Numbers) -> Numbers:
    """Return the activation's derivative from its value."""
    if kind == "sigmoid":
        return values * (1.0 - values)
    if kind == "tanh":
        return 1.0 - values**2
    return (values > 0).astype(np.float64) if kind == "relu" else np.ones_like(values)


def _add(parameter: torch.Tensor, gradient: torch.Tensor) -> None:
    parameter.grad = gradient.clone() if parameter.grad is None else parameter.grad + gradient
