"""How fast encrypted arithmetic is: against python-paillier, against GMP itself, and two processes against one.

One thread, keys of the same size on both sides, standard normal values, and plain numbers rounded to 2**-24 on both
sides; as figures also against python-paillier with its default precision. All that is compared is measured in turn,
round by round, because the speed of a shared machine changes from second to second; ratios are medians over rounds.
Times of one thread are this process's processor time, which leaves out the time that other processes take; those of
the pool and what it is compared with are by the clock on the wall.

A matrix of 128 x 32 is packed along its rows with as much room as its product with a vector needs. python-paillier
takes a minute for it, so it is given a few of the values, rows and columns, and its times are scaled by their number.

The bound of an encryption is what its modular multiplications alone would take: the table's windows less one, each as
long as a multiplication by one and the same number that never leaves the processor's cache. What else an encryption
does, such as putting the owner's two halves together, counts against us.
"""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from colonnade.crypto import (
    DEFAULT_FORMAT,
    DEFAULT_KEY,
    INSECURE_TEST,
    CipherArray,
    PrivateKey,
    PublicKey,
    decrypt,
    encrypt,
)
from colonnade.crypto.bench.form import Findings
from colonnade.crypto.costs import measure_multiplication
from colonnade.crypto.window_table import table_multiplications
from colonnade.engine import INLINE, open_engine, usable_cores

if TYPE_CHECKING:
    from colonnade.crypto.bench.peer import PhePeer

__all__ = ["FULL", "QUICK", "Effort", "measure_crypto"]

Say = Callable[[str], None]
Measurement = Callable[[], float]
"""Measures once and returns seconds."""
Sides = dict[str, dict[str, Measurement]]
"""Operation, then side: ours, bound, phe, phe_default."""
Seconds = Mapping[str, Mapping[str, list[float]]]

