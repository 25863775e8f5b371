"""Alignment in the open: every party shows the lead a mark of each id, and learns which are shared.

The marks are keyed by the run's seed, which all parties know. So this hides no id from a party that can guess it; the
declaration says so, and a policy with ``never_send = ["PLAIN"]`` refuses it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from colonnade.data import (
    LETTERS,
    AlignedRows,
    IdFormat,
    PartyTable,
    align_marks,
    explain_nothing_shared,
    id_marks,
    rows_of_marks,
)
from colonnade.errors import AlignmentError, WrongContent
from colonnade.messages import ANYONE, PLAIN, message, record
from colonnade.session import Channel, Session

__all__ = ["MESSAGES", "IdMarks", "SharedMarks", "align", "align_in_one_place", "sends"]

_LONGEST_ID = 2**20
_PROTOCOL = "plain: ids compared by marks that hide nothing from who can guess them"


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


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class IdMarks:
    """A mark of every id of the sender's table, and the ids' common form, for the lead.

    Reveals: how many rows the sender has, and for every id the receiver knows or can guess whether the sender has it.
    """

    marks: np.ndarray
    format: DeclaredFormat


@message(sender=ANYONE, receiver=ANYONE, protection=PLAIN, step="alignment")
class SharedMarks:
    """The marks every party has, in the agreed order. Reveals: which of the receiver's rows all other parties have."""

    marks: np.ndarray


MESSAGES = (IdMarks, SharedMarks)


def sends(message: str, *, is_lead: bool) -> bool:
    """Tell whether the lead, or another party, sends a message of this protocol."""
    return message == (SharedMarks if is_lead else IdMarks).__name__


def align(session: Session, table: PartyTable) -> AlignedRows:
    """Find the rows that all parties of a session hold; the order depends on the seed and the ids only."""
    own = id_marks(table.ids, session.seed("alignment"))
    if not session.all_channels:
        return AlignedRows(*rows_of_marks(own, np.sort(own)), "one party only")
    if session.role == session.method.lead:
        shared = _gather(session, own, IdFormat.of(table.ids))
    else:
        lead = session.channel(session.method.lead)
        lead.send(IdMarks(own, DeclaredFormat(**dataclasses.asdict(IdFormat.of(table.ids)))))
        shared = _checked(lead.receive(SharedMarks).marks, "SharedMarks", lead)
        # An honest lead that finds nothing shared says why and stops.
        if not len(shared) or not np.isin(shared, own).all():
            raise WrongContent(f"'{lead.peer}' announces shared rows that '{session.party}' does not have.")
    return AlignedRows(*rows_of_marks(own, shared), _PROTOCOL)


def align_in_one_place(tables: Mapping[str, PartyTable], seed: int) -> dict[str, AlignedRows]:
    """Find what `align` finds, where all tables are in one place: for the comparison only a simulation can make."""
    marks = {party: id_marks(table.ids, seed) for party, table in tables.items()}
    shared = align_marks(marks)
    return {party: AlignedRows(*rows_of_marks(own, shared), _PROTOCOL) for party, own in marks.items()}


def _gather(session: Session, own: npt.NDArray[np.uint64], own_format: IdFormat) -> npt.NDArray[np.uint64]:
    marks, formats = {session.party: own}, {session.party: own_format}
    for channel in session.all_channels:
        theirs = channel.receive(IdMarks)
        marks[channel.peer] = _checked(theirs.marks, "IdMarks", channel, is_ordered=False)
        formats[channel.peer] = _format_of(theirs.format, channel)
    shared = align_marks(marks)
    if not len(shared):
        raise AlignmentError(explain_nothing_shared(formats))
    for channel in session.all_channels:
        channel.send(SharedMarks(shared))
    return shared


def _checked(
    marks: npt.NDArray[np.uint64], name: str, channel: Channel, *, is_ordered: bool = True
) -> npt.NDArray[np.uint64]:
    """Refuse what no honest peer sends: another kind of array, a mark twice, another order."""
    in_order = marks if is_ordered or marks.ndim != 1 else np.sort(marks)
    if marks.dtype != np.uint64 or marks.ndim != 1 or not (in_order[1:] > in_order[:-1]).all():
        raise WrongContent(f"{name} from '{channel.peer}' does not hold one mark for every row, each once.")
    return marks


def _format_of(declared: DeclaredFormat, channel: Channel) -> IdFormat:
    # These words stand in an error that people read, so they must be ones we know.
    if declared.letters not in LETTERS or not 0 <= declared.shortest <= declared.longest <= _LONGEST_ID:
        raise WrongContent(f"IdMarks from '{channel.peer}' describe ids in a way no version of colonnade does.")
    return IdFormat(**dataclasses.asdict(declared))
