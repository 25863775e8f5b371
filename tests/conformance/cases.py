"""The methods under conformance. A new method passes the whole suite by adding one line to CASES."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

import colonnade as cn
from colonnade.testing import Case


def sensitive_column(block: np.ndarray, place: int) -> pd.DataFrame:
    """Return the one column of an attribute's holder: two classes, of which some are unknown, or numbers."""
    if place % 2:
        return pd.DataFrame({f"s{place}": block[:, 1]})
    classes = np.where(block[:, 0] > block[:, 0].mean(), "canary-old", "canary-young").astype(object)
    classes[::9] = None
    return pd.DataFrame({f"s{place}": classes})


_SPLITNN: dict[str, Any] = {
    "epochs": 15,
    "batch_size": 32,
    "hidden": (8,),
    "cut_width": 4,
    "learning_rate": 0.02,
    "secret_start": False,
    "minimum_steps": 0,
}

_FTL: dict[str, Any] = {
    "width": 3,
    "iterations": 4,
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
    "shared_width": 2,
    "unique_width": 2,
    "epochs": 2,
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
_THREE = {"label_holder": 1, "feature_holder": 1, "collaborator": 1}
_OF_MPDL: dict[str, Any] = {"draws_in_secret": True, "without": ("kind",), "tells_scores": True}

_FAIRVFL: dict[str, Any] = {
    "attributes": ("s0", "s1"),
    "epochs": 8,
    "batch_size": 64,
    "learning_rate": 0.05,
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
_SENSITIVE = {"attribute_holder": sensitive_column}
_SIX = {"label_holder": 1, "feature_holder": 2, "aggregator": 1, "attribute_holder": 2}

_TWO = {"label_holder": 1, "feature_holder": 1}
_JOINT_THREE = {"label_holder": 1, "feature_holder": 2}

CASES = (
    Case("in the clear", cn.SplitNN(**_SPLITNN), _TWO),
    Case(
        "three parties, secret start",
        cn.SplitNN(**_SPLITNN | {"secret_start": True}),
        _JOINT_THREE,
        draws_in_secret=True,
        learns=0.7,
    ),
    Case(
        "three parties, batches ahead, dropout",
        cn.SplitNN(**_SPLITNN | {"look_ahead": 2, "dropout": 0.1, "checkpoint_every": 3}),
        _JOINT_THREE,
    ),
    Case(
        "marvell and coae",
        cn.SplitNN(**_SPLITNN | {"defence": "marvell+coae", "epochs": 2}),
        _TWO,
        draws_in_secret=True,
        learns=0.0,
    ),
    Case(
        "many epochs",
        cn.SecureLR(epochs=4, coefficient_noise=0.0, allow_leak=True, key_size="insecure_test"),
        _TWO,
    ),
    Case(
        "three parties",
        cn.SecureLR(coefficient_noise=0.0, key_size="insecure_test"),
        _JOINT_THREE,
        repeats_within=1e-6,
    ),
    Case(
        "noised coefficients",
        cn.SecureLR(key_size="insecure_test"),
        _TWO,
        repeats_within=1e-6,
        draws_in_secret=True,
    ),
    Case(
        "paillier, safeguard",
        cn.FTL(**_FTL | {"safeguard": True, "labelled_rows": 30, "margin": -1.0}),
        {"source": 1, "target": 1},
        rows=100,
        may_be_missing=("MaskedFit", "OpenedFit", "OwnLabels"),
    ),
    Case("in the clear, two targets", cn.FTL(**_FTL | {"protection": "none"}), {"source": 1, "target": 2}, rows=64),
    Case("in the clear, two sources", cn.FTL(**_FTL | {"protection": "none"}), {"source": 2, "target": 1}, rows=64),
    Case(
        "paillier, two targets, rows revealed",
        cn.FTL(**_FTL | {"width": 2, "iterations": 3, "reveal": "rows"}),
        {"source": 1, "target": 2},
        rows=40,
        learns=0.0,
    ),
    Case(
        "paillier",
        cn.PrADA(**_PRADA),
        {"feature_holder": 1, "source": 1, "target": 1},
        learns=0.7,
        # Shares are rounded as they are drawn, and Adam makes much of last bits: 2.4e-6 apart in 12 runs.
        repeats_within=1e-5,
    ),
    Case(
        "in the clear, no source, all tuned",
        cn.PrADA(**_PRADA | {"protection": "none", "tune": "all", "compare": "none", "fine_epochs": 12}),
        {"feature_holder": 1, "target": 1},
        may_be_missing=("Turn", "TurnSeen"),
    ),
    Case(
        "in the clear, two banks each, unseen tuned",
        cn.PrADA(**_PRADA | {"protection": "none", "tune": "unseen", "compare": "vfl"}),
        {"feature_holder": 1, "source": 2, "target": 2},
        learns=0.6,
    ),
    Case(
        "paillier, two targets, all tuned, marvell, secret start",
        # Adam would make much of the last bits of gradients that are almost nothing.
        cn.PrADA(
            **_PRADA
            | {
                "tune": "all",
                "tune_rate": 0.05,
                "optimizer": "SGD",
                "learning_rate": 0.1,
                "epochs": 1,
                "fine_epochs": 1,
            }
            | {"defence": "marvell", "secret_start": True, "batch_size": 16, "fine_batch_size": 16, "compare": "none"}
        ),
        {"feature_holder": 1, "source": 1, "target": 2},
        rows=60,
        learns=0.0,
        # Shares are rounded as they are drawn, and marvell's noise follows from gradients: 8e-7 apart in 14 runs.
        repeats_within=1e-5,
        draws_in_secret=True,
    ),
    Case(
        "in the clear, no source, marvell and coae",
        cn.PrADA(
            **_PRADA
            | {"protection": "none", "defence": "marvell+coae", "tune": "all", "compare": "none", "fine_epochs": 2}
        ),
        {"feature_holder": 1, "target": 1},
        learns=0.0,
        draws_in_secret=True,
        may_be_missing=("Turn", "TurnSeen"),
    ),
    Case("level 0", cn.FedCVT(**_FEDCVT), _TWO, learns=0.7),
    Case(
        "level 0, three parties",
        cn.FedCVT(**_FEDCVT | {"candidates": ("fedcvt", "mftl", "local"), "memory_bank": 64}),
        _JOINT_THREE,
        rows=240,
        learns=0.6,
    ),
    Case(
        "level 1, marvell, secret start",
        cn.FedCVT(**_FEDCVT | {"level": 1, "noise": 0.2, "defence": "marvell", "secret_start": True}),
        _TWO,
        learns=0.6,
        draws_in_secret=True,
    ),
    Case(
        "level 2",
        cn.FedCVT(**_FEDCVT | _SEALED),
        _TWO,
        rows=80,
        repeats_within=1e-4,
        learns=0.0,
        draws_in_secret=True,
    ),
    Case("noise by cell", cn.MPDL(**_MPDL), _THREE, learns=0.6, **_OF_MPDL),
    Case(
        "noise by row, shipped",
        cn.MPDL(**_MPDL | {"mechanism": "row_gaussian", "completion": "ship", "epochs": 6}),
        {"label_holder": 1, "feature_holder": 2, "collaborator": 1},
        learns=0.3,
        asks_all=True,
        **_OF_MPDL,
    ),
    Case(
        "the paper's noise shared, on everything",
        cn.MPDL(**_MPDL | {"mechanism": "lemma_shared", "paper_mode": True, "dp_scope": "all", "augment": False}),
        _THREE,
        learns=0.0,
        **_OF_MPDL,
    ),
    Case(
        "nothing released, step by step, dual penalty, shipped",
        cn.MPDL(
            **_MPDL
            | _PENALISED
            | {"mechanism": "none", "exchange": "interactive", "completion": "ship", "folds": 0, "epochs": 2}
        ),
        _THREE,
        repeats_within=1e-6,
        rows=60,
        learns=0.0,
        asks_all=True,
        **_OF_MPDL,
    ),
    Case(
        "the paper's noise, secure block, dual penalty",
        cn.MPDL(
            **_MPDL
            | _PENALISED
            | {
                "mechanism": "lemma",
                "paper_mode": True,
                "completion": "secure_block",
                "block_consent": True,
                "epochs": 2,
            }
        ),
        _THREE,
        rows=60,
        learns=0.0,
        asks_all=True,
        **_OF_MPDL,
    ),
    Case("robust", cn.FairVFL(**_FAIRVFL), _SIX, rows=320, learns=0.65, columns=_SENSITIVE),
    Case(
        "robust, at the server, merged, secret start",
        cn.FairVFL(**_FAIRVFL | {"secret_start": True, "mapper_step": "merged", "task_cut": "server", "epochs": 4}),
        _SIX | {"feature_holder": 3},
        columns=_SENSITIVE,
        learns=0.0,
        draws_in_secret=True,
    ),
    Case(
        "paper, sequential, labels as they are",
        cn.FairVFL(
            **_FAIRVFL
            | {
                "removal": "paper",
                "mapper_step": "sequential",
                "protected_noise": 0.0,
                "label_epsilon": None,
                "epochs": 4,
            }
        ),
        _SIX,
        columns=_SENSITIVE,
        learns=0.0,
    ),
)

PROTECTIVE = (
    "protection",
    "defence",
    "level",
    "reveal",
    "mechanism",
    "dp_scope",
    "exchange",
    "completion",
    "removal",
    "task_cut",
    "mapper_step",
)
"""Settings that decide what is sent, and how it is protected: every choice of them is in some case."""
