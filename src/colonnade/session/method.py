"""What a method is to the rest of the product: roles, messages, settings, and one function per role and stage."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.errors import ConfigError, DeclarationError, did_you_mean
from colonnade.messages import Declaration, declaration_of
from colonnade.session.model_part import ModelPart
from colonnade.session.plan import ALIGN, RunPlan

if TYPE_CHECKING:
    import numpy as np
    from torch import nn

    from colonnade.session.session import Session

__all__ = ["Figure", "Finding", "Holding", "Method", "Pair", "Result", "Role", "RoleFunction", "Scores"]


_ELSEWHERE = {
    "predict": "Score rows with 'colonnade predict FOLDER', or with Run.predict in Python, after a training.",
    ALIGN: "Find shared rows with 'colonnade align run.toml'.",
}


@dataclass(frozen=True)
class Role:
    """A part to play: how many parties may play it, and whether it brings rows and the labels."""

    name: str
    holds: str
    """What the party brings, for people: "labels, and any columns of its own"."""
    at_least: int = 1
    at_most: int | None = 1
    has_label: bool = False
    has_rows: bool = True
    """Whether its parties bring a table. One that does not helps the others to compute: it takes no part in alignment,
    so it learns no id and not how many rows there are, except where a message of the method says so."""

    def __post_init__(self) -> None:
        if self.has_label and not self.has_rows:
            raise DeclarationError(f"The role {self.name} cannot bring labels without rows.")


@dataclass(frozen=True)
class Pair:
    """The rows that one party shares with one other, and how they are divided."""

    aligned: AlignedRows
    split: Split


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
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    """Shared rows by partner, where a method matches them pair by pair and there are several partners."""

    def pair(self, peer: str) -> Pair:
        """Return the rows shared with one partner."""
        return self.pairs.get(peer) or Pair(self.aligned, self.split)


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
    is_decided: bool = False
    """Whether these are predictions only, as class numbers: a party that may not know how sure they are gets them."""
    positions: np.ndarray[Any, Any] | None = None
    """Rows of the party's own table, where others than the aligned ones are scored too."""
    known_to: tuple[str, ...] = ()
    """With positions: who knows each row."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Something to draw in the report: points, bars, a beeswarm, or pictures, as JSON values by which it is drawn.

    ``scatter`` has ``series``: a name and lists x and y each; ``trade_off`` also their ``marks``, and says what is
    ``across`` and what ``up``. ``bars`` has ``names`` and ``lengths``. ``beeswarm`` has
    ``names`` and, for each, ``values`` and ``levels`` from 0 to 4, which become colours. ``pictures`` has ``shape``
    (channels, 1 or 3, then height and width), ``captions``, one for each picture, and ``rows``: a name and as many
    ``pictures`` each, flattened, of whole numbers from 0 to 255, or None where nothing is known.
    """

    kind: Literal["scatter", "trade_off", "bars", "beeswarm", "pictures"]
    title: str
    values: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something a method found out beside the model: a table for people, and the numbers by name."""

    name: str
    title: str
    text: str
    columns: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    values: Mapping[str, Any] = field(default_factory=dict)
    """The same as JSON values."""
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Result:
    """What a role function hands back to its own party."""

    part: ModelPart | None = None
    scores: Scores | None = None
    findings: tuple[Finding, ...] = ()
    """What else the method found out: comparisons, validations, warnings."""
    refusal: str | None = None
    """Why the model that this stage made, or went on from, must not score rows. An empty text lifts what the same stage
    said of it before; None says nothing about it."""


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
    choose_messages: Callable[[RunPlan], tuple[type, ...]] | None = None
    """Which messages a run can send at all, where that depends on its settings."""
    other_lead: str | None = None
    """Who leads where several parties play the lead's role."""
    is_pairwise: bool = False
    """Whether rows are matched between the lead and each other party, not among all."""
    absent: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Roles that take no part in a stage, by stage."""
    stands_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The stages on whose model another stage goes on, the usual one first, by stage."""
    scored_after: tuple[str, ...] = ("train",)
    """The stages whose model can score rows."""
    scores_rest: bool = False
    """Whether rows that only one party knows are scored beside the shared ones, so that there need be none of these."""
    scores_alone: str | None = None
    """The role whose rows are scored without any counterpart at the others, and that gets the predictions."""
    scoring: tuple[str, ...] = ("predict",)
    """The stages in which shared rows are scored by a model that is there already, for the parties with labels. All
    other parties count these rows, for `Policy.predictions_per_day`; rows that are not shared are asked for by messages
    that declare it (``asks_for``), and counted in any stage."""

    def __post_init__(self) -> None:
        names = {role.name for role in self.roles}
        for declaration in self.declarations:
            if not {declaration.sender, declaration.receiver} <= names:
                raise DeclarationError(f"{declaration.name} names a role that the method {self.name} does not have.")
        known = [(one.name, one.sender, one.receiver) for one in self.declarations]
        for name, sender, receiver in known:
            if known.count((name, sender, receiver)) > 1:
                # Ledgers and reports know messages by these three.
                raise DeclarationError(f"{self.name} has two messages {name} from {sender} to {receiver}.")
        for stage, functions in self.stages.items():
            if set(functions) != names:
                raise DeclarationError(f"The stage {stage} of {self.name} does not have one function per role.")
        tasks = {self.lead, self.other_lead or self.lead, self.scores_alone or self.lead}
        if not tasks <= names:
            raise DeclarationError(f"{self.name} gives a task to a role that it does not have.")
        for role in self.roles:
            if role.name in tasks and not role.has_rows:
                # Alignment goes through the lead, and who gets scores must know whose they are.
                raise DeclarationError(f"{self.name} lets the role {role.name} lead or be scored, which has no rows.")

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Return the declarations of all messages."""
        return tuple(declaration_of(cls) for cls in self.messages)

    def check_stage(self, stage: str) -> None:
        """Refuse a stage that this method does not have, or that has a command of its own."""
        if stage in _ELSEWHERE:
            raise ConfigError(f"'{stage}' is not a stage to run by itself. {_ELSEWHERE[stage]}")
        mine = [one for one in self.stages if one not in _ELSEWHERE]
        if stage not in mine:
            raise ConfigError(f"The method {self.name} has no stage '{stage}'. {did_you_mean(stage, mine)}")

    def in_stage(self, plan: RunPlan, stage: str) -> RunPlan:
        """Return a plan for one of its stages: without roles that have no part in it, and after which run it comes."""
        roles = {role: parties for role, parties in plan.roles.items() if role not in self.absent.get(stage, ())}
        earlier = self.stands_on.get(stage)
        after = None
        if earlier is not None:
            # One run.toml serves several stages, and none of them goes on from itself.
            own, usual = (replace(plan, stage=one).folder_name for one in (stage, earlier[0]))
            after = plan.after if plan.after not in (None, own) else usual
        return replace(plan, stage=stage, roles=roles, after=after)

    def messages_in(self, plan: RunPlan) -> tuple[type, ...]:
        """Return the messages that may cross in a plan's stage, with its settings."""
        if plan.stage == ALIGN:
            return ()
        if self.choose_messages is not None:
            return self.choose_messages(plan)
        return self.stage_messages.get(plan.stage, self.messages)

    def lead_in(self, plan: RunPlan) -> str:
        """Return the role that leads a run: one party plays it, and all others have a channel to that party."""
        is_single = len(plan.roles.get(self.lead, ())) == 1
        return self.lead if is_single or self.other_lead is None else self.other_lead

    def leader_of(self, plan: RunPlan) -> str:
        """Return the party that leads a run."""
        return plan.roles[self.lead_in(plan)][0]

    def parties_with_rows(self, plan: RunPlan) -> tuple[str, ...]:
        """Return the parties that bring rows to a plan's stage, in the agreed order."""
        if plan.stage == "predict" and self.scores_alone is not None:
            return plan.roles[self.scores_alone]
        return tuple(party for party in plan.parties if self.has_rows(plan.role_of(party)))

    def has_rows(self, role: str) -> bool:
        """Tell whether a role's parties bring rows."""
        return all(one.has_rows for one in self.roles if one.name == role)

    def scored_for(self, plan: RunPlan) -> tuple[str, ...]:
        """Return the parties that get scores or predictions of rows."""
        if self.scores_alone is not None:
            return plan.roles[self.scores_alone]
        return tuple(party for role in self.roles if role.has_label for party in plan.roles.get(role.name, ()))

    def are_aligned(self, plan: RunPlan, party: str, other: str) -> bool:
        """Tell whether two parties look for the rows they share: the lead with each other party, if both have rows."""
        is_with_lead = self.lead_in(plan) in (plan.role_of(party), plan.role_of(other))
        return is_with_lead and {party, other} <= set(self.parties_with_rows(plan))

    def are_connected(self, plan: RunPlan, party: str, other: str) -> bool:
        """Tell whether two parties ever speak; parties that do not need no channel."""
        role, other_role = plan.role_of(party), plan.role_of(other)
        pairs = {frozenset((one.sender, one.receiver)) for one in map(declaration_of, self.messages_in(plan))}
        return self.lead_in(plan) in (role, other_role) or frozenset((role, other_role)) in pairs

    def check_roles(self, plan: RunPlan) -> None:
        """Refuse a plan whose roles do not fit this method."""
        known = {role.name: role for role in self.roles}
        for name in plan.roles:
            if name not in known:
                raise ConfigError(f"The method {self.name} has no role '{name}'. {did_you_mean(name, known)}")
        for role in self.roles:
            if role.name in self.absent.get(plan.stage, ()) or (plan.stage == ALIGN and not role.has_rows):
                continue
            count = len(plan.roles.get(role.name, ()))
            if count < role.at_least or (role.at_most is not None and count > role.at_most):
                wanted = f"at least {role.at_least}" if role.at_most is None else f"{role.at_least} to {role.at_most}"
                wanted = "exactly one" if role.at_least == role.at_most == 1 else wanted
                raise ConfigError(
                    f"The method {self.name} needs {wanted} party as {role.name} ({role.holds}); the run names "
                    f"{count}. Correct roles in [run]."
                )
        if len(plan.roles.get(self.lead_in(plan), ())) != 1:
            raise ConfigError(
                f"The method {self.name} takes several parties as {self.lead} or as {self.other_lead}, not as both. "
                "Correct roles in [run], or make one run for each."
            )
