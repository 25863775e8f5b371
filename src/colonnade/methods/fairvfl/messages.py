"""What crosses in FairVFL. The names in brackets are those of the method's sheet.

Parties with rows are holders. Any of them may have sensitive columns; label holder and feature holders may have other
columns, which become codes.
"""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch

from colonnade.exchanges.group_counts import CountFormat
from colonnade.messages import NOISED, PLAIN, Carries, Longest, Warns, by, message, when
from colonnade.messages.rules import Between, Dims, Distinct, Hex, Is, Length, OneOf
from colonnade.methods.fairvfl.config import AGGREGATOR, hides_attributes

__all__ = [
    "CODERS",
    "COUNTED",
    "HOLDERS",
    "MARK_BYTES",
    "AdversarialGradient",
    "Amounts",
    "AttackCodes",
    "AttackResult",
    "CountRequest",
    "Countable",
    "DiscriminatorGradient",
    "LocalCode",
    "LocalGradient",
    "Mark",
    "Offer",
    "PlainCodes",
    "ProtectedCode",
    "ProtectedCodeAgain",
    "TaskGradient",
    "TaskScores",
    "UnifiedCode",
    "VariantCodes",
]

HOLDERS = ("label_holder", "feature_holder", "attribute_holder")
CODERS = ("label_holder", "feature_holder")
COUNTED = ("feature_holder", "attribute_holder")
"""Who may have groups that are counted for the label holder."""
MARK_BYTES = 8
_MOST_ROWS = 10**8

Values = Annotated[torch.Tensor, Dims("rows", "width")]
Attributes = Annotated[tuple[str, ...], Length(0, 2**16), Distinct(), OneOf(given="sensitive")]

_CODE_NOISE = when(lambda plan: plan.config["removal"] == "robust" and plan.config["code_noise"] > 0, NOISED, PLAIN)
# What crosses twice in a step, and the code that an audit looks at.
_PROTECTED: Any = {
    "sender": AGGREGATOR,
    "receiver": HOLDERS,
    "protection": when("protected_noise", NOISED, PLAIN),
    "carries": Carries.ROW_CODE,
    "warns": Warns.COLUMNS,
}
_DISCRIMINATED: Any = {
    "sender": HOLDERS,
    "receiver": AGGREGATOR,
    "protection": when(hides_attributes, NOISED, PLAIN),
    "carries": Carries.ROW_GRADIENT,
    "warns": Warns.LABELS,
}
_AUDITED: Any = {"sender": AGGREGATOR, "protection": PLAIN, "carries": Carries.ROW_CODE, "warns": Warns.COLUMNS}


@message(sender="label_holder", receiver=AGGREGATOR, protection=PLAIN, step="set-up", carries=Carries.SIZE)
class Amounts:
    """How much there is to do. Reveals: how many rows there are of each kind, and how many scores a row has."""

    train: Annotated[int, Between("fewest_rows", _MOST_ROWS)]
    validation: Annotated[int, Between(0, _MOST_ROWS)]
    test: Annotated[int, Between(0, _MOST_ROWS)]
    outputs: Annotated[int, Between(1, 2**16)]


@message(sender=HOLDERS, receiver=AGGREGATOR, protection=PLAIN, step="set-up", carries=Carries.NAME)
class Offer:
    """What the sender brings, and of which model it has a part.

    Reveals: whether the sender has columns, and which sensitive ones, by name.
    """

    has_columns: bool
    attributes: Attributes
    model: str


@message(sender=AGGREGATOR, receiver=HOLDERS, protection=PLAIN, step="end of training")
class Mark:
    """A random name of the model. Reveals: nothing about any table."""

    name: Annotated[str, Hex(MARK_BYTES)]


