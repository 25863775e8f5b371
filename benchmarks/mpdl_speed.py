"""MPDL's classifier against plain PyTorch, and its sealed query against python-paillier.

An epoch of the classifier: 784 columns, 397 hidden units, batches of 64, float32, three parties as threads of one
process (simulate) with masks, messages and ledgers, against the same network trained centrally with the machine to
itself: in plain PyTorch with its own loader of batches, which the bar is about, and, beside it, with batches that are
slices, as ours are. Generated columns enter the owner's weights (`completion = "ship"`), so that all parties together
have the weights of the central network and no more; here no row needs completion.

The query:

One row of 280 generated columns, weights for 128 results, 2048-bit keys, one thread, processor time. Both sides encrypt
the row, multiply it with the weights and decrypt the results. Ours also masks and re-randomises them, and its messages
pass real channels with codec and ledger; python-paillier, which encrypts every number by itself and uses gmpy2 here, is
charged for none of that. Keys and tables are made beforehand on both sides.

The bar takes python-paillier as it is used out of the box, with floats. The same at our precision, with its numbers
encoded beforehand as we encode ours, is shown beside it: it saves python-paillier more than half of its time. Of its
products some results are measured and scaled to all of them. The rounds are interleaved, and the ratios are those of
the medians.
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
import torch
from phe import EncodedNumber, paillier
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.form import Findings, main, say
from colonnade import MPDL, Evaluate, PartyTable, simulate
from colonnade.crypto import PrivateKey
from colonnade.crypto.ring import Ring
from colonnade.exchanges.sealed_query import (
    EncryptedQuery,
    QueryAnswer,
    QueryFormat,
    answer_query,
    receive_answer,
    send_query,
)
from colonnade.ledger import LedgerWriter
from colonnade.messages import between
from colonnade.session import Channel, Policy
from colonnade.transport import MemoryHub

COLUMNS, RESULTS = 280, 128
LEAST_TIMES_FASTER = 15.0
MOST_TIMES_CENTRAL = 2.0
BATCH = 64
# Our 20 fraction bits of rows and of weights, as python-paillier writes them: with powers of 16.
PEER_EXPONENT = -5


class SealedQuery:
    """Both parties of a query, with keys and channels made."""

    def __init__(self, bits: int, size: str, columns: int) -> None:
        self.key = PrivateKey.generate(size)
        self.public = self.key.public
        self.key.prepare()
        self.public.prepare()
        self.bits, self.columns = bits, columns
        hub = MemoryHub(("shop", "bank"))
        roles = {"shop": "feature_holder", "bank": "label_holder"}
        query = between(EncryptedQuery, "feature_holder", "label_holder").every_declaration()
        answer = between(QueryAnswer, "label_holder", "feature_holder").every_declaration()
        self.asking, self.answering = (
            Channel(
                hub.link(party, peer),
                party=party,
                role=roles[party],
                peer=peer,
                peer_role=roles[peer],
                run="benchmark",
                declarations=(*query, *answer),
                ledger=LedgerWriter(),
                policy=Policy(),
                step=itertools.count(1).__next__,
            )
            for party, peer in (("shop", "bank"), ("bank", "shop"))
        )

    def play(self, rows: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, tuple[float, float, float]]:
        """Return the products, and what encryption, product and decryption took."""
        format = QueryFormat(terms=self.columns, columns=len(rows), key_bits=self.bits)
        times = [time.process_time()]
        send_query(self.asking, self.key, format, rows)
        times.append(time.process_time())
        share = answer_query(self.answering, self.public, format, weights)
        times.append(time.process_time())
        words = receive_answer(self.asking, self.key, format, weights.shape[1]) + share
        times.append(time.process_time())
        return Ring(2).decode(words), (times[1] - times[0], times[2] - times[1], times[3] - times[2])


class UnpackedQuery:
    """The same with python-paillier: one ciphertext for every number."""

    def __init__(self, bits: int, *, is_encoded: bool) -> None:
        self.public, self.private = paillier.generate_paillier_keypair(n_length=bits)
        self._is_encoded = is_encoded

    def play(self, row: np.ndarray, weights: np.ndarray, results: int) -> tuple[np.ndarray, tuple[float, float, float]]:
        """Return some products, and what encryption, all products and all decryptions take."""
        numbers = self._numbers(row)
        factors = [self._numbers(column) for column in weights.T[:results]]
        scale = weights.shape[1] / results
        times = [time.process_time()]
        sealed = [self.public.encrypt(one) for one in numbers]
        times.append(time.process_time())
        sums = [_sum_of(one * other for one, other in zip(sealed, column, strict=True)) for column in factors]
        times.append(time.process_time())
        found = np.array([self.private.decrypt(one) for one in sums])
        times.append(time.process_time())
        return found, (times[1] - times[0], scale * (times[2] - times[1]), scale * (times[3] - times[2]))

    def _numbers(self, values: np.ndarray) -> list[Any]:
        if not self._is_encoded:
            return cast(list[Any], values.tolist())
        scale, modulus = 16**-PEER_EXPONENT, self.public.n
        return [EncodedNumber(self.public, round(one * scale) % modulus, PEER_EXPONENT) for one in values]


def _sum_of(terms: Any) -> Any:
    total = next(terms)
    for term in terms:
        total = total + term
    return total


def measure_query(findings: Findings, rounds: int, *, quick: bool) -> None:
    """Measure one query of one row, and one of many rows."""
    bits, size = (1024, "insecure_test") if quick else (2048, "2048")
    columns, results, some = (12, 16, 2) if quick else (COLUMNS, RESULTS, 4)
    random = np.random.default_rng(1)
    row, weights = random.uniform(-4, 5, size=(1, columns)), random.normal(size=(columns, results)) * 0.1
    ours = SealedQuery(bits, size, columns)
    peers = {"phe": UnpackedQuery(bits, is_encoded=False), "phe_encoded": UnpackedQuery(bits, is_encoded=True)}
    sides: dict[str, Callable[[], tuple[np.ndarray, tuple[float, float, float]]]] = {
        "ours": lambda: ours.play(row, weights),
        **{name: _player(peer, row[0], weights, some) for name, peer in peers.items()},
    }
    ours.play(row, weights)  # first-call costs are not what is compared
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, play in sides.items():
            found, times = play()
            expected = (row @ weights).reshape(-1)[: found.size]
            assert np.abs(found.reshape(-1) - expected).max() < 2e-3, name
            taken[name].append(times)
        each = ", ".join(f"{name} {sum(times[-1]):.2f} s" for name, times in taken.items())
        say(f"Query, round {number + 1} of {rounds}: {each}")
    seconds = {name: statistics.median(map(sum, times)) for name, times in taken.items()}
    many = 2 if quick else 120
    _, many_times = ours.play(random.uniform(-4, 5, size=(many, columns)), weights)
    found, _ = sides["ours"]()
    findings.figures |= {
        "query_columns": columns,
        "query_results": results,
        "query_key_bits": bits,
        "query_seconds": seconds["ours"],
        "query_parts_seconds": [round(statistics.median(part), 4) for part in zip(*taken["ours"], strict=True)],
        "query_phe_seconds": seconds["phe"],
        "query_phe_encoded_seconds": seconds["phe_encoded"],
        "query_times_faster_than_encoded_phe": seconds["phe_encoded"] / seconds["ours"],
        "query_many_rows": many,
        "query_many_seconds_per_row": sum(many_times) / many,
    }
    findings.bar("query_largest_error", float(np.abs(found - row @ weights).max()), at_most=2e-3, at_any_size=True)
    findings.bar("query_times_faster_than_phe", seconds["phe"] / seconds["ours"], at_least=LEAST_TIMES_FASTER)


def _player(
    peer: UnpackedQuery, row: np.ndarray, weights: np.ndarray, results: int
) -> Callable[[], tuple[np.ndarray, tuple[float, float, float]]]:
    return lambda: peer.play(row, weights, results)


class Epoch:
    """One epoch of the classifier on data of MNIST's size: 224 and 560 columns, 397 hidden units, batches of 64."""

    def __init__(self, rows: int, columns: tuple[int, int], hidden: int) -> None:
        random = np.random.default_rng(3)
        digits = np.arange(rows) % 10
        frames = {}
        for party, width in zip("ab", columns, strict=True):
            values = random.random((rows, width)) + 0.1 * digits[:, None]
            frames[party] = pd.DataFrame(values, columns=[f"{party}{place}" for place in range(width)])
            frames[party].insert(0, "id", np.arange(rows))
        frames["b"]["digit"] = digits
        self.tables = {
            "b": PartyTable(frames["b"], id="id", label="digit", types={"digit": "categorical"}),
            "a": PartyTable(frames["a"], id="id"),
        }
        self.hidden, self.rows, self.columns = hidden, rows, sum(columns)
        self.inputs = torch.rand(rows, self.columns)
        self.labels = torch.from_numpy(digits)

    def ours(self, epochs: int) -> float:
        """Return the seconds of a whole simulation of so many epochs, of both models."""
        config = MPDL(
            mechanism="none",
            generator="mean",
            folds=0,
            completion="ship",  # with copies of weights, a holder's block would be larger than its part of the network
            augment=False,
            hidden=self.hidden,
            epochs=epochs,
            task="multiclass",
        )
        roles = {"label_holder": "b", "feature_holder": "a", "collaborator": "c"}
        began = time.perf_counter()
        simulate(config, self.tables, roles=roles, evaluate=Evaluate(test_fraction=0.0, validation_fraction=0.0))
        return time.perf_counter() - began

    def central(self, epochs: int) -> float:
        """Return the seconds of the same network in plain PyTorch, with its own loader of batches."""
        loader = DataLoader(TensorDataset(self.inputs, self.labels), batch_size=BATCH, shuffle=True)
        return self._train(epochs, lambda: iter(loader))

    def sliced(self, epochs: int) -> float:
        """Return the seconds of the same with rows put in order once an epoch, so that batches are slices."""

        def slices() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
            order = torch.randperm(self.rows)
            return zip(self.inputs[order].split(BATCH), self.labels[order].split(BATCH), strict=True)

        return self._train(epochs, slices)

    def _train(self, epochs: int, batches: Callable[[], Iterator[Any]]) -> float:
        network = nn.Sequential(nn.Linear(self.columns, self.hidden), nn.ReLU(), nn.Linear(self.hidden, 10))
        optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
        began = time.perf_counter()
        for _ in range(epochs):
            for inputs, labels in batches():
                loss = nn.functional.cross_entropy(network(inputs), labels)
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), 5.0)
                optimizer.step()
        return time.perf_counter() - began


