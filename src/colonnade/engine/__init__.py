"""Where heavy local work of one party runs: in its own process, in a pool of processes, or on Ray.

Everything here stays inside one party. Work is a named pure function over chunks of bytes, so every engine gives the
same bytes, and no engine needs to ship code or objects.
"""

from colonnade.engine.engine import Engine, Work
from colonnade.engine.inline import INLINE
from colonnade.engine.opening import EngineSettings, open_engine, opened, usable_cores

__all__ = ["INLINE", "Engine", "EngineSettings", "Work", "open_engine", "opened", "usable_cores"]
