"""What a stranger may send: damaged frames, and sound frames around bodies that lie."""

from __future__ import annotations

import hashlib
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.unit.messages.samples import (
    CONTEXT,
    OfArray,
    OfBool,
    OfBools,
    OfBytes,
    OfCipher,
    OfInt,
    OfOptional,
    OfRecords,
    OfTensor,
    OfText,
    OfTexts,
    ToyCipher,
    body_of,
    everything,
    frame_around,
    frame_of,
)

from colonnade.errors import FrameRefused
from colonnade.messages import HEADER_BYTES, LIMITS, Limits, declaration_of, decode_body, open_frame

MEBIBYTE = 2**20


def take_in(cls: type, frame: bytes | bytearray, limits: Limits = LIMITS) -> object:
    declaration = declaration_of(cls)
    header, body = open_frame(frame, limits)
    assert header.schema == declaration.schema
    return decode_body(declaration, body, limits)


def test_every_single_bit_flip_is_refused() -> None:
    frame = bytearray(frame_of(everything()))
    for bit in range(8 * len(frame)):
        frame[bit // 8] ^= 1 << bit % 8
        with pytest.raises(FrameRefused):
            open_frame(frame)
        frame[bit // 8] ^= 1 << bit % 8
    open_frame(frame)


def test_every_truncation_is_refused() -> None:
    frame = frame_of(everything())
    for length in range(len(frame)):
        with pytest.raises(FrameRefused):
            open_frame(frame[:length])


@pytest.mark.parametrize("extra", [b"\x00", b"\xff", b"\x00" * 16, b"CLND" * 40])
def test_every_extension_is_refused(extra: bytes) -> None:
    frame = frame_of(everything())
    for extended in (frame + extra, extra + frame, frame[:HEADER_BYTES] + extra + frame[HEADER_BYTES:]):
        with pytest.raises(FrameRefused):
            open_frame(extended)


def test_two_frames_in_one_are_refused() -> None:
    frame = frame_of(OfInt(1))
    with pytest.raises(FrameRefused):
        open_frame(frame + frame)


@pytest.mark.parametrize("offset", [0, 4, 5, 6, 7, *range(88, 96)])
def test_a_rehashed_header_with_other_fixed_bytes_is_refused(offset: int) -> None:
    frame = bytearray(frame_of(OfInt(1)))
    frame[offset] ^= 1
    frame[96:128] = hashlib.sha256(frame[:96]).digest()
    with pytest.raises(FrameRefused, match="version" if offset == 4 else "not a colonnade frame"):
        open_frame(frame)


@pytest.mark.parametrize("claimed", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_a_rehashed_header_with_another_length_is_refused(claimed: int) -> None:
    frame = bytearray(frame_of(OfInt(1)))
    frame[48:56] = struct.pack("<Q", claimed)
    frame[96:128] = hashlib.sha256(frame[:96]).digest()
    with pytest.raises(FrameRefused, match="promises"):
        open_frame(frame)


def test_a_frame_beyond_the_limit_is_refused_before_it_is_hashed() -> None:
    frame = frame_of(OfBytes(bytes(1000)))
    with pytest.raises(FrameRefused, match="outside the limits"):
        open_frame(frame, Limits(frame_bytes=len(frame) - 1))
    open_frame(frame, Limits(frame_bytes=len(frame)))


# --- sound digests around bodies that lie -------------------------------------------------------------------------

RECORD, BOOL, INT, BYTES, TEXT, ARRAY, TENSOR, OPTION, SEQUENCE, CIPHER = b"\x0a\x01\x02\x04\x05\x06\x07\x08\x09\x0b"


def body(*pieces: int | bytes) -> bytes:
    return bytes([RECORD]) + b"".join(bytes([one]) if isinstance(one, int) else one for one in pieces)


def array_head(code: int, *extents: int, tag: int = ARRAY, dimensions: int | None = None, padding: int = 0) -> bytes:
    head = body(
        tag, code, len(extents) if dimensions is None else dimensions, struct.pack(f"<{len(extents)}Q", *extents)
    )
    return head + bytes([padding]) * (-len(head) % 16)


def u32(value: int) -> bytes:
    return struct.pack("<I", value)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


HUGE = 2**40
LIES: dict[str, tuple[type, bytes]] = {
    "empty body": (OfInt, b""),
    "only the outer tag": (OfInt, b"\x0a"),
    "another outer tag": (OfInt, b"\x06" + body_of(OfInt(1))[1:]),
    "another inner tag": (OfInt, body(TEXT, u32(1), b"\x01")),
    "unknown tag": (OfInt, body(200, u32(1), b"\x01")),
    "bool of 2": (OfBool, body(BOOL, 2)),
    "bool of 255": (OfBool, body(BOOL, 255)),
    "bool missing": (OfBool, body(BOOL)),
    "option of 2": (OfOptional, body(OPTION, 2, INT, u32(1), b"\x01")),
    "option present but empty": (OfOptional, body(OPTION, 1)),
    "option absent with a value": (OfOptional, body(OPTION, 0, INT, u32(1), b"\x01")),
    "integer of no bytes": (OfInt, body(INT, u32(0))),
    "integer longer than the rest": (OfInt, body(INT, u32(9), b"\x01")),
    "integer of 4 GiB": (OfInt, body(INT, u32(2**32 - 1), b"\x01")),
    "integer above the limit": (OfInt, body(INT, u32(1537), b"\x01" * 1537)),
    "integer with a needless zero": (OfInt, body(INT, u32(2), b"\x01\x00")),
    "integer with a needless sign": (OfInt, body(INT, u32(2), b"\xff\xff")),
    "zero in two bytes": (OfInt, body(INT, u32(2), b"\x00\x00")),
    "trailing byte": (OfInt, body_of(OfInt(1)) + b"\x00"),
    "trailing copy": (OfInt, body_of(OfInt(1)) * 2),
    "text of 4 GiB": (OfText, body(TEXT, u32(2**32 - 1), b"x")),
    "text above the limit": (OfText, body(TEXT, u32(2**20 + 1), b"x" * (2**20 + 1))),
    "text longer than the rest": (OfText, body(TEXT, u32(5), b"abc")),
    "text that is not UTF-8": (OfText, body(TEXT, u32(2), b"\xff\xfe")),
    "text with an encoded surrogate": (OfText, body(TEXT, u32(3), b"\xed\xa0\x80")),
    "text in overlong UTF-8": (OfText, body(TEXT, u32(2), b"\xc0\x80")),
    "text cut within a character": (OfText, body(TEXT, u32(2), "東".encode()[:2])),
    "bytes of 16 EiB": (OfBytes, body(BYTES, u64(2**64 - 1), bytes(6), b"x")),
    "bytes longer than the rest": (OfBytes, body(BYTES, u64(2), bytes(6), b"x")),
    "bytes with padding that is not zero": (OfBytes, body(BYTES, u64(1), b"\x00\x00\x01\x00\x00\x00", b"x")),
    "bytes with padding missing": (OfBytes, body(BYTES, u64(1), b"x")),
    "sequence of 4 billion": (OfTexts, body(SEQUENCE, u32(2**32 - 1))),
    "sequence longer than the rest": (OfTexts, body(SEQUENCE, u32(2), TEXT, u32(0))),
    "sequence shorter than what follows": (OfTexts, body(SEQUENCE, u32(1), (bytes([TEXT]) + u32(0)) * 2)),
    "sequence above the limit": (OfBools, body(SEQUENCE, u32(2**20 + 1), b"\x01\x00" * (2**20 + 1))),
    "record in a sequence cut short": (OfRecords, body(SEQUENCE, u32(1), OPTION, 1, RECORD, TEXT, u32(0))),
    "array of unknown type": (OfArray, array_head(12, 1) + bytes(8)),
    "array of type 255": (OfArray, array_head(255, 1) + bytes(8)),
    "array of 9 dimensions": (OfArray, array_head(0, *[1] * 9) + bytes(4)),
    "array of 255 dimensions": (OfArray, array_head(0, 1, dimensions=255) + bytes(4)),
    "array with extents missing": (OfArray, array_head(0, 1, dimensions=2)),
    "array shorter than its shape": (OfArray, array_head(1, 3) + bytes(16)),
    "array longer than its shape": (OfArray, array_head(1, 3) + bytes(32)),
    "array with a huge extent": (OfArray, array_head(0, 2**63) + bytes(4)),
    "array with the largest extent": (OfArray, array_head(0, 2**64 - 1) + bytes(4)),
    "array of 4 TiB": (OfArray, array_head(0, HUGE) + bytes(4)),
    "array of many huge extents": (OfArray, array_head(0, *[HUGE] * 8) + bytes(4)),
    "array whose size wraps to zero": (OfArray, array_head(7, 2**32, 2**32)),
    "array whose size wraps to four": (OfArray, array_head(7, 2**62 + 1, 4) + bytes(4)),
    "empty array with impossible extents": (OfArray, array_head(1, 0, HUGE, HUGE)),
    "empty array with impossible extents first": (OfArray, array_head(1, *[HUGE] * 7, 0)),
    "empty array with an extent above the limit": (OfArray, array_head(1, 0, HUGE + 1)),
    "empty array with data": (OfArray, array_head(1, 0) + bytes(8)),
    "array with padding that is not zero": (OfArray, array_head(1, 1, padding=1) + bytes(8)),
    "boolean array holding 2": (OfArray, array_head(11, 3) + b"\x00\x01\x02"),
    "tensor of 4 TiB": (OfTensor, array_head(0, HUGE, tag=TENSOR) + bytes(4)),
    "empty tensor with impossible extents": (OfTensor, array_head(1, 0, HUGE, HUGE, tag=TENSOR)),
    "boolean tensor holding 2": (OfTensor, array_head(11, 3, tag=TENSOR) + b"\x00\x01\x02"),
    "array in place of a tensor": (OfTensor, array_head(1, 1) + bytes(8)),
    "ciphertext of 16 EiB": (OfCipher, body(CIPHER, u64(2**64 - 1), bytes(6), b"\x7f")),
    "ciphertext that is not one": (OfCipher, body(CIPHER, u64(2), bytes(6), b"xx", SEQUENCE, u32(0))),
    "empty ciphertext": (OfCipher, body(CIPHER, u64(0), bytes(6), SEQUENCE, u32(0))),
}


def peak_of(action: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        action()
        return tracemalloc.get_traced_memory()[1] - before
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("lie", LIES)
def test_a_body_that_lies_is_refused_without_large_allocations(lie: str) -> None:
    cls, hostile = LIES[lie]
    frame = frame_around(hostile, declaration_of(cls).schema)
    open_frame(frame)

    def attempt() -> None:
        with pytest.raises(FrameRefused):
            take_in(cls, frame)

    assert peak_of(attempt) < 2 * MEBIBYTE


def test_the_helper_writes_what_the_codec_writes() -> None:
    """Otherwise the lies above would be refused for the wrong reason."""
    assert array_head(1, 1) + struct.pack("<d", 5.0) == body_of(OfArray(np.array([5.0])))
    assert body(BYTES, u64(1), bytes(6), b"x") == body_of(OfBytes(b"x"))
    assert body(SEQUENCE, u32(1), TEXT, u32(1), b"x") == body_of(OfTexts(("x",)))
    assert body(INT, u32(2), b"\x00\x01") == body_of(OfInt(256))
    assert body(CIPHER, u64(1), bytes(6), b"\x7f", SEQUENCE, u32(0)) == body_of(OfCipher(ToyCipher(b""), ()))
    assert body(OPTION, 0) == body_of(OfOptional(None))
    assert array_head(0, 1, tag=TENSOR) + bytes(4) == body_of(OfTensor(torch.zeros(1)))
    assert frame_around(body_of(OfInt(5)), declaration_of(OfInt).schema) == frame_of(OfInt(5))


def test_a_legal_empty_array_with_large_extents_costs_nothing() -> None:
    frame = frame_around(array_head(7, 0, HUGE), declaration_of(OfArray).schema)
    assert peak_of(lambda: take_in(OfArray, frame)) < MEBIBYTE
    assert take_in(OfArray, frame).value.shape == (0, HUGE)  # type: ignore[attr-defined]


def test_the_limits_count_entries_over_the_whole_frame() -> None:
    frame = frame_of(OfTexts(("x",) * 10))
    take_in(OfTexts, frame, Limits(entries=12))
    with pytest.raises(FrameRefused, match="entries"):
        take_in(OfTexts, frame, Limits(entries=11))


def test_the_limits_bound_nesting() -> None:
    frame = frame_of(OfRecords((None,)))
    take_in(OfRecords, frame, Limits(depth=3))
    with pytest.raises(FrameRefused, match="deeper"):
        take_in(OfRecords, frame_of(OfRecords(everything().inners)), Limits(depth=3))


def test_integers_at_the_limit_can_be_printed() -> None:
    """Errors name numbers a peer sent; Python refuses to print more than 4300 digits."""
    largest = 2 ** (8 * LIMITS.integer_bytes - 1) - 1
    assert len(str(take_in(OfInt, frame_of(OfInt(largest))).value)) > 3000  # type: ignore[attr-defined]


def test_a_frame_of_another_context_still_opens_but_says_so() -> None:
    assert open_frame(frame_of(OfInt(1)))[0].context == CONTEXT
