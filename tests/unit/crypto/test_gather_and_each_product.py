"""Entries taken by place, arrays put together, and rows that are each multiplied with numbers of their own."""

from __future__ import annotations

import itertools
import secrets
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.crypto.keys import FORMAT, KEY, OTHER, PUBLIC, ROOM, crossed, exact, opened

from colonnade.crypto import (
    CipherArray,
    FixedPoint,
    Format,
    PrivateKey,
    PublicKey,
    concatenate,
    encrypt,
    open_masked,
    products,
)
from colonnade.crypto.products import largest_bits, power_products
from colonnade.engine import INLINE, Engine, open_engine
from colonnade.errors import CiphertextRefused, OutOfRange, SlotOverflow

SOME = settings(deadline=None, max_examples=25)
EXTENTS = st.sampled_from([0, 1, 1, 2, 3, 5, 8])


def integers_within(shape: tuple[int, ...], bound: int, seed: int) -> FixedPoint:
    """Integers of both signs up to a bound that may be far larger than 64 bits, some at its very edge."""
    draw = np.random.default_rng(seed)
    found = np.empty(shape, dtype=object)
    for place in np.ndindex(*shape):
        value = int.from_bytes(draw.bytes(bound.bit_length() // 8 + 2), "little") % (2 * bound + 1) - bound
        found[place] = [value, bound, -bound, 0][int(draw.integers(0, 8)) % 4 if draw.random() < 0.4 else 0]
    return FixedPoint(found if bound >= 2**61 else found.astype(np.int64), 3, bound)


def summed(values: FixedPoint, factors: FixedPoint) -> list[Any]:
    """Multiply group by group with Python's integers."""
    hidden, plain = values.integers.astype(object), factors.integers.astype(object)
    groups, terms, results = plain.shape
    return [
        [
            sum(int(hidden[group, term]) * int(plain[group, term, result]) for term in range(terms))
            for result in range(results)
        ]
        for group in range(groups)
    ]


@SOME
@given(st.data())
def test_entries_are_taken_by_place(data: st.DataObject) -> None:
    shape = data.draw(st.one_of(st.tuples(EXTENTS), st.tuples(EXTENTS, EXTENTS)))
    values = integers_within(shape, data.draw(st.sampled_from([5, 2**40, 2**200])), data.draw(st.integers(0, 2**32)))
    hidden = crossed(encrypt(KEY, values))
    flat = values.integers.reshape(-1)
    wanted = data.draw(st.one_of(st.tuples(EXTENTS), st.tuples(EXTENTS, EXTENTS))) if flat.size else (0,)
    count = int(np.prod(wanted))
    chosen = data.draw(st.lists(st.integers(0, max(flat.size - 1, 0)), min_size=count, max_size=count))
    places = np.array(chosen, data.draw(st.sampled_from(["i8", "u2", "i4"]))).reshape(wanted)
    found = hidden.gather(places)
    assert found.shape == wanted
    assert found.layout.bound == hidden.layout.bound
    assert opened(found) == flat[places.astype(int)].tolist()
    if found.shape == hidden.shape:
        twice = values.integers.reshape(-1)[places.astype(int)].astype(object) + values.integers
        assert opened(found + hidden) == twice.tolist()


def test_taking_entries_slices_transposes_repeats_and_unfolds_a_symmetric_matrix() -> None:
    values = np.arange(-6, 6).reshape(3, 4)
    hidden = crossed(encrypt(KEY, values, FORMAT))
    places = np.arange(12).reshape(3, 4)
    assert opened(hidden.gather(places.T)) == exact(values.T).tolist()
    assert opened(hidden.gather(places.T)) == opened(hidden.T)
    assert opened(hidden.gather(places[1:, ::2])) == exact(values[1:, ::2]).tolist()
    assert opened(hidden.gather(np.tile(places[0], 3))) == exact(np.tile(values[0], 3)).tolist()
    symmetric = np.array([[1, -2, 3], [-2, 4, 5], [3, 5, -6]])
    above = np.triu_indices(3)
    unfold = np.zeros((3, 3), dtype=int)
    unfold[above] = np.arange(6)
    unfold = np.maximum(unfold, unfold.T)
    assert opened(crossed(encrypt(KEY, symmetric[above], FORMAT)).gather(unfold)) == exact(symmetric).tolist()


@pytest.mark.parametrize(
    "places",
    [
        np.array([0, 12]),
        np.array([-1]),
        np.array([[0, 1], [2, 2**40]]),
        np.array([2**64 - 1], np.uint64),
        np.array([0.0]),
        np.array([True]),
        np.array(3),
        np.zeros((1, 1, 1), int),
        np.array(["0"]),
    ],
)
def test_places_outside_the_array_are_refused(places: Any) -> None:
    with pytest.raises(OutOfRange):
        encrypt(PUBLIC, np.ones((3, 4)), FORMAT).gather(places)


def test_no_place_is_inside_an_empty_array() -> None:
    empty = encrypt(PUBLIC, np.ones((0, 4)), FORMAT)
    assert empty.gather(np.zeros((0, 2), int)).shape == (0, 2)
    assert empty.gather(np.array([])).shape == (0,)
    with pytest.raises(OutOfRange):
        empty.gather(np.array([0]))


@SOME
@given(st.lists(st.tuples(EXTENTS, EXTENTS, st.sampled_from([5, 2**40, 2**200])), min_size=1, max_size=4))
def test_arrays_are_put_together_in_order(parts: list[tuple[int, int, int]]) -> None:
    plain = [integers_within((rows, columns), bound, at) for at, (rows, columns, bound) in enumerate(parts)]
    plain.append(integers_within((3,), 2, 9))
    together = concatenate([crossed(encrypt(KEY, one)) for one in plain])
    wanted = [int(value) for one in plain for value in one.integers.reshape(-1)]
    assert together.shape == (len(wanted),)
    assert together.layout.bound == max(one.bound for one in plain)
    assert opened(together) == wanted


def test_only_arrays_of_one_key_and_scale_are_put_together() -> None:
    one = encrypt(PUBLIC, [1.0, 2.0], FORMAT)
    share = encrypt(PUBLIC, FixedPoint.share(np.ones(2, dtype=object), FORMAT.fraction_bits, FORMAT.bound))
    with pytest.raises(OutOfRange):
        concatenate([])
    with pytest.raises(OutOfRange):
        concatenate([one, encrypt(PUBLIC, [1.0], Format(9, 4))])
    with pytest.raises(OutOfRange):
        concatenate([one, share])
    with pytest.raises(OutOfRange):
        concatenate([share, share])
    with pytest.raises(SlotOverflow):
        concatenate([one, encrypt(PUBLIC, [1.0], FORMAT, packed_axis=0)])
    with pytest.raises(CiphertextRefused):
        concatenate([one, encrypt(OTHER.public, [1.0], FORMAT)])
    with pytest.raises(CiphertextRefused):
        concatenate([one, CipherArray.from_bytes(one.to_bytes())])
    assert concatenate([one]).layout == one.layout


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_every_row_is_multiplied_with_its_own_numbers(data: st.DataObject) -> None:
    groups, terms, results = (data.draw(EXTENTS) for _ in range(3))
    bounds = st.sampled_from([1, 5, 2**33, 2**61, 2**90])
    seed = data.draw(st.integers(0, 2**32))
    values = integers_within((groups, terms), data.draw(bounds), seed)
    factors = integers_within((groups, terms, results), data.draw(bounds), seed + 1)
    product = crossed(encrypt(KEY, values)).each_product(factors)
    assert product.shape == (groups, results)
    assert product.layout.packed_axis is None
    assert product.layout.fraction_bits == 6
    assert product.layout.bound == values.bound * factors.bound * max(terms, 1)
    assert opened(product) == summed(values, factors)


def test_factors_are_encoded_in_three_dimensions() -> None:
    factors = np.random.default_rng(3).uniform(-16, 16, (2, 3, 4))
    plain = FixedPoint.encode(factors, FORMAT)
    assert plain.integers.tolist() == exact(factors).tolist()
    assert FixedPoint.encode(factors.astype(int), FORMAT).shape == plain.decode().shape == (2, 3, 4)
    values = np.random.default_rng(4).uniform(-16, 16, (2, 3))
    found = crossed(encrypt(KEY, values, FORMAT)).each_product(plain)
    assert opened(found) == summed(FixedPoint.encode(values, FORMAT), plain)


def test_groups_with_equal_factors_give_an_ordinary_product() -> None:
    values = integers_within((4, 6), 2**20, 1)
    factors = integers_within((6, 5), 2**30, 2)
    hidden = crossed(encrypt(KEY, values))
    repeated = FixedPoint(np.broadcast_to(factors.integers, (4, 6, 5)), factors.fraction_bits, factors.bound)
    one, other = hidden.each_product(repeated), hidden @ factors
    assert one.ciphertexts == other.ciphertexts
    assert one.layout == other.layout


def test_a_product_of_shares_is_a_share_or_refused() -> None:
    share = encrypt(PUBLIC, FixedPoint.share(np.ones((1, 2), dtype=object), 0, 1))
    plain_share = FixedPoint.share(np.ones((1, 2, 1), dtype=object), 0, 1)
    assert share.each_product(FixedPoint(np.ones((1, 2, 1), int), 0, 1)).layout.is_share
    with pytest.raises(OutOfRange):
        share.each_product(plain_share)
    assert share.gather(np.array([1, 0])).layout.is_share


@pytest.mark.parametrize("shape", [(3, 4), (3, 4, 2, 1), (4, 3, 2), (3, 5, 2), (2, 4, 2), (12,), ()])
def test_shapes_that_do_not_fit_are_refused(shape: tuple[int, ...]) -> None:
    hidden = encrypt(PUBLIC, np.ones((3, 4)), FORMAT)
    with pytest.raises(OutOfRange, match="row by row"):
        hidden.each_product(FixedPoint.encode(np.ones(shape), FORMAT))
    with pytest.raises(OutOfRange, match="row by row"):
        encrypt(PUBLIC, np.ones(4), FORMAT).each_product(FixedPoint.encode(np.ones((1, 4, 2)), FORMAT))


@pytest.mark.parametrize("axis", [0, 1])
def test_packed_arrays_are_refused(axis: int) -> None:
    packed = encrypt(PUBLIC, np.ones((3, 4)), FORMAT, packed_axis=axis, room=ROOM)
    with pytest.raises(SlotOverflow):
        packed.gather(np.array([0]))
    with pytest.raises(SlotOverflow):
        packed.each_product(FixedPoint.encode(np.ones((3, 4, 2)), FORMAT))
    with pytest.raises(SlotOverflow):
        concatenate([packed])


def test_an_overflow_is_found_before_anything_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = encrypt(PUBLIC, integers_within((2, 4), 2**250, 0))
    largest = 2 ** (KEY.bits - 3) - 1
    monkeypatch.setattr(PublicKey, "group_products", lambda *_: pytest.fail("this was computed"))
    with pytest.raises(SlotOverflow):
        hidden.each_product(integers_within((2, 4, 3), largest // (4 * 2**250) + 1, 0))
    monkeypatch.undo()
    just_fits = FixedPoint(np.full((2, 4, 3), largest // (4 * 2**250), dtype=object), 0, largest // (4 * 2**250))
    assert hidden.each_product(just_fits).layout.bound <= largest


@SOME
@given(st.integers(1, 9), st.integers(1, 6), st.integers(1, 7), st.integers(0, 2**32))
def test_products_are_packed_masked_and_opened_exactly(groups: int, terms: int, results: int, seed: int) -> None:
    values, factors = integers_within((groups, terms), 2**9, seed), integers_within((groups, terms, results), 99, seed)
    product = crossed(encrypt(KEY, values)).each_product(factors)
    wanted = [one for row in summed(values, factors) for one in row]
    packed = product.gather(np.arange(groups * results)).packed()
    assert packed.layout.count < groups * results or groups * results == 1
    masked, mask = packed.mask()
    assert mask.remove(open_masked(KEY, crossed(masked))).integers.tolist() == wanted
    both = concatenate([product, product.gather(np.arange(results))]).packed()
    assert opened(both) == wanted + wanted[:results]


def test_negative_values_alone_survive_packing() -> None:
    hidden = crossed(encrypt(KEY, FixedPoint(np.full((3, 40), -(2**12)), 8, 2**12)))
    masked, mask = hidden.gather(np.arange(120)).packed().mask()
    assert masked.layout.count < 5
    assert mask.remove(open_masked(KEY, crossed(masked))).integers.tolist() == [-(2**12)] * 120


def product_bytes(engine: Engine, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> bytes:
    """Encrypt with known randomness, and return the bytes of the product."""
    numbers = itertools.count()
    with monkeypatch.context() as patch:
        patch.setattr(secrets, "token_bytes", lambda size: next(numbers).to_bytes(size, "little"))
        patch.setattr(secrets, "randbelow", lambda limit: 3 ** (50 + next(numbers)) % limit)
        key = PrivateKey(int(KEY._p), int(KEY._q), engine)
        hidden = encrypt(key, integers_within(shape[:2], 2**30, 1))
    product = hidden.each_product(integers_within(shape, 2**35, 2))
    return product.to_bytes()


@pytest.mark.parametrize("shape", [(8, 60, 6), (1, 200, 9), (2, 200, 9), (3, 5, 1), (1, 400, 1), (0, 4, 4), (2, 2, 0)])
def test_a_pool_gives_the_same_bytes(shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    with open_engine("pool", 3) as pool:
        found = product_bytes(pool, shape, monkeypatch)
    assert found == product_bytes(INLINE, shape, monkeypatch)


def test_work_is_divided_over_groups_and_where_they_are_few_over_results(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    # As on a slow machine: on a quick one this little work is not worth dividing.
    monkeypatch.setattr("colonnade.crypto.paillier.multiplication_seconds", lambda bits: 1e-5)
    with open_engine("pool", 3) as pool:
        real = pool.map
        monkeypatch.setattr(pool, "map", lambda work, chunks: sizes.append(len(chunks)) or real(work, chunks))
        key = PublicKey(int(KEY.n), pool)
        for groups in (1, 2, 12):
            hidden = encrypt(KEY, integers_within((groups, 300), 2**30, 1))
            CipherArray(key, hidden.layout, hidden.ciphertexts).each_product(
                integers_within((groups, 300, 8), 2**35, 2)
            )
    assert sizes == [3, 4, 12]


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 5),
    st.integers(2, 4),
    st.integers(1, 12),
    st.sampled_from([1, 8, 9, 33, 64, 300]),
    st.integers(0, 2**32),
)
def test_buckets_for_both_signs_give_what_pow_gives(bases: int, rows: int, window: int, bits: int, seed: int) -> None:
    modulus = KEY.square
    units = [pow(at + 2, 5 * at + 3, modulus) for at in range(bases)]
    exponents = integers_within((rows, bases), 2**bits - 1, seed).integers.tolist()
    wanted = power_products([], exponents, modulus) if not bases else []
    for row in exponents if bases else []:
        result = 1
        for unit, exponent in zip(units, row, strict=True):
            result = result * pow(unit, int(exponent), modulus) % modulus
        wanted.append(result)
    assert list(products._signed_pippenger(units, exponents, modulus, bits, window)) == wanted


def test_many_bases_with_several_results_go_into_buckets(monkeypatch: pytest.MonkeyPatch) -> None:
    called = []
    original = products._signed_pippenger
    monkeypatch.setattr(products, "_signed_pippenger", lambda *task: called.append(1) or original(*task))
    modulus = KEY.square
    units = [pow(at + 2, 5 * at + 3, modulus) for at in range(1000)]
    exponents = integers_within((4, 1000), 2**33, 5).integers.tolist()
    found = power_products(units, exponents, modulus)
    assert called
    assert found == [one for row in exponents for one in power_products(units, [row], modulus)]


def test_the_largest_exponent_counts_without_its_sign() -> None:
    assert largest_bits(np.array([[3, -8]])) == 4
    assert largest_bits(np.array([-(2**63)])) == 64
    assert largest_bits(np.array([2**100, -1], dtype=object)) == 101
    assert largest_bits(np.zeros((0, 3), int)) == largest_bits(np.zeros(3, int)) == 0
