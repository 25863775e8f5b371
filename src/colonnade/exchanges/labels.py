"""The label holder's labels as losses take them, also of rows that no other party knows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from colonnade.data import LabelEncoder
from colonnade.errors import ConfigError, TableError, WrongContent
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
    """Encode labels by those of the rows to learn from, shared or not; both kinds of rows are places in the table."""
    labels = holding.table.labels
    if labels is None:
        raise ConfigError(f"'{session.party}' is the label holder but its table has no label column. Set label = ….")
    missing = int(np.count_nonzero(~holding.table.is_labelled[holding.aligned.positions]))
    if missing:
        raise TableError(
            f"{missing} of {len(holding.aligned)} shared rows of '{session.party}' have no label. Rows that only it "
            "knows may lack one, shared rows may not: fill in their labels, or remove them."
        )
    encoder = LabelEncoder.fit(labels[learned], task)
    known = np.concatenate([learned, held_out])
    if encoder.task != "regression" and len(np.unique(labels[known])) > len(encoder.classes):
        raise TableError(
            "Some labels occur in held-out rows only, so that nobody could learn them. Lower "
            "evaluate.validation_fraction or evaluate.test_fraction, choose another run.seed, or leave those rows out."
        )
    encoded = np.zeros(holding.table.rows)
    encoded[known] = encoder.encode(labels[known])
    targets = torch.from_numpy(encoded)
    dtype = torch.float64 if precision == "float64" else torch.float32
    return OwnLabels(encoder, targets.long() if encoder.task == "multiclass" else targets.to(dtype), labels)
