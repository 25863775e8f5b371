"""A toy method and a way to play its parties as threads, honest or not."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from colonnade.data import AlignedRows, Split
from colonnade.messages import MASKED, PLAIN, Dims, message
from colonnade.session import (
    Holding,
    Method,
    Participant,
    Policy,
    Result,
    Role,
    RunPlan,
    Session,
    Stage,
    play,
    taking_part,
)
from colonnade.transport import MemoryHub


@message(sender="lead", receiver="helper", protection=PLAIN, step="ask")
class Ask:
    """A question. Reveals: it."""

    values: Annotated[np.ndarray, Dims(2)]


@message(sender="helper", receiver="lead", protection=MASKED, step="answer")
class Answer:
    """An answer. Reveals: it."""

    values: Annotated[np.ndarray, Dims(2)]


ROUNDS = 3


def lead(session: Session, holding: Holding, config: Any) -> Result:
    for _ in range(ROUNDS):
        session.next_step()
        for peer in session.channels("helper"):
            peer.send(Ask(np.full(2, session.step, float)))
        for peer in session.channels("helper"):
            peer.receive(Answer)
    return Result()


def helper(session: Session, holding: Holding, config: Any) -> Result:
    peer = session.channel("lead")
    for _ in range(ROUNDS):
        session.next_step()
        asked = peer.receive(Ask)
        peer.send(Answer(asked.values + 1))
    return Result()


RoleCode = Callable[[Session, Holding, Any], Any]


def method(
    lead_code: RoleCode = lead, helper_code: RoleCode = helper, messages: tuple[type, ...] = (Ask, Answer)
) -> Method:
    return Method(
        name="toy",
        title="Toy",
        citation="nobody",
        situation="tests",
        config=dict,
        roles=(Role("lead", "questions", has_label=True), Role("helper", "answers", at_most=None)),
        lead="lead",
        stages={
            "train": Stage(roles={"lead": lead_code, "helper": helper_code}, messages=messages),
            "other": Stage(roles={"lead": lead, "helper": helper}, messages=messages),
        },
    )


def plan(parties: Iterable[str] = ("bank", "shop"), **changes: Any) -> RunPlan:
    first, *others = parties
    given = {"name": "run", "method": "toy", "roles": {"lead": (first,), "helper": tuple(others)}, "seed": 1}
    return RunPlan(**{**given, **changes})


def holding(rows: int = 100) -> Holding:
    nothing = np.empty(0, np.int64)
    return Holding(None, AlignedRows(np.arange(rows), nothing, "none"), Split(np.arange(rows), nothing, nothing))  # type: ignore[arg-type]


@dataclass
class Play:
    """All parties of one toy run; what differs from the honest default is given by party."""

    parties: tuple[str, ...] = ("bank", "shop")
    plans: Mapping[str, RunPlan] = field(default_factory=dict)
    methods: Mapping[str, Method] = field(default_factory=dict)
    policies: Mapping[str, Policy] = field(default_factory=dict)
    code: Mapping[str, Callable[[Session], Any]] = field(default_factory=dict)
    """What a party does in place of playing its role."""
    prepare: Callable[[Session], Holding] | None = None
    """What finds the shared rows, in place of a holding that is there already."""
    keep: Callable[[Session, Holding, Result], None] | None = None
    """What is done with the result before the goodbye."""
    messages: tuple[type, ...] = ()
    """Declared beside the method's own."""
    folder: Path | None = None
    rows: int = 100
    earlier_runs: int = 0
    silence_seconds: float = 20.0
    seconds: float = 15.0

    def run(self) -> dict[str, Any]:
        """Return each party's result or error; fail if anyone hangs."""
        hub = MemoryHub(self.parties, silence_seconds=self.silence_seconds)
        self.frames: list[tuple[str, str, bytes]] = []
        hub.tap = lambda *seen: self.frames.append(seen)
        self.sessions = {}
        for name in self.parties:
            own_plan, own_method = self.plans.get(name, plan(self.parties)), self.methods.get(name, method())
            links = {
                peer: hub.link(name, peer) for peer in self.parties if peer != name and self.parties[0] in (name, peer)
            }
            party = Participant(
                name,
                self.policies.get(name, Policy()),
                self.folder / name if self.folder else None,
                self.earlier_runs,
            )
            self.sessions[name] = Session(party, own_method, own_plan, links, messages=self.messages)
        outcomes: dict[str, Any] = {}

        def run_party(name: str) -> None:
            session = self.sessions[name]
            try:
                if name in self.code:
                    outcomes[name] = self.code[name](session)
                else:
                    outcomes[name] = self._play(session)
            except BaseException as error:
                outcomes[name] = error
            finally:
                hub.leave(name)

        threads = [threading.Thread(target=run_party, args=(name,), daemon=True) for name in self.parties]
        for thread in threads:
            thread.start()
        limit = time.monotonic() + self.seconds
        for thread in threads:
            thread.join(max(0.0, limit - time.monotonic()))
        assert not any(thread.is_alive() for thread in threads), "a party hangs"
        return outcomes

    def _play(self, session: Session) -> Result:
        with taking_part(session):
            given = holding(self.rows) if self.prepare is None else self.prepare(session)
            result = play(session, given, None)
            if self.keep is not None:
                self.keep(session, given, result)
        return result


def play_honestly(session: Session, given: Holding | None = None, config: Any = None) -> Result:
    """Play a role from greeting to goodbye."""
    with taking_part(session):
        return play(session, given or holding(), config)
