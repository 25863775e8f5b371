"""Say in words what receivers can often make of messages, from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterable

from colonnade.messages.declaration import NOISED, PLAIN, Declaration
from colonnade.messages.meaning import Warns

__all__ = ["in_names", "warnings_of"]

Crossing = tuple[Declaration, str, str]
"""A message, the party that sends it and the party that gets it."""


def warnings_of(crossings: Iterable[Crossing]) -> list[str]:
    """Return a sentence or two for each thing that a party can read: who gets it, what it tells, what would help."""
    found: dict[tuple[Warns, str], list[Crossing]] = {}
    for crossing in crossings:
        for warned in crossing[0].warns:
            found.setdefault((warned, crossing[2]), []).append(crossing)
    # Who is whose customer comes last: parties that look for shared rows want to know it.
    ordered = sorted(found.items(), key=lambda one: one[0][0] is Warns.MEMBERSHIP)
    return [_sentence(warned, receiver, own) for (warned, receiver), own in ordered]


def _sentence(warned: Warns, receiver: str, crossings: list[Crossing]) -> str:
    # The first of a stage's messages says most; all of them are in the table of what crossed.
    first = crossings[0][0]
    senders = _listed(sender for one, sender, _ in crossings if one.cls is first.cls)
    reveals = in_names(first.reveals, senders if senders == crossings[0][1] else None, receiver)
    how = {PLAIN: "without protection", NOISED: "with noise"}.get(first.protection, "masked")
    said = [f"{warned.words}: {receiver} gets {first.name} from {senders} {how}. It reveals {reveals}"]
    others = [one.name for one, _, _ in crossings if one.cls is not first.cls]
    said += [f"{_listed(others)} from {_listed(sender for _, sender, _ in crossings)} reveals more."] if others else []
    said += [f"{first.remedy}."] if first.remedy else []
    return " ".join(said)


def in_names(reveals: str, sender: str | None, receiver: str) -> str:
    """Say what a message reveals with parties' names in place of "the sender", if there is one only, and the receiver.

    >>> in_names("which of the receiver's rows the sender has.", "shop", "bank")
    "which of bank's rows shop has."
    """
    names = {"receiver": receiver} if sender is None else {"receiver": receiver, "sender": sender}
    return re.sub(rf"\b[Tt]he ({'|'.join(names)})\b", lambda found: names[found[1]], reveals)


def _listed(names: Iterable[str]) -> str:
    *most, last = dict.fromkeys(names)
    return f"{', '.join(most)} and {last}" if most else last
