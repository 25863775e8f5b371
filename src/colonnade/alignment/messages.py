"""What crosses while the parties find their shared rows."""

from __future__ import annotations

import numpy as np

from colonnade.messages import ANYONE, MASKED, PLAIN, message, record
from colonnade.session import Alignment

__all__ = [
    "MESSAGES",
    "MOST_IDS",
    "AlignmentOffer",
    "AlignmentOpening",
    "BlindedIds",
    "DeclaredFormat",
    "GivenRows",
    "SharedCount",
    "SharedRows",
    "TwiceBlindedIds",
    "sends",
]

MOST_IDS = 2**32
"""The most rows a partner may claim to bring."""


@record
class DeclaredFormat:
    """What a party's ids look like, so that an empty alignment can be explained without showing an id."""

    is_text: bool
    is_digits: bool
    shortest: int
    longest: int
    has_leading_zeros: bool
    has_spaces: bool
    letters: str
    parts: int


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class AlignmentOffer:
    """How many rows the sender brings, what its ids look like, and which earlier results it still has.

    Reveals: those facts. An earlier result is named by a random number that both parties keep.
    """

    count: int
    format: DeclaredFormat
    held: tuple[bytes, ...]
    unfinished: bytes
    finished_pieces: int


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class AlignmentOpening:
    """How the alignment goes on: the salt of this one, an earlier result to use, or where to take up one cut short.

    Reveals: how many rows the sender brings, and whether its ids are those of an earlier alignment.
    """

    count: int
    salt: bytes
    reuse: bytes | None
    first_piece: int


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class BlindedIds:
    """Ids hashed to points of a curve and multiplied with the sender's secret, in random order.

    Reveals: nothing but their number, as long as the secret stays one; equal ids of two parties cannot be compared yet.
    """

    points: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class TwiceBlindedIds:
    """Hashes of the receiver's own blinded ids, after the sender has multiplied them with its secret too.

    Reveals: together with the sender's blinded ids, which of the receiver's rows the sender has; in random order, where
    only sizes are asked for, how many.
    """

    marks: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class SharedRows:
    """Which of the receiver's rows all parties have, by their place among its blinded ids, in the agreed order.

    Reveals: exactly that.
    """

    places: np.ndarray
    result: bytes


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class SharedCount:
    """How many rows the two parties share. Reveals: that number."""

    count: int


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class GivenRows:
    """How many rows another tool matched, and a digest of what they are matched by.

    Reveals: that number, and whether the two lists are the same to who has the other.
    """

    count: int
    digest: bytes


MESSAGES = (AlignmentOffer, AlignmentOpening, BlindedIds, TwiceBlindedIds, SharedRows, SharedCount, GivenRows)

_FROM_OTHERS = ("AlignmentOffer", "BlindedIds", "TwiceBlindedIds")
_FROM_LEAD = ("AlignmentOpening", "BlindedIds")
_TOLD = {"both_learn": ("SharedRows",), "one_learns": (), "size_only": ("SharedCount",)}


def sends(message: str, rule: Alignment, *, is_lead: bool) -> bool:
    """Tell whether the lead, or another party, sends a message where shared rows are found by this rule."""
    if rule.protocol == "given":
        return message == "GivenRows"
    return message in ((*_FROM_LEAD, *_TOLD[rule.mode]) if is_lead else _FROM_OTHERS)
