"""Messages of every field kind, shared by the tests of the codec."""

from __future__ import annotations

import hashlib
import struct
from typing import Any, Self

import numpy as np
import torch

from colonnade.crypto import Ciphertext
from colonnade.messages import ENCRYPTED, PLAIN, declaration_of, encode_body, message, record, seal

CONTEXT = bytes(range(16))
DTYPES = ("<f4", "<f8", "<f2", "|i1", "<i2", "<i4", "<i8", "|u1", "<u2", "<u4", "<u8", "|b1")


class ToyCipher(Ciphertext):
    """A ciphertext of known form: a magic byte, then content."""

    def __init__(self, content: bytes) -> None:
        self.content = content

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.content),)

    def to_bytes(self) -> bytes:
        return b"\x7f" + self.content

    @classmethod
    def from_bytes(cls, content: bytes) -> Self:
        if content[:1] != b"\x7f":
            raise ValueError("not a toy ciphertext")
        return cls(content[1:])


def _declare(cls: type) -> type:
    return message(sender="a", receiver="b", protection=PLAIN, step="test")(cls)


@record
class Inner:
    label: str
    numbers: tuple[int, ...]


@_declare
class OfBool:
    """A value. Reveals: it."""

    value: bool


@_declare
class OfInt:
    """A value. Reveals: it."""

    value: int


@_declare
class OfFloat:
    """A value. Reveals: it."""

    value: float


@_declare
class OfBytes:
    """A value. Reveals: it."""

    value: bytes


@_declare
class OfText:
    """A value. Reveals: it."""

    value: str


@_declare
class OfArray:
    """A value. Reveals: it."""

    value: np.ndarray


@_declare
class OfTensor:
    """A value. Reveals: it."""

    value: torch.Tensor


@_declare
class OfOptional:
    """A value. Reveals: it."""

    value: int | None


@_declare
class OfTexts:
    """A value. Reveals: it."""

    value: tuple[str, ...]


@_declare
class OfBools:
    """A value. Reveals: it."""

    value: tuple[bool, ...]


@_declare
class OfRecords:
    """A value. Reveals: it."""

    value: tuple[Inner | None, ...]


@message(sender="a", receiver="b", protection=ENCRYPTED, step="test")
class OfCipher:
    """A value. Reveals: nothing."""

    value: ToyCipher
    more: tuple[ToyCipher | None, ...]


@_declare
class OfEverything:
    """One of each. Reveals: all of them."""

    flag: bool
    count: int
    ratio: float
    blob: bytes
    text: str
    array: np.ndarray
    tensor: torch.Tensor
    maybe: np.ndarray | None
    texts: tuple[str, ...]
    inner: Inner
    inners: tuple[Inner | None, ...]
    cipher: ToyCipher


def everything() -> Any:
    return OfEverything(
        flag=True,
        count=-(2**70),
        ratio=0.1,
        blob=b"\x00\xff",
        text="Zürich 東京",
        array=np.arange(6, dtype="<i4").reshape(2, 3),
        tensor=torch.tensor([[1.5, -2.0]], dtype=torch.float64),
        maybe=None,
        texts=("", "b"),
        inner=Inner("x", (1, 2)),
        inners=(None, Inner("y", ())),
        cipher=ToyCipher(b"secret"),
    )


def body_of(content: Any) -> bytes:
    return b"".join(encode_body(declaration_of(content), content))


def frame_of(content: Any, sequence: int = 3, step: int = 7) -> bytes:
    return b"".join(seal(declaration_of(content), content, context=CONTEXT, sequence=sequence, step=step)[1])


def frame_around(body: bytes, schema: bytes, sequence: int = 3, step: int = 7) -> bytes:
    """Return a frame whose digests are right whatever the body says: what a liar would send."""
    digest = hashlib.sha256(body).digest()
    front = struct.pack("<4sB3x16sQQ8sQ32s8x", b"CLND", 1, CONTEXT, sequence, step, schema, len(body), digest)
    return front + hashlib.sha256(front).digest() + body
