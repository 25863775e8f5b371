"""Attacks on gradients as numbers: they find what is there, and nothing where there is nothing."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import UsageError
from colonnade.metrics import direction_attack_auc, norm_attack_auc, sign_attack_accuracy, spectral_attack_auc

GENERATOR = np.random.default_rng(0)
CLASSES = (GENERATOR.random(600) < 0.2).astype(int)
SLOPES = np.where(CLASSES == 1, -1.0, 0.25) * GENERATOR.uniform(0.2, 1, 600)
GRADIENTS = SLOPES[:, None] * GENERATOR.normal(size=(1, 16))


@pytest.mark.parametrize("gradients", [SLOPES[:, None], GRADIENTS, -GRADIENTS])
def test_a_binary_labels_gradients_give_it_away(gradients: np.ndarray) -> None:
    assert direction_attack_auc(gradients, CLASSES) == 1.0
    assert norm_attack_auc(gradients, CLASSES) > 0.9
    assert sign_attack_accuracy(gradients, CLASSES) == 1.0
    assert spectral_attack_auc(gradients, CLASSES) == 1.0
    assert spectral_attack_auc(gradients, 1 - CLASSES, rarer=0) == 1.0


def test_noise_alone_gives_nothing_away_however_many_columns_there_are() -> None:
    found = [direction_attack_auc(GENERATOR.normal(size=(600, 200)), CLASSES) for _ in range(10)]
    # Scored on the rows that gave the direction, it would come out near 1.
    assert abs(np.mean(found) - 0.5) < 0.04
    assert min(found) < 0.5
    assert 0.5 <= norm_attack_auc(GENERATOR.normal(size=(600, 200)), CLASSES) < 0.6
    found = [spectral_attack_auc(GENERATOR.normal(size=(600, 200)), CLASSES) for _ in range(10)]
    assert abs(np.mean(found) - 0.5) < 0.04


def test_norms_find_what_directions_do_not() -> None:
    gradients = GENERATOR.normal(size=(600, 8)) * np.where(CLASSES == 1, 1.0, 4.0)[:, None]
    assert abs(direction_attack_auc(gradients, CLASSES) - 0.5) < 0.1
    assert norm_attack_auc(gradients, CLASSES) > 0.95, "short may mean positive as well"


def test_too_few_rows_of_a_class_and_a_wrong_shape_are_refused() -> None:
    with pytest.raises(UsageError, match="two rows of each"):
        direction_attack_auc(GRADIENTS[:5], np.array([1, 0, 0, 0, 0]))
    with pytest.raises(UsageError, match="600 classes for gradients of shape"):
        norm_attack_auc(SLOPES, CLASSES)
