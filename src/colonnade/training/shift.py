"""How new rows differ from those a model has learned from: counts by column, for the party whose columns they are.

What is told of a column, and from when on:

- cells with a category that no training row had: always; with a warning where they are more than half of the cells;
- missing cells: where their share is higher than in training by a tenth of the rows;
- numbers and dates beyond where the encoder bounds them, which training rows hardly reach: from a twentieth of the
  cells, and five, on;
- a mean that has moved: by half a standard deviation of the training rows.

All but the first must also be more than four standard errors, so that a few new rows are not told of for what chance
does. Nothing of it is sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from colonnade.data.parts import Categories, typed
from colonnade.training.numbers import Numbers

__all__ = ["Training", "differences"]

_MORE_MISSING = 0.1
_BEYOND = 0.05
_FEWEST_BEYOND = 5
_MOVED = 0.5
_ERRORS = 4.0


@dataclass(frozen=True, repr=False)
class Training:
    """What the training rows had in one column, beside what its encoder keeps."""

    missing: float
    """The share of missing cells."""
    rare: tuple[str, ...] = ()
    """Categories that were there and have no output of their own."""

    @classmethod
    def of(cls, part: Numbers | Categories, values: npt.NDArray[Any]) -> Training:
        """Look at the cells that a part was fitted on."""
        absent = _absent(values)
        rare = set(values[~absent]) - set(part.categories) if isinstance(part, Categories) else set()
        return cls(float(absent.mean()), tuple(sorted(rare)))

    def to_json(self) -> dict[str, Any]:
        """Return it for JSON."""
        return {"missing": self.missing, "rare": list(self.rare)}

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Training:
        """Return what `to_json` wrote; KeyError, TypeError or ValueError where it is damaged."""
        return cls(typed(saved["missing"], float), tuple(typed(one, str) for one in saved["rare"]))


def differences(part: Numbers | Categories, training: Training, values: npt.NDArray[Any]) -> str:
    """Say how a column's new cells differ from those of training; empty where they do not."""
    absent = _absent(values)
    known = values[~absent]
    found = list(_of_missing(absent, training.missing))
    is_loud = False
    if isinstance(part, Categories):
        unseen = int((~pd.Index(known, dtype=object).isin([*part.categories, *training.rare])).sum())
        is_loud = 2 * unseen > len(values)
        if unseen:
            found.append(f"{_share(unseen, len(values))} hold a category that no training row had")
    elif len(known):
        found += _of_numbers(part, known.astype(np.float64))
    if not found:
        return ""
    return f"{'Warning: in' if is_loud else 'In'} column '{part.column}' {'; '.join(found)}."


def _of_missing(absent: npt.NDArray[np.bool_], before: float) -> Iterator[str]:
    if not len(absent):
        return
    share = float(absent.mean())
    if share - before > max(_MORE_MISSING, _ERRORS * sqrt(before * (1 - before) / len(absent))):
        yield f"{_share(int(absent.sum()), len(absent))} are missing, of the training rows {before:.1%}"


def _of_numbers(part: Numbers, known: npt.NDArray[np.float64]) -> Iterator[str]:
    beyond = part.beyond(known)
    if beyond >= max(_FEWEST_BEYOND, _BEYOND * len(known)):
        yield f"{_share(beyond, len(known))} lie beyond the range of training and count as its end"
    moved = part.distance(known)
    if abs(moved) > max(_MOVED, _ERRORS / sqrt(len(known))):
        side = "above" if moved > 0 else "below"
        yield f"the mean lies {abs(moved):.1f} standard deviations {side} that of training"


def _absent(values: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if values.dtype == object:
        return np.asarray(values == None)  # noqa: E711 (elementwise)
    return np.asarray(np.isnan(values))


def _share(count: int, rows: int) -> str:
    return f"{count:,} of {rows:,} cells ({count / rows:.1%})"
