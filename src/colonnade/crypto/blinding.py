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
from collections.abc import Iterator, Sequence
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
    curve = _Curve(blinder.secret)
    return b"".join(
        curve.multiplied(curve.decode(expand_message(blinder.salt + identifier, _SUITE, 64)))
        for identifier in _ids_in(chunk)
    )


def blind_again(blinder: Blinder, chunk: bytes) -> bytes:
    """Multiply another party's points with the secret and return a mark of each result.

    A point that is not one is refused; the curve has no points of small order.
    """
    curve = _Curve(blinder.secret)
    return b"".join(
        hashlib.sha256(curve.multiplied(curve.parse(chunk[at : at + POINT_BYTES]))).digest()[:MARK_BYTES]
        for at in range(0, len(chunk), POINT_BYTES)
    )


class _Curve:
    """libsecp256k1 as coincurve brings it, with the objects its functions write to."""

    def __init__(self, secret: bytes) -> None:
        # Not part of coincurve's documented interface, which lacks ElligatorSwift; hence the pinned version.
        from coincurve._libsecp256k1 import ffi, lib
        from coincurve.context import GLOBAL_CONTEXT

        self._library, self._context, self._secret = lib, GLOBAL_CONTEXT.ctx, secret
        self._point, self._written = ffi.new("secp256k1_pubkey *"), ffi.new("unsigned char[33]")
        self._size = ffi.new("size_t *", POINT_BYTES)
        self._bytes = ffi.buffer(self._written, POINT_BYTES)

    def decode(self, content: bytes) -> Any:
        """Return the point that 64 bytes stand for."""
        self._library.secp256k1_ellswift_decode(self._context, self._point, content)
        return self._point

    def parse(self, content: bytes) -> Any:
        """Return the point that was written; refuse what does not lie on the curve."""
        if not self._library.secp256k1_ec_pubkey_parse(self._context, self._point, content, len(content)):
            raise WrongContent("A blinded id is no point of the curve. It was refused.")
        return self._point

    def multiplied(self, point: Any) -> bytes:
        """Multiply a point with the secret and write the result."""
        if not self._library.secp256k1_ec_pubkey_tweak_mul(self._context, point, self._secret):
            raise WrongContent("A blinded id cannot be multiplied. It was refused.")
        self._library.secp256k1_ec_pubkey_serialize(self._context, self._written, self._size, point, _COMPRESSED)
        return bytes(self._bytes)


def _ids_in(chunk: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(chunk):
        size = int.from_bytes(chunk[at : at + _LENGTH], "little")
        at += _LENGTH
        yield chunk[at : at + size]
        at += size
