"""What tests of several methods share: what a party received, secrets that repeat, ciphertexts that are integers."""

from __future__ import annotations

import hashlib
import itertools
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz

import colonnade as cn
from colonnade.crypto import INSECURE_TEST, CipherArray, PrivateKey, PublicKey, cipher_array
from colonnade.engine import INLINE, Engine
from colonnade.exchanges import public_keys
from colonnade.messages import decode_body, open_frame
from colonnade.session import Session


def view(run: cn.Run, party: str) -> list[tuple[str, Any]]:
    """Return what a party received in the method, decoded: sender and message."""
    known = {one.schema: one for one in run.method.declarations}
    found = []
    for sender, frame in run.views[party]:
        header, body = open_frame(frame)
        if header.schema in known:
            found.append((sender, decode_body(known[header.schema], body)))
    return found


def name_of(message: Any) -> str:
    return type(message).__name__


def received(run: cn.Run, party: str, name: str, sender: str | None = None) -> list[Any]:
    return [one for origin, one in view(run, party) if name_of(one) == name and sender in (None, origin)]


@contextmanager
def the_same_secrets() -> Iterator[None]:
    """Let parties draw the same noise in every run, which would move figures across bars once in a while."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "_durable_secret", lambda one: hashlib.sha256(one.party.encode()).digest())
        yield


@contextmanager
def few_keys(count: int = 6) -> Iterator[None]:
    """Let runs take turns with a few keys of the size for tests: a partner's table takes longer to make than to use."""
    known: list[tuple[PrivateKey, PublicKey]] = []
    turns, lock = itertools.count(), threading.Lock()

    def generate(size: str | int, engine: Engine = INLINE) -> PrivateKey:
        if size != INSECURE_TEST:
            return PrivateKey.generate(size, engine)
        with lock:
            if len(known) < count:
                drawn = PrivateKey.generate(size)
                known.append((drawn, drawn.public))
            own, _ = known[next(turns) % count]
        return taking(own, PrivateKey(int(own._p), int(own._q), engine))

    def check(n: int, proof: Sequence[int], size: str | int, engine: Engine = INLINE) -> PublicKey:
        key = PublicKey.check(n, proof, size, engine)
        return next((taking(public, key) for _, public in known if public.n == n), key)

    def taking(one: PublicKey, key: Any) -> Any:
        key.__dict__["_encryption"] = one._encryption
        return key

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public_keys, "PrivateKey", SimpleNamespace(generate=generate))
        patch.setattr(public_keys, "PublicKey", SimpleNamespace(check=check))
        yield


@contextmanager
def integers_for_ciphertexts() -> Iterator[None]:
    """Let every ciphertext be the integer it hides, modulo n: all but the encryption happens, exactly."""

    def encrypt(key: PublicKey, plains: Sequence[int]) -> list[mpz]:
        return [mpz(plain) % key.n for plain in plains]

    def add(key: PublicKey, ones: Sequence[mpz], others: Sequence[int]) -> list[mpz]:
        return [(one + mpz(other)) % key.n for one, other in zip(ones, others, strict=True)]

    def products(key: PublicKey, bases: Sequence[mpz], count: int, exponents: Sequence[Sequence[int]]) -> list[mpz]:
        sets = [bases[at : at + count] for at in range(0, len(bases), count)]
        return [sum(map(_times, one, row), mpz(0)) % key.n for one in sets for row in exponents]

    def group_products(key: PublicKey, groups: Sequence[Sequence[mpz]], exponents: Any) -> list[mpz]:
        each = zip(groups, exponents, strict=True)
        return [one for bases, own in each for one in products(key, bases, len(bases), own.T.tolist())]

    def shifted_sums(key: PublicKey, groups: Sequence[Sequence[mpz]], slot_bits: int) -> list[mpz]:
        return [sum((one << slot_bits * slot for slot, one in enumerate(group)), mpz(0)) % key.n for group in groups]

    with pytest.MonkeyPatch.context() as patch:
        for kind in (PublicKey, PrivateKey):
            patch.setattr(kind, "encrypt_integers", encrypt)
        for name, function in {
            "multiply_in": add,
            "add_plain": add,
            "products": products,
            "group_products": group_products,
            "shifted_sums": shifted_sums,
            "check_ciphertexts": lambda key, ciphertexts: None,
        }.items():
            patch.setattr(PublicKey, name, function)
        patch.setattr(PrivateKey, "decrypt_integers", lambda key, ciphertexts: [int(one) for one in ciphertexts])
        patch.setattr(
            cipher_array, "batch_inverse", lambda values, square: [-one % gmpy2.isqrt(square) for one in values]
        )
        yield


def _times(one: mpz, other: int) -> mpz:
    return one * other


def hidden(array: CipherArray, modulus: int) -> np.ndarray:
    """Return the integers of an array that `integers_for_ciphertexts` made, one number to a ciphertext."""
    assert array.layout.packed_axis is None
    signed = [int(one) - modulus if int(one) > modulus // 2 else int(one) for one in array.ciphertexts]
    return np.array(signed, dtype=object).reshape(array.shape)
