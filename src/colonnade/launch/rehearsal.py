"""Rehearse a run: play its role functions on made-up tables, with few rows and few passes, and multiply."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from colonnade.crypto import INSECURE_TEST
from colonnade.engine import INLINE, Engine
from colonnade.errors import ColonnadeError
from colonnade.launch.made_up import World
from colonnade.launch.simulation import simulate_plan
from colonnade.ledger import Entry, Ledger
from colonnade.messages import ENCRYPTED
from colonnade.methods import method_named
from colonnade.session import Method, Party, Progress, RunPlan
from colonnade.settings import validated
from colonnade.training import Budget

__all__ = ["Rehearsal", "rehearse", "stages_before"]

Parts = dict[str, dict[tuple[str, ...], float]]
"""What one pass takes that a setting counts, by its name, and all else: ``seconds``, ``turns`` by party, and ``count``
and ``bytes`` of messages by sender, receiver and name."""
_End = tuple[str, str, int]  # when a pass ended, the setting that counts it, and its number

_ONCE = "all but passes"
# More passes make time more certain; where something is encrypted, each takes long.
_PASSES, _SEALED_PASSES = 4, 2
# Rows of a run and steps of a pass at least, and what the rows of a step divide where settings do not tell.
_LEAST_ROWS, _STEPS, _BATCH = 60, 3, 16
# All seconds that are spent, those of a run that is short, or long; and of so many rows one may as well play all.
_BUDGET, _SHORT, _LONG, _NEARLY = 24.0, 1.0, 4.0, 0.6


class Rehearsal(NamedTuple):
    """What a run takes at most."""

    plan: RunPlan
    parts: list[dict[str, Any]]
    """How often each part is gone through, how long it takes once, how often parties wait, and what each sends."""
    messages: list[dict[str, Any]]
    """How many cross in all, and their bytes, by sender, receiver and name."""
    rows: int
    """The most shared rows that were played, of so many:"""
    of_rows: int
    is_sealed: bool


def stages_before(method: Method, stage: str) -> list[str]:
    """Return the stages that must be played before a stage, first to last."""
    before = method.scored_after[:1] if stage == "predict" else method.stage(stage).after[:1]
    return [name for one in before for name in (*stages_before(method, one), one)]


def rehearse(
    plans: Sequence[RunPlan], world: World, *, engine: Engine = INLINE, say: Callable[[str], None] = lambda _: None
) -> Rehearsal:
    """Play smaller runs for half a minute; the last plan is of the stage at hand, and others of what it stands on."""
    player, plan = _Player(plans, world, engine, say), plans[-1]
    played, total, parts = player.grow(), Counter[tuple[str, ...]](), []
    for name, part in player.whole(played).items():
        # Where the settings leave open how many passes there are, the method has chosen.
        times = player.wanted.get(name) or max(1, round(part["passes",]))
        total.update({key: times * value for key, value in part.items()})
        if any(part.values()):
            sent = {one: sum(value for key, value in part.items() if key[:2] == ("bytes", one)) for one in plan.parties}
            waits = max(part["turns", party] for party in plan.parties)
            about = {"name": name, "times": times, "seconds": part["seconds",], "turns": round(waits)}
            parts.append(about | {"bytes_sent": {party: round(value) for party, value in sent.items()}})
    names = ("sender", "receiver", "message")
    messages = [
        {**dict(zip(names, way, strict=True)), "count": round(count), "bytes": round(total["bytes", *way])}
        for (kind, *way), count in sorted(total.items())
        if kind == "count" and round(count) > 0
    ]
    return Rehearsal(plan, parts, messages, max(played), player.most, player.is_sealed)


class _Player:
    """Plays one stage with more or fewer rows."""

    def __init__(self, plans: Sequence[RunPlan], world: World, engine: Engine, say: Callable[[str], None]) -> None:
        self._plans, self._world, self._engine, self._say = plans, world, engine, say
        plan, method = plans[-1], method_named(plans[-1].method)
        self._largest = max(world.groups, key=lambda group: (len(group) > 1, world.groups[group]))
        self.most = world.groups[self._largest]
        marks, self._config = {one.name: one.metadata for one in dataclasses.fields(method.config)}, dict(plan.config)
        for name, (least, most) in ((name, one["within"]) for name, one in marks.items() if one.get("within")):
            self._config[name] = type(plan.config[name])(min(max(plan.config[name], least), most))
        self.wanted = {name: plan.config[name] for name, one in marks.items() if one.get("passes")}
        self._batches = {
            name: plan.config[name] for name, one in marks.items() if one.get("batch") and plan.config[name]
        }
        self._floors, self._repeats = [name for name, one in marks.items() if one.get("floor")], 1
        if self._floors:
            budget, whole = Budget.of(validated(method.config, plan.config, "config")), self._training(self.most)
            self._batches, self._repeats = {"batch_size": budget.size(whole)}, budget.passes_per_epoch(whole)
        self._size = max(self._batches.values(), default=_BATCH)
        # Where whole batches would take too long: steps of a pass, with few rows each.
        self._has_smaller_batches, self._steps = False, min(_STEPS, self._training(self.most) / self._size)
        self.is_sealed = any(one.protection == ENCRYPTED for one in method.declarations_in(plan))

    def grow(self) -> dict[int, Parts]:
        """Play runs of more and more rows until one is whole, or there is no time for a larger one."""
        deadline = time.monotonic() + _BUDGET
        rows, parts, taken = self._first()
        if rows == self.most and taken < _SHORT:
            # Once more, as some things are loaded the first time.
            parts, taken = self._play(rows)
        played, more = {rows: parts}, self._seconds_by_rows(parts)
        while rows < self.most:
            room = (deadline - time.monotonic()) / 2
            times = next((one for one in (8, 4, 2) if taken + (one - 1) * more < room), 2 if len(played) == 1 else 0)
            if not times or (self._has_smaller_batches and len(played) > 1):
                break
            before, rows = (rows, taken), self._near(2 * rows if self._has_smaller_batches else times * rows)
            played[rows], taken = self._play(rows)
            more = max(0.0, taken - before[1]) / (rows - before[0]) * rows
        return played

    def whole(self, played: Mapping[int, Parts]) -> Parts:
        """Work out the whole run from the two largest that were played: what goes by rows, and what does not."""
        *_, (fewer, before), (rows, last) = [(0, {}), *sorted(played.items())]
        if rows == self.most:
            return last
        low, high = (self._share(one) for one in (fewer, rows))
        more = self._training(self.most) / (self._steps * self._size) if self._has_smaller_batches else 1.0
        found: Parts = {name: defaultdict(float) for name in last}
        for name, part in last.items():
            for key in {*part, *before[name]}:
                each = (part[key] - before[name][key]) / (high - low)
                if not before[name][key]:
                    # Few rows may leave a message out, so that two sizes do not tell how it grows.
                    each = part[key] / high if key[0] == "bytes" else 0.0
                # What a pass takes whatever its rows goes by its steps.
                found[name][key] = more * each + (1.0 if name == _ONCE else more) * (part[key] - high * each)
            # More rows take no less time, and not much more than as many times as much; what says so is noise.
            least = max(0.0, part["seconds",])
            found[name]["seconds",] = min(max(found[name]["seconds",], least), more * least / high)
        return found

    def _first(self) -> tuple[int, Parts, float]:
        """Play the first run: of a few batches or, where these would take long, of few rows in each."""
        least = max(_LEAST_ROWS, self._world.least_rows)
        few = next(rows for rows in range(least, 10**9) if self._training(rows) >= _STEPS * self._size)
        few = few if self._batches else least
        if not self.is_sealed or self._config.get("key_size", INSECURE_TEST) == INSECURE_TEST:
            return self._accepted(few)
        # Small keys tell soon how many rows a guard wants, and how long more of them would take on an idle machine.
        self._has_smaller_batches, began = bool(self._batches), time.process_time()
        rows, parts, taken = self._accepted(least, key_size=INSECURE_TEST)
        each = self._seconds_by_rows(parts) * min(1.0, (time.process_time() - began) / taken) / rows
        self._has_smaller_batches &= each * few > _LONG
        # At most half of them, as the next run has twice as many.
        half = max(rows, min(round(_SHORT / each), few // 2))
        return self._accepted(half if self._has_smaller_batches else max(few, rows))

    def _accepted(self, rows: int, **changes: Any) -> tuple[int, Parts, float]:
        """Play a run of so many rows, or of more if a guard objects to so few."""
        while True:
            rows = self._near(rows)
            try:
                return rows, *self._play(rows, **changes)
            except ColonnadeError:
                # If it objects to all of them, so it will to the run.
                if rows == self.most:
                    raise
                rows *= 2

    def _seconds_by_rows(self, parts: Parts) -> float:
        """Return about how long what goes by rows took: passes, as far as they are known."""
        return sum(part["passes",] * part["seconds",] for part in parts.values()) or parts[_ONCE]["seconds",]

    def _near(self, rows: int) -> int:
        """Return about so many rows, so that the last batch is full, or as full as in the whole run."""
        if rows > _NEARLY * self.most:
            return self.most
        if self._has_smaller_batches:
            wanted = self._steps * max(1, round(self._training(rows) / self._steps))
            return next(one for one in range(1, self.most + 1) if self._training(one) >= wanted)
        whole = self._training(self.most)
        return next(one for one in range(rows, self.most + 1) if (whole - self._training(one)) % self._size == 0)

    def _share(self, rows: int) -> float:
        """Return which share of the whole a run has: of the rows of a batch, where these are fewer, or else of all."""
        if self._has_smaller_batches and rows < self.most:
            return round(self._training(rows) / self._steps) / self._size
        return self._training(rows) / self._training(self.most)

    def _training(self, rows: int) -> int:
        evaluate = self._plans[-1].evaluate
        return rows - round(rows * evaluate.test_fraction) - round(rows * evaluate.validation_fraction)

    def _play(self, rows: int, **changes: Any) -> tuple[Parts, float]:
        """Play a run of some rows and few passes; return also how long that took."""
        began, share = time.monotonic(), self._training(rows) / self._training(self.most)
        batch = self._share(rows) if self._has_smaller_batches else 1.0
        smaller = {name: max(1, round(batch * size)) for name, size in self._batches.items()}
        passes = {name: min(_SEALED_PASSES if self.is_sealed else _PASSES, one) for name, one in self.wanted.items()}
        groups = {group: max(1, round(count * share)) for group, count in self._world.groups.items()}
        world = replace(self._world, groups={**groups, self._largest: rows})
        self._say(f"Rehearsing with {rows} of {self.most} rows …")
        steps = math.ceil(self._training(rows) / max(smaller.values(), default=1)) * sum(passes.values())
        few = {**passes, **smaller, **dict.fromkeys(self._floors, self._repeats * steps), **changes}
        plans = [replace(one, config={**self._config, **few}) for one in self._plans]
        return _play(plans, world, self._engine), time.monotonic() - began


def _play(plans: Sequence[RunPlan], world: World, engine: Engine) -> Parts:
    """Play one run on made-up tables, and what it stands on; say what each part took."""
    method, run = method_named(plans[-1].method), None
    ends: dict[str, list[_End]] = defaultdict(list)

    def observe(progress: Progress) -> None:
        if progress.passed is not None and progress.stage == plans[-1].stage:
            now = datetime.now(UTC).isoformat(timespec="microseconds")
            ends[progress.party].append((now, *progress.passed))

    for plan in plans:
        tables = world.tables(labelled=plan.stage != "predict")
        parties = {party: Party(tables[party]) for party in method.parties_with_rows(plan)}
        if plan.stage == "predict" and run is not None:
            with tempfile.TemporaryDirectory() as folder:
                replace(run, folder=Path(folder)).predict(parties, engine=engine)
                files = Path(folder).rglob("ledger.jsonl")
                entries = {one.parent.name: list(Ledger.read(one).entries) for one in files}
        else:
            run = simulate_plan(plan, parties, engine=engine, after=run, observer=observe, transport="grpc")
            entries = {party: list(ledger.entries) for party, ledger in run.ledgers.items()}
    return _divided(entries, ends)


def _divided(every: Mapping[str, Sequence[Entry]], ends: Mapping[str, list[_End]]) -> Parts:
    """Divide what ledgers tell by passes, of which the first does not count, as it may be unlike the others."""
    passes = dict(sorted(((end[1], end[2]) for own in ends.values() for end in own), key=lambda pair: pair[1]))
    found: Parts = {name: defaultdict(float) for name in (_ONCE, *passes)}
    for party, entries in every.items():
        coming = iter([*ends.get(party, ()), ("~", _ONCE, 0)])
        end, name, number = next(coming)
        for before, entry in pairwise(entries):
            while end < entry.content["time"]:
                end, name, number = next(coming)
            # A wait for the answer to a message, or one that was sent.
            waits = (before.kind, entry.kind) == ("sent", "received")
            amounts: dict[tuple[str, ...], float] = {("turns", party): waits}
            if entry.kind == "sent":
                way = (party, entry.content["peer"], entry.content["message"])
                amounts = {("count", *way): 1, ("bytes", *way): entry.content["bytes"]}
            for key, value in amounts.items():
                found[_ONCE][key] += value
                if number > 1:
                    found[name][key] += value / (passes[name] - 1)
    times = [(entries[0].content["time"], entries[-1].content["time"]) for entries in every.values()]
    found[_ONCE]["seconds",] = _seconds(min(start for start, _ in times), max(end for _, end in times))
    for name, count in passes.items():
        for own in ends.values():
            each = [_seconds(one[0], two[0]) for one, two in pairwise(own) if two[1] == name and two[2] > 1]
            found[name]["seconds",] = max(found[name]["seconds",], sum(each) / max(1, count - 1))
        for key, value in found[name].items():
            found[_ONCE][key] -= count * value
        found[name]["passes",] = count
    return found


def _seconds(start: str, end: str) -> float:
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
