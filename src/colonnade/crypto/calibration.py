"""What encrypted arithmetic costs on this machine, measured in a few seconds.

Not in `costs`: keys themselves ask there how long a multiplication takes, and here keys are used.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass

import gmpy2
import numpy as np

from colonnade.crypto.fixed_point import FixedPoint, Format
from colonnade.crypto.layout import Layout
from colonnade.crypto.paillier import PrivateKey, PublicKey, key_bits
from colonnade.crypto.products import cost_of

__all__ = ["CryptoCosts", "measure_costs"]

# Everything is measured in every round: on a shared machine the speed changes from second to second, and a run takes
# the mean of fast and slow, not the fastest.
_ROUNDS = 5
_ENCRYPTIONS, _DECRYPTIONS, _CHECKS, _CANDIDATES = 24, 8, 64, 24
_VALUES = (128, 8)
_PRODUCT = (32, 1, 64)
"""Bases, results and bits of the exponents in the product that is measured."""

# Two primes are drawn anew until their predecessors share no factor but 2: with probability 0.66, the product of
# 1 - 1 / (l - 1)**2 over all odd primes l.
_GOOD_PAIRS = 0.66


@dataclass(frozen=True, kw_only=True)
class CryptoCosts:
    """Seconds on one core, by the clock on the wall."""

    key_bits: int
    key_generation: float
    """On average; a single key may take a third of it or three times as long."""
    owner_tables: float
    """What the first encryption under one's own key takes beyond the next ones."""
    owner_encryption: float
    tables: float
    """The same under somebody else's key."""
    encryption: float
    decryption: float
    check: float
    """Seeing that one received ciphertext lies in the key's group."""
    multiplication: float
    """One multiplication modulo the square of the modulus, within a product of powers."""
    packing: float
    """Putting one value into its place in a plaintext, or taking it out."""
    term: float
    """One multiplication and addition of plain integers of any size."""

    def product(self, bases: int, results: int, bits: int) -> float:
        """Return the seconds for products of powers of so many bases with exponents of so many bits."""
        return cost_of(bases, results, bits) * self.multiplication


def measure_costs(size: str, *, rounds: int = _ROUNDS) -> CryptoCosts:
    """Measure with a key of a named size: about 4 seconds at 2048 bits, 10 at 3072."""
    key = PrivateKey.generate(size)
    public = key.public
    first = {
        "owner": _seconds(lambda: key.encrypt_integers([1])),
        "other": _seconds(lambda: public.encrypt_integers([1])),
    }
    tasks = _tasks(key, public)
    found: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, (task, count) in tasks.items():
            found[name].append(_seconds(task) / count)
    mean = {name: sum(times) / len(times) for name, times in found.items()}
    return CryptoCosts(
        key_bits=key.bits,
        key_generation=_key_generation(key_bits(size), mean["candidate"], mean["prime"]),
        owner_tables=max(0.0, first["owner"] - mean["owner_encryption"]),
        owner_encryption=mean["owner_encryption"],
        tables=max(0.0, first["other"] - mean["encryption"]),
        encryption=mean["encryption"],
        decryption=mean["decryption"],
        check=mean["check"],
        multiplication=mean["product"],
        packing=mean["packing"],
        term=mean["term"],
    )


def _tasks(key: PrivateKey, public: PublicKey) -> dict[str, tuple[Callable[[], object], float]]:
    """Return what is measured, and how often each task does it."""
    plains = [secrets.randbelow(int(key.n)) for _ in range(_CHECKS)]
    ciphertexts = public.encrypt_integers(plains)
    half = key.bits // 2
    candidates = [secrets.randbits(half) | (3 << (half - 2)) | 3 for _ in range(_CANDIDATES)]
    prime = gmpy2.next_prime(candidates[0])
    bases, results, bits = _PRODUCT
    exponents = [[secrets.randbits(bits) - (1 << (bits - 1)) for _ in range(bases)] for _ in range(results)]
    values = FixedPoint.encode(np.random.default_rng(0).normal(size=_VALUES), Format(20, 6))
    layout = Layout.plan(_VALUES, 0, modulus_bits=key.bits, fraction_bits=20, bound=values.bound, room=1 << 60)
    wide = np.array([[secrets.randbits(92)] for _ in range(_VALUES[1])], dtype=object)
    return {
        "owner_encryption": (lambda: key.encrypt_integers(plains[:_ENCRYPTIONS]), _ENCRYPTIONS),
        "encryption": (lambda: public.encrypt_integers(plains[:_ENCRYPTIONS]), _ENCRYPTIONS),
        "decryption": (lambda: key.decrypt_integers(ciphertexts[:_DECRYPTIONS]), _DECRYPTIONS),
        "check": (lambda: public.check_ciphertexts(ciphertexts), _CHECKS),
        "product": (
            lambda: public.products(ciphertexts[:bases], bases, exponents),
            cost_of(bases, results, bits),
        ),
        "candidate": (lambda: [gmpy2.is_prime(one, 40) for one in candidates], _CANDIDATES),
        "prime": (lambda: gmpy2.is_prime(prime, 40), 1.0),
        "packing": (lambda: layout.pack(values), values.integers.size),
        "term": (lambda: values.integers.astype(object) @ wide, values.integers.size),
    }


def _key_generation(bits: int, candidate: float, prime: float) -> float:
    """Return the mean over all keys: what a single one took says little."""
    # One number in ln(2**half) is a prime, and only every fourth is tried: two in four could be one.
    tried = bits // 2 * math.log(2) / 2
    return 2 * (tried * candidate + prime) / _GOOD_PAIRS


def _seconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start
