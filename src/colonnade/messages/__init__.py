"""Declared messages and the closed binary codec that carries them."""

from colonnade.messages.declaration import (
    ANYONE,
    ENCRYPTED,
    MASKED,
    NOISED,
    PLAIN,
    Declaration,
    Protection,
    declaration_of,
    message,
    record,
)
from colonnade.messages.frame import (
    CONTEXT_BYTES,
    HEADER_BYTES,
    WIRE_VERSION,
    Header,
    decode_body,
    encode_body,
    open_frame,
    seal,
)
from colonnade.messages.kinds import Longest
from colonnade.messages.limits import LIMITS, Limits
from colonnade.messages.wire import Part, total_bytes

__all__ = [
    "ANYONE",
    "CONTEXT_BYTES",
    "ENCRYPTED",
    "HEADER_BYTES",
    "LIMITS",
    "MASKED",
    "NOISED",
    "PLAIN",
    "WIRE_VERSION",
    "Declaration",
    "Header",
    "Limits",
    "Longest",
    "Part",
    "Protection",
    "declaration_of",
    "decode_body",
    "encode_body",
    "message",
    "open_frame",
    "record",
    "seal",
    "total_bytes",
]
