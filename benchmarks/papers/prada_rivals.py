"""Models that PrADA is held against: regressions and boosted trees on one bank's columns, or on all columns joined.

Trees stand in for SecureBoost, which gives the trees of XGBoost up to the way in which thresholds are proposed; the
product has no SecureBoost yet. Regressions stand in for SecureLR: `benchmarks.secure_lr` shows that the product's
equals scikit-learn's.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from benchmarks.papers.prada_world import TARGET, World
from colonnade.data import PartyTable, StepEncoder, TableEncoder

DEPTHS, TREES = (2, 4, 6, 8), (100, 200, 300, 400)
PENALTIES = (1e-3, 1e-2, 1e-1, 1.0)


class Joined:
    """A world's rows as one organisation would have them."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._pairs = {bank: world.pair(table, bank) for bank, table in world.banks.items()}
        self._company = {bank: world.pair(world.company, bank) for bank in world.banks}
        self._categories: dict[str, dict[str, int]] = {}

    def _places(self, bank: str, part: str) -> np.ndarray:
        places = getattr(self._pairs[bank].split, part)
        known = self._world.banks[bank].is_labelled[self._pairs[bank].aligned.positions[places]]
        return places[known]

    def labels(self, bank: str, part: str) -> np.ndarray:
        positions = self._pairs[bank].aligned.positions[self._places(bank, part)]
        return self._world.banks[bank].labels[positions].astype(int)

    def columns(self, banks: Sequence[str], part: str, *, company: bool, steps: bool) -> np.ndarray:
        """Return encoded columns of labelled rows, fitted on the training rows of the banks that are learned from."""
        found = []
        for bank in banks:
            table, pair = self._world.banks[bank], self._pairs[bank]
            # Every bank standardises its own columns, as it would in the product.
            encoder = StepEncoder.fit(table, pair.aligned.positions[pair.split.train], expands=steps)
            parts = [encoder.transform(table, pair.aligned.positions[self._places(bank, part)])]
            if company:
                rows = self._company[bank].aligned.positions[self._places(bank, part)]
                parts.append(self._company_encoder().transform(self._world.company, rows))
            found.append(np.concatenate(parts, axis=1))
        widths = {one.shape[1] for one in found}
        if len(widths) > 1:
            raise ValueError("The banks' columns do not fit together.")
        return np.concatenate(found)

    def matrix(self, banks: Sequence[str], part: str, *, company: bool) -> xgboost.DMatrix:
        """Return labelled rows as trees take them: numbers as they are, categories as categories."""
        names = [column.name for column in self._world.banks[TARGET].columns]
        found, kinds = [], []
        for bank in banks:
            positions = self._pairs[bank].aligned.positions[self._places(bank, part)]
            rows = self._company[bank].aligned.positions[self._places(bank, part)]
            parts = [self._values(self._world.banks[bank], names, positions)]
            if company:
                every = [column.name for column in self._world.company.columns]
                parts.append(self._values(self._world.company, every, rows))
            kinds = [kind for _, some in parts for kind in some]
            found.append(np.concatenate([values for values, _ in parts], axis=1))
        labels = np.concatenate([self.labels(bank, part) for bank in banks])
        return xgboost.DMatrix(np.concatenate(found), labels, feature_types=kinds, enable_categorical=True)

    def _values(self, table: PartyTable, names: Sequence[str], positions: np.ndarray) -> tuple[np.ndarray, list[str]]:
        columns, kinds = [], []
        for name in names:
            values = table.values(name)
            is_text = values.dtype == object
            if is_text:
                known = self._categories.setdefault(name, {one: place for place, one in enumerate(sorted(set(values)))})
                values = np.array([known.get(one, -1) for one in values], dtype=float)
            columns.append(values[positions])
            kinds.append("c" if is_text else "q")
        return np.stack(columns, axis=1).astype(np.float32), kinds

    def _company_encoder(self) -> TableEncoder:
        if not hasattr(self, "_encoder"):
            every = [one.aligned.positions[one.split.train] for one in self._company.values()]
            self._encoder = TableEncoder.fit(self._world.company, np.unique(np.concatenate(every)))
        return self._encoder


def regression(joined: Joined, banks: Sequence[str], *, company: bool) -> np.ndarray:
    """Return a logistic regression's scores of the target's test rows, its penalty chosen on validation rows."""
    inputs = joined.columns(banks, "train", company=company, steps=False)
    labels = np.concatenate([joined.labels(bank, "train") for bank in banks])
    held = joined.columns([TARGET], "validation", company=company, steps=False)
    test = joined.columns([TARGET], "test", company=company, steps=False)
    models = [LogisticRegression(C=one, max_iter=300).fit(inputs, labels) for one in PENALTIES]
    truth = joined.labels(TARGET, "validation")
    best = max(models, key=lambda model: roc_auc_score(truth, model.decision_function(held)))
    return best.decision_function(test)


def _grow(matrix: xgboost.DMatrix, depth: int, model: xgboost.Booster | None = None) -> xgboost.Booster:
    settings = {"objective": "binary:logistic", "max_depth": depth, "eta": 0.1, "nthread": 1, "tree_method": "hist"}
    return xgboost.train(settings, matrix, max(TREES), xgb_model=model)


def trees(joined: Joined, banks: Sequence[str], *, company: bool) -> tuple[xgboost.Booster, np.ndarray]:
    """Return boosted trees, depth and number chosen on validation rows, and their scores of the target's test rows."""
    matrix = joined.matrix(banks, "train", company=company)
    held, test = (joined.matrix([TARGET], part, company=company) for part in ("validation", "test"))
    truth = held.get_label()
    every = []
    for depth in DEPTHS:
        model = _grow(matrix, depth)
        every += [
            (roc_auc_score(truth, model.predict(held, iteration_range=(0, count))), model, count) for count in TREES
        ]
    _, model, count = max(every, key=lambda one: one[0])
    return model[:count], model.predict(test, iteration_range=(0, count))


def continued(joined: Joined, start: xgboost.Booster) -> np.ndarray:
    """Return the test scores of trees that were handed over, after more have been grown on the target's rows."""
    own, held, test = (joined.matrix([TARGET], part, company=True) for part in ("train", "validation", "test"))
    truth, count = held.get_label(), start.num_boosted_rounds()
    every = []
    for depth in DEPTHS:
        longer = _grow(own, depth, start)
        for more in (5, 20, 50, *TREES):
            every.append((roc_auc_score(truth, longer.predict(held, iteration_range=(0, count + more))), longer, more))
    _, longer, more = max(every, key=lambda one: one[0])
    return longer.predict(test, iteration_range=(0, count + more))
