"""Several small heads on one code."""

from __future__ import annotations

import pytest
import torch

from colonnade.nn import Heads, find_dropouts, reseed_dropout


def test_each_member_is_a_perceptron_on_its_own_slice_of_every_code() -> None:
    heads = Heads([4, 8], [5], 3, members=4, seed=1, dtype=torch.float64)
    codes = torch.randn(7, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = heads(codes)
    assert found.shape == (7, 4, 3)
    for member in range(4):
        own = torch.cat([codes[:, member : member + 1], codes[:, 4 + 2 * member : 6 + 2 * member]], dim=1)
        hidden = (own @ heads.weights[0][member] + heads.biases[0][member]).relu()
        wanted = hidden @ heads.weights[1][member] + heads.biases[1][member]
        assert torch.allclose(found[:, member], wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(("cuts", "members"), [([32, 32], 8), ([32, 6], 2), ([5, 32], 1)])
def test_there_are_as_many_members_as_divide_all_codes(cuts: list[int], members: int) -> None:
    assert Heads(cuts, [4], 1, members=8, seed=1).members == members


def test_a_seed_gives_the_same_weights_in_either_precision_and_dropout_repeats() -> None:
    one, two = (
        Heads([8], [4], 1, members=2, seed=3, dropout=0.5, dtype=kind) for kind in (torch.float32, torch.float64)
    )
    assert all(torch.equal(a, b.float()) for a, b in zip(one.parameters(), two.parameters(), strict=True))
    codes, outputs = torch.ones(64, 8), []
    for seed in (1, 1, 2):
        reseed_dropout(find_dropouts([one]), seed)
        outputs.append(one(codes))
    assert torch.equal(outputs[0], outputs[1])
    assert not torch.equal(outputs[0], outputs[2])
