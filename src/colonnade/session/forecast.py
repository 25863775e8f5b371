"""How long a run will take and how much each party will send: what a forecast is made from, and what it says.

A method forecasts its own stages, from the same layouts and messages that its role functions use. Sizes are those of
real messages, written with content that does not matter, so they cannot drift from the codec.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from colonnade.crypto.calibration import CryptoCosts
from colonnade.engine.engine import cut
from colonnade.errors import ConfigError
from colonnade.messages import HEADER_BYTES, declaration_of, encode_body, total_bytes

if TYPE_CHECKING:
    from colonnade.session.plan import RunPlan

__all__ = [
    "Crossing",
    "Facts",
    "Forecaster",
    "Line",
    "Machines",
    "Portion",
    "StageForecast",
    "batch_sizes",
    "crossing",
    "crossings",
    "weigh",
]

# Pieces shorter than this stay in the party's own process, as in a pool.
_LEAST_PIECE_SECONDS = 0.005


@dataclass(frozen=True, kw_only=True)
class Line:
    """What stands between two parties."""

    message_seconds: float
    """What sending and receiving one small message costs both sides together, records included."""
    latency_seconds: float = 0.0
    """The way of a message in one direction."""
    bytes_per_second: float | None = None
    """None for a line that is never the bottleneck, such as loopback."""

    def seconds(self, hops: float, bytes: int) -> float:
        """Return the time of messages that wait for one another, and hold so many bytes in all."""
        moving = 0.0 if self.bytes_per_second is None else (bytes + hops * HEADER_BYTES) / self.bytes_per_second
        return hops * (self.message_seconds + self.latency_seconds) + moving


@dataclass(frozen=True, kw_only=True)
class Machines:
    """What the parties compute on."""

    line: Line
    costs: CryptoCosts | None = None
    """None where nothing is encrypted."""
    workers: Mapping[str, int] = field(default_factory=dict)
    """How many processes each party's engine divides work among."""
    speedups: Mapping[int, float] = field(default_factory=dict)
    """How many times as fast so many processes are as one, where that was measured."""
    cores: int | None = None
    """How many cores all parties share; None if each has a machine of its own."""

    @property
    def crypto(self) -> CryptoCosts:
        """Return what encrypted arithmetic costs."""
        if self.costs is None:
            raise ValueError("this method encrypts, but nothing was measured")
        return self.costs

    def divided(self, party: str, pieces: int, seconds_each: float) -> float:
        """Return how long a party's engine takes for pieces of work that can be divided."""
        workers = self.workers.get(party, 1)
        seconds = pieces * seconds_each
        parts = len(cut(pieces, seconds, workers=workers, least_seconds=_LEAST_PIECE_SECONDS))
        return seconds / max(1.0, min(self.speedups.get(workers, workers), parts))

    def side_by_side(self, seconds: Sequence[float]) -> float:
        """Return how long parties take that work at the same time."""
        return max(max(seconds, default=0.0), self._at_least(sum(seconds)))

    def one_after_another(self, asked: Sequence[float], answered: Sequence[float]) -> float:
        """Return how long it takes until all have answered, if one party prepares the questions in turn."""
        ends, ready = [0.0], 0.0
        for question, answer in zip(asked, answered, strict=True):
            ready += question
            ends.append(ready + answer)
        return max(max(ends), self._at_least(sum(asked) + sum(answered)))

    def _at_least(self, work: float) -> float:
        return 0.0 if self.cores is None else work / self.cores


