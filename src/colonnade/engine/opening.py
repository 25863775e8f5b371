"""Choose and open an engine."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from colonnade.engine.engine import Engine
from colonnade.engine.inline import InlineEngine
from colonnade.errors import ConfigError, did_you_mean
from colonnade.settings import described

__all__ = ["EngineSettings", "open_engine", "opened", "usable_cores"]

_KINDS = ("auto", "inline", "pool", "ray")


@described
@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """Which engine a party uses: the ``[engine]`` table of ``party.toml``."""

    kind: Literal["auto", "inline", "pool", "ray"] = "auto"
    """Where heavy work runs. `auto` is `pool` where there are two cores or more, else `inline`."""
    workers: int | None = None
    """How many processes share it; by default as many as there are cores."""
    address: str | None = None
    """For `ray`: a cluster this party has, such as `HOST:6379`. Without it, Ray is started here."""

    def __post_init__(self) -> None:
        _check(self.kind, self.workers, self.address)

    def open(self) -> Engine:
        """Open the engine."""
        return open_engine(self.kind, self.workers, self.address)

    def open_apart(self) -> Engine:
        """Open an engine for one of several parties in this process: all its work is done in others."""
        from colonnade.engine.pool import OwnProcesses

        workers = self.workers or (1 if self.kind == "inline" else usable_cores())
        return self.open() if self.kind == "ray" else OwnProcesses(workers)

    def shared_by(self, parties: int) -> EngineSettings:
        """Return the settings for one of several parties on this machine: its share of the cores, if it names none."""
        if self.workers is not None or self.address is not None or self.kind == "inline":
            return self
        return replace(self, workers=max(1, usable_cores() // parties))


def open_engine(kind: str = "inline", workers: int | None = None, address: str | None = None) -> Engine:
    """Open an engine; close it, or use it as a context manager.

    ``inline`` works in the calling thread, ``pool`` in processes of this machine, ``ray`` on Ray. ``auto`` is a pool
    where there are two cores or more; a pool costs nothing until there is work that pays off. ``workers`` is by default
    the number of cores, or of all cores of the Ray cluster at ``address``.
    """
    _check(kind, workers, address)
    count = workers or usable_cores()
    if kind == "inline" or (kind == "auto" and count == 1):
        return InlineEngine()
    if kind == "ray":
        from colonnade.engine.cluster import RayEngine

        return RayEngine(workers, address)
    # Not above: workers of a pool need none of it and must start fast.
    from colonnade.engine.pool import PoolEngine

    return PoolEngine(count)


def opened(engine: Engine | EngineSettings | str) -> AbstractContextManager[Engine]:
    """Open an engine for a block; one that is open already stays so, as others use it too."""
    if isinstance(engine, str):
        return open_engine(engine)
    return engine.open() if isinstance(engine, EngineSettings) else nullcontext(engine)


def _check(kind: str, workers: int | None, address: str | None) -> None:
    if kind not in _KINDS:
        raise ConfigError(f"There is no engine '{kind}'. {did_you_mean(str(kind), _KINDS)}")
    if workers is not None and (isinstance(workers, bool) or not isinstance(workers, int) or workers < 1):
        raise ConfigError(f"engine.workers must be a whole number of 1 or more. Got {workers} instead.")
    if kind == "inline" and workers not in (None, 1):
        raise ConfigError("The engine 'inline' has no workers. Leave workers out, or choose kind = \"pool\".")
    if address is not None and kind != "ray":
        raise ConfigError(f"The engine '{kind}' has no address. Leave it out, or choose kind = \"ray\".")


def usable_cores() -> int:
    """Return how many cores this process may use; only Linux tells which it may not."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
