"""Find the rows all parties share, by declared messages."""

from colonnade.alignment.align import (
    Overlap,
    align,
    align_in_one_place,
    align_with_each,
    count_shared,
    find_overlap,
)
from colonnade.alignment.announced import messages_of, sends
from colonnade.alignment.dividing import (
    agreed_split,
    divides_by_labels,
    is_matched_by_pair,
    split_number,
    tells_split,
)
from colonnade.alignment.intersection import PartnerRows
from colonnade.alignment.messages import MESSAGES, SharedRows, SplitNumber

__all__ = [
    "MESSAGES",
    "Overlap",
    "PartnerRows",
    "SharedRows",
    "SplitNumber",
    "agreed_split",
    "align",
    "align_in_one_place",
    "align_with_each",
    "count_shared",
    "divides_by_labels",
    "find_overlap",
    "is_matched_by_pair",
    "messages_of",
    "sends",
    "split_number",
    "tells_split",
]
