"""Forecast a run: gather what is known of the tables, measure this machine, and ask the method."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from colonnade import __version__
from colonnade.alignment import align_in_one_place, measure_id_seconds, sample_messages
from colonnade.crypto import INSECURE_TEST, key_bits
from colonnade.crypto.calibration import CryptoCosts, measure_costs, measure_speedup
from colonnade.data import LabelEncoder, PartyTable, Split, TableEncoder
from colonnade.engine import EngineSettings
from colonnade.errors import ConfigError
from colonnade.launch.baselines import agreed_split
from colonnade.launch.party import peers_of
from colonnade.launch.settings import config_from_json
from colonnade.ledger import LedgerWriter
from colonnade.methods import method_named
from colonnade.session import (
    Channel,
    Facts,
    Forecaster,
    Line,
    Machines,
    Method,
    Policy,
    Portion,
    RunPlan,
    StageForecast,
    crossing,
    derive_seed,
)
from colonnade.session.control import AgreedField, Finished, Goodbye, HeldCheckpoints, Hello, ResumeFrom
from colonnade.transport.grpc import LoopbackNetwork

__all__ = [
    "Known",
    "RunForecast",
    "forecast_run",
    "gather_knowledge",
    "key_of",
    "measure_machines",
    "measure_message_seconds",
    "without_costs",
]

Say = Callable[[str], None]

_ROUND_TRIPS = 60
# The size of a typical message of one batch.
_MESSAGE_BYTES = 3000
_PROBE = ("this side", "that side")


@dataclass(frozen=True)
class Known:
    """What is known of the tables before a run, and what had to be assumed."""

    rows: Mapping[str, int]
    shared: int
    columns: Mapping[str, int]
    task: str | None
    classes: int
    assumptions: tuple[str, ...]
    portions: Mapping[str, Portion] = field(default_factory=dict)
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunForecast:
    """What a run will take, from the greeting to the goodbye."""

    plan: RunPlan
    key: str | None
    facts: Facts
    stages: tuple[StageForecast, ...]
    assumptions: tuple[str, ...]

    @property
    def is_insecure(self) -> bool:
        """Tell whether the keys of this run can be broken."""
        return self.key == INSECURE_TEST

    @property
    def seconds(self) -> float | None:
        """Return how long the run takes at most; None if the method does not say."""
        every = [None if stage.seconds is None else stage.seconds * stage.times for stage in self.stages]
        return None if None in every else sum(one for one in every if one is not None)

    def bytes_sent(self, party: str) -> int:
        """Return what a party sends at most."""
        return sum(stage.bytes_sent(party) * stage.times for stage in self.stages)

    def busy(self, party: str) -> float:
        """Return how long a party computes at most."""
        return sum(stage.busy.get(party, 0.0) * stage.times for stage in self.stages)


def gather_knowledge(
    plan: RunPlan,
    tables: Mapping[str, PartyTable],
    *,
    columns: Mapping[str, int] | None = None,
    shared_rows: int | None = None,
    classes: int | None = None,
) -> Known:
    """Find out what the tables that are here tell, and complete it by what the user says of the others."""
    assumptions = []
    positions: dict[str, Any] = dict.fromkeys(tables)
    portions: dict[str, Portion] = {}
    method = method_named(plan.method)
    parties = method.parties_with_rows(plan)
    if shared_rows is not None:
        shared = shared_rows
    elif set(tables) == set(parties):
        shared, positions, portions = _shared_here(plan, tables)
        if method.forecast is None or not method.forecast.is_by_pair:
            portions = {}
        if method.stage(plan.stage).rows == "pairwise" and len(parties) > 2 and not portions:
            assumptions.append(f"every two partners share as many rows as those that share the most: {shared}")
    elif tables:
        shared = min(table.rows for table in tables.values())
        assumptions.append(
            f"all {shared} rows of the smallest table that is here are shared (--shared-rows N says otherwise)"
        )
    else:
        raise ConfigError(
            "No home of a party of this run is on this machine. Say --shared-rows N, and --columns PARTY=N for each "
            "party; or name the homes with --home PARTY=FOLDER."
        )
    for party, table in tables.items():
        if shared_rows is not None and shared_rows > table.rows:
            raise ConfigError(f"--shared-rows {shared} is more than the {table.rows} rows of '{party}'. Say fewer.")
    support = int(plan.config.get("minimum_support", 0))
    known = {party: _width(table, positions[party], support) for party, table in tables.items()} | dict(columns or {})
    rows = dict.fromkeys(plan.parties, 0)
    rows |= {party: tables[party].rows if party in tables else shared for party in parties}
    absent = [party for party in parties if party not in tables]
    if absent and tables:
        assumptions.append(f"the table of {', '.join(absent)} has no more rows than are shared")
    task, number = _task(plan, tables, classes)
    names = {party: tuple(table.feature_names) for party, table in tables.items()}
    return Known(rows, shared, known, task, number, tuple(assumptions), portions, names)


def _shared_here(plan: RunPlan, tables: Mapping[str, PartyTable]) -> tuple[int, dict[str, Any], dict[str, Portion]]:
    """Return how many rows are shared, the rows on which each party fits its encoders, and what each pair shares."""
    method = method_named(plan.method)
    lead, seed = method.leader_of(plan), derive_seed(plan.seed, "alignment")
    parties = method.parties_with_rows(plan)
    if method.stage(plan.stage).rows != "pairwise":
        aligned = align_in_one_place({party: tables[party] for party in parties}, lead, plan.alignment, seed)
        shared = len(next(iter(aligned.values())))
        train = agreed_split(plan, shared).train
        return shared, {party: rows.positions[train] for party, rows in aligned.items()}, {}
    portions = {}
    counts, held = [0], dict.fromkeys(parties, np.empty(0, np.int64))
    for party in parties:
        if party == lead:
            continue
        pair = {one: tables[one] for one in (lead, party)}
        aligned = align_in_one_place(pair, lead, plan.alignment, seed)
        counts.append(len(aligned[lead]))
        split = agreed_split(plan, counts[-1])
        portions[party] = _portion(tables[party], aligned[party].positions, split)
        for one, rows in aligned.items():
            held[one] = np.concatenate([held[one], rows.positions[np.concatenate([split.validation, split.test])]])
    fitted = {party: np.setdiff1d(np.arange(tables[party].rows), rows) for party, rows in held.items()}
    return max(counts), fitted, portions


def _portion(table: PartyTable, positions: Any, split: Split) -> Portion:
    def count(part: Any) -> int:
        return len(part) if table.labels is None else int(table.is_labelled[positions[part]].sum())

    return Portion(
        shared=len(positions), training=count(split.train), validation=count(split.validation), test=count(split.test)
    )


def measure_machines(
    plan: RunPlan,
    key: str | None,
    engines: Mapping[str, EngineSettings],
    *,
    is_local: bool,
    latency_seconds: float = 0.0,
    bytes_per_second: float | None = None,
    say: Say = lambda _: None,
) -> Machines:
    """Measure this machine for a few seconds. The partners' are taken to be like it."""
    cores = len(os.sched_getaffinity(0))
    settings = {party: engines.get(party, EngineSettings()) for party in plan.parties}
    if is_local:
        settings = {party: one.shared_by(len(plan.parties)) for party, one in settings.items()}
    workers = {party: 1 if one.kind == "inline" else one.workers or cores for party, one in settings.items()}
    costs, speedups = None, {}
    if key is not None:
        say(f"Measuring encryption on this machine, with a key of the size {key} …")
        costs = measure_costs(key)
        for count in sorted(set(workers.values()) - {1}):
            here = min(count, cores)
            say(f"Measuring what {here} processes gain over one …")
            # A cluster with more workers than this machine has cores is faster than we can tell.
            speedups[count] = measure_speedup(key, here)
    say("Measuring messages over loopback …")
    line = Line(
        message_seconds=measure_message_seconds(),
        latency_seconds=latency_seconds,
        bytes_per_second=bytes_per_second,
    )
    return Machines(line=line, costs=costs, workers=workers, speedups=speedups, cores=cores if is_local else None)


