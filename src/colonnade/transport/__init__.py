"""Move bytes between parties. Knows no method, no message, no run."""

from colonnade.transport.link import BodyDigest, Link, Network, Tap
from colonnade.transport.memory import MemoryHub

__all__ = ["BodyDigest", "Link", "MemoryHub", "Network", "Tap"]
