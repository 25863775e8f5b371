"""What a model says about rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from colonnade.data import PartyTable
from colonnade.metrics import USUAL, Evaluation, Gain, Threshold, evaluate, gains, given_threshold

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PROBABILITY", "Scores"]

PROBABILITY = "probability_"
"""Begins the name of a column that says how likely a class is; the class follows."""


@dataclass(frozen=True)
class Scores:
    """What the model says about rows, at the party that may know it."""

    task: str
    rows: np.ndarray[Any, Any]
    """Positions in the aligned order."""
    values: np.ndarray[Any, Any]
    """Probability of the second class, probabilities of all classes, or predicted values in the label's own units."""
    truth: np.ndarray[Any, Any] | None = None
    classes: tuple[Any, ...] = ()
    is_decided: bool = False
    """Whether these are predictions only, as class numbers: a party that may not know how sure they are gets them."""
    positions: np.ndarray[Any, Any] | None = None
    """Rows of the party's own table, where others than the aligned ones are scored too."""
    known_to: tuple[str, ...] = ()
    """With positions: who knows each row."""
    threshold: Threshold = USUAL
    """From which probability on a row of two classes is called positive."""

    def at(self, threshold: float | None) -> Scores:
        """Return the same with a threshold that somebody set, if one is given."""
        return self if threshold is None else replace(self, threshold=given_threshold(threshold))

    def evaluation(self) -> Evaluation | None:
        """Judge held-out scores, where there are any."""
        if self.truth is None or not len(self.truth):
            return None
        return evaluate(self.task, self.truth, self.values, self.classes, self.threshold)

    def gains_over(self, other: Scores) -> dict[str, Gain]:
        """Compare held-out scores with another model's, where both are of the same rows."""
        if self.truth is None or not len(self.truth) or not np.array_equal(self.rows, other.rows):
            return {}
        return gains(self.task, self.truth, self.values, other.values)

    def as_table(self, table: PartyTable, aligned: np.ndarray[Any, Any]) -> pd.DataFrame:
        """Return ids, probabilities and predictions of rows of a table, by the places of those that are aligned."""
        import pandas as pd

        # In the order of the party's own table, as people expect; the agreed order looks random to them.
        positions = aligned if self.positions is None else self.positions
        order = np.argsort(positions)
        taken = table.take(positions[order])
        values = self.values[order]
        columns: dict[str, Any] = dict(taken.id_parts)
        if self.known_to:
            columns["known to"] = np.array(self.known_to, dtype=object)[order]
        classes = pd.Series(list(self.classes))
        if self.task == "regression":
            columns["prediction"] = values
        elif self.is_decided:
            columns["prediction"] = classes[values].to_numpy()
        elif self.task == "binary":
            columns[f"{PROBABILITY}{self.classes[1]}"] = values
            columns["prediction"] = classes[(values >= self.threshold.value).astype(int)].to_numpy()
        else:
            columns |= {f"{PROBABILITY}{name}": values[:, place] for place, name in enumerate(self.classes)}
            columns["prediction"] = classes[values.argmax(axis=1)].to_numpy()
        # In one go: pandas warns of frames that grew by a hundred columns one by one.
        return pd.DataFrame(columns)
