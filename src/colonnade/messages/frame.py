"""The envelope around a message: fixed header, then the body.

::

    offset  size  content
    0       4     magic "CLND"
    4       1     wire version
    5       3     zero
    8       16    context: names the run, the connection, and its direction
    24      8     sequence number within the context, from 0
    32      8     step of the sender
    40      8     schema of the message
    48      8     length of the body
    56      32    SHA-256 of the body
    88      8     zero
    96      32    SHA-256 of the 96 bytes before
    128           body

All integers are little-endian. Every byte is covered by one of the two digests, so any change is found before the
body is read. The digests guard against accidents and against mixing up runs; they are not secret and do not replace
TLS.
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass

from colonnade.errors import FrameRefused
from colonnade.messages.declaration import Declaration
from colonnade.messages.limits import LIMITS, Limits
from colonnade.messages.wire import Part, Reader, Writer, total_bytes

__all__ = [
    "CONTEXT_BYTES",
    "HEADER_BYTES",
    "WIRE_VERSION",
    "Header",
    "decode_body",
    "encode_body",
    "open_frame",
    "seal",
]

WIRE_VERSION = 1
CONTEXT_BYTES = 16
HEADER_BYTES = 128
_MAGIC = b"CLND"
_LAYOUT = struct.Struct("<4sB3x16sQQ8sQ32s8x")


@dataclass(frozen=True)
class Header:
    """What a frame says about its body."""

    context: bytes
    sequence: int
    step: int
    schema: bytes
    body_bytes: int
    payload: bytes
    """SHA-256 of the body; the ledger keeps it."""


def encode_body(declaration: Declaration, content: object) -> list[Part]:
    """Return the body of a message as parts; large arrays stay views of the sender's memory."""
    writer = Writer()
    declaration.body.write(content, writer)
    return writer.finish()


def decode_body(declaration: Declaration, body: memoryview, limits: Limits = LIMITS) -> object:
    """Rebuild a message from its body.

    Arrays are views of the body. A text that is not plain, or longer than its field allows, raises WrongContent.
    Nothing here opens a file, imports a module or runs code chosen by the sender.
    """
    reader = Reader(body, limits)
    content: object = declaration.body.read(reader, 0)
    reader.finish()
    return content


def seal(
    declaration: Declaration, content: object, *, context: bytes, sequence: int, step: int
) -> tuple[Header, list[Part]]:
    """Return the header and all parts of a frame, header first."""
    parts = encode_body(declaration, content)
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part)
    header = Header(context, sequence, step, declaration.schema, total_bytes(parts), digest.digest())
    front = _LAYOUT.pack(
        _MAGIC, WIRE_VERSION, context, sequence, step, header.schema, header.body_bytes, header.payload
    )
    return header, [front + hashlib.sha256(front).digest(), *parts]


def open_frame(
    frame: bytes | bytearray | memoryview, limits: Limits = LIMITS, *, body_digest: bytes | None = None
) -> tuple[Header, memoryview]:
    """Check a received frame and return its header and body; raise FrameRefused for any damage.

    ``body_digest`` is the body's SHA-256 where it was computed while the frame arrived.
    """
    view = memoryview(frame)
    if not HEADER_BYTES <= len(view) <= limits.frame_bytes:
        raise FrameRefused(f"A frame of {len(view)} bytes arrived, outside the limits; it was refused.")
    front = view[: _LAYOUT.size]
    if hashlib.sha256(front).digest() != view[_LAYOUT.size : HEADER_BYTES]:
        raise FrameRefused("A frame's header does not match its digest; it was damaged on the way and refused.")
    magic, version, context, sequence, step, schema, body_bytes, payload = _LAYOUT.unpack(front)
    if magic != _MAGIC or any(front[5:8]) or any(front[88:96]):
        raise FrameRefused("Bytes arrived that are not a colonnade frame; they were refused.")
    if version != WIRE_VERSION:
        raise FrameRefused(
            f"A frame of wire version {version} arrived; this side speaks version {WIRE_VERSION}. "
            "Install the same version of colonnade at both parties."
        )
    body = view[HEADER_BYTES:]
    if len(body) != body_bytes:
        raise FrameRefused(f"A frame promises {body_bytes} bytes and brings {len(body)}; it was refused.")
    if (body_digest or hashlib.sha256(body).digest()) != payload:
        raise FrameRefused("A frame's body does not match its digest; it was damaged on the way and refused.")
    return Header(context, sequence, step, schema, body_bytes, payload), body
