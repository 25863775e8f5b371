"""Declare what may cross a channel.

A message is declared once: which roles may send it to which, how it is protected, what it carries and reveals, and what
its fields may hold. The declaration feeds the codec, the channel's checks, the ledger, the policy check, consent, the
documentation's message table and the report. What is not declared cannot be sent.

>>> @message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="forward", carries=Carries.SIZE)
... class Widths:
...     '''How wide the sender's part is. Reveals: one number.'''
...     width: int
>>> declaration_of(Widths).reveals
'one number.'

How a message is protected may follow from a run's settings. It is resolved once before the run, also to "not sent":

>>> @message(sender="label_holder", receiver="feature_holder", protection=by("defence", none=PLAIN, marvell=NOISED),
...          step="backward", carries=Carries.ROW_GRADIENT, warns=Warns.LABELS)
... class CutGradient:
...     '''The loss's gradient at the receiver's activations.
...
...     Reveals: in most cases the label of every row. Reveals when NOISED: a hint at it.
...     '''
...     values: bytes
>>> [one.protection.value for one in template_of(CutGradient).every_declaration()]
['PLAIN', 'NOISED']

What a field may hold stands beside its type: ``width: Annotated[int, Between(1, 4096), Binds("width")]``, see `rules`.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Protocol, TypeVar, dataclass_transform

from colonnade.errors import DeclarationError
from colonnade.messages.kinds import Kind, Shapes, kind_of
from colonnade.messages.meaning import Carries, Warns

__all__ = [
    "ANYONE",
    "ENCRYPTED",
    "GIVEN",
    "MASKED",
    "NOISED",
    "PLAIN",
    "By",
    "Declaration",
    "Plan",
    "Protection",
    "Sealed",
    "Template",
    "between",
    "by",
    "declaration_of",
    "message",
    "record",
    "resolve",
    "template_of",
    "when",
]

T = TypeVar("T")
Roles = str | tuple[str, ...]


class Protection(StrEnum):
    """What still hides the content from the receiver after it has used every key it holds."""

    PLAIN = "PLAIN"
    NOISED = "NOISED"
    MASKED = "MASKED"
    ENCRYPTED = "ENCRYPTED"


PLAIN, NOISED, MASKED, ENCRYPTED = Protection.PLAIN, Protection.NOISED, Protection.MASKED, Protection.ENCRYPTED

ANYONE = "anyone"
"""The role of both ends of the session's own messages, such as the handshake."""
GIVEN = "given"
"""The role of both ends of an exchange's message; a method that uses it says between whom: `between`."""


@dataclass(frozen=True)
class Sealed:
    """A ciphertext that its receiver can open, so that nothing is hidden from it: ``Sealed(PLAIN)``."""

    protection: Protection


Option = Protection | Sealed | None


class Plan(Protocol):
    """What protections may follow from: a run's plan."""

    @property
    def stage(self) -> str:
        """Return the stage."""

    @property
    def config(self) -> Mapping[str, Any]:
        """Return the method's settings."""

    @property
    def roles(self) -> Mapping[str, tuple[str, ...]]:
        """Return the parties by role."""


@dataclass(frozen=True)
class By:
    """A protection that follows from a run's settings: an option, or None where the message is not sent."""

    options: tuple[Option, ...]
    choose: Callable[[Plan], Option]
    setting: str = ""
    """The setting that chooses, where one does."""
    table: Mapping[Any, Option] = field(default_factory=dict)
    """With a setting: what each of its values gives."""


def by(setting: str, table: Mapping[Any, Option | By] | None = None, **named: Option | By) -> By:
    """Let a setting choose the protection, by its value; a value that is not in the table means that it is not sent."""
    every = {**(table or {}), **named}
    options = tuple(dict.fromkeys(one for option in every.values() for one in _options(option)))

    def choose(plan: Plan) -> Option:
        return _chosen(every.get(plan.config[setting]), plan)

    plain = {value: option for value, option in every.items() if not isinstance(option, By)}
    return By(options, choose, setting, plain)


def when(condition: str | Callable[[Plan], bool], then: Option | By, otherwise: Option | By = None) -> By:
    """Let a condition choose: a setting that is neither false nor zero nor empty, or a function of the plan."""

    def choose(plan: Plan) -> Option:
        holds = plan.config[condition] if isinstance(condition, str) else condition(plan)
        return _chosen(then if holds else otherwise, plan)

    return By(tuple(dict.fromkeys((*_options(then), *_options(otherwise)))), choose)


def _options(option: Option | By) -> tuple[Option, ...]:
    return option.options if isinstance(option, By) else (option,)


