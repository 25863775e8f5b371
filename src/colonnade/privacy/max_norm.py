"""The max-norm heuristic: noise across each gradient that makes all of a batch equally long.

O. Li et al., "Label leakage and protection in two-party split learning", ICLR 2022. It hides norms and nothing else:
the direction attack works as before. It is here to be measured against, and no method offers it.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from colonnade.errors import ConfigError
from colonnade.privacy.noise import SecretNoise

__all__ = ["equalise_norms"]

Array = np.ndarray[Any, Any]


def equalise_norms(gradients: Array, noise: SecretNoise, counter: int, purpose: str = "max norm") -> Array:
    """Return gradients of the largest norm in the batch, each with noise at right angles to it.

    A gradient that is 0 gets noise in any direction.
    """
    if gradients.ndim != 2 or gradients.shape[1] < 2:
        raise ConfigError("Noise at right angles needs gradients of two columns or more.")
    norms = np.linalg.norm(gradients, axis=1, keepdims=True)
    units = np.divide(gradients, norms, out=np.zeros_like(gradients, dtype=np.float64), where=norms > 0.0)
    draws = noise.gaussian(purpose, counter, gradients.shape)
    across = draws - (draws * units).sum(axis=1, keepdims=True) * units
    across /= np.linalg.norm(across, axis=1, keepdims=True)
    missing: Array = np.sqrt(np.maximum(norms.max() ** 2 - norms**2, 0.0))
    protected: Array = gradients + missing * across
    return protected
