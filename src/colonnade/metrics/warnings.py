"""What makes metrics of classes say little, as sentences for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from colonnade.metrics.uncertainty import auc_interval

__all__ = ["FEW", "warnings_of_classes"]

FEW = 20
"""With fewer rows of a class, numbers about it are rough."""
_NAMED = 5


def warnings_of_classes(
    names: Sequence[str], counts: NDArray[np.int64], called: NDArray[Any], metrics: Mapping[str, float]
) -> tuple[str, ...]:
    """Say what the reader of these metrics must know first: ``counts`` are held-out rows by true class."""
    rows, largest = int(counts.sum()), int(np.argmax(counts))
    if counts[largest] == rows:
        only = f"All {rows:,} held-out rows are '{names[largest]}'"
        return (f"{only}, so that no number here says how well the model tells classes apart.",)
    found = []
    few = [place for place in np.argsort(counts, kind="stable") if counts[place] < FEW]
    if few:
        told = ", ".join(f"{counts[place]} are '{names[place]}'" for place in few[:_NAMED])
        more = f" and {len(few) - _NAMED} more classes are as rare" if len(few) > _NAMED else ""
        found.append(f"Of {rows:,} held-out rows only {told}{more}: another split would give other numbers.")
    if len(said := np.unique(called)) == 1:
        found.append(
            f"The model calls every held-out row '{names[int(said[0])]}', so that nothing can be decided by its calls."
        )
    elif metrics["accuracy"] <= counts[largest] / rows:
        found.append(
            f"Accuracy is {metrics['accuracy']:.3f}, and always saying '{names[largest]}' would reach "
            f"{counts[largest] / rows:.3f}: do not judge these calls by accuracy."
        )
    if "auc" in metrics:
        low, high = auc_interval(metrics["auc"], int(counts[1]), int(counts[0]))
        if low <= 0.5 <= high:
            found.append(
                f"The interval of AUC, about {low:.3f} to {high:.3f}, includes 0.5: on these rows the model cannot be "
                "told from guessing."
            )
    return tuple(found)
