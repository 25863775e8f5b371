"""Move bytes between parties. Knows no method, no message, no run."""

from colonnade.transport.link import Link
from colonnade.transport.memory import MemoryHub

__all__ = ["Link", "MemoryHub"]
