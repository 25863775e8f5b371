"""Blinded ids against arithmetic by hand: RFC 9380's vectors, BIP 324's decoding, and points in plain Python."""

from __future__ import annotations

import hashlib
import secrets

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colonnade.crypto.blinding import (
    OUTPUT_BYTES,
    POINT_BYTES,
    Blinder,
    _library,
    blind,
    blind_each,
    draw_secret,
    evaluate,
    expand_message,
    join_ids,
    multiply,
    prepare_blinder,
    unblind_each,
)
from colonnade.engine import INLINE, Work
from colonnade.engine.pool import PoolEngine
from colonnade.errors import WrongContent

P = 2**256 - 2**32 - 977
ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
BASE = (
    0x79BE667EF9DCBBAC55A06295CE870B07029BFCDB2DCE28D959F2815B16F81798,
    0x483ADA7726A3C4655DA4FBFC0E1108A8FD17B448A68554199C47D08FFB10D4B8,
)
SUITE = b"colonnade-psi-v1-secp256k1_XMD:SHA-256_ELLSWIFT_RO_"
OUTPUT = b"colonnade-psi-v1-secp256k1_2HashDH_SHA-256_"
Point = tuple[int, int] | None

# RFC 9380, appendix K.1.
RFC_SUITE = b"QUUX-V01-CS02-with-expander-SHA256-128"
RFC = [
    (b"", "68a985b87eb6b46952128911f2a4412bbc302a9d759667f87f7a21d803f07235"),
    (b"abc", "d8ccab23b5985ccea865c6c97b6e5b8350e794e603b4b97902f53a8a0d605615"),
    (b"abcdef0123456789", "eff31487c770a893cfb36f912fbfcbff40d5661771ca4b2cb4eafe524333f5c1"),
    (b"q128_" + b"q" * 128, "b23a1d2b4d97b2ef7785562a7e8bac7eed54ed6e97e29aa51bfe3f12ddad1ff9"),
    (b"a512_" + b"a" * 512, "4623227bcc01293b8c130bf771da8c298dede7383243dc0993d2d94823958c4c"),
    (
        b"",
        (
            "af84c27ccfd45d41914fdff5df25293e221afc53d8ad2ac06d5e3e29485dadbee0d121587713a3e0dd4d5e69e93eb7cd4f5df4cd103e188c"
            "f60cb02edc3edf18eda8576c412b18ffb658e3dd6ec849469b979d444cf7b26911a08e63cf31f9dcc541708d3491184472c2c29bb749d428"
            "6b004ceb5ee6b9a7fa5b646c993f0ced"
        ),
    ),
    (
        b"abc",
        (
            "abba86a6129e366fc877aab32fc4ffc70120d8996c88aee2fe4b32d6c7b6437a647e6c3163d40b76a73cf6a5674ef1d890f95b664ee0afa5"
            "359a5c4e07985635bbecbac65d747d3d2da7ec2b8221b17b0ca9dc8a1ac1c07ea6a1e60583e2cb00058e77b7b72a298425cd1b941ad4ec65"
            "e8afc50303a22c0f99b0509b4c895f40"
        ),
    ),
]


def expanded(message: bytes, suite: bytes, length: int) -> bytes:
    """expand_message_xmd, line by line as RFC 9380 numbers them."""
    ell = (length + 31) // 32
    assert ell <= 255
    assert len(suite) <= 255
    dst_prime = suite + len(suite).to_bytes(1, "big")
    z_pad = b"\0" * 64
    msg_prime = z_pad + message + length.to_bytes(2, "big") + b"\0" + dst_prime
    b = [hashlib.sha256(msg_prime).digest()]
    b.append(hashlib.sha256(b[0] + b"\x01" + dst_prime).digest())
    for i in range(2, ell + 1):
        mixed = bytes(x ^ y for x, y in zip(b[0], b[i - 1], strict=True))
        b.append(hashlib.sha256(mixed + i.to_bytes(1, "big") + dst_prime).digest())
    return b"".join(b[1:])[:length]


