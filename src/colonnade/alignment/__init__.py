"""Find the rows all parties share, by declared messages."""

from colonnade.alignment.plain import MESSAGES, align, align_in_one_place, sends

__all__ = ["MESSAGES", "align", "align_in_one_place", "sends"]
