"""Products of powers by every method, against Python's pow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from gmpy2 import mpz
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.unit.crypto.keys import TINY

from colonnade.crypto import products
from colonnade.crypto.products import batch_inverse, cost_of, power_products

MODULUS = TINY.square
UNITS = st.integers(2, int(MODULUS) - 2).filter(lambda one: one % TINY._p and one % TINY._q)
EXPONENTS = st.one_of(st.integers(-3, 3), st.integers(-(2**40), 2**40), st.integers(-(2**300), 2**300), st.just(0))
# Shapes (bases, results, bits) for which counting multiplications prefers each method.
SHAPES = {"straus": (4, 1, 40), "comb": (2, 400, 40), "pippenger": (3000, 1, 8)}


def slowly(bases: Sequence[int], exponents: Sequence[Sequence[int]], modulus: int) -> list[int]:
    found = []
    for row in exponents:
        result = 1
        for base, exponent in zip(bases, row, strict=True):
            result = result * pow(int(base), exponent, int(modulus)) % int(modulus)
        found.append(result)
    return found


@st.composite
def tasks(draw: st.DrawFn) -> tuple[list[mpz], list[list[int]]]:
    bases = draw(st.lists(UNITS, max_size=6))
    if bases and draw(st.booleans()):
        bases.append(bases[0])
    rows = st.lists(EXPONENTS, min_size=len(bases), max_size=len(bases))
    return [mpz(one) for one in bases], draw(st.lists(rows, max_size=5))


@settings(deadline=None, max_examples=150)
@given(tasks())
@example(([], []))
@example(([], [[], []]))
@example(([mpz(7)], []))
@example(([mpz(7), mpz(7)], [[5, -5]]))
@example(([mpz(7), mpz(7)], [[0, 0], [0, 0]]))
@example(([mpz(7)], [[-(2**300)], [2**300], [0]]))
def test_products_of_powers_are_those_of_pow(task: tuple[list[mpz], list[list[int]]]) -> None:
    bases, exponents = task
    assert power_products(bases, exponents, MODULUS) == slowly(bases, exponents, MODULUS)


@settings(deadline=None, max_examples=60)
@given(tasks(), st.sampled_from(sorted(products._METHODS)), st.integers(1, 12))
def test_every_method_gives_the_same_with_every_window(
    task: tuple[list[mpz], list[list[int]]], method: str, window: int
) -> None:
    bases, signed = task
    exponents = [[abs(one) for one in row] for row in signed]
    bits = max((one.bit_length() for row in exponents for one in row), default=0)
    window = min(window, 5) if method == "comb" else window
    found = list(products._METHODS[method](bases, exponents, MODULUS, max(bits, 1), window))
    assert found == slowly(bases, exponents, MODULUS)


@pytest.mark.parametrize("method", SHAPES)
@pytest.mark.parametrize("signs", ["positive", "negative", "mixed", "sparse"])
def test_the_method_that_is_chosen_is_right(method: str, signs: str, monkeypatch: pytest.MonkeyPatch) -> None:
    count, results, bits = SHAPES[method]
    called = []
    original = products._METHODS[method]
    monkeypatch.setitem(products._METHODS, method, lambda *task: called.append(method) or original(*task))
    bases = [pow(mpz(at + 2), 5 * at + 3, MODULUS) for at in range(count)]
    number = numbers(bits)
    exponents = [[next(number) for _ in range(count)] for _ in range(results)]
    flip = {
        "positive": lambda one, _: one,
        "negative": lambda one, _: -one,
        "mixed": lambda one, at: one if at % 3 else -one,
        "sparse": lambda one, at: 0 if at % 4 else -one,
    }[signs]
    exponents = [[flip(one, at) for at, one in enumerate(row)] for row in exponents]
    assert power_products(bases, exponents, MODULUS) == slowly(bases, exponents, MODULUS)
    assert called == [method]


def numbers(bits: int) -> Iterator[int]:
    """Numbers of so many bits at most, the same every time."""
    state = 1
    while True:
        state = state * 6364136223846793005 % 2**64 + 1442695040888963407
        yield (state >> 8) % 2**bits or 1


@settings(deadline=None, max_examples=50)
@given(st.lists(UNITS, max_size=20))
def test_a_batch_is_inverted_like_its_members(values: list[int]) -> None:
    found = batch_inverse([mpz(one) for one in values], MODULUS)
    assert found == [pow(one, -1, int(MODULUS)) for one in values]


def test_what_has_no_inverse_is_not_inverted() -> None:
    for values in ([TINY._p], [mpz(2), TINY._p, mpz(3)], [mpz(0)]):
        with pytest.raises(ZeroDivisionError):
            batch_inverse(values, MODULUS)


def test_costs_grow_with_the_work() -> None:
    assert cost_of(0, 5, 32) == cost_of(5, 0, 32) == cost_of(5, 5, 0) == 0
    assert 0 < cost_of(1, 1, 1) < cost_of(10, 1, 32) < cost_of(100, 1, 32) < cost_of(100, 10, 32) < cost_of(100, 10, 64)
    # Far fewer than one by one: 1.2 multiplications per bit and base.
    assert cost_of(1000, 1, 32) < 1000 * 32 * 1.2 / 3
