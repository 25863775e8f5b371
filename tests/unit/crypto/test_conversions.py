"""Nothing turns a ciphertext or a private key into something else by accident."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from tests.unit.crypto.keys import FORMAT, KEY, PUBLIC, ROOM, opened

from colonnade.crypto import CipherArray, encrypt
from colonnade.errors import OutOfRange

HIDDEN = encrypt(PUBLIC, [[1.0, 2.0]], FORMAT, packed_axis=0, room=ROOM)


ROW = np.ones((1, 2))
CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    one.__name__: one
    for one in (float, int, complex, bool, len, iter, list, tuple, set, bytes, round, abs, hex, operator.index)
} | {
    "not": operator.not_,
    "asarray": lambda one: np.asarray(one, dtype=float),
    "array": lambda one: np.array([one], dtype=np.float64),
    "float64": np.float64,
    "[0]": lambda one: one[0],
    "in": lambda one: 1 in one,
    "format": lambda one: f"{one:.3f}",
    "and": lambda one: one and 1,
    "<": lambda one: one < 3,
    "*": lambda one: one * 2,
    "/": lambda one: one / 2,
    "**": lambda one: one**2,
    "array *": lambda one: ROW * one,
    "np.add": lambda one: np.add(ROW, one),
    "np.add twice": lambda one: np.add(one, one),
    "np.multiply": lambda one: np.multiply(one, 2),
    "np.matmul": lambda one: np.matmul(np.ones((1, 1)), one),
    "np.exp": np.exp,
    "np.negative": np.negative,
}


@pytest.mark.parametrize("convert", CONVERSIONS.values(), ids=CONVERSIONS)
def test_a_ciphertext_is_not_converted(convert: Callable[[Any], Any]) -> None:
    with pytest.raises((TypeError, ValueError)):
        convert(HIDDEN)


@pytest.mark.parametrize("copied", [pickle.dumps, copy.copy, copy.deepcopy])
@pytest.mark.parametrize("secret", [HIDDEN, KEY], ids=["ciphertext", "key"])
def test_neither_ciphertexts_nor_private_keys_are_copied(copied: Callable[[Any], Any], secret: Any) -> None:
    with pytest.raises(TypeError):
        copied(secret)
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError):
            pickle.dumps([secret], protocol)


def test_plain_arrays_on_the_left_leave_the_work_to_the_ciphertext() -> None:
    row = np.array([[1.0, 1.0]])
    for found, expected in (
        (row + HIDDEN, [[512, 768]]),
        (row - HIDDEN, [[0, -256]]),
        (HIDDEN + row, [[512, 768]]),
        (HIDDEN - row, [[0, 256]]),
        (row[0] + HIDDEN, [[512, 768]]),
        (operator.add([[1, 1]], HIDDEN), [[512, 768]]),
    ):
        assert type(found) is CipherArray
        assert opened(found) == expected


@pytest.mark.parametrize(
    "other", ["1", None, object(), 1j, np.array(["a"]), np.array([None]), np.datetime64("2026-01-01")]
)
def test_only_numbers_are_added_and_multiplied(other: Any) -> None:
    with pytest.raises(OutOfRange):
        HIDDEN + other
    with pytest.raises(OutOfRange):
        HIDDEN @ np.broadcast_to(np.asarray(other), (2, 1))


def test_two_ciphertexts_are_not_multiplied() -> None:
    with pytest.raises(OutOfRange):
        HIDDEN @ HIDDEN


def test_a_ciphertext_shows_its_shape_and_key_only() -> None:
    name = PUBLIC.fingerprint.hex()[:8]
    assert repr(HIDDEN) == str(HIDDEN) == f"CipherArray(shape=(1, 2), key={name})"
    assert repr(CipherArray.from_bytes(HIDDEN.to_bytes())) == repr(HIDDEN)


def test_a_key_shows_its_size_and_fingerprint_only() -> None:
    name = KEY.fingerprint.hex()[:8]
    assert repr(KEY) == str(KEY) == f"PrivateKey(512 bits, {name})"
    assert repr(PUBLIC) == f"PublicKey(512 bits, {name})"
    _, mask = HIDDEN.mask()
    assert str(mask.integers[0]) not in repr(mask)
    for prime in (KEY._p, KEY._q):
        assert str(prime) not in repr(vars(PUBLIC))


def test_the_public_part_holds_no_prime() -> None:
    public = KEY.public
    public.prepare()
    content = pickle.dumps({name: value for name, value in vars(public).items() if name != "engine"})
    for prime in (KEY._p, KEY._q):
        assert int(prime).to_bytes(32, "little") not in content
        assert not any(value == prime for value in vars(public).values())
