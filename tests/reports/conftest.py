"""What the page reads of three runs, one for each task.

The page reads attributes only, so that here they are plain values, also such as no run could have.
"""

from __future__ import annotations

from datetime import date
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from colonnade.metrics import Evaluation, evaluate
from colonnade.reports import CheckedLedger, Crossed
from colonnade.session import Alignment, PolicyRules

BREAST_COLUMNS = ["radius", "texture", "perimeter", "area", "smoothness", "compactness", "concavity", "symmetry"]


def binary_evaluation(noise: float, rows: int = 70) -> Evaluation:
    random = np.random.default_rng(5)
    truth = (np.arange(rows) % 3 == 0).astype(int)
    logits = 3 * (2 * truth - 1) + noise * random.normal(size=rows)
    return evaluate("binary", truth, 1 / (1 + np.exp(-logits)), ["benign", "malignant"])


def multiclass_evaluation(strength: float, classes: int = 5, rows: int = 400) -> Evaluation:
    random = np.random.default_rng(6)
    truth = random.integers(0, classes, rows)
    scores = random.dirichlet(np.ones(classes), rows) + strength * np.eye(classes)[truth]
    return evaluate(
        "multiclass", truth, scores / scores.sum(axis=1, keepdims=True), [f"digit {n}" for n in range(classes)]
    )


def regression_evaluation(noise: float, rows: int = 2500) -> Evaluation:
    random = np.random.default_rng(7)
    truth = random.gamma(4, 30_000, rows)
    return evaluate("regression", truth, truth + noise * random.normal(size=rows))


def content(evaluations: dict[str, Evaluation]) -> dict[str, Any]:
    """Return all that a page reads, in a form that is easy to change."""
    return {
        "name": "breast-2026",
        "stage": "train",
        "title": "Breast cancer, hospital and laboratory",
        "method": {
            "name": "splitnn",
            "title": "Split neural network",
            "version": "0.1.0",
            "citation": "Vepakomma, Gupta, Swedish, Raskar: Split learning for health. 2018.",
            "roles": {
                "label_holder": "Holds the labels and its own columns; trains the head.",
                "feature_holder": "Holds further columns; trains its encoder.",
            },
        },
        "started": "2026-11-15T22:10:04Z",
        "seconds": 83.4,
        "launch": "simulation: all parties in one process",
        "marks": ["insecure test keys", "alignment by plain equality: simulation only"],
        "other_versions": {},
        "makes_model": True,
        "findings": {},
        "label_holders": [],
        "seed": 7,
        "digest": "9f2c" * 16,
        "settings": {
            "config": {"epochs": 30, "hidden_widths": [32, 16], "early_stopping": True, "noise": None},
            "evaluate": {"test_fraction": 0.2},
        },
        "alignment": "Shared rows were found by comparing ids in the clear, which a simulation may do.",
        "parties": [
            {
                "name": "hospital",
                "role": "label_holder",
                "rows": 420,
                "shared_rows": 350,
                "columns": [
                    {"name": name, "kind": "number", "missing": index % 3, "distinct": 300 + index}
                    for index, name in enumerate(BREAST_COLUMNS)
                ],
                "label": "diagnosis",
                "encoded_width": 8,
            },
            {
                "name": "laboratory",
                "role": "feature_holder",
                "rows": 500,
                "shared_rows": 350,
                "columns": [
                    {
                        "name": f"assay_{index:02}",
                        "kind": "category" if index % 5 == 0 else "number",
                        "missing": 0,
                        "distinct": 40,
                    }
                    for index in range(22)
                ],
                "label": None,
                "encoded_width": 31,
            },
        ],
        "rows": {"train": 224, "validation": 56, "test": 70},
        "evaluations": evaluations,
        "gains": {},
        "parts": {},
        "consents": {"hospital": None, "laboratory": None},
        "rules": {"hospital": PolicyRules(minimum_shared_rows=300), "laboratory": PolicyRules()},
        "purpose": "Find malignant tumours earlier.",
        "retention": "Delete by 2027-01-31.",
        "curves": [
            {
                "step": step,
                "epoch": step // 4,
                "train_loss": 0.7 * 0.97**step + 0.02 * (step % 3),
                "validation_loss": 0.72 * 0.972**step + 0.0004 * step if step % 4 == 3 else None,
                "validation_metric": 1 - 0.4 * 0.96**step if step % 4 == 3 else None,
            }
            for step in range(120)
        ],
        "chosen_epoch": 24,
        "crossed": [
            {
                "message": "HiddenFeatures",
                "sender": "laboratory",
                "receiver": "hospital",
                "protection": "PLAIN",
                "paper_step": "Sec. 3, forward",
                "reveals": "the cut-layer activations of the batch, from which columns may partly be inferred.",
                "count": 120,
                "bytes": 3_932_160,
                "shapes": ("64 × 16", "32 × 16"),
            },
            {
                "message": "HiddenGradient",
                "sender": "hospital",
                "receiver": "laboratory",
                "protection": "NOISED",
                "paper_step": "Sec. 3, backward",
                "reveals": "noised gradients, which still carry some information about the labels.",
                "count": 120,
                "bytes": 3_932_160,
                "shapes": ("64 × 16", "32 × 16"),
            },
            {
                "message": "BlindedIds",
                "sender": "hospital",
                "receiver": "laboratory",
                "protection": "ENCRYPTED",
                "paper_step": "alignment",
                "reveals": "the number of rows.",
                "count": 1,
                "bytes": 13_860,
                "shapes": ("420 × 33",),
            },
        ],
        "ledgers": [
            {
                "party": "hospital",
                "entries": 241,
                "head": "ab12" * 16,
                "verified": True,
                "agrees_with": ("laboratory",),
            },
            {
                "party": "laboratory",
                "entries": 241,
                "head": "cd34" * 16,
                "verified": True,
                "agrees_with": ("hospital",),
            },
        ],
    }


