"""Counts by a partner's groups against plain ones, groups that are withheld, noise that repeats, parties that lie."""

from __future__ import annotations

import functools
import hashlib
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.exchanges.rooms import Room
from tests.worlds import integers_for_ciphertexts

from colonnade.crypto import CipherArray, Layout, PrivateKey, PublicKey, encrypt, key_bits
from colonnade.errors import CiphertextRefused, ConfigError, OutOfStep, WrongContent
from colonnade.exchanges.group_counts import (
    NO_GROUP,
    CountFormat,
    CountsByGroup,
    GroupCounts,
    GroupsGiven,
    SealedColumns,
    count_by_group,
    groups_to_give,
    outcome_columns,
    outcome_margins,
    receive_counts,
    seal_indicators,
    send_indicators,
)
from colonnade.exchanges.public_keys import PublicModulus
from colonnade.messages import NOISED, PLAIN, between
from colonnade.metrics.curves import SMALLEST_GROUP

SIZE = "insecure_test"
TASK, SENSITIVE = "task_platform", "sensitive_platform"


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return PrivateKey.generate(SIZE)


@pytest.fixture(scope="module")
def public(key: PrivateKey) -> PublicKey:
    return key.public


@functools.cache
def any_key() -> PrivateKey:
    return PrivateKey.generate(SIZE)


def room(secret: bytes = b"one", *, is_noised: bool = False) -> Room:
    # A method's setting decides it.
    counts = replace(between(CountsByGroup, SENSITIVE, TASK), protection=NOISED if is_noised else PLAIN)
    messages = (between(SealedColumns, TASK, SENSITIVE), between(PublicModulus, TASK, SENSITIVE), counts)
    made = Room({TASK: ("bank",), SENSITIVE: ("registry",)}, messages)
    # A durable secret of the party, which outlives this room.
    made.places["registry"].secret = lambda purpose: hashlib.sha256(secret + purpose.encode()).digest()  # type: ignore[attr-defined]
    return made


def format_of(rows: int, columns: int, **changes: Any) -> CountFormat:
    return CountFormat(**{"rows": rows, "columns": columns, "key_bits": key_bits(SIZE), **changes})


def play(
    key: PrivateKey,
    public: PublicKey,
    format: CountFormat,
    indicators: np.ndarray,
    groups: np.ndarray,
    group_count: int,
    *,
    used: Room | None = None,
    counter: int = 0,
) -> tuple[GroupCounts, GroupsGiven]:
    used = used or room(is_noised=format.epsilon is not None)
    task, sensitive = used.session("bank").channel(SENSITIVE), used.session("registry").channel(TASK)
    sealed = seal_indicators(key, format, indicators)
    send_indicators(task, sealed)
    given = count_by_group(used.session("registry"), sensitive, public, format, groups, group_count, counter=counter)
    return receive_counts(task, key, format, sealed, group_count), given


def plain_counts(indicators: np.ndarray, groups: np.ndarray, wanted: np.ndarray) -> list[list[int]]:
    return [
        [
            int(sum(row[column] for row, one in zip(indicators, groups, strict=True) if one == group))
            for column in range(indicators.shape[1])
        ]
        for group in wanted
    ]


def example(seed: int = 0, rows: int = 60) -> tuple[np.ndarray, np.ndarray]:
    """Return outcome columns, and three groups of which none is small, with some rows unknown."""
    random = np.random.default_rng(seed)
    columns = outcome_columns(random.random(rows) < 0.4, random.random(rows) < 0.5)
    return columns, np.concatenate([np.repeat([0, 1, 2], 8), random.integers(-1, 3, size=rows - 24)])


def low_bits(layout: Layout) -> int:
    return layout.slot_bits * layout.shape[1]


# What is counted.


def test_counts_are_those_of_a_hand_case(key: PrivateKey, public: PublicKey) -> None:
    decided = np.array([1, 1, 0, 0, 1, 0, 1, 0])
    actual = np.array([1, 0, 1, 0, 1, 1, 1, 0])
    groups = np.array([0, 0, 0, 1, 1, NO_GROUP, NO_GROUP, 1])
    format = format_of(8, 4, smallest_group=2)
    counts, _ = play(key, public, format, outcome_columns(decided, actual), groups, 2)
    assert counts.given.tolist() == [0, 1]
    assert counts.values.tolist() == [[0, 1, 1, 1], [2, 0, 0, 1]]
    # All rows, decided, actual, both: by hand.
    assert outcome_margins(counts.values).tolist() == [[3, 2, 2, 1], [3, 1, 1, 1]]