def _chosen(option: Option | By, plan: Plan) -> Option:
    return option.choose(plan) if isinstance(option, By) else option


@dataclass(frozen=True)
class Declaration:
    """One message from one role to another, with the protection that it has: all that is known before any is sent."""

    cls: type
    sender: str
    receiver: str
    protection: Protection
    step: str
    summary: str
    reveals: str
    body: Kind
    schema: bytes
    """Eight bytes that stand for this declaration on the wire; they change when anything the peer relies on does."""
    carries: Carries = Carries.NOTHING
    warns: Warns = Warns.NOTHING
    """Of what its readers must be warned, as it is protected here."""
    remedy: str = ""
    """Which other value of a setting protects it better, if one does."""
    asks_for: str | None = None
    """The field that says how many rows the receiver shall help to score for the sender, if it asks for that."""

    @property
    def name(self) -> str:
        """Return the name of the message."""
        return self.cls.__name__

    def shapes(self, content: object) -> Shapes:
        """Return the shapes of all arrays in a message of this kind, by field."""
        found: Shapes = {}
        self.body.shapes("", content, found)
        return found

    def rows_asked(self, content: object) -> int:
        """Return how many rows a message of this kind asks the receiver to help to score."""
        return 0 if self.asks_for is None else int(getattr(content, self.asks_for))


@dataclass(frozen=True, eq=False)
class Template:
    """A message as it is declared: between which roles it may cross, and how it can be protected."""

    cls: type
    pairs: tuple[tuple[str, str], ...]
    protection: Option | By
    step: str
    summary: str
    reveals: Mapping[Protection | None, str]
    """What it reveals, by protection; under None what holds for all others."""
    body: Kind
    carries: Carries
    warns: Mapping[Protection, Warns]
    asks_for: str | None = None
    conditions: tuple[Callable[[Plan], bool], ...] = ()
    """What must be true of a plan so that it can be sent at all."""

    def where(self, condition: Callable[[Plan], bool]) -> Template:
        """Return the message as it can be sent only where something is true of the plan."""
        return replace(self, conditions=(*self.conditions, condition))

    def declarations(self, plan: Plan) -> tuple[Declaration, ...]:
        """Return what may cross in a run: one declaration for each two roles, or none."""
        if not all(condition(plan) for condition in self.conditions):
            return ()
        chosen = _chosen(self.protection, plan)
        return () if chosen is None else tuple(self._declare(pair, chosen) for pair in self.pairs)

    def every_declaration(self) -> tuple[Declaration, ...]:
        """Return what may cross in any run."""
        options = [one for one in _options(self.protection) if one is not None]
        return tuple(self._declare(pair, option) for pair in self.pairs for option in options)

    def _declare(self, pair: tuple[str, str], option: Protection | Sealed) -> Declaration:
        protection = option.protection if isinstance(option, Sealed) else option
        body = self.body.resolved(isinstance(option, Sealed) or protection in (ENCRYPTED, MASKED))
        if protection is ENCRYPTED and not body.carries_ciphertext:
            raise DeclarationError(
                f"{self.cls.__name__} is declared ENCRYPTED but has fields that are not ciphertexts. "
                "Use a Ciphertext type for every field, or declare the protection it really has."
            )
        identity = "\n".join([self.cls.__name__, *pair, protection, self.step, body.describe()])
        schema = hashlib.sha256(identity.encode()).digest()[:8]
        return Declaration(
            self.cls,
            *pair,
            protection,
            self.step,
            self.summary,
            self.reveals.get(protection, self.reveals[None]),
            body,
            schema,
            self.carries,
            self.warns.get(protection, Warns.NOTHING),
            self._remedy() if protection in self.warns else "",
            self.asks_for,
        )

    def _remedy(self) -> str:
        """Say which value of the setting that chooses the protection leaves less to be read."""
        if not isinstance(self.protection, By):
            return ""
        better: dict[Protection, list[str]] = {}
        for value, option in self.protection.table.items():
            if isinstance(option, Protection) and option not in self.warns:
                better.setdefault(option, []).append(repr(value))
        words = [f"{self.protection.setting} = {' or '.join(values)} has it {one}" for one, values in better.items()]
        return "; ".join(words)


