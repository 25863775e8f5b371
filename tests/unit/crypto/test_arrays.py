"""Encrypted arrays compute what numpy computes with Python's integers, however they are packed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.crypto.keys import FORMAT, KEY, PUBLIC, ROOM, crossed, exact, opened

from colonnade.crypto import (
    DEFAULT_FORMAT,
    CipherArray,
    FixedPoint,
    Format,
    Layout,
    PrivateKey,
    decrypt,
    decrypt_fixed,
    encrypt,
    open_masked,
)
from colonnade.errors import CiphertextRefused, OutOfRange, SlotOverflow

SOME = settings(deadline=None, max_examples=25)
EXTENTS = st.sampled_from([0, 1, 1, 2, 3, 5, 8, 19])
DTYPES = st.sampled_from(["f8", "f4", "f2", "i8", "i1", "u2", "?", ">f8"])


@st.composite
def arrays(draw: st.DrawFn, *shape: int) -> np.ndarray[Any, Any]:
    """Values of many types, at the edges of the format too, in any order of memory."""
    dtype = np.dtype(draw(DTYPES))
    seed = np.random.default_rng(draw(st.integers(0, 2**32)))
    if dtype.kind == "f":
        values = seed.uniform(-16, 16, shape)
        values[seed.random(shape) < 0.2] = draw(st.sampled_from([16.0, -16.0, 0.0, 2**-9, 3 * 2**-9]))
    elif dtype.kind == "b":
        values = seed.random(shape) < 0.5
    else:
        values = seed.integers(0 if dtype.kind == "u" else -16, 17, shape)
    made = values.astype(dtype)
    order = draw(st.sampled_from(["C", "F", "reversed", "strided"]))
    if order == "reversed":
        return made[::-1]
    if order == "strided":
        wide = np.zeros([2 * extent for extent in shape], dtype)
        view = wide[tuple(slice(None, None, 2) for _ in shape)]
        view[...] = made
        return view
    return np.asarray(made, order=order)


@st.composite
def matrices(draw: st.DrawFn) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    shape = draw(EXTENTS), draw(EXTENTS)
    return draw(arrays(*shape)), draw(arrays(*shape))


def whole(values: Any, axis: int | None) -> CipherArray:
    """Encrypt as the owner and hand over."""
    return crossed(encrypt(KEY, values, FORMAT, packed_axis=axis, room=ROOM))


@SOME
@given(matrices(), st.sampled_from([None, 0, 1]))
def test_sums_and_differences_are_exact(pair: tuple[Any, Any], axis: int | None) -> None:
    one, two = pair
    a, b = exact(one), exact(two)
    x, y = whole(one, axis), whole(two, axis)
    assert x.shape == one.shape
    assert opened(x) == a.tolist()
    assert opened(x + y) == (a + b).tolist()
    assert opened(x - y) == (a - b).tolist()
    assert opened(-x) == (-a).tolist()
    assert opened(x + two) == opened(two + x) == (a + b).tolist()
    assert opened(x - two) == (a - b).tolist()
    assert opened(two - x) == (b - a).tolist()
    assert opened(x + FixedPoint.encode(two, FORMAT)) == (a + b).tolist()
    assert opened(x.T) == a.T.tolist()
    assert opened(x.T + y.T) == (a + b).T.tolist()
    assert decrypt(KEY, x).tolist() == (a / 2**FORMAT.fraction_bits).astype(float).tolist()


@SOME
@given(matrices(), st.sampled_from([None, 0, 1]))
def test_masks_come_off_and_randomness_changes_no_value(pair: tuple[Any, Any], axis: int | None) -> None:
    one, two = pair
    a, b = exact(one), exact(two)
    x = whole(one, axis)
    assert opened(x.rerandomise()) == a.tolist()
    masked, mask = x.mask()
    assert masked.layout == x.layout
    elements = open_masked(KEY, crossed(masked))
    assert elements.shape == (x.layout.count, KEY.width)
    assert mask.remove(elements).integers.tolist() == a.tolist()
    wide, mask = x.widened(2 * FORMAT.bound).mask()
    noisy = open_masked(KEY, crossed(wide), plus=FixedPoint.encode(two, FORMAT))
    assert mask.remove(noisy).integers.tolist() == (a + b).tolist()


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_products_are_exact_on_both_sides(data: st.DataObject) -> None:
    rows, columns, results = data.draw(EXTENTS), data.draw(EXTENTS), data.draw(st.sampled_from([0, 1, 2, 7]))
    values = data.draw(arrays(rows, columns))
    right, left = data.draw(arrays(columns, results)), data.draw(arrays(results, rows))
    a, b, c = exact(values), exact(right), exact(left)
    right_plain, left_plain = FixedPoint.encode(right, FORMAT), FixedPoint.encode(left, FORMAT)
    # Without any terms numpy's sum of objects is 0 as well.
    for axis in (None, 0):
        product = whole(values, axis) @ right_plain
        assert product.shape == (rows, results)
        assert product.layout.fraction_bits == 2 * FORMAT.fraction_bits
        assert opened(product) == (a @ b).tolist()
    for axis in (None, 1):
        product = left_plain @ whole(values, axis)
        assert product.shape == (results, columns)
        assert opened(product) == (c @ a).tolist()
        assert opened(product.T) == (c @ a).T.tolist()
    x = whole(values, 1)
    dense = x.left_product(left_plain, dense=True)
    assert dense.shape == (results, columns)
    assert opened(dense) == (c @ a).tolist()
    assert dense.layout.count <= (left_plain @ x).layout.count
    assert opened(dense + dense) == (2 * (c @ a)).tolist()
    assert opened(dense.T) == (c @ a).T.tolist()
    masked, mask = dense.mask()
    assert mask.remove(open_masked(KEY, crossed(masked))).integers.tolist() == (c @ a).tolist()


@SOME
@given(st.data())
def test_products_with_vectors_are_exact(data: st.DataObject) -> None:
    rows, columns = data.draw(EXTENTS), data.draw(EXTENTS)
    values, right, left = data.draw(arrays(rows, columns)), data.draw(arrays(columns)), data.draw(arrays(rows))
    a, b, c = exact(values), exact(right), exact(left)
    right_plain, left_plain = FixedPoint.encode(right, FORMAT), FixedPoint.encode(left, FORMAT)
    for axis in (None, 0):
        assert opened(whole(values, axis) @ right_plain) == (a @ b).tolist()
    for axis in (None, 1):
        assert opened(left_plain @ whole(values, axis)) == (c @ a).tolist()
        assert opened(whole(values, axis).left_product(left_plain, dense=True)) == (c @ a).tolist()
    # A hidden vector with a plain vector or matrix on either side.
    x = whole(left, None)
    other = exact(left) @ c if rows else 0
    assert opened(x @ left_plain) == opened(left_plain @ x) == [other]
    assert opened(x @ FixedPoint.encode(values, FORMAT)) == (c @ a).tolist()
    assert opened(FixedPoint.encode(values.T, FORMAT) @ x) == (a.T @ c).tolist()


@SOME
@given(st.data(), EXTENTS)
def test_a_vector_can_be_packed_later(data: st.DataObject, length: int) -> None:
    values = data.draw(arrays(length))
    a = exact(values)
    x = whole(values, None)
    tight = x.packed()
    assert opened(tight) == opened(x.T) == a.tolist()
    assert tight.layout.count <= x.layout.count
    assert opened(-tight) == (-a).tolist()
    # The same layout as when packed at once.
    assert tight.layout == encrypt(PUBLIC, values, FORMAT, packed_axis=0).layout
    masked, mask = tight.mask()
    assert mask.remove(open_masked(KEY, crossed(masked))).integers.tolist() == a.tolist()


@SOME
@given(matrices(), st.sampled_from([None, 0, 1]))
def test_owner_and_partner_make_arrays_alike(pair: tuple[Any, Any], axis: int | None) -> None:
    one, _ = pair
    by_owner, by_partner = (encrypt(key, one, FORMAT, packed_axis=axis, room=ROOM) for key in (KEY, PUBLIC))
    assert by_owner.layout == by_partner.layout
    assert opened(by_owner + crossed(by_partner)) == (2 * exact(one)).tolist()


def test_numbers_without_a_format_have_the_usual_one() -> None:
    hidden = crossed(encrypt(KEY, [[0.1, -256.0], [3, 256.0]], packed_axis=0, room=2 * DEFAULT_FORMAT.bound))
    exactly = exact([[0.1, -256.0], [3, 256.0]], DEFAULT_FORMAT)
    assert opened(hidden) == exactly.tolist()
    assert opened(hidden @ np.array([0.5, -1 / 3])) == (exactly @ exact([0.5, -1 / 3], DEFAULT_FORMAT)).tolist()
    assert opened([0.5] @ crossed(encrypt(KEY, [[7.0]]))) == [7 * 2**24 * 2**23]


def test_scalars_are_added_to_every_entry() -> None:
    hidden = crossed(encrypt(KEY, np.zeros((2, 3)), FORMAT, packed_axis=1, room=ROOM))
    assert opened(hidden + 1) == opened(1 + hidden) == opened(np.float64(1) + hidden) == [[256] * 3] * 2
    assert opened(2.5 - hidden) == [[640] * 3] * 2
    assert opened(hidden - np.array([1, 2, 3])) == [[-256, -512, -768]] * 2


@pytest.mark.parametrize("shape", [(1,), (1, 1), (3, 1), (1, 3), (0, 3), (3, 0), (0,), (0, 0)])
@pytest.mark.parametrize("axis", [None, 0, 1])
def test_small_and_empty_arrays_survive_everything(shape: tuple[int, ...], axis: int | None) -> None:
    if axis == 1 and len(shape) == 1:
        with pytest.raises(SlotOverflow):
            encrypt(PUBLIC, np.ones(shape), FORMAT, packed_axis=1)
        return
    hidden = crossed(encrypt(PUBLIC, np.ones(shape), FORMAT, packed_axis=axis))
    masked, mask = hidden.mask()
    assert mask.remove(open_masked(KEY, masked)).integers.tolist() == np.full(shape, 256).tolist()
    assert opened(hidden.T.T) == np.full(shape, 256).tolist()


@pytest.mark.parametrize("shape", [(), (1, 1, 1), (2, 0, 2)])
def test_arrays_of_other_dimensions_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(OutOfRange):
        encrypt(PUBLIC, np.ones(shape), FORMAT)
    hidden = encrypt(PUBLIC, np.ones((1, 1)), FORMAT)
    with pytest.raises(OutOfRange):
        hidden @ np.ones(shape)
    with pytest.raises(OutOfRange):
        np.ones(shape) @ hidden


def test_shapes_that_do_not_match_are_refused() -> None:
    hidden = encrypt(PUBLIC, np.ones((2, 3)), FORMAT)
    for wrong in (np.ones(2), np.ones((2, 3)), np.ones((1, 3))):
        with pytest.raises(OutOfRange):
            hidden @ wrong
    for wrong in (np.ones(3), np.ones((2, 3)), np.ones((3, 1))):
        with pytest.raises(OutOfRange):
            wrong @ hidden
    with pytest.raises(OutOfRange):
        hidden + encrypt(PUBLIC, np.ones((3, 2)), FORMAT)
    with pytest.raises(OutOfRange):
        hidden + encrypt(PUBLIC, np.ones((2, 3)), FORMAT, packed_axis=0)
    with pytest.raises(OutOfRange):
        hidden + encrypt(PUBLIC, np.ones((2, 3)), Format(9, 4))
    with pytest.raises(OutOfRange):
        hidden + FixedPoint.encode(np.ones((2, 3)), Format(9, 4))
    with pytest.raises(OutOfRange):
        hidden + FixedPoint.encode(np.ones(3), FORMAT)
    with pytest.raises(ValueError, match="broadcast"):
        hidden + np.ones((3, 2))


def test_slots_are_not_summed_among_themselves() -> None:
    down, across = (encrypt(PUBLIC, np.ones((2, 2)), FORMAT, packed_axis=axis, room=ROOM) for axis in (0, 1))
    with pytest.raises(SlotOverflow):
        across @ np.ones(2)
    with pytest.raises(SlotOverflow):
        np.ones(2) @ down
    with pytest.raises(SlotOverflow):
        down.left_product(np.ones((2, 2)), dense=True)
    with pytest.raises(SlotOverflow):
        encrypt(PUBLIC, np.ones(2), FORMAT, packed_axis=0, room=ROOM) @ np.ones(2)
    dense = across.left_product(FixedPoint.encode(np.ones((2, 2)), Format(0, 0)), dense=True)
    assert dense.layout.lines > 1
    for use in (lambda: dense @ np.ones(2), lambda: np.ones(2) @ dense, lambda: dense.T @ np.ones(2)):
        with pytest.raises(SlotOverflow):
            use()
    for wrong in (down, across, encrypt(PUBLIC, np.ones((2, 2)), FORMAT)):
        with pytest.raises(SlotOverflow):
            wrong.packed()


def test_the_real_key_sizes_work_like_the_small_ones() -> None:
    key = PrivateKey.generate("insecure_test")
    values = np.arange(-30, 30).reshape(20, 3) / 4
    hidden = encrypt(key, values, packed_axis=0, room=3 * DEFAULT_FORMAT.bound)
    received = CipherArray.from_bytes(hidden.to_bytes()).under(key.public, hidden.layout)
    weights = np.array([[0.5], [-1.25], [3.0]])
    masked, mask = (received @ weights).mask()
    assert mask.remove(open_masked(key, masked)).decode().tolist() == (values @ weights).tolist()


def test_a_layout_counts_exactly_however_long_it_is() -> None:
    layout = Layout((2**40 - 1, 2**40 - 1), None, 510, 1, 0, 1)
    assert layout.count == (2**40 - 1) ** 2


def test_a_received_array_is_of_no_use_before_it_is_checked() -> None:
    hidden = encrypt(PUBLIC, [1.0], FORMAT)
    received = CipherArray.from_bytes(hidden.to_bytes())
    for use in (
        lambda: decrypt_fixed(KEY, received),
        lambda: received + received,
        received.mask,
        received.rerandomise,
        lambda: received.T,
    ):
        with pytest.raises(CiphertextRefused, match="before it was checked"):
            use()
