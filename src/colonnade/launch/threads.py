"""Play all parties of a stage as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from colonnade.errors import ConfigError, PeerFailed, PeerLost, RoleFailed, did_you_mean
from colonnade.ledger import Ledger
from colonnade.metrics import Evaluation
from colonnade.metrics import evaluate as evaluate_scores
from colonnade.session import Holding, Method, Observer, Party, Result, RunPlan, Scores, Session, play
from colonnade.transport import MemoryHub, Network, Tap

__all__ = ["Outcome", "View", "evaluation_of", "play_in_threads"]

View = list[tuple[str, bytes]]
"""What one party received: sender and frame, in order."""


class Outcome:
    """What all parties ended with."""

    def __init__(self, sessions: dict[str, Session], results: dict[str, Result], ledgers: dict[str, Ledger]) -> None:
        self.sessions, self.results, self.ledgers = sessions, results, ledgers

    @property
    def scores(self) -> Scores | None:
        """Return the scores of the one party that has any."""
        return next((result.scores for result in self.results.values() if result.scores is not None), None)


def evaluation_of(outcome: Outcome) -> Evaluation | None:
    """Judge the held-out scores, where there are any."""
    scores = outcome.scores
    if scores is None or scores.truth is None or not len(scores.truth):
        return None
    return evaluate_scores(scores.task, scores.truth, scores.values, scores.classes)


def play_in_threads(
    method: Method,
    plan: RunPlan,
    config: Any,
    parties: Mapping[str, Party],
    holdings: Mapping[str, Holding],
    *,
    observer: Observer | None = None,
    views: Mapping[str, View] | None = None,
    transport: str = "memory",
) -> Outcome:
    """Play all roles of a stage, each party in its own thread, and raise the first error that was not an echo."""
    tap = None if views is None else lambda sender, receiver, frame: views[receiver].append((sender, frame))
    hub = _network(transport, plan.parties, tap)
    sessions = {
        name: Session(
            party,
            method,
            plan,
            {
                peer: hub.link(name, peer)
                for peer in plan.parties
                if peer != name and method.are_connected(plan.role_of(name), plan.role_of(peer))
            },
            observer=observer,
        )
        for name, party in parties.items()
    }
    results: dict[str, Result] = {}
    errors: list[BaseException] = []
    # Not Thread.join: once interrupted, it takes a running thread for a finished one (Python 3.11).
    ended = {name: threading.Event() for name in sessions}

    def run_party(name: str) -> None:
        try:
            results[name] = play(sessions[name], holdings[name], config)
        except BaseException as error:
            errors.append(error)
        finally:
            hub.leave(name)
            ended[name].set()

    threads = [threading.Thread(target=run_party, args=(name,), name=f"party {name}", daemon=True) for name in sessions]
    with _fair_share_of_cores(len(threads)):
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
            for name, thread in zip(sessions, threads, strict=True):
                if ended[name].is_set():
                    thread.join(timeout=5)
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerFailed | PeerLost)), errors[0])
    if len(results) < len(sessions):
        raise RoleFailed("A party's thread ended without a result.")
    return Outcome(sessions, results, {name: session.ledger.read() for name, session in sessions.items()})


def _network(transport: str, parties: tuple[str, ...], tap: Tap | None) -> Network:
    if transport == "memory":
        return MemoryHub(parties, tap=tap)
    if transport == "grpc":
        from colonnade.transport.grpc import LoopbackNetwork

        return LoopbackNetwork(parties, tap=tap)
    raise ConfigError(f"There is no transport '{transport}'. {did_you_mean(transport, ('memory', 'grpc'))}")


@contextmanager
def _fair_share_of_cores(parties: int) -> Iterator[None]:
    """Let each party's arithmetic use its share of the cores.

    torch would give every thread a pool as large as the machine, and the pools would then wait for one another.
    """
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // parties))
    try:
        yield
    finally:
        torch.set_num_threads(before)
