"""Parameters drawn from a generator of the caller's, in float64 and then rounded.

So a seed gives the same parameter in either precision, and torch's global generator is left alone.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from colonnade.errors import ConfigError

__all__ = ["drawn_normal", "drawn_uniform", "reseed", "seeded_generator"]

# The state of torch's generator on a processor: the seed, two counters, and these words of the Mersenne twister.
_WORDS, _FIRST = 624, 24
_LARGEST_PUBLIC = 2**64


def seeded_generator(seed: int) -> torch.Generator:
    """Return a generator that draws what follows from a seed; see `reseed`."""
    generator = torch.Generator()
    reseed(generator, seed)
    return generator


def reseed(generator: torch.Generator, seed: int) -> None:
    """Let a generator begin anew with a seed.

    torch takes 32 bits of one, which who wants to know a draw can try out. So a seed of more than 64 bits, as secret
    ones have, fills the whole state of the generator.
    """
    if seed < _LARGEST_PUBLIC:
        generator.manual_seed(seed)
        return
    _check_layout()
    content = b"colonnade generator" + seed.to_bytes(-(-seed.bit_length() // 8), "little")
    words = np.frombuffer(hashlib.shake_256(content).digest(4 * _WORDS), "<u4").astype(np.uint64)
    state = generator.manual_seed(0).get_state()
    state[_FIRST : _FIRST + 8 * _WORDS] = torch.from_numpy(words.view(np.uint8))
    generator.set_state(state)


@functools.cache
def _check_layout() -> None:
    """Refuse a torch whose generators keep their state in another way: seeding one would not hide what it draws."""
    state = torch.Generator().manual_seed(1).get_state().numpy()
    words = state[_FIRST : _FIRST + 16].tobytes()
    # The twister's first words for the seed 1.
    if len(state) != 5056 or words != (1).to_bytes(8, "little") + (1812433254).to_bytes(8, "little"):
        raise ConfigError(
            f"torch {torch.__version__} keeps random states in a way that this version of colonnade does not know, so "
            "that first weights could not be kept secret. Install torch 2.13, or set secret_start = false for research."
        )


def drawn_uniform(shape: Sequence[int], bound: float, generator: torch.Generator, dtype: torch.dtype) -> nn.Parameter:
    """Return a parameter whose numbers lie uniformly between minus the bound and the bound."""
    draw = torch.rand(*shape, generator=generator, dtype=torch.float64)
    return nn.Parameter(((2.0 * draw - 1.0) * bound).to(dtype))


def drawn_normal(shape: Sequence[int], generator: torch.Generator, dtype: torch.dtype) -> nn.Parameter:
    """Return a parameter whose numbers are standard normal."""
    return nn.Parameter(torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype))
