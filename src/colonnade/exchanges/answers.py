"""Predictions without how sure they are, for a party that may know no more."""

from __future__ import annotations

import json
import math
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from colonnade.data import LabelEncoder
from colonnade.errors import TableError, WrongContent
from colonnade.messages import LIMITS, Longest
from colonnade.session import Channel, Scores
from colonnade.text import LONGEST_NAME, is_plain, shown

__all__ = [
    "LabelText",
    "checked_answer",
    "decided",
    "decided_by",
    "described",
    "predictions",
    "told",
    "told_labels",
]

Numbers = npt.NDArray[np.float64]

LabelText = Annotated[str, Longest(LIMITS.text_bytes)]
"""What labels are, as JSON; see `described`."""

_MOST_CLASSES = 2**16
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


def described(labels: LabelEncoder, *, with_scale: bool = False) -> str:
    """Say what the labels are, for the party that gets them: task and classes, and where asked for mean and scale.

    Of classes whose names a partner would refuse, it gets the names spelt out.
    """
    classes = tuple(shown(one, LONGEST_NAME) if isinstance(one, str) else one for one in labels.classes)
    mean, scale = (labels.mean, labels.scale) if with_scale else (0.0, 1.0)
    return json.dumps(LabelEncoder(labels.task, classes, mean, scale).to_json())


def told_labels(said: str, peer: Channel, outputs: int | None = None) -> LabelEncoder:
    """Read what a partner says its labels are, which may be anything: only names and numbers that do no harm pass.

    Where it has announced how many scores a row has, the classes must be as many.
    """
    try:
        found = LabelEncoder.from_json(json.loads(said))
        fits = _fits(found) and outputs in (None, len(found.classes) if found.task == "multiclass" else 1)
    except (AttributeError, OverflowError, RecursionError, TableError, TypeError, ValueError):
        fits = False
    if not fits:
        raise WrongContent(f"'{peer.peer}' describes its labels in a way no version of colonnade does.")
    return found


def _fits(labels: LabelEncoder) -> bool:
    fewest, most = {"binary": (2, 2), "multiclass": (2, _MOST_CLASSES), "regression": (0, 0)}[labels.task]
    if not fewest <= len(labels.classes) <= most or labels.scale <= 0.0:
        return False
    names = [one for one in labels.classes if isinstance(one, str)]
    if names:
        return len(names) == len(labels.classes) and all(len(one) <= LONGEST_NAME and is_plain(one) for one in names)
    return all(math.isfinite(one) for one in labels.classes if not isinstance(one, str))


def told(answer: Any, peer: Channel, outputs: int | None = None) -> Scores:
    """Read the answer of a partner, which may say anything."""
    labels = told_labels(answer.labels, peer, outputs)
    values = checked_answer(labels.task, answer.values, len(labels.classes), peer)
    return predictions(labels.task, values, labels.classes)


def checked_answer(task: str, values: np.ndarray[Any, Any], classes: int, peer: Channel) -> np.ndarray[Any, Any]:
    """Return predictions that fit the task, or refuse them."""
    is_number = task == "regression"
    if values.dtype != (np.float64 if is_number else np.int64) or not (
        is_number or np.isin(values, np.arange(classes)).all()
    ):
        raise WrongContent(f"'{peer.peer}' sent predictions that are no {'numbers' if is_number else 'class numbers'}.")
    return values


def predictions(task: str, values: np.ndarray[Any, Any], classes: tuple[Any, ...]) -> Scores:
    """Return predictions as scores that are already decided."""
    return Scores(task, np.arange(len(values)), values, classes=classes, is_decided=True)
