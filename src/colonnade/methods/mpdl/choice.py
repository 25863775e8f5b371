"""Judge the two models, choose one, and say what was found."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from colonnade.exchanges.labels import OwnLabels
from colonnade.methods.mpdl.config import COMPLETED, JOINT, MPDL
from colonnade.methods.mpdl.generators import r_squared
from colonnade.methods.mpdl.rows import OwnTable
from colonnade.nn import row_losses
from colonnade.session import Finding

__all__ = [
    "SHARED",
    "SPOKEN",
    "Comparison",
    "Quality",
    "budget_finding",
    "generator_finding",
    "quality_of",
    "situations_finding",
]

SHARED = "shared"
"""Rows that all holders know; other situations are named by the one holder that knows a row."""
SPOKEN = {JOINT: "shared rows only", COMPLETED: "with completed rows"}
_USED = {JOINT: "that learned from shared rows only", COMPLETED: "that also learned from completed rows"}


def spoken(situation: str) -> str:
    """Return a situation in words."""
    return "all holders" if situation == SHARED else f"{situation} only"


def quality_of(labels: OwnLabels, logits: torch.Tensor, targets: torch.Tensor) -> tuple[float, float]:
    """Return accuracy, or R² for numbers, and the mean loss."""
    loss = float(
        row_losses(labels.task, logits, targets.to(logits.dtype) if labels.task != "multiclass" else targets).mean()
    )
    if labels.task == "multiclass":
        return float((logits.argmax(dim=1) == targets).double().mean()), loss
    if labels.task == "binary":
        return float(((logits[:, 0] >= 0) == (targets > 0.5)).double().mean()), loss
    spread = float(((targets - targets.mean()) ** 2).mean())
    return (1.0 - loss / spread if spread > 0.0 else 0.0), loss


Quality = tuple[float, float]
"""Accuracy, or R², and the mean loss."""


@dataclass
class Comparison:
    """How both models did on rows that they had not seen, part by part."""

    rounds: list[dict[str, Quality]] = field(default_factory=list)

    def add(self, found: Mapping[str, Quality]) -> float:
        """Note one part, and return what completed rows gained."""
        self.rounds.append(dict(found))
        return found[COMPLETED][0] - found[JOINT][0]

    @property
    def chosen(self) -> str:
        """Return the better model by its mean; completed rows must win, and a tie is broken by the loss."""
        if not self.rounds:
            return COMPLETED
        quality, loss = (
            float(np.mean([one[COMPLETED][place] - one[JOINT][place] for one in self.rounds])) for place in (0, 1)
        )
        return COMPLETED if quality > 0.0 or (quality == 0.0 and loss < 0.0) else JOINT

    def finding(self, config: MPDL, task: str) -> Finding:
        """Say what was compared and which model is used."""
        what = "R²" if task == "regression" else "accuracy"
        rows = tuple(
            (str(place), *(f"{one[name][0]:.4f}" for name in (JOINT, COMPLETED)), f"{gain:+.4f}")
            for place, one in enumerate(self.rounds, 1)
            for gain in [one[COMPLETED][0] - one[JOINT][0]]
        )
        text = f"For rows that all holders know, the model {_USED[self.chosen]} is used. " + (
            f"Both were judged by {what} on rows that neither had learned from, and a tie is broken by the loss."
            if self.rounds
            else "Nothing was held out to compare by; set folds or evaluate.validation_fraction."
        )
        if len(self.rounds) > 1 and not config.strict_folds and config.generator == "mlp":
            text += " Generators go on from part to part, so that all but the first comparison look a little too good."
        return Finding(
            name="comparison",
            title="Do completed rows help?",
            text=text,
            columns=("part", SPOKEN[JOINT], SPOKEN[COMPLETED], "gain") if rows else (),
            rows=rows,
            values={"rounds": self.to_json(), "chosen": self.chosen},
        )

    def to_json(self) -> list[dict[str, Any]]:
        """Return plain values."""
        return [{name: list(pair) for name, pair in one.items()} for one in self.rounds]

    @classmethod
    def from_json(cls, document: list[dict[str, Any]]) -> Comparison:
        """Read what `to_json` wrote."""
        return cls([{name: (pair[0], pair[1]) for name, pair in one.items()} for one in document])


def situations_finding(
    labels: OwnLabels, found: Mapping[str, Mapping[str, Quality]], comparison: Comparison
) -> Finding:
    """Say how good both models are on test rows, by who knows a row."""
    what = "R²" if labels.task == "regression" else "accuracy"
    rows = tuple(
        (
            spoken(situation),
            *(f"{models[name][0]:.4f}" if name in models else "" for name in (JOINT, COMPLETED)),
            SPOKEN[comparison.chosen if situation == SHARED else COMPLETED],
        )
        for situation, models in found.items()
    )
    return Finding(
        name="situations",
        title="Rows that all holders know, and rows that only one knows",
        text=f"The {what} on held-out rows, with the other holders' columns left out where only one is named.",
        columns=("known to", SPOKEN[JOINT], SPOKEN[COMPLETED], "used"),
        rows=rows,
        values={situation: {name: pair[0] for name, pair in models.items()} for situation, models in found.items()},
    )


def budget_finding(table: OwnTable) -> Finding:
    """Say what the release of columns costs a row."""
    budget = table.budget
    finite = [one for one in budget.cells.values() if math.isfinite(one)]
    claim = budget.paper_claim
    rows = (
        ("one cell", f"{max(finite):.4g}" if finite else "no bound"),
        ("a whole row, summed over its cells", _shown(budget.row_basic)),
        (f"a whole row by zCDP, at delta {budget.delta:.2g}", _shown(budget.row_zcdp[1])),
        *([("what the paper would print, by a lemma that does not hold", _shown(claim))] if claim is not None else []),
    )
    return Finding(
        name="privacy",
        title="What the released columns tell of a row",
        text=budget.text(),
        columns=("of", "epsilon"),
        rows=rows,
        values=budget.to_json(),
    )


def generator_finding(
    names: tuple[str, ...], generated: torch.Tensor, targets: torch.Tensor, *, is_noised: bool
) -> Finding:
    """Say how well others' columns can be generated, against what was released of them."""
    noised = "Noise makes up most of the released columns' spread, so that R² stays low even for a good generator. "
    error = torch.nanmean((generated.double() - targets).abs(), dim=0)
    mean = torch.nanmean((targets.nanmean(dim=0) - targets).abs(), dim=0)
    explained = r_squared(generated, targets)
    order = torch.argsort(torch.nan_to_num(error - mean, nan=0.0))[:20]
    rows = tuple((names[int(place)], f"{error[place]:.4f}", f"{mean[place]:.4f}") for place in order)
    return Finding(
        name="generated columns",
        title="How well the other side's columns can be generated",
        text=f"R² over all {len(names)} columns: {explained:.3f}, on the rows it learned from and against the "
        f"columns as released. {noised if is_noised else ''}Below, the mean absolute error of columns from 0 to 1, "
        "beside that of their mean.",
        columns=("column", "generated", "its mean"),
        rows=rows,
        values={"r_squared": explained, "columns": len(names)},
    )


def _shown(value: float) -> str:
    return f"{value:.4g}" if math.isfinite(value) else "no bound"
