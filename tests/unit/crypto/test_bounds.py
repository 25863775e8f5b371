"""Nothing is decoded wrongly: what could leave its slot is refused before it is computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.crypto.keys import FORMAT, KEY, PUBLIC, ROOM, crossed, opened

from colonnade.crypto import (
    FixedPoint,
    Format,
    Layout,
    PublicKey,
    decrypt,
    decrypt_fixed,
    encrypt,
    open_masked,
    ring_elements,
    slot_bits_for,
)
from colonnade.errors import ConfigError, OutOfRange, SlotOverflow, WrongContent


def filled(shape: tuple[int, ...], bound: int, signs: int) -> FixedPoint:
    """Numbers that all lie at the bound, with the given signs over and over."""
    integers = np.empty(shape, dtype=object)
    for at, place in enumerate(np.ndindex(*shape)):
        integers[place] = -bound if signs >> at % 16 & 1 else bound
    return FixedPoint(integers, 0, bound)


SIGNS = st.integers(0, 2**16 - 1)
BOUNDS = st.one_of(st.integers(0, 40), st.integers(0, 2**70), st.integers(1, 480).map(lambda bits: 2**bits - 1))


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_values_at_the_bound_are_right_or_refused(data: st.DataObject) -> None:
    rows, columns = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 4))
    axis = data.draw(st.sampled_from([None, 0, 1]))
    start = filled((rows, columns), data.draw(BOUNDS), data.draw(SIGNS))
    exact: Any = start.integers
    try:
        hidden = encrypt(PUBLIC, start, packed_axis=axis, room=data.draw(st.integers(-1, 2**40)))
        for step in data.draw(
            st.lists(st.sampled_from(["twice", "less", "plus", "minus", "right", "left"]), max_size=6)
        ):
            plain_bound, signs = data.draw(BOUNDS), data.draw(SIGNS)
            if step == "twice":
                hidden, exact = hidden + hidden, exact + exact
            elif step == "less":
                hidden, exact = -hidden - hidden, -2 * exact
            elif step in ("plus", "minus"):
                plain = filled(hidden.shape, plain_bound, signs)
                hidden = hidden + plain if step == "plus" else hidden - plain
                exact = exact + plain.integers if step == "plus" else exact - plain.integers
            elif step == "right" and axis != 1:
                plain = filled((hidden.shape[1], 2), plain_bound, signs)
                hidden, exact = hidden @ plain, exact @ plain.integers
            elif step == "left" and axis != 0 and hidden.layout.lines == 1:
                plain = filled((3, hidden.shape[0]), plain_bound, signs)
                hidden = hidden.left_product(plain, dense=bool(signs & 1) and axis == 1)
                exact = plain.integers @ exact
    except SlotOverflow:
        return
    assert opened(hidden) == exact.tolist()
    assert max((abs(one) for one in exact.reshape(-1)), default=0) <= hidden.layout.bound


@pytest.mark.parametrize("axis", [None, 0])
def test_an_overflow_is_found_before_anything_is_computed(axis: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = encrypt(PUBLIC, filled((4, 2), 2**250, 0), packed_axis=axis, room=2)
    share = FixedPoint.share(np.ones(2, dtype=object), 0, 1)
    hidden_share = encrypt(PUBLIC, FixedPoint.share(np.ones((1, 2), dtype=object), 0, 1))
    for name in ("products", "add_plain", "multiply_in", "shifted_sums"):
        monkeypatch.setattr(PublicKey, name, lambda *_: pytest.fail("this was computed"))
    with pytest.raises(SlotOverflow):
        hidden @ filled((2, 1), 2**260, 0)
    with pytest.raises(SlotOverflow):
        hidden + filled((4, 2), 2**509, 0)
    with pytest.raises(SlotOverflow):
        hidden.T.left_product(filled((3, 2), 2**260, 0), dense=True)
    with pytest.raises(OutOfRange):
        hidden_share @ share


def test_a_bound_is_never_made_smaller() -> None:
    hidden = encrypt(PUBLIC, filled((3,), 100, 0), packed_axis=0, room=10)
    assert hidden.widened(1).layout.bound == 100
    assert hidden.widened(1000).layout.bound == 1000
    with pytest.raises(SlotOverflow):
        hidden.widened(2**60)


@pytest.mark.parametrize("room", [1, 0, -1, -(2**50)])
def test_too_little_room_is_room_for_the_values_themselves(room: int) -> None:
    hidden = encrypt(PUBLIC, filled((40,), 100, 0b101), packed_axis=0, room=room)
    assert opened(hidden) == filled((40,), 100, 0b101).integers.tolist()


@settings(deadline=None, max_examples=100)
@given(st.integers(0, 2**200), st.integers(1, 50))
def test_slots_hold_their_bound_and_no_bit_more(bound: int, slots: int) -> None:
    bits = slot_bits_for(bound)
    layout = Layout((slots,), 0, bits, slots, 0, bound)
    for signs in (0, 0xFFFF, 0x5555):
        values = filled((slots,), bound, signs)
        assert layout.unpack(layout.pack(values)).integers.tolist() == values.integers.tolist()
        for place in (0, slots - 1):
            beyond = values.integers.copy()
            beyond[place] += 1 if beyond[place] >= 0 else -1
            with pytest.raises(SlotOverflow):
                layout.unpack(layout.pack(FixedPoint(beyond, 0, bound)))


def test_the_largest_values_of_a_key_fit_and_the_next_do_not() -> None:
    largest = 2 ** (KEY.bits - 3) - 1
    for axis in (None, 0):
        hidden = encrypt(PUBLIC, filled((2,), largest, 0b10), packed_axis=axis)
        assert opened(hidden) == [largest, -largest]
        with pytest.raises(SlotOverflow):
            encrypt(PUBLIC, filled((2,), largest + 1, 0), packed_axis=axis)
        with pytest.raises(SlotOverflow):
            hidden + hidden


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 16.0001, -17.0, 17, -17, 2**63, np.float32(1e38)])
def test_what_no_format_holds_is_refused(value: Any) -> None:
    hidden = encrypt(PUBLIC, [[1.0]], FORMAT, room=ROOM)
    for use in (
        lambda: encrypt(PUBLIC, [1, value], FORMAT),
        lambda: encrypt(PUBLIC, np.array([value]), FORMAT, packed_axis=0),
        lambda: hidden + FixedPoint.encode([[value]], FORMAT),
        lambda: hidden @ FixedPoint.encode([[value]], FORMAT),
        lambda: FixedPoint.encode([[value]], FORMAT) @ hidden,
    ):
        with pytest.raises(OutOfRange):
            use()
    if not abs(value) < 257:
        for use in (
            lambda: hidden + value,
            lambda: value - hidden,
            lambda: hidden @ [[value]],
            lambda: [[value]] @ hidden,
        ):
            with pytest.raises(OutOfRange):
                use()


@pytest.mark.parametrize(
    "values", [[1 + 2j], ["1"], [None], [b"1"], np.array(["2026-01-01"], "M8[D]"), [2**70], [[], [1]]]
)
def test_what_is_no_number_is_refused(values: Any) -> None:
    with pytest.raises((OutOfRange, ValueError)):
        encrypt(PUBLIC, values, FORMAT)


@pytest.mark.parametrize("format", [(-1, 5), (3, -4), (-8, 16)])
def test_formats_that_hold_nothing_are_refused(format: tuple[int, int]) -> None:
    with pytest.raises(OutOfRange):
        Format(*format)


def test_integers_need_room_in_formats_for_small_numbers() -> None:
    assert FixedPoint.encode([0, 0], Format(8, -2)).integers.tolist() == [0, 0]
    with pytest.raises(OutOfRange):
        FixedPoint.encode([0, 1], Format(8, -2))
    with pytest.raises(OutOfRange):
        FixedPoint.encode([True], Format(8, -2))


@settings(deadline=None, max_examples=40)
@given(st.integers(1, 30), st.sampled_from([None, 0]), st.integers(0, 2**32))
def test_shares_complete_to_their_sum(length: int, axis: int | None, seed: int) -> None:
    draw = np.random.default_rng(seed)
    values = [int(one) for one in draw.integers(-4096, 4097, length)]
    # One share is random and far larger than any slot.
    own = [int.from_bytes(draw.bytes(40), "little", signed=True) for _ in range(length)]
    other = FixedPoint.share(np.array([a - b for a, b in zip(values, own, strict=True)], dtype=object), 8, 4096)
    mine = FixedPoint.share(np.array(own, dtype=object), 8, 4096)
    hidden = crossed(encrypt(KEY, other, packed_axis=axis))
    assert hidden.layout.is_share
    assert opened(hidden.add_share(mine)) == values
    if axis is None:
        assert opened(hidden.packed().add_share(mine)) == values
    masked, mask = hidden.mask()
    assert mask.remove(open_masked(KEY, crossed(masked), plus=mine)).integers.tolist() == values
    negated = FixedPoint.share(np.array([-one for one in own], dtype=object), 8, 4096)
    assert opened((-hidden).add_share(negated)) == [-one for one in values]


def test_products_of_shares_are_shares_of_the_product() -> None:
    own = FixedPoint.share(np.array([2**200, -(2**190)], dtype=object), 8, 4096)
    other = FixedPoint.share(np.array([5 - 2**200, 7 + 2**190], dtype=object), 8, 4096)
    weights = FixedPoint.encode([[3.0], [-2.0]], Format(4, 2))
    product = encrypt(PUBLIC, other) @ weights
    assert product.layout.is_share
    mine = FixedPoint.share(own.integers @ weights.integers, 12, product.layout.bound)
    assert opened(product.add_share(mine)) == [5 * 48 - 7 * 32]
    # A plain share times a hidden number.
    hidden = encrypt(PUBLIC, FixedPoint.encode([[3.0, -2.0]], Format(4, 2)))
    product = hidden @ other
    assert product.layout.is_share
    mine = FixedPoint.share(np.array([48 * 2**200 + 32 * 2**190], dtype=object), 12, product.layout.bound)
    assert opened(product.add_share(mine)) == [5 * 48 - 7 * 32]


def test_a_share_is_used_only_where_it_means_something() -> None:
    share = FixedPoint.share(np.array([3, 4], dtype=object), 8, 4096)
    whole = FixedPoint.encode([3.0, 4.0], FORMAT)
    hidden_share, hidden = encrypt(PUBLIC, share), encrypt(PUBLIC, whole)
    other_scale = FixedPoint.share(np.array([3, 4], dtype=object), 9, 4096)
    masked, mask = hidden_share.mask()
    refused = {
        "decode": share.decode,
        "decode transposed": share.T.decode,
        "decrypt": lambda: decrypt(KEY, hidden_share),
        "decrypt_fixed": lambda: decrypt_fixed(KEY, hidden_share),
        "plus": lambda: hidden + share,
        "minus": lambda: hidden - share,
        "share plus share": lambda: hidden_share + share,
        "share plus whole": lambda: hidden_share + hidden,
        "whole minus share": lambda: hidden - hidden_share,
        "share times share": lambda: hidden_share @ share,
        "completing a whole": lambda: hidden.add_share(share),
        "completing with a whole": lambda: hidden_share.add_share(whole),
        "another scale": lambda: hidden_share.add_share(other_scale),
        "opening alone": lambda: open_masked(KEY, masked),
        "opening with a whole": lambda: open_masked(KEY, masked, plus=whole),
        "opening at another scale": lambda: open_masked(KEY, masked, plus=other_scale),
        "opening a whole with a share": lambda: open_masked(KEY, hidden.mask()[0], plus=share),
    }
    for name, use in refused.items():
        with pytest.raises(OutOfRange):
            pytest.fail(f"{name}: {use()}")
    assert mask.remove(open_masked(KEY, masked, plus=share)).integers.tolist() == [6, 8]


def test_a_share_of_larger_numbers_needs_larger_slots() -> None:
    one = FixedPoint.share(np.array([3], dtype=object), 8, 100)
    hidden = encrypt(PUBLIC, one, packed_axis=0)
    with pytest.raises(SlotOverflow):
        hidden.add_share(FixedPoint.share(np.array([3], dtype=object), 8, 2**20))


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 2**512), st.integers(0, 20), st.sampled_from([None, 0]))
def test_a_lying_partner_is_found_out(lie: int, place: int, axis: int | None) -> None:
    """Any opened value but a few around the right one."""
    hidden = encrypt(PUBLIC, np.zeros(21), FORMAT, packed_axis=axis)
    masked, mask = hidden.mask()
    elements = open_masked(KEY, masked).copy()
    place %= len(elements)
    lie %= int(KEY.n)
    elements[place] = ring_elements([lie], KEY)[0]
    value = (lie - mask.integers[place]) % int(KEY.n)
    within = value <= FORMAT.bound or value >= int(KEY.n) - FORMAT.bound
    if axis is None and within:
        mask.remove(elements)
    else:
        with pytest.raises(WrongContent):
            mask.remove(elements)


def test_a_partner_that_adds_too_much_is_found_out() -> None:
    hidden = encrypt(PUBLIC, [1.0, 16.0, -16.0], FORMAT, packed_axis=0)
    masked, mask = hidden.mask()
    for too_much in ([0, 1, 0], [0, 0, -1], [4000, 0, 0]):
        plus = FixedPoint(np.array(too_much), 8, FORMAT.bound)
        with pytest.raises(WrongContent):
            mask.remove(open_masked(KEY, masked, plus=plus))
    # This would fall into another slot, where nobody could tell.
    with pytest.raises(SlotOverflow):
        open_masked(KEY, masked, plus=FixedPoint(np.array([2**40, 0, 0]), 8, 2**40))
    assert mask.remove(open_masked(KEY, masked)).decode().tolist() == [1.0, 16.0, -16.0]


def test_decrypted_values_outside_the_agreed_range_are_refused() -> None:
    honest = encrypt(PUBLIC, filled((3,), 100, 0), packed_axis=0)
    lying = type(honest)(PUBLIC, honest.layout, PUBLIC.add_plain(honest.ciphertexts, [1]))
    with pytest.raises(SlotOverflow):
        decrypt_fixed(KEY, lying)


def test_key_sizes_have_names() -> None:
    with pytest.raises(ConfigError, match="2048"):
        PublicKey.check(15, (), "tiny")
