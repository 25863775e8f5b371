"""Simple models of scikit-learn on a stranger's table: on the label holder's own columns, and on all columns joined."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.strangers_tables import Stranger
from colonnade.data import Split, split_rows
from colonnade.metrics import evaluate
from colonnade.session import derive_seed

__all__ = ["MEASURES", "Rival", "rivals", "split_of"]

MEASURES = {"binary": "auc", "multiclass": "macro_auc", "regression": "r2"}
"""What counts, by task."""
_LINEAR = {"classes": (0.01, 0.1, 1.0, 10.0), "numbers": (0.1, 1.0, 10.0, 100.0, 1000.0)}
_BOOSTING: tuple[dict[str, Any], ...] = (
    {"learning_rate": 0.1, "max_iter": 100},
    {"learning_rate": 0.05, "max_iter": 200, "max_leaf_nodes": 8},
    {"learning_rate": 0.03, "max_iter": 200, "max_leaf_nodes": 4, "min_samples_leaf": 10},
)


@dataclass(frozen=True, kw_only=True)
class Rival:
    """One model, fitted on the training rows, and what it is worth on the others."""

    kind: str
    """`linear` or `boosting`."""
    columns: str
    """`own` or `joined`."""
    settings: str
    validation: float
    test: float
    accuracy: float
    """On the test rows; 0 for numbers."""


def split_of(table: Stranger, seed: int) -> Split:
    """Divide the rows as a run of this seed does by default, where rows are given in one order."""
    return split_rows(
        len(table.label_holder), validation_fraction=0.1, test_fraction=0.2, seed=derive_seed(seed, "split")
    )


def rivals(table: Stranger, seed: int) -> Iterator[Rival]:
    """Fit every rival on one split."""
    split = split_of(table, seed)
    own = table.label_holder.drop(columns=["row", "label"])
    frames = {"own": own, "joined": pd.concat([own, table.feature_holder.drop(columns="row")], axis=1)}
    labels = table.label_holder["label"].to_numpy()
    classes: list[object] = []
    if table.task != "regression":
        classes, labels = np.unique(labels.astype(str), return_inverse=True)
    for columns, frame in frames.items():
        for kind, fill in (("linear", True), ("boosting", False)):
            values = _encoded(frame, split.train, fill=fill)
            for settings, model in _models(table.task, kind):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # of slow convergence at the weakest penalties
                    model.fit(values[split.train], labels[split.train])
                judged = []
                for rows in (split.validation, split.test):
                    scores = _scores(table.task, model, values[rows], len(classes))
                    judged.append(evaluate(table.task, labels[rows], scores).metrics)
                measure = MEASURES[table.task]
                yield Rival(
                    kind=kind,
                    columns=columns,
                    settings=settings,
                    validation=judged[0].get(measure, 0.0),
                    test=judged[1][measure],
                    accuracy=judged[1].get("accuracy", 0.0),
                )


def _encoded(frame: pd.DataFrame, train: NDArray[np.int64], *, fill: bool) -> NDArray[np.float64]:
    """Standardise numbers and spread categories; fill gaps with medians and mark them, or leave them as they are."""
    columns: list[NDArray[np.float64]] = []
    for _, column in frame.items():
        if pd.api.types.is_datetime64_any_dtype(column):
            columns += [
                _standard(part.to_numpy(float), train) for part in (column.astype("int64"), column.dt.day_of_year)
            ]
        elif pd.api.types.is_numeric_dtype(column) or _is_numbers(column):
            values = column.to_numpy(float, na_value=np.nan)
            absent = np.isnan(values)
            if fill and absent.any():
                columns.append(absent.astype(float))
                values = np.where(absent, np.nanmedian(values[train]), values)
            columns.append(_standard(values, train))
        else:
            words = column.astype(object).where(column.notna(), "missing").astype(str)
            counts = words.iloc[train].value_counts()
            columns += [(words == word).to_numpy(float) for word in counts.index[:50] if counts[word] > 1]
    return np.column_stack(columns)


def _is_numbers(column: pd.Series[Any]) -> bool:
    return column.dropna().map(lambda cell: isinstance(cell, bool | int | float)).all()


def _standard(values: NDArray[np.float64], train: NDArray[np.int64]) -> NDArray[np.float64]:
    scale = np.nanstd(values[train])
    return (values - np.nanmean(values[train])) / (scale if scale > 0 else 1.0)


def _models(task: str, kind: str) -> Iterator[tuple[str, Any]]:
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.linear_model import LogisticRegression, Ridge

    if kind == "boosting":
        Boosting = HistGradientBoostingRegressor if task == "regression" else HistGradientBoostingClassifier
        for settings in _BOOSTING:
            yield str(settings), Boosting(**settings, random_state=0)
    elif task == "regression":
        for alpha in _LINEAR["numbers"]:
            yield f"alpha={alpha}", Ridge(alpha=alpha)
    else:
        for C in _LINEAR["classes"]:
            yield f"C={C}", LogisticRegression(C=C, max_iter=2000)


def _scores(task: str, model: Any, values: NDArray[np.float64], classes: int) -> NDArray[np.float64]:
    """Score rows; a class that no training row has gets no chance."""
    if task == "regression":
        return model.predict(values)
    chances = np.zeros((len(values), classes))
    chances[:, model.classes_] = model.predict_proba(values)
    return chances[:, 1] if task == "binary" else chances
