"""What a method is to the rest of the product: roles, messages, settings, and one function per role and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.errors import ConfigError, DeclarationError, did_you_mean
from colonnade.messages import Declaration, declaration_of
from colonnade.session.forecast import Forecaster
from colonnade.session.model_part import ModelPart
from colonnade.session.plan import ALIGN, RunPlan

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from colonnade.session.session import Session

__all__ = ["Holding", "Method", "Result", "Role", "RoleFunction", "Scores"]


@dataclass(frozen=True)
class Role:
    """A part to play: how many parties may play it, and whether it brings the labels."""

    name: str
    holds: str
    """What the party brings, for people: "labels, and any columns of its own"."""
    at_least: int = 1
    at_most: int | None = 1
    has_label: bool = False


@dataclass(frozen=True)
class Holding:
    """What one party brings to a stage. It never leaves the party."""

    table: PartyTable
    aligned: AlignedRows
    split: Split
    part: ModelPart | None = None
    """This party's part of the model, where an earlier stage made one."""
    module: nn.Module | None = None
    """An encoder of the user's own, in place of the configured one."""


@dataclass(frozen=True)
class Scores:
    """What the model says about rows, at the party that may know it."""

    task: str
    rows: np.ndarray[Any, Any]
    """Positions in the aligned order."""
    values: np.ndarray[Any, Any]
    """Probability of the second class, probabilities of all classes, or predicted values in the label's own units."""
    truth: np.ndarray[Any, Any] | None = None
    classes: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a role function hands back to its own party."""

    part: ModelPart | None = None
    scores: Scores | None = None


RoleFunction = Callable[["Session", Holding, Any], Result]


@dataclass(frozen=True)
class Method:
    """A published algorithm, ready to be played."""

    name: str
    title: str
    citation: str
    situation: str
    """When to choose it, as one line for `colonnade methods`."""
    config: type
    roles: tuple[Role, ...]
    lead: str
    """A role played by one party that has a channel to every other; it settles where to resume."""
    messages: tuple[type, ...]
    stages: Mapping[str, Mapping[str, RoleFunction]]
    stage_messages: Mapping[str, tuple[type, ...]] = field(default_factory=dict)
    """The messages of a stage that does not use all of them; no others can be sent in it."""
    forecast: Forecaster | None = None
    """How long a run takes and what it sends, for `colonnade plan`."""

    def __post_init__(self) -> None:
        names = {role.name for role in self.roles}
        for declaration in self.declarations:
            if not {declaration.sender, declaration.receiver} <= names:
                raise DeclarationError(f"{declaration.name} names a role that the method {self.name} does not have.")
        for stage, functions in self.stages.items():
            if set(functions) != names:
                raise DeclarationError(f"The stage {stage} of {self.name} does not have one function per role.")
        if self.lead not in names:
            raise DeclarationError(f"The lead of {self.name} is not one of its roles.")

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Return the declarations of all messages."""
        return tuple(declaration_of(cls) for cls in self.messages)

    def messages_in(self, stage: str) -> tuple[type, ...]:
        """Return the messages that may cross in a stage."""
        return () if stage == ALIGN else self.stage_messages.get(stage, self.messages)

    def are_connected(self, role: str, other: str) -> bool:
        """Tell whether two roles ever speak; parties that do not need no channel."""
        pairs = {frozenset((one.sender, one.receiver)) for one in self.declarations}
        return self.lead in (role, other) or frozenset((role, other)) in pairs

    def check_roles(self, plan: RunPlan) -> None:
        """Refuse a plan whose roles do not fit this method."""
        known = {role.name: role for role in self.roles}
        for name in plan.roles:
            if name not in known:
                raise ConfigError(f"The method {self.name} has no role '{name}'. {did_you_mean(name, known)}")
        for role in self.roles:
            count = len(plan.roles.get(role.name, ()))
            if count < role.at_least or (role.at_most is not None and count > role.at_most):
                wanted = f"at least {role.at_least}" if role.at_most is None else f"{role.at_least} to {role.at_most}"
                wanted = "exactly one" if role.at_least == role.at_most == 1 else wanted
                raise ConfigError(
                    f"The method {self.name} needs {wanted} party as {role.name} ({role.holds}); the run names "
                    f"{count}. Correct roles in [run]."
                )