def key_of(plan: RunPlan) -> str | None:
    """Return the named size of a run's keys; None if nothing is encrypted."""
    method = method_named(plan.method)
    return _forecaster(method, plan).key(config_from_json(method, plan.config))


def without_costs(key: str | None) -> Machines:
    """Return machines that take no time: enough to count what crosses, and to find out whether anything is missing."""
    counted = {one.name for one in dataclasses.fields(CryptoCosts)} - {"key_bits", "slowdown"}
    nothing = dict.fromkeys(counted, 0.0)
    costs = None if key is None else CryptoCosts(key_bits=key_bits(key), **nothing)
    return Machines(line=Line(message_seconds=0.0), costs=costs)


def forecast_run(plan: RunPlan, known: Known, machines: Machines) -> RunForecast:
    """Forecast a run from what is known; nothing is sent and nothing is written."""
    method = method_named(plan.method)
    forecaster, config = _forecaster(method, plan), config_from_json(method, plan.config)
    split = agreed_split(plan, known.shared)
    facts = Facts(
        rows=known.rows,
        training=len(split.train),
        validation=len(split.validation),
        test=len(split.test),
        columns=known.columns,
        task=known.task,
        classes=known.classes,
        machines=machines,
        names=known.names,
        portions=known.portions,
    )
    stages = (_beginning(method, plan, facts), *forecaster.stages(facts, plan, config), _end(method, plan, facts))
    assumptions = (*known.assumptions, *forecaster.assumes(plan, config))
    return RunForecast(plan, forecaster.key(config), facts, stages, assumptions)