@dataclass(frozen=True, kw_only=True)
class Portion:
    """The rows that one party shares with the lead, where they are matched pair by pair; of each part the labelled."""

    shared: int
    training: int
    validation: int
    test: int


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What is known of the tables and the machines before a run."""

    rows: Mapping[str, int]
    """Rows of each party's table."""
    training: int
    validation: int
    test: int
    columns: Mapping[str, int]
    """Encoded columns of each party whose number of columns is known."""
    task: str | None
    """What is learned; None if nobody here knows the label."""
    classes: int
    machines: Machines
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Columns, by name, of each party whose table is here."""
    portions: Mapping[str, Portion] = field(default_factory=dict)
    """By party, where rows are matched pair by pair and all tables are here."""

    @property
    def shared(self) -> int:
        """Return how many rows all parties have."""
        return self.training + self.validation + self.test

    def portion_of(self, party: str) -> Portion:
        """Return what a party shares with the lead; as much as those that share the most, if nobody can tell."""
        return self.portions.get(party) or Portion(
            shared=self.shared, training=self.training, validation=self.validation, test=self.test
        )

    def columns_of(self, party: str) -> int:
        """Return how many encoded columns a party brings."""
        if party not in self.columns:
            raise ConfigError(
                f"The home of '{party}' is not on this machine, so its number of columns is not known. Ask your "
                f"partner and say --columns {party}=N; each category of a text column counts as one."
            )
        return self.columns[party]

    @property
    def known_task(self) -> str:
        """Return what is learned."""
        if self.task is None:
            raise ConfigError(
                "The label lies at a party whose home is not on this machine, so it is not known what is learned. Say "
                "--classes N, with 0 for a number; or set task in [config]."
            )
        return self.task


@dataclass(frozen=True)
class Crossing:
    """One kind of message from one party to another."""

    sender: str
    receiver: str
    message: str
    count: int
    bytes: int
    """All of them together, as the ledger counts: content without frames and TLS."""


@dataclass(frozen=True, kw_only=True)
class StageForecast:
    """One part of a run. Everything is for one time through it."""

    name: str
    seconds: float | None
    """None where the method does not say."""
    busy: Mapping[str, float] = field(default_factory=dict)
    """Seconds of work at each party; the others mostly wait meanwhile."""
    sent: tuple[Crossing, ...] = ()
    times: int = 1
    """How often it is gone through, at most."""

    def bytes_sent(self, party: str) -> int:
        """Return what a party sends, one time through."""
        return sum(one.bytes for one in self.sent if one.sender == party)


def _nothing_more(plan: RunPlan, config: Any) -> tuple[str, ...]:
    return ()


@dataclass(frozen=True)
class Forecaster:
    """How a method forecasts its runs."""

    key: Callable[[Any], str | None]
    """The named size of the keys that settings ask for; None if nothing is encrypted."""
    stages: Callable[[Facts, RunPlan, Any], tuple[StageForecast, ...]]
    covers: tuple[str, ...] = ("train",)
    """The method's stages that can be forecast."""
    is_by_pair: bool = False
    """Whether it goes by what each party shares with the lead, and not by the most that any two share."""
    assumes: Callable[[RunPlan, Any], tuple[str, ...]] = _nothing_more
    """What else it takes for granted, as clauses."""


def weigh(message: Any) -> int:
    """Return how many bytes a message takes in the ledger."""
    return total_bytes(encode_body(declaration_of(message), message))


def crossing(sender: str, receiver: str, *messages: tuple[Any, int]) -> Crossing:
    """Weigh messages of one kind, each given with how many there are of its size."""
    (name,) = {declaration_of(message).name for message, _ in messages}
    count = sum(number for _, number in messages)
    return Crossing(sender, receiver, name, count, sum(weigh(message) * number for message, number in messages))


def crossings(
    sender: str, receiver: str, message: type[Any], sizes: Mapping[int, int], *fields: Callable[[int], Any]
) -> list[Crossing]:
    """Weigh messages that differ in their rows: of so many rows there are so many, with these fields. None may be."""
    samples = [(message(*(field(rows) for field in fields)), number) for rows, number in sizes.items()]
    return [crossing(sender, receiver, *samples)] if samples else []


def batch_sizes(rows: int, batch_size: int) -> Counter[int]:
    """Return how many batches there are of each size.

    >>> batch_sizes(300, 128)
    Counter({128: 2, 44: 1})
    """
    full, rest = divmod(rows, batch_size)
    return Counter({size: number for size, number in ((batch_size, full), (rest, 1)) if size and number})