@pytest.mark.parametrize(("rows", "columns", "group_count"), [(40, 4, 2), (30, 1, 3), (25, 300, 2), (10, 3, 1)])
def test_counts_equal_plain_ones(key: PrivateKey, public: PublicKey, rows: int, columns: int, group_count: int) -> None:
    random = np.random.default_rng(rows)
    indicators = (random.random((rows, columns)) < 0.5).astype(np.int64)
    groups = random.integers(-1, group_count, size=rows)
    counts, reply = play(key, public, format_of(rows, columns, smallest_group=1), indicators, groups, group_count)
    assert counts.values.tolist() == plain_counts(indicators, groups, counts.given)
    assert counts.given.tolist() == reply.given.tolist() == sorted(set(groups.tolist()) - {NO_GROUP})
    assert reply.sizes.tolist() == [int((groups == one).sum()) for one in reply.given]


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 40), st.integers(1, 9), st.integers(1, 6), st.integers(1, 6), st.floats(0, 1), st.integers(0, 2**32)
)
def test_any_counts_are_exact_with_integers_for_ciphertexts(
    rows: int, columns: int, group_count: int, smallest: int, density: float, seed: int
) -> None:
    random = np.random.default_rng(seed)
    indicators, groups = random.random((rows, columns)) < density, random.integers(-1, group_count, size=rows)
    with integers_for_ciphertexts():
        key = any_key()
        format = format_of(rows, columns, smallest_group=smallest)
        counts, _ = play(key, key.public, format, indicators, groups, group_count)
    assert counts.values.tolist() == plain_counts(indicators, groups, counts.given)
    assert all((groups == one).sum() >= smallest for one in counts.given)


def test_one_sealing_serves_several_partners(key: PrivateKey, public: PublicKey) -> None:
    indicators, groups = example()
    format = format_of(*indicators.shape)
    sealed = seal_indicators(key, format, indicators)
    for own in (groups, groups[::-1]):
        used = room()
        task, session = used.session("bank").channel(SENSITIVE), used.session("registry")
        send_indicators(task, sealed)
        count_by_group(session, session.channel(TASK), public, format, own, 3)
        counts = receive_counts(task, key, format, sealed, 3)
        assert counts.values.tolist() == plain_counts(indicators, own, np.arange(3))


# Groups that are too small.


def test_the_smallest_group_is_by_default_that_of_reports() -> None:
    assert format_of(10, 1).smallest_group == SMALLEST_GROUP == 5


@pytest.mark.parametrize(
    ("sizes", "rows", "expected"),
    [
        ([5, 6], 11, [True, True]),
        ([4, 9, 30], 50, [False, True, True]),  # seven unknown rows hide the small group
        ([4, 9, 30], 43, [False, False, True]),  # else it is the rest of a subtraction
        ([4, 9, 9], 22, [False, False, True]),
        ([3, 4, 30], 37, [False, False, True]),  # two small groups hide each other
        ([4, 30], 34, [False, False]),
        ([4, 30], 35, [False, True]),  # with one unknown row they are five
        ([0, 30], 30, [False, True]),  # nobody is in the rest
        ([0, 30], 33, [False, True]),  # nor is there anybody of a known group
        ([0, 0], 3, [False, False]),
    ],
)
def test_small_groups_and_what_a_subtraction_would_show_are_withheld(
    sizes: list[int], rows: int, expected: list[bool]
) -> None:
    assert groups_to_give(np.array(sizes), rows, 5).tolist() == expected


def test_a_small_group_has_no_ciphertext_at_all(key: PrivateKey, public: PublicKey) -> None:
    indicators, groups = np.ones((40, 2), np.int64), np.repeat([0, 1, 2, NO_GROUP], [4, 12, 20, 4])
    used = room()
    counts, reply = play(key, public, format_of(40, 2), indicators, groups, 3, used=used)
    assert counts.given.tolist() == reply.given.tolist() == [1, 2]
    assert counts.values.tolist() == [[12, 12], [20, 20]]
    ((_, seen),) = used.seen["bank"]
    assert seen.is_given.tolist() == [False, True, True]
    assert len(seen.values.ciphertexts) == 2


