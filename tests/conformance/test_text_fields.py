"""Every text in every declared message is short and plain when it arrives, whoever sent it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from colonnade import alignment
from colonnade.errors import DeclarationError, WrongContent
from colonnade.launch import doctor
from colonnade.messages import LIMITS, Declaration, declaration_of, decode_body, encode_body, kinds
from colonnade.messages.kinds import Kind
from colonnade.methods import METHODS
from colonnade.session import CONTROL
from colonnade.text import LONGEST_NAME
from tests.adversary.hostile import any_text

NO_NAMES = {
    ("Failed", "cause"): 1000,
    ("AttackResult", "found"): 20_000,
    ("AnswersAlone", "labels"): LIMITS.text_bytes,
    ("Classes", "labels"): LIMITS.text_bytes,
    ("OwnLabels", "labels"): LIMITS.text_bytes,
    ("PredictedLabels", "labels"): LIMITS.text_bytes,
}
"""The texts that may be longer than a name. What is in one that is long is checked by who reads it."""


def declared() -> list[Declaration]:
    """Return every message once, as it crosses between any two roles under any protection."""
    messages = map(declaration_of, (*CONTROL, *alignment.MESSAGES, doctor.Clock, doctor.Probe))
    every = [*messages, *(one for method in METHODS for one in method.declarations)]
    return list({one.cls: one for one in every}.values())


def texts(kind: Kind, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    """Find the texts in a message, by the fields that lead there."""
    if isinstance(kind, kinds._Text):
        yield path, kind.longest
    elif isinstance(kind, kinds._Optional | kinds._Sequence):
        yield from texts(kind._inner, path)
    elif isinstance(kind, kinds._Record):
        for name, inner in kind._kinds:
            yield from texts(inner, (*path, name))


def made(kind: Kind, path: tuple[str, ...], text: str) -> Any:
    """Make a value with this text at the end of the path, and something short everywhere else."""
    if isinstance(kind, kinds._Optional):
        return made(kind._inner, path, text)
    if isinstance(kind, kinds._Sequence):
        return (made(kind._inner, path, text),)
    if isinstance(kind, kinds._Record):
        values = [made(inner, path[1:] if path[:1] == (name,) else ("",), text) for name, inner in kind._kinds]
        return kind._record(*values)
    if isinstance(kind, kinds._Text):
        return "short" if path else text
    simple = {"bool": True, "int": 1, "float": 1.0, "bytes": b"x", "array": np.zeros(1), "tensor": torch.zeros(1)}
    return simple[kind._describe()]


FIELDS = [(one, path, longest) for one in declared() for path, longest in texts(one.body)]
NAMES = [(one.name, *path) for one, path, _ in FIELDS]


def arrived(declaration: Declaration, path: tuple[str, ...], text: str) -> object:
    with any_text():
        body = b"".join(map(bytes, encode_body(declaration, made(declaration.body, path, text))))
    return decode_body(declaration, memoryview(body))


def test_the_walk_finds_texts_in_all_rooms() -> None:
    assert {"Failed", "AlignmentOffer", "GroupNames", "Offer", "ReleasedTable"} <= {name for name, *_ in NAMES}
    assert ("Hello", "fields", "name") in NAMES


def test_only_texts_that_are_no_names_are_long() -> None:
    found = {name: longest for name, (_, _, longest) in zip(NAMES, FIELDS, strict=True)}
    assert {name: longest for name, longest in found.items() if longest != LONGEST_NAME} == NO_NAMES


@pytest.mark.parametrize(("declaration", "path", "longest"), FIELDS, ids=map(".".join, NAMES))
def test_a_text_that_is_too_long_or_not_plain_is_refused_on_both_sides(
    declaration: Declaration, path: tuple[str, ...], longest: int
) -> None:
    arrived(declaration, path, "n" * longest)
    for text in ("\x1b[2J", "two\nlines", "\x9b", "\u202e", "\u2028", "\u200b", "é" * (longest + 1)):
        if len(text.encode()) > LIMITS.text_bytes:
            text = "x" * (longest - 1) + "\x00"
        with pytest.raises(WrongContent):
            arrived(declaration, path, text)
        with pytest.raises(DeclarationError):
            encode_body(declaration, made(declaration.body, path, text))
