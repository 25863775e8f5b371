"""What a method is to the rest of the product: roles, messages, settings, and one function per role and stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from colonnade import __version__
from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.errors import ConfigError, DeclarationError, did_you_mean
from colonnade.messages import Declaration, Template, resolve, template_of
from colonnade.session.model_part import ModelPart
from colonnade.session.plan import ALIGN, RunPlan
from colonnade.session.scores import Scores

if TYPE_CHECKING:
    from torch import nn

    from colonnade.session.session import Session

__all__ = ["Figure", "Finding", "Holding", "Method", "Pair", "Result", "Role", "RoleFunction", "Stage"]


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
    """By the model that serves."""
    findings: tuple[Finding, ...] = ()
    """What else the method found out: comparisons, validations, warnings."""
    refusal: str | None = None
    """Why the model that this stage made, or went on from, must not score rows. An empty text lifts what the same stage
    said of it before; None says nothing about it."""
    candidates: Mapping[str, Scores] = field(default_factory=dict)
    """What every model that could have served says of the same rows, by its name."""
    served: str = "together"
    """The name of the one that serves."""


RoleFunction = Callable[["Session", Holding, Any], Result]


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One part of a method that is run by itself: who plays in it, and what may cross."""

    roles: Mapping[str, RoleFunction]
    """What each role does. A role that is missing takes no part."""
    messages: tuple[type | Template, ...] = ()
    """What may cross; no other message can be sent."""
    after: tuple[str, ...] = ()
    """The stages on whose model it goes on, the usual one first."""
    makes_model: bool = False
    """Whether its model can score rows."""
    scores: bool = False
    """Whether it has shared rows scored by a model that is there already, for the parties with labels. All other
    parties count these rows, for `Policy.predictions_per_day`; rows that are not shared are asked for by messages that
    declare it (``asks_for``), and counted in any stage."""
    rows: Literal["shared", "pairwise", "shared and rest", "own"] = "shared"
    """Which rows take part: those that all share; those that the lead shares with each other party; the shared ones and
    beside them those that only one party knows, so that there need be none of the first; or, without looking for shared
    ones, all rows of the role ``rows_of``, which gets predictions for them."""
    rows_of: str | None = None
    needs: str | None = None
    """A setting that must be on; without it the stage refuses, and is not offered."""
    judge: str | None = None
    """The role whose labels judge the model, where several have labels."""


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
    lead: str | tuple[str, ...]
    """A role played by one party that has a channel to every other and settles where to resume; of several the first
    that one party plays."""
    stages: Mapping[str, Stage]
    cautions: Callable[[RunPlan], Iterable[str]] = field(default=lambda plan: ())
    """What else than by its messages people must be warned of before and after a run, by its settings."""
    package: str = ""
    """The package that brings it, with its version, where it does not come with colonnade. Whoever finds the method
    says so, not its author."""

    def __post_init__(self) -> None:
        names = {role.name for role in self.roles}
        for declaration in self.declarations:
            if not {declaration.sender, declaration.receiver} <= names:
                raise DeclarationError(f"{declaration.name} names a role that the method {self.name} does not have.")
        for name, stage in self.stages.items():
            if not set(stage.roles) <= names or not stage.roles:
                raise DeclarationError(f"The stage {name} of {self.name} has a function for a role that is unknown.")
            if (stage.rows == "own") != (stage.rows_of is not None):
                raise DeclarationError(f"The stage {name} of {self.name} does not say whose rows take part.")
            if not set(stage.after) <= set(self.stages):
                raise DeclarationError(f"The stage {name} of {self.name} goes on from a stage that is unknown.")
        tasks = {*self._leads, *(stage.rows_of for stage in self.stages.values() if stage.rows_of)}
        if not tasks <= names:
            raise DeclarationError(f"{self.name} gives a task to a role that it does not have.")
        for role in self.roles:
            if role.name in tasks and not role.has_rows:
                # Alignment goes through the lead, and who gets scores must know whose they are.
                raise DeclarationError(f"{self.name} lets the role {role.name} lead or be scored, which has no rows.")

    @property
    def _leads(self) -> tuple[str, ...]:
        return (self.lead,) if isinstance(self.lead, str) else self.lead

    @property
    def version(self) -> str:
        """Return the version of all that parties compute with: colonnade's, and that of the method's own package."""
        return f"{__version__} with {self.package}" if self.package else __version__

    @property
    def messages(self) -> tuple[type | Template, ...]:
        """Return every message of every stage."""
        return tuple(one for stage in self.stages.values() for one in stage.messages)

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """Return the declarations of all messages, with every protection that they can have."""
        templates = (one if isinstance(one, Template) else template_of(one) for one in self.messages)
        every = (found for one in templates for found in one.every_declaration() if self._has_both_ends(found))
        return tuple({(one.name, one.sender, one.receiver, one.schema): one for one in every}.values())

    def warnings(self, plan: RunPlan) -> tuple[str, ...]:
        """Return what people must be warned of whatever crosses: whose code it is, and what its settings give away."""
        foreign = (
            f"The method {self.name} is not colonnade's: the package {self.package} brings it, and its code sees this "
            "party's table. What it sends is declared and recorded as ever; what that reveals is its author's word."
        )
        return (*([foreign] if self.package else ()), *self.cautions(plan))

    def _has_both_ends(self, declaration: Declaration) -> bool:
        """Tell whether a message can have a sender and another receiver: one party alone plays some roles."""
        single = {role.name for role in self.roles if role.at_most == 1}
        return declaration.sender != declaration.receiver or declaration.sender not in single

    def stage(self, name: str) -> Stage:
        """Return a stage; finding shared rows by itself is one in which every role with rows takes part."""
        if name in self.stages:
            return self.stages[name]
        return Stage(roles={role.name: lambda *_: Result() for role in self.roles if role.has_rows})

    @property
    def scored_after(self) -> tuple[str, ...]:
        """Return the stages whose model can score rows."""
        return tuple(name for name, stage in self.stages.items() if stage.makes_model)

    def stages_before(self, stage: str) -> list[str]:
        """Return the stages that a stage stands on, first to last."""
        before = self.scored_after[:1] if stage == "predict" else self.stage(stage).after[:1]
        return [name for one in before for name in (*self.stages_before(one), one)]

    @property
    def predicting(self) -> Stage:
        """Return the stage that scores new rows."""
        return self.stage("predict")

    def check_stage(self, stage: str) -> None:
        """Refuse a stage that this method does not have, or that has a command of its own."""
        if stage in _ELSEWHERE:
            raise ConfigError(f"'{stage}' is not a stage to run by itself. {_ELSEWHERE[stage]}")
        mine = [one for one in self.stages if one not in _ELSEWHERE]
        if stage not in mine:
            raise ConfigError(f"The method {self.name} has no stage '{stage}'. {did_you_mean(stage, mine)}")

    def in_stage(self, plan: RunPlan, stage: str) -> RunPlan:
        """Return a plan for one of its stages: without roles that have no part in it, and after which run it comes."""
        about = self.stage(stage)
        # Roles that are unknown stay, to be refused by name.
        absent = {role.name for role in self.roles} - set(about.roles) if stage in self.stages else set()
        roles = {role: parties for role, parties in plan.roles.items() if role not in absent}
        after = None
        if about.after:
            # One run.toml serves several stages, and none of them goes on from itself.
            own, usual = (replace(plan, stage=one).folder_name for one in (stage, about.after[0]))
            after = plan.after if plan.after not in (None, own) else usual
        return replace(plan, stage=stage, roles=roles, after=after)

    def declarations_in(self, plan: RunPlan) -> tuple[Declaration, ...]:
        """Return what may cross in a plan's stage, as its settings have it protected."""
        if plan.stage == ALIGN:
            return ()
        found = tuple(filter(self._has_both_ends, resolve(self.stage(plan.stage).messages, plan)))
        unique = {(one.cls, one.sender, one.receiver): one for one in found}
        for one in found:
            if unique[one.cls, one.sender, one.receiver].schema != one.schema:
                raise DeclarationError(f"{self.name} has {one.name} from {one.sender} to {one.receiver} twice.")
        return tuple(unique.values())

    def lead_in(self, plan: RunPlan) -> str:
        """Return the role that leads a run: one party plays it, and all others have a channel to that party."""
        return next((one for one in self._leads if len(plan.roles.get(one, ())) == 1), self._leads[-1])

    def leader_of(self, plan: RunPlan) -> str:
        """Return the party that leads a run."""
        return plan.roles[self.lead_in(plan)][0]

    def parties_with_rows(self, plan: RunPlan) -> tuple[str, ...]:
        """Return the parties that bring rows to a plan's stage, in the agreed order."""
        if (owner := self.stage(plan.stage).rows_of) is not None:
            return plan.roles[owner]
        return tuple(party for party in plan.parties if self.has_rows(plan.role_of(party)))

    def has_rows(self, role: str) -> bool:
        """Tell whether a role's parties bring rows."""
        return all(one.has_rows for one in self.roles if one.name == role)

    def has_label(self, role: str) -> bool:
        """Tell whether a role's parties bring labels."""
        return any(one.has_label for one in self.roles if one.name == role)

    def scored_for(self, plan: RunPlan) -> tuple[str, ...]:
        """Return the parties that get scores or predictions of rows."""
        if (owner := self.predicting.rows_of) is not None:
            return plan.roles[owner]
        return tuple(party for role in self.roles if role.has_label for party in plan.roles.get(role.name, ()))

    def judges_in(self, plan: RunPlan) -> tuple[str, ...]:
        """Return the parties whose labels judge the model of a plan's stage."""
        judge = self.stage(plan.stage).judge
        roles = [role.name for role in self.roles if role.has_label and judge in (None, role.name)]
        return tuple(party for role in roles for party in plan.roles.get(role, ()))

    def are_aligned(self, plan: RunPlan, party: str, other: str) -> bool:
        """Tell whether two parties look for the rows they share: the lead with each other party, if both have rows."""
        is_with_lead = self.lead_in(plan) in (plan.role_of(party), plan.role_of(other))
        return is_with_lead and {party, other} <= set(self.parties_with_rows(plan))

    def are_connected(self, plan: RunPlan, party: str, other: str) -> bool:
        """Tell whether two parties ever speak; parties that do not need no channel."""
        role, other_role = plan.role_of(party), plan.role_of(other)
        pairs = {frozenset((one.sender, one.receiver)) for one in self.declarations_in(plan)}
        return self.lead_in(plan) in (role, other_role) or frozenset((role, other_role)) in pairs

    def check_roles(self, plan: RunPlan) -> None:
        """Refuse a plan whose roles do not fit this method."""
        known = {role.name: role for role in self.roles}
        for name in plan.roles:
            if name not in known:
                raise ConfigError(f"The method {self.name} has no role '{name}'. {did_you_mean(name, known)}")
        for role in self.roles:
            if role.name not in self.stage(plan.stage).roles:
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
                f"The method {self.name} takes several parties as {' or as '.join(self._leads)}, not as both. "
                "Correct roles in [run], or make one run for each."
            )
