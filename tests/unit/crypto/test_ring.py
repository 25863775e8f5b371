"""Numbers as 64-bit words: exact, wrapping, and refused where a sum could not be read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from colonnade.crypto.ring import Ring, RingEncoder
from colonnade.errors import ConfigError, OutOfRange, WrongContent


def test_encoding_rounds_to_the_nearest_step() -> None:
    values = np.array([1.0, -1.0, 2.0**-40, -(2.0**-40), 0.3, -0.7, 0.0])
    expected = [round(Fraction(value) * 2**40) % 2**64 for value in values]
    assert Ring(2).encode(values).tolist() == expected


@given(
    hnp.arrays(np.float64, (3, 5), elements=st.floats(-(2.0**20), 2.0**20)),
    hnp.arrays(np.float64, (3, 5), elements=st.floats(-(2.0**20), 2.0**20)),
    st.integers(0, 2**64 - 1),
)
def test_shares_add_up_whatever_the_mask(one: np.ndarray, other: np.ndarray, mask: int) -> None:
    ring = Ring(2)
    masked = ring.encode(one) + np.uint64(mask), ring.encode(other) - np.uint64(mask)
    found = ring.decode(masked[0] + masked[1])
    exact = one + other
    assert (np.abs(found - exact) <= 2.0**-39 + np.spacing(np.abs(exact))).all()


def test_words_wrap_around_both_ends() -> None:
    ring = Ring(1)
    numbers = np.array([2.0**21, -(2.0**21)])
    for shift in (2**63, 2**64 - 1, 2**62):
        masked = ring.encode(numbers) + np.uint64(shift)
        assert ring.decode(masked - np.uint64(shift)).tolist() == numbers.tolist()


@pytest.mark.parametrize("parties", [1, 2, 3, 4, 7])
def test_numbers_that_could_overflow_a_sum_are_refused(parties: int) -> None:
    ring = Ring(parties)
    limit = 2.0**22 / parties
    below = np.nextafter(limit, 0)
    total = sum((ring.encode(np.array([below])) for _ in range(parties)), np.zeros(1, np.uint64))
    assert ring.decode(total)[0] == pytest.approx(2.0**22)
    for value in (limit, -limit, 1e300, np.inf, -np.inf, np.nan):
        with pytest.raises(OutOfRange, match="Scale the columns down"):
            ring.encode(np.array([0.0, value]))


def test_float32_is_taken_exactly_and_other_types_are_refused() -> None:
    values = np.array([[0.1, -3.7]], np.float32)
    ring = Ring(2)
    assert (ring.encode(values) == ring.encode(values.astype(np.float64))).all()
    for kind in (np.int64, np.float16, np.complex128, object):
        with pytest.raises(OutOfRange, match="Use float32 or float64"):
            ring.encode(np.ones(3, kind))


def test_the_encoder_keeps_its_memory_but_not_its_values() -> None:
    encoder, random = RingEncoder(Ring(2)), np.random.default_rng(1)
    for shape in ((3, 4), (3, 4), (2, 2, 2), (0, 4), (5,), (3, 4)):
        values = random.normal(size=shape)
        assert (encoder.encode(values) == Ring(2).encode(values)).all()
    turned = np.asfortranarray(random.normal(size=(4, 3)))
    assert (encoder.encode(turned) == Ring(2).encode(turned.copy(order="C"))).all()


def test_a_sum_beyond_the_range_is_no_sum() -> None:
    with pytest.raises(WrongContent, match="do not cancel"):
        Ring(2).decode(np.array([1, 2**63], np.uint64))
    assert Ring(2).decode(np.empty((0, 3), np.uint64)).shape == (0, 3)


def test_impossible_rings_are_refused() -> None:
    for parties, bits in ((0, 40), (2, -1), (2, 62)):
        with pytest.raises(ConfigError):
            Ring(parties, bits)
