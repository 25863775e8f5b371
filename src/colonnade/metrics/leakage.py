"""How well labels can be told from gradients at the cut: the attacks of Li et al., ICLR 2022, as numbers.

Classes are 0 and 1. Two attacks are given more than a real one would have: the direction attack the labels of half of
the rows, the norm attack the better of its two orientations. The spectral attack is given no label, only which class is
rarer (J. Sun et al., arXiv:2203.01451, attack activations so). The numbers are measurements of these attacks and no
bound on others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.errors import UsageError
from colonnade.metrics.counting import area_under_roc

__all__ = ["direction_attack_auc", "norm_attack_auc", "sign_attack_accuracy", "spectral_attack_auc"]

Array = np.ndarray[Any, Any]


def direction_attack_auc(gradients: Array, classes: Array) -> float:
    """Return the AUC of scoring rows by where they lie along the line between the two classes' means.

    Every second row of each class, with its label, is the attacker's clue about that line; the other rows are scored.
    Then the two change places, and the mean is returned. Which end is positive is part of the clue, so the number is
    not turned round: without any leak it lies about 0.5, on either side.
    """
    gradients, is_positive = _checked(gradients, classes)
    is_clue = np.zeros(len(gradients), bool)
    for one in (True, False):
        is_clue[np.flatnonzero(is_positive == one)[::2]] = True
    found = []
    for clue in (is_clue, ~is_clue):
        line = gradients[clue & is_positive].mean(axis=0) - gradients[clue & ~is_positive].mean(axis=0)
        found.append(area_under_roc(is_positive[~clue], gradients[~clue] @ line))
    return float(np.mean(found))


def norm_attack_auc(gradients: Array, classes: Array) -> float:
    """Return the AUC of scoring rows by the length of their gradients.

    Whether long means positive depends on the rarer class, which the attacker is taken to know: the better of the two
    orientations is reported, so that the number is never below 0.5, and by chance a little above.
    """
    gradients, is_positive = _checked(gradients, classes)
    area = area_under_roc(is_positive, np.linalg.norm(gradients, axis=1))
    return max(area, 1.0 - area)


def spectral_attack_auc(gradients: Array, classes: Array, *, rarer: int = 1) -> float:
    """Return the AUC of scoring rows by where they lie along the line on which a batch's gradients differ most.

    That line is the first singular vector of the batch less its mean. The end of it with fewer rows is taken for the
    rarer class. Which class that is counts as known, no label does, and the number is not turned round.
    """
    gradients, is_positive = _checked(gradients, classes)
    centred = gradients - gradients.mean(axis=0)
    scores = centred @ np.linalg.svd(centred, full_matrices=False)[2][0]
    if (scores > 0.0).mean() > 0.5:
        scores = -scores
    return area_under_roc(is_positive, scores if rarer == 1 else -scores)


def sign_attack_accuracy(gradients: Array, classes: Array) -> float:
    """Return the share of rows whose class the sign of their gradient gives away.

    Gradients of several columns are first put on the line they lie closest to. It has no end that is positive by
    itself, so the better of the two is reported; guessing the more frequent class would reach its share.
    """
    gradients, is_positive = _checked(gradients, classes)
    _, _, axes = np.linalg.svd(gradients, full_matrices=False)
    right = float(((gradients @ axes[0] > 0.0) == is_positive).mean())
    return max(right, 1.0 - right)


def _checked(gradients: Array, classes: Array) -> tuple[Array, Array]:
    gradients, is_positive = np.asarray(gradients, np.float64), np.asarray(classes) == 1
    if gradients.ndim != 2 or len(gradients) != len(is_positive):
        raise UsageError(f"There are {len(is_positive)} classes for gradients of shape {gradients.shape}.")
    if min(int(is_positive.sum()), int((~is_positive).sum())) < 2:
        raise UsageError("An attack is measured on at least two rows of each of the two classes.")
    return gradients, is_positive