def test_of_two_groups_with_one_too_small_none_is_given(key: PrivateKey, public: PublicKey) -> None:
    indicators, groups = np.ones((20, 2), np.int64), np.repeat([0, 1], [4, 16])
    used = room()
    counts, reply = play(key, public, format_of(20, 2), indicators, groups, 2, used=used)
    assert (counts.values.shape, len(reply.given)) == ((0, 2), 0)
    entries = used.session("registry").ledger.read().entries
    marks = [entry.content for entry in entries if entry.kind == "group counts"]
    assert [(mark["groups"], mark["withheld"], mark["epsilon"]) for mark in marks] == [(2, 2, None)]


# Noise.


def test_noise_is_the_same_after_a_resume_and_another_for_another_question(key: PrivateKey, public: PublicKey) -> None:
    indicators, groups = example()
    format = format_of(*indicators.shape, epsilon=0.5, most_ones=1)

    def asked(secret: bytes = b"one", own: np.ndarray = groups, **changes: Any) -> list[list[int]]:
        used = room(secret, is_noised=True)
        counts, _ = play(key, public, changes.pop("format", format), indicators, own, 3, used=used, **changes)
        noise: list[list[int]] = (counts.values - plain_counts(indicators, own, np.arange(3))).tolist()
        return noise

    first = asked()
    assert first == asked()
    assert any(value for row in first for value in row)
    for other in (
        asked(b"two"),
        asked(counter=1),
        asked(own=np.roll(groups, 1)),
        asked(format=replace(format, epsilon=0.25)),
    ):
        assert other != first


def test_noise_is_as_wide_as_a_row_in_another_group_needs_it() -> None:
    """The mean magnitude of discrete Laplace noise is 2 r / (1 - r**2) with r = e**(-epsilon per count)."""
    epsilon, columns = 2.0, 50
    indicators, groups = np.zeros((40, columns), np.int64), np.repeat([0, 1], 20)
    for most_ones in (1, 4):
        format = format_of(40, columns, epsilon=epsilon, most_ones=most_ones)
        drawn = []
        with integers_for_ciphertexts():
            for counter in range(30):
                drawn.append(
                    play(any_key(), any_key().public, format, indicators, groups, 2, counter=counter)[0].values
                )
        ratio = math.exp(-epsilon / (2 * most_ones))
        expected = 2 * ratio / (1 - ratio**2)
        values = np.concatenate(drawn).reshape(-1)
        assert abs(np.abs(values).mean() / expected - 1) < 0.1
        assert abs(values.mean()) < 5 * values.std() / math.sqrt(len(values))


def test_without_a_bound_on_ones_noise_is_for_a_one_in_every_column(key: PrivateKey) -> None:
    assert format_of(10, 4, epsilon=1.0).count_epsilon == pytest.approx(1 / 8)
    assert format_of(10, 4, epsilon=1.0, most_ones=1).count_epsilon == pytest.approx(1 / 2)
    assert format_of(10, 4).count_epsilon is None
    with pytest.raises(ConfigError, match="more than 1 columns"):
        seal_indicators(key, format_of(3, 2, epsilon=1.0, most_ones=1), np.ones((3, 2), np.int64))


# What crosses.


@pytest.mark.parametrize("epsilon", [None, 1.0])
def test_each_party_sees_only_the_declared_messages(key: PrivateKey, public: PublicKey, epsilon: float | None) -> None:
    indicators, groups = example()
    used = room(is_noised=epsilon is not None)
    play(key, public, format_of(*indicators.shape, epsilon=epsilon), indicators, groups, 3, used=used)
    assert [type(one) for _, one in used.seen["registry"]] == [SealedColumns]
    assert [type(one) for _, one in used.seen["bank"]] == [CountsByGroup]
    crossed = [
        (entry.kind, entry.content["message"], entry.content["protection"])
        for entry in used.session("registry").ledger.read().entries
        if entry.is_message
    ]
    assert crossed == [
        ("received", "SealedColumns", "ENCRYPTED"),
        ("sent", "CountsByGroup", "PLAIN" if epsilon is None else "NOISED"),
    ]


