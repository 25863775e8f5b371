"""Noise that is secret and yet repeats: drawn from a durable key, a purpose and a counter.

A resumed run must not draw fresh noise for what it has sent already: the mean of two releases has half the noise. So
noise is not drawn from the operating system but stretched from a key that is. Who does not know the key cannot tell it
from fresh noise.
"""

from __future__ import annotations

import hashlib
import math
import secrets
from typing import Any

import numpy as np
import torch

from colonnade.errors import ConfigError

__all__ = ["SecretNoise", "new_key"]

Array = np.ndarray[Any, Any]

_KEY_BYTES = 32
_LAYOUT = b"colonnade noise 1"


def new_key() -> bytes:
    """Return a fresh key from the operating system."""
    return secrets.token_bytes(_KEY_BYTES)


class SecretNoise:
    """Noise by purpose and counter: the same for the same two, independent for others.

    A smaller shape gives the beginning of what a larger one gives. The four kinds are independent of one another.
    """

    def __init__(self, key: bytes) -> None:
        """Take a key of at least 32 bytes, which stays here."""
        if len(key) < _KEY_BYTES:
            raise ConfigError(f"A key of noise needs at least {_KEY_BYTES} bytes; this one has {len(key)}.")
        self._key = bytes(key)

    def __repr__(self) -> str:
        return "SecretNoise(…)"

    def words(self, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        """Return whole numbers from 0 to 2**64 - 1, every one as likely: for noise that must not depend on rounding.

        >>> SecretNoise(bytes(32)).words("doctest", 0, (1,)).tolist()
        [17729346248449816074]
        """
        return self._words("words", purpose, counter, shape)

    def uniform(self, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        """Return numbers between 0 and 1, neither of which occurs.

        >>> SecretNoise(bytes(32)).uniform("doctest", 0, (2,)).round(4).tolist()
        [0.2914, 0.058]
        """
        return self._uniform("uniform", purpose, counter, shape)

    def gaussian(self, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        """Return numbers of mean 0 and variance 1; none is beyond 8.3."""
        draws = torch.from_numpy(self._uniform("gaussian", purpose, counter, shape))
        values: Array = torch.special.ndtri(draws).numpy()
        return values

    def laplace(self, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        """Return numbers of the Laplace distribution with scale 1, and so variance 2."""
        draws = self._uniform("laplace", purpose, counter, shape)
        tails: Array = np.log(2.0 * np.minimum(draws, 1.0 - draws))
        return np.where(draws < 0.5, tails, -tails)

    def _uniform(self, kind: str, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        words = self._words(kind, purpose, counter, shape)
        # Odd multiples of 2**-53: exact in float64, symmetric about one half, and never 0 or 1.
        draws: Array = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
        return draws

    def _words(self, kind: str, purpose: str, counter: int, shape: tuple[int, ...]) -> Array:
        stream = hashlib.shake_256()
        # Each part with its length before it: no two different lists of parts give the same bytes.
        for part in (_LAYOUT, self._key, kind.encode(), purpose.encode(), str(counter).encode()):
            stream.update(len(part).to_bytes(8, "little") + part)
        words: Array = np.frombuffer(stream.digest(8 * math.prod(shape)), dtype="<u8")
        return words.reshape(shape)