_PRECISION = 2.0**-DEFAULT_FORMAT.fraction_bits
_LEAST_SPEEDUPS = {"encrypt": 300, "matrix_vector": 30, "transposed_vector": 5, "decrypt": 15}
_MOST_TIMES_BOUND = 1.6
_LEAST_POOL_SPEEDUP = 1.5
_POOL_WORKERS = 2
_LARGEST_ERROR = 1e-4


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much is measured."""

    key: str
    larger_key: str | None
    shape: tuple[int, int]
    rounds: int
    peer_values: int
    """How many values python-paillier encrypts and decrypts in a round; rows and columns are those it multiplies."""
    peer_rows: int
    peer_columns: int
    pool_values: int
    pool_rounds: int


FULL = Effort(
    key=DEFAULT_KEY,
    larger_key="3072",
    shape=(128, 32),
    rounds=9,
    peer_values=24,
    peer_rows=2,
    peer_columns=1,
    pool_values=20_000,
    pool_rounds=3,
)
QUICK = Effort(
    key=INSECURE_TEST,
    larger_key=None,
    shape=(12, 4),
    rounds=2,
    peer_values=2,
    peer_rows=1,
    peer_columns=1,
    pool_values=200,
    pool_rounds=1,
)
"""A few seconds, to see that everything works. Its figures say nothing about the sizes in use."""


def measure_crypto(effort: Effort, say: Say) -> Findings:
    """Measure everything; hold it against python-paillier and the bars if python-paillier is there."""
    findings, load, cores = Findings(), _load_average(), usable_cores()
    if load is not None and load > cores / 4:
        say(f"Others are using this machine (load average {load:.2f}); expect worse figures, the pool's above all.")
    has_peer = importlib.util.find_spec("phe") is not None
    task = _Task(effort)
    findings.figures |= {
        "key_bits": task.key.bits,
        "precision": f"2^-{DEFAULT_FORMAT.fraction_bits}",
        "values": "x".join(map(str, effort.shape)),
        "slots_per_ciphertext": task.matrix.layout.slots,
        "ciphertexts": task.matrix.layout.count,
        "rounds": effort.rounds,
        "times": "processor time of one thread; inline and pool by the clock on the wall",
        "cores": cores,
        "load_average_before": load,
        "phe": "not installed",
    }
    sides = task.measurements()
    if has_peer:
        _add_peer(sides, task, findings, say)
    _compare(_in_turn(sides, effort.rounds, say), findings, has_bars=has_peer)
    findings.figures["largest_error"] = task.largest_error()
    if effort.larger_key is not None:
        _measure_larger_key(task, effort.larger_key, findings, say)
    _measure_pool(task, findings, say, has_bars=has_peer and cores >= _POOL_WORKERS)
    findings.figures["load_average_after"] = _load_average()
    if not has_peer:
        say("python-paillier is not installed, so nothing was compared. 'pip install phe' adds the ratios and bars.")
    return findings


class _Task:
    """What is encrypted and computed on our side."""

    def __init__(self, effort: Effort) -> None:
        rows, columns = effort.shape
        random = np.random.default_rng(0)
        self.effort = effort
        self.values = random.normal(size=effort.shape)
        self.weights, self.residuals = random.normal(size=columns), random.normal(size=rows)
        self.key = PrivateKey.generate(effort.key)
        self.public = self.key.public
        # The first encryption under a key builds its tables.
        self.encrypt(self.public)
        self.matrix = self.encrypt(self.key)
        self.vector = encrypt(self.key, self.residuals)

    def encrypt(self, key: PublicKey) -> CipherArray:
        """Encrypt the matrix, with room for its product with the weights."""
        return encrypt(key, self.values, packed_axis=0, room=DEFAULT_FORMAT.bound * self.effort.shape[1])

    def measurements(self) -> Sides:
        """Return what is measured on our side."""
        # The owner's exponents have half as many bits as the key; it needs two powers, modulo numbers of half the size.
        each = table_multiplications(self.key.bits // 2)
        others = table_multiplications(self.public.random_bits)
        count = self.matrix.layout.count
        return {
            "encrypt": {
                "ours": _timed(lambda: self.encrypt(self.key)),
                "bound": lambda: 2 * each * count * measure_multiplication(self.key.bits, time.process_time),
            },
            "encrypt_not_owner": {
                "ours": _timed(lambda: self.encrypt(self.public)),
                "bound": lambda: others * count * measure_multiplication(2 * self.key.bits, time.process_time),
            },
            "matrix_vector": {"ours": _timed(lambda: self.matrix @ self.weights)},
            "transposed_vector": {"ours": _timed(lambda: self.values.T @ self.vector)},
            "decrypt": {"ours": _timed(lambda: decrypt(self.key, self.matrix))},
        }

    def largest_error(self) -> float:
        """Return how far results are from those of plain numbers; what is wrong must not be called fast."""
        pairs = (
            (self.matrix, self.values),
            (self.matrix @ self.weights, self.values @ self.weights),
            (self.values.T @ self.vector, self.values.T @ self.residuals),
        )
        error = max(float(np.abs(decrypt(self.key, one) - plain).max()) for one, plain in pairs)
        if error > _LARGEST_ERROR:
            raise RuntimeError("results differ from those of plain numbers")
        return error


def _add_peer(sides: Sides, task: _Task, findings: Findings, say: Say) -> None:
    from colonnade.crypto.bench.peer import PhePeer

    say("Encrypting with python-paillier what it will compute with …")
    effort = task.effort
    findings.figures |= {
        "phe": PhePeer.version(),
        "phe_values_measured": effort.peer_values,
        "phe_rows_measured": effort.peer_rows,
        "phe_columns_measured": effort.peer_columns,
        "phe_times": "scaled from what was measured to all values, rows or columns",
    }
    keys = PhePeer.generate_keys(task.key.bits)
    for side, precision in (("phe", _PRECISION), ("phe_default", None)):
        for operation, measurement in _peer_measurements(PhePeer(keys, precision), task).items():
            sides[operation][side] = measurement


def _peer_measurements(peer: PhePeer, task: _Task) -> dict[str, Measurement]:
    effort, values = task.effort, task.values
    rows, columns = effort.shape
    some = values.reshape(-1)[: effort.peer_values]
    encrypted_rows = [peer.encrypt(row) for row in values[: effort.peer_rows]]
    encrypted_residuals, encrypted_values = peer.encrypt(task.residuals), peer.encrypt(some)
    weights = peer.encode(task.weights)

    def multiply_columns() -> None:
        for column in range(effort.peer_columns):
            peer.inner_product(encrypted_residuals, peer.encode(values[:, column]))

    return {
        "encrypt": _timed(lambda: peer.encrypt(some), values.size / len(some)),
        "matrix_vector": _timed(
            lambda: [peer.inner_product(row, weights) for row in encrypted_rows], rows / effort.peer_rows
        ),
        "transposed_vector": _timed(multiply_columns, columns / effort.peer_columns),
        "decrypt": _timed(lambda: peer.decrypt(encrypted_values), values.size / len(some)),
    }


def _timed(
    act: Callable[[], object], scale: float = 1.0, clock: Callable[[], float] = time.process_time
) -> Measurement:
    def measure() -> float:
        start = clock()
        act()
        return (clock() - start) * scale

    return measure


def _in_turn(sides: Sides, rounds: int, say: Say) -> Seconds:
    """Measure everything in every round, all sides of an operation right after one another."""
    found: dict[str, dict[str, list[float]]] = {name: {side: [] for side in of} for name, of in sides.items()}
    for number in range(rounds):
        for operation, measurements in sides.items():
            for side, measure in measurements.items():
                found[operation][side].append(measure())
        say(f"round {number + 1} of {rounds}")
    return found


def _compare(seconds: Seconds, findings: Findings, *, has_bars: bool) -> None:
    figures = findings.figures
    for operation, sides in seconds.items():
        for side, times in sides.items():
            prefix = "" if side == "ours" else f"{side}_"
            figures[f"{prefix}{operation}_ms"] = 1000 * statistics.median(times)
    owner, other = seconds["encrypt"], seconds["encrypt_not_owner"]
    figures["encrypt_not_owner_times_bound"] = _ratio(other["ours"], other["bound"])
    times_bound = _ratio(owner["ours"], owner["bound"])
    _hold(findings, has_bars, "encrypt_times_bound", times_bound, at_most=_MOST_TIMES_BOUND)
    if "phe" not in owner:
        return
    figures["encrypt_not_owner_speedup"] = _ratio(owner["phe"], other["ours"])
    for operation, least in _LEAST_SPEEDUPS.items():
        sides = seconds[operation]
        figures[f"{operation}_speedup_of_phe_default"] = _ratio(sides["phe_default"], sides["ours"])
        speedup = _ratio(sides["phe"], sides["ours"])
        _hold(findings, has_bars, f"{operation}_speedup", speedup, at_least=least)


def _ratio(above: list[float], below: list[float]) -> float:
    return statistics.median(one / other for one, other in zip(above, below, strict=True))


def _hold(findings: Findings, has_bars: bool, name: str, value: float, **limit: float) -> None:
    if has_bars:
        findings.bar(name, value, at_least=limit.get("at_least"), at_most=limit.get("at_most"))
    else:
        findings.figures[name] = value


def _measure_larger_key(task: _Task, size: str, findings: Findings, say: Say) -> None:
    say(f"A key of {size} bits …")
    key = PrivateKey.generate(size)
    matrix = task.encrypt(key)
    for name, act in (("encrypt", lambda: task.encrypt(key)), ("decrypt", lambda: decrypt(key, matrix))):
        seconds = statistics.median(_timed(act)() for _ in range(3))
        findings.figures[f"{name}_{key.bits}_bits_ms"] = 1000 * seconds


def _measure_pool(task: _Task, findings: Findings, say: Say, *, has_bars: bool) -> None:
    """Encrypt many values, one in each ciphertext, in this process and in two others."""
    key, effort = task.key, task.effort
    values = np.random.default_rng(1).normal(size=effort.pool_values)
    seconds: dict[str, list[float]] = {"inline": [], "pool": []}
    with open_engine("pool", workers=_POOL_WORKERS) as pool:
        try:
            key.engine = pool
            encrypt(key, values[: effort.pool_values // 10])  # starts the workers, which read the tables
            for number in range(effort.pool_rounds):
                for engine in (INLINE, pool):
                    key.engine = engine
                    seconds[engine.name].append(_timed(lambda: encrypt(key, values), clock=time.perf_counter)())
                told = ", ".join(f"{name} {times[-1]:.1f} s" for name, times in seconds.items())
                say(f"{effort.pool_values} values, round {number + 1} of {effort.pool_rounds}: {told}")
        finally:
            key.engine = INLINE
    findings.figures |= {"pool_values": effort.pool_values, "pool_workers": _POOL_WORKERS}
    for name, times in seconds.items():
        findings.figures[f"{name}_seconds"] = statistics.median(times)
    speedup = _ratio(seconds["inline"], seconds["pool"])
    _hold(findings, has_bars, "pool_speedup", speedup, at_least=_LEAST_POOL_SPEEDUP)


def _load_average() -> float | None:
    """Return how many processes wanted a core over the last minute, where the system tells."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None
