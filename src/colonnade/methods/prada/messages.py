"""What crosses in PrADA: always between the feature holder and a bank, which is a source or a target."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from colonnade.crypto import CipherArray
from colonnade.exchanges.secure_product import Opened
from colonnade.messages import (
    MASKED,
    NOISED,
    PLAIN,
    Between,
    Carries,
    Dims,
    Distinct,
    Hex,
    Is,
    Length,
    OneOf,
    Warns,
    by,
    message,
)

__all__ = [
    "BANKS",
    "HOLDER",
    "LEVELS",
    "MARK_BYTES",
    "Chosen",
    "GroupGradients",
    "GroupLevels",
    "GroupNames",
    "GroupNumbers",
    "InitialWeights",
    "LabelledRows",
    "MaskedContributions",
    "ModelMark",
    "OpenedContributions",
    "Turn",
    "TurnSeen",
]

HOLDER, BANKS = "feature_holder", ("source", "target")
MARK_BYTES, LEVELS = 16, 5
_MOST_NAMES = 4096
# More steps than any run has.
_MOST_STEPS = 10**8

Numbers = Annotated[np.ndarray[Any, Any], Dims("rows", "inputs", kind="f")]
Name = Annotated[str, Length(1, 256)]
Mark = Annotated[str, Hex(MARK_BYTES)]


@message(sender=HOLDER, receiver=BANKS, protection=PLAIN, step="set-up", carries=Carries.NAME)
class GroupNames:
    """The feature groups' names, how many numbers each gives per row, and groups with categories new to sources.

    Reveals: the names of the sender's feature groups, how many numbers each gives per row, and how many categories new
    to sources a group has; not which.
    """

    names: Annotated[tuple[Name, ...], Length(1, _MOST_NAMES), Distinct()]
    aggregate: Annotated[int, Is("aggregate")]
    new: Annotated[tuple[str, ...], Length(0, "novelties")]


@message(sender=BANKS, receiver=HOLDER, protection=PLAIN, step="set-up", carries=Carries.ROWS | Carries.SIZE)
class LabelledRows:
    """Which shared rows have a label, and how many scores a row has.

    Reveals: for which shared rows the sender has a label, and the number of classes; no label.
    """

    rows: Annotated[np.ndarray[Any, Any], Dims(None, kind="iu"), Between(0, "last_row"), Distinct(rising=True)]
    scores: Annotated[int, Between(1, "most_scores")]


@message(sender=HOLDER, receiver=BANKS, protection=PLAIN, step="while others learn", carries=Carries.VERDICT)
class Turn:
    """How far the run is while other banks learn.

    Reveals: how many steps other banks make, and so about how many rows they have.
    """

    # Every turn is a step at least, so that turns come to an end.
    step: Annotated[int, Between("next_step", _MOST_STEPS)]
    is_over: bool
    stops: bool


@message(sender=BANKS, receiver=HOLDER, protection=PLAIN, step="while others learn")
class TurnSeen:
    """That the sender has kept this step, so that a run can be taken up there. Reveals: nothing."""

    step: Annotated[int, Is("step")]


@message(
    sender=HOLDER,
    receiver=BANKS,
    protection=by("protection", none=PLAIN),
    step="set-up, protection = none",
    carries=Carries.WEIGHTS,
)
class InitialWeights:
    """The sender's part of the initial weights, in the clear, for research.

    Reveals: the sender's part of the initial weights.
    """

    values: Annotated[np.ndarray[Any, Any], Dims("inputs", "scores", kind="f")]


@message(
    sender=HOLDER,
    receiver=BANKS,
    protection=by("protection", none=PLAIN),
    step="PrADA Alg. 4, protection = none",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class GroupNumbers:
    """What the groups give for every row, in the clear, for research.

    Reveals: a learned summary of the sender's columns for every row, group by group.
    """

    values: Numbers


@message(
    sender=BANKS,
    receiver=HOLDER,
    protection=by("defence", {"none": PLAIN, "coae": PLAIN, "marvell": NOISED, "marvell+coae": NOISED}),
    step="PrADA Alg. 5, line 22, protection = none",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class GroupGradients:
    """The gradient at the groups' numbers, in the clear, for research.

    Reveals: the label of every row; codes of classes (coae) hide little of it by themselves. Reveals when NOISED: of
    the label of each row no more than label_budget allows in one release; those of all epochs add up.
    """

    values: Numbers


@message(sender="target", receiver=HOLDER, protection=PLAIN, step="end of training", carries=Carries.VERDICT)
class Chosen:
    """Which model the sender will use, and a digest of its part. Reveals: whether transfer held its own."""

    model: Annotated[str, OneOf(given="models")]
    mark: Mark


@message(sender="target", receiver=HOLDER, protection=PLAIN, step="before rows are scored", carries=Carries.NAME)
class ModelMark:
    """The digest of the sender's part, so that both use parts of one model. Reveals: which training made the part."""

    mark: Mark


@message(sender="target", receiver=HOLDER, protection=MASKED, step="explanation", carries=Carries.ROW_SCORE)
class MaskedContributions:
    """The sender's part of what each group adds to each score, behind a uniform mask. Reveals: nothing."""

    values: Annotated[CipherArray, Dims("rows", "outputs")]


@message(
    sender=HOLDER,
    receiver="target",
    protection=PLAIN,
    step="explanation",
    carries=Carries.ROW_SCORE | Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class OpenedContributions:
    """What each group adds to each row's score, behind the receiver's own mask.

    Reveals: for every explained row and group, the group's number times its weight, beyond their mean.
    """

    values: Opened


@message(
    sender=HOLDER,
    receiver="target",
    protection=PLAIN,
    step="explanation",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class GroupLevels:
    """In which fifth of all explained rows each row lies, group by group, to colour a figure.

    Reveals: a coarse summary of the sender's columns for every explained row.
    """

    levels: Annotated[np.ndarray[Any, Any], Dims("rows", "groups", kind="iu"), Between(0, LEVELS - 1)]
