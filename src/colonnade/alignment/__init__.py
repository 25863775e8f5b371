"""Find the rows all parties share, by declared messages."""

from colonnade.alignment.align import (
    Overlap,
    align,
    align_in_one_place,
    align_with_each,
    count_shared,
    find_overlap,
)
from colonnade.alignment.meeting import Met
from colonnade.alignment.messages import MESSAGES, sends

__all__ = [
    "MESSAGES",
    "Met",
    "Overlap",
    "align",
    "align_in_one_place",
    "align_with_each",
    "count_shared",
    "find_overlap",
    "sends",
]
