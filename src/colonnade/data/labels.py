"""The encoder that turns labels into the numbers a loss needs, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.classes import Scalar, different_labels, label_values, named_class, spelt_class, usual_positive
from colonnade.data.parts import check_version, damaged, mean_and_scale, typed
from colonnade.data.table import PartyTable
from colonnade.errors import ConfigError, TableError, did_you_mean

__all__ = ["LabelEncoder", "Task"]

Task: TypeAlias = Literal["binary", "multiclass", "regression"]

_VERSION = 1
_MOST_WHOLE_CLASSES = 10
"""Whole numbers with more different values are counts or grades, which have an order and a distance, not classes."""


@dataclass(frozen=True, repr=False)
class LabelEncoder:
    """Turn labels into the numbers a loss needs, and back.

    Of two classes the second is the positive one: the one that the user named, 1 of 0 and 1, or the rarer. Others are
    kept in ascending order. A regression label is standardised by `mean` and `scale`. Like a table encoder, this stays
    with the party that holds the label.
    """

    task: Task
    classes: tuple[Scalar, ...] = ()
    mean: float = 0.0
    scale: float = 1.0
    sentence: str = field(default="", compare=False)
    """What labels were taken for, and why, for the party that holds them; not kept."""

    @classmethod
    def of(cls, table: PartyTable, task: str, learned: npt.NDArray[np.int64] | None = None) -> LabelEncoder:
        """Fit on a table's own labels: its classes are all that occur, also in rows that are held out.

        Numbers to predict are standardised by the rows to learn from, at the places ``learned``.
        """
        if table.labels is None:
            raise TableError(f"{table.name} has no label column. Set label = ….")
        known = table.labels[table.is_labelled]
        return cls.fit(known, task, table.positive, learned=None if learned is None else table.labels[learned])

    @classmethod
    def fit(
        cls,
        labels: npt.ArrayLike,
        task: str = "auto",
        positive: Scalar | None = None,
        *,
        learned: npt.ArrayLike | None = None,
    ) -> LabelEncoder:
        """Learn classes from all labels, or mean and scale from those of the rows to learn from, by default all.

        `auto` takes two different values as binary, text as multiclass, whole numbers of at most 10 different values
        as multiclass too, and all other numbers as regression.
        """
        if task not in ("auto", "binary", "multiclass", "regression"):
            known = ["auto", "binary", "multiclass", "regression"]
            raise ConfigError(f"There is no task '{task}'. {did_you_mean(task, known)}")
        values = label_values(labels)
        is_text = values.dtype == object
        classes, counts = different_labels(values)
        if len(classes) < 2:
            raise TableError(
                f"The {len(values)} labels have {len(classes)} different values. A model needs at least two."
            )
        is_whole = not is_text and bool(np.all(np.mod(values, 1) == 0))
        has_classes = is_text or (is_whole and len(classes) <= _MOST_WHOLE_CLASSES)
        found = task
        if task == "auto":
            found = "binary" if len(classes) == 2 else "multiclass" if has_classes else "regression"
        if found == "binary" and len(classes) != 2:
            raise TableError(f"A binary task needs two classes, and the labels have {len(classes)}. Use multiclass.")
        if found == "regression" and (is_text or values.dtype == bool):
            raise TableError("A regression needs numbers, and the labels are text or bools. Use binary or multiclass.")
        if positive is not None and found != "binary":
            raise ConfigError(
                f"positive names one of two classes, and the task {found} has none that is positive. Leave it out."
            )
        if found == "binary":
            return cls._of_two(classes, counts, positive)
        if found == "multiclass":
            return cls("multiclass", classes, sentence=_said(task, found, len(classes), is_text, is_whole))
        numbers = values if learned is None else label_values(learned)
        mean, scale = mean_and_scale(numbers.astype(np.float64))
        return cls("regression", (), mean, scale or 1.0, _said(task, found, len(classes), is_text, is_whole))

    @classmethod
    def _of_two(cls, classes: tuple[Scalar, ...], counts: tuple[int, ...], positive: Scalar | None) -> LabelEncoder:
        if positive is None:
            chosen, why = usual_positive(classes, counts)
            reason, how = f": {why},", " Set positive in [table] to change it."
        else:
            chosen, reason, how = named_class(np.array(classes), positive, "The label"), ", as set:", ""
        negative, share = classes[chosen == classes[0]], f"{counts[classes.index(chosen)]:,} of {sum(counts):,} labels"
        name = f"'{spelt_class(chosen)}'" if isinstance(chosen, str) else spelt_class(chosen)
        return cls("binary", (negative, chosen), sentence=f"{name} counts as positive{reason} {share}.{how}")

    def encode(self, labels: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return labels as 0.0 and 1.0 (binary), class numbers (multiclass, int64) or standardised (regression)."""
        values = label_values(labels)
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
        if task not in ("binary", "multiclass", "regression") or len(set(classes)) < len(classes):
            raise damaged("label encoder")
        if task != "regression" and len(classes) < 2:
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
        known = pd.Index(np.array(self.classes, dtype=np.float64))
        return known.get_indexer(pd.Index(values.astype(np.float64))).astype(np.int64)


def _said(task: str, found: str, count: int, is_text: bool, is_whole: bool) -> str:
    """Say what labels are taken for, and, where nobody said so, why and what changes it."""
    what = f"{count:,} classes" if found == "multiclass" else "numbers to predict"
    if task != "auto":
        return f"The labels are {what}, as task says."
    if is_text:
        return f"The labels are taken for {what}: they are text."
    if not is_whole:
        return f"The labels are taken for {what}: not all of them are whole."
    side, other = ("at most", "regression") if found == "multiclass" else ("more than", "multiclass")
    return (
        f"The labels are taken for {what}: whole numbers with {count:,} different values, {side} "
        f'{_MOST_WHOLE_CLASSES}. Set task = "{other}" in [config] to change it.'
    )
