"""A party's networks, one for each kind of code. No session here."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from colonnade.errors import ConfigError
from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.nn import ACTIVATIONS, convolutions, mlp, redrawn

__all__ = ["Seeds", "build_encoders", "check_module", "codes_of", "dtype_of", "scored_codes", "split_codes"]

Seeds = Callable[[str], int]
"""Gives the seed of a purpose."""

# Rows that go through a network at once where nothing is learned, so that little memory is needed.
_CHUNK = 4096


def dtype_of(config: FedCVT) -> torch.dtype:
    """Return the precision of all arithmetic."""
    return torch.float64 if config.precision == "float64" else torch.float32


def build_encoders(
    config: FedCVT, variant: Variant, party: str, inputs: int, seeds: Seeds, module: nn.Module | None
) -> nn.ModuleDict:
    """Return a party's networks of one candidate: perceptrons, convolutions, or copies of the user's own module."""
    found = {}
    for kind in variant.kinds:
        seed = seeds(f"{variant.name}/{kind}")
        if module is not None:
            found[kind] = _own(module, kind, seed).to(dtype_of(config))
        elif party in config.images:
            image = config.images[party]
            if image[0] * image[1] * image[2] != inputs:
                raise ConfigError(
                    f"config.images gives '{party}' images of {'x'.join(map(str, image))} numbers, but its rows have "
                    f"{inputs} after encoding. Every pixel must be a numeric column that varies; drop other columns."
                )
            activation = ACTIVATIONS[config.activation]
            found[kind] = convolutions(
                image,
                config.width_of(kind),
                seed=seed,
                channels=config.channels,
                activation=activation,
                dtype=dtype_of(config),
            )
        else:
            widths = (inputs, *config.hidden, config.width_of(kind))
            found[kind] = mlp(
                widths, seed=seed, activation=config.activation, activate_output=True, dtype=dtype_of(config)
            )
    return nn.ModuleDict(found)


def check_module(config: FedCVT, encoders: nn.ModuleDict, party: str, features: torch.Tensor) -> None:
    """Refuse networks that cannot take this party's columns or give codes of another width than agreed."""
    for kind, encoder in encoders.items():
        encoder.eval()
        try:
            with torch.no_grad():
                tried = encoder(features[:2])
        except RuntimeError as error:
            raise ConfigError(
                f"The module of '{party}' cannot take its {features.shape[1]} encoded columns. Give it that many."
            ) from error
        encoder.train()
        wanted = (len(features[:2]), config.width_of(kind))
        if tuple(tried.shape) != wanted or tried.dtype != features.dtype:
            raise ConfigError(
                f"The module of '{party}' gives {tuple(tried.shape)[1:]} numbers per row; {kind}_width is "
                f"{wanted[1]} for all parties. Change the module, or config.{kind}_width."
            )


def codes_of(encoders: nn.ModuleDict, features: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the codes of rows, by kind."""
    return {kind: encoder(features) for kind, encoder in encoders.items()}


def scored_codes(encoders: nn.ModuleDict, features: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return the codes of rows that are only scored."""
    encoders.eval()
    with torch.no_grad():
        pieces = [codes_of(encoders, piece) for piece in torch.split(features, _CHUNK)]
    encoders.train()
    return {kind: torch.cat([piece[kind] for piece in pieces]) for kind in encoders}


def split_codes(config: FedCVT, variant: Variant, values: torch.Tensor) -> dict[str, torch.Tensor]:
    """Return codes by kind from numbers that crossed side by side."""
    widths = [config.width_of(kind) for kind in variant.kinds]
    return dict(zip(variant.kinds, torch.split(values, widths, dim=1), strict=True))


def _own(module: nn.Module, kind: str, seed: int) -> nn.Module:
    """Return the user's network for a kind of code: the one named so, or a copy with weights of its own."""
    if isinstance(module, nn.ModuleDict):
        if kind not in module:
            raise ConfigError(f"A ModuleDict of networks must have one named '{kind}'.")
        return copy.deepcopy(module[kind])
    return redrawn(module, seed)
