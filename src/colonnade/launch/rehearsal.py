"""Rehearse a run: play its role functions on made-up tables, with few rows and few passes, and multiply."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import alignment
from colonnade.crypto import INSECURE_TEST
from colonnade.engine import INLINE, Engine
from colonnade.errors import ColonnadeError
from colonnade.launch.made_up import World
from colonnade.launch.run import Run
from colonnade.launch.simulation import simulate_plan
from colonnade.ledger import Ledger
from colonnade.methods import method_named
from colonnade.session import Method, Party, Progress, RunPlan

__all__ = ["ALIGNING", "ONCE", "Amounts", "Rehearsal", "rehearse"]

ALIGNING, ONCE = "greeting and alignment", "everything else but passes"

Key = tuple[str, ...]
Amounts = Mapping[Key, float]
"""Seconds, turns by party, and the number and bytes of messages by sender, receiver and name."""
Parts = dict[str, Amounts]
"""What finding shared rows takes, one pass that a setting counts, by its name, and all the rest."""
SECONDS: Key = ("seconds",)

_FIRST = {"Hello", *(one.__name__ for one in alignment.MESSAGES)}
# Where a step takes long, two passes must do; otherwise some more make time more certain.
_FEW_PASSES, _MORE_PASSES = 2, 4
_LEAST_ROWS = 60
# Steps of a pass at least, so that the first and the last are not all there is.
_STEPS = 2


@dataclass(frozen=True)
class Rehearsal:
    """What a run takes at most, by part."""

    plan: RunPlan
    parts: Parts
    passes: Mapping[str, int]
    """How often each part is gone through."""
    rows: int
    """The most rows that were played of one kind, and ..."""
    of_rows: int
    """... how many of these the run has."""
    is_sealed: bool
    assumed: tuple[str, ...] = ()

    def total(self, *key: str) -> float:
        """Return what the whole run takes of something."""
        return sum(self.passes[name] * one.get(key, 0.0) for name, one in self.parts.items())

    @property
    def crossings(self) -> list[tuple[str, str, str]]:
        """Return sender, receiver and name of all messages."""
        found = {key[1:] for part in self.parts.values() for key in part if key[0] == "count"}
        return sorted(found)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Point:
    """A smaller run: which share of the rows it has, and of a step's rows."""

    rows: float
    batch: float = 1.0

    @property
    def features(self) -> list[float]:
        """Return what time and bytes are linear in: once, by step and by row."""
        return [1.0, self.rows / self.batch, self.rows]


def rehearse(
    plan: RunPlan, world: World, *, engine: Engine = INLINE, budget: float = 22.0, say: Callable[[str], None] = print
) -> Rehearsal:
    """Play smaller and shorter runs for about so many seconds, and work out what the whole run takes."""
    stage = _Stage(plan, world, engine, time.monotonic() + budget, say)
    quick = stage.grow()
    parts, point = stage.extrapolated(quick)
    passes = {ALIGNING: 1, ONCE: 1} | stage.wanted
    rows = max(world.groups.values())
    return Rehearsal(plan, parts, {name: passes[name] for name in parts}, round(point.rows * rows), rows, stage.is_sealed)


