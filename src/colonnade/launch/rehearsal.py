"""Rehearse a run: play its role functions on made-up tables, with few rows and few passes, and multiply."""

from __future__ import annotations

import dataclasses
import math
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from colonnade.crypto import INSECURE_TEST
from colonnade.engine import Engine, EngineSettings, usable_cores
from colonnade.engine.pool import OwnProcesses
from colonnade.errors import ColonnadeError
from colonnade.launch.made_up import World
from colonnade.launch.simulation import predict_in_threads, simulate_plan
from colonnade.ledger import Entry, Ledger
from colonnade.methods import method_named
from colonnade.session import Method, Party, Progress, RunPlan
from colonnade.settings import validated
from colonnade.training import Budget

__all__ = ["Rehearsal", "rehearse", "stages_before"]

Parts = dict[str, dict[tuple[str, ...], float]]
"""What one pass takes that a setting counts, by its name, and all else: ``seconds``, ``turns`` by party, and ``count``
and ``bytes`` of messages by sender, receiver and name."""
Sizes = dict[tuple[str, ...], list[int]]
"""The bytes of each message that was sent, by sender, receiver and name."""
_End = tuple[str, str, int]  # when a pass ended, the setting that counts it, and its number

_ONCE = "all but passes"
# More passes make time more certain; where something is encrypted, each takes long.
_PASSES, _SEALED_PASSES = 4, 2
# Rows of a run and steps of a pass at least, and what the rows of a step divide where settings do not tell.
_LEAST_ROWS, _STEPS, _BATCH = 60, 3, 16
# All seconds that are spent, those with small keys before real ones, those of a run that is short; and of so many rows
# one may as well play all.
_BUDGET, _SMALL, _SHORT, _NEARLY = 22.0, 8.0, 1.0, 0.6

_INLINE = EngineSettings(kind="inline")


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
    plans: Sequence[RunPlan],
    world: World,
    *,
    engine: EngineSettings = _INLINE,
    say: Callable[[str], None] = lambda _: None,
) -> Rehearsal:
    """Play smaller runs for half a minute; the last plan is of the stage at hand, and others of what it stands on.

    Each party gets an engine of its own, in processes of its own.
    """
    plan, total, parts = plans[-1], Counter[tuple[str, ...]](), []
    with ExitStack() as stack:
        engines = {party: stack.enter_context(_own(engine)) for party in plan.parties}
        player = _Player(plans, world, engines, say)
        rows, whole = player.play()
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
    return Rehearsal(plan, parts, messages, rows, player.most, player.is_sealed)