def test_a_reply_has_fresh_randomness_and_nothing_repeats(key: PrivateKey, public: PublicKey) -> None:
    indicators, groups = example()
    used, format = room(), format_of(*indicators.shape)
    task, session = used.session("bank").channel(SENSITIVE), used.session("registry")
    sealed = seal_indicators(key, format, indicators)
    for _ in range(2):
        send_indicators(task, sealed)
        count_by_group(session, session.channel(TASK), public, format, groups, 3)
        receive_counts(task, key, format, sealed, 3)
    # Modulo n a ciphertext is its randomness alone, whatever was added to it in the clear.
    replies = [int(one) % key.n for _, reply in used.seen["bank"] for one in reply.values.ciphertexts]
    rows = sealed.values.ciphertexts
    sums = [math.prod(int(rows[place]) for place in np.flatnonzero(groups == one)) % key.n for one in range(3)]
    assert len({*replies, *sums}) == 9


def test_a_liar_that_gives_each_row_a_power_of_two_reads_no_more_than_counts_take(
    key: PrivateKey, public: PublicKey
) -> None:
    """Without the number above the counts, it would read the group of every row from one reply."""
    rows = 100
    format = format_of(rows, 2)
    groups = np.repeat([0, 1], 50)
    width = low_bits(format.counts(2))
    weights = [1 << (width + row) for row in range(rows)]
    lie = CipherArray(key, format.product.sealed(), key.encrypt_integers(weights))
    seen = []
    for _ in range(30):
        used = room()
        used.session("bank").channel(SENSITIVE).send(SealedColumns(lie))
        session = used.session("registry")
        count_by_group(session, session.channel(TASK), public, format, groups, 2)
        reply = used.session("bank").channel(SENSITIVE).receive(CountsByGroup, groups=2, columns=2)
        seen.append(key.decrypt_integers(reply.values.ciphertexts))
    tops = np.array([[float(one / key.n) for one in row] for row in seen])
    # Spread over the whole modulus, for both groups: not where the weights lie, which is next to 0.
    assert len({one for row in seen for one in row}) == 60
    assert 0.35 < tops.mean() < 0.65
    assert 0.2 < tops.std() < 0.38
    assert {one & ((1 << width) - 1) for row in seen for one in row} <= {0, int(key.n) & ((1 << width) - 1)}


# Parties that lie, and mistakes.


@pytest.mark.parametrize(
    "counts",
    [[[-1, 0], [3, 0]], [[31, 0], [0, 0]], [[16, 0], [16, 0]], [[0, 0], [0, 11]]],
    ids=["negative", "more than rows", "more than rows together", "more than the column has"],
)
def test_impossible_counts_are_refused(key: PrivateKey, counts: list[list[int]]) -> None:
    format = format_of(30, 2)
    indicators = np.stack([np.ones(30), np.arange(30) < 10], axis=1).astype(np.int64)
    layout = format.counts(2)
    packed = [sum(value << (layout.slot_bits * slot) for slot, value in enumerate(row)) for row in counts]
    used = room()
    lie = CipherArray(key, layout, key.encrypt_integers(packed))
    used.session("registry").channel(TASK).send(CountsByGroup(lie, np.array([True, True])))
    sealed = seal_indicators(key, format, indicators)
    with pytest.raises(WrongContent, match="cannot be"):
        receive_counts(used.session("bank").channel(SENSITIVE), key, format, sealed, 2)


def test_noisy_counts_beyond_all_noise_are_refused(key: PrivateKey) -> None:
    format = format_of(30, 1, epsilon=1.0)
    layout = format.counts(1)
    sealed = seal_indicators(key, format, np.ones((30, 1), np.int64))
    for value in (layout.bound + 1, -layout.bound - 1):
        used = room(is_noised=True)
        lie = CipherArray(key, layout, key.encrypt_integers([value]))
        used.session("registry").channel(TASK).send(CountsByGroup(lie, np.array([True])))
        with pytest.raises(WrongContent, match="cannot be"):
            receive_counts(used.session("bank").channel(SENSITIVE), key, format, sealed, 1)