def measure_message_seconds() -> float:
    """Measure what one small message costs both sides: over mutual TLS on loopback, recorded in two ledgers."""
    network = LoopbackNetwork(_PROBE)
    ends = {name: _probe_channel(network, name, peer) for name, peer in (_PROBE, _PROBE[::-1])}
    here, there = (ends[name] for name in _PROBE)

    def echo() -> None:
        for _ in range(_ROUND_TRIPS + 1):
            there.send(there.receive(Goodbye))

    thread = threading.Thread(target=echo, daemon=True)
    thread.start()
    try:
        message = Goodbye(bytes(_MESSAGE_BYTES), b"")
        here.send(message)  # the first one also makes the connection
        here.receive(Goodbye)
        start = time.perf_counter()
        for _ in range(_ROUND_TRIPS):
            here.send(message)
            here.receive(Goodbye)
        return (time.perf_counter() - start) / (2 * _ROUND_TRIPS)
    finally:
        for name in _PROBE:
            network.leave(name)
        thread.join(timeout=5)


def _forecaster(method: Method, plan: RunPlan) -> Forecaster:
    if plan.stage not in (("train",) if method.forecast is None else method.forecast.covers):
        raise ConfigError(f"Only trainings are forecast; the stage {plan.stage} is not. Take stage out of run.toml.")
    if method.forecast is None:
        raise ConfigError(f"The method {method.name} does not forecast its runs yet.")
    return method.forecast


def _probe_channel(network: LoopbackNetwork, name: str, peer: str) -> Channel:
    return Channel(
        network.link(name, peer),
        party=name,
        role=name,
        peer=peer,
        peer_role=peer,
        run="forecast",
        declarations=(),
        ledger=LedgerWriter(),
        policy=Policy(),
        step=lambda: 0,
    )


def _width(table: PartyTable, positions: Any, support: int) -> int:
    return TableEncoder.fit(table, positions, minimum_support=support).width if table.columns else 0


def _task(plan: RunPlan, tables: Mapping[str, PartyTable], classes: int | None) -> tuple[str | None, int]:
    setting = str(plan.config.get("task", "auto"))
    if setting == "ranking":
        return setting, 0
    if classes is not None:
        return ("regression", 0) if classes == 0 else ("binary" if classes == 2 else "multiclass", classes)
    # Of rows that have a label: some methods learn from others too.
    labels = next((table.labels[table.is_labelled] for table in tables.values() if table.labels is not None), None)
    if labels is not None:
        encoder = LabelEncoder.fit(labels, setting)
        return encoder.task, len(encoder.classes)
    return {"binary": ("binary", 2), "regression": ("regression", 0)}.get(setting, (None, 0))


def _beginning(method: Method, plan: RunPlan, facts: Facts) -> StageForecast:
    lead = method.leader_of(plan)
    sent, hops, seconds = [], 3, 0.0
    busy: dict[str, float] = {}
    each = measure_id_seconds()
    for party in plan.parties:
        hello = _hello(plan, party)
        sent += [crossing(party, peer, (hello, 1)) for peer in peers_of(method, plan, party)]
        if party != lead:
            sent += [crossing(party, lead, (HeldCheckpoints(()), 1)), crossing(lead, party, (ResumeFrom(None), 1))]
        if method.are_aligned(plan, lead, party) and party != lead:
            counts = {lead: facts.rows[lead], party: facts.rows[party]}
            others, leads = sample_messages(counts[lead], counts[party], facts.portion_of(party).shared)
            sent += [crossing(party, lead, (message, 1)) for message in others]
            sent += [crossing(lead, party, (message, 1)) for message in leads]
            hops += len(others) + len(leads)
            # Both at the same time, as the lead sends a piece ahead.
            work = {
                lead: facts.machines.divided(lead, counts[lead], each.at_lead),
                party: facts.machines.divided(party, counts[lead], each.answered)
                + facts.machines.divided(party, counts[party], each.at_other),
            }
            seconds += facts.machines.side_by_side(list(work.values()))
            busy = {one: busy.get(one, 0.0) + work.get(one, 0.0) for one in {*busy, *work}}
    seconds += facts.machines.line.seconds(hops if len(plan.parties) > 1 else 0, sum(one.bytes for one in sent))
    return StageForecast(name="greeting and alignment", seconds=seconds, busy=busy, sent=tuple(sent))


def _end(method: Method, plan: RunPlan, facts: Facts) -> StageForecast:
    lead = method.leader_of(plan)
    goodbye = Goodbye(bytes(32), bytes(32))
    sent = []
    for party in plan.parties:
        sent += [crossing(party, peer, (goodbye, 1)) for peer in peers_of(method, plan, party)]
        if party != lead:
            sent.append(crossing(party, lead, (Finished(), 1)))
    hops = 3 if len(plan.parties) > 1 else 0
    seconds = facts.machines.line.seconds(hops, sum(one.bytes for one in sent))
    return StageForecast(name="goodbye", seconds=seconds, sent=tuple(sent))


def _hello(plan: RunPlan, party: str) -> Hello:
    digest = hashlib.sha256().digest()
    return Hello(
        version=__version__,
        party=party,
        role=plan.role_of(party),
        run=plan.name,
        stage=plan.stage,
        fields=tuple(AgreedField(name, digest[:16]) for name in sorted(plan.fields())),
        messages=digest,
        nonce=digest[:16],
    )
