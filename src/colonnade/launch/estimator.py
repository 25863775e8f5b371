"""Vertical federated learning as a scikit-learn estimator, for research on one matrix.

The estimator gives every party its columns of the matrix and simulates the federated run, so a pipeline, a
cross-validation or a grid search measures what the federation would learn.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from reprlib import repr as short
from typing import Any, Self

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from colonnade.data import Kind, PartyTable
from colonnade.errors import UsageError, did_you_mean
from colonnade.launch.run import Run
from colonnade.launch.simulation import Launch, simulate
from colonnade.methods.splitnn import SplitNN
from colonnade.session import Alignment, Evaluate
from colonnade.settings import validated

__all__ = ["VerticalClassifier", "VerticalRegressor"]

_Matrix = np.ndarray[Any, Any]

# What the estimator takes beside the method's settings.
_NO_SETTINGS = ("parties", "label_holder", "validation_fraction", "random_state")

# What an error of the run calls a setting, and what the estimator does.
_NAMES_HERE = {"config.": "", "evaluate.": "", "run.seed": "random_state"}


class _VerticalEstimator(BaseEstimator):  # type: ignore[misc]
    """What classifier and regressor share."""

    def __init__(
        self,
        parties: Mapping[str, Sequence[Hashable]] | None = None,
        *,
        label_holder: str | None = None,
        hidden: tuple[int, ...] = (32,),
        cut_width: int = 16,
        head_hidden: tuple[int, ...] = (),
        dropout: float = 0.0,
        optimizer: str = "Adam",
        learning_rate: float = 0.01,
        epochs: int = 60,
        batch_size: int = 128,
        validation_fraction: float = 0.0,
        patience: int = 8,
        random_state: Any = None,
    ) -> None:
        self.parties = parties
        self.label_holder = label_holder
        self.hidden = hidden
        self.cut_width = cut_width
        self.head_hidden = head_hidden
        self.dropout = dropout
        self.optimizer = optimizer
        self.learning_rate = learning_rate
        self.epochs = epochs
        self.batch_size = batch_size
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.non_deterministic = self.random_state is None
        return tags

    def _train(self, matrix: _Matrix, labels: _Matrix, **settings: Any) -> None:
        """Give every party its columns, and train."""
        self.columns_ = self._assigned_columns()
        self.label_holder_ = next(iter(self.columns_)) if self.label_holder is None else str(self.label_holder)
        if self.label_holder_ not in self.columns_:
            raise ValueError(
                f"label_holder='{self.label_holder_}' is not one of the parties. "
                f"{did_you_mean(self.label_holder_, self.columns_)}"
            )
        tables = self._tables(matrix, labels)
        # A party may have nothing but constant columns in a small sample; it then has nothing to bring.
        useful = {
            party: table
            for party, table in tables.items()
            if party == self.label_holder_ or any(column.distinct > 1 for column in table.columns)
        }
        try:
            config = validated(SplitNN, self._settings() | settings, "config")
            fractions = {"test_fraction": 0.0, "validation_fraction": _plain(self.validation_fraction)}
            rows: Evaluate = validated(Evaluate, fractions, "evaluate")
            seed = int(check_random_state(self.random_state).randint(2**31))
            # The rows of one matrix are matched already; there is nobody to hide them from.
            given = Alignment(protocol="given")
            self.run_: Run = simulate(
                config, useful, seed=seed, evaluate=rows, launch=Launch(name=type(self).__name__, alignment=given)
            )
        except UsageError as error:
            message = str(error)
            for there, here in _NAMES_HERE.items():
                message = message.replace(there, here)
            # scikit-learn's tools know ValueError as the sign of bad input.
            raise ValueError(message) from error

    def _settings(self) -> dict[str, Any]:
        """Return the method's settings as given, for the same checks that a run file goes through."""
        for name, widths in (("hidden", self.hidden), ("head_hidden", self.head_hidden)):
            if not isinstance(_plain(widths), list):
                raise ValueError(
                    f"{name} must list the widths of layers, such as (32,) or (). Got {short(widths)} instead."
                )
        given = {name: _plain(value) for name, value in self.get_params(deep=False).items() if name not in _NO_SETTINGS}
        patience = given["patience"] if self.validation_fraction else 0
        # All parties are threads here: there is nobody to hide first weights from, and random_state repeats.
        return {**given, "patience": patience, "precision": "float64", "secret_start": False}

    def _score(self, matrix: Any) -> pd.DataFrame:
        """Return the run's scores, in the order of the matrix's rows."""
        check_is_fitted(self)
        values = validate_data(self, matrix, reset=False, dtype=np.float64, ensure_all_finite="allow-nan")
        tables = self._tables(values)
        trained = {party: tables[party] for party in self.run_.plan.parties}
        return self.run_.predict(trained).set_index("row").sort_index()

    def _assigned_columns(self) -> dict[str, list[int]]:
        """Return column positions by party; without an assignment, halves of the matrix."""
        count = self.n_features_in_
        if self.parties is None:
            half = (count + 1) // 2
            halves = {"first": list(range(half)), "second": list(range(half, count))}
            return {party: columns for party, columns in halves.items() if columns}
        _check_parties(self.parties)
        names = list(getattr(self, "feature_names_in_", []))
        assigned = {party: [_position(one, names, count) for one in columns] for party, columns in self.parties.items()}
        flat = [column for columns in assigned.values() for column in columns]
        if len(set(flat)) != len(flat):
            raise ValueError("A column is assigned to two parties. Give every column to one party at most.")
        return assigned

    def _tables(self, matrix: _Matrix, labels: _Matrix | None = None) -> dict[str, PartyTable]:
        tables = {}
        for party, columns in self.columns_.items():
            frame = pd.DataFrame(matrix[:, columns], columns=[f"column {column}" for column in columns])
            types: dict[str, Kind] = dict.fromkeys(frame.columns, "numeric")
            frame.insert(0, "row", np.arange(len(matrix)))
            label = None
            if labels is not None and party == self.label_holder_:
                frame["label"] = labels
                label = "label"
            tables[party] = PartyTable(frame, id="row", label=label, types=types, name=party)
        return tables


