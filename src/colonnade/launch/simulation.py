"""All parties in one process: for notebooks, tests and research."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from colonnade.data import PartyTable
from colonnade.engine import INLINE, Engine, opened
from colonnade.errors import ConfigError, PeerFailed, PeerLost, RunFolderError, did_you_mean
from colonnade.launch.baselines import ceiling
from colonnade.launch.home import check_message_names
from colonnade.launch.party_folder import PartyFolder, check_earlier, earlier_folders, next_prediction
from colonnade.launch.run import Run, make_run
from colonnade.launch.run_folder import RunFolder
from colonnade.launch.take_part import peers_of, take_part
from colonnade.methods import method_for, method_named
from colonnade.reports import PartyRun, check_format
from colonnade.session import Alignment, Evaluate, Method, Observer, Participant, Party, RunPlan, parties_of
from colonnade.settings import config_to_json
from colonnade.training import differences_of
from colonnade.transport import MemoryHub, Network, Tap

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Launch", "infer_roles", "play_in_threads", "predict_in_threads", "simulate", "simulate_plan"]

View = list[tuple[str, bytes]]
"""What one party received: sender and frame, in order."""


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
    if after is not None:
        check_format(after.format, str(after.folder))
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
    engine: Engine | Mapping[str, Engine] = INLINE,
    keep_views: bool = False,
    after: Run | None = None,
) -> Run:
    """Carry out an agreed plan, in a folder that is held already; see `simulate`.

    ``engine`` is one for all parties, or one for each. ``after`` has the model to go on from; without, it is looked for
    beside the folder.
    """
    method = method_named(plan.method)
    method.check_stage(plan.stage)
    method.check_roles(plan)
    for party in parties.values():
        check_message_names(party.policy)
    if after is None:
        earlier = {} if folder is None else earlier_folders(method, plan, folder.path)
        parts = {party: one.load().part for party, one in earlier.items()}
    else:
        earlier = {} if after.folder is None else {party: PartyFolder(after.folder / party) for party in after.parts}
        parts = dict(after.parts)
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()

    tables = _tables_of(parties)
    participants = {}
    for name in plan.parties:
        party, own = parties.get(name, Party()), None if folder is None else folder.party(name)
        table = tables[name] if name in method.parties_with_rows(plan) else PartyTable.nothing(name)
        if own is not None:
            own.begin(plan, table)
        participants[name] = Participant(
            name,
            party.policy,
            None if own is None else own.path,
            0 if folder is None else folder.earlier_runs(name),
            table=table,
            module=party.module,
            part=parts.get(name),
            earlier=earlier[name].path if name in earlier else None,
            engine=engine if isinstance(engine, Engine) else engine[name],
            queries=None if own is None else own.queries,
        )
    views: dict[str, View] | None = {party: [] for party in plan.parties} if keep_views else None
    runs = play_in_threads(plan, participants, observer=observer, compare=compare, views=views, transport=transport)
    run = make_run(
        plan,
        runs,
        launch="simulation: all parties in one process",
        started=started,
        seconds=time.monotonic() - clock,
        central=ceiling(plan, tables, observer) if compare else {},
        folder=None if folder is None else folder.path,
        views=views or {},
    )
    if folder is not None:
        folder.finish(run)
    if after is not None:
        _judge(after, runs)
    return run


def _judge(model: Run, runs: Mapping[str, PartyRun]) -> None:
    """Note at a run that is still in memory what a later stage said about its model."""
    for party, run in runs.items():
        if run.part is None and run.refusals:
            model.parties[party].refusals.update(run.refusals)


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


def predict_in_threads(
    run: Run,
    parties: Mapping[str, Party],
    engine: Engine | Mapping[str, Engine] = INLINE,
    queries: Mapping[str, Path] | None = None,
) -> pd.DataFrame:
    """Score new rows with a trained run, as the party that may know the scores gets them.

    ``attrs["notes"]`` of what is returned says, by party, how its new rows differ from those of training.
    ``queries`` are the files in which parties count what they score, where they have homes.
    """
    run.check_model()
    plan = run.method.in_stage(run.plan, "predict")
    if elsewhere := [party for party in plan.parties if party not in run.parties]:
        raise RunFolderError(
            f"The parts of {' and '.join(elsewhere)} are not here. Score rows together: all parties give 'colonnade "
            "predict FOLDER --table FILE'."
        )
    bringing, tables = run.method.parties_with_rows(plan), _tables_of(parties)
    missing = sorted((set(bringing) ^ set(tables)) | (set(parties) - set(plan.parties)))
    if missing:
        raise ConfigError(f"Prediction needs one table each of {', '.join(bringing)}; check {', '.join(missing)}.")
    for party in parties.values():
        check_message_names(party.policy)
    folder = None if run.folder is None else next_prediction(run.folder)
    counted = {} if run.folder is None else {name: PartyFolder(run.folder / name).queries for name in plan.parties}
    counted |= queries or {}
    participants = {
        name: Participant(
            name,
            parties.get(name, Party()).policy,
            None if folder is None else folder / name,
            table=tables.get(name),
            module=parties.get(name, Party()).module,
            part=run.parts.get(name),
            refusals=run.refusals.get(name, {}),
            engine=engine if isinstance(engine, Engine) else engine[name],
            queries=counted.get(name),
        )
        for name in plan.parties
    }
    notes = {name: list(differences_of(run.parts[name], table)) for name, table in tables.items() if name in run.parts}
    ended = play_in_threads(plan, participants)
    scores = _joined({name: one.predictions for name, one in ended.items() if one.predictions is not None})
    scores.attrs["notes"] = {name: said for name, said in notes.items() if said}
    return scores


def _joined(frames: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    """Put several parties' predictions below each other; the first column then says whose they are."""
    import pandas as pd

    if len(frames) == 1:
        return next(iter(frames.values()))
    named = []
    for party, frame in frames.items():
        # A party's own id column may have the same name.
        own = frame.rename(columns={"party": f"{party}: party"})
        own.insert(0, "party", party)
        named.append(own)
    return pd.concat(named, ignore_index=True)


