"""A key owner whose modulus is made to read what others mask, and the proof that keeps it out."""

from __future__ import annotations

import functools
import secrets
from types import SimpleNamespace
from typing import Any

import gmpy2
import numpy as np
import pandas as pd
import pytest
from gmpy2 import mpz
from tests.adversary.hostile import Lie, check_refused, with_field

import colonnade as cn
from colonnade.crypto import CipherArray, PrivateKey, PublicKey, ring_elements
from colonnade.errors import KeyRefused
from colonnade.exchanges.secure_linear import LinearFormat, LinearPartner, SealedBatch

SIZE, BITS, SMALL = "insecure_test", 1024, 65537


@functools.cache
def malformed() -> tuple[mpz, mpz]:
    """Return a prime q = 1 modulo 65537, and n = 65537 q: of the agreed size, and no factor below 2**16."""
    while True:
        q = secrets.randbits(BITS - 17) | 1 << (BITS - 17)
        q += (1 - q) % (2 * SMALL)
        if (SMALL * q).bit_length() == BITS and gmpy2.is_prime(q, 30):
            return mpz(q), mpz(SMALL * q)


@functools.cache
def logarithms() -> dict[mpz, int]:
    """Return the logarithms of the 65537th roots of 1 modulo q."""
    q, _ = malformed()
    base = mpz(1)
    while base == 1:
        base = gmpy2.powmod(secrets.randbelow(int(q)), (q - 1) // SMALL, q)
    powers = {mpz(1): 0}
    value = mpz(1)
    for exponent in range(1, SMALL):
        value = value * base % q
        powers[value] = exponent
    return powers


def mark(ciphertext: mpz) -> int:
    """Return what neither a mask nor fresh randomness changes: it adds up like the plaintext, modulo 65537."""
    q, _ = malformed()
    return logarithms()[gmpy2.powmod(ciphertext, (q - 1) // SMALL, q)]


def marked(wanted: bool) -> mpz:
    """Return a unit that passes for a ciphertext, with a mark or without one."""
    _, n = malformed()
    while True:
        unit = mpz(secrets.randbelow(int(n * n)))
        unit = unit if wanted else gmpy2.powmod(unit, SMALL, n * n)
        if gmpy2.gcd(unit, n) == 1 and bool(mark(unit)) == wanted:
            return unit


def test_under_a_malformed_modulus_masks_do_not_hide() -> None:
    """The owner reads one row's slope, and with it the label, from a weight gradient behind a uniform mask.

    This is why a key must come with a proof: after the key has been taken, nothing would show.
    """
    _, n = malformed()
    rows, inputs = 6, 2
    format = LinearFormat(inputs=inputs, outputs=1, most_rows=rows, key_bits=BITS)
    layouts = format.columns(rows), format.rows(rows)
    slopes = 0.05 * (0.5 - np.array([[0.0], [1.0], [1.0], [0.0], [1.0], [0.0]])) / rows
    steps = np.rint(slopes * 2.0**format.step_format.fraction_bits).astype(int).ravel()
    key = PublicKey(int(n))
    for target in range(rows):
        sent: list[Any] = []
        partner = LinearPartner(SimpleNamespace(peer="owner", send=sent.append), format, key)
        columns = CipherArray(key, layouts[0], [marked(False) for _ in range(layouts[0].count)])
        in_row = [marked(row == target) for row in range(rows) for _ in range(layouts[1].blocks)]
        partner.teach(SealedBatch(columns, CipherArray(key, layouts[1], in_row)), slopes)
        read = mark(sent[0].values.ciphertexts[0])
        one = mark(in_row[target * layouts[1].blocks])
        guesses = {label: int(one * step) % SMALL for label, step in zip((1, 0), steps[1::-1].tolist(), strict=True)}
        assert [label for label, guess in guesses.items() if guess == read] == [int(steps[target] < 0)]


def test_a_malformed_modulus_is_refused_whatever_its_proof() -> None:
    _, n = malformed()
    honest = PrivateKey.generate(SIZE)
    for proof in ((), honest.proof, (1,) * len(honest.proof), tuple(secrets.randbelow(int(n)) for _ in honest.proof)):
        with pytest.raises(KeyRefused, match="proof"):
            PublicKey.check(int(n), proof, SIZE)


def table(name: str, label: bool) -> cn.PartyTable:
    draw = np.random.default_rng(len(name))
    frame = pd.DataFrame(draw.normal(size=(40, 2)), columns=[f"{name}0", f"{name}1"])
    frame["id"] = [f"p{number}" for number in range(40)]
    if label:
        frame["y"] = (draw.uniform(size=40) < 0.5).astype(int)
    return cn.PartyTable(frame, id="id", label="y" if label else None)


@pytest.mark.parametrize(
    "change",
    [
        with_field(modulus=lambda _: int(malformed()[1])),
        with_field(proof=np.zeros_like),
        with_field(proof=lambda proof: np.full_like(proof, 255)),
        with_field(proof=lambda proof: np.repeat(proof[:1], len(proof), axis=0)),
        with_field(proof=lambda proof: proof[::-1].copy()),
        with_field(proof=lambda _: ring_elements((other := PrivateKey.generate(SIZE)).proof, other)),
    ],
    ids=["malformed", "zeros", "too large", "repeated", "turned", "another key's"],
)
def test_the_key_exchange_of_a_run_refuses_it_before_anything_is_encrypted(
    change: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PublicKey, "encrypt_integers", lambda *_: pytest.fail("something was encrypted"))
    play = functools.partial(
        cn.simulate,
        cn.SecureLR(key_size=SIZE, epochs=1),
        {"bank": table("bank", True), "shop": table("shop", False)},
        seed=3,
    )
    check_refused(play, Lie("shop", "PublicModulus", change), KeyRefused, "proof", seconds=60)
