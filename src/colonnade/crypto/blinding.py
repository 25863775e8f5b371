"""Blinded ids on secp256k1: an oblivious pseudorandom function, and ids that two secrets together make comparable.

The function is 2HashDH (S. Jarecki, A. Kiayias, H. Krawczyk, J. Xu, EuroS&P 2016): F(id) = SHA-256(tag, salt, k H(id),
id), where k is the secret of the party that evaluates it. The other party sends r H(id), with a fresh r for each id,
gets k r H(id) and removes r. It learns F for as many ids as it had evaluated and no others (one-more gap
Diffie-Hellman, with both hashes as random oracles), and r H(id) is a random point whatever the id.

Where only sizes count, `blind` and `multiply` give a b H(id) on both sides: equal for equal ids, and random points to
who lacks one of the secrets (decisional Diffie-Hellman).

Hashing: the 64 bytes of RFC 9380's expand_message_xmd with SHA-256, decoded by ElligatorSwift as in BIP 324. Every
64 bytes are a point, and random ones give all points with almost the same probability (J. Chávez-Saab, F.
Rodríguez-Henríquez, M. Tibouchi, "SwiftEC", ASIACRYPT 2022). RFC 9380's own map for this curve takes several times as
long in Python. The group has prime order, so every point that lies on the curve will do.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

from gmpy2 import mpz

from colonnade.errors import WrongContent

__all__ = [
    "MARK_BYTES",
    "OUTPUT_BYTES",
    "POINT_BYTES",
    "SECRET_BYTES",
    "Blinder",
    "blind",
    "blind_each",
    "draw_secret",
    "evaluate",
    "expand_message",
    "join_ids",
    "multiply",
    "prepare_blinder",
    "unblind_each",
]

SECRET_BYTES = 32
POINT_BYTES = 33
MARK_BYTES = 12
"""Two of ten million ids on each side have the same mark with 2**-49."""
OUTPUT_BYTES = 2 * MARK_BYTES
"""The function's output for an id: a mark to compare, and a token that proves that its owner could name the id."""

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_SUITE = b"colonnade-psi-v1-secp256k1_XMD:SHA-256_ELLSWIFT_RO_"
_OUTPUT = b"colonnade-psi-v1-secp256k1_2HashDH_SHA-256_"
_LENGTH = 4
_COMPRESSED = 258


def draw_secret() -> bytes:
    """Draw a secret multiplier."""
    return (secrets.randbelow(_ORDER - 1) + 1).to_bytes(SECRET_BYTES, "big")


def join_ids(ids: Sequence[bytes]) -> bytes:
    """Put ids into one piece for `blind`."""
    return b"".join(len(one).to_bytes(_LENGTH, "little") + one for one in ids)


