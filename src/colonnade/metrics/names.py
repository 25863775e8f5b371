"""The names of tasks and metrics, and which way each metric points."""

from __future__ import annotations

from typing import TYPE_CHECKING

from colonnade.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from colonnade.metrics.evaluation import Evaluation

__all__ = ["TASKS", "check_task", "headline", "headline_of", "higher_is_better"]

_HEADLINES = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}
TASKS = tuple(_HEADLINES)
# Where one of several classes has more than this share of the rows, accuracy says little.
_MOST_OF_ONE_CLASS = 0.75

_HIGHER_IS_BETTER = {
    "accuracy": True,
    "auc": True,
    "brier": False,
    "calibration_error": False,
    "f1": True,
    "ks": True,
    "log_loss": False,
    "macro_auc": True,
    "macro_f1": True,
    "mae": False,
    "r2": True,
    "rmse": False,
}


def check_task(task: str) -> None:
    """Refuse a task this package does not know."""
    if task not in _HEADLINES:
        raise UsageError(f"There is no task '{task}'. {did_you_mean(task, TASKS)}")


def headline(task: str) -> str:
    """Name the metric that stands for a task in tables.

    >>> headline("binary")
    'auc'
    """
    check_task(task)
    return _HEADLINES[task]


def headline_of(evaluation: Evaluation) -> str | None:
    """Name the metric to put first, among those that mean something on these rows; None where there is none.

    Two classes have the AUC, if both occur. Accuracy stands for several classes, and the macro AUC where nearly all
    rows are of one.
    """
    if evaluation.task == "multiclass" and "macro_auc" in evaluation.metrics:
        counts = [sum(row) for row in evaluation.curves.get("confusion", {}).get("counts", ())]
        return "macro_auc" if max(counts, default=0) > _MOST_OF_ONE_CLASS * evaluation.rows else "accuracy"
    wanted = {"binary": ("auc",), "multiclass": (), "regression": ("r2", "rmse")}[evaluation.task]
    return next((name for name in wanted if name in evaluation.metrics), None)


def higher_is_better(name: str) -> bool | None:
    """Say which way a metric points; ``None`` when it describes the rows rather than the model.

    >>> higher_is_better("auc"), higher_is_better("rmse"), higher_is_better("positive_rate")
    (True, False, None)
    """
    return _HIGHER_IS_BETTER.get(name)