def play_in_threads(
    plan: RunPlan,
    participants: Mapping[str, Participant],
    *,
    observer: Observer | None = None,
    compare: bool = False,
    views: Mapping[str, View] | None = None,
    transport: str = "memory",
) -> dict[str, PartyRun]:
    """Play all roles of a stage, each party in its own thread, and raise the first error that was not an echo."""
    method = method_named(plan.method)
    tap = None if views is None else lambda sender, receiver, frame: views[receiver].append((sender, frame))
    hub = _network(transport, plan.parties, tap)
    # Before any thread starts: a party must find its peers' lines ready.
    links = {name: {peer: hub.link(name, peer) for peer in peers_of(method, plan, name)} for name in plan.parties}
    runs: dict[str, PartyRun] = {}
    errors: list[BaseException] = []
    # Not Thread.join: once interrupted, it takes a running thread for a finished one (Python 3.11).
    ended = {name: threading.Event() for name in participants}

    def run_party(name: str) -> None:
        try:
            # OpenMP keeps the number by thread, and a new thread would use all cores.
            torch.set_num_threads(share)
            runs[name] = take_part(participants[name], plan, links[name], observer=observer, compare=compare)
        except BaseException as error:
            errors.append(error)
        finally:
            hub.leave(name)
            ended[name].set()

    threads = [
        threading.Thread(target=run_party, args=(name,), name=f"party {name}", daemon=True) for name in participants
    ]
    with _fair_share_of_cores(len(threads)) as share:
        for thread in threads:
            thread.start()
        try:
            for event in ended.values():
                event.wait()
        except KeyboardInterrupt:
            # Wake everyone so that ledgers get their last mark, then let the interrupt go on.
            hub.stop("The user interrupted the run.")
            for event in ended.values():
                event.wait(timeout=5)
            raise
        finally:
            # An ended party's thread has nothing left to do; this only waits until it is gone from the process.
            for name, thread in zip(participants, threads, strict=True):
                if ended[name].is_set():
                    thread.join(timeout=5)
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerFailed | PeerLost)), errors[0])
    # In the agreed order, not in that in which they happened to end.
    return {name: runs[name] for name in participants}


def _network(transport: str, parties: tuple[str, ...], tap: Tap | None) -> Network:
    if transport == "memory":
        return MemoryHub(parties, tap=tap)
    if transport == "grpc":
        from colonnade.transport.grpc import LoopbackNetwork

        return LoopbackNetwork(parties, tap=tap)
    raise ConfigError(f"There is no transport '{transport}'. {did_you_mean(transport, ('memory', 'grpc'))}")


@contextmanager
def _fair_share_of_cores(parties: int) -> Iterator[int]:
    """Let each party's arithmetic use its share of the cores; give the share, which every party's thread must ask for.

    torch would give every thread a pool as large as the machine, and the pools would then wait for one another.
    """
    before = torch.get_num_threads()
    share = max(1, before // parties)
    torch.set_num_threads(share)
    try:
        yield share
    finally:
        torch.set_num_threads(before)
