"""Rehearse a run: play its role functions on made-up tables, with few rows and few passes, and multiply."""

from __future__ import annotations

import dataclasses
import math
import statistics
import tempfile
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from colonnade.crypto import INSECURE_TEST
from colonnade.engine import Engine, EngineSettings
from colonnade.errors import ColonnadeError
from colonnade.launch.made_up import World
from colonnade.launch.simulation import predict_in_threads, simulate_plan
from colonnade.ledger import Entry, Ledger
from colonnade.methods import method_named
from colonnade.session import Party, Progress, RunPlan
from colonnade.settings import validated
from colonnade.training import Budget

__all__ = ["Rehearsal", "rehearse"]

Parts = dict[str, dict[tuple[str, ...], float]]
"""What one pass takes that a setting counts, by its name, and all else: ``seconds``, ``turns`` by party, and ``count``
and ``bytes`` of messages by sender, receiver and name."""
_End = tuple[datetime, str, int]  # when a pass ended, the setting that counts it, and its number

_ONCE, _ANSWER = "all but passes", ("sent", "received")
_PASSES, _SEALED_PASSES = 4, 2  # more make time more certain, and take long where something is encrypted
# Rows of a run and steps of a pass at least, and what the rows of a step divide where settings do not tell.
_LEAST_ROWS, _STEPS, _BATCH = 60, 3, 16
# All seconds that are spent, those with small keys before real ones, those of a run that is short; and of so many rows
# one may as well play all.
_BUDGET, _SMALL, _SHORT, _NEARLY = 24.0, 14.0, 2.0, 0.6


class _Played(NamedTuple):
    """What a run took that was played; ``seconds`` with its tables and all."""

    parts: Parts
    seconds: float
    sizes: Mapping[tuple[str, ...], list[int]]
    """The bytes of each message that was sent, by part, sender, receiver and name."""


class Rehearsal(NamedTuple):
    """What a run takes at most."""

    parts: list[dict[str, Any]]
    """How often each part is gone through, how long it takes once, how often parties wait, and what each sends."""
    messages: list[dict[str, Any]]
    """How many cross in all, and their bytes, by sender, receiver and name."""
    rows: int  # the most shared ones that were played
    of_rows: int
    is_sealed: bool


def rehearse(
    plans: Sequence[RunPlan], world: World, engine: EngineSettings, say: Callable[[str], None] = lambda _: None
) -> Rehearsal:
    """Play smaller runs for half a minute; the last plan is of the stage at hand, others of what it stands on."""
    plan, total, parts = plans[-1], Counter[tuple[str, ...]](), []
    with ExitStack() as stack:
        parties = {party for one in plans for party in one.parties}
        engines = {party: stack.enter_context(engine.open_apart()) for party in parties}
        rows, whole = (player := _Player(plans, world, engines, say)).play()
    for name, part in whole.items():
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
    return Rehearsal(parts, messages, rows, player.most, player.is_sealed)


