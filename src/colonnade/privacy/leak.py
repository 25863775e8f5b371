"""What an attack on noised gradients finds out, measured by the party that knows both the noise and the labels.

The attacker knows where the means of the classes lie and how much noise there is, and weighs every release accordingly
(Fisher's discriminant). It does not know the noise itself.

A receiver of gradients also has columns. What the releases say of a row is a weak label for it: from the weak labels of
some rows the attacker learns what columns say, and puts that together with the releases of other rows. No bound on
gradients covers this. The measuring party does not have the columns; numbers that it got for the same rows, such as
activations, stand in for them, and columns may tell more than these. So everything here is a measurement of two
attacks, and not a bound on others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["AreaUnderRoc", "LeakMeter", "MeasuredLeak"]

Array = np.ndarray[Any, Any]

# One row in so many.
_SUREST = 20
# Columns are kept of so many rows: more make the attack with them hardly stronger. Fewer than the least say nothing.
_MOST_ROWS, _LEAST_ROWS = 20_000, 20
_LARGEST = 1e6
_LANDMARKS, _REPEATS = 200, 6
_COLUMNS = "columns."
# How much the attacker may trust columns, against releases.
_TRUST = (0.0, 0.25, 0.5, 1.0, 2.0, 4.0)

AreaUnderRoc = Callable[[Array, Array], float]
"""The AUC of scores, by which rows are positive: `colonnade.metrics` has one."""


@dataclass(frozen=True, kw_only=True)
class MeasuredLeak:
    """How well labels could be told from what was sent.

    ``bound`` is about one release of a row, for Gaussian classes; with several releases of one row the budgets add up,
    and ``bound_over_all_releases`` is about as many of them as the most released row had. Both are about gradients
    alone, so that ``with_columns`` may be above them. For classes the measure is an AUC, of which 0.5 is chance and
    which is not turned round if it is below. For numbers it is the share of their variance that a linear estimate
    explains.
    """

    measure: str
    """Either ``auc`` or ``explained``."""
    budget: float
    bound: float
    bound_over_all_releases: float
    releases_per_row: int
    """The most that one row had."""
    without_noise: float | None
    """One release, had it been sent as it was. None where no batch had rows of two classes."""
    of_one_release: float | None
    over_all_releases: float | None
    with_columns: float | None = None
    """All releases together with what stands in for the receiver's columns. None where nothing does."""
    by_epoch: tuple[float, ...] = ()
    """`of_one_release`, epoch by epoch."""
    surest_right: float | None = None
    """With two classes: how many of the twentieth of a batch that the attacker is surest of it gets right.

    No bound holds for them: a row with a far larger gradient than others of its class stands out of the noise.
    """

    @property
    def auc_of_one_release(self) -> float | None:
        """Return the attack's AUC within a batch, on the mean over all batches; None for numbers."""
        return self.of_one_release if self.measure == "auc" else None

    @property
    def auc_over_all_releases(self) -> float | None:
        """Return the attack's AUC from all releases of every row together; None for numbers."""
        return self.over_all_releases if self.measure == "auc" else None

    def to_json(self) -> dict[str, Any]:
        """Return all of it as JSON values."""
        return {**vars(self), "by_epoch": list(self.by_epoch)}