def measure_epoch(findings: Findings, rounds: int, *, quick: bool) -> None:
    """Measure an epoch of the classifier, federated and central, as the difference between many epochs and one."""
    rows, hidden, many = (256, 32, 2) if quick else (4096, 397, 5)
    world = Epoch(rows, (12, 20) if quick else (224, 560), hidden)
    # Both models of a run have the same rows here, as no holder has rows of its own.
    sides = {"ours": (world.ours, 2), "central": (world.central, 1), "sliced": (world.sliced, 1)}
    for play, _ in sides.values():
        play(1)
    taken: dict[str, list[float]] = {name: [] for name in sides}
    for number in range(rounds):
        for name, (play, models) in sides.items():
            few, more = play(1), play(1 + many)
            taken[name].append((more - few) / (many * models))
        say(
            f"Epoch, round {number + 1} of {rounds}: "
            + ", ".join(f"{name} {one[-1]:.2f} s" for name, one in taken.items())
        )
    seconds = {name: statistics.median(values) for name, values in taken.items()}
    findings.figures |= {
        "epoch_rows": rows,
        "epoch_seconds": seconds["ours"],
        "epoch_central_seconds": seconds["central"],
        "epoch_sliced_seconds": seconds["sliced"],
        "epoch_times_sliced": seconds["ours"] / seconds["sliced"],
    }
    findings.bar("epoch_times_central", seconds["ours"] / seconds["central"], at_most=MOST_TIMES_CENTRAL)


def measure(arguments: argparse.Namespace) -> Findings:
    findings = Findings()
    findings.figures |= {"cores": len(os.sched_getaffinity(0)), "load_average": round(os.getloadavg()[0], 2)}
    rounds = 1 if arguments.quick else arguments.rounds
    measure_epoch(findings, rounds, quick=arguments.quick)
    measure_query(findings, rounds, quick=arguments.quick)
    findings.figures["load_average_after"] = round(os.getloadavg()[0], 2)
    return findings


def options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="how often each is measured")


if __name__ == "__main__":
    main(__doc__ or "", measure, options)