def between(cls: type, sender: Roles, receiver: Roles, *, same_role: bool = False) -> Template:
    """Return an exchange's message between a method's roles, or a message between some of its roles only."""
    return replace(template_of(cls), pairs=_pairs(sender, receiver, same_role))


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen record that may stand inside a message."""
    made = dataclass(frozen=True, eq=False)(cls)
    made.__is_record__ = True  # type: ignore[attr-defined]
    return made


@dataclass_transform(frozen_default=True)
def message(
    *,
    sender: Roles,
    receiver: Roles,
    protection: Protection | By,
    step: str,
    carries: Carries = Carries.NOTHING,
    warns: Warns | Mapping[Protection, Warns] = Warns.NOTHING,
    same_role: bool = False,
    asks_for: str | None = None,
) -> Callable[[type[T]], type[T]]:
    """Declare a class as a message from one role to another, or between every two of several.

    The docstring's first part says what the message is; then come "Reveals: …" on what the receiver learns from it and,
    where protections differ in that, "Reveals when NOISED: …". ``carries`` says what is in it, ``warns`` what a
    receiver can often make of it: where it is PLAIN, or by protection. With several roles on both sides, two parties of
    one role exchange it only with ``same_role``. ``asks_for`` names the field that says how many rows the receiver
    shall help to score for the sender, beside shared rows of a prediction: the channel counts them, and refuses more
    than the receiver allows.
    """

    def declare(cls: type[T]) -> type[T]:
        made = record(cls)
        summary, reveals = _split_docstring(cls)
        options = _options(protection)
        is_known = all(isinstance(one, Protection | Sealed | None) for one in options)
        if not is_known or not any(options):
            raise DeclarationError(f"The protection of {cls.__name__} must be PLAIN, NOISED, MASKED or ENCRYPTED.")
        if asks_for is not None and typing.get_type_hints(made).get(asks_for) is not int:
            raise DeclarationError(f"{cls.__name__} must say in a field of type int for how many rows it asks.")
        warned = {PLAIN: warns} if isinstance(warns, Warns) else dict(warns)
        found = {one.protection if isinstance(one, Sealed) else one for one in options}
        if any(one not in found for one, of in warned.items() if of):
            raise DeclarationError(f"{cls.__name__} warns of something under a protection that it never has.")
        made.__template__ = Template(  # type: ignore[attr-defined]
            made,
            _pairs(sender, receiver, same_role),
            protection,
            step,
            summary,
            reveals,
            kind_of(made, cls.__name__),
            carries,
            {one: of for one, of in warned.items() if of},
            asks_for,
        )
        template_of(made).every_declaration()
        return made

    return declare


def template_of(message_or_class: Any) -> Template:
    """Return how a message or message class is declared; raise for anything undeclared."""
    cls = message_or_class if isinstance(message_or_class, type) else type(message_or_class)
    # Only the class's own: a subclass may carry more than its parent declared.
    template = vars(cls).get("__template__")
    if not isinstance(template, Template):
        raise DeclarationError(
            f"{cls.__name__} is not a declared message, so it cannot cross a channel. Declare it with @message."
        )
    return template


def declaration_of(message_or_class: Any) -> Declaration:
    """Return the declaration of a message between two roles that is always protected alike."""
    template = template_of(message_or_class)
    found = template.every_declaration()
    if len(found) != 1:
        raise DeclarationError(f"How {template.cls.__name__} crosses depends on the run. Ask its session or its plan.")
    return found[0]


def _pairs(sender: Roles, receiver: Roles, same_role: bool) -> tuple[tuple[str, str], ...]:
    senders, receivers = ((one,) if isinstance(one, str) else one for one in (sender, receiver))
    every = itertools.product(senders, receivers)
    is_single = len(senders) == len(receivers) == 1
    return tuple(pair for pair in every if is_single or same_role or pair[0] != pair[1])


def _split_docstring(cls: type) -> tuple[str, Mapping[Protection | None, str]]:
    text = re.sub(r"\s+", " ", cls.__doc__ or "").strip()
    summary, *said = re.split(r"Reveals(?: when ([A-Z]+))?: ", text)
    reveals: dict[Protection | None, str] = {}
    for protection, words in zip(said[::2], said[1::2], strict=True):
        reveals[None if protection is None else Protection(protection)] = words.strip()
    if not summary or not all(reveals.values()) or None not in reveals:
        raise DeclarationError(
            f"The message {cls.__name__} does not say what it reveals. "
            "End its docstring with a sentence 'Reveals: …' on what the receiver learns."
        )
    return summary.strip(), reveals


def resolve(messages: Iterable[type | Template], plan: Plan) -> tuple[Declaration, ...]:
    """Return what may cross of some messages in a run."""
    templates = (one if isinstance(one, Template) else template_of(one) for one in messages)
    return tuple(found for one in templates for found in one.declarations(plan))
