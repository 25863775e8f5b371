"""The methods under conformance. A new method passes the whole suite by adding one line to CASES."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pytest

import colonnade as cn
from colonnade.methods import method_for
from colonnade.session import Method
from tests.parties import with_policies

ROWS = 160


@dataclass(frozen=True)
class Case:
    """A method with settings that learn the toy data in seconds, and how many parties play each role."""

    config: Any
    roles: Mapping[str, int]
    rows: int = ROWS
    learns: float = 0.8
    """The AUC the federated model must reach on the toy data's held-out rows."""
    repeats_within: float = 0.0
    """How far two runs of one seed may be apart. Above 0 only where secret shares are rounded, and the page says so."""
    is_slow: bool = False
    """Whether only `make test-slow` runs it, because a quicker case is much like it."""
    may_be_missing: tuple[str, ...] = ()
    """Messages that a run sends or not, depending on what it finds in the data."""
    draws_in_secret: bool = False
    """Whether noise or initial weights come from a secret of their party: then no two runs are alike."""
    without: tuple[str, ...] = ()
    """Columns that the tables lack: where categories stand in the settings, everybody knows them."""
    tells_scores: bool = False
    """Whether other parties than the lead get scores of rows that only they know, and not predictions alone."""
    asks_all: bool = False
    """Whether rows that only one party knows are scored with the help of all others that hold rows."""
    beats_alone: bool = True
    """Whether it must be better than the label holder alone; where draws are secret, chance decides on twenty rows."""

    @property
    def method(self) -> Method:
        """Return the method that the settings belong to."""
        return method_for(self.config)

    def __str__(self) -> str:
        name = type(self.config).__name__
        kind = "" if getattr(self.config, "protection", "") != "none" else " in the clear"
        kind += f" level {self.config.level}" if hasattr(self.config, "level") else ""
        kind += f" {self.config.exchange} {self.config.completion}" if hasattr(self.config, "exchange") else ""
        kind += " with secret draws" if self.draws_in_secret else ""
        return "-".join([name + kind, *[f"{count}{role}" for role, count in self.roles.items()]])


_SPLITNN: dict[str, Any] = {
    "epochs": 15,
    "batch_size": 32,
    "hidden": (8,),
    "cut_width": 4,
    "learning_rate": 0.02,
    "secret_start": False,
}

_FTL: dict[str, Any] = {
    "width": 3,
    "iterations": 5,
    "learning_rate": 0.3,
    "alignment": "dot",
    "gamma": 0.01,
    "reconstruction": 0.0,
    "safeguard": False,
    "secret_start": False,
    "allow_leak": True,
    "key_size": "insecure_test",
}

_PRADA: dict[str, Any] = {
    "groups": {"first": ("c0", "c1"), "second": ("c2", "c3", "kind")},
    "widths": {"first": (6, 4), "second": (6, 4), "first-second": (6, 4)},
    "dropout": 0.0,
    "epochs": 3,
    "fine_epochs": 3,
    "batch_size": 32,
    "fine_batch_size": 32,
    "learning_rate": 0.02,
    "weight_average": 0.0,
    "head_rate": 0.2,
    "fine_rate": 0.2,
    "expansion": "none",
    "domain_sampling": "uniform",
    "defence": "none",
    "secret_start": False,
    "tie_unseen": False,
    "pictures": False,
    "precision": "float64",
    "key_size": "insecure_test",
}

_FEDCVT: dict[str, Any] = {
    "shared_width": 4,
    "unique_width": 4,
    "epochs": 8,
    "batch_size": 32,
    "own_batch_size": 32,
    "learning_rate": 0.02,
    "head_rate": 0.2,
    "warmup_epochs": 1,
    "secret_start": False,
    "precision": "float64",
    "key_size": "insecure_test",
}
_SEALED: dict[str, Any] = {
    "level": 2,
    "candidates": ("fedcvt",),
    "epochs": 6,
    "learning_rate": 0.05,
    "head_rate": 0.3,
    "warmup_epochs": 0,
    "sealed_pull": "one_sided",
}

