"""Who takes part in a run, and with what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from colonnade.data import PartyTable
from colonnade.engine import INLINE, Engine, EngineSettings
from colonnade.session.model_part import ModelPart
from colonnade.session.policy import Policy

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Participant", "Party", "parties_of"]


@dataclass(frozen=True)
class Party:
    """One party where it brings more than a table: rules of its own, or a network.

    A party whose role holds no table has ``table`` None.
    """

    table: PartyTable | None = None
    _: KW_ONLY
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    module: nn.Module | None = None
    """A network in place of the configured one."""


def parties_of(given: Mapping[str, PartyTable | Party]) -> dict[str, Party]:
    """Return all parties in one form: one for which only a table was given has no rules and no network."""
    return {name: one if isinstance(one, Party) else Party(one) for name, one in given.items()}


@dataclass(frozen=True)
class Participant:
    """A party in a run: its name, what it brings, what it allows, and where it keeps things."""

    name: str
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    folder: Path | None = None
    """The run folder; None keeps ledger and metrics in memory and makes no checkpoints."""
    earlier_runs: int = 0
    _: KW_ONLY
    table: PartyTable | None = None
    """None where the party's role has none."""
    module: nn.Module | None = None
    part: ModelPart | None = None
    """Its part of the model that a stage goes on from or scores with."""
    earlier: Path | None = None
    """The run folder where that part is kept, if a stage goes on from it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why that part must not score rows, by the stage that found it."""
    engine: Engine | EngineSettings = INLINE
    """An engine that others use too, or the settings of one that is opened for this party and closed in the end."""
    alignments: Path | None = None
    """Where results of alignments, and which were begun, are kept across runs; by default results in the run folder."""
    queries: Path | None = None
    """The file that says how many rows were scored for whom; None counts those of this run alone."""
    contributions: Path | None = None
    """The file that says how many numbers about which rows were opened to whom; None writes none."""
