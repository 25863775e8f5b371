"""A method's tables at hand, the parties' agreement on them, and what the model is held against."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pandas as pd

from colonnade.data import PartyTable
from colonnade.launch.run import Run

__all__ = ["Control", "Demo", "Figures", "Measured", "Tables", "tables_of"]

Tables = Mapping[str, PartyTable]


class Measured(NamedTuple):
    """A number, and how far it may be off by the chance that fell on these rows; 0 where that is not known."""

    value: float
    reach: float = 0.0


Figures = dict[str, Measured]
"""How good a model is, by what is measured."""
Control = Callable[["Demo", Mapping[str, Run], Tables], Figures]
"""Trains what a model is held against: from the demo, its runs by stage, and all parties' tables."""


@dataclass(frozen=True, kw_only=True)
class Demo:
    """A method's tables, the parties' agreement, and what its model is held against on the same held-out rows."""

    method: str
    name: str
    """Of the run."""
    about: str
    """Who does what with whom, in one sentence."""
    data: str
    """Where the tables come from, in one sentence."""
    tables: Callable[[], dict[str, pd.DataFrame]]
    roles: Mapping[str, str | list[str]]
    id: str
    labels: Mapping[str, str]
    """By party, the column to predict."""
    later: Callable[[], dict[str, pd.DataFrame]] | None = None
    """People who came later, with the label that only the demo knows; by them the model is judged, where it is given
    few held-out rows."""
    files: Mapping[str, str] = field(default_factory=dict)
    """By party, the name of its file where it is not `customers.csv`."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """What differs from the method's defaults."""
    because: str = ""
    """Why it does."""
    evaluate: Mapping[str, float]
    note: str = ""
    """What is to be said first, on screen."""
    stages: tuple[str, ...] = ("train",)
    compares: bool = False
    """Whether the run itself trains the label holder's columns alone, and all columns in one place."""
    measure: Callable[[Mapping[str, Run]], Figures]
    """Reads off the finished runs what the verdict is about."""
    controls: Mapping[str, Control]
    """By what it is in words."""
    ceilings: tuple[str, ...] = ()
    """Controls that need what no party would give, so that the model need not win against them."""
    lower_is_better: tuple[str, ...] = ()
    """Measures of which less is better."""
    costs: tuple[str, ...] = ()
    """Measures of which the method gives something up for the others."""

    @property
    def parties(self) -> tuple[str, ...]:
        """Return all parties in the order of roles."""
        return tuple(party for given in self.roles.values() for party in ([given] if isinstance(given, str) else given))

    def file_of(self, party: str) -> str:
        """Return the name of a party's file."""
        return self.files.get(party, "customers.csv")


def tables_of(demo: Demo, frames: Mapping[str, pd.DataFrame]) -> dict[str, PartyTable]:
    """Return the tables as the homes' files say they are to be read."""
    return {
        party: PartyTable(
            frame,
            id=demo.id,
            label=demo.labels.get(party),
            unlabelled=party in demo.labels and bool(frame[demo.labels[party]].isna().any()),
            name=party,
        )
        for party, frame in frames.items()
    }
