"""Whether labels given to partners' rows can be trusted: estimated on shared rows whose label is hidden for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.fedcvt.config import FedCVT
from colonnade.methods.fedcvt.objective import Outcome
from colonnade.methods.fedcvt.rows import OwnTable

__all__ = ["PseudoLabelWatch"]

_NOTHING = torch.zeros((), dtype=torch.float64)
# Fewer labelled rows than this say nothing about a precision.
_LEAST_ROWS = 10


def largest_share(share: float) -> float:
    """Return how large a part of given labels a class may take that has this share of true ones.

    Twice its share, but never all: half of what the other classes have must be left to them.
    """
    return min(2.0 * share, (1.0 + share) / 2.0)


class PseudoLabelWatch:
    """Counts kept rows by epoch, estimates how many labels are right, and switches them off when too few are.

    While they are off it counts what would be kept, so that they stay off until that is better.
    """

    def __init__(self, config: FedCVT, labels: OwnLabels, table: OwnTable) -> None:
        self._config, self._labels = config, labels
        self._truth = labels.targets[torch.from_numpy(table.validation)]
        learned = torch.from_numpy(np.concatenate([table.train, table.own]))
        self._shares = None
        if labels.task != "regression":
            counts = torch.bincount(labels.targets[learned].long(), minlength=max(len(labels.encoder.classes), 2))
            self._shares = counts.double() / max(len(learned), 1)
        self.is_on = True
        self._seen, self._kept = 0, 0
        self._classes = torch.zeros(0 if self._shares is None else len(self._shares), dtype=torch.int64)
        self._right, self._judged = 0, 0
        self._terms: dict[str, torch.Tensor] = {}
        self.history: list[dict[str, Any]] = []

    @property
    def is_of_numbers(self) -> bool:
        """Tell whether labels are numbers and not classes."""
        return self._shares is None

    def saw(self, outcome: Outcome) -> None:
        """Count a step's kept rows and the labels that classifiers agree on, and add up its losses."""
        for name, term in outcome.terms.items():
            self._terms[name] = self._terms.get(name, _NOTHING) + term.double()
        for kept, labels in zip(outcome.kept, outcome.labels, strict=True):
            self._seen += len(kept)
            self._kept += int(kept.sum())
            if self._shares is not None:
                self._classes += torch.bincount(labels.long(), minlength=len(self._classes))

    def judge(self, kept: torch.Tensor, labels: torch.Tensor) -> None:
        """Compare what a partner's rows would be labelled with the truth, for rows whose truth is known."""
        self._judged += int(kept.sum())
        if self._labels.task == "regression":
            right = (labels - self._truth).abs() < self._config.agreement
        else:
            right = labels.to(self._truth.dtype) == self._truth
        self._right += int((right & kept).sum())

    def end_epoch(self, epoch: int) -> dict[str, float]:
        """Decide about the next epoch, and return this one's numbers."""
        found: dict[str, float] = {}
        if self._seen:
            found["kept"] = self._kept / self._seen
        reason = ""
        if self._judged >= _LEAST_ROWS:
            found["precision"] = self._right / self._judged
            if self._labels.task != "regression" and found["precision"] < self._config.threshold:
                reason = "precision"
        agreed = int(self._classes.sum())
        if self._shares is not None and agreed >= _LEAST_ROWS:
            given = self._classes.double() / agreed
            largest = int(given.argmax())
            if float(given[largest]) > largest_share(float(self._shares[largest])):
                reason = "one class"
        self.is_on = not reason
        if found:
            self.history.append(found | {"epoch": epoch + 1, "off": reason})
        found |= self._ratios()
        self._seen = self._kept = self._right = self._judged = 0
        self._classes = torch.zeros_like(self._classes)
        self._terms = {}
        return found

    def _ratios(self) -> dict[str, float]:
        """Return how large each term beside the heads' losses is, in parts of these: weights are set by that."""
        is_head = {name: name == "joint" or name.startswith(("party", "common")) for name in self._terms}
        heads = sum(float(term) for name, term in self._terms.items() if is_head[name])
        beside = {name: float(term) for name, term in self._terms.items() if not is_head[name]}
        return {f"ratio of {name}": term / heads for name, term in beside.items()} if heads else {}

    def final_precision(self) -> float | None:
        """Return how many labels are right of those judged since the last epoch ended, if enough were."""
        return self._right / self._judged if self._judged >= _LEAST_ROWS else None

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint needs."""
        return {
            "is_on": self.is_on,
            "counts": [self._seen, self._kept, self._right, self._judged],
            "classes": self._classes.tolist(),
            "terms": {name: float(term) for name, term in self._terms.items()},
            "history": self.history,
        }

    def load_state(self, document: Mapping[str, Any]) -> None:
        """Go on from a checkpoint."""
        self.is_on = bool(document["is_on"])
        self._seen, self._kept, self._right, self._judged = document["counts"]
        self._classes = torch.tensor(document["classes"], dtype=torch.int64)
        self._terms = {name: torch.tensor(term, dtype=torch.float64) for name, term in document["terms"].items()}
        self.history = [dict(one) for one in document["history"]]
