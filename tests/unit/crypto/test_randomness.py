"""What the owner of a key can and cannot learn from ciphertexts that come back."""

from __future__ import annotations

import ast
import secrets
from collections import Counter
from pathlib import Path
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from scipy import stats
from tests.unit.crypto.keys import FORMAT, KEY, PUBLIC, TINY

import colonnade.crypto
from colonnade.crypto import CipherArray, FixedPoint, PrivateKey, PublicKey, encrypt
from colonnade.crypto.window_table import WindowTable, build_table

SECRET_BITS = 20
TINY_PUBLIC = TINY.public


def randomness(key: PrivateKey, ciphertext: mpz) -> mpz:
    """Take the content off a ciphertext: what only the key's owner can do."""
    (plain,) = key.decrypt_integers([ciphertext])
    return ciphertext * (1 - plain * key.n) % key.square


def exponent(base: mpz, power: mpz, modulus: mpz) -> int | None:
    """Find a short exponent by baby steps and giant steps."""
    side = 1 << (SECRET_BITS // 2)
    steps, one = {}, mpz(1)
    for at in range(side):
        steps[one] = at
        one = one * base % modulus
    giant = gmpy2.invert(one, modulus)
    for at in range(side):
        if power in steps:
            return at * side + steps[power]
        power = power * giant % modulus
    return None


@pytest.mark.parametrize("content", [0, 1, -77])
def test_an_owner_reads_the_operand_of_a_product_unless_it_is_randomised(content: int) -> None:
    secret = secrets.randbelow(2**SECRET_BITS)
    sent = encrypt(KEY, FixedPoint(np.array([content]), 0, 100))
    known = randomness(KEY, sent.ciphertexts[0])
    received = CipherArray.from_bytes(sent.to_bytes()).under(PUBLIC, sent.layout)
    product = received @ FixedPoint(np.array([secret]), 0, 2**SECRET_BITS)
    # Without masks the attack succeeds, whatever the content; adding plain numbers does not stop it.
    for bare in (product, product + FixedPoint(np.array([12345]), 0, 2**20)):
        assert exponent(known, randomness(KEY, bare.ciphertexts[0]), KEY.square) == secret
    for hidden in (product.rerandomise(), product.mask()[0], product.mask()[0].rerandomise()):
        assert exponent(known, randomness(KEY, hidden.ciphertexts[0]), KEY.square) is None


def classes(key: PrivateKey, ciphertext: mpz) -> tuple[int, int, int]:
    """What the owner sees of a ciphertext beside its content: its residue classes of small order."""
    return (
        gmpy2.legendre(ciphertext, key._p),
        gmpy2.legendre(ciphertext, key._q),
        int(gmpy2.powmod(ciphertext, (key._p - 1) // 3, key._p) % 1_000_003),
    )


def test_an_owner_learns_nothing_from_residue_classes() -> None:
    """Each party that encrypts covers all twelve classes, so none of them tells where a product came from."""
    for _ in range(8):
        partner = PublicKey(int(KEY.n))
        seen = Counter(classes(KEY, one) for one in partner.encrypt_integers([0] * 600))
        assert len(seen) == 12
        assert max(seen.values()) < 110


def test_an_owner_cannot_tell_sums_of_the_operand_modulo_two() -> None:
    right, trials = 0, 60
    for _ in range(trials):
        sent = encrypt(TINY, np.zeros(8), FORMAT)
        signs = [gmpy2.jacobi(one, TINY.n) < 0 for one in sent.ciphertexts]
        operand = [secrets.randbelow(2) for _ in range(8)]
        received = CipherArray.from_bytes(sent.to_bytes()).under(TINY_PUBLIC, sent.layout)
        masked, _ = (received @ FixedPoint(np.array(operand), 0, 1)).mask()
        guess = sum(sign and bit for sign, bit in zip(signs, operand, strict=True)) % 2
        right += (gmpy2.jacobi(masked.ciphertexts[0], TINY.n) < 0) == guess
    assert 8 < right < 52


def test_the_same_values_never_give_the_same_bytes() -> None:
    for key in (KEY, PUBLIC):
        arrays = [encrypt(key, np.ones((3, 3)), FORMAT, packed_axis=0) for _ in range(20)]
        arrays += [arrays[0].rerandomise() for _ in range(20)] + [arrays[0].mask()[0] for _ in range(20)]
        assert len({one for array in arrays for one in array.ciphertexts}) == 60 * 3
        assert len({array.to_bytes() for array in arrays}) == 60


def uniform(counts: np.ndarray[Any, Any]) -> bool:
    return bool(stats.chisquare(counts).pvalue > 0.001)


def test_masked_values_are_uniform_over_the_whole_ring() -> None:
    hidden = encrypt(TINY_PUBLIC, FixedPoint(np.full(4000, -1), 0, 1))

    def looks_uniform() -> bool:
        masked, mask = hidden.mask()
        assert len(set(mask.integers)) == 4000
        opened = TINY.decrypt_integers(masked.ciphertexts)
        top = np.bincount([one * 16 // int(TINY.n) for one in opened], minlength=16)
        low = np.bincount([one % 16 for one in opened], minlength=16)
        return uniform(top) and uniform(low)

    # Chance alone fails one time in 500; three times in a row it does not.
    assert any(looks_uniform() for _ in range(3))


def test_unmasked_values_would_not_look_uniform() -> None:
    hidden = encrypt(TINY_PUBLIC, FixedPoint(np.full(4000, -1), 0, 1))
    opened = TINY.decrypt_integers(hidden.ciphertexts)
    assert not uniform(np.bincount([one * 16 // int(TINY.n) for one in opened], minlength=16))


def test_randomness_comes_from_the_operating_system_only() -> None:
    folder = Path(next(iter(colonnade.crypto.__path__)))
    files = sorted(folder.glob("*.py"))
    assert files
    users = set()
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [f"{node.module}.{one.name}" for one in node.names]
            else:
                names = []
            assert not any("random" in name.split(".") for name in names), file.name
            assert not any(name.startswith(("torch", "pickle", "uuid")) for name in names), file.name
            if isinstance(node, ast.Attribute) and "random" in node.attr:
                assert isinstance(node.value, ast.Name), file.name
                assert node.value.id == "self", file.name
            users |= {file.name for name in names if name == "secrets"}
    assert users == {"blinding.py", "masks.py", "paillier.py"}


def test_all_randomness_passes_through_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the operating system's source replaced, everything repeats, so nothing else is random."""

    def everything() -> list[Any]:
        draw = np.random.default_rng(5)
        monkeypatch.setattr(secrets, "token_bytes", lambda count: draw.bytes(count))
        monkeypatch.setattr(secrets, "randbelow", lambda limit: int.from_bytes(draw.bytes(100), "little") % limit)
        monkeypatch.setattr(secrets, "randbits", lambda bits: int.from_bytes(draw.bytes(100), "little") % 2**bits)
        found: list[Any] = []
        for key in (PrivateKey(int(KEY._p), int(KEY._q)), PublicKey(int(KEY.n))):
            hidden = encrypt(key, [1.0, 2.0], FORMAT)
            masked, mask = hidden.rerandomise().mask()
            found += [hidden.to_bytes(), masked.to_bytes(), mask.integers]
        return found

    assert everything() == everything()


def test_decryption_takes_the_same_time_for_every_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    key = PrivateKey(int(KEY._p), int(KEY._q))
    ciphertexts = PUBLIC.encrypt_integers([1, 2, 3])
    used = []
    careful = gmpy2.powmod_sec
    monkeypatch.setattr(gmpy2, "powmod_sec", lambda *power: used.append(power[1]) or careful(*power))
    monkeypatch.setattr(gmpy2, "powmod", lambda *_: pytest.fail("a power that takes as long as its exponent tells"))
    assert key.decrypt_integers(ciphertexts) == [1, 2, 3]
    assert {key._p - 1, key._q - 1} == set(used)


def test_every_window_is_multiplied_also_for_the_digit_nothing() -> None:
    table = WindowTable.from_bytes(build_table(mpz(3), TINY.square, 32), TINY.square)
    assert len(table.windows) == 4
    for at in (0, 1, 255, 256, 2**31, 2**32 - 1):
        assert table.power(at.to_bytes(4, "little")) == pow(3, at, int(TINY.square))
    with pytest.raises(ValueError, match="zip"):
        table.power(bytes(3))