@dataclass
class _Stage:
    """The rehearsal of one stage."""

    plan: RunPlan
    world: World
    engine: Engine
    deadline: float
    say: Callable[[str], None]
    is_sealed: bool = False
    seconds: dict[tuple[_Point, bool], float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.method = method_named(self.plan.method)
        marks = {one.name: one.metadata for one in dataclasses.fields(self.method.config)}
        config = dict(self.plan.config)
        self.wanted = {name: int(config[name]) for name, mark in marks.items() if "passes" in mark}
        self.batches = {name: int(config[name]) for name, mark in marks.items() if "batch" in mark and config[name]}
        for name, mark in marks.items():
            if "rehearsed" in mark:
                least, most = mark["rehearsed"]
                config[name] = type(config[name])(min(max(config[name], least), most))
        self.config = config

    @property
    def left(self) -> float:
        """Return the seconds that are left."""
        return self.deadline - time.monotonic()

    def grow(self) -> dict[_Point, Parts]:
        """Play runs of more and more rows, under small keys, until one is whole or takes long."""
        most = max(self.world.groups.values())
        rows, played = max(_LEAST_ROWS, self.world.least_rows), dict[_Point, Parts]()
        while True:
            point = self._point(min(1.0, rows / most))
            try:
                played[point] = self.play(point, is_quick=True)
            except ColonnadeError:
                # A guard may object to so few rows; if it objects to all of them, so will the run.
                if point.rows == 1.0:
                    raise
                rows *= 2
                continue
            taken = self.seconds[point, True]
            if point.rows == 1.0 or (taken > 1.5 and _follows(played)):
                return played
            if taken > 1.5 and len(played) > 1:
                ones = list(played)
                between = _Point(ones[-1].rows, ones[0].batch)
                played = {between: self.play(between, is_quick=True)} | played
                return played
            rows *= 4 if taken < 0.5 else 2

    def extrapolated(self, quick: dict[_Point, Parts]) -> tuple[Parts, _Point]:
        """Work out the whole run from the largest that were played, and if need be what real keys change."""
        largest = _enough(quick)
        if not self.is_sealed or self.config.get("key_size", INSECURE_TEST) == INSECURE_TEST:
            return _fitted({point: quick[point] for point in largest}), largest[0]
        smallest = min(quick, key=lambda point: point.rows)
        real = {smallest: self.play(smallest, is_quick=False)}
        slower = self.seconds[smallest, False] / self.seconds[smallest, True]
        for point in sorted(quick, key=lambda point: -point.rows):
            if point not in real and self.seconds[point, True] * slower < 0.8 * self.left:
                real[point] = self.play(point, is_quick=False)
            if _follows(real):
                return _fitted({point: real[point] for point in _enough(real)}), point
        fitted = _fitted({point: quick[point] for point in largest})
        return {name: _scaled(one, quick[smallest][name], real[smallest][name]) for name, one in fitted.items()}, largest[0]

    def play(self, point: _Point, *, is_quick: bool) -> Parts:
        """Play a run of some rows and few passes."""
        world = self.world if point.rows == 1.0 else self.world.scaled(point.rows)
        few = _FEW_PASSES if self.is_sealed else _MORE_PASSES
        passes = {name: min(few, count) for name, count in self.wanted.items()}
        smaller = {name: max(1, round(size * point.batch)) for name, size in self.batches.items()}
        config = {**self.config, **passes, **smaller}
        if is_quick and "key_size" in config:
            config["key_size"] = INSECURE_TEST
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            played = _Play(replace(self.plan, config=config), self.method, world, self.engine, Path(folder))
            parts = played.parts(passes)
        self.is_sealed = self.is_sealed or played.is_sealed
        self.seconds[point, is_quick] = time.monotonic() - began
        self.say(f"{point} quick={is_quick} {self.seconds[point, is_quick]:.2f} s  left {self.left:.1f}")
        return parts

    def _point(self, rows: float) -> _Point:
        if not self.batches:
            return _Point(rows)
        most = max(self.world.groups.values()) * rows * (1 - self.plan.evaluate.test_fraction - self.plan.evaluate.validation_fraction)
        return _Point(rows, 1.0 if rows == 1.0 else min(1.0, most / (_STEPS * max(self.batches.values()))))


class _Play:
    """One run on made-up tables: what crossed, when, and where passes ended."""

    def __init__(self, plan: RunPlan, method: Method, world: World, engine: Engine, folder: Path) -> None:
        self._marks: dict[str, list[tuple[str, str, int]]] = defaultdict(list)
        run: Run | None = None
        *earlier, last = _chain(method, plan.stage)
        tables = world.tables()
        for stage in earlier:
            run = simulate_plan(*_ready(method, plan, stage, tables), engine=engine, after=run)
        if last == "predict" and run is not None:
            told, parties = _ready(method, plan, last, world.tables(seed=1, labelled=False))
            replace(run, folder=folder).predict(parties, engine=engine)
            (ledgers,) = (folder / "predictions").iterdir()
            self._ledgers = {party: Ledger.read(ledgers / party / "ledger.jsonl") for party in told.parties}
        else:
            told, parties = _ready(method, plan, last, tables)
            run = simulate_plan(told, parties, engine=engine, after=run, observer=self._observe, transport="grpc")
            self._ledgers = run.ledgers
        self.is_sealed = False

    def _observe(self, progress: Progress) -> None:
        if progress.passed is not None:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            self._marks[progress.party].append((now, *progress.passed))

    def parts(self, passes: Mapping[str, int]) -> Parts:
        """Divide what the run took: by passes, of which the first may be unlike the others, and the rest."""
        found: dict[str, Counter[Key]] = {name: Counter() for name in (ALIGNING, ONCE, *passes)}
        starts, ends, aligned = [], [], []
        for party, ledger in self._ledgers.items():
            entries = list(ledger.entries)
            starts.append(entries[0].content["time"])
            ends.append(entries[-1].content["time"])
            last = max((n for n, one in enumerate(entries) if one.is_message and one.content["message"] in _FIRST), default=0)
            aligned.append(entries[last].content["time"])
            was_sent = False
            marks, place = self._marks.get(party, []), 0
            for number, entry in enumerate(entries):
                if not entry.is_message:
                    continue
                while place < len(marks) and marks[place][0] < entry.content["time"]:
                    place += 1
                keys = _amounts(party, entry, was_sent)
                was_sent = entry.kind == "sent"
                self.is_sealed = self.is_sealed or entry.content["protection"] == "encrypted"
                found[ALIGNING if number <= last else ONCE].update(keys)
                if place < len(marks) and marks[place][2] > 1:
                    _, name, _ = marks[place]
                    found[name].update({key: value / (passes[name] - 1) for key, value in keys.items()})
        begin = min(starts)
        found[ALIGNING][SECONDS] = _between(begin, max(aligned))
        found[ONCE][SECONDS] = _between(begin, max(ends)) - found[ALIGNING][SECONDS]
        for name, count in passes.items():
            taken = [_seconds_of(marks, name) for marks in self._marks.values()]
            found[name][SECONDS] = max(taken, default=0.0) / max(1, count - 1)
        for name, count in passes.items():
            for key, value in found[name].items():
                found[ONCE][key] -= count * value
        return dict(found)


def _seconds_of(marks: Iterable[tuple[str, str, int]], name: str) -> float:
    total, before = 0.0, ""
    for at, setting, number in marks:
        if setting == name and number > 1:
            total += _between(before, at)
        before = at
    return total


def _amounts(party: str, entry: Any, was_sent: bool) -> dict[Key, float]:
    about = entry.content
    if entry.kind == "received":
        return {("turns", party): 1.0} if was_sent else {}
    way = (party, about["peer"], about["message"])
    return {("count", *way): 1.0, ("bytes", *way): about["bytes"]}


def _between(one: str, other: str) -> float:
    return (datetime.fromisoformat(other) - datetime.fromisoformat(one)).total_seconds()


def _chain(method: Method, stage: str) -> list[str]:
    """Return the stages on which a stage stands, and itself."""
    before = method.scored_after[:1] if stage == "predict" else method.stage(stage).after[:1]
    return [*(one for earlier in before for one in _chain(method, earlier)), stage]


def _ready(method: Method, plan: RunPlan, stage: str, tables: Mapping[str, Any]) -> tuple[RunPlan, dict[str, Party]]:
    told = method.in_stage(plan, stage)
    return told, {party: Party(tables[party]) for party in method.parties_with_rows(told)}


def _follows(points: Iterable[_Point]) -> bool:
    """Tell whether the whole run follows from smaller ones."""
    rows = [point.features for point in points]
    whole = [*rows, _Point(1.0).features]
    return int(np.linalg.matrix_rank(whole, tol=1e-6)) == int(np.linalg.matrix_rank(rows, tol=1e-6))


def _enough(points: Iterable[_Point]) -> list[_Point]:
    """Return the largest points from which the whole run follows."""
    ordered = sorted(points, key=lambda point: -point.rows)
    return next(ordered[:count] for count in range(1, len(ordered) + 1) if _follows(ordered[:count]))


def _fitted(played: Mapping[_Point, Parts]) -> Parts:
    """Work out the whole run from smaller ones."""
    weights = np.linalg.lstsq(np.array([point.features for point in played]).T, _Point(1.0).features, rcond=None)[0]
    found: dict[str, Counter[Key]] = defaultdict(Counter)
    for weight, parts in zip(weights, played.values(), strict=True):
        for name, amounts in parts.items():
            for key, value in amounts.items():
                found[name][key] += float(weight) * value
    return dict(found)


def _scaled(amounts: Amounts, quick: Amounts, real: Amounts) -> Amounts:
    """Say what amounts are under real keys, where small ones gave these, by what both gave elsewhere."""
    found = {}
    for key, value in amounts.items():
        known = quick.get(key, 0.0)
        found[key] = value * real.get(key, 0.0) / known if known > 0 and real.get(key, 0.0) > 0 else value
    return found
