"""A party that lies in one message, and what is asked of the refusal: a named error, at once, without much memory.

The liar plays its role with the product's own code, but for one message that a test replaces on its way out.
"""

from __future__ import annotations

import dataclasses
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from tests.worlds import name_of

from colonnade.crypto import CipherArray, Format, PrivateKey, encrypt
from colonnade.errors import ColonnadeError, RoleFailed
from colonnade.messages import kinds, template_of
from colonnade.messages.wire import Writer
from colonnade.session import Channel

Change = Callable[[Any], Any]


class Lie:
    """Replace one message of a party: the first of its kind, or a later one."""

    def __init__(self, party: str, name: str, change: Change, place: int = 0) -> None:
        self.party, self.name, self.change, self.left = party, name, change, place
        self.was_told = False

    def send(self, channel: Channel, message: Any) -> Any:
        if channel.party == self.party and name_of(message) == self.name and not self.was_told:
            self.left -= 1
            if self.left < 0:
                self.was_told = True
                return self.change(message)
        return message


@contextmanager
def lying(lie: Lie) -> Iterator[None]:
    """Let the lie be told, also where the liar's own channel would not let it."""
    send = Channel.send

    def sent(channel: Channel, message: Any) -> None:
        said = lie.send(channel, message)
        if said is not message:
            channel._sends.setdefault(type(said), template_of(said).every_declaration()[0])
        send(channel, said)

    with pytest.MonkeyPatch.context() as patch, any_text():
        patch.setattr(Channel, "send", sent)
        yield


@contextmanager
def any_text() -> Iterator[None]:
    """Let texts leave that an honest party does not let out: too long ones, and ones with control characters."""

    def write(kind: Any, value: str, writer: Writer) -> None:
        content = value.encode()
        writer.write(len(content).to_bytes(4, "little") + content)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kinds._Text, "_write", write)
        yield


def check_refused(
    play: Callable[[], Any],
    lie: Lie,
    kind: type[ColonnadeError] | tuple[type[ColonnadeError], ...],
    words: str = "",
    *,
    seconds: float,
    is_measured: bool = False,
) -> None:
    """Play a run in which one party lies, and check what the honest one says about it."""
    began, peak = time.monotonic(), 0
    if is_measured:
        tracemalloc.start()
    try:
        with lying(lie), pytest.raises(ColonnadeError) as error:
            play()
        if is_measured:
            _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert lie.was_told
    assert time.monotonic() - began < seconds
    assert peak < 100e6, f"{peak / 1e6:.0f} MB"
    said = error.value
    assert type(said) in (kind if isinstance(kind, tuple) else (kind,)), repr(said)
    assert not isinstance(said, RoleFailed)
    assert words in str(said), str(said)
    assert str(said).isprintable()
    assert len(str(said)) < 1000


def with_field(**fields: Any) -> Change:
    """Return a change of some fields: to a value, or by a function of the honest one."""

    def change(honest: Any) -> Any:
        made = {name: value(getattr(honest, name)) if callable(value) else value for name, value in fields.items()}
        return dataclasses.replace(honest, **made)

    return change


def other_key(array: CipherArray) -> CipherArray:
    return encrypt(PrivateKey.generate("insecure_test"), np.zeros(array.shape), Format(32, 0))


def same_key(array: CipherArray, **changes: Any) -> CipherArray:
    """Return ciphertexts under the same key that claim another layout."""
    layout = dataclasses.replace(array.layout, **changes)
    made = CipherArray.__new__(CipherArray)
    count = layout.count
    made._set(layout, (array.ciphertexts * count)[:count], array._fingerprint, array._width, array._checked_key)
    return made