# First weights and the noise of what is released come from secrets, so that little is asked of twenty rows' scores.
_MPDL: dict[str, Any] = {
    "bounds": {"c*": (70.0, 134.0)},
    "epsilon": 4.0,
    "folds": 2,
    "fold_rounds": 1,
    "hidden": 8,
    "epochs": 5,
    "batch_size": 32,
    "learning_rate": 0.3,
    "precision": "float64",
    "key_size": "insecure_test",
}
_PENALISED: dict[str, Any] = {
    "generator": "mlp",
    "generator_epochs": 2,
    "dual_weight": 0.005,
    "dual_consent": True,
    "batch_size": 48,
}

# The attributes' holders have nothing but these two columns; see `sensitive_column`.
_FAIRVFL: dict[str, Any] = {
    "attributes": ("s0", "s1"),
    "epochs": 16,
    "batch_size": 64,
    "learning_rate": 0.02,
    "removal_weight": 0.05,
    "code_noise": 0.1,
    "embedding": 8,
    "bins": 4,
    "width": 16,
    "heads": 2,
    "pooling_hidden": 8,
    "task_hidden": (16,),
    "mapper_hidden": (8,),
    "contrastive_hidden": (8,),
    "discriminator_hidden": (8,),
    "dropout": 0.0,
    "checkpoint_every": 2,
    "precision": "float64",
    "secret_start": False,
    "key_size": "insecure_test",
}

