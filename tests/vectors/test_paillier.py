"""Known answers for Paillier, from a textbook implementation; see make_paillier.py."""

from __future__ import annotations

import json
import math
from functools import cache
from typing import Any

import gmpy2
import numpy as np
import pytest
from gmpy2 import mpz
from tests.vectors.make_paillier import FILE, made, text

from colonnade import errors
from colonnade.crypto import CipherArray, FixedPoint, Format, Layout, Mask, PrivateKey, PublicKey, decrypt_fixed
from colonnade.crypto import chunks as pieces_of_work
from colonnade.crypto.modulus_proof import modulus_challenges
from colonnade.crypto.window_table import build_table

VECTORS: dict[str, Any] = json.loads(FILE.read_text())
SMALLEST_COUNT = 500


def number(written: str) -> int:
    return int(written, 16)


def cases(block: str) -> Any:
    found = VECTORS[block][0]["cases"] if block == "products" else VECTORS[block]
    return pytest.mark.parametrize("case", found, ids=[f"{at} {one.get('name', '')}" for at, one in enumerate(found)])


def error(verdict: str) -> type[Exception]:
    found = ValueError if verdict == "ValueError" else getattr(errors, verdict)
    assert isinstance(found, type)
    return found


@cache
def key(name: str) -> PrivateKey:
    return PrivateKey(*map(number, VECTORS["primes"][name]))


def test_there_are_many_cases() -> None:
    counted = [block for name, block in VECTORS.items() if isinstance(block, list) and name != "products"]
    assert sum(map(len, counted)) + len(VECTORS["products"][0]["cases"]) >= SMALLEST_COUNT


@pytest.mark.slow
def test_the_file_is_what_the_textbook_says() -> None:
    assert text(made()) == FILE.read_text()


@pytest.mark.parametrize("name", VECTORS["fingerprints"])
def test_keys_have_known_fingerprints(name: str) -> None:
    assert key(name).fingerprint.hex() == VECTORS["fingerprints"][name]
    assert key(name).public.fingerprint == key(name).fingerprint


@cases("keys")
def test_a_modulus_is_judged(case: dict[str, Any]) -> None:
    n, proof = number(case["n"]), [number(root) for root in case.get("proof", ())]
    if case["verdict"] == "ok":
        assert PublicKey.check(n, proof, case["size"]).n == n
        return
    with pytest.raises(error(case["verdict"])) as caught:
        PublicKey.check(n, proof, case["size"])
    assert type(caught.value) is error(case["verdict"])


@cases("challenges")
def test_a_modulus_has_known_challenges(case: dict[str, Any]) -> None:
    assert modulus_challenges(number(case["n"])) == [number(one) for one in case["found"]]


@pytest.mark.parametrize("name", VECTORS["primes"])
def test_an_owner_finds_the_roots_of_the_textbook(name: str) -> None:
    n = int(key(name).n)
    known = [case["proof"] for case in VECTORS["keys"] if number(case["n"]) == n and case["verdict"] == "ok"]
    assert all(list(key(name).proof) == [number(root) for root in proof] for proof in known)
    assert len(known) == (name != "foreign")


@cases("private_keys")
def test_a_pair_of_primes_is_judged(case: dict[str, Any]) -> None:
    p, q = number(case["p"]), number(case["q"])
    if case["verdict"] == "ok":
        made_key = PrivateKey(p, q)
        assert made_key.decrypt_integers(made_key.encrypt_integers([-7])) == [p * q - 7]
    else:
        with pytest.raises(error(case["verdict"])):
            PrivateKey(p, q)


@cases("ciphertexts")
def test_a_ciphertext_is_judged_alone_and_among_others(case: dict[str, Any]) -> None:
    valid = mpz(number(VECTORS["sums"][0]["one"]))
    c = mpz(number(case["c"]))
    for company in ([c], [valid, c], [c, valid], [valid, c, valid]):
        if case["verdict"] == "ok":
            key("small").public.check_ciphertexts(company)
        else:
            with pytest.raises(error(case["verdict"])):
                key("small").public.check_ciphertexts(company)


