"""Additive attention against loops, and what absent items may not do."""

from __future__ import annotations

import math

import numpy as np
import torch

from colonnade.nn import AdditiveAttention, masked_softmax


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention(inputs: int = 3, hidden: int = 4) -> AdditiveAttention:
    return AdditiveAttention(inputs, hidden, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def by_loop(layer: AdditiveAttention, items: torch.Tensor) -> tuple[np.ndarray, np.ndarray]:
    """Return the pooled vector and weights of one list of items, number by number."""
    V, b, w = (one.detach().numpy() for one in (layer.project.weight, layer.project.bias, layer.direction))
    scores = []
    for item in items.numpy():
        hidden = [math.tanh(sum(V[unit, k] * item[k] for k in range(len(item))) + b[unit]) for unit in range(len(b))]
        scores.append(math.exp(sum(w[unit] * hidden[unit] for unit in range(len(b)))))
    weights = np.array(scores) / sum(scores)
    return sum(weight * item for weight, item in zip(weights, items.numpy(), strict=True)), weights


def test_weights_and_sum_are_those_of_the_formula() -> None:
    layer, items = attention(), drawn(2, 5, 3)
    pooled, weights = layer.with_weights(items)
    assert torch.equal(pooled, layer(items))
    for row in range(2):
        expected, shares = by_loop(layer, items[row])
        np.testing.assert_allclose(pooled[row].detach(), expected, atol=1e-12)
        np.testing.assert_allclose(weights[row].detach(), shares, atol=1e-12)


def test_an_absent_item_has_weight_zero_and_the_rest_is_as_if_it_were_not_given() -> None:
    layer, items = attention(), drawn(1, 4, 3)
    pooled, weights = layer.with_weights(items, torch.tensor([[True, False, True, True]]))
    assert weights[0, 1] == 0.0
    expected, shares = by_loop(layer, items[0, [0, 2, 3]])
    np.testing.assert_allclose(pooled[0].detach(), expected, atol=1e-12)
    np.testing.assert_allclose(weights[0, [0, 2, 3]].detach(), shares, atol=1e-12)


def test_a_mask_for_all_rows_may_be_given_once() -> None:
    layer, items, mask = attention(), drawn(6, 4, 3), torch.tensor([True, True, False, True])
    torch.testing.assert_close(layer(items, mask), layer(items, mask.expand(6, 4)), rtol=0, atol=1e-15)


def test_nothing_there_gives_zero_and_no_gradient_that_is_not_a_number() -> None:
    layer, items = attention(), drawn(2, 3, 3).requires_grad_()
    mask = torch.tensor([[False, False, False], [True, False, True]])
    pooled, weights = layer.with_weights(items, mask)
    assert torch.equal(pooled[0], torch.zeros(3, dtype=torch.float64))
    assert torch.equal(weights[0], torch.zeros(3, dtype=torch.float64))
    pooled.square().sum().backward()
    assert items.grad is not None
    assert torch.equal(items.grad[~mask], torch.zeros(4, 3, dtype=torch.float64))
    assert (items.grad[mask] != 0).any()
    for parameter in (items, *layer.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_an_absent_item_may_hold_anything() -> None:
    layer, items, mask = attention(), drawn(1, 3, 3), torch.tensor([[True, False, True]])
    spoilt = items.clone()
    spoilt[0, 1] = torch.tensor([math.nan, math.inf, -math.inf])
    assert torch.equal(layer(spoilt, mask), layer(items, mask))
    layer(spoilt, mask).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())


def test_the_order_of_items_does_not_matter() -> None:
    layer, items, mask = attention(), drawn(2, 5, 3), torch.tensor([[True] * 5, [True, False, True, True, False]])
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(layer(items[:, order], mask[:, order]), layer(items, mask), rtol=0, atol=1e-14)


def test_masked_softmax_outlives_large_logits() -> None:
    logits = torch.tensor([[1e4, 1e4, 2e4], [-1e4, 0.0, 1e4]], dtype=torch.float64)
    found = masked_softmax(logits, torch.tensor([[True, True, False], [True, False, False]]))
    assert found.tolist() == [[0.5, 0.5, 0.0], [1.0, 0.0, 0.0]]
