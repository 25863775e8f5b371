"""How many rows a party has helped to score for each partner: what `Policy.predictions_per_day` looks back at."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from colonnade.errors import PolicyRefused, WrongContent
from colonnade.session.event_log import EventLog
from colonnade.session.policy import Policy

__all__ = ["ScoredRows"]

_MOST_ROWS = 2**31


class ScoredRows:
    """Counts rows before they are scored, in a file that all runs of a party's home share.

    Rows stay counted where a prediction fails later, and count again when it is repeated: they may be others then.
    """

    def __init__(self, party: str, policy: Policy, path: Path | None = None) -> None:
        """Count for a party by its policy; without a file, as long as this object lasts."""
        self._party, self._policy = party, policy
        self._log = None if path is None else EventLog(path)
        self._used: Counter[str] = Counter()

    def count(self, partner: str, rows: int) -> None:
        """Write down rows that a partner wants scored, or refuse them where that would be too many within a day."""
        if not 0 <= rows <= _MOST_ROWS:
            raise WrongContent(f"'{partner}' announces rows to score, but not 0 to {_MOST_ROWS} of them.")
        if not rows:
            return
        if self._log is None:
            self._policy.check_predictions(self._party, partner, self._used[partner], rows)
            self._used[partner] += rows
            return
        now = datetime.now(UTC)
        with self._log.held():
            used = sum(_rows_within_a_day(line, partner, now) for line in self._log.lines())
            try:
                self._policy.check_predictions(self._party, partner, used, rows)
            except PolicyRefused:
                self._log.add("refused", partner=partner, rows=rows)
                raise
            self._log.add("scored", partner=partner, rows=rows)


def _rows_within_a_day(line: dict[str, Any] | None, partner: str, now: datetime) -> int:
    if line is None or line.get("event") != "scored" or line.get("partner") != partner:
        return 0
    try:
        is_recent = now - datetime.fromisoformat(line["time"]) < timedelta(days=1)
        return int(line["rows"]) if is_recent else 0
    except (KeyError, TypeError, ValueError):
        return 0
