"""Keys as they are generated, and bytes from strangers."""

from __future__ import annotations

import math
import tracemalloc
from fractions import Fraction
from itertools import pairwise

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.crypto.keys import FORMAT, KEY, PUBLIC, TINY

from colonnade.crypto import KEY_SIZES, CipherArray, PrivateKey, PublicKey, chunks, encrypt, key_bits, paillier
from colonnade.crypto.window_table import WindowTable
from colonnade.errors import CiphertextRefused


@pytest.mark.parametrize("size", ["insecure_test", "2048"])
def test_a_generated_key_has_the_form_of_damgard_jurik_and_nielsen(size: str) -> None:
    key, another = PrivateKey.generate(size), PrivateKey.generate("insecure_test")
    p, q = int(key._p), int(key._q)
    assert p * q == key.n
    assert key.n.bit_length() == key.bits == key_bits(size) == KEY_SIZES[size]
    assert p.bit_length() == q.bit_length() == key.bits // 2
    assert gmpy2.is_prime(p, 30)
    assert gmpy2.is_prime(q, 30)
    assert p % 4 == q % 4 == 3
    assert math.gcd(p - 1, q - 1) == 2
    assert math.gcd(p * q, (p - 1) * (q - 1)) == 1
    assert abs(p - q) > 2 ** (key.bits // 2 - 100)
    assert math.gcd(int(key.n), int(another.n)) == 1
    assert key.fingerprint != another.fingerprint
    assert PublicKey.check(int(key.n), key.proof, size).fingerprint == key.fingerprint
    assert key.decrypt_integers(key.encrypt_integers([-1]) + key.public.encrypt_integers([5])) == [key.n - 1, 5]


def test_pairs_of_primes_that_do_not_suit_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def after(start: int, remainder: int) -> int:
        found = gmpy2.next_prime(start)
        while found % 12 != remainder:
            found = gmpy2.next_prime(found)
        return int(found)

    low, high = 3 << 510, 7 << 509
    sharing_three = [after(low, 7), after(high, 7)]
    close = [after(low, 11), after(low + 2**400, 11)]
    suited = [after(low, 7), after(high, 11)]
    assert math.gcd(suited[0] - 1, suited[1] - 1) == math.gcd(close[0] - 1, close[1] - 1) == 2
    offered = iter([*sharing_three, *close, low_prime := after(low, 11), low_prime, *suited])
    monkeypatch.setattr(paillier, "_random_prime", lambda _: next(offered))
    key = PrivateKey.generate("insecure_test")
    assert [key._p, key._q] == suited


def test_drawn_primes_have_the_right_form() -> None:
    for _ in range(40):
        prime = paillier._random_prime(128)
        assert prime % 4 == 3
        assert prime >> 126 == 3
        assert prime.bit_length() == 128
        assert gmpy2.is_prime(prime, 30)


def test_the_partner_draws_a_base_of_its_own() -> None:
    one, another = KEY.public, KEY.public
    assert one._encryption.context != another._encryption.context


def collisions(bits: int, windows: int) -> Fraction:
    """Bound the chance that two exponents give the same power, times the number of elements of any group modulo n.

    Where all digits differ by multiples of g, powers can only differ by what is not a g-th power. A modulus without a
    prime factor below 2**16 has fewer than bits / 16 of them, and as many cyclic parts.
    """
    found = 1 + Fraction(2**bits, 256**windows)
    for divisor in range(2, 256):
        # Two digits that leave the same remainder.
        alike = Fraction(sum(len(range(rest, 256, divisor)) ** 2 for rest in range(divisor)), 2**16)
        found += alike**windows * divisor ** (bits // 16)
    return found


@pytest.mark.parametrize(("size", "hidden_bits"), [("2048", 64), ("3072", 64), ("insecure_test", 40)])
def test_a_partners_randomness_hides_from_an_owner_with_any_factors(size: str, hidden_bits: int) -> None:
    """By the leftover hash lemma half the square root of what collisions are above 1 bounds what it may show."""
    bits = key_bits(size)
    key = PublicKey((1 << bits) - 1)
    assert (collisions(bits, key.random_bits // 8) - 1) / 4 < Fraction(1, 4**hidden_bits)


def test_every_window_of_a_partners_randomness_has_a_unit_of_its_own() -> None:
    content = chunks.split_parts(TINY.public._encryption.context)[1]
    windows = WindowTable.from_bytes(content, TINY.square).windows
    assert 8 * len(windows) == TINY.random_bits == TINY.bits + 128
    for window, following in pairwise(windows):
        assert window[0] == 1
        assert window[2] == window[1] ** 2 % TINY.square
        assert following[1] != window[255] * window[1] % TINY.square
    assert len({window[1] for window in windows}) == len(windows)


WHOLE = encrypt(PUBLIC, np.ones((4, 2)), FORMAT, packed_axis=0)
CONTENT = WHOLE.to_bytes()
# The fixed part, two extents, and a bound of two bytes.
HEAD = 32 + 16 + 2


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_damaged_bytes_are_refused_and_nothing_else_happens(data: st.DataObject) -> None:
    content = bytearray(CONTENT)
    for _ in range(data.draw(st.integers(1, 3))):
        place = data.draw(st.integers(0, HEAD) | st.integers(0, len(content) - 1))
        content[place] = data.draw(st.sampled_from([0, 1, 2, 127, 128, 255]) | st.integers(0, 255))
    cut = data.draw(st.just(len(content)) | st.integers(0, len(content)))
    damaged = bytes(content[:cut])
    try:
        received = CipherArray.from_bytes(damaged)
    except ValueError:
        return
    assert received.to_bytes() == damaged
    try:
        received.under(PUBLIC, WHOLE.layout)
    except CiphertextRefused:
        return
    # Another number below n**2 is a ciphertext too; the head must be the agreed one.
    assert damaged[:HEAD] == CONTENT[:HEAD]
    assert len(damaged) == len(CONTENT)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400))
def test_noise_is_refused(noise: bytes) -> None:
    for content in (noise, b"\x01" + PUBLIC.fingerprint + noise):
        try:
            received = CipherArray.from_bytes(content)
        except ValueError:
            continue
        assert received.to_bytes() == content


def test_reading_takes_little_more_memory_than_the_bytes() -> None:
    """Numbers of one byte would be the worst: two bytes on the wire, and forty times as much in memory."""
    small = CipherArray.from_bytes(CONTENT)
    assert small.shape == (4, 2)
    for width, count in ((1, 2**20), (16, 2**16)):
        head = bytearray(CONTENT[:32])
        head[17:19] = width.to_bytes(2, "little")
        head[19], head[20] = 1, 255
        head[21:23], head[23:25], head[25:27] = (8).to_bytes(2, "little"), b"\x01\x00", b"\x01\x00"
        head[30:32] = b"\x00\x00"
        content = bytes(head) + count.to_bytes(8, "little") + bytes([255]) * (2 * width * count)
        tracemalloc.start()
        if width == 1:
            with pytest.raises(ValueError, match="extent"):
                CipherArray.from_bytes(content)
        else:
            assert CipherArray.from_bytes(content).shape == (count,)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 5 * len(content)
