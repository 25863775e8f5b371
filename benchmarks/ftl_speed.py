"""One encrypted iteration of federated transfer learning against the paper's own schedule in python-paillier.

500 shared labelled rows, codes of 32 numbers, 18 columns a side, 2048-bit keys, one thread. Ours is the product: both
parties train in this process, over channels with codec and ledger, and an iteration lasts from one verdict to the next.
It includes the loss.

The paper's schedule encrypts every number by itself and sends d x d terms for every row. It would take hours, so it is
really carried out on a few rows with short codes, its gradients are held against numpy's, and the seconds of each kind
of work are scaled up by the exact counts of the whole: encryptions n(d^2+d) at one party and n(d^2+2d) at the other,
products n d^2 + n d (columns + 1) a side, each with its sum, and a mask and a decryption for every parameter. It is not
charged for the loss, for making its results look random, nor for writing messages: its bytes are those of the
ciphertexts alone. Precision of all numbers before a product: 2**-32, at both. Python-paillier uses gmpy2 here.

Seconds are processor time, since others may share the machine; on an idle one they are what a clock shows, because
both schedules keep one thread busy. An iteration of ours is shown by the clock as well.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
import pandas as pd
from phe import EncodedNumber, paillier

from benchmarks.form import Findings, main, say
from colonnade import FTL, Evaluate, PartyTable, simulate
from colonnade.crypto import PrivateKey, PublicKey
from colonnade.crypto.products import cost_of, largest_bits
from colonnade.session import Channel

PRECISION = 2.0**-32


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """How large everything is: shapes are rows, width and columns a side."""

    key: Any
    bits: int
    whole: tuple[int, int, int]
    carried_out: tuple[int, int, int]
    """The piece of the paper's schedule that is really carried out."""
    by_rows: tuple[tuple[int, int, int], ...]
    by_columns: tuple[tuple[int, int, int], ...]
    by_width: tuple[tuple[int, int, int], ...]
    iterations: int
    """Of every shape that is compared with others, after one to make the tables."""


FULL = Sizes(
    key=2048,
    bits=2048,
    whole=(500, 32, 18),
    carried_out=(3, 8, 18),
    by_rows=tuple((rows, 4, 18) for rows in (125, 250, 500, 1000)),
    by_columns=tuple((250, 4, columns) for columns in (6, 12, 24, 48)),
    by_width=tuple((125, width, 18) for width in (4, 8, 16)),
    iterations=3,
)
QUICK = Sizes(
    key="insecure_test",
    bits=1024,
    whole=(8, 2, 3),
    carried_out=(2, 2, 2),
    by_rows=((6, 2, 3), (12, 2, 3)),
    by_columns=((6, 2, 2), (6, 2, 4)),
    by_width=((6, 3, 2),),
    iterations=1,
)

# What one party does with ciphertexts, by the method of a key that does it.
PARTS = {
    "encrypt_integers": "encrypt_and_mask",
    "check_ciphertexts": "check",
    "group_products": "products",
    "products": "products",
    "shifted_sums": "pack",
    "multiply_in": "add",
    "add_plain": "add",
    "decrypt_integers": "decrypt",
}


@dataclass(frozen=True)
class Work:
    """How often the paper's schedule does what in one iteration, both parties together."""

    encryptions: int
    products: int
    openings: int

    @classmethod
    def of(cls, rows: int, width: int, columns: int) -> Work:
        """Count as section 4 of the sheet does, all rows being labelled and shared."""
        target_sends = rows * (width**2 + width)
        source_sends = rows * width**2 + 2 * rows * width
        products = 2 * (rows * width**2 + rows * width * (columns + 1))
        return cls(target_sends + source_sends, products, 2 * width * (columns + 1))

    def wire_bytes(self, bits: int) -> int:
        """Return the bytes of all ciphertexts that cross, under keys of so many bits."""
        return (self.encryptions + self.openings) * 2 * bits // 8


