"""Training randomness: one seed, derived per purpose and counter, so that a run repeats.

Never used for keys, masks or noise: those come from the operating system.
"""

from __future__ import annotations

import hashlib

__all__ = ["derive_seed"]


def derive_seed(seed: int, purpose: str, counter: int = 0) -> int:
    """Return a seed of 63 bits for one purpose.

    >>> derive_seed(7, "batches", 0) == derive_seed(7, "batches", 0) != derive_seed(7, "batches", 1)
    True
    """
    digest = hashlib.sha256(f"colonnade/{seed}/{purpose}/{counter}".encode()).digest()
    return int.from_bytes(digest[:8], "little") >> 1
