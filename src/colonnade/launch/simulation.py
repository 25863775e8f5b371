"""All parties in one process: for notebooks, tests and research."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from colonnade.data import PartyTable, split_rows
from colonnade.errors import ConfigError
from colonnade.launch.align import align_in_the_open
from colonnade.launch.baselines import compare_with_baselines
from colonnade.launch.folder import RunFolder
from colonnade.launch.run import Run
from colonnade.launch.settings import config_from_json, config_to_json
from colonnade.launch.threads import View, evaluation_of, play_in_threads
from colonnade.methods import method_for, method_named
from colonnade.metrics import Evaluation
from colonnade.session import Evaluate, Holding, Method, Observer, Party, Policy, RunPlan, derive_seed

if TYPE_CHECKING:
    from torch import nn

__all__ = ["infer_roles", "simulate", "simulate_plan"]


def simulate(
    config: Any,
    tables: Mapping[str, PartyTable],
    *,
    seed: int = 0,
    roles: Mapping[str, str | tuple[str, ...] | list[str]] | None = None,
    name: str = "simulation",
    evaluate: Evaluate | None = None,
    policies: Mapping[str, Policy] | None = None,
    modules: Mapping[str, nn.Module] | None = None,
    folder: str | Path | None = None,
    compare: bool = False,
    keep_views: bool = False,
    observer: Observer | None = None,
    transport: str = "memory",
) -> Run:
    """Train a model between parties that are threads of this process.

    The parties exchange the same declared, recorded messages as in a real run; only the transport and the alignment
    (plain equality of ids) differ. ``config`` holds a method's settings and so chooses the method. ``roles`` may be
    left out when exactly one table has a label. With a ``folder`` the ledgers, checkpoints and model parts are kept
    there and an interrupted run goes on from its last checkpoint. ``compare`` also trains the same model with the
    label holder's columns only and with all columns in one place. ``keep_views`` keeps every frame each party
    received, for attacks and tests.
    """
    method = method_for(config)
    plan = RunPlan(
        name=name,
        method=method.name,
        roles=infer_roles(method, tables) if roles is None else _plain_roles(roles, tables),
        seed=seed,
        config=config_to_json(config),
        evaluate=evaluate or Evaluate(),
    )
    return simulate_plan(
        plan,
        tables,
        policies=policies,
        modules=modules,
        folder=folder,
        compare=compare,
        keep_views=keep_views,
        observer=observer,
        transport=transport,
    )


def simulate_plan(
    plan: RunPlan,
    tables: Mapping[str, PartyTable],
    *,
    policies: Mapping[str, Policy] | None = None,
    modules: Mapping[str, nn.Module] | None = None,
    folder: str | Path | None = None,
    compare: bool = False,
    keep_views: bool = False,
    observer: Observer | None = None,
    transport: str = "memory",
) -> Run:
    """Carry out an agreed plan; see `simulate`."""
    method = method_named(plan.method)
    method.check_roles(plan)
    config = config_from_json(method, plan.config)
    plan.check_parties("module", modules or ())
    plan.check_parties("policy", policies or ())
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()

    aligned = align_in_the_open({party: tables[party] for party in plan.parties}, derive_seed(plan.seed, "alignment"))
    split = split_rows(
        len(next(iter(aligned.values()))),
        validation_fraction=plan.evaluate.validation_fraction,
        test_fraction=plan.evaluate.test_fraction,
        seed=derive_seed(plan.seed, "split"),
    )
    holdings = {
        party: Holding(tables[party], aligned[party], split, module=(modules or {}).get(party))
        for party in plan.parties
    }
    run_folder = None if folder is None else RunFolder(Path(folder))
    if run_folder is not None:
        run_folder.begin(plan, holdings)
    parties = {
        party: Party(
            party,
            (policies or {}).get(party, Policy()),
            None if run_folder is None else run_folder.party(party),
            0 if run_folder is None else run_folder.earlier_runs(party),
        )
        for party in plan.parties
    }
    views: dict[str, View] = {party: [] for party in plan.parties}
    outcome = play_in_threads(
        method,
        plan,
        config,
        parties,
        holdings,
        observer=observer,
        views=views if keep_views else None,
        transport=transport,
    )

    evaluations = {"together": evaluation_of(outcome)}
    if compare:
        evaluations |= compare_with_baselines(method, plan, config, holdings, partial(_play_alone, observer))
    run = Run(
        plan=plan,
        method=method,
        started=started,
        seconds=time.monotonic() - clock,
        launch="simulation: all parties in one process",
        alignment=next(iter(aligned.values())).protocol,
        rows={"train": len(split.train), "validation": len(split.validation), "test": len(split.test)},
        tables={party: _described(holding) for party, holding in holdings.items()},
        evaluations={name: found for name, found in evaluations.items() if found is not None},
        history={party: session.metrics.lines for party, session in outcome.sessions.items()},
        ledgers=outcome.ledgers,
        parts={party: result.part for party, result in outcome.results.items() if result.part is not None},
        folder=None if run_folder is None else run_folder.path,
        views=views if keep_views else {},
    )
    if run_folder is not None:
        run_folder.finish(run)
    return run


def infer_roles(method: Method, tables: Mapping[str, PartyTable]) -> dict[str, tuple[str, ...]]:
    """Give the one party with a label the role that holds labels, and all others the role that does not."""
    with_label = tuple(party for party, table in tables.items() if table.has_label)
    holding = [role.name for role in method.roles if role.has_label]
    others = [role.name for role in method.roles if not role.has_label]
    if len(with_label) != 1 or len(holding) != 1 or len(others) > 1:
        raise ConfigError(
            f"{len(with_label)} of {len(tables)} tables have a label, so it is not clear who plays which role of "
            f"{method.name}. Pass roles={{'role': 'party', …}}."
        )
    rest = tuple(party for party in tables if party not in with_label)
    return {holding[0]: with_label, **({others[0]: rest} if rest else {})}


def _plain_roles(
    roles: Mapping[str, str | tuple[str, ...] | list[str]], tables: Mapping[str, PartyTable]
) -> dict[str, tuple[str, ...]]:
    plain = {role: (parties,) if isinstance(parties, str) else tuple(parties) for role, parties in roles.items()}
    named = {party for parties in plain.values() for party in parties}
    if named != set(tables):
        odd = sorted(named ^ set(tables))
        raise ConfigError(f"Roles and tables do not name the same parties; they differ in {', '.join(odd)}.")
    return plain


def _described(holding: Holding) -> dict[str, Any]:
    return holding.table.describe() | {"shared_rows": len(holding.aligned)}


def _play_alone(
    observer: Observer | None, method: Method, plan: RunPlan, config: Any, party: str, holding: Holding
) -> Evaluation | None:
    """Train with one party only; nothing crosses."""
    solo = replace(plan, roles={method.lead: (party,)})
    # Shown as what it is: not the run itself, and not to be taken for its start.
    relabelled = None if observer is None else lambda progress: observer(replace(progress, stage="comparison"))
    played = play_in_threads(method, solo, config, {party: Party(party)}, {party: holding}, observer=relabelled)
    return evaluation_of(played)
