"""One party's part in a run, the same in every launch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from colonnade import alignment
from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.engine import opened
from colonnade.errors import UsageError
from colonnade.launch.baselines import scores_alone
from colonnade.launch.home import label_encoder_of
from colonnade.launch.party_folder import PartyFolder
from colonnade.methods import method_named
from colonnade.metrics import Gain
from colonnade.reports import PartyRun
from colonnade.session import (
    ALIGN,
    Finding,
    Holding,
    Method,
    ModelPart,
    Observer,
    Pair,
    Participant,
    RunPlan,
    Scores,
    Session,
    play,
    taking_part,
)
from colonnade.settings import validated
from colonnade.training import described
from colonnade.transport import Link

__all__ = ["peers_of", "take_part"]

_NOTHING = np.empty(0, np.int64)
_NO_SPLIT = Split(_NOTHING, _NOTHING, _NOTHING)


def take_part(
    party: Participant,
    plan: RunPlan,
    links: Mapping[str, Link],
    *,
    observer: Observer | None = None,
    compare: bool = False,
) -> PartyRun:
    """Play one party's role from handshake to goodbye, and keep its result.

    With ``compare`` the label holder also trains the same model with its own columns only, while the others wait.
    """
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    method = method_named(plan.method)
    config, messages = validated(method.config, plan.config, "config"), alignment.messages_of(method, plan)
    table = PartyTable.nothing(party.name) if party.table is None else party.table
    with opened(party.engine) as engine:
        session = Session(party, method, plan, links, messages=messages, observer=observer, engine=engine)
        with taking_part(session):
            if plan.stage == "predict" and party.refusals:
                # Only now, so that the partners are told, and do not wait.
                raise UsageError(" ".join(party.refusals.values()))
            overlap = alignment.find_overlap(session, table) if plan.stage == ALIGN else None
            if overlap is None:
                holding = _bring(session, party, table)
            else:
                holding = Holding(table, overlap.aligned, _NO_SPLIT)
            hint = holding.aligned.hint
            few = (Finding(name="few_shared", title="Few rows are shared", text=hint),) if hint else ()
            result = play(session, holding, config)
            scored = dict(result.candidates) or ({} if result.scores is None else {result.served: result.scores})
            if compare and not result.candidates:
                alone = scores_alone(session, config, holding, observer)
                scored |= {} if alone is None else {"alone": alone}
            evaluations = {name: one.at(plan.evaluate.threshold).evaluation() for name, one in scored.items()}
            run = PartyRun(
                party=party.name,
                started=started,
                seconds=time.monotonic() - clock,
                alignment=holding.aligned.protocol,
                rows=_rows_of(holding),
                table=(table.describe() if plan.stage == "predict" else described(table))
                | {"shared_rows": len(holding.aligned)},
                ledger=session.ledger.read(),
                history=session.metrics.lines,
                evaluations={name: found for name, found in evaluations.items() if found is not None},
                part=_with_dialect(result.part, table),
                overlap=None if overlap is None else overlap.to_json(),
                label=_label_of(table, plan),
                findings=(*session.findings, *result.findings, *few),
                served=result.served,
                gains=_gains(scored, result.served),
                consent=None if party.folder is None else PartyFolder(party.folder).consent,
                rules=party.policy.rules,
                refusals={} if result.refusal is None else {session.stage: result.refusal},
            )
            if plan.stage == "predict" and result.scores is not None:
                predictions = result.scores.at(plan.evaluate.threshold).as_table(table, holding.aligned.positions)
                run = replace(run, predictions=predictions)
            if result.part is None and party.earlier is not None and _still_keeps(party.earlier, party.part):
                for stage, reason in run.refusals.items():
                    PartyFolder(party.earlier).refuse(stage, reason)
            if party.folder is not None and plan.stage != "predict":
                PartyFolder(party.folder).keep(run)
    # With the goodbyes in it.
    return replace(run, ledger=session.ledger.read())


def _with_dialect(part: ModelPart | None, table: PartyTable) -> ModelPart | None:
    """Return a part that remembers how text in its table was written, so that later rows are read alike."""
    written = {name: getattr(table.dialect, name) for name in ("decimal", "dates")}
    shown = {name: value for name, value in written.items() if value is not None}
    return replace(part, document={**part.document, "written": shown}) if part is not None and shown else part


def _label_of(table: PartyTable, plan: RunPlan) -> dict[str, Any]:
    """Return what the label was taken for, at the party that has it."""
    encoder = label_encoder_of(table, plan)
    if encoder is None:
        return {}
    positive = encoder.classes[1] if encoder.task == "binary" else None
    return {"task": encoder.task, "positive": positive, "sentence": encoder.sentence}


def _gains(scored: Mapping[str, Scores], served: str) -> dict[str, Gain]:
    """Compare what serves with own columns alone; where these serve, what federating would have been."""
    model = "together" if served == "alone" else served
    return scored[model].gains_over(scored["alone"]) if {model, "alone"} <= scored.keys() else {}


def _still_keeps(folder: Path, part: ModelPart | None) -> bool:
    """Tell whether the model that a stage went on from still lies there, and was not replaced meanwhile."""
    if part is None or not PartyFolder(folder).keeps_result:
        return False
    kept = PartyFolder(folder).load().part
    # What was kept has lists where there were tuples.
    return kept is not None and kept.document == json.loads(json.dumps(part.document))


def peers_of(method: Method, plan: RunPlan, party: str) -> tuple[str, ...]:
    """Return the parties that a party has a line to."""
    return tuple(peer for peer in plan.parties if peer != party and method.are_connected(plan, party, peer))


def _bring(session: Session, party: Participant, table: PartyTable) -> Holding:
    """Find the shared rows that a stage needs, and return what this party brings."""
    method, about = session.method, session.method.stage(session.stage)
    if about.rows == "own":
        # Only one role has rows here, and nobody learns which they are.
        places = np.arange(table.rows) if session.role == about.rows_of else _NOTHING
        rows = AlignedRows(places, _NOTHING, "not needed: rows are scored that only one party knows")
        return Holding(table, rows, _NO_SPLIT, part=party.part, module=party.module)
    parties = method.parties_with_rows(session.plan)
    if party.name in parties and alignment.is_matched_by_pair(method, session.plan):
        found = alignment.align_with_each(session, table)
        pairs = {peer: Pair(rows, _split(session, table, rows, peer)) for peer, rows in found.items()}
        shared = np.unique(np.concatenate([pair.aligned.positions for pair in pairs.values()]))
        rest = np.setdiff1d(np.arange(table.rows), shared)
        if len(pairs) == 1:
            ((_, pair),) = pairs.items()
        else:
            first = next(iter(found.values()))
            rows = AlignedRows(shared, rest, first.protocol, first.hint)
            pair = Pair(rows, _NO_SPLIT if session.stage == "predict" else session.plan.split(len(shared)))
        return Holding(table, pair.aligned, pair.split, part=party.part, module=party.module, pairs=pairs)
    aligned = alignment.align(session, table)
    return Holding(table, aligned, _split(session, table, aligned), part=party.part, module=party.module)


def _rows_of(holding: Holding) -> dict[str, int]:
    """Count the shared rows by part; with several partners, over all of them."""
    splits = [pair.split for pair in holding.pairs.values()] or [holding.split]
    return {name: sum(len(getattr(one, name)) for one in splits) for name in ("train", "validation", "test")}


def _split(session: Session, table: PartyTable, rows: AlignedRows, *peers: str) -> Split:
    has_rows = session.party in session.method.parties_with_rows(session.plan)
    if session.stage in ("predict", ALIGN) or not has_rows:
        return _NO_SPLIT
    return alignment.agreed_split(session, table, rows, *peers)