def expand_message(message: bytes, suite: bytes, length: int) -> bytes:
    """Stretch a message to as many bytes as wanted: expand_message_xmd of RFC 9380, section 5.3.1, with SHA-256."""
    tag = suite + bytes([len(suite)])
    first = hashlib.sha256(bytes(64) + message + length.to_bytes(2, "big") + b"\x00" + tag).digest()
    block = hashlib.sha256(first + b"\x01" + tag).digest()
    blocks = [block]
    for number in range(2, -(-length // 32) + 1):
        mixed = (int.from_bytes(first) ^ int.from_bytes(block)).to_bytes(32)
        block = hashlib.sha256(mixed + bytes([number]) + tag).digest()
        blocks.append(block)
    return b"".join(blocks)[:length]


@dataclass(frozen=True, repr=False)
class Blinder:
    """A party's secret and the salt of this alignment."""

    secret: bytes
    salt: bytes


def prepare_blinder(context: memoryview) -> Blinder:
    """Read the context of the functions below: 32 bytes of secret, the rest is salt."""
    return Blinder(bytes(context[:SECRET_BYTES]), bytes(context[SECRET_BYTES:]))


def blind(blinder: Blinder, chunk: bytes) -> bytes:
    """Hash ids to points and multiply each with the secret."""
    return b"".join(_products(_hash, map(_expander(blinder.salt), _ids_in(chunk)), repeat(blinder.secret)))


def multiply(blinder: Blinder, chunk: bytes) -> bytes:
    """Multiply another party's points with the secret.

    What does not lie on the curve is refused; the curve has no points of small order.
    """
    # A last one that is too short is no point either.
    points = (chunk[at : at + POINT_BYTES] for at in range(0, len(chunk), POINT_BYTES))
    return b"".join(_products(_read, points, repeat(blinder.secret)))


def evaluate(blinder: Blinder, chunk: bytes) -> bytes:
    """Return the function's outputs for ids of the party that holds the secret."""
    ids = list(_ids_in(chunk))
    points = _products(_hash, map(_expander(blinder.salt), ids), repeat(blinder.secret))
    return _outputs(blinder.salt, ids, points)


def blind_each(blinder: Blinder, chunk: bytes) -> bytes:
    """Hash ids to points and multiply each with a factor of its own, to have them multiplied by the other party."""
    ids = list(_ids_in(chunk))
    return b"".join(_products(_hash, map(_expander(blinder.salt), ids), _factors(blinder.secret, ids)))


def unblind_each(blinder: Blinder, chunk: bytes) -> bytes:
    """Return the function's outputs for ids of `blind_each`, each of which stands behind the point that came back."""
    pairs = list(_ids_in(chunk))
    ids = [pair[POINT_BYTES:] for pair in pairs]
    inverses = _inverses(_factors(blinder.secret, ids))
    points = _products(_read, (pair[:POINT_BYTES] for pair in pairs), inverses)
    return _outputs(blinder.salt, ids, points)


def _products(
    load: Callable[[Any, Any, Any, bytes], int], contents: Iterable[bytes], factors: Iterable[bytes]
) -> Iterator[bytes]:
    library, context, point, written, size, content = _library()
    multiply, write = library.secp256k1_ec_pubkey_tweak_mul, library.secp256k1_ec_pubkey_serialize
    # As many as there are contents: a secret is repeated without end.
    for one, factor in zip(contents, factors, strict=False):
        if not load(library, context, point, one):
            raise WrongContent("A blinded id is no point of the curve. It was refused.")
        if not multiply(context, point, factor):
            raise WrongContent("A blinded id cannot be multiplied. It was refused.")
        write(context, written, size, point, _COMPRESSED)
        yield bytes(content)


def _hash(library: Any, context: Any, point: Any, expanded: bytes) -> int:
    return int(library.secp256k1_ellswift_decode(context, point, expanded))


def _read(library: Any, context: Any, point: Any, content: bytes) -> int:
    # Not its own length: the library also reads points of 65 bytes.
    return len(content) == POINT_BYTES and library.secp256k1_ec_pubkey_parse(context, point, content, POINT_BYTES)


def _outputs(salt: bytes, ids: Sequence[bytes], points: Iterable[bytes]) -> bytes:
    # Tag, salt and point have fixed lengths, so that no two inputs are the same bytes.
    start, sha256 = _OUTPUT + salt, hashlib.sha256
    return b"".join(sha256(start + point + one).digest()[:OUTPUT_BYTES] for one, point in zip(ids, points, strict=True))


def _factors(secret: bytes, ids: Sequence[bytes]) -> Iterator[bytes]:
    """Return each id's own factor, by a keyed hash: as good as drawn afresh, and the same after an interruption.

    A factor beyond the group's order comes with 2**-128, and then cannot be multiplied with.
    """
    return (hashlib.blake2s(one, key=secret).digest() for one in ids)


def _inverses(factors: Iterable[bytes]) -> list[bytes]:
    """Return all inverses by one inversion (P. Montgomery, 1987)."""
    order, numbers = mpz(_ORDER), [mpz(int.from_bytes(factor)) for factor in factors]
    before, product = [], mpz(1)
    for number in numbers:
        before.append(product)
        product = product * number % order
    inverse = pow(product, -1, order)
    found = []
    for number, earlier in zip(reversed(numbers), reversed(before), strict=True):
        found.append(int(inverse * earlier % order).to_bytes(SECRET_BYTES))
        inverse = inverse * number % order
    return found[::-1]


def _library() -> tuple[Any, ...]:
    """Return libsecp256k1 as coincurve brings it, its context, and fresh objects for its functions to write to."""
    # Not part of coincurve's documented interface, which lacks ElligatorSwift; hence the pinned version.
    from coincurve._libsecp256k1 import ffi, lib
    from coincurve.context import GLOBAL_CONTEXT

    written = ffi.new("unsigned char[33]")
    size = ffi.new("size_t *", POINT_BYTES)
    return lib, GLOBAL_CONTEXT.ctx, ffi.new("secp256k1_pubkey *"), written, size, ffi.buffer(written, POINT_BYTES)


def _expander(salt: bytes) -> Callable[[bytes], bytes]:
    """Return `expand_message` to 64 bytes, with everything prepared that is the same for all ids."""
    tag = _SUITE + bytes([len(_SUITE)])
    start = hashlib.sha256(bytes(64) + salt)
    first_end, second_end, third_end = b"\x00\x40\x00" + tag, b"\x01" + tag, b"\x02" + tag
    sha256, number = hashlib.sha256, int.from_bytes

    def expand(identifier: bytes) -> bytes:
        state = start.copy()
        state.update(identifier + first_end)
        first = state.digest()
        block = sha256(first + second_end).digest()
        mixed = (number(first) ^ number(block)).to_bytes(32)
        return block + sha256(mixed + third_end).digest()

    return expand


def _ids_in(chunk: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(chunk):
        size = int.from_bytes(chunk[at : at + _LENGTH], "little")
        at += _LENGTH
        yield chunk[at : at + size]
        at += size
