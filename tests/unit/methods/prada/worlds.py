"""Small banks and a data company, and the weights that only both sides together know."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import torch

import colonnade as cn
from colonnade.crypto import PrivateKey
from colonnade.ledger import LedgerWriter
from colonnade.messages import resolve
from colonnade.methods.prada import METHOD
from colonnade.methods.prada.bank import bank_head
from colonnade.methods.prada.head import BankHead, HolderHead
from colonnade.methods.prada.school import holder_head
from colonnade.session import Channel, Policy
from colonnade.transport import MemoryHub

HOLDER = "data"
SEED = 11
# References divide rows by the seed alone.
PLAIN_SPLIT = cn.Evaluate(stratify=False)
WEIGHT_BITS = 48
GROUPS = {"a": ("c0", "n0"), "b": ("c1", "c2", "n1")}
SMALL: dict[str, Any] = {
    "groups": GROUPS,
    "widths": {"a": (5, 3), "b": (5, 3), "a-b": (6, 4)},
    "embeddings": {"c0": 2, "c1": 2, "c2": 2},
    "epochs": 2,
    "fine_epochs": 2,
    "batch_size": 14,
    "fine_batch_size": 7,
    "domain_sampling": "uniform",
    "expansion": "none",
    "compare": "none",
    "defence": "none",
    "pictures": False,
    "secret_start": False,
    "tie_unseen": False,
    "precision": "float64",
    "key_size": "insecure_test",
}


def settings(**changes: Any) -> cn.PrADA:
    """Return settings with which a run takes a second."""
    return cn.PrADA(**{**SMALL, **changes})


def frames(
    task: str = "binary",
    *,
    sources: int = 1,
    targets: int = 1,
    source_rows: int = 60,
    target_rows: int = 48,
    labelled: int = 36,
    columns: int = 2,
    seed: int = 5,
) -> dict[str, pd.DataFrame]:
    """Return tables of customers whose traits the data company sees; those of targets are shifted.

    The third categorical column has categories that only targets' customers have. Some rows of targets have no label.
    """
    torch.set_num_threads(1)
    generator = np.random.default_rng(seed)
    counts = {f"sister{i}": source_rows for i in range(sources)} | {f"bank{i}": target_rows for i in range(targets)}
    blocks, found, start = [], {}, 0
    for place, (party, count) in enumerate(counts.items()):
        is_target = party.startswith("bank")
        traits = generator.normal(size=(count, 3)) + (np.array([0.6, 0.0, -0.3]) if is_target else 0.0)
        own = generator.normal(size=(count, columns)) * 4 + 9
        ids = np.arange(start, start + count)
        start += count
        signal = traits @ [1.2, -1.0, 0.8] + (own - 9).sum(axis=1) / 8 + 0.3 * generator.normal(size=count)
        block = pd.DataFrame({"id": ids})
        letters = np.array(list("abcd"))
        for k in range(2):
            block[f"c{k}"] = letters[np.digitize(traits[:, k] + 0.4 * generator.normal(size=count), [-0.8, 0.0, 0.8])]
        rare = np.where(traits[:, 2] > 0.5, "post", "old")
        block["c2"] = np.where(is_target, rare, np.where(traits[:, 2] > 0.5, "young", "old"))
        block["n0"] = traits[:, 0] * 3 + generator.normal(size=count) + 20
        block["n1"] = traits[:, 1] - traits[:, 2] + generator.normal(size=count)
        blocks.append(block)
        frame = pd.DataFrame(own, columns=[f"own{k}" for k in range(columns)])
        frame["id"] = ids
        label = {
            "binary": (signal > 0).astype(float),
            "multiclass": np.digitize(signal, [-0.8, 0.8]).astype(float),
            "regression": signal * 4 + 2,
        }[task]
        frame["y"] = label
        if is_target:
            frame.loc[generator.permutation(count)[labelled:], "y"] = np.nan
        found[party] = frame.sample(frac=1, random_state=place)
    every = pd.concat(blocks)
    return {HOLDER: every.sample(frac=1, random_state=9), **found}


def tables_of(found: dict[str, pd.DataFrame]) -> dict[str, cn.PartyTable]:
    return {
        name: cn.PartyTable(
            frame,
            id="id",
            label="y" if "y" in frame else None,
            unlabelled=name.startswith("bank") and "y" in frame,
            name=name,
        )
        for name, frame in found.items()
    }


def roles_of(parties: Sequence[str]) -> dict[str, tuple[str, ...]]:
    starts = {"feature_holder": HOLDER, "target": "bank", "source": "sister"}
    found = {role: tuple(one for one in parties if one.startswith(start)) for role, start in starts.items()}
    return {role: names for role, names in found.items() if names}


def run_of(found: dict[str, pd.DataFrame], config: cn.PrADA, **options: Any) -> cn.Run:
    return cn.simulate(
        config, tables_of(found), roles=roles_of(list(found)), **{"seed": SEED, "evaluate": PLAIN_SPLIT, **options}
    )


def shared_weights(run: cn.Run, bank: str, phase: str) -> np.ndarray:
    """Return the weights of groups, which take both sides' shares to know."""
    own, other = run.parts[bank].document, run.parts[HOLDER].document["banks"][bank]
    state = own["heads"][phase]
    if "weights" in state:
        return np.array(state["weights"])
    theirs = other["heads"][phase]["share"]
    whole = [int(one) + int(two) for one, two in zip(state["share"], theirs, strict=True)]
    return np.array([one / 2**WEIGHT_BITS for one in whole]).reshape(-1, other["scores"])


