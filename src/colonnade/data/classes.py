"""The classes of labels, and which of two counts as the positive one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.errors import TableError, did_you_mean
from colonnade.text import shown

__all__ = ["Scalar", "different_labels", "label_values", "named_class", "spelt_class", "usual_positive"]

Scalar: TypeAlias = str | int | float | bool

_LONGEST_SHOWN = 60
# Of these the second is what people mean by positive.
_SPEAKING = (("0", "1"), ("false", "true"))


def label_values(labels: npt.ArrayLike) -> npt.NDArray[Any]:
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
        return label_values(np.array(cells))
    kinds = ", ".join(sorted({type(cell).__name__ for cell in cells}))
    raise TableError(
        f"Labels mix or have types that cannot be labels: {kinds}. Use numbers, bools or text, not a mixture."
    )


def different_labels(values: npt.NDArray[Any]) -> tuple[tuple[Scalar, ...], tuple[int, ...]]:
    """Return the different labels in ascending order, and how often each occurs."""
    found, counts = np.unique(values, return_counts=True)
    return tuple(_plain(one) for one in found.tolist()), tuple(counts.tolist())


def named_class(labels: npt.ArrayLike, given: Scalar, where: str) -> Scalar:
    """Return which of two classes the user calls positive, however it is written; ``where`` begins the errors."""
    classes, _ = different_labels(label_values(labels))
    if len(classes) != 2:
        raise TableError(
            f"{where} has {len(classes)} different values, and a positive class is one of two. Leave out positive: "
            "several classes get a probability each, and numbers to predict have none."
        )
    for one in classes:
        if _is_same(one, given):
            return one
    hint = did_you_mean(str(given), [spelt_class(name) for name in classes])
    raise TableError(f"{where} has 2 classes, and positive = {given!r} is neither of them. {hint}")


def usual_positive(classes: Sequence[Scalar], counts: Sequence[int]) -> tuple[Scalar, str]:
    """Return which of two classes counts as positive where the user does not say, and why."""
    if tuple(str(one).lower() for one in classes) in _SPEAKING:
        return classes[1], f"labels are {classes[0]} and {classes[1]}"
    if counts[0] == counts[1]:
        return classes[1], "both classes are as frequent, and it is the second in order"
    return classes[int(counts[1] < counts[0])], "the rarer class"


def spelt_class(name: Scalar) -> str:
    """Return a class for people to read."""
    return shown(str(name), _LONGEST_SHOWN)


def _plain(value: Any) -> Scalar:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return cast(Scalar, value)


def _is_same(known: Scalar, given: Scalar) -> bool:
    """Compare as written: 1, 1.0 and "1" are one class, and so are True, "true" and, for booleans, 1."""
    first, second = str(_plain(known)).strip(), str(_plain(given)).strip()
    if isinstance(known, bool):
        return second.lower() in (first.lower(), str(int(known)))
    if isinstance(given, bool):
        return isinstance(known, str) and first.lower() == second.lower()
    if not isinstance(known, str) and (number := _number(second)) is not None:
        return float(known) == number
    return first == second


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