def root(value: int) -> int | None:
    found = pow(value, (P + 1) // 4, P)
    return found if found * found % P == value % P else None


def lifted(x: int, is_odd: bool) -> Point:
    y = root((x**3 + 7) % P)
    assert y is not None
    return x, y if y % 2 == is_odd else P - y


def decoded(content: bytes) -> Point:
    """ElligatorSwift's decoding (BIP 324): XSwiftEC gives x, and the parity of t gives y."""
    u, t = (int.from_bytes(content[at : at + 32], "big") % P for at in (0, 32))
    is_odd = bool(t % 2)
    u, t = u or 1, t or 1
    if (u**3 + t**2 + 7) % P == 0:
        t = 2 * t % P
    X = (u**3 + 7 - t**2) * pow(2 * t, -1, P) % P
    Y = (X + t) * pow((root(P - 3) or 0) * u, -1, P) % P
    for x in (u + 4 * Y**2, (-X * pow(Y, -1, P) - u) * pow(2, -1, P), (X * pow(Y, -1, P) - u) * pow(2, -1, P)):
        if root((x**3 + 7) % P) is not None:
            return lifted(x % P, is_odd)
    raise AssertionError("one of the three is always on the curve")


def added(first: Point, second: Point) -> Point:
    if first is None or second is None:
        return first or second
    (x1, y1), (x2, y2) = first, second
    if x1 == x2 and (y1 + y2) % P == 0:
        return None
    if first == second:
        slope = 3 * x1 * x1 * pow(2 * y1, -1, P) % P
    else:
        slope = (y2 - y1) * pow(x2 - x1, -1, P) % P
    x = (slope * slope - x1 - x2) % P
    return x, (slope * (x1 - x) - y1) % P


def times(factor: int, point: Point) -> Point:
    found: Point = None
    for digit in f"{factor:b}":
        found = added(found, found)
        if digit == "1":
            found = added(found, point)
    return found


def written(point: Point) -> bytes:
    assert point is not None
    return bytes([2 + point[1] % 2]) + point[0].to_bytes(32, "big")


def read(content: bytes) -> Point:
    return lifted(int.from_bytes(content[1:], "big"), content[0] == 3)


def decoded_by_the_library(content: bytes) -> bytes:
    library, context, point, buffer, size, found = _library()
    library.secp256k1_ellswift_decode(context, point, content)
    library.secp256k1_ec_pubkey_serialize(context, buffer, size, point, 258)
    return bytes(found)


def pieces(content: bytes, size: int) -> list[bytes]:
    return [content[at : at + size] for at in range(0, len(content), size)]


@pytest.mark.parametrize(("message", "expected"), RFC)
def test_expanding_agrees_with_the_rfc(message: bytes, expected: str) -> None:
    assert expand_message(message, RFC_SUITE, len(expected) // 2).hex() == expected
    assert expanded(message, RFC_SUITE, len(expected) // 2).hex() == expected


@given(st.binary(max_size=200), st.binary(max_size=255), st.integers(1, 300))
def test_expanding_agrees_with_the_rfcs_words(message: bytes, suite: bytes, length: int) -> None:
    assert expand_message(message, suite, length) == expanded(message, suite, length)


fields = st.integers(0, 2**256 - 1) | st.sampled_from([0, 1, 2, 3, P - 1, P, P + 1, P + 7, 2**256 - 1])


@settings(deadline=None)
@given(fields, fields)
def test_decoding_agrees_with_bip_324(u: int, t: int) -> None:
    content = u.to_bytes(32, "big") + t.to_bytes(32, "big")
    assert decoded_by_the_library(content) == written(decoded(content))


def test_decoding_agrees_where_the_formula_has_its_exceptions() -> None:
    """u^3 + t^2 + 7 = 0, u or t zero in two ways, and numbers beyond the field."""
    cases = [(u, t) for u in (0, 1, P, P + 1, 5) for t in (0, 1, P, P + 1, 2**256 - 1)]
    for u in range(1, 60):
        t = root(-(u**3 + 7) % P)
        cases += [] if t is None else [(u, t), (u, P - t)]
    assert len(cases) > 50
    for u, t in cases:
        content = u.to_bytes(32, "big") + t.to_bytes(32, "big")
        assert decoded_by_the_library(content) == written(decoded(content))


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=100), max_size=4), st.integers(1, ORDER - 1), st.binary(max_size=20))
def test_blinding_is_hashing_decoding_and_multiplying(ids: list[bytes], secret: int, salt: bytes) -> None:
    blinder = prepare_blinder(memoryview(secret.to_bytes(32, "big") + salt))
    expected = [written(times(secret, decoded(expanded(salt + one, SUITE, 64)))) for one in ids]
    points = blind(blinder, join_ids(ids))
    assert pieces(points, POINT_BYTES) == expected
    twice = [written(times(secret, read(one))) for one in expected]
    assert pieces(multiply(blinder, points), POINT_BYTES) == twice
    outputs = [hashlib.sha256(OUTPUT + salt + at + one).digest()[:24] for one, at in zip(ids, expected, strict=True)]
    assert pieces(evaluate(blinder, join_ids(ids)), OUTPUT_BYTES) == outputs


