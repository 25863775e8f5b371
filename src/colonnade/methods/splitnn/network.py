"""The parts of a split network and how each is built, saved and rebuilt. No session here."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from colonnade.data import PartyTable, TableEncoder
from colonnade.errors import CheckpointBroken, ConfigError
from colonnade.methods.splitnn.config import PartyEncoder, SplitNN, check_weights
from colonnade.nn import mlp
from colonnade.privacy import LabelDisguise

__all__ = [
    "build_encoder",
    "build_head",
    "dtype_of",
    "encode",
    "load_into",
    "merge",
    "outputs_for",
    "rebuild_encoder",
    "scores_of",
    "width_of",
]

_DTYPES = {"float32": torch.float32, "float64": torch.float64}


def dtype_of(config: SplitNN) -> torch.dtype:
    """Return the precision of all arithmetic."""
    return _DTYPES[config.precision]


def build_encoder(config: SplitNN, party: str, inputs: int, seed: int, module: nn.Module | None) -> nn.Module:
    """Return a party's encoder: the configured perceptron, or a copy of the user's own module."""
    if module is not None:
        return copy.deepcopy(module).to(dtype_of(config))
    shape: PartyEncoder = config.encoder_of(party)
    widths = (inputs, *shape.hidden, shape.cut_width)
    check_weights(f"The encoder of '{party}'", widths, "hidden or cut_width, or drop columns of many categories")
    return mlp(
        widths,
        seed=seed,
        activation=config.activation,
        dropout=config.dropout,
        activate_output=True,
        dtype=dtype_of(config),
    )


def rebuild_encoder(config: SplitNN, party: str, inputs: int, is_custom: bool, module: nn.Module | None) -> nn.Module:
    """Return the untrained encoder that a saved part's weights fit into."""
    if is_custom and module is None:
        raise ConfigError(
            f"The encoder of '{party}' is a module of your own. Pass it again as modules={{'{party}': …}} to predict."
        )
    if not is_custom and module is not None:
        raise ConfigError(f"The encoder of '{party}' was built from the settings. Do not pass a module for it.")
    return build_encoder(config, party, inputs, 0, module)


def build_head(config: SplitNN, cuts: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """Return the head over all parties' activations, whose widths are given."""
    if not cuts:
        raise ConfigError(
            "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
        )
    if config.merge == "sum" and len(set(cuts)) > 1:
        raise ConfigError(
            f"config.merge = 'sum' needs the same cut width at every party; the widths are {list(cuts)}. "
            "Set the same cut_width everywhere, or merge = 'concatenate'."
        )
    merged = cuts[0] if config.merge == "sum" else sum(cuts)
    widths = (merged, *config.head_hidden, outputs)
    check_weights("The head", widths, "head_hidden or cut_width")
    return mlp(
        widths,
        seed=seed,
        activation=config.activation,
        dropout=config.dropout,
        dtype=dtype_of(config),
    )


def merge(config: SplitNN, activations: Sequence[torch.Tensor]) -> torch.Tensor:
    """Join the parties' activations at the cut."""
    if len(activations) == 1:
        return activations[0]
    return torch.stack(tuple(activations)).sum(0) if config.merge == "sum" else torch.cat(tuple(activations), dim=1)


def encode(config: SplitNN, encoder: TableEncoder, table: PartyTable, positions: Any) -> torch.Tensor:
    """Return a table's rows as the numbers a network takes."""
    return torch.from_numpy(encoder.transform(table, positions, dtype=np.dtype(config.precision).type))


def width_of(encoder: nn.Module, party: str, features: torch.Tensor) -> int:
    """Return how many numbers an encoder gives per row, by trying it."""
    encoder.eval()
    try:
        with torch.no_grad():
            tried = encoder(features[:2])
    except RuntimeError as error:
        raise ConfigError(
            f"The module of '{party}' cannot take its {features.shape[1]} encoded columns. Give it that many inputs."
        ) from error
    if tried.ndim != 2 or len(tried) != len(features[:2]) or tried.dtype != features.dtype:
        raise ConfigError(f"The module of '{party}' must return one row of {features.dtype} numbers per row of input.")
    return int(tried.shape[1])


def outputs_for(task: str, classes: int) -> int:
    """Return how many numbers the head gives."""
    return classes if task == "multiclass" else 1


def scores_of(task: str, outputs: torch.Tensor, disguise: LabelDisguise | None = None) -> np.ndarray[Any, Any]:
    """Turn the head's outputs into probabilities of classes, or leave them as standardised predictions."""
    outputs = outputs.double()
    if task == "multiclass":
        probabilities = outputs.softmax(1)
        return (probabilities if disguise is None else disguise.decode(probabilities)).numpy()
    values = outputs.squeeze(1)
    if task == "binary" and disguise is not None:
        return disguise.decode(torch.stack([(-values).sigmoid(), values.sigmoid()], dim=1))[:, 1].numpy()
    return (values.sigmoid() if task == "binary" else values).numpy()


def load_into(modules: Mapping[str, nn.Module], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill modules with a saved part's tensors."""
    for name, module in modules.items():
        own = {key.removeprefix(f"{name}."): value for key, value in tensors.items() if key.startswith(f"{name}.")}
        try:
            module.load_state_dict(own)
        except RuntimeError:
            raise CheckpointBroken(
                f"The saved weights of '{name}' do not fit the network they should fill. "
                "Use the settings and module of the run that made them."
            ) from None