class _Record(SimpleNamespace):
    """A run as pages read it."""

    served = "together"
    label: dict[str, Any] = {}

    @property
    def evaluation(self) -> Evaluation | None:
        found: Evaluation | None = self.evaluations.get(self.served)
        return found


def record_of(content: dict[str, Any]) -> Any:
    """Return a run with these values."""
    made, about = dict(content), content["method"]
    roles = [SimpleNamespace(name=name, holds=holds) for name, holds in about["roles"].items()]
    own = {"coefficients": {}, "is_elsewhere": False, "has_table": True}
    made["brought"] = {
        party["name"]: own | {name: value for name, value in party.items() if name != "name"}
        for party in made.pop("parties")
    }
    roles_of = {party: about["role"] for party, about in made["brought"].items()}
    agreed = {key: made.pop(key) for key in ("name", "stage", "seed", "purpose", "retention")}
    made["plan"] = SimpleNamespace(
        **agreed,
        keep_until=date(2027, 1, 31),
        alignment=Alignment(),
        digest=lambda: content["digest"],
        role_of=roles_of.__getitem__,
    )
    made["method"] = SimpleNamespace(**{**about, "roles": roles, "version": "0.1.0"})
    made["crossed"] = tuple(Crossed(**one) for one in made["crossed"])
    made["checked_ledgers"] = tuple(CheckedLedger(**one) for one in made.pop("ledgers"))
    return _Record(**made)


def changed(record: Any, **values: Any) -> Any:
    """Return a run in which some values differ."""
    return _Record(**{**vars(record), **values})


@pytest.fixture(scope="session")
def binary() -> Any:
    models = {"together": binary_evaluation(2.0), "alone": binary_evaluation(3.5), "central": binary_evaluation(1.9)}
    return record_of(content(models))


@pytest.fixture(scope="session")
def multiclass() -> Any:
    models = {
        key: multiclass_evaluation(strength) for key, strength in (("together", 0.5), ("alone", 0.2), ("central", 0.55))
    }
    return record_of({**content(models), "title": "Handwritten digits"})


@pytest.fixture(scope="session")
def regression() -> Any:
    models = {
        key: regression_evaluation(noise) for key, noise in (("together", 2e4), ("alone", 4e4), ("central", 1.8e4))
    }
    return record_of({**content(models), "title": "House prices"})
