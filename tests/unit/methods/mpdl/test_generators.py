"""Generators by themselves: what they may give."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import colonnade as cn
from colonnade.methods.mpdl.generators import Mean, Perceptron, Ridge, empty_generator

SHARED_DRAW: dict[str, Any] = {"mechanism": "lemma_shared", "paper_mode": True, "dp_scope": "all"}


def given_by(generator: str, **settings: Any) -> torch.Tensor:
    """Return what a generator gives that has learned columns around 30."""
    made = empty_generator(cn.MPDL(generator=generator, **settings), 2, 3)  # type: ignore[arg-type]
    inputs = torch.rand(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    targets = 30.0 + inputs @ torch.ones(2, 3, dtype=torch.float64)
    if isinstance(made, Ridge):
        made.fit(inputs, targets, (1e-3,), 0)
    elif isinstance(made, Mean):
        made.fit(targets)
    elif isinstance(made, Perceptron):
        with torch.no_grad():
            next(iter(made.network.parameters())).add_(30.0)
    return made(inputs)


@pytest.mark.parametrize("generator", ["ridge", "mean", "mlp"])
def test_columns_between_0_and_1_are_generated_within(generator: str) -> None:
    found = given_by(generator, mechanism="none")
    assert 0.0 <= float(found.min()) <= float(found.max()) <= 1.0


@pytest.mark.parametrize("generator", ["ridge", "mean", "mlp"])
def test_a_draw_that_all_rows_share_is_not_clipped_away(generator: str) -> None:
    """It moves whole columns far out of their bounds, and with them what is learned from them."""
    found = given_by(generator, **SHARED_DRAW)
    assert float(found.abs().max()) > 2.0