CASES = (
    Case(cn.SplitNN(**_SPLITNN), {"label_holder": 1, "feature_holder": 1}),
    Case(
        cn.SplitNN(**{**_SPLITNN, "secret_start": True}),
        {"label_holder": 1, "feature_holder": 2},
        draws_in_secret=True,
        learns=0.7,
        beats_alone=False,
    ),
    Case(
        cn.SecureLR(
            epochs=4,
            batch_size=32,
            learning_rate=0.5,
            momentum=0.0,
            l2=0.0,
            patience=3,
            coefficient_noise=0.0,
            allow_leak=True,
            key_size="insecure_test",
        ),
        {"label_holder": 1, "feature_holder": 1},
    ),
    Case(
        cn.SecureLR(coefficient_noise=0.0, checkpoint_every=3, key_size="insecure_test"),
        {"label_holder": 1, "feature_holder": 2},
        repeats_within=1e-6,
    ),
    Case(
        cn.SecureLR(checkpoint_every=3, key_size="insecure_test"),
        {"label_holder": 1, "feature_holder": 1},
        repeats_within=1e-6,
        draws_in_secret=True,
        is_slow=True,
    ),
    Case(
        cn.FTL(**{**_FTL, "safeguard": True, "labelled_rows": 30, "margin": -1.0}),
        {"source": 1, "target": 1},
        rows=80,
        may_be_missing=("MaskedFit", "OpenedFit", "OwnLabels"),
    ),
    *[
        Case(cn.FTL(**{**_FTL, "protection": protection}), roles, rows=64, is_slow=protection == "paillier")
        for roles in ({"source": 1, "target": 2}, {"source": 2, "target": 1})
        for protection in ("none", "paillier")
    ],
    Case(cn.PrADA(**_PRADA), {"feature_holder": 1, "source": 1, "target": 1}, learns=0.7, repeats_within=1e-6),
    Case(
        cn.PrADA(**{**_PRADA, "protection": "none", "tune": "all", "compare": "none", "fine_epochs": 12}),
        {"feature_holder": 1, "target": 1},
        may_be_missing=("Turn", "TurnSeen"),
    ),
    Case(
        cn.PrADA(**{**_PRADA, "protection": "none", "tune": "unseen", "compare": "vfl"}),
        {"feature_holder": 1, "source": 2, "target": 2},
        learns=0.6,
        is_slow=True,
    ),
    Case(
        # Adam would make much of the last bits of gradients that are almost nothing.
        cn.PrADA(**{**_PRADA, "tune": "all", "optimiser": "SGD", "learning_rate": 0.1, "tune_rate": 0.05}),
        {"feature_holder": 1, "source": 2, "target": 2},
        rows=80,
        learns=0.5,
        repeats_within=1e-6,
        is_slow=True,
    ),
    Case(
        cn.PrADA(**{**_PRADA, "tune": "all", "defence": "marvell", "secret_start": True}),
        {"feature_holder": 1, "source": 1, "target": 1},
        repeats_within=1e-6,
        learns=0.6,
        draws_in_secret=True,
        is_slow=True,
    ),
    Case(cn.FedCVT(**_FEDCVT), {"label_holder": 1, "feature_holder": 1}, learns=0.7),
    Case(
        cn.FedCVT(**{**_FEDCVT, "candidates": ("fedcvt", "mftl", "local"), "memory_bank": 64}),
        {"label_holder": 1, "feature_holder": 2},
        learns=0.6,
        is_slow=True,
    ),
    Case(
        cn.FedCVT(**{**_FEDCVT, "level": 1, "noise": 0.2, "defence": "marvell", "secret_start": True}),
        {"label_holder": 1, "feature_holder": 1},
        learns=0.6,
        draws_in_secret=True,
        beats_alone=False,
        is_slow=True,
    ),
    Case(
        cn.FedCVT(**{**_FEDCVT, **_SEALED}),
        {"label_holder": 1, "feature_holder": 1},
        repeats_within=1e-4,
        learns=0.6,
        draws_in_secret=True,
        beats_alone=False,
        is_slow=True,
    ),
    Case(
        cn.MPDL(**_MPDL),
        {"label_holder": 1, "feature_holder": 1, "collaborator": 1},
        learns=0.6,
        draws_in_secret=True,
        without=("kind",),
        tells_scores=True,
    ),
    Case(
        cn.MPDL(**{**_MPDL, "completion": "ship", "epochs": 6}),
        {"label_holder": 1, "feature_holder": 2, "collaborator": 1},
        learns=0.3,
        draws_in_secret=True,
        beats_alone=False,
        without=("kind",),
        tells_scores=True,
        asks_all=True,
        is_slow=True,
    ),
    Case(
        cn.MPDL(**{**_MPDL, **_PENALISED, "exchange": "interactive", "completion": "ship", "folds": 0}),
        {"label_holder": 1, "feature_holder": 1, "collaborator": 1},
        repeats_within=1e-6,
        rows=80,
        learns=0.0,
        draws_in_secret=True,
        beats_alone=False,
        without=("kind",),
        tells_scores=True,
        asks_all=True,
        is_slow=True,
    ),
    Case(
        cn.MPDL(**{**_MPDL, **_PENALISED, "completion": "secure_block", "block_consent": True, "epochs": 3}),
        {"label_holder": 1, "feature_holder": 1, "collaborator": 1},
        rows=80,
        learns=0.0,
        draws_in_secret=True,
        beats_alone=False,
        without=("kind",),
        tells_scores=True,
        asks_all=True,
        is_slow=True,
    ),
    Case(
        cn.FairVFL(**_FAIRVFL),
        {"label_holder": 1, "feature_holder": 2, "aggregator": 1, "attribute_holder": 2},
        rows=320,
        learns=0.65,
    ),
    Case(
        cn.FairVFL(**{**_FAIRVFL, "secret_start": True, "mapper_step": "merged", "task_cut": "server"}),
        {"label_holder": 1, "feature_holder": 3, "aggregator": 1, "attribute_holder": 2},
        rows=320,
        learns=0.6,
        draws_in_secret=True,
        beats_alone=False,
        is_slow=True,
    ),
)

