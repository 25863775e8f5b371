"""Many operations, against Python's integers and against python-paillier."""

from __future__ import annotations

import random

import pytest
from gmpy2 import mpz
from phe import paillier as phe
from tests.unit.crypto.keys import KEY, TINY

from colonnade.crypto import PrivateKey


def partner_of(key: PrivateKey) -> tuple[phe.PaillierPublicKey, phe.PaillierPrivateKey]:
    public = phe.PaillierPublicKey(int(key.n))
    return public, phe.PaillierPrivateKey(public, int(key._p), int(key._q))


@pytest.mark.parametrize("each", [1_500, pytest.param(15_000, marks=pytest.mark.slow)])
def test_seven_operations_for_each_number_agree(each: int) -> None:
    draw, n, operations = random.Random(1), int(TINY.n), 0
    public, private = partner_of(TINY)
    ours = TINY.public
    edges = [0, 1, -1, n - 1, n, n // 2, n // 2 + 1, -(n // 2)]
    plains = edges + [draw.randrange(-n, n) for _ in range(each - len(edges))]
    others = edges[::-1] + [draw.randrange(-(2**40), 2**40) for _ in range(each - len(edges))]
    residues = [one % n for one in plains]

    # Ours, read by them; by owner and partner.
    by_owner, by_partner = TINY.encrypt_integers(plains), ours.encrypt_integers(plains)
    for made in (by_owner, by_partner):
        TINY.check_ciphertexts(made)
        assert len(set(made)) == each
        assert [private.raw_decrypt(int(one)) for one in made] == residues
        operations += each
    # Theirs, read by us.
    theirs = [mpz(public.raw_encrypt(one)) for one in residues]
    assert TINY.decrypt_integers(theirs) == residues
    operations += each
    # Sums of ours and theirs, and with plain numbers.
    sums = ours.multiply_in(theirs, by_partner)
    assert sums == [int(one) * int(other) % int(TINY.square) for one, other in zip(theirs, by_partner, strict=True)]
    assert TINY.decrypt_integers(sums) == [2 * one % n for one in plains]
    operations += each
    sums = ours.add_plain(theirs, others)
    assert TINY.decrypt_integers(sums) == [(one + other) % n for one, other in zip(plains, others, strict=True)]
    assert [private.raw_decrypt(int(one)) for one in sums[:1000]] == TINY.decrypt_integers(sums[:1000])
    operations += each
    # Inner products, in rows of five: each is five products and four sums.
    rows = [others[at : at + 5] for at in range(0, each, 5)]
    found = []
    for at, row in zip(range(0, each, 5), rows, strict=True):
        found += ours.products(theirs[at : at + 5], 5, [row])
    expected = [
        sum(a * b for a, b in zip(plains[5 * at : 5 * at + 5], row, strict=True)) % n for at, row in enumerate(rows)
    ]
    assert TINY.decrypt_integers(found) == [private.raw_decrypt(int(one)) for one in found] == expected
    operations += 9 * len(rows)
    assert operations >= 6.7 * each


def test_single_products_are_those_of_python_paillier() -> None:
    draw, n = random.Random(2), int(KEY.n)
    public, private = partner_of(KEY)
    for _ in range(200):
        m, factor = (
            draw.randrange(n),
            draw.choice([draw.randrange(-(2**30), 2**30), draw.randrange(n), 0, 1, -1, n - 1]),
        )
        theirs = phe.EncryptedNumber(public, public.raw_encrypt(m), 0)
        found = KEY.public.products([mpz(theirs.ciphertext(be_secure=False))], 1, [[factor]])
        assert private.raw_decrypt(int(found[0])) == KEY.decrypt_integers(found)[0] == m * factor % n
        if 0 <= factor <= n // 3:
            assert found[0] == theirs._raw_mul(factor)
