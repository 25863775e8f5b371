from __future__ import annotations

import pytest
import torch

from colonnade.nn import loss_gradient, row_losses


@pytest.mark.parametrize("task", ["binary", "multiclass", "regression"])
def test_the_gradient_of_a_loss_is_what_a_graph_would_give(task: str) -> None:
    generator = torch.Generator().manual_seed(4)
    outputs = 3 * torch.randn(9, 4 if task == "multiclass" else 1, generator=generator, dtype=torch.float64)
    targets = torch.randint(0, 4 if task == "multiclass" else 2, (9,), generator=generator)
    wanted = targets if task == "multiclass" else targets.double()
    weights = torch.rand(9, generator=generator, dtype=torch.float64)
    leaf = outputs.clone().requires_grad_()
    expected = (row_losses(task, leaf, wanted) * weights).mean()
    expected.backward()  # type: ignore[no-untyped-call]
    before = outputs.clone()
    gradient = loss_gradient(task, outputs, wanted, weights)
    assert torch.equal(outputs, before)
    assert leaf.grad is not None
    assert (gradient - leaf.grad).abs().max() < 1e-12
