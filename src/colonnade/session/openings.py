"""How often a party opened, with its own key, what a peer had masked.

A mask is uniform. So the owner of a key cannot see what it opens: a peer that deviates may put anything computed from
the owner's ciphertexts behind its mask, and gets it back in the place of the honest answer. What the owner can do is to
count. Each message is opened once in a step, or once at each place that the method names within a step or outside of
all steps, such as a part of the rows that are scored; anything more is refused.

Counts belong to one attempt at a run. A run that is taken up again repeats the steps since the checkpoint that all
parties have, or all of them, so that these are opened once more: a peer that makes a run break off, or says that it has
lost its checkpoints, gets another opening of each. So the ledger has one mark for every attempt, and a step is opened
in so many attempts only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from colonnade.errors import OpeningRefused
from colonnade.ledger import Entry

__all__ = ["MOST_ATTEMPTS", "Openings", "attempts_at"]

MOST_ATTEMPTS = 10
"""In how many attempts at a run a step may be opened: enough for a bad line, and few for a peer that wants more."""


def attempts_at(entries: Iterable[Entry], step: int) -> int:
    """Return in how many attempts, by a party's own ledger, the steps after this one may have been played."""
    count, began, kept = 0, -1, -1
    for entry in (*entries, None):
        if entry is None or entry.kind == "opened":
            count += began <= step <= kept
            began = kept = -1
        elif entry.kind in ("began", "resumed"):
            began = kept = int(entry.content["step"])
        elif entry.kind == "checkpoint":
            kept = int(entry.content["step"])
    return count


class Openings:
    """What this party opened for one peer in this attempt at the run."""

    def __init__(self, party: str, peer: str, step: Callable[[], int]) -> None:
        self._party, self._peer, self._step = party, peer, step
        self.attempts = 1
        """In how many attempts, with this one, its first steps may have been played."""
        self._names: list[str] = []
        self._at, self._begun = 0, set[tuple[type, str]]()
        self.counts: Counter[str] = Counter()
        """How many messages were opened, by their names."""
        self.numbers: Counter[str] = Counter()
        """How many numbers these held."""

    @contextmanager
    def at(self, place: str) -> Iterator[None]:
        """Name the place of the openings within: the same messages may be opened once more there."""
        self._names.append(place)
        try:
            yield
        finally:
            self._names.pop()

    def begin(self, message_class: type) -> None:
        """Allow the opening of one message at this place, or refuse it."""
        name, step, place = message_class.__name__, self._step(), ", ".join(self._names)
        if step != self._at:
            self._at, self._begun = step, set()
        if not step and not place:
            raise OpeningRefused(
                f"'{self._party}' was to open {name} for '{self._peer}' outside of any step. Nothing was "
                "opened: what a mask hides cannot be checked, so that only what the method asks for is opened."
            )
        if self.attempts > MOST_ATTEMPTS:
            raise OpeningRefused(
                f"'{self._party}' was to open {name} for '{self._peer}' in attempt {self.attempts} at the "
                "same steps. Nothing was opened: what a mask hides cannot be checked, and a partner that makes a run "
                "break off again and again has other things opened each time. Find out why it breaks off; then begin "
                "a new run."
            )
        if (message_class, place) in self._begun:
            where = f"step {step}, {place}" if place else f"step {step}"
            raise OpeningRefused(
                f"'{self._party}' was to open {name} for '{self._peer}' a second time at {where}. Nothing "
                "was opened: what a mask hides cannot be checked, so that each message is opened once."
            )
        self._begun.add((message_class, place))

    def add(self, message_class: type, numbers: int, *, is_first: bool) -> None:
        """Count numbers of a message that are opened now, and with the first of them the message."""
        name = message_class.__name__
        self.counts[name] += is_first
        self.numbers[name] += numbers
