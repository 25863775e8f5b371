"""Find the rows all parties share, by declared messages."""

from colonnade.alignment.align import (
    Overlap,
    align,
    align_in_one_place,
    align_with_each,
    count_shared,
    find_overlap,
)
from colonnade.alignment.intersection import PartnerRows
from colonnade.alignment.messages import MESSAGES, sends

__all__ = [
    "MESSAGES",
    "Overlap",
    "PartnerRows",
    "align",
    "align_in_one_place",
    "align_with_each",
    "count_shared",
    "find_overlap",
    "sends",
]
