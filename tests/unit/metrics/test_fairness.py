"""Gaps between groups from counts."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.errors import UsageError
from colonnade.metrics import (
    Gap,
    GroupCounts,
    demographic_parity_gap,
    equal_opportunity_gap,
    equalised_odds_gap,
    proportion_interval,
)

# Women: 100 rows, 30 decided, 20 truly positive, 15 of them decided. Men: 200, 100, 80, 70.
TABLE = GroupCounts(rows=(100, 200), decided=(30, 100), positive=(20, 80), both=(15, 70))


def test_the_three_gaps_of_a_small_table_by_hand() -> None:
    assert demographic_parity_gap(TABLE).value == pytest.approx(100 / 200 - 30 / 100)
    assert equal_opportunity_gap(TABLE).value == pytest.approx(70 / 80 - 15 / 20)
    # False positive rates: 15 of 80 and 30 of 120; their gap of 0.0625 is the smaller one.
    assert equalised_odds_gap(TABLE).value == pytest.approx(0.125)
    assert TABLE.positive_rates() == (0.3, 0.5)
    assert TABLE.rates_given(1) == (0.75, 0.875)
    assert TABLE.rates_given(0) == (15 / 80, 30 / 120)


def test_equalised_odds_takes_the_false_positives_where_their_gap_is_wider() -> None:
    counts = GroupCounts(rows=(100, 100), decided=(60, 50), positive=(50, 50), both=(40, 40))
    assert equal_opportunity_gap(counts).value == 0.0
    assert equalised_odds_gap(counts).value == pytest.approx(0.2)


def test_counts_from_rows_are_those_of_the_table() -> None:
    cells = [(group, label, call) for group in (0, 1) for label in (0, 1) for call in (0, 1)]
    numbers = [65, 15, 5, 15, 90, 30, 10, 70]
    groups, truth, decided = np.repeat(cells, numbers, axis=0)[np.random.default_rng(0).permutation(300)].T
    assert GroupCounts.from_rows(truth, decided, groups) == TABLE
    assert GroupCounts.from_rows(truth == 1, decided == 1, groups, number=3).rows == (100, 200, 0)


def test_counts_survive_json() -> None:
    assert GroupCounts.from_json(json.loads(json.dumps(TABLE.to_json()))) == TABLE
    gap = json.loads(json.dumps(demographic_parity_gap(TABLE).to_json()))
    assert gap["value"] == pytest.approx(0.2)
    assert gap["left_out"] == []


def test_groups_without_rows_or_without_positives_are_left_out_and_named() -> None:
    counts = GroupCounts(rows=(10, 0, 10, 10), decided=(5, 0, 9, 3), positive=(4, 0, 0, 5), both=(2, 0, 0, 3))
    parity, opportunity, odds = (
        demographic_parity_gap(counts),
        equal_opportunity_gap(counts),
        equalised_odds_gap(counts),
    )
    assert parity.value == pytest.approx(0.6)
    assert parity.left_out == (1,)
    assert opportunity.value == pytest.approx(0.1)
    assert opportunity.left_out == (1, 2)
    # Among negatives: 3 of 6, 9 of 10, 0 of 5.
    assert odds.value == pytest.approx(0.9)
    assert odds.left_out == (1, 2)
    assert counts.positive_rates() == (0.5, None, 0.9, 0.3)


def test_a_single_group_has_no_gap() -> None:
    counts = GroupCounts(rows=(10, 0), decided=(5, 0), positive=(4, 0), both=(2, 0))
    assert demographic_parity_gap(counts) == Gap(None, None, None, (1,))


def test_the_interval_of_two_groups_is_newcombes() -> None:
    """His example: 56 of 70 against 48 of 80, method 10."""
    counts = GroupCounts(rows=(80, 70), decided=(48, 56), positive=(0, 0), both=(0, 0))
    gap = demographic_parity_gap(counts)
    assert (gap.low, gap.high) == pytest.approx((0.0524, 0.3339), abs=0.0001)


def test_an_interval_around_no_gap_begins_at_nought() -> None:
    gap = demographic_parity_gap(GroupCounts(rows=(50, 50), decided=(25, 25), positive=(0, 0), both=(0, 0)))
    assert (gap.value, gap.low) == (0.0, 0.0)
    low, high = proportion_interval(0.5, 50)
    assert gap.high == pytest.approx(np.hypot(high - 0.5, 0.5 - low))


def test_the_order_of_groups_does_not_matter_to_the_interval() -> None:
    """With equal shares neither is the larger one, and the difference may point either way."""
    small_first = demographic_parity_gap(GroupCounts((10, 1000), (1, 100), (0, 0), (0, 0)))
    large_first = demographic_parity_gap(GroupCounts((1000, 10), (100, 1), (0, 0), (0, 0)))
    assert small_first.value == large_first.value == 0.0
    assert small_first.high == pytest.approx(large_first.high)
    assert small_first.high > proportion_interval(0.1, 10)[1] - 0.1


def test_more_comparisons_widen_the_interval() -> None:
    two = demographic_parity_gap(GroupCounts((400, 400), (100, 200), (0, 0), (0, 0)))
    three = demographic_parity_gap(GroupCounts((400, 400, 400), (100, 200, 150), (0, 0, 0), (0, 0, 0)))
    assert three.value == two.value
    assert three.low < two.low
    assert three.high > two.high


def test_intervals_hold_the_true_gap_about_as_often_as_they_say() -> None:
    generator, rates = np.random.default_rng(3), np.array([0.2, 0.3, 0.35])
    drawn = generator.binomial(200, rates, size=(400, 3))
    held = 0
    for decided in drawn:
        gap = demographic_parity_gap(GroupCounts((200,) * 3, tuple(decided.tolist()), (0,) * 3, (0,) * 3))
        held += gap.low <= 0.15 <= gap.high
    assert held / 400 > 0.94


@settings(deadline=None)
@given(st.lists(st.tuples(*[st.integers(0, 12)] * 4), min_size=1, max_size=5))
def test_every_gap_lies_in_its_interval_and_within_range(cells: list[tuple[int, int, int, int]]) -> None:
    both, missed, wrong, rest = np.array(cells).T
    counts = GroupCounts(both + missed + wrong + rest, both + wrong, both + missed, both)
    for gap in (demographic_parity_gap(counts), equal_opportunity_gap(counts), equalised_odds_gap(counts)):
        if gap.value is not None:
            assert 0 <= gap.low <= gap.value <= gap.high + 1e-12 <= 1 + 1e-9


def test_counts_with_noise_are_moved_until_they_agree() -> None:
    noised = GroupCounts.from_noised([-3, 10.4, 10], [2, 12, 8], [0, 4, 7], [1, -1, 2])
    assert noised == GroupCounts(rows=(0, 10, 10), decided=(0, 10, 8), positive=(0, 4, 7), both=(0, 4, 5))
    assert GroupCounts.from_noised(TABLE.rows, TABLE.decided, TABLE.positive, TABLE.both) == TABLE
    with pytest.raises(UsageError, match="finite"):
        GroupCounts.from_noised([np.inf], [0], [0], [0])


@pytest.mark.parametrize(
    "columns",
    [
        ((10,), (11,), (0,), (0,)),
        ((10,), (5,), (5,), (6,)),
        ((10,), (8,), (8,), (5,)),
        ((10,), (-1,), (5,), (-1,)),
        ((10, 10), (5,), (5,), (5,)),
        ((10.5,), (5,), (5,), (5,)),
        ((), (), (), ()),
    ],
)
def test_counts_that_cannot_be_are_refused(columns: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(UsageError):
        GroupCounts(*columns)


def test_rows_that_cannot_be_counted_are_refused() -> None:
    for truth, decided, groups in (([0, 2], [0, 1], [0, 1]), ([0, 1], [0, 1], [0, -1]), ([0, 1], [0, 1], [0])):
        with pytest.raises(UsageError):
            GroupCounts.from_rows(truth, decided, groups)
    with pytest.raises(UsageError, match="announced"):
        GroupCounts.from_rows([0, 1], [0, 1], [0, 2], number=2)
    with pytest.raises(UsageError, match="no group counts"):
        GroupCounts.from_json({"rows": [1]})
