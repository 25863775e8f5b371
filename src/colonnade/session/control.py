"""The session's own messages. They carry nothing derived from a table."""

from __future__ import annotations

from typing import Annotated

from colonnade.messages import ANYONE, PLAIN, Between, Length, Longest, message, record

__all__ = ["CONTROL", "AgreedField", "Failed", "Finished", "Goodbye", "HeldCheckpoints", "Hello", "ResumeFrom"]

_LARGEST_STEP, _MOST_FIELDS, _MOST_CHECKPOINTS = 2**63 - 1, 4096, 256
Digest = Annotated[bytes, Length(32, 32)]


@record
class AgreedField:
    """One agreed setting, by name and digest, so that a difference can be named."""

    name: str
    digest: Annotated[bytes, Length(16, 16)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="handshake")
class Hello:
    """Who speaks, in which run, with which settings and messages.

    Reveals: the sender's software version, its role, and digests of the agreed settings.
    """

    version: str
    party: str
    role: str
    run: str
    stage: str
    fields: Annotated[tuple[AgreedField, ...], Length(0, _MOST_FIELDS)]
    messages: Digest
    nonce: Annotated[bytes, Length(16, 16)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="handshake")
class HeldCheckpoints:
    """The steps at which the sender holds checkpoints. Reveals: how far the sender has come."""

    steps: Annotated[tuple[int, ...], Length(0, _MOST_CHECKPOINTS), Between(0, _LARGEST_STEP)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="handshake")
class ResumeFrom:
    """The highest step all parties hold, or none. Reveals: how far all parties have come."""

    step: Annotated[int | None, Between(0, _LARGEST_STEP)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="end")
class Failed:
    """A party stopped with an error. Reveals: which party, at which step, and the error's sentence."""

    party: str
    step: Annotated[int, Between(0, _LARGEST_STEP)]
    cause: Annotated[str, Longest(1000)]
    returns: bool
    """Whether nothing needs to change before the run goes on: a party was killed, interrupted or cut off."""


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="end")
class Finished:
    """The sender keeps its result on disk and needs no one any more.

    Reveals: nothing but whether the sender is through.
    """


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="end")
class Goodbye:
    """The sender is done and states what crossed.

    Reveals: digests of all that crossed in both directions, which the receiver has too.
    """

    sent: Digest
    received: Digest


CONTROL = (Hello, HeldCheckpoints, ResumeFrom, Failed, Finished, Goodbye)