def parameters(run: cn.Run) -> dict[str, np.ndarray]:
    """Return everything that was trained: networks, own weights, and the shared weights put together."""
    found = {
        f"{party}: {name}": value.numpy()
        for party, part in run.parts.items()
        for name, value in part.tensors.items()
        if "num_batches" not in name and not name.startswith("disguise/")
    }
    for bank, known in run.parts[HOLDER].document["banks"].items():
        for phase in known["heads"]:
            found[f"{bank}: {phase}/W"] = shared_weights(run, bank, phase)
    return found


def farthest(run: cn.Run, expected: dict[str, np.ndarray]) -> tuple[float, str]:
    """Return how far parameters lie from expected ones at most, and where."""
    found = parameters(run)
    assert expected.keys() <= found.keys(), expected.keys() - found.keys()
    return max((float(np.abs(found[name] - value).max(initial=0.0)), name) for name, value in expected.items())


class Line:
    """Two channels between the feature holder and a bank, and what each of them received."""

    def __init__(self) -> None:
        found = {"tune": "all", "compare": "vfl", "defence": "none"}
        plans: list[Any] = [SimpleNamespace(config={**found, "protection": one}) for one in ("paillier", "none")]
        every = [one for plan in plans for one in resolve(METHOD.stages["train"].messages, plan)]
        self.seen: dict[str, list[Any]] = {"holder": [], "bank": []}
        hub = MemoryHub(("holder", "bank"))
        roles = {"holder": "feature_holder", "bank": "target"}
        self.channels = {}
        for party, peer in (("holder", "bank"), ("bank", "holder")):
            channel = Channel(
                hub.link(party, peer),
                party=party,
                role=roles[party],
                peer=peer,
                peer_role=roles[peer],
                run="run",
                declarations=every,
                ledger=LedgerWriter(),
                policy=Policy(),
                step=itertools.count(1).__next__,
            )
            self.channels[party] = channel
            channel.receive = self._keeping(party, channel.receive)  # type: ignore[method-assign]

    def _keeping(self, party: str, receive: Callable[..., Any]) -> Callable[..., Any]:
        def kept(*arguments: Any, **options: Any) -> Any:
            message = receive(*arguments, **options)
            self.seen[party].append(message)
            return message

        return kept

    def heads(
        self, config: cn.PrADA, inputs: int, scores: int, key: PrivateKey | None = None
    ) -> tuple[HolderHead, BankHead]:
        """Return both halves of a scoring layer."""
        public = None if key is None else key.public
        return (
            holder_head(config, self.channels["holder"], key, inputs, scores),
            bank_head(config, self.channels["bank"], public, inputs, scores),
        )

    def play(self, holder: Callable[[], Any], bank: Callable[[], Any]) -> tuple[Any, Any]:
        """Run both sides and return what they return."""
        found: dict[str, Any] = {}

        def run() -> None:
            try:
                found["holder"] = holder()
            except BaseException as error:
                found["error"] = error

        thread = threading.Thread(target=run)
        thread.start()
        try:
            found["bank"] = bank()
        finally:
            thread.join(timeout=60)
        if "error" in found:
            raise found["error"]
        return found["holder"], found["bank"]