def returned(points: bytes, ids: list[bytes]) -> bytes:
    """Put each point that came back before its id, as `unblind_each` takes them."""
    return join_ids([point + one for point, one in zip(pieces(points, POINT_BYTES), ids, strict=True)])


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=40), max_size=20, unique=True), st.binary(max_size=20))
def test_the_asking_party_gets_the_outputs_of_the_one_that_holds_the_secret(ids: list[bytes], salt: bytes) -> None:
    asking, holder = (Blinder(draw_secret(), salt) for _ in range(2))
    points = blind_each(asking, join_ids(ids))
    found = unblind_each(asking, returned(multiply(holder, points), ids))
    assert found == evaluate(holder, join_ids(ids))
    assert len(set(pieces(found, OUTPUT_BYTES))) == len(ids)
    assert blind_each(asking, join_ids(ids)) == points, "the same after an interruption"
    assert blind_each(asking, join_ids(ids[::-1])) == b"".join(pieces(points, POINT_BYTES)[::-1]), "in any pieces"


def test_every_id_has_a_factor_of_its_own() -> None:
    """With one factor for all, a sum of blinded points would be that of a guessed set, and could be recognised."""
    ids = [b"a", b"b"]
    asking, holder = (Blinder(draw_secret(), b"salt") for _ in range(2))
    points = pieces(multiply(holder, blind_each(asking, join_ids(ids))), POINT_BYTES)
    together = written(added(read(points[0]), read(points[1])))
    found = unblind_each(asking, returned(together * 2, ids))
    guess = added(*(read(blind(holder, join_ids([one]))) for one in ids))
    recognised = [hashlib.sha256(OUTPUT + b"salt" + written(guess) + one).digest()[:24] for one in ids]
    assert not set(pieces(found, OUTPUT_BYTES)) & set(recognised)
    # The same guess, where one factor serves for all.
    points = pieces(multiply(holder, blind(asking, join_ids(ids))), POINT_BYTES)
    inverse = pow(int.from_bytes(asking.secret), -1, ORDER).to_bytes(32)
    together = written(added(read(points[0]), read(points[1])))
    assert multiply(Blinder(inverse, b""), together) == written(guess)


def test_an_output_belongs_to_one_id_one_salt_and_one_secret() -> None:
    holder = Blinder(draw_secret(), b"s" * 32)
    ids = [b"", b"a", b"aa", b"sa", b"\x00"]
    others = [Blinder(draw_secret(), b"s" * 32), Blinder(holder.secret, b"t" * 32)]
    found = [one for blinder in (holder, *others) for one in pieces(evaluate(blinder, join_ids(ids)), OUTPUT_BYTES)]
    halves = [half for one in found for half in (one[:12], one[12:])]
    assert len(set(halves)) == 2 * 3 * len(ids), "and no token is a mark"


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=20, unique=True))
def test_the_order_of_two_secrets_does_not_matter(ids: list[bytes]) -> None:
    first, second = (Blinder(draw_secret(), b"salt") for _ in range(2))
    there = multiply(second, blind(first, join_ids(ids)))
    back = multiply(first, blind(second, join_ids(ids)))
    assert there == back
    assert len(set(pieces(there, POINT_BYTES))) == len(ids)
    other = Blinder(second.secret, b"pepper")
    assert not set(pieces(blind(second, join_ids(ids)), POINT_BYTES)) & set(
        pieces(blind(other, join_ids(ids)), POINT_BYTES)
    )


