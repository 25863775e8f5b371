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
    "IdMarks",
    "SharedCount",
    "SharedRows",
    "ShuffledMarks",
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
    """How many rows the sender brings, what its ids look like, its share of a salt, and which results it still has.

    Reveals: those facts. An earlier result is named by a random number that both parties keep.
    """

    count: int
    salt: bytes
    format: DeclaredFormat
    held: tuple[bytes, ...]
    unfinished: bytes
    finished_pieces: int


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class AlignmentOpening:
    """How the alignment goes on: a share of its salt, an earlier result to use, or where to take up one cut short.

    Reveals: how many rows the sender brings, and whether its ids are those of an earlier alignment.
    """

    count: int
    salt: bytes
    reuse: bytes | None
    first_piece: int


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class BlindedIds:
    """Ids hashed to points of a curve and multiplied with secrets of the sender, in random order.

    Reveals: nothing but their number, as long as the secrets stay such; equal ids of two parties cannot be compared.
    """

    points: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class TwiceBlindedIds:
    """The receiver's own blinded ids, multiplied with the sender's secret too.

    Reveals: nothing by themselves; the receiver can make marks of its ids from them, and of no others.
    """

    points: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class IdMarks:
    """Short hashes of the sender's ids, made with its secret, in random order.

    Reveals: which of the receiver's rows the sender has; of other rows nothing, as long as the secret stays one.
    """

    marks: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment")
class ShuffledMarks:
    """Short hashes of the receiver's own blinded ids, multiplied with the sender's secret too, in another order.

    Reveals: together with the sender's blinded ids, how many rows both have, and not which.
    """

    marks: np.ndarray


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class SharedRows:
    """Which of the receiver's rows all parties have, in the agreed order, each by a token of its id.

    Reveals: exactly that. A token shows that the sender brought the id too, and nothing of other parties.
    """

    tokens: np.ndarray
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


MESSAGES = (
    AlignmentOffer,
    AlignmentOpening,
    BlindedIds,
    TwiceBlindedIds,
    IdMarks,
    ShuffledMarks,
    SharedRows,
    SharedCount,
    GivenRows,
)

_FROM_LEAD = {
    "both_learn": ("AlignmentOpening", "BlindedIds", "SharedRows"),
    "one_learns": ("AlignmentOpening", "BlindedIds"),
    "size_only": ("AlignmentOpening", "BlindedIds", "SharedCount"),
}
_FROM_OTHERS = {
    "both_learn": ("AlignmentOffer", "TwiceBlindedIds", "IdMarks"),
    "one_learns": ("AlignmentOffer", "TwiceBlindedIds", "IdMarks"),
    "size_only": ("AlignmentOffer", "BlindedIds", "ShuffledMarks"),
}


def sends(message: str, rule: Alignment, *, is_lead: bool) -> bool:
    """Tell whether the lead, or another party, sends a message where shared rows are found by this rule."""
    if rule.protocol == "given":
        return message == "GivenRows"
    return message in (_FROM_LEAD if is_lead else _FROM_OTHERS)[rule.mode]
