"""One batch of the secure linear layer, PrADA-sized, against the paper's own schedule written with python-paillier.

128 rows, 10 inputs, 1 output, 2048-bit keys, one thread. Both do the same work: encrypted inputs, logits, weight
gradient, gradient at the inputs, all masks. The paper's schedule encrypts every number by itself (1,290 encryptions,
3,840 products, 1,418 decryptions), exchanges six messages and is not charged for writing them; ours goes through real
channels with codec and ledger. Keys and tables are made beforehand on both sides, and shown apart. Python-paillier uses
gmpy2 here. Precision of the inputs: 2**-16; of the slopes: 2**-32; of the weights in the logits: 2**-24, at both.

The rounds are interleaved and the ratio is that of the medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import threading
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
from phe import EncodedNumber, paillier

from benchmarks.form import Findings, main, say
from colonnade.crypto import PrivateKey
from colonnade.exchanges.secure_linear import (
    LinearFormat,
    LinearOwner,
    LinearPartner,
    MaskedLogits,
    OpenedLogits,
    OpeningShare,
    TrainedGradients,
    TrainedInputs,
)
from colonnade.ledger import LedgerWriter
from colonnade.messages import between, resolve
from colonnade.session import Channel, Policy
from colonnade.transport import MemoryHub

ROWS, QUICK_ROWS, INPUTS, RATE = 128, 4, 10, 0.1
BITS, QUICK_BITS = 2048, 1024
OWNERS, PARTNERS = "feature_holder", "label_holder"
EVERY = (
    *(between(one, OWNERS, PARTNERS) for one in (OpeningShare, TrainedInputs, OpenedLogits)),
    *(between(one, PARTNERS, OWNERS) for one in (MaskedLogits, TrainedGradients)),
)
PLAN: Any = SimpleNamespace(config={"defence": "none"})


def channels() -> tuple[Channel, Channel]:
    hub = MemoryHub(("owner", "partner"))
    roles = {"owner": "feature_holder", "partner": "label_holder"}
    made = [
        Channel(
            hub.link(party, peer),
            party=party,
            role=roles[party],
            peer=peer,
            peer_role=roles[peer],
            run="benchmark",
            declarations=resolve(EVERY, PLAN),
            ledger=LedgerWriter(),
            policy=Policy(),
            step=itertools.count(1).__next__,
        )
        for party, peer in (("owner", "partner"), ("partner", "owner"))
    ]
    return made[0], made[1]


def slopes_for(logits: np.ndarray, labels: np.ndarray) -> np.ndarray:
    return (1 / (1 + np.exp(-logits)) - labels) / len(labels)


class Ours:
    """Two threads that take turns: one waits while the other works, so this is the time of one thread."""

    def __init__(self, rows: int, bits: int) -> None:
        start = time.perf_counter()
        key = PrivateKey.generate(str(bits) if bits == BITS else "insecure_test")
        public = key.public
        key.prepare()
        public.prepare()
        self.set_up_seconds = time.perf_counter() - start
        self.own_line, self.other_line = channels()
        format = LinearFormat(inputs=INPUTS, outputs=1, most_rows=rows, key_bits=bits)
        self.owner = LinearOwner(self.own_line, format, key)
        self.partner = LinearPartner(self.other_line, format, public)
        thread = threading.Thread(target=self.owner.open)
        thread.start()
        self.partner.open()
        thread.join()

    def batch(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        found: dict[str, Any] = {}

        def own() -> None:
            encoded = self.owner.encode(inputs)
            self.owner.send_trained_inputs(encoded)
            self.owner.answer(encoded)
            found["gradient"] = self.owner.learn_with_inputs(len(inputs))

        start = time.perf_counter()
        thread = threading.Thread(target=own)
        thread.start()
        batch = self.partner.receive_trained_inputs(len(inputs))
        logits = self.partner.logits(self.partner.ask(batch))
        slopes = slopes_for(logits, labels)
        self.partner.teach_with_inputs(batch, RATE * slopes, slopes)
        thread.join()
        return time.perf_counter() - start, logits, found["gradient"]

    def count(self) -> tuple[int, int]:
        """Return how many messages and bytes have crossed, both ways together."""
        entries = [one for line in (self.own_line, self.other_line) for one in line._ledger.read().messages()]
        sent = [one.content["bytes"] for one in entries if one.kind == "sent"]
        return len(sent), sum(sent)


class Paper:
    """Algorithms 4 and 5 with every number in a ciphertext of its own, corrected as in the sheet."""

    def __init__(self, bits: int) -> None:
        start = time.perf_counter()
        self.public, self.private = paillier.generate_paillier_keypair(n_length=bits)
        self.set_up_seconds = time.perf_counter() - start
        self.generator = np.random.default_rng(0)
        self.owner_share = self.generator.normal(size=INPUTS)
        self.partner_share = -self.owner_share

    def encoded(self, value: float, bits: int) -> Any:
        return EncodedNumber.encode(self.public, float(value), precision=2.0**-bits)

    def sealed(self, values: np.ndarray, bits: int) -> list[Any]:
        return [self.public.encrypt(float(value), precision=2.0**-bits) for value in values.reshape(-1)]

    def batch(self, inputs: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
        start = time.perf_counter()
        sealed = [self.sealed(row, 16) for row in inputs]
        share = self.sealed(self.owner_share, 24)
        weights = [self.encoded(one, 24) for one in self.partner_share]

        masks = self.generator.normal(size=len(inputs)) * 2**20
        masked = []
        for row, mask in zip(sealed, masks, strict=True):
            total = row[0] * weights[0]
            for one, weight in zip(row[1:], weights[1:], strict=True):
                total = total + one * weight
            masked.append(total + self.public.encrypt(mask, precision=2.0**-40))
        opened = np.array([self.private.decrypt(one) for one in masked]) + inputs @ self.owner_share
        logits = (opened - masks).reshape(-1, 1)
        slopes = slopes_for(logits, labels)

        steps = [self.encoded(RATE * one, 32) for one in slopes[:, 0]]
        gradient = []
        for column in range(INPUTS):
            total = sealed[0][column] * steps[0]
            for row, step in zip(sealed[1:], steps[1:], strict=True):
                total = total + row[column] * step
            mask = float(self.generator.normal() * 2**20)
            gradient.append(total + self.public.encrypt(mask, precision=2.0**-48))
        for one in gradient:
            self.private.decrypt(one)

        whole = [one + float(other) for one, other in zip(share, self.partner_share, strict=True)]
        flat = [self.encoded(one, 32) for one in slopes[:, 0]]
        at_inputs = [[weight * one for weight in whole] for one in flat]
        found = np.array([[self.private.decrypt(one) for one in row] for row in at_inputs])
        return time.perf_counter() - start, logits, found


def made_up(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the inputs and the labels of a batch."""
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(rows, INPUTS)).clip(-16, 16)
    return inputs, generator.integers(0, 2, size=(rows, 1)).astype(float)


