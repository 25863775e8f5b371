"""Which alignments a party has begun, with whom and over which ids: what limits a partner that asks again and again.

A line is written before the first blinded id leaves. Using an earlier result, or going on with an alignment that was
cut short, tells a partner nothing new and is no new line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from colonnade.session import EventLog

__all__ = ["AlignmentHistory"]


class AlignmentHistory:
    """The record of one party's alignments; without a file nothing is written and nothing remembered."""

    def __init__(self, path: Path | None) -> None:
        self._log = EventLog(path)

    def begun_with(self, partner: str) -> int:
        """Count the alignments begun with a partner."""
        # Who damages a line must not win an alignment by it.
        return sum(_counts(line, partner) for line in self._log.lines())

    def begin(self, partner: str, check: Callable[[int], None], **facts: Any) -> int:
        """Write down that an alignment begins, unless ``check`` refuses so many earlier ones; return how many.

        No other process can begin one in between.
        """
        with self._log.held():
            earlier = self.begun_with(partner)
            check(earlier)
            self._log.add("begun", partner=partner, **facts)
        return earlier

    def note(self, event: str, partner: str, **facts: Any) -> None:
        """Write down what became of an alignment: ``found`` so many rows, or ``refused``."""
        with self._log.held():
            self._log.add(event, partner=partner, **facts)


def _counts(line: dict[str, Any] | None, partner: str) -> bool:
    if line is None or not {"event", "partner"} <= line.keys():
        return True
    return (line["event"], line["partner"]) == ("begun", partner)
