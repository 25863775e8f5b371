"""What crosses while the parties find their shared rows."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.crypto.blinding import MARK_BYTES, POINT_BYTES
from colonnade.data import DIGITS, LETTERS, SEPARATORS
from colonnade.messages import ANYONE, MASKED, PLAIN, Between, Carries, Dims, Length, OneOf, Warns, message, record
from colonnade.session import SPLITS, Alignment

__all__ = [
    "MESSAGES",
    "RESULT_BYTES",
    "SALT_BYTES",
    "AlignmentOffer",
    "AlignmentOpening",
    "BlindedIds",
    "DeclaredFormat",
    "GivenRows",
    "IdMarks",
    "SharedCount",
    "SharedRows",
    "ShuffledMarks",
    "SplitNumber",
    "TwiceBlindedIds",
    "crosses",
]

SALT_BYTES, RESULT_BYTES = 32, 16
_LONGEST_ID, _MOST_COLUMNS, _MOST_RESULTS = 2**20, 64, 64

Array = np.ndarray[Any, Any]
Count = Annotated[int, Between(0, 2**32)]
IdLength = Annotated[int, Between(0, _LONGEST_ID)]
Salt = Annotated[bytes, Length(SALT_BYTES, SALT_BYTES)]
Result = Annotated[bytes, Length(RESULT_BYTES, RESULT_BYTES)]
"""The name of an earlier result."""
Points = Annotated[Array, Dims("ids", POINT_BYTES, kind="u1")]
Marks = Annotated[Array, Dims("ids", MARK_BYTES, kind="u1")]


@record
class DeclaredFormat:
    """What a party's ids look like, so that an alignment that finds few rows can be explained without showing an id."""

    is_text: bool
    digits: Annotated[str, OneOf(*DIGITS)]
    shortest: IdLength
    longest: IdLength
    shortest_bare: IdLength
    longest_bare: IdLength
    has_leading_zeros: bool
    has_spaces: bool
    has_point_zero: bool
    has_exponents: bool
    separators: Annotated[tuple[Annotated[str, OneOf(*SEPARATORS)], ...], Length(0, len(SEPARATORS))]
    letters: Annotated[str, OneOf(*LETTERS)]
    stays_distinct: bool
    parts: Annotated[int, Between(1, _MOST_COLUMNS)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.SIZE)
class AlignmentOffer:
    """How many rows the sender brings, what its ids look like, its share of a salt, and which results it still has.

    Reveals: how many rows the sender brings, and of its ids: whether they are text or numbers; how long the shortest
    and the longest are; and whether any has leading zeros, upper or lower case, spaces around, separators inside, the
    form of a float, or would equal another if all that were ignored. No id. An earlier result is named by a random
    number that both parties keep.
    """

    count: Count
    salt: Salt
    format: DeclaredFormat
    held: Annotated[tuple[Result, ...], Length(0, _MOST_RESULTS)]
    unfinished: Annotated[bytes, Length(0, SALT_BYTES)]
    finished_pieces: Count


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.SIZE)
class AlignmentOpening:
    """How the alignment goes on: a share of its salt, an earlier result to use, or where to take up one cut short.

    Reveals: how many rows the sender brings; what its ids look like, which is said as in an offer: length, case,
    digits, separators, no id; and whether they are those of an earlier alignment.
    """

    count: Count
    salt: Annotated[bytes, Length(0, SALT_BYTES)]
    format: DeclaredFormat
    reuse: Annotated[bytes | None, OneOf(given="held")]
    first_piece: Annotated[int, Between(0, "answered")]


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment", carries=Carries.ROWS)
class BlindedIds:
    """Ids hashed to points of a curve and multiplied with secrets of the sender, in random order.

    Reveals: nothing but how many ids the sender has, as long as its secrets stay secret; equal ids of two parties
    cannot be compared.
    """

    points: Points


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment", carries=Carries.ROWS)
class TwiceBlindedIds:
    """The receiver's own blinded ids, multiplied with the sender's secret too.

    Reveals: nothing by itself; the receiver can make marks of its own ids with it, and of no others.
    """

    points: Points


@message(
    sender=ANYONE,
    receiver=ANYONE,
    protection=MASKED,
    step="alignment",
    carries=Carries.ROWS,
    warns={MASKED: Warns.MEMBERSHIP},
)
class IdMarks:
    """Short hashes of the sender's ids, made with its secret, in random order.

    Reveals: which of the receiver's rows the sender has; of other rows nothing, as long as the sender's secret stays
    secret.
    """

    marks: Marks


@message(sender=ANYONE, receiver=ANYONE, protection=MASKED, step="alignment", carries=Carries.SIZE)
class ShuffledMarks:
    """Short hashes of the receiver's own blinded ids, multiplied with the sender's secret too, in another order.

    Reveals: together with the sender's blinded ids, how many rows both parties have, and not which.
    """

    marks: Marks


@message(
    sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.ROWS, warns=Warns.MEMBERSHIP
)
class SharedRows:
    """The rows that all parties have, in the agreed order, each by a token of its id.

    Reveals: which of the receiver's rows all parties have. The token of a row shows that the sender brought its id too,
    and nothing of other parties.
    """

    tokens: Annotated[Array, Dims(None, MARK_BYTES, kind="u1")]
    result: Result


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.SIZE)
class SharedCount:
    """How many rows the two parties share. Reveals: how many rows the two parties share."""

    count: Annotated[int, Between(0, "own_rows")]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.SIZE)
class GivenRows:
    """How many rows another tool matched, and a digest of what they are matched by.

    Reveals: how many rows another tool matched, and, to who has the other party's list, whether the two lists are the
    same.
    """

    count: Count
    digest: Annotated[bytes, Length(32, 32)]


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment", carries=Carries.VERDICT)
class SplitNumber:
    """Which of 64 ways to divide the shared rows spreads the classes most evenly over training and held-out rows.

    Reveals: the number of the division, and so at most six bits about the labels of the shared rows.
    """

    number: Annotated[int, Between(0, SPLITS - 1)]


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
    SplitNumber,
)

_FROM_LEAD = {
    "both_learn": (AlignmentOpening, BlindedIds, SharedRows),
    "one_learns": (AlignmentOpening, BlindedIds),
    "size_only": (AlignmentOpening, BlindedIds, SharedCount),
}
_FROM_OTHERS = {
    "both_learn": (AlignmentOffer, TwiceBlindedIds, IdMarks),
    "one_learns": (AlignmentOffer, TwiceBlindedIds, IdMarks),
    "size_only": (AlignmentOffer, BlindedIds, ShuffledMarks),
}


def crosses(message: type, rule: Alignment, *, is_from_lead: bool) -> bool:
    """Tell whether the lead, or another party, sends a message to find shared rows by this rule."""
    if rule.protocol == "given":
        return message is GivenRows
    return message in (_FROM_LEAD if is_from_lead else _FROM_OTHERS)[rule.mode]
