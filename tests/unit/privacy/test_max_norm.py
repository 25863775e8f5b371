"""The max-norm heuristic hides norms, and not directions."""

from __future__ import annotations

import numpy as np
import pytest

from colonnade.errors import ConfigError
from colonnade.metrics import direction_attack_auc, norm_attack_auc
from colonnade.privacy import SecretNoise, equalise_norms

NOISE = SecretNoise(bytes(32))


def test_norms_become_equal_while_the_gradient_stays_in_it() -> None:
    generator = np.random.default_rng(0)
    classes = (generator.random(400) < 0.2).astype(int)
    slopes = np.where(classes == 1, -1, 0.2) * generator.uniform(0.5, 1, 400)
    gradients = slopes[:, None] * generator.normal(size=(1, 6))
    protected = equalise_norms(gradients, NOISE, 0)
    assert np.ptp(np.linalg.norm(protected, axis=1)) < 1e-12
    assert np.allclose(((protected - gradients) * gradients).sum(axis=1), 0)
    assert norm_attack_auc(gradients, classes) > 0.95
    # Equal up to rounding, whose order means nothing.
    assert norm_attack_auc(protected.round(9), classes) < 0.6
    assert direction_attack_auc(protected, classes) > 0.95


def test_a_gradient_of_zero_gets_noise_and_one_column_is_refused() -> None:
    protected = equalise_norms(np.array([[0.0, 0.0], [3.0, 4.0]]), NOISE, 1)
    assert np.linalg.norm(protected, axis=1) == pytest.approx([5, 5])
    with pytest.raises(ConfigError, match="two columns"):
        equalise_norms(np.ones((3, 1)), NOISE, 0)
