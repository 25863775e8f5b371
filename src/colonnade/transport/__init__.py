"""Move bytes between parties. Knows no method, no message, no run."""

from colonnade.transport.link import Link, Network, Tap
from colonnade.transport.memory import MemoryHub

__all__ = ["Link", "MemoryHub", "Network", "Tap"]