@message(
    sender=CODERS,
    receiver=AGGREGATOR,
    protection=PLAIN,
    step="forward (local_repr)",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class LocalCode:
    """The sender's code of every row of a batch, and of which rows it knows anything.

    Reveals: a learned summary of the sender's columns for every row, from which the receiver may infer column values it
    can guess the distribution of; and which rows have no value in any of them.
    """

    values: Values
    is_there: Annotated[np.ndarray[Any, Any], Dims("rows", kind="b")]


@message(
    sender=AGGREGATOR,
    receiver="label_holder",
    protection=by("task_cut", label_holder=_CODE_NOISE),
    step="forward (unified_repr)",
    carries=Carries.ROW_CODE,
    warns=Warns.COLUMNS,
)
class UnifiedCode:
    """The code of all parties' columns of every row.

    Reveals: a learned summary of all columns, in full: a trained attacker reads attributes and columns from it.
    Reveals when NOISED: what the task needs of all columns, and whatever else of them the narrow code still carries;
    noise of known strength limits it, and the audit measures what is left of the attributes.
    """

    values: Values


@message(
    sender=AGGREGATOR,
    receiver="label_holder",
    protection=by("task_cut", server=PLAIN),
    step="forward, task_cut = server",
    carries=Carries.ROW_SCORE,
)
class TaskScores:
    """The task's scores of every row. Reveals: the task's scores of every row, and so the predictions."""

    values: Values


@message(
    sender="label_holder",
    receiver=AGGREGATOR,
    protection=PLAIN,
    step="backward (task_grad)",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class TaskGradient:
    """The task's gradient at the code, or at the scores. Reveals: in most cases the label of every row of the batch."""

    values: Values


@message(**_PROTECTED, step="adversary (protected_repr)")
class ProtectedCode:
    """A few numbers about every row, made for one attribute, by which its holder's discriminator learns.

    Reveals: evidence of the receiver's attribute in every row, which the receiver has, and of other columns as far as
    so many numbers carry it: the paper's contrastive step has not been seen to prevent that. The audit measures it.
    Reveals when NOISED: evidence of the receiver's attribute in every row, and what little else so few numbers carry;
    the audit measures it.
    """

    values: Values


@message(**_PROTECTED, step="removal (protected_repr2)")
class ProtectedCodeAgain:
    """The protected code once more, after its mapper has learned.

    Reveals: what ProtectedCode reveals, a second time: evidence of the receiver's attribute in every row, and of other
    columns as far as the numbers carry it.
    """

    values: Values


@message(**_DISCRIMINATED, step="adversary (disc_grad)")
class DiscriminatorGradient:
    """The discriminator's gradient at the protected code, from which the mapper learns.

    Reveals: the value of the sender's attribute in every row of the batch, to a receiver that groups directions.
    Reveals when NOISED: a randomised answer for every row, which is the value of the sender's attribute as often as the
    privacy loss allows, or that value as far as noise lets it be read.
    """

    values: Values


@message(**_DISCRIMINATED, step="removal (adv_grad)")
class AdversarialGradient:
    """The discriminator's gradient at the protected code, for the code.

    Reveals: what DiscriminatorGradient reveals, a second time: the value of the sender's attribute in every row of the
    batch, as far as randomised answers or noise, where there are any, let it be read.
    """

    values: Values


@message(
    sender=AGGREGATOR,
    receiver=CODERS,
    protection=PLAIN,
    step="backward (local_grad)",
    carries=Carries.ROW_GRADIENT,
    warns=Warns.LABELS,
)
class LocalGradient:
    """The gradient at the receiver's code of every row of a batch.

    Reveals: hints at labels and attributes of the rows, mixed: both losses pull at the code.
    """

    values: Values


@message(**_AUDITED, receiver=HOLDERS, step="audit")
class AttackCodes:
    """The code as the label holder sees it, and protected codes, of rows that are kept or held out.

    Reveals: to a party that did not have it, the whole of what the label holder can read of rows that are kept or held
    out.
    """

    unified: Values
    protected: Annotated[tuple[Values, ...], Length("mappers", "mappers")]


@message(**_AUDITED, receiver=COUNTED, step="comparison")
class VariantCodes:
    """The code of a model with other weights of removal as the label holder sees it, of the rows of an audit.

    Reveals: to a party that did not have it, the whole of what the label holder of a model with other weights of
    removal could read of the rows of an audit.
    """

    values: Values


@message(**_AUDITED, receiver=HOLDERS, step="comparison")
class PlainCodes:
    """The code of a plain model that is trained for comparison: for the task, and to be attacked as well.

    Reveals: what all parties' columns tell about the task for the rows of an audit, and much else of them: the code is
    whole, without noise, and nothing was removed from it.
    """

    values: Values


@message(sender=COUNTED, receiver="label_holder", protection=PLAIN, step="audit", carries=Carries.SUM)
class AttackResult:
    """What attackers read of one attribute, as JSON. Reveals: how well each attacker could read one attribute."""

    attribute: Annotated[str, Is("attribute")]
    found: Annotated[str, Longest(20_000)]


@message(sender=COUNTED, receiver="label_holder", protection=PLAIN, step="audit", carries=Carries.NAME | Carries.SIZE)
class Countable:
    """By which attributes the sender can count.

    Reveals: the names of the attributes by which the sender can count, and how many groups each has.
    """

    attributes: Attributes
    groups: Annotated[tuple[int, ...], Length(0, 2**16), Between(1, CountFormat.most_groups)]


@message(sender="label_holder", receiver=COUNTED, protection=PLAIN, step="audit")
class CountRequest:
    """Whether decisions are to be counted. Reveals: whether the task has two classes."""

    is_wanted: bool
