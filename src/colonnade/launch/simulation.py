"""All parties in one process: for notebooks, tests and research."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from colonnade.data import PartyTable
from colonnade.engine import INLINE, Engine, opened
from colonnade.errors import ConfigError
from colonnade.launch.baselines import ceiling
from colonnade.launch.earlier import check_earlier, earlier_folders
from colonnade.launch.party_folder import PartyFolder, PartyRecord
from colonnade.launch.policies import check_message_names
from colonnade.launch.run import Run
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.settings import config_from_json, config_to_json
from colonnade.launch.take_part import Seat
from colonnade.launch.threads import View, play_in_threads
from colonnade.methods import method_for, method_named
from colonnade.session import Alignment, Evaluate, Method, Observer, Party, RunPlan, parties_of

__all__ = ["Launch", "infer_roles", "simulate", "simulate_plan"]


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a simulation is carried out; every value here has one that fits most runs.

    ``transport`` is ``memory``, or ``grpc`` for mutual TLS on loopback. ``engine`` is where the heavy work of all
    parties runs: ``inline``, ``pool``, ``ray``, ``auto``, or an open engine. ``keep_views`` keeps every frame each
    party received, for attacks and tests.
    """

    name: str = "simulation"
    """As the report calls the run."""
    alignment: Alignment = Alignment()  # noqa: RUF009 - frozen
    """How shared rows are found."""
    transport: str = "memory"
    engine: Engine | str = "inline"
    keep_views: bool = False


def simulate(
    config: Any,
    tables: Mapping[str, PartyTable | Party],
    *,
    roles: Mapping[str, str | tuple[str, ...] | list[str]] | None = None,
    seed: int = 0,
    stage: str = "train",
    after: Run | None = None,
    evaluate: Evaluate | None = None,
    folder: str | Path | None = None,
    compare: bool = False,
    observer: Observer | None = None,
    launch: Launch = Launch(),
) -> Run:
    """Train a model between parties that are threads of this process.

    The parties exchange the same declared, recorded messages as in a real run; only the transport differs. ``config``
    holds a method's settings and so chooses the method; ``stage`` is another of its stages than training, if it has
    one, and ``after`` the run whose model such a stage goes on from. A `Party` in place of a table also brings a policy
    or a network of its own. ``roles`` may be left out when exactly one table has a label and every party has a table.
    With a ``folder`` the ledgers, checkpoints, model parts and the report are kept there, and an interrupted run goes
    on from its last checkpoint. ``compare`` also trains the same model with the label holder's columns only and with
    all columns in one place.
    """
    method = method_for(config)
    method.check_stage(stage)
    parties = parties_of(tables)
    plan = RunPlan(
        name=launch.name,
        method=method.name,
        roles=infer_roles(method, _tables_of(parties)) if roles is None else _plain_roles(roles),
        seed=seed,
        config=config_to_json(config),
        evaluate=evaluate or Evaluate(),
        alignment=launch.alignment,
        stage=stage,
        after=None if after is None else after.plan.folder_name,
    )
    _check_tables(method, plan, parties)
    plan = method.in_stage(plan, stage)
    check_earlier(method, plan, None if after is None else after.plan)
    with ExitStack() as stack:
        return simulate_plan(
            plan,
            parties,
            folder=None if folder is None else stack.enter_context(RunFolder(Path(folder)).held()),
            compare=compare,
            observer=observer,
            transport=launch.transport,
            engine=stack.enter_context(opened(launch.engine)),
            keep_views=launch.keep_views,
            after=after,
        )


