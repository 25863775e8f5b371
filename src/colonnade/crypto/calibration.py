"""What encrypted arithmetic costs on this machine, measured in a few seconds.

Not in `costs`: keys themselves ask there how long a multiplication takes, and here keys are used.
"""

from __future__ import annotations

import math
import secrets
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import gmpy2
import numpy as np

from colonnade.crypto.fixed_point import FixedPoint, Format
from colonnade.crypto.layout import Layout
from colonnade.crypto.paillier import PrivateKey, PublicKey, key_bits
from colonnade.crypto.products import cost_of
from colonnade.engine import INLINE, open_engine

__all__ = ["CryptoCosts", "measure_costs", "measure_speedup"]

# Everything is measured in every round, because the speed of a shared machine changes from second to second; and after
# a pause, because the parties of a run work by turns, and a system favours who was waiting.
_ROUNDS = 10
_LONGEST_PAUSE = 0.03
_ENCRYPTIONS, _DECRYPTIONS, _CHECKS, _CANDIDATES = 24, 8, 64, 50
_DIVIDED, _DIVIDED_ROUNDS = 16, 3
"""Decryptions for each worker of a pool, and how often they are measured."""
_VALUES = (128, 8)
_PRODUCT = (32, 1, 64)
"""Bases, results and bits of the exponents in the product that is measured."""

# Two primes are drawn anew until their predecessors share no factor but 2: with probability 0.66, the product of
# 1 - 1 / (l - 1)**2 over all odd primes l.
_GOOD_PAIRS = 0.66


@dataclass(frozen=True, kw_only=True)
class CryptoCosts:
    """Seconds on one core, by the clock on the wall of a machine as busy as it was when this was measured."""

    key_bits: int
    slowdown: float = 1.0
    """How much longer things took by that clock than this process was given the processor. All times include it."""
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
    """Measure with a key of a named size: about 4 seconds at 2048 bits, 10 at 3072.

    Each task counts by its processor time, and all of them by one factor for what others took: a single
    task is too short to tell how busy a machine is.
    """
    key = PrivateKey.generate(size)
    public = key.public
    first = {
        "owner": _timed(lambda: key.encrypt_integers([1])),
        "other": _timed(lambda: public.encrypt_integers([1])),
    }
    tasks = _tasks(key, public)
    found: dict[str, list[_Taken]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, (task, _) in tasks.items():
            taken = _timed(task)
            found[name].append(taken)
            time.sleep(min(taken.seconds, _LONGEST_PAUSE))
    every = [taken for times in found.values() for taken in times]
    slowdown = max(1.0, sum(taken.seconds for taken in every) / sum(taken.processor for taken in every))
    each = {
        name: slowdown * statistics.fmean(taken.processor for taken in times) / tasks[name][1]
        for name, times in found.items()
    }
    return CryptoCosts(
        key_bits=key.bits,
        slowdown=slowdown,
        key_generation=_key_generation(key_bits(size), each["candidate"], each["prime"]),
        owner_tables=max(0.0, slowdown * first["owner"].processor - each["owner_encryption"]),
        owner_encryption=each["owner_encryption"],
        tables=max(0.0, slowdown * first["other"].processor - each["encryption"]),
        encryption=each["encryption"],
        decryption=each["decryption"],
        check=each["check"],
        multiplication=each["multiplication"],
        packing=each["packing"],
        term=each["term"],
    )


def measure_speedup(size: str, workers: int) -> float:
    """Measure how many times as fast a pool of so many processes is as one."""
    with open_engine("pool", workers) as pool:
        key = PrivateKey.generate(size, pool)
        # Any numbers will do: decrypting takes the same time whatever comes out.
        numbers = [gmpy2.mpz(secrets.randbelow(int(key.square))) for _ in range(_DIVIDED * workers)]
        key.decrypt_integers(numbers)  # the processes start
        ratios = []
        for _ in range(_DIVIDED_ROUNDS):
            key.engine = pool
            divided = _timed(lambda: key.decrypt_integers(numbers)).seconds
            key.engine = INLINE
            ratios.append(_timed(lambda: key.decrypt_integers(numbers)).seconds / divided)
    return max(1.0, statistics.median(ratios))


def _tasks(key: PrivateKey, public: PublicKey) -> dict[str, tuple[Callable[[], object], float]]:
    """Return what is measured, and how often each task does it."""
    plains = [secrets.randbelow(int(key.n)) for _ in range(_CHECKS)]
    ciphertexts = public.encrypt_integers(plains)
    half = key.bits // 2
    prime = gmpy2.next_prime(secrets.randbits(half))
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
        "multiplication": (
            lambda: public.products(ciphertexts[:bases], bases, exponents),
            cost_of(bases, results, bits),
        ),
        # New ones every time: whether one of a few has a small factor makes all the difference.
        "candidate": (
            lambda: [gmpy2.is_prime(secrets.randbits(half) | 3, 40) for _ in range(_CANDIDATES)],
            _CANDIDATES,
        ),
        "prime": (lambda: gmpy2.is_prime(prime, 40), 1.0),
        "packing": (lambda: layout.pack(values), values.integers.size),
        "term": (lambda: values.integers.astype(object) @ wide, values.integers.size),
    }


def _key_generation(bits: int, candidate: float, prime: float) -> float:
    """Return the mean over all keys: what a single one took says little."""
    # One number in ln(2**half) is a prime, and only every fourth is tried: two in four could be one.
    tried = bits // 2 * math.log(2) / 2
    return 2 * (tried * candidate + prime) / _GOOD_PAIRS


@dataclass(frozen=True)
class _Taken:
    seconds: float
    processor: float


def _timed(task: Callable[[], object]) -> _Taken:
    wall, processor = time.perf_counter(), time.thread_time()
    task()
    return _Taken(time.perf_counter() - wall, max(time.thread_time() - processor, 1e-9))
