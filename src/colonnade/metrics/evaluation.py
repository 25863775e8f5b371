"""Evaluate one model on held-out rows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from colonnade.errors import TableError, TrainingFailed, UsageError
from colonnade.metrics.binary import evaluate_binary
from colonnade.metrics.multiclass import evaluate_multiclass
from colonnade.metrics.names import check_task
from colonnade.metrics.operating import USUAL, OperatingPoint, Threshold, operating_point
from colonnade.metrics.regression import evaluate_regression
from colonnade.metrics.warnings import warnings_of_classes

__all__ = ["Evaluation", "evaluate"]


@dataclass(frozen=True)
class Evaluation:
    """The numbers and curves of one model on one set of rows.

    A metric that the rows cannot support (AUC when only one class occurs) is absent from ``metrics``, never ``nan``.
    So is a curve from ``curves`` when it could only be drawn by showing single rows. ``curves`` holds only dicts,
    lists, strings and finite numbers, so that all of it can be written as JSON.
    """

    task: str
    rows: int
    metrics: dict[str, float]
    curves: dict[str, Any] = field(default_factory=dict)
    operating: OperatingPoint | None = None
    """What calls of the positive class are worth, where there are two classes. Accuracy and F1 are of these calls."""
    warnings: tuple[str, ...] = ()
    """What makes some of these numbers say little, as sentences."""

    def to_json(self) -> dict[str, Any]:
        """Return the content as plain dicts and lists, sharing nothing with this object."""
        content = {
            "task": self.task,
            "rows": self.rows,
            "metrics": self.metrics,
            "operating": None if self.operating is None else self.operating.to_json(),
            "warnings": self.warnings,
            "curves": self.curves,
        }
        copied: dict[str, Any] = json.loads(json.dumps(content, allow_nan=False))
        return copied

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Evaluation:
        """Build an evaluation from what :meth:`to_json` returned."""
        try:
            task = str(content["task"])
            check_task(task)
            operating = content.get("operating")
            return cls(
                task=task,
                rows=int(content["rows"]),
                metrics={str(name): float(value) for name, value in content["metrics"].items()},
                curves=dict(content.get("curves", {})),
                operating=None if operating is None else OperatingPoint.from_json(operating),
                warnings=tuple(map(str, content.get("warnings", ()))),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise UsageError(
                "This is not an evaluation: it needs 'task', 'rows' and 'metrics' (names and numbers)."
            ) from problem


def evaluate(
    task: str,
    truth: ArrayLike,
    scores: ArrayLike,
    classes: Sequence[object] = (),
    threshold: Threshold = USUAL,
) -> Evaluation:
    """Measure predictions against the truth.

    ==========  ============================  =========================================
    task        truth                         scores
    ==========  ============================  =========================================
    binary      class index, 0 or 1           probability of class 1, shape (rows,)
    multiclass  class index, 0 to classes-1   class probabilities, shape (rows, classes)
    regression  value in original units       prediction in the same units, shape (rows,)
    ==========  ============================  =========================================

    ``classes`` are the class names in index order; they label the curves and may be left out. Of two classes a row is
    called positive from the ``threshold`` on, which should not be chosen on these rows.
    """
    check_task(task)
    observed = np.asarray(truth)
    predicted = np.asarray(scores, dtype=np.float64)
    if observed.ndim != 1 or len(observed) == 0:
        raise UsageError(f"The truth must be one column with at least one row; its shape is {observed.shape}.")
    if predicted.shape[:1] != observed.shape:
        raise UsageError(f"The truth has {len(observed)} rows but the scores have shape {predicted.shape}.")
    if predicted.ndim != (2 if task == "multiclass" else 1):
        raise UsageError(f"Scores of shape {predicted.shape} do not fit the task '{task}'.")
    broken = int(np.count_nonzero(~np.isfinite(predicted)))
    if broken:
        raise TrainingFailed(
            f"{broken} of {predicted.size} scores are not finite: the model diverged. Try a lower learning rate."
        )

    if task == "regression":
        values = _numbers(observed)
        if not np.all(np.isfinite(values)):
            raise TableError("The label column of the held-out rows has missing or infinite values.")
        metrics, curves = evaluate_regression(values, predicted)
        return Evaluation(task=task, rows=len(observed), metrics=metrics, curves=curves)
    width = 2 if task == "binary" else predicted.shape[1]
    names = _class_names(classes, width)
    indices = _class_indices(observed, width)
    _check_probabilities(predicted)
    operating = None
    if task == "binary":
        metrics, curves = evaluate_binary(indices, predicted, threshold.value)
        operating = operating_point(indices, predicted, (names[0], names[1]), threshold)
        called = predicted >= threshold.value
    else:
        metrics, curves = evaluate_multiclass(indices, predicted, names)
        called = predicted.argmax(axis=1)
    warnings = warnings_of_classes(names, np.bincount(indices, minlength=width), called, metrics)
    return Evaluation(
        task=task, rows=len(indices), metrics=metrics, curves=curves, operating=operating, warnings=warnings
    )


def _class_names(classes: Sequence[object], width: int) -> list[str]:
    if width < 2:
        raise UsageError("A classification needs at least two classes.")
    if len(classes) not in (0, width):
        raise UsageError(f"{len(classes)} class names were given for {width} classes.")
    return [str(name) for name in classes] or [str(index) for index in range(width)]


def _numbers(truth: NDArray[Any]) -> NDArray[np.float64]:
    try:
        return truth.astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        # The cause would quote a label, and labels stay out of messages and tracebacks.
        raise UsageError("The truth must be numbers: values, or class indices instead of class names.") from None


def _class_indices(truth: NDArray[Any], width: int) -> NDArray[np.int64]:
    values = _numbers(truth)
    if not np.all(np.isfinite(values)) or np.any(values != np.floor(values)):
        raise UsageError("The truth must be class indices: whole numbers, none missing.")
    if values.min() < 0 or values.max() >= width:
        raise UsageError(f"The truth has class indices outside 0 to {width - 1}.")
    return values.astype(np.int64)


def _check_probabilities(scores: NDArray[np.float64]) -> None:
    # Networks give float32, where a probability can pass 1 by a rounding error.
    if scores.min() < -1e-4 or scores.max() > 1 + 1e-4:
        raise UsageError(
            "The scores must be probabilities between 0 and 1. Apply a sigmoid or softmax to logits first."
        )
    if scores.ndim == 2 and np.any(np.abs(scores.sum(axis=1) - 1) > 1e-3):
        raise UsageError("The class probabilities of a row must sum to 1. Apply a softmax to logits first.")
