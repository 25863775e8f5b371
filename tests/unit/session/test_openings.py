"""Each message is opened once in a step, or once at each named place."""

from __future__ import annotations

import pytest
from tests.unit.session.toys import Answer, Ask

from colonnade.errors import OpeningRefused
from colonnade.ledger import LedgerWriter
from colonnade.session.openings import MOST_ATTEMPTS, Openings, attempts_at


class Clock:
    step = 0


def openings(clock: Clock) -> Openings:
    return Openings("shop", "bank", lambda: clock.step)


def test_a_message_is_opened_once_in_a_step_and_again_in_the_next() -> None:
    clock = Clock()
    found = openings(clock)
    for clock.step in (1, 2, 3):
        found.begin(Ask)
        found.begin(Answer)
        for kind in (Ask, Answer):
            with pytest.raises(OpeningRefused, match=f"'shop' .* for 'bank' a second time at step {clock.step}\\."):
                found.begin(kind)


def test_places_within_a_step_are_counted_by_themselves() -> None:
    clock = Clock()
    clock.step = 4
    found = openings(clock)
    found.begin(Ask)
    for part in ("validation", "test"):
        for row in (0, 64):
            with found.at(part), found.at(f"rows from {row}"):
                found.begin(Ask)
                with pytest.raises(OpeningRefused, match=f"step 4, {part}, rows from {row}"):
                    found.begin(Ask)
    with pytest.raises(OpeningRefused, match="step 4"):
        found.begin(Ask)


def test_outside_of_steps_only_named_places_are_opened() -> None:
    found = openings(Clock())
    with pytest.raises(OpeningRefused, match="outside of any step"):
        found.begin(Ask)
    with found.at("rows from 0"):
        found.begin(Ask)
    with found.at(""), pytest.raises(OpeningRefused, match="outside of any step"):
        found.begin(Ask)
    with pytest.raises(ValueError, match="out of it"), found.at("rows from 64"):
        raise ValueError("out of it")
    with pytest.raises(OpeningRefused, match="outside of any step"):
        found.begin(Ask)


def test_a_message_of_several_arrays_is_one_opening_of_all_their_numbers() -> None:
    found = openings(Clock())
    for _ in range(2):
        found.add(Ask, 6, is_first=True)
        found.add(Ask, 3, is_first=False)
    assert found.counts == {"Ask": 2}
    assert found.numbers == {"Ask": 18}


def test_a_step_is_opened_in_so_many_attempts_only() -> None:
    clock = Clock()
    found = openings(clock)
    clock.step, found.attempts = 3, MOST_ATTEMPTS
    found.begin(Ask)
    found.attempts += 1
    with pytest.raises(OpeningRefused, match=f"in attempt {MOST_ATTEMPTS + 1} at the same steps"):
        found.begin(Answer)


@pytest.mark.parametrize(
    ("attempts", "step", "count"),
    [
        ([(0, ())], 0, 1),
        ([(0, (3, 6)), (6, ())], 6, 2),
        ([(0, (3, 6)), (6, ()), (6, (9,)), (9, ())], 9, 2),
        ([(0, (3, 6)), (6, ()), (6, ()), (6, ())], 6, 4),
        # A peer that says it has lost everything.
        ([(0, (3, 6)), (0, (3, 6)), (0, ())], 0, 3),
        ([(0, (3, 6)), (3, (6,)), (3, ())], 3, 3),
        # Broken off before anything began.
        ([(0, ()), None, None, (0, ())], 0, 2),
    ],
)
def test_attempts_at_a_step_are_told_by_the_ledger(
    attempts: list[tuple[int, tuple[int, ...]] | None], step: int, count: int
) -> None:
    ledger = LedgerWriter()
    for one in attempts:
        ledger.mark("opened", party="shop", digest="d")
        if one is not None:
            began, checkpoints = one
            ledger.mark("resumed" if began else "began", step=began)
            for kept in checkpoints:
                ledger.mark("checkpoint", step=kept)
    assert attempts_at(ledger.read().entries, step) == count
