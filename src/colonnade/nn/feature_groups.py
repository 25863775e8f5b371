"""Networks over named groups of columns: shared embedding tables, an extractor and an aggregator for every group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise

import torch
from torch import nn
from torch.nn import functional

from colonnade.nn.draws import seeded_generator
from colonnade.nn.mlp import SeededDropout, seeded_linear

__all__ = ["FeatureGroups", "GroupShape", "default_widths", "pair_groups"]


@dataclass(frozen=True)
class GroupShape:
    """What one group takes, and how wide its layers are."""

    name: str
    codes: tuple[int, ...]
    """Places of its categorical columns."""
    numbers: tuple[int, ...]
    """Places of its numeric inputs."""
    widths: tuple[int, ...] = ()
    """Widths of the extractor's layers after the inputs."""


def pair_groups(groups: Sequence[GroupShape]) -> list[GroupShape]:
    """Return a group for every two groups, with the inputs of both."""
    return [
        GroupShape(f"{one.name}-{other.name}", one.codes + other.codes, one.numbers + other.numbers)
        for one, other in combinations(groups, 2)
    ]


def default_widths(inputs: int) -> tuple[int, ...]:
    """Return layer widths much like those of PrADA's Table 2: wider first, then a quarter to a half of the inputs."""
    return (min(2 * inputs, inputs + 36, 150), min(inputs, 84), max(2, min(inputs // 2, 20)))


class FeatureGroups(nn.Module):
    """Extractors F and aggregators G of all groups, on embedding tables that groups share.

    Codes are whole numbers, 0 where a category is missing or unknown. ``tables`` gives the name and size of every
    table, ``table_of`` the table of each categorical column. All weights come from the seed.
    """

    def __init__(
        self,
        groups: Sequence[GroupShape],
        tables: Mapping[str, tuple[int, int]],
        table_of: Sequence[str],
        *,
        aggregate: int,
        dropout: float,
        seed: int,
        dtype: torch.dtype,
    ) -> None:
        super().__init__()
        generator = seeded_generator(seed)
        self.groups, self._table_of = tuple(groups), tuple(table_of)
        self._places = {name: str(place) for place, name in enumerate(tables)}
        self.tables = nn.ParameterDict(
            {
                self._places[name]: nn.Parameter(
                    torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)
                )
                for name, (rows, width) in tables.items()
            }
        )
        self.extractors, self.aggregators = nn.ModuleList(), nn.ModuleList()
        self.feature_widths: list[int] = []
        """How many numbers represent a row, by group."""
        for group in self.groups:
            inputs = sum(tables[table_of[place]][1] for place in group.codes) + len(group.numbers)
            widths = (inputs, *(group.widths or default_widths(inputs)))
            self.extractors.append(_extractor(widths, dropout, generator, dtype))
            self.feature_widths.append(widths[-1])
            self.aggregators.append(seeded_linear(widths[-1], aggregate, generator, dtype))

    def table(self, name: str) -> nn.Parameter:
        """Return one embedding table."""
        found: nn.Parameter = self.tables[self._places[name]]
        return found

    def features(self, codes: torch.Tensor, numbers: torch.Tensor) -> list[torch.Tensor]:
        """Return every group's representation of each row, of length 1."""
        embedded = [
            functional.embedding(codes[:, place], self.table(name)) for place, name in enumerate(self._table_of)
        ]
        found = []
        for group, extractor in zip(self.groups, self.extractors, strict=True):
            parts = [embedded[place] for place in group.codes]
            if group.numbers:
                parts.append(numbers[:, list(group.numbers)])
            found.append(functional.normalize(extractor(torch.cat(parts, dim=1)), dim=1))
        return found

    def aggregate(self, features: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return what each group gives to the scoring layer, group by group."""
        return torch.cat([layer(one) for layer, one in zip(self.aggregators, features, strict=True)], dim=1)

    def forward(self, codes: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
        """Return what all groups give to the scoring layer."""
        return self.aggregate(self.features(codes, numbers))


def _extractor(widths: Sequence[int], dropout: float, generator: torch.Generator, dtype: torch.dtype) -> nn.Sequential:
    layers: list[nn.Module] = []
    for place, (inputs, outputs) in enumerate(pairwise(widths)):
        layers += [seeded_linear(inputs, outputs, generator, dtype), nn.BatchNorm1d(outputs, dtype=dtype)]
        if dropout and place < 2:
            layers.append(SeededDropout(dropout))
        layers.append(nn.LeakyReLU())
    return nn.Sequential(*layers)
