"""python-paillier as the benchmarks use it: one ciphertext per value, its sums and products one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from importlib.metadata import version
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt
import phe

__all__ = ["PhePeer"]

Numbers = npt.NDArray[np.float64]


class PhePeer:
    """A key of python-paillier, and the precision its numbers are encoded with; None is its own default."""

    def __init__(self, keys: tuple[Any, Any], precision: float | None) -> None:
        self._public, self._private = keys
        self._precision = precision

    @staticmethod
    def version() -> str:
        """Return which python-paillier this is, and what it computes with."""
        return f"{version('phe')}, {'with' if phe.util.HAVE_GMP else 'without'} gmpy2"

    @staticmethod
    def generate_keys(bits: int) -> tuple[Any, Any]:
        """Draw a key."""
        keys: tuple[Any, Any] = phe.generate_paillier_keypair(n_length=bits)
        return keys

    def encode(self, values: Numbers) -> list[Any]:
        """Encode plain numbers to multiply with."""
        return [phe.EncodedNumber.encode(self._public, one, precision=self._precision) for one in values.tolist()]

    def encrypt(self, values: Numbers) -> list[Any]:
        """Encrypt values."""
        return [self._public.encrypt(one, precision=self._precision) for one in values.tolist()]

    def decrypt(self, ciphertexts: Sequence[Any]) -> list[float]:
        """Decrypt values."""
        return [self._private.decrypt(one) for one in ciphertexts]

    @staticmethod
    def inner_product(ciphertexts: Sequence[Any], plain: Sequence[Any]) -> Any:
        """Return the encrypted sum of products."""
        return reduce(add, (one * other for one, other in zip(ciphertexts, plain, strict=True)))
