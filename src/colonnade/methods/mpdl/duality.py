"""The gradient at generated columns: how far they are from the real ones, and the dual penalty.

With u_A = log P_A(x_A) - log P_A(generated x_A) and u_B = log P_B(generated x_B) - log P_B(x_B), the penalty is
(u_A + u_B)², and its gradient at generated columns of B is 2 (u_A + u_B) times the gradient of log P_B there, with the
other sign at those of A. The densities are estimated from released rows only. The other form takes a Gaussian around
the generated columns in place of the density there: P(x_A) P(x_B | x_A) = P(x_B) P(x_A | x_B).
"""

from __future__ import annotations

import math

import torch

from colonnade.errors import ConfigError
from colonnade.methods.mpdl.config import MPDL
from colonnade.nn import KernelDensity, thinned

__all__ = ["Judge", "dual_gradient"]

_REMEMBERED = 0.9
_LEAST_VARIANCE = 1e-6


class Judge:
    """Knows the real columns of one party, as they were released, and judges generated ones."""

    def __init__(self, config: MPDL, targets: torch.Tensor, sign: float, columns: int, seed: int) -> None:
        """Take the sign of u, +1 for the label holder's columns, and how many columns both sides have together."""
        self._config, self._targets, self._sign = config, targets, sign
        self._scale = 1.0 / columns if config.dual_scale == "per_dim" else 1.0
        self._density: KernelDensity | None = None
        self._variance: float | None = None
        if config.dual_is_on:
            support, self._places = thinned(targets, config.support, seed=seed)
            self._density = KernelDensity(support)

    def alignment(self, generated: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the gradient of the mean squared difference, over cells that are there."""
        errors = generated - self._targets[rows]
        known = ~torch.isnan(errors)
        return 2.0 * torch.nan_to_num(errors, nan=0.0) / max(int(known.sum()), 1)

    def penalty(self, generated: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return u, scaled and clipped, and its gradient at the generated columns before clipping."""
        if self._density is None:
            raise ConfigError("There is no dual penalty in these settings. Set dual_weight.")
        real = self._targets[rows]
        expected = self._density.log_density(real, own=self._places[rows])
        if self._config.dual_form == "gaussian_conditional":
            found, slope = self._conditional(generated, real)
        else:
            found, slope = self._density.both(generated)
        scale = self._sign * self._scale
        clip = self._config.dual_clip
        return ((found - expected) * scale).clamp(-clip, clip), slope * scale

    def _conditional(self, generated: torch.Tensor, real: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        errors = torch.nan_to_num(real - generated, nan=0.0)
        fresh = max(float((errors**2).mean()), _LEAST_VARIANCE)
        old = self._variance
        self._variance = fresh if old is None else _REMEMBERED * old + (1.0 - _REMEMBERED) * fresh
        logarithms = -0.5 * (errors**2 / self._variance + math.log(2.0 * math.pi * self._variance))
        return logarithms.sum(dim=1), errors / self._variance


def dual_gradient(weight: float, own: torch.Tensor, other: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the weighted mean penalty at generated columns."""
    return 2.0 * weight / len(own) * (own + other)[:, None] * slope
