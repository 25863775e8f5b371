"""The recurrence against torch's own."""

from __future__ import annotations

import math

import torch

from colonnade.nn import GRU


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def both(inputs: int = 3, outputs: int = 4) -> tuple[GRU, torch.nn.GRU]:
    """Return ours and torch's with the same weights."""
    ours = GRU(inputs, outputs, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs = torch.nn.GRU(inputs, outputs, batch_first=True, dtype=torch.float64)
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.from_item.weight)
        theirs.bias_ih_l0.copy_(ours.from_item.bias)
        theirs.weight_hh_l0.copy_(ours.from_state.weight)
        theirs.bias_hh_l0.copy_(ours.from_state.bias)
    return ours, theirs


def test_the_last_state_is_torchs() -> None:
    ours, theirs = both()
    items, begin = drawn(5, 6, 3), drawn(5, 4, seed=1)
    torch.testing.assert_close(ours(items), theirs(items)[1][0], rtol=0, atol=1e-13)
    torch.testing.assert_close(ours(items, begin), theirs(items, begin[None])[1][0], rtol=0, atol=1e-13)


def test_absent_items_are_passed_over_wherever_they_stand() -> None:
    ours, theirs = both()
    items, begin = drawn(3, 5, 3), drawn(3, 4, seed=1)
    mask = torch.tensor([[True, False, True, False, True], [False, True, True, False, False], [False] * 5])
    spoilt = items.masked_fill(~mask.unsqueeze(-1), math.nan)
    found = ours(spoilt, begin, mask)
    for row in range(2):
        alone = theirs(items[row][mask[row]][None], begin[None, [row]])[1][0, 0]
        torch.testing.assert_close(found[row], alone, rtol=0, atol=1e-13)
    assert torch.equal(found[2], begin[2])
    found.sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in ours.parameters())


def test_gradients_are_torchs() -> None:
    ours, theirs = both()
    items = drawn(5, 6, 3)
    ours(items).square().sum().backward()
    theirs(items)[1].square().sum().backward()
    torch.testing.assert_close(ours.from_item.weight.grad, theirs.weight_ih_l0.grad, rtol=0, atol=1e-12)
    torch.testing.assert_close(ours.from_state.bias.grad, theirs.bias_hh_l0.grad, rtol=0, atol=1e-12)
