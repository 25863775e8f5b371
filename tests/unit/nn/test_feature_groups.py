"""Extractors and aggregators over groups of columns, with shared tables."""

from __future__ import annotations

import torch

from colonnade.nn import FeatureGroups, GroupShape, default_widths, pair_groups

GROUPS = [GroupShape("a", (0, 1), (0,), (4, 3)), GroupShape("b", (2,), (1, 2), (5,)), GroupShape("c", (), (3,))]
TABLES = {"shared": (4, 2), "own": (3, 1)}


def network(seed: int = 1, aggregate: int = 1, dropout: float = 0.0, groups: object = None) -> FeatureGroups:
    return FeatureGroups(
        [*GROUPS, *pair_groups(GROUPS)] if groups is None else groups,  # type: ignore[arg-type]
        TABLES,
        ["shared", "shared", "own"],
        aggregate=aggregate,
        dropout=dropout,
        seed=seed,
        dtype=torch.float64,
    )


def rows(count: int = 6) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randint(0, 3, (count, 3), generator=generator)
    return codes, torch.randn(count, 4, generator=generator, dtype=torch.float64)


def test_pairs_have_the_inputs_of_both_in_order() -> None:
    pairs = pair_groups(GROUPS)
    assert [one.name for one in pairs] == ["a-b", "a-c", "b-c"]
    assert (pairs[0].codes, pairs[0].numbers) == ((0, 1, 2), (0, 1, 2))
    assert pair_groups(GROUPS[:1]) == []


def test_every_group_gives_its_numbers_in_its_place_and_representations_have_length_one() -> None:
    one = network(aggregate=2)
    assert one.feature_widths[:3] == [3, 5, default_widths(1)[-1]]
    codes, numbers = rows()
    features = one.features(codes, numbers)
    assert all(torch.allclose(part.norm(dim=1), torch.ones(6, dtype=torch.float64)) for part in features)
    whole = one(codes, numbers)
    assert whole.shape == (6, 12)
    one.eval()
    whole = one(codes, numbers)
    alone = one.aggregators[3](one.features(codes, numbers)[3])
    assert torch.equal(whole[:, 6:8], alone)


def test_a_group_sees_its_own_columns_only() -> None:
    one = network().eval()
    codes, numbers = rows()
    before = one(codes, numbers)
    numbers[:, 3] += 1.0  # of group c
    changed = (one(codes, numbers) != before).any(dim=0).tolist()
    assert changed == [False, False, True, False, True, True]


def test_columns_of_one_table_share_its_rows_and_each_learns_from_both() -> None:
    one = network(groups=GROUPS[:1])
    codes, numbers = rows()
    codes[:, 0], codes[:, 1] = 1, 2
    one(codes, numbers).pow(2).sum().backward()
    gradient = one.table("shared").grad
    assert gradient is not None
    assert gradient[[0, 3]].abs().sum() == 0.0
    assert (gradient[[1, 2]].abs().sum(dim=1) > 0).all()


def test_a_seed_gives_the_same_network_and_leaves_the_global_generator_alone() -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first, second, third = network(1), network(1), network(2)
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(one, other) for one, other in zip(first.parameters(), second.parameters(), strict=True))
    assert not torch.equal(first.table("own"), third.table("own"))


def test_default_widths_are_about_those_of_the_paper() -> None:
    """Table 2: 28-56-28-14, 56-86-56-18, 136-150-60-20."""
    assert default_widths(28) == (56, 28, 14)
    assert default_widths(56)[:2] == (92, 56)
    assert default_widths(136) == (150, 84, 20)
    assert min(default_widths(1)) >= 1
