"""The arithmetic of FairVFL: counterparts, losses of adversaries, warm-up and noise that repeats."""

from __future__ import annotations

import math

import pytest
import torch
from scipy import stats
from torch import nn

from colonnade.methods.fairvfl.maths import (
    adversary_losses,
    cooled_down,
    counterparts,
    doubts,
    noise_by_row,
    pair_loss,
    warmed_up,
)

F64 = torch.float64


def drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def codes_of(rows: int, width: int = 3, seed: int = 1) -> torch.Tensor:
    return torch.randn(rows, width, generator=drawn(seed), dtype=F64)


def nobody(rows: int) -> torch.Tensor:
    return torch.zeros(rows, rows, dtype=torch.bool)


def nearest_by_hand(codes: torch.Tensor, same: torch.Tensor, nearest: int, relevance: str) -> list[set[int]]:
    found = []
    for row, own in enumerate(codes.tolist()):
        scores = {}
        for place, other in enumerate(codes.tolist()):
            if place == row or same[row, place]:
                continue
            score = sum(a * b for a, b in zip(own, other, strict=True))
            lengths = math.hypot(*own) * math.hypot(*other)
            scores[place] = score / lengths if relevance == "cosine" else score
        found.append(set(sorted(scores, key=scores.__getitem__, reverse=True)[:nearest]))
    return found


# Counterparts


@pytest.mark.parametrize("relevance", ["cosine", "dot"])
@pytest.mark.parametrize("nearest", [1, 3, 5, 40])
def test_counterparts_are_among_the_nearest_and_every_one_of_them_comes(relevance: str, nearest: int) -> None:
    codes = codes_of(12)
    same = torch.rand(12, 12, generator=drawn(2)) < 0.2
    same |= same.T.clone()
    allowed = nearest_by_hand(codes, same, nearest, relevance)
    seen: list[set[int]] = [set() for _ in codes]
    for seed in range(300):
        found = counterparts(codes, same, nearest, relevance, drawn(seed))
        assert found is not None
        for row, one in enumerate(found.tolist()):
            assert one != row
            assert not same[row, one]
            seen[row].add(one)
    assert seen == allowed


def test_a_row_is_not_its_own_counterpart_even_if_it_is_the_only_near_one() -> None:
    codes = torch.tensor([[1.0, 0.0], [1.0, 0.01], [-1.0, 0.0], [-1.0, 0.01]], dtype=F64)
    found = counterparts(codes, nobody(4), 1, "cosine", drawn(0))
    assert found is not None
    assert found.tolist() == [1, 0, 3, 2]


@pytest.mark.parametrize(("known_as_same", "choices"), [(0, 5), (7, 4)])
def test_counterparts_are_uniform_among_those_allowed(known_as_same: int, choices: int) -> None:
    rows, times = 12, 2000
    codes, same = codes_of(rows), nobody(rows)
    same[0, 1 : 1 + known_as_same] = True
    generator = drawn(7)
    counts = torch.zeros(rows, rows)
    for _ in range(times):
        found = counterparts(codes, same, 5, "cosine", generator)
        assert found is not None
        counts[torch.arange(rows), found] += 1
    for row in range(rows):
        own = counts[row][counts[row] > 0]
        assert len(own) == (choices if row == 0 else 5)
        assert stats.chisquare(own.numpy()).pvalue > 1e-4


def test_draws_repeat_with_their_generator_and_no_other() -> None:
    codes = codes_of(30)
    first, again, other = (counterparts(codes, nobody(30), 5, "dot", drawn(seed)) for seed in (3, 3, 4))
    assert first is not None
    assert again is not None
    assert other is not None
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_fewer_than_three_rows_have_no_counterparts() -> None:
    assert counterparts(codes_of(0), nobody(0), 5, "cosine", drawn(0)) is None
    assert counterparts(codes_of(1), nobody(1), 5, "cosine", drawn(0)) is None
    assert counterparts(codes_of(2), nobody(2), 5, "cosine", drawn(0)) is None
    assert counterparts(codes_of(3), nobody(3), 5, "cosine", drawn(0)) is not None


