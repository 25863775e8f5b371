"""Products of powers modulo a number: what an inner product of ciphertexts with plain integers comes down to.

Three ways, chosen by counting multiplications. Straus interleaves the exponents' windows, so that all bases share the
squarings. Pippenger puts bases with the same digit into one bucket, which pays for many bases and one result. A comb
stores powers for every window and needs no squarings, which pays when few bases serve many results.

Negative exponents never become full-size ones: with one result, the bases concerned are inverted beforehand; with
several, the negative part is collected by itself and inverted at the end, or, where buckets are filled, every base is
inverted beforehand and digits of both signs halve the buckets. All inversions of a call share one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import gmpy2
from gmpy2 import mpz

from colonnade.crypto.fixed_point import Integers

__all__ = ["batch_inverse", "cost_of", "largest_bits", "power_products"]

# Tables beyond this are no longer worth the memory.
_MOST_ENTRIES = 2**17


def power_products(bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz) -> list[mpz]:
    """Return for every list of exponents the product of the bases to these powers."""
    if not exponents:
        return []
    bits = max((abs(one).bit_length() for row in exponents for one in row), default=0)
    if bits == 0:
        return [mpz(1)] * len(exponents)
    method, window = _choose(len(bases), len(exponents), bits)
    if len(exponents) == 1:
        upright = _inverted_where_negative(bases, exponents[0], modulus)
        return list(_METHODS[method](upright, [[abs(one) for one in exponents[0]]], modulus, bits, window))
    if method == "pippenger":
        return list(_signed_pippenger(bases, exponents, modulus, bits, window))
    if method == "straus":
        pairs = list(_signed_straus(bases, exponents, modulus, bits, window))
    else:
        positive = [[max(one, 0) for one in row] for row in exponents]
        negative = [[max(-one, 0) for one in row] for row in exponents]
        found = list(_METHODS[method](bases, positive + negative, modulus, bits, window))
        pairs = list(zip(found[: len(exponents)], found[len(exponents) :], strict=True))
    inverses = batch_inverse([below for _, below in pairs], modulus)
    return [above * inverse % modulus for (above, _), inverse in zip(pairs, inverses, strict=True)]


def batch_inverse(values: Sequence[mpz], modulus: mpz) -> list[mpz]:
    """Return the inverse of every value, for the price of one inversion and three multiplications each."""
    if not values:
        return []
    running, product = [], mpz(1)
    for value in values:
        running.append(product)
        product = product * value % modulus
    inverse = gmpy2.invert(product, modulus)
    found = []
    for value, before in zip(reversed(values), reversed(running), strict=True):
        found.append(inverse * before % modulus)
        inverse = inverse * value % modulus
    return found[::-1]


def largest_bits(exponents: Integers) -> int:
    """Return how many bits the largest of these integers has, without its sign."""
    return max(abs(int(exponents.max())), abs(int(exponents.min()))).bit_length() if exponents.size else 0


def cost_of(bases: int, results: int, bits: int) -> float:
    """Return about how many modular multiplications a call takes."""
    if not bases or not results or not bits:
        return 0.0
    return min(cost for cost, _, _ in _costs(bases, results, bits))


def _choose(bases: int, results: int, bits: int) -> tuple[str, int]:
    _, method, window = min(_costs(bases, results, bits))
    return method, window


def _costs(bases: int, results: int, bits: int) -> Iterator[tuple[float, str, int]]:
    # With several results of both signs every exponent is looked at twice, but only one of the two is not zero.
    passes = results if results == 1 else 2 * results
    inversions = 1.5 * bases + 10 if results == 1 else 3 * results + 10
    for window in range(1, 13):
        # A little more than one digit for each window and the zero after it: the last one is seldom full.
        digits = bits / (window + 1) + (0.3 if results == 1 else 0.45)
        # Digits of both signs need half the table, but a second run of squarings.
        table = bases * (1 << (window - 1 if results == 1 else max(window - 2, 0)))
        if table <= _MOST_ENTRIES and (results == 1 or window > 1):
            yield table + passes * bits + results * bases * digits + inversions, "straus", window
        rounds = math.ceil(bits / window)
        if (bases * rounds) << window <= _MOST_ENTRIES:
            table = bases * (bits + rounds * (1 << window))
            yield table + results * bases * rounds + inversions, "comb", window
        if results == 1:
            buckets = (1 << window) + min(1 << window, bases)
            yield rounds * (buckets + bases) + bits + inversions, "pippenger", window
        else:
            # A bucket's first base costs nothing, so with each bucket added up, a base costs one multiplication.
            rounds = math.ceil((bits + 1) / window)
            yield results * (rounds * (bases + (1 << (window - 1))) + bits) + 3 * bases + 10, "pippenger", window


def _inverted_where_negative(bases: Sequence[mpz], exponents: Sequence[int], modulus: mpz) -> list[mpz]:
    places = [place for place, one in enumerate(exponents) if one < 0]
    upright = list(bases)
    for place, inverse in zip(places, batch_inverse([bases[place] for place in places], modulus), strict=True):
        upright[place] = inverse
    return upright


def _odd_powers(bases: Sequence[mpz], count: int, modulus: mpz) -> list[list[mpz]]:
    tables = []
    for base in bases:
        square = base * base % modulus if count > 1 else base
        powers = [base]
        for _ in range(count - 1):
            powers.append(powers[-1] * square % modulus)
        tables.append(powers)
    return tables


def _interleaved(due: Sequence[Sequence[mpz]], modulus: mpz) -> mpz:
    """Square once per place, and multiply with what is due there."""
    result = mpz(1)
    for factors in reversed(due):
        if result != 1:
            result = result * result % modulus
        for factor in factors:
            result = result * factor % modulus
    return result


def _signed_straus(
    bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz, bits: int, window: int
) -> Iterator[tuple[mpz, mpz]]:
    """Return what each result is multiplied with and divided by: digits of both signs make shorter tables."""
    tables = _odd_powers(bases, 1 << (window - 2), modulus)
    size = 1 << window
    for row in exponents:
        above: list[list[mpz]] = [[] for _ in range(bits + 1)]
        below: list[list[mpz]] = [[] for _ in range(bits + 1)]
        for table, exponent in zip(tables, row, strict=True):
            here, there = (above, below) if exponent >= 0 else (below, above)
            exponent, place = abs(exponent), 0
            while exponent:
                zeros = (exponent & -exponent).bit_length() - 1
                exponent >>= zeros
                place += zeros
                digit = exponent & (size - 1)
                if digit < size >> 1:
                    here[place].append(table[digit >> 1])
                else:
                    digit -= size
                    there[place].append(table[-digit >> 1])
                exponent = (exponent - digit) >> window
                place += window
        yield _interleaved(above, modulus), _interleaved(below, modulus)


def _straus(
    bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz, bits: int, window: int
) -> Iterator[mpz]:
    tables = _odd_powers(bases, 1 << (window - 1), modulus)
    mask = (1 << window) - 1
    for row in exponents:
        due: list[list[mpz]] = [[] for _ in range(bits)]
        for table, exponent in zip(tables, row, strict=True):
            place = 0
            while exponent:
                zeros = (exponent & -exponent).bit_length() - 1
                exponent >>= zeros
                place += zeros
                due[place].append(table[(exponent & mask) >> 1])
                exponent >>= window
                place += window
        yield _interleaved(due, modulus)


def _comb(
    bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz, bits: int, window: int
) -> Iterator[mpz]:
    tables = []
    for base in bases:
        rows = []
        for _ in range(math.ceil(bits / window)):
            powers, entry = [mpz(1)], base
            for _ in range((1 << window) - 1):
                powers.append(entry)
                entry = entry * base % modulus
            rows.append(powers)
            base = entry
        tables.append(rows)
    mask = (1 << window) - 1
    for row in exponents:
        result = mpz(1)
        for table, exponent in zip(tables, row, strict=True):
            place = 0
            while exponent:
                digit = exponent & mask
                if digit:
                    result = result * table[place][digit] % modulus
                exponent >>= window
                place += 1
        yield result


def _pippenger(
    bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz, bits: int, window: int
) -> Iterator[mpz]:
    mask = (1 << window) - 1
    for row in exponents:
        result = mpz(1)
        for place in range(window * (math.ceil(bits / window) - 1), -1, -window):
            if result != 1:
                for _ in range(window):
                    result = result * result % modulus
            buckets: dict[int, mpz] = {}
            for base, exponent in zip(bases, row, strict=True):
                digit = exponent >> place & mask
                if digit:
                    held = buckets.get(digit)
                    buckets[digit] = base if held is None else held * base % modulus
            result = result * _weighed(buckets, modulus) % modulus
        yield result


def _signed_pippenger(
    bases: Sequence[mpz], exponents: Sequence[Sequence[int]], modulus: mpz, bits: int, window: int
) -> Iterator[mpz]:
    """Take digits from -half to half - 1, the highest also beyond: half the buckets for exponents of both signs."""
    inverses = batch_inverse(bases, modulus)
    half, mask = 1 << (window - 1), (1 << window) - 1
    top = window * (math.ceil((bits + 1) / window) - 1)
    # With this added, every digit below the highest is by half too large, whatever the sign.
    raised = sum(half << place for place in range(0, top, window))
    for row in exponents:
        left = [one + raised for one in row]
        result = mpz(1)
        for place in range(top, -1, -window):
            if result != 1:
                for _ in range(window):
                    result = result * result % modulus
            buckets: dict[int, mpz] = {}
            for base, inverse, exponent in zip(bases, inverses, left, strict=True):
                digit = exponent >> place if place == top else (exponent >> place & mask) - half
                if digit:
                    entry = base if digit > 0 else inverse
                    held = buckets.get(abs(digit))
                    buckets[abs(digit)] = entry if held is None else held * entry % modulus
            result = result * _weighed(buckets, modulus) % modulus
        yield result


def _weighed(buckets: dict[int, mpz], modulus: mpz) -> mpz:
    """Return the sum of digit * bucket, by adding up from the highest: each bucket counts once per step below it."""
    running = total = mpz(1)
    for digit in range(max(buckets, default=0), 0, -1):
        if digit in buckets:
            running = running * buckets[digit] % modulus
        total = total * running % modulus
    return total


_METHODS = {"straus": _straus, "comb": _comb, "pippenger": _pippenger}