class _Player:
    """Plays one stage with more or fewer rows."""

    def __init__(
        self, plans: Sequence[RunPlan], world: World, engines: Mapping[str, Engine], say: Callable[[str], None]
    ) -> None:
        self._plans, self._world, self._engines, self._say = plans, world, engines, say
        self._sizes: dict[tuple[int, bool], Sizes] = {}
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
        # With real keys the smallest batches are whole, and others as full as they get.
        sizes = batches[:1] if self._has_long_keys else batches
        self._has_batches, self._size = bool(batches), max(sizes, default=_BATCH)

    def play(self) -> tuple[int, Parts]:
        """Return what the whole run takes, and how many rows of it were played."""
        until = time.monotonic() + _BUDGET
        if not self._has_long_keys:
            played = self._grow(_STEPS, until)
            return max(played), self._whole(played)
        # Small keys tell soon how many messages there are, and how these grow with the rows.
        small = self._grow(1, time.monotonic() + _SMALL, key_size=INSECURE_TEST)
        whole, rows, sealed = self._whole(small), min(small), dict[int, Parts]()
        while rows:
            began = time.monotonic()
            sealed[rows], taken = self._play(rows), time.monotonic() - began
            sizes = {one: sum(map(sum, self._sizes[one, True].values())) for one in small if one not in sealed}
            room = (until - time.monotonic()) / taken * sum(map(sum, self._sizes[rows, True].values()))
            rows = max((one for one, size in sizes.items() if size < room), default=0)
        return max(sealed), self._scaled(whole, small, sealed)

    def _grow(self, steps: int, until: float, **changes: Any) -> dict[int, Parts]:
        """Play runs of more and more rows until one is whole, or there is no time for a larger one."""
        began = time.monotonic()
        rows, parts = self._first(steps, **changes)
        taken = time.monotonic() - began
        if rows == self.most and taken < _SHORT:
            # Once more, as some things are loaded the first time.
            parts = self._play(rows, **changes)
        played, more = {rows: parts}, self._seconds_by_rows(parts)
        while rows < self.most:
            room = (until - time.monotonic()) / 2
            times = next((one for one in (8, 4, 2) if taken + (one - 1) * more < room), 2 if len(played) == 1 else 0)
            if not times:
                break
            before, rows, began = (rows, taken), self._near(times * rows), time.monotonic()
            played[rows] = self._play(rows, **changes)
            taken = time.monotonic() - began
            more = max(0.0, taken - before[1]) / (rows - before[0]) * rows
        return played

    def _whole(self, played: Mapping[int, Parts]) -> Parts:
        """Work out the whole run from the two largest that were played: what goes by rows, and what does not."""
        *_, (fewer, before), (rows, last) = [(0, {}), *sorted(played.items())]
        if rows == self.most:
            return last
        low, high = (self._training(one) / self._training(self.most) for one in (fewer, rows))
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

    def _scaled(self, whole: Parts, small: Mapping[int, Parts], sealed: Mapping[int, Parts]) -> Parts:
        """Return the whole run with real keys: messages as with small ones, of the size and the time of real ones."""
        rows, at, rates = max(sealed), sealed[max(sealed)], list[float]()
        few, real, most = (self._sizes[one] for one in ((rows, True), (rows, False), (max(small), True)))
        larger = {way: _times_larger(sizes, few[way], real[way]) for way, sizes in most.items() if few[way]}
        found: Parts = {}
        for name, part in reversed(whole.items()):
            found[name] = defaultdict(float, part)
            found[name].update(
                {key: larger.get(key[1:], 1.0) * value for key, value in part.items() if key[0] == "bytes"}
            )
            seconds, sent = max(0.0, at[name]["seconds",]), _bytes(at[name])
            each = seconds / sent if sent > 0.0 else 0.0
            if name == _ONCE:
                # Making keys does not go by the bytes; passes tell what these take.
                each = min([each, *rates])
            rates += [each] if each else []
            found[name]["seconds",] = seconds + each * max(0.0, _bytes(found[name]) - sent)
        return {name: found[name] for name in whole}

    def _first(self, steps: int, **changes: Any) -> tuple[int, Parts]:
        """Play a run of a few batches, or of more if a guard objects to so few rows."""
        rows = max(_LEAST_ROWS, self._world.least_rows)
        if self._has_batches:
            rows = max(rows, self._rows_for(min(steps * self._size, self._training(self.most))))
        while True:
            rows = self._near(rows)
            try:
                return rows, self._play(rows, **changes)
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
        whole = self._training(self.most)
        return next(one for one in range(rows, self.most + 1) if (whole - self._training(one)) % self._size == 0)

    def _rows_for(self, training: int) -> int:
        return next(one for one in range(training, 10**9) if self._training(one) >= training)

    def _training(self, rows: int) -> int:
        evaluate = self._plans[-1].evaluate
        return rows - round(rows * evaluate.test_fraction) - round(rows * evaluate.validation_fraction)

    def _play(self, rows: int, **changes: Any) -> Parts:
        """Play a run of some rows and few passes."""
        share = self._training(rows) / self._training(self.most)
        passes = {name: min(_SEALED_PASSES if self.is_sealed else _PASSES, one) for name, one in self.wanted.items()}
        groups = {group: max(1, round(count * share)) for group, count in self._world.groups.items()}
        world = replace(self._world, groups={**groups, self._largest: rows})
        self._say(f"Rehearsing with {rows} of {self.most} rows{' and small keys' if changes else ''} …")
        steps = math.ceil(self._training(rows) / self._size) * sum(passes.values())
        few = {**passes, **self._fixed, **dict.fromkeys(self._floors, self._repeats * steps), **changes}
        plans = [replace(one, config={**self._config, **few}) for one in self._plans]
        parts, self._sizes[rows, bool(changes)] = _play(plans, world, self._engines)
        return parts


def _bytes(part: Mapping[tuple[str, ...], float]) -> float:
    return sum(value for key, value in part.items() if key[0] == "bytes")


def _times_larger(sizes: Sequence[int], few: Sequence[int], real: Sequence[int]) -> float:
    """Return how many times as large messages are with real keys, as those of the most similar size tell."""
    times = {one: after / max(1, one) for one, after in zip(few, real, strict=False)}
    return sum(one * times[min(times, key=lambda size: abs(size - one))] for one in sizes) / max(1, sum(sizes))


def _own(settings: EngineSettings) -> Engine:
    """Open an engine that leaves this process to the parties' messages, as if each were one of its own."""
    if settings.kind == "ray":
        return settings.open()
    return OwnProcesses(1 if settings.kind == "inline" else settings.workers or usable_cores())


def _play(plans: Sequence[RunPlan], world: World, engines: Mapping[str, Engine]) -> tuple[Parts, Sizes]:
    """Play one run on made-up tables, and what it stands on; say what each part took, and what was sent."""
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
                predict_in_threads(replace(run, folder=Path(folder)), parties, engines)
                files = Path(folder).rglob("ledger.jsonl")
                entries = {one.parent.name: list(Ledger.read(one).entries) for one in files}
        else:
            run = simulate_plan(plan, parties, engine=engines, after=run, observer=observe, transport="grpc")
            entries = {party: list(ledger.entries) for party, ledger in run.ledgers.items()}
    sizes: Sizes = defaultdict(list)
    for party, own in entries.items():
        for one in (entry.content for entry in own if entry.kind == "sent"):
            sizes[party, one["peer"], one["message"]].append(one["bytes"])
    return _divided(entries, ends), sizes


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