def simulate_plan(
    plan: RunPlan,
    parties: Mapping[str, Party],
    *,
    folder: RunFolder | None = None,
    compare: bool = False,
    observer: Observer | None = None,
    transport: str = "memory",
    engine: Engine = INLINE,
    keep_views: bool = False,
    after: Run | None = None,
) -> Run:
    """Carry out an agreed plan, in a folder that is held already; see `simulate`.

    ``after`` has the model to go on from; without, it is looked for beside the folder.
    """
    method = method_named(plan.method)
    method.check_stage(plan.stage)
    method.check_roles(plan)
    config = config_from_json(method, plan.config)
    for party in parties.values():
        check_message_names(party.policy)
    if after is None:
        earlier = {} if folder is None else earlier_folders(method, plan, folder.path)
        parts = {party: one.load().record.part for party, one in earlier.items()}
    else:
        earlier = {} if after.folder is None else {party: PartyFolder(after.folder / party) for party in after.parts}
        parts = dict(after.parts)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()

    with_rows = method.parties_with_rows(plan)
    given = {name: parties.get(name, Party()) for name in plan.parties}
    seats = {
        name: Seat(
            name,
            party.table if party.table is not None and name in with_rows else PartyTable.nothing(name),
            party.policy,
            None if folder is None else folder.party(name),
            0 if folder is None else folder.earlier_runs(name),
            module=party.module,
            part=parts.get(name),
            earlier=earlier.get(name),
            engine=engine,
            queries=None if folder is None else folder.party(name).queries,
        )
        for name, party in given.items()
    }
    for seat in seats.values():
        if seat.folder is not None:
            seat.folder.begin(plan, seat.table)
    views: dict[str, View] = {party: [] for party in plan.parties}
    taken = play_in_threads(
        method,
        plan,
        config,
        seats,
        observer=observer,
        compare=compare,
        views=views if keep_views else None,
        transport=transport,
    )
    tables = {name: seats[name].table for name in with_rows}
    run = Run.of(
        plan,
        {party: one.end for party, one in taken.items()},
        launch="simulation: all parties in one process",
        started=started,
        seconds=time.monotonic() - clock,
        evaluations=ceiling(method, plan, config, tables, observer) if compare else None,
        folder=None if folder is None else folder.path,
        views=views if keep_views else None,
    )
    if folder is not None:
        folder.finish(run)
    if after is not None:
        _judge(after, {party: one.end.record for party, one in taken.items()})
    return run


def _judge(model: Run, records: Mapping[str, PartyRecord]) -> None:
    """Note at a run that is still in memory what a later stage said about its model."""
    for party, record in records.items():
        if record.part is None and record.refusals:
            said = model.refusals.pop(party, {}) | record.refusals
            if any(said.values()):
                model.refusals[party] = {stage: reason for stage, reason in said.items() if reason}


def infer_roles(method: Method, tables: Mapping[str, PartyTable]) -> dict[str, tuple[str, ...]]:
    """Give the one party with a label the role that holds labels, and all others the role that does not."""
    for role in method.roles:
        if not role.has_rows and role.at_least:
            raise ConfigError(
                f"The role {role.name} of {method.name} holds no table, so tables do not say who plays it. "
                "Pass roles={'role': 'party', …}."
            )
    with_label = tuple(party for party, table in tables.items() if table.has_label)
    holding = [role.name for role in method.roles if role.has_label]
    others = [role.name for role in method.roles if role.has_rows and not role.has_label]
    if len(with_label) != 1 or len(holding) != 1 or len(others) > 1:
        raise ConfigError(
            f"{len(with_label)} of {len(tables)} tables have a label, so it is not clear who plays which role of "
            f"{method.name}. Pass roles={{'role': 'party', …}}."
        )
    rest = tuple(party for party in tables if party not in with_label)
    return {holding[0]: with_label, **({others[0]: rest} if rest else {})}


def _plain_roles(roles: Mapping[str, str | tuple[str, ...] | list[str]]) -> dict[str, tuple[str, ...]]:
    return {role: (parties,) if isinstance(parties, str) else tuple(parties) for role, parties in roles.items()}


def _tables_of(parties: Mapping[str, Party]) -> dict[str, PartyTable]:
    return {name: party.table for name, party in parties.items() if party.table is not None}


def _check_tables(method: Method, plan: RunPlan, parties: Mapping[str, Party]) -> None:
    with_rows, tables = method.parties_with_rows(plan), _tables_of(parties)
    for party in plan.parties:
        if party in tables and party not in with_rows:
            raise ConfigError(
                f"A table was given for '{party}', but the role {plan.role_of(party)} of {method.name} holds none. "
                "Leave it out."
            )
    odd = sorted((set(with_rows) ^ set(tables)) | (set(parties) - set(plan.parties)))
    if odd:
        raise ConfigError(f"Roles and tables do not name the same parties; they differ in {', '.join(odd)}.")