# Over real TLS the suite takes minutes, so `make test-slow` runs it.
TRANSPORTS = ("memory", pytest.param("grpc", marks=pytest.mark.slow))


def parties_of(case: Case) -> dict[str, tuple[str, ...]]:
    """Return party names by role."""
    return {role: tuple(f"{role}-{number}" for number in range(count)) for role, count in case.roles.items()}


def toy_tables(case: Case, *, with_label: bool = True) -> dict[str, cn.PartyTable]:
    """Return one table per party whose role brings rows; only all columns together explain the label.

    Where one role's rows are scored without the others' columns, all columns follow the same hidden traits instead, as
    nothing could be transferred otherwise. Where rows that not all know are learned from, every party has some.

    Columns hold irrational-looking numbers, so that their bytes are recognisable wherever they turn up. One column of
    each party is text, one has missing values. Who holds an attribute has a single column, which explains nothing.
    """
    generator, rows = np.random.default_rng(3), case.rows
    without = {role.name for role in case.method.roles if not role.has_rows}
    with_rows = {role: parties for role, parties in parties_of(case).items() if role not in without}
    names = [name for parties in with_rows.values() for name in parties]
    centred = {name: generator.normal(size=(rows, 4)) for name in names}
    if case.method.predicting.rows == "own":
        traits = generator.normal(size=(rows, 4))
        centred = {name: traits @ generator.normal(size=(4, 4)) + 0.3 * block for name, block in centred.items()}
        signal = traits @ np.array([1.0, -1.0, 0.5, 0.5])
    else:
        explaining = [name for name in names if name not in with_rows.get("attribute_holder", ())]
        signal = sum(centred[name] @ np.array([1.0, -1.0, 0.5, 0.5]) for name in explaining)
    blocks = {name: block * 7.3 + 101.7 for name, block in centred.items()}
    tables = {}
    holding = {role.name for role in case.method.roles if role.has_label}
    for role, parties in with_rows.items():
        for name in parties:
            frame = pd.DataFrame(blocks[name], columns=[f"c{i}" for i in range(4)])
            frame["kind"] = np.where(centred[name][:, 0] > 0, "canary-yellow", "canary-green")
            frame.loc[::9, "c3"] = np.nan
            frame = frame.drop(columns=list(case.without))
            if role == "attribute_holder":
                frame = sensitive_column(blocks[name], parties.index(name))
            frame["id"] = [f"row-{number}" for number in range(rows)]
            labelled = role in holding and with_label
            if labelled:
                frame["label"] = np.where(signal > 0, "label-canary-yes", "label-canary-no")
            if case.method.predicting.rows == "shared and rest":
                # Everybody lacks other rows, so that each party has rows that nobody else shares with all.
                frame = frame[np.arange(rows) % 5 != len(tables)]
            shuffled = frame.sample(frac=1, random_state=len(tables)).iloc[: rows - 4 * len(tables)]
            tables[name] = cn.PartyTable(shuffled, id="id", label="label" if labelled else None, name=name)
    return tables


def sensitive_column(block: np.ndarray, place: int) -> pd.DataFrame:
    """Return the one column of an attribute's holder: two classes, of which some are unknown, or numbers."""
    if place % 2:
        return pd.DataFrame({f"s{place}": block[:, 1]})
    classes = np.where(block[:, 0] > block[:, 0].mean(), "canary-old", "canary-young").astype(object)
    classes[::9] = None
    return pd.DataFrame({f"s{place}": classes})


def train(case: Case, transport: str = "memory", **options: Any) -> cn.Run:
    """Carry out a run of the case over a transport."""
    options = {"seed": 5, "launch": cn.Launch(transport=transport), **options}
    brought = with_policies(toy_tables(case), options.pop("policies", {}))
    return cn.simulate(options.pop("config", case.config), brought, roles=parties_of(case), **options)
