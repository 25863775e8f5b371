"""Move bytes between parties. Knows no method, no message, no run."""

from colonnade.transport.link import Digest, Link, Network, Tap
from colonnade.transport.memory import MemoryHub

__all__ = ["Digest", "Link", "MemoryHub", "Network", "Tap"]
