"""What a peer may wrongly send, made from declarations: listen to an honest run, break one rule, see it refused."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from colonnade.crypto import CipherArray
from colonnade.errors import DeclarationError, ProtocolError
from colonnade.messages import Declaration, Dims, decode_body, encode_body
from colonnade.session import Channel

__all__ = ["Heard", "faults_of", "is_refused", "lying", "overheard"]


@dataclass(frozen=True)
class Heard:
    """One message as it arrived, and what its receiver knew to check it by."""

    sender: str
    receiver: str
    declaration: Declaration
    content: Any
    known: Mapping[str, Any]


@contextmanager
def overheard() -> Iterator[list[Heard]]:
    """Listen at every channel, and give the first message of each kind between two parties, once for each form."""
    found: dict[tuple[Any, ...], Heard] = {}
    receive, heard = Channel.receive, list[Heard]()

    def noting(channel: Channel, message_class: type[Any], **given: Any) -> Any:
        known = {**channel.dims, **given}
        content = receive(channel, message_class, **given)
        declaration = channel.declaration(message_class)
        form = tuple(name for name, *_ in declaration.body.parts("", content) if not name[-1:].isdigit())
        key = (channel.peer, channel.party, declaration.schema, form)
        if key not in found:
            found[key] = Heard(channel.peer, channel.party, declaration, content, known)
            heard.append(found[key])
        return content

    with patch.object(Channel, "receive", noting):
        yield heard


def faults_of(heard: Heard) -> Iterator[tuple[str, Any]]:
    """Give messages that break one rule of one field each, and which."""
    yield from heard.declaration.body.faults(heard.content, heard.known)
    for name, kind, part, put in heard.declaration.body.parts("", heard.content):
        if isinstance(part, CipherArray) and any(isinstance(rule, Dims) for rule in kind.rules):
            yield f"{name}: ciphertexts of another shape", put(_misshapen(part))


def is_refused(heard: Heard, content: Any) -> bool:
    """Tell whether its receiver refuses such a message."""
    try:
        body = b"".join(map(bytes, encode_body(heard.declaration, content)))
    except DeclarationError:
        return True  # A text that the codec does not write: it does not read it either.
    try:
        heard.declaration.body.check(decode_body(heard.declaration, memoryview(body)), heard.known)
    except ProtocolError:
        return True
    return False


@contextmanager
def lying(heard: Heard) -> Iterator[list[str]]:
    """Let the sender break a rule in the first message of this kind; the list then says which."""
    send, told = Channel.send, list[str]()

    def lie(channel: Channel, message: Any) -> None:
        about = heard.declaration
        is_liar = (channel.party, channel.peer, type(message)) == (heard.sender, heard.receiver, about.cls)
        if is_liar and not told and channel.declaration(about.cls).protection is about.protection:
            rule, message = next(faults_of(replace(heard, content=message)))
            told.append(rule)
        send(channel, message)

    with patch.object(Channel, "send", lie):
        yield told


def _misshapen(array: CipherArray) -> CipherArray:
    """Return ciphertexts under the same key with one dimension more or less."""
    shape = (*array.shape, 1) if len(array.shape) == 1 else (array.shape[0] * array.shape[1],)
    layout = replace(array.layout, shape=shape, packed_axis=None, slots=1, lines=1)
    made = CipherArray.__new__(CipherArray)
    enough = array.ciphertexts * layout.count
    made._set(layout, enough[: layout.count], array._fingerprint, array._width, array._checked_key)
    return made
