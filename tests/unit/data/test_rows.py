from __future__ import annotations

import hashlib

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.references import order_key, shared_rows

from colonnade.data import (
    IdRule,
    PartyTable,
    batches,
    canonical_id_bytes,
    id_marks,
    rows_of_marks,
    split_rows,
)
from colonnade.errors import AlignmentError, ConfigError

seeds = st.integers(0, 2**63)
id_lists = st.one_of(
    st.lists(st.integers(-(2**70), 2**70) | st.integers(0, 30), min_size=1, unique=True),
    st.lists(st.text(min_size=1).filter(str.strip) | st.sampled_from("abcdefgh"), min_size=1, unique=True),
)


def table(ids: list[object], name: str = "table") -> PartyTable:
    return PartyTable(pd.DataFrame({"id": pd.Series(ids, dtype=object), "x": 1.0}), id="id", name=name)


def ids_of(values: list[object]) -> np.ndarray:
    return table(values).ids


def shared_marks(marks: dict[str, np.ndarray]) -> np.ndarray:
    return np.array(sorted(set.intersection(*(set(one.tolist()) for one in marks.values()))), np.uint64)


@settings(deadline=None)
@given(st.lists(id_lists, min_size=1, max_size=4), seeds, st.randoms())
def test_alignment_is_the_intersection_in_an_order_free_of_row_order(
    lists: list[list[object]], seed: int, random: object
) -> None:
    tables = {f"p{number}": table(ids) for number, ids in enumerate(lists)}
    expected = shared_rows(tables, seed)
    marks = {party: id_marks(one.ids, seed) for party, one in tables.items()}
    shared = shared_marks(marks)
    orders = []
    for party, one in tables.items():
        positions, rest = rows_of_marks(marks[party], shared)
        assert positions.tolist() == expected[party]
        assert sorted([*positions, *rest]) == list(range(one.rows))
        assert (np.diff(rest) > 0).all(), "the rest keeps the table's own order"
        orders.append(one.ids[positions].tolist())
    assert set(orders[0]) == set(lists[0]).intersection(*lists[1:])
    assert all(order == orders[0] for order in orders)
    for ids in lists:
        random.shuffle(ids)
    shuffled = {f"p{number}": id_marks(table(ids).ids, seed) for number, ids in enumerate(lists)}
    positions, _ = rows_of_marks(shuffled["p0"], shared_marks(shuffled))
    assert table(lists[0]).ids[positions].tolist() == orders[0]


def test_the_mark_of_a_text_is_the_hash_of_seed_and_id() -> None:
    for text in ("1", "Zürich", "x" * 1000):
        digest = hashlib.sha256(b"7\x00" + canonical_id_bytes(text)).digest()
        assert id_marks(ids_of([text]), 7).tolist() == [int.from_bytes(digest[:8], "big")]


def test_the_marks_of_numbers_are_fixed_for_ever() -> None:
    """A known answer, computed with Python's own integers: both sides must get it on every platform."""
    numbers: list[object] = [5, -3, 0, 2**62, 17, -(2**63), 2**63 - 1]
    assert id_marks(ids_of(numbers), 7).tolist() == [order_key(number, 7) for number in numbers]  # type: ignore[arg-type]
    assert id_marks(ids_of([5]), 7).tolist() == [12316692544792729398]


def test_numbers_beyond_64_bits_have_marks_too() -> None:
    numbers: list[object] = [2**70, 3, -(2**80), 2**63]
    assert id_marks(ids_of(numbers), 1).tolist() == [order_key(number, 1) for number in numbers]  # type: ignore[arg-type]


def test_the_seed_changes_the_order() -> None:
    one, two = (np.argsort(id_marks(ids_of(list(range(50))), seed)).tolist() for seed in (1, 2))
    assert one != two


def test_the_number_and_the_text_7_are_different_ids() -> None:
    assert not len(shared_marks({"a": id_marks(ids_of([8191, 7]), 0), "b": id_marks(ids_of(["8191", "7"]), 0)}))


def test_two_ids_with_one_mark_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.data.rows._mixed", lambda numbers, seed: np.zeros(len(numbers), np.uint64))
    with pytest.raises(AlignmentError, match="another seed"):
        id_marks(ids_of([1, 2]), 0)


@pytest.mark.parametrize(("own", "shared"), [([], [5]), ([5, 7], [6]), ([5, 7], [8]), ([5, 7], [5, 6, 7])])
def test_shared_marks_a_party_does_not_have_are_refused(own: list[int], shared: list[int]) -> None:
    with pytest.raises(AlignmentError, match="does not have"):
        rows_of_marks(np.array(own, np.uint64), np.array(shared, np.uint64))


def composite(*ids: object) -> np.ndarray:
    return np.fromiter(ids, dtype=object, count=len(ids))


def test_ids_that_a_rule_makes_equal_have_the_same_mark() -> None:
    rule = IdRule(case="fold", separators="drop")
    clean, awkward = ids_of(["KD01", "KD02"]), ids_of([" kd-01", "kd 02 "])
    assert id_marks(clean, 7, rule).tolist() == id_marks(awkward, 7, rule).tolist()
    assert not {*id_marks(clean, 7)} & {*id_marks(awkward, 7)}
    numbers, padded = ids_of([7, 2**70]), ids_of(["007", f"0{2**70}"])
    for rule in (IdRule(type="number"), IdRule(type="text", case="fold")):
        texts = padded if rule.type == "number" else ids_of(["7.0", f" {2**70}"])
        assert id_marks(numbers, 7, rule).tolist() == id_marks(texts, 7, rule).tolist()


def test_composite_ids_have_marks() -> None:
    ids = composite(("Zoe", 1990), ("Ann ", 19900))
    expected = [int.from_bytes(hashlib.sha256(b"7\x00" + canonical_id_bytes(one)).digest()[:8], "big") for one in ids]
    assert id_marks(ids, 7).tolist() == expected


@settings(deadline=None)
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


@settings(deadline=None)
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