def test_ids_that_begin_alike_are_told_apart() -> None:
    blinder = Blinder(draw_secret(), b"s" * 16)
    ids = [b"", b"a", b"aa", b"a\x00", b"\x00a", b"\x01\x00\x00\x00a", b"a" * 70_000]
    assert len(set(pieces(blind(blinder, join_ids(ids)), POINT_BYTES))) == len(ids)
    joined = b"".join(blind(blinder, join_ids([one])) for one in ids)
    assert blind(blinder, join_ids(ids)) == joined, "however ids are divided among workers"
    assert {work(blinder, b"") for work in (blind, multiply, evaluate, blind_each, unblind_each)} == {b""}


def outside() -> bytes:
    """Return an x that no point of the curve has."""
    x = next(x for x in range(1, 100) if root((x**3 + 7) % P) is None)
    return b"\x02" + x.to_bytes(32, "big")


GOOD = written(BASE)
BAD = {
    "not on the curve": outside(),
    "x is p": b"\x02" + P.to_bytes(32, "big"),
    "x beyond p": b"\x03" + (P + 1).to_bytes(32, "big"),
    "largest x": b"\x02" + b"\xff" * 32,
    "x is zero": b"\x02" + bytes(32),
    "all zeros": bytes(33),
    "prefix 0": b"\x00" + GOOD[1:],
    "prefix 1": b"\x01" + GOOD[1:],
    "prefix 4": b"\x04" + GOOD[1:],
    "prefix 5": b"\x05" + GOOD[1:],
    "prefix 6": b"\x06" + GOOD[1:],
    "prefix 7": b"\x07" + GOOD[1:],
    "prefix 255": b"\xff" + GOOD[1:],
    "cut short": GOOD[:-1],
    "one byte": b"\x02",
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_point_is_refused(kind: str) -> None:
    blinder = Blinder(draw_secret(), b"")
    with pytest.raises(WrongContent, match="no point of the curve"):
        multiply(blinder, BAD[kind])
    with pytest.raises(WrongContent, match="no point of the curve"):
        multiply(blinder, GOOD * 3 + BAD[kind])
    with pytest.raises(WrongContent, match="no point of the curve"):
        unblind_each(blinder, join_ids([GOOD + b"i1", BAD[kind] + (b"" if len(BAD[kind]) < 33 else b"i2")]))


def test_a_point_is_refused_in_another_process_in_the_same_words() -> None:
    room = "colonnade.crypto.blinding"
    work = Work(f"{room}:multiply", f"{room}:prepare_blinder", draw_secret())
    with PoolEngine(2) as engine:
        for one in (INLINE, engine):
            with pytest.raises(WrongContent, match="no point of the curve"):
                one.map(work, [GOOD, BAD["all zeros"]])
            assert one.map(work, [GOOD, GOOD])[0] == one.map(work, [GOOD])[0]


def test_the_group_has_no_small_subgroup() -> None:
    """Every point but infinity, which no 33 bytes stand for, has the group's order, which is prime."""
    assert times(ORDER, BASE) is None
    assert pow(2, ORDER - 1, ORDER) == pow(3, ORDER - 1, ORDER) == 1
    for number in range(5):
        assert times(ORDER, decoded(secrets.token_bytes(64))) is None, number


def test_a_secret_of_zero_or_of_the_order_multiplies_nothing() -> None:
    for secret in (0, ORDER, 2**256 - 1):
        with pytest.raises(WrongContent, match="cannot be multiplied"):
            multiply(Blinder(secret.to_bytes(32, "big"), b""), GOOD)


def test_secrets_are_numbers_below_the_order_and_never_shown() -> None:
    drawn = [draw_secret() for _ in range(200)]
    assert len(set(drawn)) == 200
    assert all(0 < int.from_bytes(one, "big") < ORDER for one in drawn)
    assert drawn[0].hex() not in repr(Blinder(drawn[0], b""))
    assert repr(drawn[0]) not in repr(Blinder(drawn[0], b""))