def test_a_row_with_nobody_else_to_compare_with_stops_the_comparison() -> None:
    same = nobody(4)
    same[2] = True
    assert counterparts(codes_of(4), same, 2, "cosine", drawn(0)) is None
    same[2, 0] = False
    found = counterparts(codes_of(4), same, 2, "cosine", drawn(0))
    assert found is not None
    assert found[2] == 0


def test_the_dot_product_favours_long_codes_and_the_cosine_does_not() -> None:
    codes = torch.tensor([[1.0, 0.0], [0.9, 0.1], [20.0, 20.0]], dtype=F64)
    nearest = {one: counterparts(codes, nobody(3), 1, one, drawn(0)) for one in ("dot", "cosine")}
    assert nearest["dot"] is not None
    assert nearest["cosine"] is not None
    assert nearest["dot"][0] == 2
    assert nearest["cosine"][0] == 1


# Losses


class Weighed(nn.Module):
    """Score a pair by fixed weights."""

    def __init__(self, *weights: float) -> None:
        super().__init__()
        self.weights = torch.tensor(weights, dtype=F64)

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (values * self.weights).sum(dim=1, keepdim=True)


def test_the_loss_of_a_pair_is_cross_entropy_with_the_true_code_as_target() -> None:
    protected = torch.tensor([[1.0], [2.0]], dtype=F64)
    codes = torch.tensor([[0.5, -1.0], [0.3, 0.7]], dtype=F64)
    others = torch.tensor([[0.2, 0.4], [-0.6, 0.1]], dtype=F64)
    loss = pair_loss(Weighed(0.9, 2.0, -1.0), protected, codes, others)
    expected = []
    for own, true, false in (((1.0,), (0.5, -1.0), (0.2, 0.4)), ((2.0,), (0.3, 0.7), (-0.6, 0.1))):
        right, wrong = (math.exp(0.9 * own[0] + 2.0 * one[0] - one[1]) for one in (true, false))
        expected.append(-math.log(right / (right + wrong)))
    assert loss.item() == pytest.approx(sum(expected) / 2, abs=1e-14)


def test_a_discriminator_that_cannot_tell_loses_the_logarithm_of_two_and_one_that_can_less() -> None:
    protected, codes = torch.zeros(3, 1, dtype=F64), torch.ones(3, 1, dtype=F64)
    assert pair_loss(Weighed(5.0, 0.0), protected, codes, -codes).item() == pytest.approx(math.log(2.0))
    assert pair_loss(Weighed(0.0, 1.0), protected, codes, -codes).item() < 0.2
    assert pair_loss(Weighed(0.0, -1.0), protected, codes, -codes).item() > 2.0


def test_the_loss_of_a_pair_bears_scores_of_any_size() -> None:
    protected, codes = torch.zeros(3, 1, dtype=F64), torch.full((3, 1), 1e5, dtype=F64)
    assert pair_loss(Weighed(0.0, 1.0), protected, codes, -codes).item() == 0.0
    assert pair_loss(Weighed(0.0, -1.0), protected, codes, -codes).item() == pytest.approx(2e5)


def test_an_adversary_loses_by_class_the_negative_logarithm_of_what_it_says() -> None:
    scores = torch.tensor([[1.0, 2.0, 0.5], [800.0, -800.0, 0.0]], dtype=F64)
    found = adversary_losses(scores, torch.tensor([0, 1]), is_numeric=False)
    total = math.e + math.e**2 + math.e**0.5
    assert found[0].tolist() == pytest.approx([-math.log(math.e**one / total) for one in (1.0, 2.0, 0.5)])
    assert found[1].tolist() == pytest.approx([0.0, 1600.0, 800.0])


