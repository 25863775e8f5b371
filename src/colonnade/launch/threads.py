"""Play all parties of a stage as threads of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from colonnade.errors import ConfigError, PeerFailed, PeerLost, did_you_mean
from colonnade.launch.take_part import Seat, Taken, peers_of, take_part
from colonnade.session import Method, Observer, RunPlan
from colonnade.transport import MemoryHub, Network, Tap

__all__ = ["View", "fair_share_of_cores", "play_in_threads", "use_cores"]

View = list[tuple[str, bytes]]
"""What one party received: sender and frame, in order."""


def play_in_threads(
    method: Method,
    plan: RunPlan,
    config: Any,
    seats: Mapping[str, Seat],
    *,
    observer: Observer | None = None,
    compare: bool = False,
    views: Mapping[str, View] | None = None,
    transport: str = "memory",
) -> dict[str, Taken]:
    """Play all roles of a stage, each party in its own thread, and raise the first error that was not an echo."""
    tap = None if views is None else lambda sender, receiver, frame: views[receiver].append((sender, frame))
    hub = _network(transport, plan.parties, tap)
    # Before any thread starts: a party must find its peers' lines ready.
    links = {name: {peer: hub.link(name, peer) for peer in peers_of(method, plan, name)} for name in plan.parties}
    taken: dict[str, Taken] = {}
    errors: list[BaseException] = []
    # Not Thread.join: once interrupted, it takes a running thread for a finished one (Python 3.11).
    ended = {name: threading.Event() for name in seats}

    def run_party(name: str) -> None:
        try:
            use_cores(share)
            taken[name] = take_part(seats[name], method, plan, config, links[name], observer=observer, compare=compare)
        except BaseException as error:
            errors.append(error)
        finally:
            hub.leave(name)
            ended[name].set()

    threads = [threading.Thread(target=run_party, args=(name,), name=f"party {name}", daemon=True) for name in seats]
    with fair_share_of_cores(len(threads)) as share:
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
            for name, thread in zip(seats, threads, strict=True):
                if ended[name].is_set():
                    thread.join(timeout=5)
    if errors:
        raise next((error for error in errors if not isinstance(error, PeerFailed | PeerLost)), errors[0])
    # In the agreed order, not in that in which they happened to end.
    return {name: taken[name] for name in seats}


def _network(transport: str, parties: tuple[str, ...], tap: Tap | None) -> Network:
    if transport == "memory":
        return MemoryHub(parties, tap=tap)
    if transport == "grpc":
        from colonnade.transport.grpc import LoopbackNetwork

        return LoopbackNetwork(parties, tap=tap)
    raise ConfigError(f"There is no transport '{transport}'. {did_you_mean(transport, ('memory', 'grpc'))}")


@contextmanager
def fair_share_of_cores(parties: int) -> Iterator[int]:
    """Let each party's arithmetic use its share of the cores; give the share, which every party's thread must ask for.

    torch would give every thread a pool as large as the machine, and the pools would then wait for one another.
    """
    import torch

    before = torch.get_num_threads()
    share = max(1, before // parties)
    use_cores(share)
    try:
        yield share
    finally:
        use_cores(before)


def use_cores(count: int) -> None:
    """Let this thread's arithmetic use so many cores: OpenMP keeps that number by thread, and a new one has all."""
    import torch

    torch.set_num_threads(count)