class Paper:
    """The paper's schedule with its signs and shapes corrected, logistic loss to second order, dot alignment."""

    def __init__(self, bits: int) -> None:
        self.source, self.target = (paillier.generate_paillier_keypair(n_length=bits) for _ in range(2))
        self.generator = np.random.default_rng(0)
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.counts: Counter[str] = Counter()

    def iteration(self, rows: int, width: int, columns: int) -> None:
        """Carry out one iteration of both parties and check both gradients."""
        draw = self.generator
        source_codes, target_codes = draw.uniform(size=(2, rows, width))
        source_inputs, target_inputs = draw.normal(size=(2, rows, columns + 1))
        labels, phi, gamma = draw.choice([-1.0, 1.0], size=rows), draw.normal(size=width) / 8, 0.1
        source_slopes, target_slopes = source_codes * (1 - source_codes), target_codes * (1 - target_codes)

        moments = self.sealed(self.source, np.broadcast_to(np.outer(phi, phi) / 4, (rows, width, width)))
        signals = self.sealed(self.source, -labels[:, None] / 2 * phi)
        pulls = self.sealed(self.source, -gamma * source_codes)
        squares = self.sealed(self.target, target_codes[:, :, None] * target_codes[:, None, :])
        codes = self.sealed(self.target, target_codes)

        def target_side() -> list[Any]:
            at_codes = [
                [
                    self.inner(moments[row][:, entry], target_codes[row]) + signals[row, entry] + pulls[row, entry]
                    for entry in range(width)
                ]
                for row in range(rows)
            ]
            factors = target_slopes[:, :, None] * target_inputs[:, None, :]
            return [
                self.inner([at_codes[row][entry] for row in range(rows)], factors[:, entry, column])
                for entry in range(width)
                for column in range(columns + 1)
            ]

        at_phi = -0.5 * labels @ target_codes + phi @ (target_codes.T @ target_codes) / 4
        shared = labels[:, None, None] / rows * source_slopes[:, :, None] * source_inputs[:, None, :]
        to_phi = shared.sum(axis=0)

        def source_side() -> list[Any]:
            slopes = []
            for entry in range(width):
                terms = [self.inner(squares[row][:, entry], phi / 4) for row in range(rows)]
                slopes.append(sum(terms[1:], terms[0]) + self.inner(codes[:, entry], -labels / 2))
            factors = -gamma * source_slopes[:, :, None] * source_inputs[:, None, :]
            return [
                self.inner(codes[:, entry], factors[:, entry, column])
                + self.inner(slopes[entry : entry + 1], to_phi[entry : entry + 1, column])
                for entry in range(width)
                for column in range(columns + 1)
            ]

        found = self.opened(self.source, self.timed("products", target_side))
        at_codes = (target_codes @ np.outer(phi, phi) / 4) - labels[:, None] / 2 * phi - gamma * source_codes
        self.check(found, (at_codes * target_slopes).T @ target_inputs)
        found = self.opened(self.target, self.timed("products", source_side))
        pull = -gamma * (target_codes * source_slopes).T @ source_inputs
        self.check(found, at_phi[:, None] * to_phi + pull)

    def timed(self, name: str, work: Callable[[], Any], count: int = 0) -> Any:
        start = time.process_time()
        found = work()
        self.seconds[name] += time.process_time() - start
        self.counts[name] += count
        return found

    def sealed(self, keys: Any, values: np.ndarray) -> np.ndarray:
        def work() -> list[Any]:
            return [keys[0].encrypt(float(one), precision=PRECISION) for one in values.reshape(-1)]

        found = np.empty(values.size, dtype=object)
        found[:] = self.timed("encryptions", work, values.size)
        return found.reshape(values.shape)

    def inner(self, sealed: Any, plain: np.ndarray) -> Any:
        """Multiply and add up; the clock runs around it."""
        self.counts["products"] += len(plain)
        key = sealed[0].public_key
        terms = [
            one * EncodedNumber.encode(key, float(other), precision=PRECISION)
            for one, other in zip(sealed, plain, strict=True)
        ]
        return sum(terms[1:], terms[0])

    def opened(self, keys: Any, gradient: list[Any]) -> np.ndarray:
        """Mask, decrypt at the other party, and take the mask off."""
        masks = self.generator.normal(size=len(gradient)) * 2**10

        def work() -> list[float]:
            masked = [
                one + keys[0].encrypt(float(mask), precision=PRECISION)
                for one, mask in zip(gradient, masks, strict=True)
            ]
            return [keys[1].decrypt(one) for one in masked]

        return np.array(self.timed("openings", work, len(gradient))) - masks

    @staticmethod
    def check(found: np.ndarray, wanted: np.ndarray) -> None:
        if np.abs(found - wanted.reshape(-1)).max() > 1e-6:
            raise AssertionError("the paper's schedule found another gradient than numpy")

    def scaled(self, whole: Work) -> dict[str, float]:
        """Return the seconds of each kind of work for a whole iteration."""
        return {
            name: self.seconds[name] / self.counts[name] * count
            for name, count in (
                ("encryptions", whole.encryptions),
                ("products", whole.products),
                ("openings", whole.openings),
            )
        }


