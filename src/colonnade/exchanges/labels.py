"""The label holder's labels as losses take them, also of rows that no other party knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import TableError, WrongContent
from colonnade.exchanges.holdings import fit_labels, table_labels
from colonnade.session import Channel, Holding, Session

__all__ = ["OwnLabels", "check_scores", "most_scores", "own_labels"]

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class OwnLabels:
    """The labels of all rows of the label holder's table, as losses take them."""

    encoder: LabelEncoder
    targets: torch.Tensor
    values: npt.NDArray[np.object_]

    @property
    def task(self) -> str:
        """Return what kind of labels they are."""
        return self.encoder.task

    @property
    def outputs(self) -> int:
        """Return how many scores a row has."""
        return len(self.encoder.classes) if self.task == "multiclass" else 1


def most_scores(task: str, most: int) -> int:
    """Return how many scores a row may have by the agreed task: each is one number more that is told of every row."""
    return 1 if task in ("binary", "regression") else most


def check_scores(peer: Channel, task: str, announced: int) -> None:
    """Refuse more scores than the agreed task has: each is one number more that is told of every row."""
    if task in ("binary", "regression") and announced != 1:
        raise WrongContent(
            f"'{peer.peer}' announces {announced} scores for each row; the agreed task, {task}, has one."
        )


def own_labels(
    session: Session, holding: Holding, task: str, precision: str, learned: Places, held_out: Places
) -> OwnLabels:
    """Encode the labels of the rows to learn from, shared or not, and to judge by; both are places in the table."""
    labels = table_labels(session, holding)
    missing = int(np.count_nonzero(~holding.table.is_labelled[holding.aligned.positions]))
    if missing:
        raise TableError(
            f"{missing} of {len(holding.aligned)} shared rows of '{session.party}' have no label. Rows that only it "
            "knows may lack one, shared rows may not: fill in their labels, or remove them."
        )
    encoder = fit_labels(session, holding, task, learned, held_out)
    known = np.concatenate([learned, held_out])
    encoded = np.zeros(holding.table.rows)
    encoded[known] = encoder.encode(labels[known])
    targets = torch.from_numpy(encoded)
    dtype = torch.float64 if precision == "float64" else torch.float32
    return OwnLabels(encoder, targets.long() if encoder.task == "multiclass" else targets.to(dtype), labels)
