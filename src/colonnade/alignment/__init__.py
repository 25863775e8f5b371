"""Find the rows all parties share, by declared messages."""

from colonnade.alignment.align import align, align_in_one_place, align_with_each, count_shared
from colonnade.alignment.forecast import measure_id_seconds, sample_messages
from colonnade.alignment.messages import MESSAGES, sends

__all__ = [
    "MESSAGES",
    "align",
    "align_in_one_place",
    "align_with_each",
    "count_shared",
    "measure_id_seconds",
    "sample_messages",
    "sends",
]
