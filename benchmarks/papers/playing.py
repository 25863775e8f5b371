"""Play a method's role functions with rows that an experiment has prepared.

The product divides shared rows by fractions; an experiment's rows are given. Everything else is the product's own:
sessions, channels, messages and ledgers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from colonnade.errors import PeerFailed, PeerLost
from colonnade.methods import method_named
from colonnade.session import Holding, Participant, Result, RunPlan, Session, play, taking_part
from colonnade.transport import MemoryHub


def play_parties(
    plan: RunPlan,
    config: Any,
    holding_of: Callable[[str], Holding],
    lines: dict[str, list[dict[str, Any]]] | None = None,
) -> dict[str, Result]:
    """Play one stage between threads and return every party's result; ``lines`` takes what they record on the way."""
    method = method_named(plan.method)
    hub = MemoryHub(plan.parties)
    found: dict[str, Result] = {}
    errors: list[BaseException] = []

    def run(party: str) -> None:
        peers = [peer for peer in plan.parties if peer != party and method.are_connected(plan, party, peer)]
        session = Session(Participant(party), method, plan, {peer: hub.link(party, peer) for peer in peers})
        try:
            holding = holding_of(party)
            with taking_part(session):
                found[party] = play(session, holding, config)
            if lines is not None:
                lines[party] = session.metrics.lines
        except BaseException as error:
            errors.append(error)
        finally:
            hub.leave(party)

    threads = [threading.Thread(target=run, args=(party,)) for party in plan.parties]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise next((one for one in errors if not isinstance(one, PeerFailed | PeerLost)), errors[0])
    return found
