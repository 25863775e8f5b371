"""What the parties agree on in words: what a run is for, and how long it may be kept."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from colonnade.errors import ConfigError
from colonnade.session import RunPlan


def plan(**changes: Any) -> RunPlan:
    return RunPlan(name="run", method="toy", roles={"lead": ("bank",), "helper": ("shop",)}, **changes)


@pytest.mark.parametrize("name", ["purpose", "retention"])
def test_words_are_part_of_what_is_agreed_and_are_one_bounded_line(name: str) -> None:
    agreed = plan(**{name: "Überweisungen prüfen – nothing else."})
    assert agreed.digest() != plan().digest()
    for words in ("", "  ", "two\nlines", "\x1b[2J", "turned \u202e round", "x" * 501):
        with pytest.raises(ConfigError, match=rf"run\.{name} must be one line of plain text of at most 500"):
            plan(**{name: words})
    plan(**{name: "x" * 500})


def test_the_last_day_that_a_retention_names_is_when_it_is_over() -> None:
    assert plan().keep_until is None
    assert plan(retention="Until the contract ends.").keep_until is None
    assert plan(retention="Scores 2026-12-31, all else 2027-01-31.").keep_until == date(2027, 1, 31)
    with pytest.raises(ConfigError, match=r"run\.retention names 2027-02-30, which is no day"):
        plan(retention="Delete by 2027-02-30.")
