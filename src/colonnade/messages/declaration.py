"""Declare what may cross a channel.

A message is declared once. The declaration feeds the codec, the ledger, the policy check, the documentation's message
table and the report. What is not declared cannot be sent.

>>> @message(sender="feature_holder", receiver="label_holder", protection=PLAIN, step="forward")
... class Widths:
...     '''How wide the sender's part is. Reveals: one number.'''
...     width: int
>>> declaration_of(Widths).reveals
'one number.'
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar, dataclass_transform

from colonnade.errors import DeclarationError
from colonnade.messages.kinds import Kind, Shapes, kind_of

__all__ = [
    "ANYONE",
    "ENCRYPTED",
    "MASKED",
    "NOISED",
    "PLAIN",
    "Declaration",
    "Protection",
    "declaration_of",
    "message",
    "record",
]

T = TypeVar("T")


class Protection(StrEnum):
    """What still hides the content from the receiver after it has used every key it holds."""

    PLAIN = "PLAIN"
    NOISED = "NOISED"
    MASKED = "MASKED"
    ENCRYPTED = "ENCRYPTED"


PLAIN, NOISED, MASKED, ENCRYPTED = Protection.PLAIN, Protection.NOISED, Protection.MASKED, Protection.ENCRYPTED

ANYONE = "anyone"
"""The role of both ends of the session's own messages, such as the handshake."""


@dataclass(frozen=True)
class Declaration:
    """Everything that is known about a message before any is sent."""

    name: str
    sender: str
    receiver: str
    protection: Protection
    step: str
    summary: str
    reveals: str
    body: Kind
    schema: bytes
    """Eight bytes that stand for this declaration on the wire; they change when anything the peer relies on does."""
    asks_for: str | None = None
    """The field that says how many rows the receiver shall help to score for the sender, if it asks for that."""

    def shapes(self, content: object) -> Shapes:
        """Return the shapes of all arrays in a message of this kind, by field."""
        found: Shapes = {}
        self.body.shapes("", content, found)
        return found

    def rows_asked(self, content: object) -> int:
        """Return how many rows a message of this kind asks the receiver to help to score."""
        return 0 if self.asks_for is None else int(getattr(content, self.asks_for))


@dataclass_transform(frozen_default=True)
def record(cls: type[T]) -> type[T]:
    """Make a class a frozen record that may stand inside a message."""
    made = dataclass(frozen=True, eq=False)(cls)
    made.__is_record__ = True  # type: ignore[attr-defined]
    return made


@dataclass_transform(frozen_default=True)
def message(
    *, sender: str, receiver: str, protection: Protection, step: str, asks_for: str | None = None
) -> Callable[[type[T]], type[T]]:
    """Declare a class as a message from one role to another.

    The docstring's first part says what the message is; it must end with a sentence "Reveals: …" on what the receiver
    learns from it. ``asks_for`` names the field that says how many rows the receiver shall help to score for the
    sender, beside shared rows of a prediction: the channel counts them, and refuses more than the receiver allows.
    """

    def declare(cls: type[T]) -> type[T]:
        made = record(cls)
        summary, reveals = _split_docstring(cls)
        body = kind_of(made, cls.__name__)
        if not isinstance(protection, Protection):
            raise DeclarationError(f"The protection of {cls.__name__} must be PLAIN, NOISED, MASKED or ENCRYPTED.")
        if protection is ENCRYPTED and not body.carries_ciphertext:
            raise DeclarationError(
                f"{cls.__name__} is declared ENCRYPTED but has fields that are not ciphertexts. "
                "Use a Ciphertext type for every field, or declare the protection it really has."
            )
        if asks_for is not None and made.__annotations__.get(asks_for) not in ("int", int):
            raise DeclarationError(f"{cls.__name__} must say in a field of type int for how many rows it asks.")
        identity = "\n".join([cls.__name__, sender, receiver, protection, step, body.describe()])
        schema = hashlib.sha256(identity.encode()).digest()[:8]
        found = (cls.__name__, sender, receiver, protection, step, summary, reveals, body, schema, asks_for)
        made.__declaration__ = Declaration(*found)  # type: ignore[attr-defined]
        return made

    return declare


def declaration_of(message_or_class: Any) -> Declaration:
    """Return the declaration of a message or message class; raise for anything undeclared."""
    cls = message_or_class if isinstance(message_or_class, type) else type(message_or_class)
    # Only the class's own: a subclass may carry more than its parent declared.
    declaration = vars(cls).get("__declaration__")
    if not isinstance(declaration, Declaration):
        raise DeclarationError(
            f"{cls.__name__} is not a declared message, so it cannot cross a channel. Declare it with @message."
        )
    return declaration


def _split_docstring(cls: type) -> tuple[str, str]:
    text = re.sub(r"\s+", " ", cls.__doc__ or "").strip()
    summary, found, reveals = text.partition("Reveals: ")
    if not found or not summary or not reveals:
        raise DeclarationError(
            f"The message {cls.__name__} does not say what it reveals. "
            "End its docstring with a sentence 'Reveals: …' on what the receiver learns."
        )
    return summary.strip(), reveals
