"""Parties that only align, as threads, with everything that crossed; and an obvious version of what they must find."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unicodedata import normalize

import numpy as np
import pandas as pd
from tests.references import order_key
from tests.unit.session import toys

from colonnade.alignment import MESSAGES, align
from colonnade.data import PartyTable
from colonnade.messages import HEADER_BYTES, declaration_of, decode_body, open_frame
from colonnade.session import Alignment, Method, Participant, Policy, Role, RunPlan, Session, derive_seed
from colonnade.session.handshake import greet
from colonnade.transport import MemoryHub

PARTIES = ("bank", "shop", "telco")
SEED = 1
ANYTHING: dict[str, Any] = {"ids": None, "held": (), "answered": 2**32, "own_rows": 2**32}
"""What scripted parties take: honest ones say with every message what its rules go by."""
_KNOWN = {declaration_of(cls).schema: declaration_of(cls) for cls in MESSAGES}

Step = Callable[[Session, PartyTable], Any]


def table(ids: list[Any], name: str = "table") -> PartyTable:
    return PartyTable(pd.DataFrame({"id": pd.Series(ids, dtype=object), "x": 1.0}), id="id", name=name)


def tables_of(*lists: list[Any]) -> dict[str, PartyTable]:
    return {party: table(ids, party) for party, ids in zip(PARTIES, lists, strict=False)}


@dataclass
class Intersected:
    """How an alignment ended at each party, and all of its messages."""

    outcomes: dict[str, Any]
    sessions: dict[str, Session]
    frames: list[tuple[str, str, bytes]]

    def rows(self) -> dict[str, list[int]]:
        """Return the shared rows that each party found."""
        for outcome in self.outcomes.values():
            if isinstance(outcome, BaseException):
                raise outcome
        return {party: outcome.positions.tolist() for party, outcome in self.outcomes.items()}

    def crossed(self, kind: type | None = None, sender: str | None = None, receiver: str | None = None) -> list[Any]:
        """Return the messages of alignment, of one kind and between two parties if these are given."""
        found = []
        for origin, target, frame in self.frames:
            header, body = open_frame(frame)
            declared = _KNOWN.get(header.schema)
            if declared is not None and sender in (None, origin) and receiver in (None, target):
                content = decode_body(declared, body)
                found += [content] if kind is None or isinstance(content, kind) else []
        return found

    def seen_by(self, party: str) -> bytes:
        """Return every byte that a party received, without frames' headers."""
        return b"".join(frame[HEADER_BYTES:] for _, target, frame in self.frames if target == party)

    def points(self, sender: str, receiver: str) -> list[bytes]:
        """Return the blinded ids that one party sent to another, in their order."""
        from colonnade.alignment.messages import BlindedIds

        pieces = [message.points for message in self.crossed(BlindedIds, sender, receiver)]
        return [row.tobytes() for piece in pieces for row in piece]

    def marks(self, sender: str, receiver: str) -> list[bytes]:
        """Return the marks of ids that one party sent to another, in their order."""
        from colonnade.alignment.messages import IdMarks

        return [row.tobytes() for message in self.crossed(IdMarks, sender, receiver) for row in message.marks]


def intersect(
    tables: Mapping[str, PartyTable],
    *,
    rule: Alignment | None = None,
    seed: int = SEED,
    step: Step | Mapping[str, Step] = align,
    folder: Path | None = None,
    name: str = "run",
    engine: Any = None,
    policies: Mapping[str, Policy] | None = None,
    without_rows: tuple[str, ...] = (),
    seconds: float = 30.0,
) -> Intersected:
    """Let the parties greet and take a step; the first of them leads, and those without rows have a role of theirs."""
    tables = {**tables, **{party: PartyTable.nothing(party) for party in without_rows}}
    parties = tuple(tables)
    hub = MemoryHub(parties, silence_seconds=seconds)
    frames: list[tuple[str, str, bytes]] = []
    hub.tap = lambda *seen: frames.append(seen)
    plan = toys.plan(parties, seed=seed, name=name, alignment=rule or Alignment())
    method = toys.method()
    if without_rows:
        plan, method = _with_collaborators(plan, method, without_rows)
    sessions = {
        party: Session(
            Participant(
                party, (policies or {}).get(party, Policy()), alignments=None if folder is None else folder / party
            ),
            method,
            plan,
            {peer: hub.link(party, peer) for peer in parties if peer != party and parties[0] in (party, peer)},
            messages=MESSAGES,
            **({} if engine is None else {"engine": engine}),
        )
        for party in parties
    }
    for session in sessions.values():
        for channel in session.all_channels:
            channel.dims |= ANYTHING
    outcomes: dict[str, Any] = {}

    def run(party: str) -> None:
        try:
            greet(sessions[party])
            own = step if callable(step) else step.get(party, align)
            outcomes[party] = own(sessions[party], tables[party])
        except BaseException as error:
            outcomes[party] = error
        finally:
            hub.leave(party)

    threads = [threading.Thread(target=run, args=(party,), daemon=True) for party in parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    assert not any(thread.is_alive() for thread in threads), "a party hangs"
    return Intersected(outcomes, sessions, frames)


def _with_collaborators(plan: RunPlan, method: Method, parties: tuple[str, ...]) -> tuple[RunPlan, Method]:
    helpers = tuple(party for party in plan.roles["helper"] if party not in parties)
    role = Role("collaborator", "nothing", at_most=None, has_rows=False)
    stages = {
        name: replace(stage, roles={**stage.roles, role.name: toys.helper}) for name, stage in method.stages.items()
    }
    return (
        replace(plan, roles={"lead": plan.roles["lead"], "helper": helpers, role.name: parties}),
        replace(method, roles=(*method.roles, role), stages=stages),
    )


def plain(identifier: Any, rule: Alignment) -> Any:
    """Return what two ids are compared by, in the plainest words."""
    if identifier is None:
        return None
    if isinstance(identifier, tuple):
        return tuple(plain(part, rule) for part in identifier)
    if isinstance(identifier, str):
        text = identifier.strip() if rule.trim else identifier
        if rule.type == "number" and re.fullmatch(r"[+-]?\d+", text):
            return int(text)
        if rule.case == "fold":
            text = normalize("NFD", text).casefold()
        return normalize("NFC", text)
    return str(identifier) if rule.type == "text" else identifier


def expected_rows(tables: Mapping[str, PartyTable], rule: Alignment | None = None, seed: int = SEED) -> dict:
    """Return each party's shared rows: plain set intersection, in the order of the lead's ids."""
    rule = rule or Alignment()
    lead, *others = tables
    own = tables[lead]
    places = {
        party: {plain(one, rule): row for row, one in enumerate(tables[party].ids_for(lead)) if one is not None}
        for party in others
    }
    keys = {party: [plain(one, rule) for one in own.ids_for(party)] for party in others}
    shared = [row for row in range(own.rows) if all(keys[party][row] in places[party] for party in others)]
    shared.sort(key=lambda row: order_key(plain(own.ids[row], rule), derive_seed(seed, "alignment")))
    return {lead: shared} | {party: [places[party][keys[party][row]] for row in shared] for party in others}


def rest_of(rows: int, shared: list[int]) -> list[int]:
    return sorted(set(range(rows)) - set(shared))


def shuffled(one: PartyTable, seed: int) -> PartyTable:
    return one.take(np.random.default_rng(seed).permutation(one.rows))