def test_an_adversary_of_numbers_loses_the_squared_error() -> None:
    found = adversary_losses(torch.tensor([[1.0], [3.0]]), torch.tensor([0.5, 5.0]), is_numeric=True)
    assert found.tolist() == [[0.25], [4.0]]


def test_doubts_are_entropies() -> None:
    shares = torch.tensor([[0.5, 0.25, 0.25], [1 / 3, 1 / 3, 1 / 3], [0.9, 0.05, 0.05]], dtype=F64)
    expected = [-sum(one * math.log(one) for one in row) for row in shares.tolist()]
    assert doubts(shares.log() + 4.0).tolist() == pytest.approx(expected)
    assert doubts(torch.zeros(1, 4, dtype=F64)).item() == pytest.approx(math.log(4.0))
    assert doubts(torch.tensor([[900.0, -900.0]], dtype=F64)).item() == 0.0


# Warm-up


@pytest.mark.parametrize(
    ("step", "steps", "epochs", "share"),
    [
        (1, 10, 1.0, 0.1),
        (5, 10, 1.0, 0.5),
        (10, 10, 1.0, 1.0),
        (11, 10, 1.0, 1.0),
        (9, 4, 3.0, 0.75),
        (3, 4, 1.5, 0.5),
        (1, 10, 0.0, 1.0),
    ],
)
def test_the_weight_of_removal_grows_in_a_straight_line_and_then_stays(
    step: int, steps: int, epochs: float, share: float
) -> None:
    assert warmed_up(step, steps, epochs) == pytest.approx(share)


@pytest.mark.parametrize(
    ("step", "share", "left"),
    [(1, 0.5, 1.0), (4, 0.5, 1.0), (5, 0.5, 1.0), (6, 0.5, 0.75), (8, 0.5, 0.25), (8, 1.0, 0.125), (8, 0.0, 1.0)],
)
def test_the_models_rate_stays_and_then_falls_in_a_straight_line(step: int, share: float, left: float) -> None:
    assert cooled_down(step, 8, share) == pytest.approx(left)


# Noise by row

KEY = bytes(range(32))


def grid(rows: int, width: int = 4, seed: int = 5) -> torch.Tensor:
    """Return codes of a few decimals, which are far from where rounding changes."""
    return torch.randint(-300, 300, (rows, width), generator=drawn(seed)).double() / 10


def test_a_row_has_the_same_noise_in_every_batch() -> None:
    codes = grid(20)
    noise = noise_by_row(KEY, codes, 6)
    assert noise.shape == (20, 6)
    for rows in ([3], [19, 3, 0], list(range(20))[::-1]):
        assert torch.equal(noise_by_row(KEY, codes[rows], 6), noise[rows])


def test_differences_of_rounding_do_not_change_noise() -> None:
    codes = grid(50)
    noise = noise_by_row(KEY, codes, 3)
    assert torch.equal(noise_by_row(KEY, codes + 1e-6 * torch.randn(50, 4, generator=drawn(1)), 3), noise)
    assert torch.equal(noise_by_row(KEY, codes.float(), 3), noise)


def test_other_rows_and_other_keys_have_other_noise() -> None:
    codes = torch.unique(grid(200), dim=0)
    noise = noise_by_row(KEY, codes, 3)
    assert len(torch.unique(noise, dim=0)) == len(codes)
    nudged = codes.clone()
    nudged[:, 2] += 0.1
    others = noise_by_row(KEY, nudged, 3)
    for other in (others, noise_by_row(bytes(32), codes, 3)):
        assert not (other == noise).any()
        assert abs(torch.corrcoef(torch.stack([other.flatten(), noise.flatten()]))[0, 1]) < 0.2


def test_noise_by_row_is_standard_normal() -> None:
    noise = noise_by_row(KEY, grid(1500), 4).flatten().numpy()
    assert abs(noise.mean()) < 4 / math.sqrt(len(noise))
    assert noise.var() == pytest.approx(1.0, abs=4 * math.sqrt(2 / len(noise)))
    assert stats.kstest(noise, "norm").pvalue > 1e-3
