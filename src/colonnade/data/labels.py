"""The encoder that turns labels into the numbers a loss needs, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.parts import check_version, damaged, mean_and_scale, typed
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["LabelEncoder", "Task"]

Task: TypeAlias = Literal["binary", "multiclass", "regression"]
Scalar: TypeAlias = str | int | float | bool

_VERSION = 1
_MOST_INTEGER_CLASSES = 20


@dataclass(frozen=True, repr=False)
class LabelEncoder:
    """Turn labels into the numbers a loss needs, and back.

    Classes are kept in ascending order, the second of two being the positive one. A regression label is standardised by
    `mean` and `scale`. Like a table encoder, this stays with the party that holds the label.
    """

    task: Task
    classes: tuple[Scalar, ...] = ()
    mean: float = 0.0
    scale: float = 1.0

    @classmethod
    def fit(cls, labels: npt.ArrayLike, task: str = "auto") -> LabelEncoder:
        """Learn classes, or mean and scale, from training labels.

        `auto` takes text and bools as classes, two different values as binary, whole numbers of at most 20 different
        values as multiclass, and anything else as regression.
        """
        if task not in ("auto", "binary", "multiclass", "regression"):
            known = ["auto", "binary", "multiclass", "regression"]
            raise ConfigError(f"There is no task '{task}'. {did_you_mean(task, known)}")
        values = _label_values(labels)
        is_text = values.dtype == object
        distinct = sorted(set(values)) if is_text else np.unique(values).tolist()
        if len(distinct) < 2:
            raise TableError(
                f"The {len(values)} labels have {len(distinct)} different values. A model needs at least two."
            )
        if task == "auto":
            is_whole = not is_text and bool(np.all(np.mod(values, 1) == 0))
            has_classes = is_text or (is_whole and len(distinct) <= _MOST_INTEGER_CLASSES)
            task = "binary" if len(distinct) == 2 else "multiclass" if has_classes else "regression"
        if task == "binary" and len(distinct) != 2:
            raise TableError(f"A binary task needs two classes, and the labels have {len(distinct)}. Use multiclass.")
        if task != "regression":
            return cls(task=cast(Task, task), classes=tuple(_class_name(value) for value in distinct))
        if is_text or values.dtype == bool:
            raise TableError("A regression needs numbers, and the labels are text or bools. Use binary or multiclass.")
        mean, scale = mean_and_scale(values.astype(np.float64))
        return cls(task="regression", mean=mean, scale=scale or 1.0)

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return labels as 0.0 and 1.0 (binary), class numbers (multiclass, int64) or standardised (regression)."""
        values = _label_values(labels)
        if self.task == "regression":
            if values.dtype == object:
                raise TableError("The encoder was fitted on numbers and the labels are text. Pass numbers.")
            return (values.astype(np.float64) - self.mean) / self.scale
        codes = self._class_numbers(values)
        unseen = int((codes < 0).sum())
        if unseen:
            raise TableError(
                f"{unseen} of {len(values)} labels belong to none of the {len(self.classes)} classes the encoder was "
                f"fitted on. Fit it on rows that contain every class, or remove those rows."
            )
        return codes.astype(np.float64) if self.task == "binary" else codes

    def decode(self, encoded: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return classes or numbers for what `encode` gave; a binary score counts as the second class from 0.5."""
        values = np.asarray(encoded)
        if self.task == "regression":
            return values.astype(np.float64) * self.scale + self.mean
        codes = (values >= 0.5).astype(np.int64) if self.task == "binary" else values.astype(np.int64)
        outside = int(((codes < 0) | (codes >= len(self.classes))).sum())
        if outside:
            raise TableError(
                f"{outside} of {codes.size} class numbers lie outside 0 to {len(self.classes) - 1}. "
                f"Decode what this encoder, or a model trained with it, has given."
            )
        if isinstance(self.classes[0], str):
            return np.array(self.classes, dtype=object)[codes]
        return np.array(self.classes)[codes]

    def to_json(self) -> dict[str, Any]:
        """Return the encoder for JSON; `from_json` gives back an equal one."""
        return {
            "version": _VERSION,
            "task": self.task,
            "classes": list(self.classes),
            "mean": self.mean,
            "scale": self.scale,
        }

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> LabelEncoder:
        """Return the encoder that `to_json` wrote, refusing other versions and damaged content."""
        check_version(saved, _VERSION, "label encoder")
        try:
            task = saved["task"]
            classes = tuple(typed(name, (str, int, float, bool)) for name in saved["classes"])
            mean, scale = typed(saved["mean"], float), typed(saved["scale"], float)
        except (KeyError, TypeError, ValueError):
            raise damaged("label encoder") from None
        if task not in ("binary", "multiclass", "regression") or (task != "regression" and len(classes) < 2):
            raise damaged("label encoder")
        return cls(task=task, classes=classes, mean=mean, scale=scale)

    def __repr__(self) -> str:  # class names, mean and scale stay out of logs and tracebacks
        return f"LabelEncoder(task={self.task!r}, classes={len(self.classes)})"

    def _class_numbers(self, values: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
        has_text = isinstance(self.classes[0], str)
        if has_text != (values.dtype == object):
            return np.full(len(values), -1, dtype=np.int64)
        if has_text:
            return pd.Index(self.classes, dtype=object).get_indexer(pd.Index(values, dtype=object)).astype(np.int64)
        # Compared as floats, so that 1, 1.0 and True are one class.
        known, wanted = np.array(self.classes, dtype=np.float64), values.astype(np.float64)
        places = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
        return np.where(known[places] == wanted, places, -1).astype(np.int64)


def _label_values(labels: npt.ArrayLike) -> npt.NDArray[Any]:
    """Return labels as a bool, number or text (object) array, refusing missing and mixed ones."""
    values = np.asarray(labels)
    if values.ndim != 1:
        raise TableError(f"Labels have the shape {values.shape}. Pass one label for each row.")
    if values.dtype.kind in "biu":
        return values
    missing = int(pd.isna(values).sum())
    if missing:
        raise TableError(f"{missing} of {len(values)} labels are missing. Fill those labels or remove the rows.")
    if values.dtype.kind == "f":
        infinite = int(np.isinf(values).sum())
        if infinite:
            raise TableError(f"{infinite} of {len(values)} labels are infinite. Replace them or remove the rows.")
        return values
    cells: Sequence[Any] = values.tolist()
    if all(isinstance(cell, str) for cell in cells):
        return np.array([str(cell) for cell in cells], dtype=object)
    if all(isinstance(cell, (bool, int, float, np.number, np.bool_)) for cell in cells):
        return _label_values(np.array(cells))
    kinds = ", ".join(sorted({type(cell).__name__ for cell in cells}))
    raise TableError(
        f"Labels mix or have types that cannot be labels: {kinds}. Use numbers, bools or text, not a mixture."
    )


def _class_name(value: Any) -> Scalar:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return cast(Scalar, value)