def measure(arguments: argparse.Namespace) -> Findings:
    rows, bits, rounds = (QUICK_ROWS, QUICK_BITS, 1) if arguments.quick else (ROWS, BITS, arguments.rounds)
    inputs, labels = made_up(rows)
    say("Making keys and tables …")
    ours, paper = Ours(rows, bits), Paper(bits)
    before = ours.count()
    first = ours.batch(inputs, labels)[1]
    after = ours.count()
    second = ours.batch(inputs, labels)[1]
    seconds: dict[str, list[float]] = {"ours": [], "paper": []}
    for number in range(rounds):
        say(f"Round {number + 1} of {rounds}: the paper's schedule takes about 25 s for 128 rows …")
        taken, logits, _ = paper.batch(inputs, labels)
        seconds["paper"].append(taken)
        seconds["ours"] += [ours.batch(inputs, labels)[0] for _ in range(3)]
    medians = {name: statistics.median(values) for name, values in seconds.items()}
    findings = Findings()
    findings.figures |= {
        "key_bits": bits,
        "rows": rows,
        "inputs": INPUTS,
        "ours_seconds": medians["ours"],
        "paper_seconds": medians["paper"],
        "ours_set_up_seconds": ours.set_up_seconds,
        "paper_set_up_seconds": paper.set_up_seconds,
        "load_average": os.getloadavg()[0],
    }
    findings.bar("speed_ratio", medians["paper"] / medians["ours"], at_least=30)
    findings.bar("wire_bytes", after[1] - before[1], at_most=190_000)
    findings.bar("messages", after[0] - before[0], at_most=4, at_any_size=True)
    # All weights begin at nothing. The paper's are not learned here.
    learned = inputs @ (-RATE * inputs.T @ slopes_for(first, labels))
    for name, off in (("ours", max(abs(first).max(), abs(second - learned).max())), ("paper", abs(logits).max())):
        findings.bar(f"{name}_logits_off", float(off), at_most=1e-4, at_any_size=True)
    return findings


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=2, help="rounds of the paper's schedule")


if __name__ == "__main__":
    main(__doc__ or "", measure, add)
