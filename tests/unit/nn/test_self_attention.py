"""Self-attention against loops, and what absent items may not do."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from colonnade.nn import SelfAttention

HEADS, WIDTH, INPUTS = 2, 3, 4


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def attention(*, scale: bool = True) -> SelfAttention:
    generator = torch.Generator().manual_seed(1)
    return SelfAttention(INPUTS, HEADS, WIDTH, generator=generator, dtype=torch.float64, scale=scale)


def by_loop(layer: SelfAttention, items: torch.Tensor, *, scale: bool) -> np.ndarray:
    """Return the new vectors of one list of items, head by head and item by item."""
    W_q, W_k, W_v = (one.detach().numpy() for one in (layer.queries, layer.keys, layer.values))
    s, heads = items.numpy(), []
    for head in range(HEADS):
        part = slice(head * WIDTH, (head + 1) * WIDTH)
        mixed = []
        for query in s:
            products = [float((W_q[part] @ query) @ (W_k[part] @ key)) for key in s]
            powers = [math.exp(one / math.sqrt(WIDTH) if scale else one) for one in products]
            mixed.append(sum(power / sum(powers) * (W_v[part] @ value) for power, value in zip(powers, s, strict=True)))
        heads.append(np.array(mixed))
    return np.concatenate(heads, axis=1)


@pytest.mark.parametrize("scale", [True, False])
def test_every_item_is_mixed_as_the_formula_says(scale: bool) -> None:
    layer, items = attention(scale=scale), 3.0 * drawn(2, 5, INPUTS)
    found = layer(items).detach()
    for row in range(2):
        np.testing.assert_allclose(found[row], by_loop(layer, items[row], scale=scale), atol=1e-12)


def test_absent_items_come_out_as_zero_and_do_not_touch_the_others() -> None:
    layer, items = attention(), drawn(2, 4, INPUTS)
    mask = torch.tensor([[True, False, True, True], [False, False, True, False]])
    found = layer(items, mask).detach()
    assert torch.equal(found[~mask], torch.zeros(4, HEADS * WIDTH, dtype=torch.float64))
    np.testing.assert_allclose(found[0, [0, 2, 3]], by_loop(layer, items[0, [0, 2, 3]], scale=True), atol=1e-12)
    np.testing.assert_allclose(found[1, [2]], by_loop(layer, items[1, [2]], scale=True), atol=1e-12)


def test_nothing_there_and_spoilt_absent_items_leave_all_numbers_finite() -> None:
    layer, items = attention(), drawn(3, 3, INPUTS)
    mask = torch.tensor([[False] * 3, [True, False, True], [True] * 3])
    spoilt = items.masked_fill(~mask.unsqueeze(-1), math.nan).requires_grad_()
    found = layer(spoilt, mask)
    assert torch.equal(found, layer(items, mask))
    assert torch.equal(found[0], torch.zeros(3, HEADS * WIDTH, dtype=torch.float64))
    found.square().sum().backward()
    for parameter in (spoilt, *layer.parameters()):
        assert parameter.grad is not None
        assert parameter.grad.isfinite().all()


def test_items_in_another_order_come_out_in_that_order() -> None:
    layer, items, mask = attention(), drawn(2, 5, INPUTS), torch.tensor([[True] * 5, [True, False, True, True, False]])
    order = torch.tensor([3, 0, 4, 1, 2])
    moved = layer(items[:, order], mask[:, order])
    torch.testing.assert_close(moved, layer(items, mask)[:, order], rtol=0, atol=1e-14)


def test_items_may_lie_below_several_axes_and_a_mask_be_given_once() -> None:
    layer, items, mask = attention(), drawn(2, 3, 4, INPUTS), torch.tensor([True, True, False, True])
    flat = layer(items.flatten(0, 1), mask.expand(6, 4))
    torch.testing.assert_close(layer(items, mask).flatten(0, 1), flat, rtol=0, atol=1e-14)
    assert layer(items[:0, 0], mask).shape == (0, 4, HEADS * WIDTH)
