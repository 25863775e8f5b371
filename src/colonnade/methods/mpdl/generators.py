"""What generates the others' columns from a party's own: a ridge regression, a perceptron, or the columns' mean."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from colonnade.methods.mpdl.config import MPDL
from colonnade.nn import Learner, mlp

__all__ = ["Generator", "Mean", "Perceptron", "Ridge", "empty_generator", "r_squared"]

_HELD_OUT = 5
_FEW_ROWS = 10


class Generator(Protocol):
    """Gives others' columns, in unit space, for standardised rows of a party's own."""

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return generated columns, clipped to where columns can be."""

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything that learning goes on from."""

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return what it has learned."""

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up what `tensors` returned."""


class _Fitted(ABC):
    """What is learned in one go: its state is what it has learned."""

    @abstractmethod
    def tensors(self) -> dict[str, torch.Tensor]: ...

    @abstractmethod
    def load(self, tensors: Mapping[str, torch.Tensor]) -> None: ...

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything that learning goes on from."""
        return self.tensors(), {}

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.load(tensors)


class Mean(_Fitted):
    """Gives every row the columns' mean: what a generator must beat."""

    def __init__(self, outputs: int, *, is_bounded: bool = True) -> None:
        self._mean = torch.zeros(outputs, dtype=torch.float64)
        self._is_bounded = is_bounded

    def fit(self, targets: torch.Tensor) -> None:
        """Take the mean of what is there."""
        self._mean = _means(targets)

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the mean for every row."""
        return _within(self._mean, self._is_bounded).expand(len(inputs), -1).to(inputs.dtype)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the mean."""
        return {"mean": self._mean}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set the mean."""
        self._mean = tensors["mean"]


class Ridge(_Fitted):
    """A linear map with a penalty that is picked on a fifth of the rows."""

    def __init__(self, inputs: int, outputs: int, *, is_bounded: bool = True) -> None:
        self._is_bounded = is_bounded
        self._weights = torch.zeros(inputs, outputs, dtype=torch.float64)
        self._offset = torch.zeros(outputs, dtype=torch.float64)

    def fit(self, inputs: torch.Tensor, targets: torch.Tensor, penalties: tuple[float, ...], seed: int) -> None:
        """Learn from rows; missing targets are NaN."""
        rows = inputs.double()
        order = torch.from_numpy(np.random.default_rng(seed).permutation(len(rows)))
        held_out, learned = order[: len(rows) // _HELD_OUT], order[len(rows) // _HELD_OUT :]
        penalty = max(penalties)
        if len(rows) >= _FEW_ROWS:
            tried = _solutions(rows[learned], targets[learned], penalties)
            errors = [_squared_error(rows[held_out] @ weights + offset, targets[held_out]) for weights, offset in tried]
            penalty = penalties[int(np.argmin(errors))]
        ((self._weights, self._offset),) = _solutions(rows, targets, (penalty,))

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the map gives, clipped."""
        return _within(inputs.double() @ self._weights + self._offset, self._is_bounded).to(inputs.dtype)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the map."""
        return {"weights": self._weights, "offset": self._offset}

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set the map."""
        self._weights, self._offset = tensors["weights"], tensors["offset"]


class Perceptron:
    """The paper's generator: one hidden layer, trained step by step from gradients at its outputs."""

    def __init__(self, config: MPDL, inputs: int, outputs: int, seed: int) -> None:
        hidden = config.generator_hidden or max(1, (inputs + outputs) // 2)
        self.network: nn.Module = mlp((inputs, hidden, outputs), seed=seed, dtype=torch.float64)
        self.learner = Learner(
            {"network": self.network}, config.generator_optimizer, config.generator_rate, config.generator_options
        )
        self._clip = config.clip_gradient
        self._is_bounded = _is_bounded(config)

    def outputs(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the network gives, to go on backwards from."""
        found: torch.Tensor = self.network(inputs.double())
        return found

    def learn(self, outputs: torch.Tensor, gradient: torch.Tensor) -> None:
        """Take one step along a gradient at the outputs."""
        self.learner.zero_gradients()
        (outputs * gradient).sum().backward()  # type: ignore[no-untyped-call]
        if self._clip:
            self.learner.clip_gradients(self._clip)
        self.learner.step()

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return what the network gives, clipped."""
        with torch.no_grad():
            return _within(self.outputs(inputs), self._is_bounded).to(inputs.dtype)

    def state(self) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Return everything that learning goes on from."""
        return self.learner.state()

    def load_state(self, tensors: Mapping[str, torch.Tensor], document: Mapping[str, Any]) -> None:
        """Take up what `state` returned."""
        self.learner.load_state(tensors, document)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Return the weights."""
        return copy.deepcopy(self.learner.weights())

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Set the weights."""
        self.learner.load_weights(tensors)


def empty_generator(config: MPDL, inputs: int, outputs: int, seed: int = 0) -> Generator:
    """Return a generator that has learned nothing yet."""
    if config.generator == "ridge":
        return Ridge(inputs, outputs, is_bounded=_is_bounded(config))
    if config.generator == "mean":
        return Mean(outputs, is_bounded=_is_bounded(config))
    return Perceptron(config, inputs, outputs, seed)


def _is_bounded(config: MPDL) -> bool:
    """Tell whether columns lie between 0 and 1: a draw that all rows share moves a whole column out of there."""
    return config.mechanism != "lemma_shared"


def _within(values: torch.Tensor, is_bounded: bool) -> torch.Tensor:
    return values.clamp(0.0, 1.0) if is_bounded else values


def r_squared(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    """Return how much of the columns' spread is explained, over all columns together and where there are targets."""
    errors, spread = predicted.double() - targets, targets - _means(targets)
    total = float(torch.nansum(spread**2))
    return 1.0 - float(torch.nansum(errors**2)) / total if total > 0.0 else 0.0


def _solutions(
    inputs: torch.Tensor, targets: torch.Tensor, penalties: tuple[float, ...]
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return weights and offsets for every penalty, from one decomposition for all columns that miss nothing."""
    whole = ~torch.isnan(targets).any(dim=0)
    found = [
        (torch.zeros(inputs.shape[1], targets.shape[1], dtype=torch.float64), torch.zeros_like(targets[0]))
        for _ in penalties
    ]
    groups = [(whole.nonzero()[:, 0], torch.arange(len(inputs)))] if whole.any() else []
    groups += [
        (column[None], (~torch.isnan(targets[:, column])).nonzero()[:, 0]) for column in (~whole).nonzero()[:, 0]
    ]
    for columns, rows in groups:
        if not len(rows):
            continue
        own, wanted = inputs[rows], targets[rows][:, columns]
        center, level = own.mean(dim=0), wanted.mean(dim=0)
        values, vectors = torch.linalg.eigh((own - center).T @ (own - center))
        turned = vectors.T @ ((own - center).T @ (wanted - level))
        for penalty, (weights, offset) in zip(penalties, found, strict=True):
            part = vectors @ (turned / (values.clamp(min=0.0) + penalty * len(rows))[:, None])
            weights[:, columns] = part
            offset[columns] = level - center @ part
    return found


def _squared_error(predicted: torch.Tensor, targets: torch.Tensor) -> float:
    return float(torch.nanmean((predicted - targets) ** 2))


def _means(targets: torch.Tensor) -> torch.Tensor:
    # A column that nobody has a value of lies in the middle.
    return torch.nan_to_num(torch.nanmean(targets.double(), dim=0), nan=0.5)