def test_replies_of_other_shapes_keys_and_layouts_are_refused(key: PrivateKey) -> None:
    format, other = format_of(30, 2), PrivateKey.generate(SIZE)
    layout = format.counts(2)
    sealed = seal_indicators(key, format, np.ones((30, 2), np.int64))
    for array in (
        CipherArray(other, layout, other.encrypt_integers([0, 0])),
        CipherArray(key, format.counts(3), key.encrypt_integers([0, 0, 0])),
        CipherArray(key, replace(layout, bound=layout.bound - 1), key.encrypt_integers([0, 0])),
        CipherArray(key, layout, [key.n + 1] * 2),
        encrypt(key, np.ones((2, 2)), packed_axis=1),
    ):
        used = room()
        used.session("registry").channel(TASK).send(CountsByGroup(array, np.array([True, True])))
        with pytest.raises(CiphertextRefused):
            receive_counts(used.session("bank").channel(SENSITIVE), key, format, sealed, 2)


def test_indicators_of_other_keys_and_layouts_are_refused(key: PrivateKey, public: PublicKey) -> None:
    format, other = format_of(10, 2), PrivateKey.generate(SIZE)
    layout = format.product.sealed()
    for array in (
        CipherArray(other, layout, other.encrypt_integers([1] * 10)),
        CipherArray(key, layout, [key.n + 1] * 10),
        encrypt(key, np.ones((10, 2))),
    ):
        used = room()
        used.session("bank").channel(SENSITIVE).send(SealedColumns(array))
        session = used.session("registry")
        with pytest.raises(CiphertextRefused):
            count_by_group(session, session.channel(TASK), public, format, np.zeros(10, np.int64), 1)
        assert not [one for one in session.ledger.read().entries if one.kind == "sent"]


def test_exact_counts_where_noise_was_agreed_on_are_out_of_step(key: PrivateKey) -> None:
    format = format_of(30, 1, epsilon=1.0)
    used = room(is_noised=True)
    layout = format.counts(1)
    array = CipherArray(key, layout, key.encrypt_integers([3]))
    registry = used.session("registry").channel(TASK)
    exact = replace(between(CountsByGroup, SENSITIVE, TASK), protection=PLAIN).every_declaration()[0]
    registry._sends[CountsByGroup] = exact
    registry.send(CountsByGroup(array, np.array([True])))
    sealed = seal_indicators(key, format, np.ones((30, 1), np.int64))
    with pytest.raises(OutOfStep):
        receive_counts(used.session("bank").channel(SENSITIVE), key, format, sealed, 1)


def test_indicators_and_groups_that_cannot_be_meant_are_refused(key: PrivateKey, public: PublicKey) -> None:
    format = format_of(3, 2)
    for indicators in (np.full((3, 2), 2), np.full((3, 2), -1), np.full((3, 2), 0.5), np.ones((2, 2)), np.ones(3)):
        with pytest.raises(ConfigError):
            seal_indicators(key, format, indicators)
    session = room().session("registry")
    for groups, count in (
        (np.array([0, 1, 2]), 2),
        (np.array([0, 1, -2]), 2),
        (np.array([0, 1]), 2),
        (np.array([0.0, 1.0, 1.0]), 2),
        (np.array([0, 0, 0]), 0),
        (np.array([0, 0, 0]), 257),
    ):
        with pytest.raises(ConfigError):
            count_by_group(session, session.channel(TASK), public, format, groups, count)
    for decided, actual in (([0, 1], [1]), ([0, 2], [0, 1]), ([[0], [1]], [0, 1]), ([0, math.nan], [0, 1])):
        with pytest.raises(ConfigError):
            outcome_columns(decided, actual)


@pytest.mark.parametrize(
    "changes",
    [{"rows": 0}, {"columns": 0}, {"smallest_group": 0}, {"most_groups": 0}, {"most_ones": 0}, {"most_ones": 3}]
    + [{"epsilon": one} for one in (0.0, -1.0, math.nan, math.inf, 1e-6)],
)
def test_formats_that_cannot_work_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        format_of(**{"rows": 3, "columns": 2, **changes})
