"""Rehearse a run: play its role functions on made-up tables, with few rows and few passes, and multiply."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import alignment
from colonnade.crypto import INSECURE_TEST
from colonnade.engine import INLINE, Engine
from colonnade.errors import ColonnadeError
from colonnade.launch.made_up import World
from colonnade.launch.simulation import simulate_plan
from colonnade.ledger import Entry, Ledger
from colonnade.messages import ENCRYPTED
from colonnade.methods import method_named
from colonnade.session import Method, Party, Progress, RunPlan

__all__ = ["Rehearsal", "rehearse", "stages_before"]

_ALIGNING, _ONCE = "greeting and alignment", "once"
_FIRST = {"Hello", *(one.__name__ for one in alignment.MESSAGES)}

Parts = dict[str, dict[tuple[str, ...], float]]
"""What finding shared rows takes, one pass that a setting counts, by its name, and all else: ``seconds``, ``turns`` by
party, and ``count`` and ``bytes`` of messages by sender, receiver and name."""

# More passes make time more certain; where something is encrypted, each takes long.
_PASSES, _SEALED_PASSES = 4, 2
_LEAST_ROWS = 60
# Steps of a pass where a step is played with fewer rows; and what the rows of a step divide where settings do not tell.
_STEPS, _BATCH = 12, 16
# Of so many of the rows one may as well play all.
_NEARLY = 0.6
# All seconds that are spent, and those of a run that was short.
_BUDGET, _SHORT = 24.0, 1.0


@dataclass(frozen=True)
class Rehearsal:
    """What a run takes at most."""

    plan: RunPlan
    parts: Parts
    times: Mapping[str, int]
    """How often each part is gone through."""
    rows: int
    """The most shared rows that were played, of so many:"""
    of_rows: int
    is_sealed: bool

    def amount(self, part: str, *key: str) -> float:
        """Return how much of something there is in a part, one time through: seconds, or the bytes of a party."""
        return max(0.0, sum(value for one, value in self.parts[part].items() if one[: len(key)] == key))

    def messages(self) -> list[dict[str, Any]]:
        """Return how many messages cross in all, and their bytes, by sender, receiver and name."""
        total = Counter[tuple[str, ...]]()
        for name, part in self.parts.items():
            total.update({key: self.times[name] * value for key, value in part.items()})
        names = ("sender", "receiver", "message")
        return [
            {**dict(zip(names, way, strict=True)), "count": round(count), "bytes": round(total["bytes", *way])}
            for (kind, *way), count in sorted(total.items())
            if kind == "count" and round(count) > 0
        ]


def stages_before(method: Method, stage: str) -> list[str]:
    """Return the stages that must be played before a stage, first to last."""
    before = method.scored_after[:1] if stage == "predict" else method.stage(stage).after[:1]
    return [name for one in before for name in (*stages_before(method, one), one)]


def rehearse(
    plan: RunPlan, stage: str, world: World, *, engine: Engine = INLINE, say: Callable[[str], None] = lambda _: None
) -> Rehearsal:
    """Play smaller runs for half a minute; ``plan`` is of the first stage that the one at hand stands on."""
    player = _Player(plan, stage, world, engine, say)
    played = player.grow()
    parts = {name: part for name, part in _whole(played).items() if any(part.values())}
    times = {name: player.wanted.get(name, 1) for name in parts}
    rows = max(point.count for point in played)
    return Rehearsal(player.method.in_stage(plan, stage), parts, times, rows, player.most, player.is_sealed)


@dataclass(frozen=True)
class _Point:
    """A smaller run: its shared rows, and its shares of the training rows, of the steps of a pass, and of a batch."""

    count: int
    rows: float = 1.0
    steps: float = 1.0
    batch: float = 1.0

    @property
    def features(self) -> list[float]:
        """Return what all amounts are linear in: what comes once, steps, and rows."""
        return [1.0, self.steps, self.rows]


class _Player:
    """Plays one stage in several sizes."""

    def __init__(self, plan: RunPlan, stage: str, world: World, engine: Engine, say: Callable[[str], None]) -> None:
        self._plan, self._stage, self._world, self._engine, self._say = plan, stage, world, engine, say
        self.method = method_named(plan.method)
        self._largest = max(world.groups, key=lambda group: (len(group) > 1, world.groups[group]))
        self.most = world.groups[self._largest]
        self._config, self._batches, self.wanted = dict(plan.config), dict[str, int](), dict[str, int]()
        for one in dataclasses.fields(self.method.config):
            mark, value = one.metadata, plan.config[one.name]
            if mark.get("within"):
                self._config[one.name] = type(value)(np.clip(value, *mark["within"]))
            if mark.get("passes"):
                self.wanted[one.name] = value
            if mark.get("batch") and value:
                self._batches[one.name] = value
        self._size = max(self._batches.values(), default=_BATCH)
        declared = self.method.declarations_in(self.method.in_stage(plan, stage))
        self.is_sealed = any(one.protection == ENCRYPTED for one in declared)
        self._has_large_keys = self.is_sealed and plan.config.get("key_size", INSECURE_TEST) != INSECURE_TEST

    def grow(self) -> dict[_Point, Parts]:
        """Play runs of more and more rows until one is whole, or there is no time for a larger one."""
        deadline = time.monotonic() + _BUDGET
        point, parts, taken = self._first()
        if self._has_large_keys:
            # As many rows as take about a second under small keys.
            times = min(8.0, _SHORT / self._seconds_by_rows(parts))
            point = self._point(round(max(1.0, times) * point.count))
            parts, taken = self._play(point)
        elif point.rows == 1.0 and taken < _SHORT:
            # Once more, as some things are loaded the first time.
            parts, taken = self._play(point)
        played = {point: parts}
        while point.rows < 1.0:
            by_rows, room = self._seconds_by_rows(parts), (deadline - time.monotonic()) / 2
            times = next((one for one in (8, 4, 2) if taken + (one - 1) * by_rows < room), 2 if len(played) == 1 else 0)
            if not times:
                break
            point = self._point(round(times * point.count))
            parts, taken = self._play(point)
            played[point] = parts
        if not _follows(played):
            # All have as many steps to a pass: here are fewer, of more rows each.
            first = next(iter(played))
            fewer = replace(first, batch=point.batch, steps=first.steps * first.batch / point.batch)
            played[fewer], _ = self._play(fewer)
        return played

    def _first(self) -> tuple[_Point, Parts, float]:
        """Play the smallest run, under small keys, of which no guard says that it has too few rows."""
        rows = max(_LEAST_ROWS, self._world.least_rows)
        while True:
            point = self._point(rows)
            try:
                return point, *self._play(point, **({"key_size": INSECURE_TEST} if self._has_large_keys else {}))
            except ColonnadeError:
                # If a guard objects to all rows, it will object to the run.
                if point.rows == 1.0:
                    raise
                rows *= 2

    def _seconds_by_rows(self, parts: Parts) -> float:
        """Return about how long what goes by rows took: passes, as far as they are known, and finding shared rows."""
        passes = sum(_SEALED_PASSES * parts[name].get(("seconds",), 0.0) for name in self.wanted)
        return parts[_ALIGNING]["seconds",] + (passes or parts[_ONCE]["seconds",])

    def _point(self, rows: int) -> _Point:
        """Return a run of about so many rows, with so few in a step that a pass has a few steps."""
        if rows > _NEARLY * self.most:
            return _Point(self.most)
        whole, count = self._training(self.most), rows
        steps = min(_STEPS, whole / self._size)
        smaller = max(1, round(self._training(rows) / steps))
        if smaller < self._size and self._batches:
            # As many steps as in the whole run, if it has few.
            while self._training(count) < steps * smaller:
                count += 1
            return _Point(count, self._training(count) / whole, steps * self._size / whole, smaller / self._size)
        # The last batch is as full as in the whole run.
        while count < self.most and (whole - self._training(count)) % self._size:
            count += 1
        return _Point(count, self._training(count) / whole, self._training(count) / whole)

    def _training(self, rows: int) -> int:
        held_out = (self._plan.evaluate.test_fraction, self._plan.evaluate.validation_fraction)
        return rows - sum(round(rows * one) for one in held_out)

    def _play(self, point: _Point, **changes: Any) -> tuple[Parts, float]:
        """Play a run of some rows and few passes; return also how long that took."""
        began = time.monotonic()
        few = _SEALED_PASSES if self.is_sealed else _PASSES
        passes = {name: min(few, count) for name, count in self.wanted.items()}
        smaller = {name: max(1, round(size * point.batch)) for name, size in self._batches.items()}
        groups = {group: max(1, round(count * point.rows)) for group, count in self._world.groups.items()}
        groups[self._largest] = point.count
        self._say(f"Rehearsing with {point.count} of {self.most} rows …")
        plan = replace(self._plan, config={**self._config, **passes, **smaller, **changes})
        with tempfile.TemporaryDirectory() as folder:
            play = _Play(plan, self._stage, replace(self._world, groups=groups), self._engine, Path(folder))
            return play.parts(passes), time.monotonic() - began


class _Play:
    """One run on made-up tables: what crossed, when, and when passes ended."""

    def __init__(self, plan: RunPlan, stage: str, world: World, engine: Engine, folder: Path) -> None:
        method, run = method_named(plan.method), None
        self._ends: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        for name in (*stages_before(method, stage), stage):
            told, tables = method.in_stage(plan, name), world.tables(labelled=name != "predict")
            parties = {party: Party(tables[party]) for party in method.parties_with_rows(told)}
            if name == "predict" and run is not None:
                replace(run, folder=folder).predict(parties, engine=engine)
                (kept,) = (folder / "predictions").iterdir()
                ledgers = {party: Ledger.read(kept / party / "ledger.jsonl") for party in told.parties}
            else:
                observer = self._observe if name == stage else None
                run = simulate_plan(told, parties, engine=engine, after=run, observer=observer, transport="grpc")
                ledgers = run.ledgers
        self._entries = {party: list(ledger.entries) for party, ledger in ledgers.items()}

    def _observe(self, progress: Progress) -> None:
        if progress.passed is not None:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            self._ends[progress.party].append((now, *progress.passed))

    def parts(self, passes: Mapping[str, int]) -> Parts:
        """Divide what the run took; of passes the first does not count, which may be unlike the others."""
        found: Parts = {name: defaultdict(float) for name in (_ALIGNING, _ONCE, *passes)}
        start = aligned = min(entries[0].content["time"] for entries in self._entries.values())
        end = max(entries[-1].content["time"] for entries in self._entries.values())
        for party, entries in self._entries.items():
            last = max((place for place, one in enumerate(entries) if one.content.get("message") in _FIRST), default=0)
            aligned = max(aligned, entries[last].content["time"])
            ends = [*self._ends[party], ("~", _ONCE, 0)]
            for place, (before, entry) in enumerate(pairwise(entries), 1):
                while ends[0][0] < entry.content["time"]:
                    ends.pop(0)
                _, name, number = ends[0]
                for key, value in _amounts(party, entry, before):
                    found[_ALIGNING if place <= last else _ONCE][key] += value
                    if number > 1 < passes[name]:
                        found[name][key] += value / (passes[name] - 1)
        found[_ALIGNING]["seconds",], found[_ONCE]["seconds",] = _seconds(start, aligned), _seconds(aligned, end)
        for name, count in passes.items():
            taken = (
                sum(_seconds(one[0], two[0]) for one, two in pairwise(ends) if two[1] == name and two[2] > 1)
                for ends in self._ends.values()
            )
            if count > 1:
                found[name]["seconds",] = max(taken, default=0.0) / (count - 1)
            for key, value in found[name].items():
                found[_ONCE][key] -= count * value
        return found


def _amounts(party: str, entry: Entry, before: Entry) -> list[tuple[tuple[str, ...], float]]:
    """Return what an entry of a ledger adds: a message that was sent, or a wait for the answer to one."""
    if entry.kind == "sent":
        way = (party, entry.content["peer"], entry.content["message"])
        return [(("count", *way), 1.0), (("bytes", *way), entry.content["bytes"])]
    return [(("turns", party), 1.0)] if (before.kind, entry.kind) == ("sent", "received") else []


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()


def _follows(points: Iterable[_Point]) -> bool:
    """Tell whether the whole run follows from smaller ones."""
    rows = [point.features for point in points]
    return bool(np.linalg.matrix_rank([*rows, _Point(0).features], 1e-6) == np.linalg.matrix_rank(rows, 1e-6))


def _whole(played: Mapping[_Point, Parts]) -> Parts:
    """Work out the whole run from the largest that were played, as few as will do."""
    ordered = sorted(played, key=lambda point: -point.rows)
    points = next(ordered[:count] for count in range(1, len(ordered) + 1) if _follows(ordered[:count]))
    features = np.array([point.features for point in points]).T
    weights = np.linalg.lstsq(features, np.array(_Point(0).features), rcond=None)[0]
    found: Parts = {name: defaultdict(float) for name in played[points[0]]}
    for weight, point in zip(weights.tolist(), points, strict=True):
        for name, part in played[point].items():
            for key, value in part.items():
                found[name][key] += weight * value
    for name, part in played[points[0]].items():
        # More rows take no less time, and not much more than as many times as much; what says so is noise.
        least, most = part["seconds",], part["seconds",] / points[0].rows
        found[name]["seconds",] = min(max(found[name]["seconds",], least), most)
    return found
