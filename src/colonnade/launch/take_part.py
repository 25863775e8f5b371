"""One party's part in a run, the same in every launch."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade import alignment
from colonnade.data import AlignedRows, PartyTable, Split
from colonnade.engine import INLINE, Engine, EngineSettings, opened
from colonnade.errors import UsageError
from colonnade.launch.baselines import agreed_split, evaluation_of, judge_alone
from colonnade.launch.party_folder import PartyEnd, PartyFolder, PartyRecord, overlap_to_json
from colonnade.session import (
    ALIGN,
    Holding,
    Method,
    ModelPart,
    Observer,
    Pair,
    Participant,
    Policy,
    Result,
    RunPlan,
    Scores,
    Session,
    play,
)
from colonnade.transport import Link

if TYPE_CHECKING:
    from torch import nn

__all__ = ["Seat", "Taken", "alignment_messages", "peers_of", "take_part"]

_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True)
class Seat:
    """What one party brings to a run, what it allows, and where it keeps things."""

    name: str
    table: PartyTable
    """One without rows and columns, where the party's role has none."""
    policy: Policy = Policy()  # noqa: RUF009 - frozen
    folder: PartyFolder | None = None
    earlier_runs: int = 0
    module: nn.Module | None = None
    part: ModelPart | None = None
    earlier: PartyFolder | None = None
    """Where that part is kept, if a stage goes on from it."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Why it must not score rows, by the stage that found it."""
    engine: Engine | EngineSettings = INLINE
    """An engine that others use too, or the settings of one that is opened for this party and closed in the end."""
    alignments: Path | None = None
    """Where results of alignments are kept across runs; by default in the run folder."""
    history: Path | None = None
    """The file that says which alignments were begun."""
    queries: Path | None = None
    """The file that says how many rows were scored for whom."""
    contributions: Path | None = None
    """The file that says how many numbers about which rows were opened to whom."""


@dataclass(frozen=True)
class Taken:
    """What a party has after it took part."""

    end: PartyEnd
    scores: Scores | None
    holding: Holding


def take_part(
    seat: Seat,
    method: Method,
    plan: RunPlan,
    config: Any,
    links: Mapping[str, Link],
    *,
    observer: Observer | None = None,
    compare: bool = False,
) -> Taken:
    """Play one party's role from handshake to goodbye, and keep its result.

    With ``compare`` the label holder also trains the same model with its own columns only, while the others wait.
    """
    started, clock = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    path = None if seat.folder is None else seat.folder.path
    party = Participant(
        seat.name,
        seat.policy,
        path,
        seat.earlier_runs,
        seat.alignments,
        seat.history,
        seat.queries,
        seat.contributions,
    )
    found: list[alignment.Overlap] = []
    kept: list[tuple[PartyRecord, Scores | None, Holding]] = []

    def prepare(session: Session) -> Holding:
        if session.stage == ALIGN:
            found.append(alignment.find_overlap(session, seat.table))
            return Holding(seat.table, found[0].aligned, _split(session, 0))
        if session.stage == "predict" and seat.refusals:
            # Only now, so that the partners are told, and do not wait.
            raise UsageError(" ".join(seat.refusals.values()))
        return _bring(session, seat)

    def keep(session: Session, holding: Holding, result: Result) -> None:
        evaluations = {"together": evaluation_of(result.scores)}
        if compare:
            evaluations["alone"] = judge_alone(session, config, holding, observer)
        record = PartyRecord(
            party=seat.name,
            started=started,
            seconds=time.monotonic() - clock,
            alignment=holding.aligned.protocol,
            rows=_rows_of(holding),
            table=seat.table.describe() | {"shared_rows": len(holding.aligned)},
            evaluations={name: found for name, found in evaluations.items() if found is not None},
            part=result.part,
            overlap=overlap_to_json(found[0]) if found else None,
            findings=result.findings,
            refusals={} if result.refusal is None else {session.stage: result.refusal},
        )
        if result.part is None and seat.earlier is not None and _still_keeps(seat.earlier, seat.part):
            for stage, reason in record.refusals.items():
                seat.earlier.refuse(stage, reason)
        if seat.folder is not None and session.stage != "predict":
            seat.folder.keep(record)
        kept.append((record, result.scores, holding))

    with opened(seat.engine) as engine:
        session = Session(
            party, method, plan, links, messages=alignment_messages(method, plan), observer=observer, engine=engine
        )
        play(session, prepare, config, keep)
    ((record, scores, holding),) = kept
    return Taken(PartyEnd(record, session.ledger.read(), session.metrics.lines), scores, holding)


def _still_keeps(folder: PartyFolder, part: ModelPart | None) -> bool:
    """Tell whether the model that a stage went on from still lies there, and was not replaced meanwhile."""
    if part is None or not folder.keeps_result:
        return False
    kept = folder.load().record.part
    # What was kept has lists where there were tuples.
    return kept is not None and kept.document == json.loads(json.dumps(part.document))


def peers_of(method: Method, plan: RunPlan, party: str) -> tuple[str, ...]:
    """Return the parties that a party has a line to."""
    return tuple(peer for peer in plan.parties if peer != party and method.are_connected(plan, party, peer))


def alignment_messages(method: Method, plan: RunPlan) -> tuple[type, ...]:
    """Return what may cross to find shared rows: nothing where rows are scored that only one party knows."""
    return () if method.stage(plan.stage).rows == "own" else alignment.MESSAGES


def _bring(session: Session, seat: Seat) -> Holding:
    """Find the shared rows that a stage needs, and return what this party brings."""
    table, method = seat.table, session.method
    about = method.stage(session.stage)
    if about.rows == "own":
        # Only one role has rows here, and nobody learns which they are.
        places = np.arange(table.rows) if session.role == about.rows_of else _NOTHING
        rows = AlignedRows(places, _NOTHING, "not needed: rows are scored that only one party knows")
        return Holding(table, rows, _split(session, 0), part=seat.part, module=seat.module)
    parties = method.parties_with_rows(session.plan)
    is_paired = about.rows == "pairwise" and seat.name in parties and len(parties) > 2
    if is_paired and session.plan.alignment.protocol != "given":
        found = alignment.align_with_each(session, table)
        pairs = {peer: Pair(rows, _split(session, len(rows))) for peer, rows in found.items()}
        shared = np.unique(np.concatenate([pair.aligned.positions for pair in pairs.values()]))
        rest = np.setdiff1d(np.arange(table.rows), shared)
        if len(pairs) == 1:
            ((_, pair),) = pairs.items()
        else:
            rows = AlignedRows(shared, rest, next(iter(found.values())).protocol)
            pair = Pair(rows, _split(session, len(shared)))
        return Holding(table, pair.aligned, pair.split, part=seat.part, module=seat.module, pairs=pairs)
    aligned = alignment.align(session, table)
    return Holding(table, aligned, _split(session, len(aligned)), part=seat.part, module=seat.module)


def _rows_of(holding: Holding) -> dict[str, int]:
    """Count the shared rows by part; with several partners, over all of them."""
    splits = [pair.split for pair in holding.pairs.values()] or [holding.split]
    return {name: sum(len(getattr(one, name)) for one in splits) for name in ("train", "validation", "test")}


def _split(session: Session, count: int) -> Split:
    has_rows = session.party in session.method.parties_with_rows(session.plan)
    if session.stage in ("predict", ALIGN) or not has_rows:
        return Split(_NOTHING, _NOTHING, _NOTHING)
    return agreed_split(session.plan, count)
