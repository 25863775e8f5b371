"""Harmless work, by which the doctor and the tests see that an engine does what it should."""

from __future__ import annotations

import hashlib
import os
import time

from colonnade.errors import ConfigError

__all__ = ["Prepared", "digest", "echo", "fail", "preparations", "prepare", "process", "slow", "wrong"]


class Prepared:
    """A context, and how many of them this process has prepared."""

    count = 0

    def __init__(self, context: memoryview) -> None:
        Prepared.count += 1
        self.digest = hashlib.sha256(context).digest()


def prepare(context: memoryview) -> Prepared:
    """Prepare a context."""
    return Prepared(context)


def echo(prepared: Prepared, chunk: bytes) -> bytes:
    """Return the chunk."""
    return chunk


def digest(prepared: Prepared, chunk: bytes) -> bytes:
    """Return a digest of context and chunk."""
    return hashlib.sha256(prepared.digest + chunk).digest()


def slow(prepared: Prepared, chunk: bytes) -> bytes:
    """Return the digest after as many milliseconds as the chunk says."""
    time.sleep(int(chunk) / 1000)
    return digest(prepared, chunk)


def process(prepared: Prepared, chunk: bytes) -> bytes:
    """Return the number of the process that does the work, after a moment that lets the others take their share."""
    time.sleep(0.02)
    return str(os.getpid()).encode()


def preparations(prepared: Prepared, chunk: bytes) -> bytes:
    """Return the number of the process, and how many contexts it has prepared."""
    return process(prepared, chunk) + b" " + str(Prepared.count).encode()


def fail(prepared: Prepared, chunk: bytes) -> bytes:
    """Fail as a method of colonnade would, or in a way nobody foresaw."""
    if chunk == b"foreseen":
        raise ConfigError("A setting is wrong. Correct it.")
    raise ValueError(f"a value of a row: {chunk.decode()}")


def wrong(prepared: Prepared, chunk: bytes) -> Prepared:
    """Return something that is no bytes."""
    return prepared
