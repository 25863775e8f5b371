"""The parts of a split network: each party's encoder, and the head at the label holder."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from colonnade.errors import CheckpointBroken, ConfigError
from colonnade.methods.splitnn.config import SplitNN, check_weights
from colonnade.methods.splitnn.messages import HeldOutActivations
from colonnade.nn import mlp, tensors_under
from colonnade.session import Channel, Holding, Session
from colonnade.training import Inputs, in_parts, parts_of

__all__ = ["OwnEncoder", "build_encoder", "build_head", "gather", "load_into"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OwnEncoder:
    """A party's columns as numbers, and the network that makes codes of them."""

    inputs: Inputs
    features: torch.Tensor
    """The inputs of all shared rows."""
    module: nn.Module
    width: int
    """How many numbers a code has."""

    @classmethod
    def of(cls, session: Session, holding: Holding, config: SplitNN, seed: int = 0) -> OwnEncoder | None:
        """Build the configured perceptron or copy the user's own module, with the weights of a trained part if there is
        one; None without usable columns."""
        # A module of the user's own gets as few numbers for a column as there can be.
        inputs = Inputs.of(holding, splines=holding.module is None)
        if inputs is None:
            return None
        party, module = session.party, holding.module
        values = inputs.transform(holding.table, holding.aligned.positions, dtype=np.dtype(config.precision).type)
        features = torch.from_numpy(values)
        if holding.part is not None and holding.part.document["is_custom"] != (module is not None):
            origin = "is a module of your own. Pass it again" if module is None else "is none of your own. Pass none"
            raise ConfigError(f"The encoder of '{party}' {origin} to predict, as modules={{'{party}': …}}.")
        encoder = build_encoder(config, party, inputs.width, seed) if module is None else copy.deepcopy(module)
        encoder = encoder.to(config.dtype)
        if holding.part is not None:
            load_into({"encoder": encoder}, holding.part.tensors)
        return cls(inputs, features, encoder, _width_of(encoder, party, features))

    def give(self, peer: Channel, rows: Places) -> None:
        """Send codes of rows to be scored, part by part."""
        with torch.no_grad():
            for part in parts_of(rows):
                peer.send(HeldOutActivations(self.module(self.features[part])))

    def about(self, holding: Holding) -> dict[str, Any]:
        """Return what a part of the model holds beside weights."""
        return {"inputs": self.inputs.to_json(), "is_custom": holding.module is not None}


def build_encoder(config: SplitNN, party: str, inputs: int, seed: int) -> nn.Module:
    """Return a party's encoder as the settings describe it."""
    widths = (inputs, *config.hidden, config.cut_width)
    check_weights(f"The encoder of '{party}'", widths, "hidden or cut_width, or drop columns of many categories")
    return mlp(widths, seed=seed, dropout=config.dropout, activate_output=True, dtype=config.dtype)


def build_head(config: SplitNN, widths: Sequence[int], outputs: int, seed: int) -> nn.Sequential:
    """Return the head over all parties' codes, whose widths are given."""
    if not widths:
        raise ConfigError(
            "No party of this run has feature columns, so there is nothing to learn from. Give one of them columns."
        )
    layers = (sum(widths), *config.head_hidden, outputs)
    check_weights("The head", layers, "head_hidden or cut_width")
    return mlp(layers, seed=seed, dropout=config.dropout, dtype=config.dtype)


def gather(peers: Sequence[Channel], own: OwnEncoder | None, head: nn.Module, rows: Places) -> torch.Tensor:
    """Receive all parties' codes of rows to be scored and return the head's outputs."""

    def outputs(part: Places) -> torch.Tensor:
        codes = [] if own is None else [own.module(own.features[part])]
        codes += [peer.receive(HeldOutActivations, rows=len(part)).values for peer in peers]
        found: torch.Tensor = head(torch.cat(codes, dim=1))
        return found

    return in_parts(rows, outputs)


def load_into(modules: Mapping[str, nn.Module], tensors: Mapping[str, torch.Tensor]) -> None:
    """Fill modules with a saved part's tensors."""
    for name, module in modules.items():
        try:
            module.load_state_dict(tensors_under(f"{name}.", tensors))
        except RuntimeError:
            raise CheckpointBroken(
                f"The saved weights of '{name}' do not fit the network they should fill. "
                "Use the settings and module of the run that made them."
            ) from None
        module.eval()


def _width_of(encoder: nn.Module, party: str, features: torch.Tensor) -> int:
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