class Watch:
    """Notes when each iteration ends, and how long each part of the work took since the first one ended."""

    def __init__(self) -> None:
        self.ends: list[tuple[float, float]] = []
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.multiplications = 0.0

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch everything that is trained meanwhile."""
        send = Channel.send

        def note_verdict(channel: Channel, content: Any) -> None:
            if type(content).__name__ == "Verdict":
                self.ends.append((time.perf_counter(), time.process_time()))
                if len(self.ends) == 1:
                    # The first iteration also made tables.
                    self.seconds.clear()
                    self.multiplications = 0.0
            send(channel, content)

        with ExitStack() as stack:
            stack.enter_context(patch.object(Channel, "send", note_verdict))
            for kind in (PublicKey, PrivateKey):
                for name in PARTS:
                    if name in vars(kind):
                        stack.enter_context(patch.object(kind, name, self._timed(name, vars(kind)[name])))
            yield

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(key: PublicKey, *arguments: Any) -> Any:
            if name == "group_products":
                groups, terms, results = arguments[1].shape
                self.multiplications += groups * cost_of(terms, results, largest_bits(arguments[1]))
            start = time.thread_time()
            found = function(key, *arguments)
            self.seconds[PARTS[name]] += time.thread_time() - start
            return found

        return timed


@dataclass(frozen=True)
class Trained:
    """What the iterations after the first one took."""

    clock_seconds: list[float]
    processor_seconds: list[float]
    part_seconds: dict[str, float]
    multiplications: float
    message_bytes: dict[str, int]

    @property
    def wire_bytes(self) -> int:
        """Return the bytes of one iteration, both ways together."""
        return sum(self.message_bytes.values())


def train(shape: tuple[int, int, int], iterations: int, key: Any) -> Trained:
    """Train with the product: one iteration to make the tables, and some more that count."""
    rows, width, columns = shape
    say(f"Training with {rows} rows, codes of {width}, {columns} columns a side, {iterations} iterations after one …")
    generator = np.random.default_rng(rows + width + columns)
    ids = [f"row {number}" for number in range(rows)]
    tables = {}
    for party in ("bank", "shop"):
        frame = pd.DataFrame(generator.normal(size=(rows, columns))).add_prefix("column ")
        frame["id"] = ids
        if party == "bank":
            frame["label"] = np.arange(rows) % 2
        tables[party] = PartyTable(frame, id="id", label="label" if party == "bank" else None)
    watch = Watch()
    with watch.watching():
        run = simulate(
            FTL(
                task="binary",
                width=width,
                iterations=iterations + 1,
                tolerance=0.0,
                safeguard=False,
                key_size=key,
                # Tiny tables, which are guarded: what they give away is made up.
                allow_leak=key == QUICK.key,
            ),
            tables,
            roles={"source": "bank", "target": "shop"},
            evaluate=Evaluate(test_fraction=0.0, validation_fraction=0.0),
        )
    if len(watch.ends) != iterations + 1:
        raise AssertionError("training stopped early")
    message_bytes: Counter[str] = Counter()
    for ledger in run.ledgers.values():
        for entry in ledger.messages():
            if entry.kind == "sent" and entry.content["step"] == 2:
                message_bytes[entry.content["message"]] += entry.content["bytes"]
    walls, processors = (np.diff([one[at] for one in watch.ends]).tolist() for at in (0, 1))
    return Trained(
        walls,
        processors,
        {name: seconds / iterations for name, seconds in sorted(watch.seconds.items())},
        watch.multiplications / iterations,
        dict(message_bytes),
    )


def grown(shapes: tuple[tuple[int, int, int], ...], place: int, sizes: Sizes, rounds: int) -> dict[int, float]:
    """Return the median processor time of an iteration, by what stands at a place of the shapes; these take turns."""
    found: dict[int, list[float]] = {shape[place]: [] for shape in shapes}
    for _ in range(rounds):
        for shape in shapes:
            found[shape[place]] += train(shape, sizes.iterations, sizes.key).processor_seconds
    return {size: statistics.median(seconds) for size, seconds in found.items()}


def straightness(seconds: dict[int, float]) -> float:
    """Return R squared of a straight line."""
    x, y = np.array([*seconds], dtype=float), np.array([*seconds.values()])
    slope, intercept = np.polyfit(x, y, 1)
    return float(1.0 - ((y - slope * x - intercept) ** 2).sum() / ((y - y.mean()) ** 2).sum())


def measure(arguments: argparse.Namespace) -> Findings:
    sizes = QUICK if arguments.quick else FULL
    paper, whole = Paper(sizes.bits), Work.of(*sizes.whole)
    rows, width, columns = sizes.carried_out
    for number in range(arguments.rounds):
        say(f"The paper's schedule on {rows} rows with codes of {width}, round {number + 1} of {arguments.rounds} …")
        paper.iteration(rows, width, columns)
    paper_seconds = paper.scaled(whole)
    ours = train(sizes.whole, 2, sizes.key)
    by_rows = grown(sizes.by_rows, 0, sizes, arguments.rounds)
    by_columns = grown(sizes.by_columns, 2, sizes, arguments.rounds)
    by_width = grown(sizes.by_width, 1, sizes, arguments.rounds)
    seconds = statistics.median(ours.processor_seconds)
    findings = Findings()
    findings.figures |= {
        "key_bits": sizes.bits,
        **dict(zip(("rows", "width", "columns"), sizes.whole, strict=True)),
        "ours_seconds": seconds,
        "ours_seconds_by_part": ours.part_seconds,
        "ours_clock_seconds": statistics.median(ours.clock_seconds),
        "ours_multiplications": ours.multiplications,
        "ours_bytes": ours.wire_bytes,
        "ours_bytes_by_message": ours.message_bytes,
        "paper_seconds": sum(paper_seconds.values()),
        "paper_seconds_by_part": paper_seconds,
        "paper_bytes": whole.wire_bytes(sizes.bits),
        "paper_counts": {"encryptions": whole.encryptions, "products": whole.products, "openings": whole.openings},
        "paper_counts_carried_out": dict(paper.counts),
        "seconds_by_rows": by_rows,
        "seconds_by_columns": by_columns,
        "seconds_by_width": by_width,
        "load_average": os.getloadavg()[0],
    }
    findings.bar("speed_ratio", sum(paper_seconds.values()) / seconds, at_least=100)
    findings.bar("bytes_ratio", whole.wire_bytes(sizes.bits) / ours.wire_bytes, at_least=25)
    findings.bar("straightness_in_rows", straightness(by_rows), at_least=0.98)
    findings.bar("straightness_in_columns", straightness(by_columns), at_least=0.98)
    return findings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=1, help="rounds of the paper's schedule and of every size")


if __name__ == "__main__":
    main(__doc__ or "", measure, add)