def _check_parties(parties: Any) -> None:
    if not isinstance(parties, Mapping) or not parties or not all(isinstance(party, str) for party in parties):
        raise ValueError(
            f"parties must map the name of each party to its columns, such as {{'bank': [0, 1], 'shop': [2]}}. "
            f"Got {short(parties)} instead."
        )
    for party, columns in parties.items():
        if isinstance(columns, str) or not isinstance(columns, Iterable):
            raise ValueError(
                f"The columns of '{party}' must be a list of names or positions, such as [0, 1]. "
                f"Got {short(columns)} instead."
            )


def _plain(value: Any) -> Any:
    """Return numpy's numbers and arrays, which a parameter search may draw, as Python's own."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def _position(column: Hashable, names: list[str], count: int) -> int:
    if isinstance(column, str):
        if column not in names:
            raise ValueError(f"The matrix has no column '{column}'. {did_you_mean(column, names)}")
        return names.index(column)
    if not isinstance(column, int | np.integer) or not 0 <= int(column) < count:
        raise ValueError(f"A column position must be a whole number from 0 to {count - 1}.")
    return int(column)


class VerticalClassifier(ClassifierMixin, _VerticalEstimator):  # type: ignore[misc]
    """Classify with a split network whose columns lie at several parties.

    ``parties`` maps party names to column names or positions; without it the matrix is cut in two halves.
    ``label_holder`` is the party that has the labels, by default the first. After `fit`, ``run_`` is the simulated run
    with its ledgers.

    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = VerticalClassifier({"garden": [0, 1], "laboratory": [2, 3]}, random_state=0)
    >>> bool(model.fit(X, y).score(X, y) > 0.9)
    True
    """

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's names
        """Train on one matrix, each party seeing its columns only."""
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise ValueError("The label has one class only; a classifier needs at least two classes.")
        self._train(X, codes, task="binary" if len(self.classes_) == 2 else "multiclass")
        return self

    def predict_proba(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the probability of every class."""
        frame = self._score(X)
        if len(self.classes_) == 2:
            second = frame["probability_1"].to_numpy()
            return np.column_stack([1.0 - second, second])
        return frame[[f"probability_{code}" for code in range(len(self.classes_))]].to_numpy()

    def decision_function(self, X: Any) -> _Matrix:  # noqa: N803
        """Return log-odds of the second class, or log-probabilities of all classes."""
        floor = np.finfo(np.float64).tiny
        logs = np.log(np.maximum(self.predict_proba(X), floor))
        return np.asarray(logs[:, 1] - logs[:, 0] if len(self.classes_) == 2 else logs)

    def predict(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the most probable class."""
        likeliest = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[likeliest])


class VerticalRegressor(RegressorMixin, _VerticalEstimator):  # type: ignore[misc]
    """Predict numbers with a split network whose columns lie at several parties; see `VerticalClassifier`."""

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Train on one matrix, each party seeing its columns only."""
        X, y = validate_data(
            self, X, y, dtype=np.float64, ensure_all_finite="allow-nan", ensure_min_samples=2, y_numeric=True
        )
        if len(np.unique(y)) < 2:
            raise ValueError("The target is constant, so there is nothing to learn.")
        self._train(X, np.asarray(y, dtype=np.float64), task="regression")
        return self

    def predict(self, X: Any) -> _Matrix:  # noqa: N803
        """Return the predicted numbers."""
        return self._score(X)["prediction"].to_numpy()