class _Player:
    """Plays one stage with more or fewer rows."""

    def __init__(
        self, plans: Sequence[RunPlan], world: World, engines: Mapping[str, Engine], say: Callable[[str], None]
    ) -> None:
        self._plans, self._world, self._engines, self._say = plans, world, engines, say
        plan, method = plans[-1], method_named(plans[-1].method)
        self._largest = max(world.groups, key=lambda group: (len(group) > 1, world.groups[group]))
        self.most = world.groups[self._largest]
        marks, self._config = {one.name: one.metadata for one in dataclasses.fields(method.config)}, dict(plan.config)
        for name, (least, most) in ((name, one["within"]) for name, one in marks.items() if one.get("within")):
            self._config[name] = type(plan.config[name])(min(max(plan.config[name], least), most))
        self.wanted = {name: plan.config[name] for name, one in marks.items() if one.get("passes")}
        batches = sorted(plan.config[name] for name, one in marks.items() if one.get("batch") and plan.config[name])
        # With fewer rows these settings would otherwise choose batches of another size, and more passes.
        self._fixed: dict[str, Any] = {}
        self._floors, self._repeats = [name for name, one in marks.items() if one.get("floor")], 1
        if self._floors:
            budget, whole = Budget.of(validated(method.config, plan.config, "config")), self._training(self.most)
            batches, self._repeats = [budget.size(whole)], budget.passes_per_epoch(whole)
            self._fixed["batch_size"] = batches[0]
        self.is_sealed = any(one.body.carries_ciphertext for one in method.declarations_in(plan))
        self._has_long_keys = self.is_sealed and self._config.get("key_size", INSECURE_TEST) != INSECURE_TEST
        self._size = max(batches[:1] if self._has_long_keys else batches, default=_BATCH)

    def play(self) -> tuple[int, Parts]:
        """Return what the whole run takes, and how many rows of it were played."""
        until = time.monotonic() + _BUDGET
        if not self._has_long_keys:
            played = self._grow(_STEPS, until)
            return max(played), self._whole(played)
        # Small keys tell soon how many messages there are, and how these grow with the rows.
        small = self._grow(1, time.monotonic() + _SMALL, key_size=INSECURE_TEST)
        whole, rows = self._whole(small), min(small)
        while True:
            real = self._play(rows)
            most = (until - time.monotonic()) / real.seconds * small[rows].seconds
            if not (more := [one for one in small if one > rows and small[one].seconds < most]):
                return rows, _with_real_keys(whole, small[max(small)], small[rows], real)
            rows = max(more)

    def _grow(self, steps: int, until: float, **changes: Any) -> dict[int, _Played]:
        """Play runs of more and more rows until one is whole, or there is no time for a larger one."""
        rows, last = max(_LEAST_ROWS, self._world.least_rows), None
        wanted = min(steps * self._size, self._training(self.most))
        rows = next(one for one in range(rows, 10**9) if self._training(one) >= wanted)
        while last is None:
            rows = self._near(rows)
            try:
                last = self._play(rows, **changes)
            except ColonnadeError:
                # A guard may object to so few rows; if it objects to all of them, so it will to the run.
                if rows == self.most:
                    raise
                rows *= 2
        if (rows == self.most or changes) and last.seconds < _SHORT:
            # Once more, as some things are loaded the first time.
            last = self._play(rows, **changes)
        played = {rows: last}
        while rows < self.most:
            # What goes by rows are passes, as far as they are known.
            more = sum(part["passes",] * part["seconds",] for part in last.parts.values())
            more, room = more or last.parts[_ONCE]["seconds",], (until - time.monotonic()) / (1 if changes else 2)
            fits = [times for times in (8, 4, 2) if last.seconds + (times - 1) * more < room]
            if not fits and len(played) > 1:
                break
            rows = self._near((fits or [2])[0] * rows)
            last = played[rows] = self._play(rows, **changes)
        return played

    def _whole(self, played: Mapping[int, _Played]) -> Parts:
        """Work out the whole run from the two largest that were played: what goes by rows, and what does not."""
        *fewer, rows = sorted(played)
        last = played[rows].parts
        if rows == self.most:
            return last
        before = played[fewer[-1]].parts
        low, high = (self._training(one) / self._training(self.most) for one in (fewer[-1], rows))
        found: Parts = {name: defaultdict(float) for name in last}
        for name, part in last.items():
            for key in {*part, *before[name]}:
                each = (part[key] - before[name][key]) / (high - low)
                if not before[name][key]:
                    # Few rows may leave a message out, so that two sizes do not tell how it grows.
                    each = part[key] / high if key[0] == "bytes" else 0.0
                found[name][key] = each + (part[key] - high * each)
            # More rows take no less time, and not much more than as many times as much; what says so is noise.
            least = max(0.0, part["seconds",])
            found[name]["seconds",] = min(max(found[name]["seconds",], least), least / high)
        return found

    def _near(self, rows: int) -> int:
        """Return about so many rows, so that the last batch is full, or as full as in the whole run."""
        if rows > _NEARLY * self.most:
            return self.most
        whole = self._training(self.most)
        return next(one for one in range(rows, self.most + 1) if (whole - self._training(one)) % self._size == 0)

    def _training(self, rows: int) -> int:
        evaluate = self._plans[-1].evaluate
        return rows - round(rows * evaluate.test_fraction) - round(rows * evaluate.validation_fraction)

    def _play(self, rows: int, **changes: Any) -> _Played:
        """Play a run of some rows and few passes."""
        share = self._training(rows) / self._training(self.most)
        passes = {name: min(_SEALED_PASSES if self.is_sealed else _PASSES, one) for name, one in self.wanted.items()}
        groups = {group: max(1, round(count * share)) for group, count in self._world.groups.items()}
        world = replace(self._world, groups={**groups, self._largest: rows})
        self._say(f"Rehearsing with {rows} of {self.most} rows{' and small keys' if changes else ''} …")
        steps = math.ceil(self._training(rows) / self._size) * sum(passes.values())
        few = {**passes, **self._fixed, **dict.fromkeys(self._floors, self._repeats * steps), **changes}
        plans = [replace(one, config={**self._config, **few}) for one in self._plans]
        return _play(plans, world, self._engines)


