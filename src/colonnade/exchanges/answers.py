"""Predictions without how sure they are, for a party that may know no more."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from colonnade.data import LabelEncoder
from colonnade.errors import WrongContent
from colonnade.session import Channel, Scores

__all__ = ["checked_answer", "decided", "decided_by", "described", "predictions", "told"]

Numbers = npt.NDArray[np.float64]

# Predicted numbers are rounded to this part of a standard deviation: exact ones would give the model away.
_ROUNDING = 16.0


def decided(labels: LabelEncoder, scores: Numbers) -> np.ndarray[Any, Any]:
    """Return class numbers, or numbers in the label's own units, rounded."""
    found = decided_by(labels.task, scores)
    return labels.decode(found) if labels.task == "regression" else found


def decided_by(task: str, scores: Numbers) -> np.ndarray[Any, Any]:
    """Return class numbers, or standardised numbers, rounded."""
    if task == "regression":
        return np.asarray(np.rint(scores[:, 0] * _ROUNDING) / _ROUNDING)
    if task == "multiclass":
        return np.asarray(scores.argmax(axis=1), dtype=np.int64)
    return (scores[:, 0] >= 0).astype(np.int64)


def described(labels: LabelEncoder) -> str:
    """Say what the labels are, for the party that gets them."""
    return json.dumps({"task": labels.task, "classes": list(labels.classes)})


def told(answer: Any, peer: Channel) -> Scores:
    """Read the answer of a partner, which may say anything."""
    try:
        about = json.loads(answer.labels)
        task, classes = about["task"], tuple(about["classes"])
    except (ValueError, KeyError, TypeError, RecursionError):
        raise WrongContent(f"'{peer.peer}' describes its labels in a way no version of colonnade does.") from None
    if task not in ("binary", "multiclass", "regression"):
        raise WrongContent(f"'{peer.peer}' sent predictions of a kind no version of colonnade knows.")
    return predictions(task, checked_answer(task, answer.values, len(classes), peer), classes)


def checked_answer(task: str, values: np.ndarray[Any, Any], classes: int, peer: Channel) -> np.ndarray[Any, Any]:
    """Return predictions that fit the task, or refuse them."""
    if values.dtype != (np.float64 if task == "regression" else np.int64):
        raise WrongContent(f"'{peer.peer}' sent predictions of another kind than the task has.")
    if task != "regression" and not np.isin(values, np.arange(classes)).all():
        raise WrongContent(f"'{peer.peer}' sent class numbers beyond the {classes} classes.")
    return values


def predictions(task: str, values: np.ndarray[Any, Any], classes: tuple[Any, ...]) -> Scores:
    """Return predictions as scores that are already decided."""
    return Scores(task, np.arange(len(values)), values, classes=classes, is_decided=True)
