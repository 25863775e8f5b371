"""The heads at level 2, of which the label holder has its own codes' weights and all offsets. No session here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import nn

from colonnade.methods.fedcvt.config import FedCVT, Variant
from colonnade.methods.fedcvt.networks import dtype_of
from colonnade.methods.fedcvt.objective import build_heads, party_head

__all__ = ["SealedHeads"]


class SealedHeads(nn.Module):
    """The label holder's part of all heads: its own weights, and the offsets of all; partners' weights are shared."""

    def __init__(self, config: FedCVT, variant: Variant, parties: int, outputs: int, seed: int) -> None:
        super().__init__()
        self.names = [party_head(place) for place in range(parties)] if variant.has_party_heads else []
        self.outputs, self.parties = outputs, parties
        self.own = build_heads(config, variant, 1, outputs, seed)
        self._widths = [config.width_of(kind) for kind in variant.kinds]
        self._kinds = variant.kinds
        self.offsets = nn.ParameterDict(
            {name: nn.Parameter(torch.zeros(outputs, dtype=dtype_of(config))) for name in self.names[1:]}
        )

    @property
    def columns(self) -> int:
        """Return how many scores a party's codes add to: those of its own head, if it has one, and the joint ones."""
        return self.outputs * (2 if self.names else 1)

    @property
    def missing_columns(self) -> int:
        """Return how many scores the other parties' codes of one party's rows add to."""
        return self.outputs * (self.parties if self.names else 1)

    def parts(self, codes: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
        """Return what each kind of this party's codes adds to the scores, without offsets."""
        found: list[torch.Tensor] = []
        at = 0
        for kind, width in zip(self._kinds, self._widths, strict=True):
            heads = [self._linear(name) for name in (*self.names[:1], "joint")]
            found.append(torch.cat([codes[kind] @ head.weight[:, at : at + width].T for head in heads], dim=1))
            at += width
        return found

    def whole(self, by_party: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
        """Return the scores of all heads from what every party's codes add."""
        count = self.outputs
        joint = torch.stack([one[:, -count:] for one in by_party]).sum(dim=0) + self._linear("joint").bias
        found = {"joint": joint}
        for place, name in enumerate(self.names):
            offset = self._linear(name).bias if place == 0 else self.offsets[name]
            found[name] = by_party[place][:, :count] + offset
        return found

    def _linear(self, name: str) -> nn.Linear:
        return cast(nn.Linear, self.own[name])

    def split_missing(self, place: int, estimated: torch.Tensor) -> list[torch.Tensor]:
        """Return what every other party's estimated codes add; their joint scores come added up, with the first."""
        count = self.outputs
        others = [other for other in range(self.parties) if other != place]
        joint = estimated[:, -count:]
        found = []
        for number in range(len(others)):
            shown = joint if number == 0 else torch.zeros_like(joint)
            own = [estimated[:, number * count : (number + 1) * count]] if self.names else []
            found.append(torch.cat([*own, shown], dim=1))
        return found

    def carried(self, place: int, gradient: torch.Tensor) -> list[tuple[int, torch.Tensor]]:
        """Return, by party, the gradient at what its codes add, from that at what all others of one party add."""
        count = self.outputs
        others = [other for other in range(self.parties) if other != place]
        found = []
        for number, other in enumerate(others):
            own = [gradient[:, number * count : (number + 1) * count]] if self.names else []
            found.append((other, torch.cat([*own, gradient[:, -count:]], dim=1)))
        return found

    def gather_missing(self, place: int, by_party: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what `split_missing` takes apart, from what the other parties' codes add."""
        count = self.outputs
        others = [one for other, one in enumerate(by_party) if other != place]
        own = [one[:, :count] for one in others] if self.names else []
        return torch.cat([*own, torch.stack([one[:, -count:] for one in others]).sum(dim=0)], dim=1)
