"""Which model serves: the federated one, one of own columns alone, or their average.

All candidates score the same rows, which none of them has learned from. A row's loss (the negative logarithm of the
probability given to its class, or the squared error) differs between two candidates by little beside how much losses
vary from row to row, so the mean of these differences and its standard error tell two models apart with far fewer rows
than two AUCs do. Whatever is not clearly worse than the best on these rows serves; where that is more than one
candidate, their average does. Without any row the federated model, the first candidate, serves.

Tried and dropped: to let the average serve only where its own loss is below the federated model's. On strangers' tables
that gained 0.005 on average, but in `benchmarks.choice` 5.9 % of draws were then much worse, in place of 4.1 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.errors import UsageError
from colonnade.metrics import TASKS

__all__ = ["Choice", "Numbers", "choose", "row_losses"]

Numbers = npt.NDArray[np.float64]

FEWEST_ROWS = 5
"""With fewer rows nothing is compared."""
CLEARLY = 2.0
"""By how many standard errors a candidate must be worse than the best to be left out."""
# A probability below this counts as this: one row must not decide alone.
_LEAST_PROBABILITY = 1e-3

_WORDS = {"together": "the federated model", "alone": "the model of own columns alone"}


@dataclass(frozen=True)
class Choice:
    """The weight of every candidate in what serves, with the reason in words."""

    weights: Mapping[str, float]
    """By candidate, the federated model first; they sum to 1."""
    sentence: str
    """Which model serves and why, for people: counts and mean losses, no row's value."""
    qualities: Mapping[str, float]
    """The mean loss on the rows compared, by candidate and for `average`; lower is better. Empty without rows."""

    @property
    def name(self) -> str:
        """Return what serves: a candidate's name, or `average of … and …`."""
        serving = [name for name, weight in self.weights.items() if weight > 0]
        return serving[0] if len(serving) == 1 else f"average of {_listed(serving)}"

    def served(self, scores: Mapping[str, Numbers]) -> Numbers:
        """Return the scores of what serves: the weighted mean of the candidates' scores of the same rows.

        Candidates without weight need not be there.
        """
        serving = {name: weight for name, weight in self.weights.items() if weight > 0}
        if missing := [name for name in serving if name not in scores]:
            raise UsageError(f"{self.name} serves, and there are no scores of {_listed(missing)}. Pass them too.")
        parts = [weight * np.asarray(scores[name], np.float64) for name, weight in serving.items()]
        total: Numbers = np.sum(parts, axis=0)
        return total

    def to_json(self) -> dict[str, Any]:
        """Return the choice for JSON; `from_json` gives back an equal one."""
        return {"weights": dict(self.weights), "sentence": self.sentence, "qualities": dict(self.qualities)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Choice:
        """Return the choice that `to_json` wrote."""
        try:
            weights = {str(name): float(weight) for name, weight in saved["weights"].items()}
            qualities = {str(name): float(loss) for name, loss in saved["qualities"].items()}
            choice = cls(weights, str(saved["sentence"]), qualities)
        except (AttributeError, KeyError, TypeError, ValueError):
            choice = cls({}, "", {})
        if not choice.weights or min(choice.weights.values()) < 0 or abs(sum(choice.weights.values()) - 1) > 1e-9:
            raise UsageError("This is not a choice: it needs 'weights' that sum to 1, a 'sentence' and 'qualities'.")
        return choice


def choose(
    task: str, truth: Numbers, candidates: Mapping[str, Numbers], *, rows_are: str = "validation rows"
) -> Choice:
    """Compare candidates' scores of the same rows; the first is kept unless it is clearly worse.

    Scores are those of rows that no candidate has learned from: the probability of the second class, shape (rows,),
    class probabilities, shape (rows, classes), or standardised predictions, shape (rows,). ``truth`` holds class
    numbers or standardised labels.
    """
    names = list(candidates)
    if not names:
        raise UsageError("There is no candidate to choose. Pass at least one model's scores.")
    scores = {name: np.asarray(values, np.float64) for name, values in candidates.items()}
    losses = {name: row_losses(task, truth, values) for name, values in scores.items()}
    first, count = names[0], len(losses[names[0]])
    if len(names) == 1:
        return _choice(names, [first], "", {name: float(one.mean()) for name, one in losses.items() if count})
    if not count:
        return _choice(names, [first], f"there are no {rows_are} to compare it on", {})
    qualities = {name: float(values.mean()) for name, values in losses.items()}
    average: Numbers = np.mean(list(scores.values()), axis=0)
    qualities["average"] = float(row_losses(task, truth, average).mean())
    # What scores as the first does adds nothing to it.
    others = [name for name in names[1:] if not np.array_equal(scores[name], scores[first])]
    if not others:
        return _choice(names, [first], f"nothing else scores the {count} {rows_are} differently", qualities)
    if count < FEWEST_ROWS:
        return _choice(names, [first, *others], f"too few {rows_are} ({count}) to tell which is better", qualities)

    best = min([first, *others], key=lambda name: qualities[name])
    measure = "mean squared error" if task == "regression" else "log loss"
    reasons = [f"on {count} {rows_are} the {measure} of {_words(best)} is {qualities[best]:.3f}"]
    serving = []
    for name in [first, *others]:
        difference = losses[name] - losses[best]
        gap, error = float(difference.mean()), float(difference.std(ddof=1)) / sqrt(count)
        is_worse = gap > CLEARLY * error
        if not is_worse:
            serving.append(name)
        if name != best:
            verdict = "clearly worse" if is_worse else "perhaps by chance"
            reasons.append(f"that of {_words(name)} is higher by {gap:.3f} ± {error:.3f}, {verdict}")
    return _choice(names, serving, "; ".join(reasons), qualities)


def row_losses(task: str, truth: Numbers, scores: Numbers) -> Numbers:
    """Return each row's loss: the negative logarithm of its class's probability, or the squared error."""
    if task not in TASKS:
        raise UsageError(f"There is no task '{task}'. Use one of {', '.join(TASKS)}.")
    actual = np.asarray(truth)
    if actual.ndim != 1 or scores.shape[:1] != actual.shape or scores.ndim != (2 if task == "multiclass" else 1):
        raise UsageError(f"Scores of shape {scores.shape} do not fit {len(actual)} rows and the task '{task}'.")
    if not np.all(np.isfinite(scores)):
        raise UsageError("The scores to compare are not all finite: a model diverged. Try a lower learning rate.")
    losses: Numbers
    if task == "regression":
        losses = (actual - scores) ** 2
        return losses
    if task == "binary":
        given = np.where(actual == 1, scores, 1 - scores)
    else:
        given = scores[np.arange(len(actual)), actual.astype(np.int64)]
    losses = -np.log(np.clip(given, _LEAST_PROBABILITY, 1.0))
    return losses


def _choice(names: list[str], serving: list[str], reason: str, qualities: Mapping[str, float]) -> Choice:
    weights = {name: 1 / len(serving) if name in serving else 0.0 for name in names}
    words = _listed([_words(name) for name in serving])
    sentence = f"{words if len(serving) == 1 else f'the average of {words}'} serves{reason and ': '}{reason}."
    return Choice(weights, sentence[0].upper() + sentence[1:], qualities)


def _words(name: str) -> str:
    return _WORDS.get(name, name)


def _listed(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
