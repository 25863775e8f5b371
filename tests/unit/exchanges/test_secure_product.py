"""The three endings of an encrypted product against Python integers, and its layouts against one another."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.worlds import integers_for_ciphertexts

from colonnade.crypto import CipherArray, FixedPoint, Format, PrivateKey, decrypt_fixed, key_bits, open_masked
from colonnade.errors import ConfigError
from colonnade.exchanges.secure_product import Opening, ProductFormat, SharedFormat, blurred

SIZE = "insecure_test"
NUMBERS, FACTORS = Format(12, 2), Format(10, 1)


class Unheard:
    """An opening of what no channel brought."""

    def __init__(self, key: PrivateKey) -> None:
        self._key = key

    def integers(self, array: CipherArray, layout: Any) -> list[int]:
        return self._key.decrypt_integers(array.under(self._key, layout).ciphertexts)


def drawn(seed: int, terms: int, columns: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return numbers and weights, many of them as large as they may be, and their exact sums."""
    draw = np.random.default_rng(seed)
    numbers = np.clip(draw.normal(size=(terms, columns)) * 4, -4, 4)
    weights = np.clip(draw.normal(size=(count, terms)) * 2, -2, 2)
    one, other = FixedPoint.encode(weights, FACTORS).integers, FixedPoint.encode(numbers, NUMBERS).integers
    return numbers, weights, one.astype(object) @ other.astype(object)


SIZES = st.integers(1, 9), st.integers(1, 25), st.integers(1, 9), st.integers(0, 2**32)


@settings(max_examples=60, deadline=None)
@given(*SIZES)
def test_shares_add_up_to_the_exact_sums(terms: int, columns: int, count: int, seed: int) -> None:
    numbers, weights, exact = drawn(seed, terms, columns, count)
    sizes: dict[str, Any] = {"terms": terms, "columns": columns, "key_bits": key_bits(SIZE)}
    with integers_for_ciphertexts():
        key = PrivateKey.generate(SIZE)
        format = SharedFormat(**sizes, numbers=NUMBERS, factors=FACTORS)
        masked, share = format.share(format.weigh(format.seal(key, numbers), weights))
        own = format.open_share(cast(Opening, Unheard(key)), masked, count)
    assert (own + share).view(np.int64).tolist() == exact.tolist()


@settings(max_examples=60, deadline=None)
@given(*SIZES)
def test_other_endings_give_the_exact_sums_but_for_random_digits(
    terms: int, columns: int, count: int, seed: int
) -> None:
    numbers, weights, exact = drawn(seed, terms, columns, count)
    with integers_for_ciphertexts():
        key = PrivateKey.generate(SIZE)
        format = ProductFormat(terms=terms, columns=columns, key_bits=key_bits(SIZE), numbers=NUMBERS, factors=FACTORS)
        sealed = format.seal(key, numbers)
        product = format.weigh(sealed, weights)
        found = decrypt_fixed(key, format.blurred(sealed, weights).under(key, format.sums(count)))
        masked, mask = product.mask()
        opened, own = mask.remove(open_masked(key, masked)), decrypt_fixed(key, product)
    assert own.integers.tolist() == opened.integers.tolist() == exact.tolist()
    assert np.abs(found.integers - exact).max() <= 2**FACTORS.fraction_bits


def test_random_digits_take_all_their_values() -> None:
    with integers_for_ciphertexts():
        key = PrivateKey.generate(SIZE)
        format = ProductFormat(terms=1, columns=500, key_bits=key_bits(SIZE), numbers=NUMBERS, factors=Format(2, 0))
        found = decrypt_fixed(key, blurred(format.weigh(format.seal(key, np.ones((1, 500))), [[1.0]]), Format(2, 0)))
    assert set((found.integers - (4 << 12)).reshape(-1).tolist()) == set(range(-4, 4))


def test_parts_of_an_array_add_up_and_rows_by_their_places() -> None:
    key = PrivateKey.generate(SIZE)
    format = SharedFormat(terms=5, columns=40, key_bits=key_bits(SIZE), numbers=NUMBERS)
    numbers = np.arange(200.0).reshape(5, 40) / 64 - 1
    parts = [format.seal(key, one) for one in np.split(numbers, [3])]
    added = format.weigh(parts[0], np.ones((2, 3))) + format.weigh(parts[1], np.ones((2, 2)))
    assert decrypt_fixed(key, added).decode().tolist() == [numbers.sum(axis=0).tolist()] * 2
    groups = [np.array([4, 1]), np.array([], int), np.array([0])]
    sums = format.seal(key, numbers).row_sums(groups)
    assert decrypt_fixed(key, sums.dense()).decode().tolist() == [numbers[one].sum(axis=0).tolist() for one in groups]


@pytest.mark.parametrize("changes", [{"terms": 0}, {"columns": 0}, {"terms": 2**50}])
def test_shares_that_cannot_be_are_refused(changes: dict[str, int]) -> None:
    with pytest.raises(ConfigError):
        SharedFormat(**{"terms": 1, "columns": 1, "key_bits": 2048, "numbers": NUMBERS, **changes})
