"""Blinded ids: points of secp256k1 that only two parties' secrets together make comparable.

An id is hashed to a point and multiplied with a party's secret; the other party multiplies the result with its own.
Equal ids give equal points, and who lacks one of the secrets sees random points (decisional Diffie-Hellman, with the
hash as a random oracle).

Hashing: the 64 bytes of RFC 9380's expand_message_xmd with SHA-256, decoded by ElligatorSwift as in BIP 324. Every
64 bytes are a point, and random ones give all points with almost the same probability (J. Chávez-Saab, F.
Rodríguez-Henríquez, M. Tibouchi, "SwiftEC", ASIACRYPT 2022). RFC 9380's own map for this curve takes several times as
long in Python. The group has prime order, so every point that lies on the curve will do.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from colonnade.errors import WrongContent

__all__ = [
    "MARK_BYTES",
    "POINT_BYTES",
    "Blinder",
    "blind",
    "blind_again",
    "draw_secret",
    "expand_message",
    "join_ids",
    "prepare_blinder",
]

POINT_BYTES = 33
MARK_BYTES = 12
"""Of a twice blinded id only so much of a hash is kept: two of ten million ids on each side coincide with 2**-49."""

_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_SUITE = b"colonnade-psi-v1-secp256k1_XMD:SHA-256_ELLSWIFT_RO_"
_LENGTH = 4
_COMPRESSED = 258


def draw_secret() -> bytes:
    """Draw a secret multiplier."""
    return (secrets.randbelow(_ORDER - 1) + 1).to_bytes(32, "big")


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
    """Read the context of `blind` and `blind_again`: 32 bytes of secret, the rest is salt."""
    return Blinder(bytes(context[:32]), bytes(context[32:]))


def blind(blinder: Blinder, chunk: bytes) -> bytes:
    """Hash ids to points and multiply each with the secret."""
    library, context, point, written, size, content = _library()
    decode, multiply = library.secp256k1_ellswift_decode, library.secp256k1_ec_pubkey_tweak_mul
    write, secret = library.secp256k1_ec_pubkey_serialize, blinder.secret
    expand = _expander(blinder.salt)
    points = []
    for identifier in _ids_in(chunk):
        decode(context, point, expand(identifier))
        if not multiply(context, point, secret):
            raise WrongContent("A blinded id cannot be multiplied. It was refused.")
        write(context, written, size, point, _COMPRESSED)
        points.append(bytes(content))
    return b"".join(points)


def blind_again(blinder: Blinder, chunk: bytes) -> bytes:
    """Multiply another party's points with the secret and return a mark of each result.

    What does not lie on the curve is refused; the curve has no points of small order.
    """
    library, context, point, written, size, content = _library()
    parse, multiply = library.secp256k1_ec_pubkey_parse, library.secp256k1_ec_pubkey_tweak_mul
    write, secret, sha256 = library.secp256k1_ec_pubkey_serialize, blinder.secret, hashlib.sha256
    if len(chunk) % POINT_BYTES:
        # The library would read beyond the end.
        raise WrongContent("A blinded id is no point of the curve. It was refused.")
    marks = []
    for at in range(0, len(chunk), POINT_BYTES):
        if not parse(context, point, chunk[at : at + POINT_BYTES], POINT_BYTES):
            raise WrongContent("A blinded id is no point of the curve. It was refused.")
        if not multiply(context, point, secret):
            raise WrongContent("A blinded id cannot be multiplied. It was refused.")
        write(context, written, size, point, _COMPRESSED)
        marks.append(sha256(content).digest()[:MARK_BYTES])
    return b"".join(marks)


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
