"""What a user gives for one party of a simulation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING

from colonnade.data import PartyTable
from colonnade.session.policy import Policy

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Party", "parties_of"]


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
