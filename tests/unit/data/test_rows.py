from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from colonnade.data import PartyTable, align_by_equality, batches, canonical_id_bytes, order_ids, split_rows
from colonnade.errors import AlignmentError, ConfigError

seeds = st.integers(0, 2**63)
id_lists = st.one_of(
    st.lists(st.integers(-(2**70), 2**70) | st.integers(0, 30), min_size=1, unique=True),
    st.lists(st.text(min_size=1).filter(str.strip) | st.sampled_from("abcdefgh"), min_size=1, unique=True),
)


def table(ids: list[object], name: str = "table") -> PartyTable:
    return PartyTable(pd.DataFrame({"id": pd.Series(ids, dtype=object), "x": 1.0}), id="id", name=name)


@given(st.lists(id_lists, min_size=2, max_size=4), seeds, st.randoms())
def test_alignment_is_the_intersection_in_an_order_free_of_row_order(
    lists: list[list[object]], seed: int, random: object
) -> None:
    tables = {f"p{number}": table(ids) for number, ids in enumerate(lists)}
    shared = set(lists[0]).intersection(*lists[1:])
    if not shared:
        with pytest.raises(AlignmentError):
            align_by_equality(tables, seed)
        return
    aligned = align_by_equality(tables, seed)
    orders = [tables[party].ids[rows.positions].tolist() for party, rows in aligned.items()]
    assert set(orders[0]) == shared
    assert all(order == orders[0] for order in orders)
    for party, rows in aligned.items():
        assert sorted([*rows.positions, *rows.rest]) == list(range(tables[party].rows))
        assert len(rows) == len(shared)
    for ids in lists:
        random.shuffle(ids)
    shuffled = {f"p{number}": table(ids) for number, ids in enumerate(lists)}
    again = align_by_equality(shuffled, seed)
    assert shuffled["p0"].ids[again["p0"].positions].tolist() == orders[0]


def test_the_agreed_order_of_texts_is_by_hash_of_seed_and_id() -> None:
    aligned = align_by_equality({"a": table(["1", "2", "3", "4"]), "b": table(["4", "3", "2", "9"])}, seed=7)
    by_hash = sorted(["2", "3", "4"], key=lambda text: hashlib.sha256(b"7\x00" + canonical_id_bytes(text)).digest())
    assert table(["1", "2", "3", "4"]).ids[aligned["a"].positions].tolist() == by_hash
    assert aligned["a"].rest.tolist() == [0]
    assert aligned["a"].protocol == "plain equality (simulation only)"


def test_the_agreed_order_of_numbers_is_fixed_for_ever() -> None:
    """A known answer, computed with Python's own integers: both sides must get it on every platform."""
    key = int.from_bytes(hashlib.sha256(b"7").digest()[:8], "little")

    def mixed(number: int) -> int:
        value = (number % 2**64) ^ key
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            value = ((value ^ (value >> shift)) * factor) % 2**64
        return value ^ (value >> 31)

    numbers = [5, -3, 0, 2**62, 17, -(2**63)]
    assert np.array(numbers, dtype=object)[order_ids(np.array(numbers, dtype=object), 7)].tolist() == sorted(
        numbers, key=mixed
    )


def test_numbers_beyond_64_bits_have_an_order_too() -> None:
    numbers = np.array([2**70, 3, -(2**80)], dtype=object)
    assert sorted(order_ids(numbers, 1).tolist()) == [0, 1, 2]
    assert numbers[order_ids(numbers, 1)].tolist() == numbers[::-1][order_ids(numbers[::-1], 1)].tolist()


def test_the_seed_changes_the_order() -> None:
    tables = {"a": table(list(range(50))), "b": table(list(range(50)))}
    one, two = (align_by_equality(tables, seed)["a"].positions.tolist() for seed in (1, 2))
    assert one != two


def test_the_number_and_the_text_7_are_different_ids() -> None:
    with pytest.raises(AlignmentError, match="numbers and others text"):
        align_by_equality({"a": table([8191, 7]), "b": table(["8191", "7"])}, seed=0)


