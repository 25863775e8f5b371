"""The names of tasks and metrics, and which way each metric points."""

from __future__ import annotations

from colonnade.errors import UsageError, did_you_mean

__all__ = ["TASKS", "check_task", "headline", "higher_is_better"]

_HEADLINES = {"binary": "auc", "multiclass": "accuracy", "regression": "r2"}
TASKS = tuple(_HEADLINES)

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


def higher_is_better(name: str) -> bool | None:
    """Say which way a metric points; ``None`` when it describes the rows rather than the model.

    >>> higher_is_better("auc"), higher_is_better("rmse"), higher_is_better("positive_rate")
    (True, False, None)
    """
    return _HIGHER_IS_BETTER.get(name)