@cases("plaintexts")
def test_a_known_ciphertext_is_decrypted(case: dict[str, Any]) -> None:
    owner, m, c = key(case["key"]), number(case["m"]), mpz(number(case["c"]))
    owner.check_ciphertexts([c])
    assert owner.decrypt_integers([c]) == [number(case["plain"])]
    # The same plaintext without randomness, and with the given one.
    bare = owner.add_plain([mpz(1)], [m])
    given = gmpy2.powmod(number(case["r"]), owner.n, owner.square)
    assert owner.multiply_in(bare, [given]) == [c]
    assert owner.decrypt_integers(owner.encrypt_integers([m])) == [number(case["plain"])]


@cases("random_powers")
def test_encryption_with_given_randomness_is_known(case: dict[str, Any]) -> None:
    owner, h = key(case["key"]), mpz(number(case["h"]))
    width, half = owner.width, -(-owner.bits // 16)
    m = number(case["m"]).to_bytes(width, "little")
    r, s = (number(case[name]).to_bytes(half, "little") for name in "rs")
    table = build_table(gmpy2.powmod(h, owner.n, owner.square), owner.square, 8 * half)
    context = pieces_of_work.join_parts([owner.n.to_bytes(width, "little"), table])
    found = pieces_of_work.encrypt(pieces_of_work.prepare_encryptor(memoryview(context)), m + r)
    assert int.from_bytes(found, "little") == number(case["c"])

    primes = list(map(number, VECTORS["primes"][case["key"]]))
    tables = [build_table(gmpy2.powmod(h, owner.n, one**2), mpz(one**2), 8 * half) for one in primes]
    context = pieces_of_work.join_parts([*(one.to_bytes(width, "little") for one in primes), *tables])
    found = pieces_of_work.encrypt_as_owner(pieces_of_work.prepare_owner(memoryview(context)), m + r + s)
    assert int.from_bytes(found, "little") == number(case["owner"])
    assert owner.decrypt_integers([mpz(number(case["c"])), mpz(number(case["owner"]))]) == [number(case["m"])] * 2


@cases("sums")
def test_sums_are_known_and_wrap_modulo_n(case: dict[str, Any]) -> None:
    owner, public = key("small"), key("small").public
    one, two = mpz(number(case["one"])), mpz(number(case["two"]))
    assert public.multiply_in([one], [two]) == [number(case["sum"])]
    assert public.add_plain([one], [number(case["plain"])]) == [number(case["with_plain"])]
    assert (
        owner.decrypt_integers([mpz(number(case[name])) for name in ("sum", "with_plain")])
        == [number(case["total"])] * 2
    )
    layout = Layout((1,), None, 1022, 1, 0, 1)
    assert (-CipherArray(public, layout, [one])).ciphertexts == (number(case["negated"]),)


@cases("products")
def test_products_are_known(case: dict[str, Any]) -> None:
    bases = [mpz(number(one)) for one in VECTORS["products"][0]["bases"]]
    exponents = [[number(one) for one in row] for row in case["exponents"]]
    found = key("small").public.products(bases, len(bases), exponents)
    assert found == [number(one) for one in case["results"]]
    assert key("small").decrypt_integers(found) == [number(one) for one in case["plains"]]
    # Several sets of bases go another way.
    twice = key("small").public.products(bases + bases[::-1], len(bases), exponents)
    assert twice[: len(found)] == found


@cases("layouts")
def test_values_are_packed_as_defined(case: dict[str, Any]) -> None:
    shape, bound = tuple(case["shape"]), number(case["bound"])
    layout = Layout(shape, case["axis"], case["slot_bits"], case["slots"], 0, bound, lines=case["lines"])
    values = np.array([number(one) for one in case["values"]], dtype=object).reshape(shape)
    packed = [number(one) for one in case["packed"]]
    assert layout.count == len(packed)
    assert layout.pack(FixedPoint(values, 0, bound)) == packed
    found = layout.unpack(packed)
    assert found.shape == shape
    assert found.integers.tolist() == values.tolist()
    assert layout.transposed.transposed == layout
    if case["axis"] is not None:
        assert layout.transposed.pack(FixedPoint(values.T, 0, bound)) == packed


@cases("refused_packings")
def test_what_no_honest_partner_packs_is_refused(case: dict[str, Any]) -> None:
    layout = Layout((3,), 0, 8, 3, 0, 100)
    with pytest.raises(errors.SlotOverflow):
        layout.unpack([number(case["packed"])])


@cases("arrays")
def test_bytes_of_arrays_are_known_and_damage_is_refused(case: dict[str, Any]) -> None:
    owner, content = key("small"), bytes.fromhex(case["bytes"])
    expected = Layout((4, 2), 0, 34, 30, 24, 1 << 32)
    if case["verdict"] == "ValueError":
        with pytest.raises(ValueError, match=r"array|bound|ciphertexts"):
            CipherArray.from_bytes(content)
        return
    received = CipherArray.from_bytes(content)
    assert received.to_bytes() == content
    if case["verdict"] == "CiphertextRefused":
        with pytest.raises(errors.CiphertextRefused):
            received.under(owner.public, expected)
        return
    if case["verdict"] == "ok":
        axis = None if case["axis"] < 0 else case["axis"]
        expected = Layout(
            tuple(case["shape"]),
            axis,
            case["slot_bits"],
            case["slots"],
            case["fraction_bits"],
            number(case["bound"]),
            bool(case["share"]),
            case["lines"],
        )
    array = received.under(owner.public, expected)
    assert array.layout == expected
    assert array.to_bytes() == content
    assert repr(array) == f"CipherArray(shape={expected.shape}, key={owner.fingerprint.hex()[:8]})"
    if case["verdict"] == "ok":
        plains = [number(one) % int(owner.n) for one in case["plains"]]
        assert owner.decrypt_integers(array.ciphertexts) == plains
    for stranger in (key("foreign"), key("large")):
        with pytest.raises(errors.CiphertextRefused):
            received.under(stranger.public, expected)
        with pytest.raises(errors.CiphertextRefused):
            decrypt_fixed(stranger, array)


@pytest.mark.parametrize("name", ["foreign", "large"])
def test_arrays_under_different_keys_do_not_mix(name: str) -> None:
    layout = Layout((1,), None, 1022, 1, 0, 1)
    one, other = (CipherArray(key(each).public, layout, [mpz(2)]) for each in ("small", name))
    for mix in (lambda: one + other, lambda: other + one, lambda: one - other):
        with pytest.raises(errors.CiphertextRefused):
            mix()


@cases("ring")
def test_opened_values_are_judged(case: dict[str, Any]) -> None:
    owner, masks = key("small"), tuple(map(number, case["masks"]))
    mask = Mask(Layout((len(masks),), None, 1022, 1, 0, 1000), owner.public, masks)
    rows = [list(bytes.fromhex(row)) for row in case["rows"]]
    opened = np.array(rows, np.uint8).reshape(len(rows), math.prod(np.shape(rows)[1:]) if rows else 128)
    if case["verdict"] == "ok":
        assert mask.remove(opened).integers.tolist() == case["values"]
    else:
        with pytest.raises(error(case["verdict"])):
            mask.remove(opened)


@pytest.mark.parametrize("dtype", ["i1", "u2", "f4", "b1"])
def test_opened_values_of_another_type_are_refused(dtype: str) -> None:
    mask = Mask(Layout((1,), None, 1022, 1, 0, 1000), key("small").public, (0,))
    with pytest.raises(errors.WrongContent):
        mask.remove(np.zeros((1, 128), dtype))


@cases("fixed_points")
def test_numbers_are_encoded_as_known(case: dict[str, Any]) -> None:
    form = Format(case["fraction_bits"], case["magnitude_bits"])
    values = np.array([float.fromhex(one) for one in case["values"]])
    if case["verdict"] != "ok":
        with pytest.raises(error(case["verdict"])):
            FixedPoint.encode(values, form)
        return
    found = FixedPoint.encode(values, form)
    assert [int(one) for one in found.integers] == [number(one) for one in case["integers"]]
    assert max(abs(int(one)) for one in found.integers) <= found.bound == form.bound
    assert [one.hex() for one in found.decode().tolist()] == case["decoded"]