@pytest.mark.parametrize(
    ("left", "right", "hint"),
    [
        (["8191", "7"], ["008191", "007"], "leading zeros"),
        (["AB8191", "AC"], ["ab8191", "ac"], "case"),
        (["8191", "17"], ["8191 ", "17 "], "spaces around"),
        (["8191", "1234"], ["x-8191", "x-1234"], "prefix"),
        (["8191", "1234"], ["8192", "4321"], "different people"),
    ],
)
def test_an_empty_alignment_names_likely_causes_and_no_id(left: list[str], right: list[str], hint: str) -> None:
    with pytest.raises(AlignmentError, match=hint) as caught:
        align_by_equality({"bank": table(left), "shop": table(right)}, seed=0)
    message = str(caught.value)
    assert "bank: text" in message
    assert not any(identifier.strip() in message for identifier in [*left, *right] if len(identifier.strip()) > 2)


def test_one_table_cannot_be_aligned() -> None:
    with pytest.raises(AlignmentError, match="at least two"):
        align_by_equality({"a": table([1])}, seed=0)


@given(st.integers(10, 500), st.floats(0.1, 0.4), st.floats(0.1, 0.4), seeds)
def test_a_split_is_a_partition(count: int, validation: float, test: float, seed: int) -> None:
    split = split_rows(count, validation_fraction=validation, test_fraction=test, seed=seed)
    parts = [split.train, split.validation, split.test]
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    assert all((np.diff(part) > 0).all() for part in parts)
    assert abs(len(split.test) - count * test) <= 0.5
    assert abs(len(split.validation) - count * validation) <= 0.5
    again = split_rows(count, validation_fraction=validation, test_fraction=test, seed=seed)
    assert all(
        np.array_equal(one, two) for one, two in zip(parts, [again.train, again.validation, again.test], strict=True)
    )


def test_a_split_repeats_across_versions() -> None:
    # Parties with different builds must agree, so these very numbers are part of the protocol.
    split = split_rows(10, validation_fraction=0.2, test_fraction=0.3, seed=7)
    assert (split.validation.tolist(), split.test.tolist()) == ([1, 3], [0, 7, 8])


def test_parts_of_fraction_zero_are_empty() -> None:
    split = split_rows(5, validation_fraction=0, test_fraction=0, seed=1)
    assert (split.train.tolist(), split.validation.size, split.test.size) == ([0, 1, 2, 3, 4], 0, 0)


@pytest.mark.parametrize(("validation", "test"), [(-0.1, 0), (0, 1), (0.5, 0.5), (float("nan"), 0)])
def test_fractions_out_of_range_are_refused(validation: float, test: float) -> None:
    with pytest.raises(ConfigError):
        split_rows(100, validation_fraction=validation, test_fraction=test, seed=1)


@pytest.mark.parametrize(("count", "part"), [(4, "test"), (0, "training")])
def test_a_part_that_would_be_empty_is_refused(count: int, part: str) -> None:
    with pytest.raises(AlignmentError, match=f"{count} shared rows the {part} part"):
        split_rows(count, validation_fraction=0, test_fraction=0.1, seed=1)


@given(st.lists(st.integers(0, 1000), unique=True), st.integers(1, 20), seeds)
def test_batches_are_a_seeded_shuffle_cut_up(rows: list[int], size: int, seed: int) -> None:
    positions = np.array(rows, dtype=np.int64)
    made = list(batches(positions, size, seed))
    assert sorted(np.concatenate([*made, []]).tolist()) == sorted(rows)
    assert all(len(batch) == size for batch in made[:-1])
    assert positions.tolist() == rows, "the caller's array stays as it is"
    assert [batch.tolist() for batch in batches(positions, size, seed)] == [batch.tolist() for batch in made]


def test_batches_take_a_count_and_refuse_a_size_of_zero() -> None:
    assert [len(batch) for batch in batches(5, 2, seed=0)] == [2, 2, 1]
    with pytest.raises(ConfigError):
        batches(5, 0, seed=0)
    with pytest.raises(ConfigError):
        batches(5, 1, seed=-1)