def _with_real_keys(whole: Parts, most: _Played, few: _Played, real: _Played) -> Parts:
    """Give the whole run's messages, known with small keys, the size and time that those of a small run have."""
    larger, found = {}, dict[str, dict[tuple[str, ...], float]]()
    for way, sizes in ((way, most.sizes[way]) for way in {*few.sizes} & {*real.sizes}):
        # As many times as large as messages of the most similar size are in the mean.
        pairs = list(zip(few.sizes[way], real.sizes[way], strict=False))
        times = {one: statistics.fmean(b for a, b in pairs if a == one) / max(1, one) for one, _ in pairs}
        nearest = (one * times[min(times, key=lambda size: abs(size - one))] for one in sizes)
        larger[way] = sum(nearest) / max(1, sum(sizes))
    for name, part in whole.items():
        found[name] = defaultdict(float, part)
        for way in (one for one in larger if one[0] == name):
            found[name]["bytes", *way[1:]] *= larger[way]
        sent, wanted = (sum(one[key] for key in one if key[0] == "bytes") for one in (real.parts[name], found[name]))
        seconds = max(0.0, real.parts[name]["seconds",])
        found[name]["seconds",] = seconds * max(1.0, wanted / sent) if sent > 0.0 else seconds
    # Making keys does not go by the rows; small keys tell what does, and passes how many times as long that takes.
    took, before = (sum(one.parts[name]["seconds",] for name in whole if name != _ONCE) for one in (real, few))
    more = max(0.0, whole[_ONCE]["seconds",] - few.parts[_ONCE]["seconds",]) * max(1.0, took / (before or math.inf))
    found[_ONCE]["seconds",] = max(0.0, real.parts[_ONCE]["seconds",]) + more
    return found


def _play(plans: Sequence[RunPlan], world: World, engines: Mapping[str, Engine]) -> _Played:
    """Play one run on made-up tables, and what it stands on."""
    began, method, run = time.monotonic(), method_named(plans[-1].method), None
    ends: dict[str, list[_End]] = defaultdict(list)

    def observe(progress: Progress) -> None:
        if progress.passed is not None and progress.stage == plans[-1].stage:
            ends[progress.party].append((datetime.now(UTC), *progress.passed))

    for plan in plans:
        tables = world.tables(labelled=plan.stage != "predict")
        parties = {party: Party(tables[party]) for party in method.parties_with_rows(plan)}
        if plan.stage == "predict" and run is not None:
            with tempfile.TemporaryDirectory() as folder:
                predict_in_threads(replace(run, folder=Path(folder)), parties, engines)
                files = Path(folder).rglob("ledger.jsonl")
                entries = {one.parent.name: list(Ledger.read(one).entries) for one in files}
        else:
            run = simulate_plan(plan, parties, engine=engines, after=run, observer=observe, transport="grpc")
            entries = {party: list(ledger.entries) for party, ledger in run.ledgers.items()}
    parts, sizes = _divided(entries, ends)
    return _Played(parts, time.monotonic() - began, sizes)


def _divided(every: Mapping[str, Sequence[Entry]], ends: Mapping[str, list[_End]]) -> tuple[Parts, Any]:
    """Divide what ledgers tell by passes, of which the first does not count, as it may be unlike the others."""
    passes = dict(sorted(((end[1], end[2]) for own in ends.values() for end in own), key=lambda pair: pair[1]))
    found: Parts = {name: defaultdict(float) for name in (_ONCE, *passes)}
    times, sizes = list[datetime](), defaultdict[tuple[str, ...], list[int]](list)
    for party, entries in every.items():
        own = ends.get(party, [])
        times += [datetime.fromisoformat(one.content["time"]) for one in (entries[0], entries[-1])]
        for before, entry in pairwise(entries):
            place = bisect_left(own, (datetime.fromisoformat(entry.content["time"]),))
            _, name, number = own[place] if place < len(own) else (None, _ONCE, 0)
            # A wait for the answer to a message, or one that was sent.
            amounts: dict[tuple[str, ...], float] = {("turns", party): (before.kind, entry.kind) == _ANSWER}
            if entry.kind == "sent":
                way = (party, entry.content["peer"], entry.content["message"])
                amounts = {("count", *way): 1, ("bytes", *way): entry.content["bytes"]}
                sizes[name if number > 1 else _ONCE, *way].append(entry.content["bytes"])
            for key, value in amounts.items():
                found[_ONCE][key] += value
                if number > 1:
                    found[name][key] += value / (passes[name] - 1)
    found[_ONCE]["seconds",] = (max(times) - min(times)).total_seconds()
    for name, count in passes.items():
        for own in ends.values():
            each = [(two[0] - one[0]).total_seconds() for one, two in pairwise(own) if two[1] == name and two[2] > 1]
            found[name]["seconds",] = max(found[name]["seconds",], sum(each) / max(1, count - 1))
        for key, value in found[name].items():
            found[_ONCE][key] -= count * value
        found[name]["passes",] = count
    return found, sizes