class LeakMeter:
    """Collects what an attacker would conclude from each release, row by row."""

    def __init__(self, labels: Array, classes: int, area: AreaUnderRoc) -> None:
        """Take the labels of all rows by place: numbers of classes, or numbers if there are no classes (0)."""
        self._labels, self._classes, self._area = np.asarray(labels), classes, area
        self._evidence = np.zeros((len(self._labels), classes if classes > 2 else 1))
        self._releases = np.zeros(len(self._labels), np.int64)
        # Weight, weighted measure without noise, the same with it: of this epoch, and of all.
        self._epoch, self._total = np.zeros(3), np.zeros(3)
        # How many rows the attacker was surest of, and how many of them it got right.
        self._surest = np.zeros(2, np.int64)
        self._by_epoch: list[float] = []
        # Where columns of a row are kept, -1 if nowhere; and the latest seen of each row, by where it is from.
        self._slots = np.full(len(self._labels), -1)
        self._columns: dict[str, Array] = {}

    def saw(self, rows: Array, columns: Array, source: str = "columns") -> None:
        """Keep numbers that stand in for the receiver's columns of some rows; those that come later replace them."""
        used, most = int(self._slots.max(initial=-1)) + 1, min(len(self._slots), _MOST_ROWS)
        new = np.unique(rows[self._slots[rows] < 0])[: most - used]
        self._slots[new] = np.arange(used, used + len(new))
        if source not in self._columns:
            self._columns[source] = np.zeros((most, columns.shape[1]), np.float32)
        slots = self._slots[rows]
        # Whatever numbers a receiver sent must not end the run here.
        sound = np.nan_to_num(columns[slots >= 0]).clip(-_LARGEST, _LARGEST)
        self._columns[source][slots[slots >= 0]] = sound

    def add(self, rows: Array, clean: Array | None = None, noised: Array | None = None) -> None:
        """Note one release of some rows, and the evidence in it; none if it was noise only."""
        self._releases[rows] += 1
        if clean is None or noised is None:
            return
        self._evidence[rows] += noised
        weight, without = self._judge(rows, clean)
        if weight:
            found = np.array([weight, weight * without, weight * self._judge(rows, noised)[1]])
            self._epoch += found
            self._total += found
        if self._classes == 2:
            surest = np.argsort(-np.abs(noised[:, 0]), kind="stable")[: max(len(rows) // _SUREST, 1)]
            is_right = (noised[surest, 0] > 0.0) == (self._labels[rows[surest]] == 1)
            self._surest += (len(surest), int(is_right.sum()))

    def end_epoch(self) -> float | None:
        """Close an epoch and return how well the attack did on one release in it."""
        weight, _, noised = self._epoch
        self._epoch = np.zeros(3)
        if not weight:
            return None
        self._by_epoch.append(float(noised / weight))
        return self._by_epoch[-1]

    def measured(self, budget: float, bound: float, bound_of_releases: Callable[[float, float], float]) -> MeasuredLeak:
        """Return what was measured beside the bounds that were promised."""
        weight, without, noised = self._total
        released = np.flatnonzero(self._releases)
        most = int(self._releases.max(initial=0))
        weight_over_all, over_all = self._judge(released, self._evidence[released]) if weight else (0.0, 0.0)
        return MeasuredLeak(
            measure="auc" if self._classes else "explained",
            budget=budget,
            bound=bound,
            bound_over_all_releases=bound_of_releases(budget, most),
            releases_per_row=most,
            without_noise=float(without / weight) if weight else None,
            of_one_release=float(noised / weight) if weight else None,
            over_all_releases=over_all if weight_over_all else None,
            with_columns=self._with_columns() if weight_over_all else None,
            by_epoch=tuple(self._by_epoch),
            surest_right=float(self._surest[1] / self._surest[0]) if self._surest[0] else None,
        )

    def state(self) -> dict[str, torch.Tensor]:
        """Return everything a checkpoint needs."""
        kept = {
            "evidence": self._evidence,
            "releases": self._releases,
            "totals": np.stack([self._epoch, self._total]),
            "by_epoch": np.array(self._by_epoch),
            "surest": self._surest,
            "slots": self._slots,
        }
        kept |= {f"{_COLUMNS}{source}": columns for source, columns in self._columns.items()}
        return {name: torch.from_numpy(value.copy()) for name, value in kept.items()}

    def load_state(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Take up what `state` returned."""
        self._evidence = tensors["evidence"].numpy().copy()
        self._releases = tensors["releases"].numpy().copy()
        self._epoch, self._total = tensors["totals"].numpy().copy()
        self._by_epoch = tensors["by_epoch"].tolist()
        self._surest = tensors["surest"].numpy().copy()
        self._slots = tensors["slots"].numpy().copy()
        self._columns = {
            name.removeprefix(_COLUMNS): value.numpy().copy()
            for name, value in tensors.items()
            if name.startswith(_COLUMNS)
        }

    def _with_columns(self) -> float | None:
        """Return how well releases and columns do together, or None where there are no columns or too few rows.

        How far columns are trusted is chosen on one half of the rows and judged on the other, both ways round.
        """
        rows = np.flatnonzero(self._slots >= 0)
        if len(rows) < _LEAST_ROWS:
            return None
        columns = np.concatenate([one[self._slots[rows]] for one in self._columns.values()], axis=1)
        evidence = self._evidence[rows]
        told = _standardised(_told_by_columns(columns, evidence))
        scores = [_standardised(evidence) + trust * told for trust in _TRUST]
        weights, measures = [], []
        first, second = _halves(len(rows), _REPEATS)
        for chosen_on, judged_on in ((first, second), (second, first)):
            best = max(scores, key=lambda score: self._judge(rows[chosen_on], score[chosen_on])[1])
            weight, measure = self._judge(rows[judged_on], best[judged_on])
            weights.append(weight)
            measures.append(measure)
        return float(np.average(measures, weights=weights)) if all(weights) else None

    def _judge(self, rows: Array, evidence: Array) -> tuple[float, float]:
        """Return how much a batch tells about the attack, and how well it does there."""
        labels = self._labels[rows]
        if not self._classes:
            return _explained(labels.astype(np.float64), evidence[:, 0])
        weight = measure = 0.0
        for column in range(evidence.shape[1]):
            is_positive = labels == (1 if self._classes == 2 else column)
            positives = int(is_positive.sum())
            if 0 < positives < len(labels):
                pairs = float(positives * (len(labels) - positives))
                weight += pairs
                measure += pairs * self._area(is_positive, evidence[:, column])
        return weight, measure / weight if weight else 0.0


def _told_by_columns(columns: Array, evidence: Array) -> Array:
    """Return what columns say of each row, learned from the evidence about rows of another half.

    Ridge regression on the columns and on their nearness to some of the rows; several halvings are averaged.
    """
    # scikit-learn takes long to import.
    from sklearn.kernel_approximation import Nystroem
    from sklearn.linear_model import RidgeCV

    scaled = _standardised(columns.astype(np.float64))
    nearness = Nystroem(gamma=0.5 / scaled.shape[1], n_components=min(_LANDMARKS, len(scaled)), random_state=0)
    inputs = nearness.fit_transform(scaled)
    if scaled.shape[1] <= _LANDMARKS:  # very many columns would take minutes, and nearness tells nearly as much
        inputs = np.concatenate([inputs, 0.1 * scaled], axis=1)
    told = np.zeros(evidence.shape)
    for repeat in range(_REPEATS):
        first, second = _halves(len(evidence), repeat)
        for known, asked in ((first, second), (second, first)):
            regression = RidgeCV(np.logspace(-2, 3, 6)).fit(inputs[known], evidence[known])
            told[asked] += regression.predict(inputs[asked]).reshape(-1, evidence.shape[1]) / _REPEATS
    return told


def _halves(count: int, seed: int) -> list[Array]:
    return np.array_split(np.random.default_rng(seed).permutation(count), 2)


def _standardised(values: Array) -> Array:
    """Return every column with mean 0 and variance 1, or 0 where it is constant."""
    width = values.std(axis=0)
    standardised: Array = (values - values.mean(axis=0)) / np.where(width > 0.0, width, 1.0)
    return standardised


def _explained(values: Array, evidence: Array) -> tuple[float, float]:
    """Return the squared correlation, and the number of rows it is of."""
    deviations = values - values.mean() if len(values) else values
    others = evidence - evidence.mean() if len(values) else evidence
    scale = float((deviations**2).sum() * (others**2).sum())
    if len(values) < 3 or scale == 0.0:
        return 0.0, 0.0
    return float(len(values)), float((deviations * others).sum() ** 2 / scale)
