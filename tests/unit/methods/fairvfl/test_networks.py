"""The aggregator: what it makes of codes of parties that are there or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.unit.methods.fairvfl.parity_worlds import settings

from colonnade.methods.fairvfl.networks import Aggregator, build_aggregator

PARTIES, ROWS = 4, 9


def tokens(seed: int = 3) -> torch.Tensor:
    return torch.randn(ROWS, PARTIES, 8, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def everybody() -> torch.Tensor:
    return torch.ones(ROWS, PARTIES, dtype=torch.bool)


def network(**changes: Any) -> Aggregator:
    return build_aggregator(settings(**changes), PARTIES, 5)


@pytest.mark.parametrize("changes", [{}, {"removal": "paper"}, {"scale": False}])
def test_the_order_of_parties_does_not_matter_to_attention(changes: dict[str, Any]) -> None:
    there = torch.rand(ROWS, PARTIES, generator=torch.Generator().manual_seed(8)) < 0.7
    one, codes = network(**changes), tokens()
    for order in ([1, 0, 2, 3], [3, 2, 1, 0], [2, 3, 0, 1]):
        assert torch.allclose(one(codes[:, order], there[:, order]), one(codes, there), rtol=0, atol=1e-12)


def test_the_order_of_parties_matters_to_dense_layers() -> None:
    one, codes = network(aggregation="concat_mlp"), tokens()
    assert not torch.allclose(one(codes[:, [1, 0, 2, 3]], everybody()), one(codes, everybody()), atol=1e-3)


@pytest.mark.parametrize("aggregation", ["attention", "concat_mlp"])
def test_what_an_absent_party_sends_counts_for_nothing(aggregation: str) -> None:
    one, codes, there = network(aggregation=aggregation), tokens().requires_grad_(), everybody()
    there[:, 2] = False
    there[4] = False
    found = one(codes, there)
    assert bool(found.isfinite().all())
    found.square().sum().backward()
    assert codes.grad is not None
    assert float(codes.grad[~there].abs().max()) == 0.0
    assert float(codes.grad[:, 0].abs().max()) > 1e-6
    others = torch.where(there[..., None], codes.detach(), 77.0)
    assert torch.equal(one(others, there), found)


def test_an_absent_party_has_no_weight_in_either_softmax() -> None:
    one, codes, there = network(), tokens(), everybody()
    there[:, 1] = False
    without = [0, 2, 3]
    mixed = one.attention(codes, there)
    assert torch.allclose(mixed[:, without], one.attention(codes[:, without]), atol=1e-12)
    weights = one.pooling.with_weights(mixed, there)[1].detach()
    assert float(weights[:, 1].abs().max()) == 0.0
    assert torch.allclose(weights.sum(dim=1), torch.ones(ROWS, dtype=torch.float64))
    few = build_aggregator(settings(), len(without), 5)
    assert torch.allclose(few(codes[:, without], everybody()[:, without]), one(codes, there), atol=1e-12)


def test_attention_is_divided_by_the_root_of_a_heads_width_only_if_asked_for() -> None:
    codes = tokens()
    scaled, literal = network(), network(scale=False)
    literal.load_state_dict(scaled.state_dict())
    assert not torch.allclose(scaled(codes, everybody()), literal(codes, everybody()), atol=1e-4)
    # Queries twice as long undo the division by the root of 4.
    with torch.no_grad():
        scaled.attention.queries.mul_(2.0)
    assert torch.allclose(scaled(codes, everybody()), literal(codes, everybody()), atol=1e-12)


def test_narrow_codes_are_normalised_and_the_papers_are_wide() -> None:
    narrow = network()(tokens(), everybody())
    assert narrow.shape == (ROWS, 4)
    assert narrow.mean(dim=1).abs().max() < 1e-12
    assert (narrow.var(dim=1, unbiased=False) - 1).abs().max() < 1e-2
    assert network(removal="paper")(tokens(), everybody()).shape == (ROWS, 8)
    # The normalisation has no weights of its own, with which it could raise codes above their noise.
    assert [name for name, _ in network().narrow.named_parameters()] == ["0.weight", "0.bias"]


@pytest.mark.parametrize("aggregation", ["attention", "concat_mlp"])
def test_layers_are_drawn_independently_of_one_another(aggregation: str) -> None:
    values = [one.detach().flatten() for one in network(aggregation=aggregation).parameters() if one.dim() > 1]
    scaled = [one / one.abs().max() for one in values]
    for place, one in enumerate(scaled):
        for other in scaled[:place]:
            count = min(len(one), len(other))
            assert abs(torch.corrcoef(torch.stack([one[:count], other[:count]]))[0, 1]) < 0.6
