"""The lines of a ledger and the chain that ties them.

A ledger is a text file, one JSON object per line, readable without colonnade. The last member of each object,
``hash``, is the SHA-256 of the previous line's hash followed by the bytes of the line up to its own ``hash`` member.
Because the bytes themselves are hashed, not a parsed form of them, no edit is too small to be found.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from colonnade.errors import LedgerBroken
from colonnade.text import LONGEST_NAME, is_plain

__all__ = ["GENESIS", "Direction", "Entry", "chain", "chain_members", "members", "parse_line"]

GENESIS = "0" * 64
"""What stands in for the hash before the first line."""

Direction = Literal["sent", "received"]

# One of each for all lines: json.dumps would make a new encoder each time, and json.loads guesses at encodings.
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False, check_circular=False)
_DECODER = json.JSONDecoder()
# What readers rely on. A chain can be recomputed by whoever rewrites a file, so it says nothing about these.
_CROSSED: dict[str, type] = {
    "peer": str,
    "message": str,
    "protection": str,
    "step": int,
    "connection": str,
    "sequence": int,
    "shapes": dict,
    "bytes": int,
    "payload": str,
}
_FACTS: dict[str, dict[str, type]] = {
    "opened": {"party": str, "digest": str},
    "disconnected": {"peer": str, "connections": list},
    "unconfirmed": {"peer": str},
    "openings": {"peer": str, "messages": dict},
    "version": {"peer": str, "version": str},
    "sent": _CROSSED,
    "received": _CROSSED,
}
_TAIL = re.compile(rb',"hash":"([0-9a-f]{64})"\}\Z')


@dataclass(frozen=True)
class Entry:
    """One line: a message that crossed, or a mark in the life of the run."""

    index: int
    time: str
    kind: str
    """``sent`` or ``received`` for messages; otherwise the name of a mark such as ``opened`` or ``closed``."""
    content: dict[str, Any] = field(repr=False)
    hash: str

    @property
    def is_message(self) -> bool:
        """Tell messages from marks."""
        return self.kind in ("sent", "received")


def members(content: dict[str, Any]) -> str:
    """Return the members of a JSON object, without its braces."""
    return _ENCODER.encode(content)[1:-1]


def chain(previous: str, content: dict[str, Any]) -> tuple[bytes, str]:
    """Return the line for this content, and its hash."""
    return chain_members(previous, members(content))


def chain_members(previous: str, text: str) -> tuple[bytes, str]:
    """Return the line with these members, written out, and its hash."""
    body = f"{{{text}".encode()
    digest = hashlib.sha256(previous.encode() + body).hexdigest()
    return body + b',"hash":"' + digest.encode() + b'"}\n', digest


def parse_line(line: bytes, index: int, previous: str) -> Entry:
    """Check one line (without its newline) against the line before and return it."""
    tail = _TAIL.search(line)
    if tail is None:
        raise LedgerBroken(
            f"Entry {index} is not a ledger line. The file was changed after it was written; "
            "do not rely on this run's report."
        )
    stated = tail.group(1).decode()
    body = line[: tail.start()]
    if hashlib.sha256(previous.encode() + body).hexdigest() != stated:
        raise LedgerBroken(
            f"Entry {index} does not follow from entry {index - 1}. The file was changed after it was written; "
            "do not rely on this run's report."
        )
    content = _DECODER.decode(body.decode() + "}")
    if content.get("index") != index:
        raise LedgerBroken(f"Entry {index} carries another number. The file was not written by a ledger.")
    for name, kind in _FACTS.get(content["kind"], {}).items():
        if not isinstance(content[name], kind) or (kind is str and not _is_name(content[name])):
            raise LedgerBroken(f"Entry {index} does not say its {name}. The file was not written by a ledger.")
    return Entry(index, content["time"], content["kind"], content, stated)


def _is_name(text: str) -> bool:
    """Tell whether a text could be in a ledger at all: it may be a partner's file, and its names are shown."""
    return len(text) <= LONGEST_NAME and is_plain(text)
