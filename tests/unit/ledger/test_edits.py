"""Whatever is changed in a ledger file is found."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pytest

from colonnade.errors import LedgerBroken
from colonnade.ledger import GENESIS, Ledger
from colonnade.ledger.entries import chain

EDITS = 10_000


def flip_bit(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def set_byte(rng: random.Random, content: bytes) -> bytes:
    changed = bytearray(content)
    changed[rng.randrange(len(changed))] = rng.choice(b'{}",:\n\r\x00 0aZ\xff')
    return bytes(changed)


def cut_bytes(rng: random.Random, content: bytes) -> bytes:
    return content[: rng.randrange(len(content))]


def cut_front(rng: random.Random, content: bytes) -> bytes:
    return content[rng.randrange(1, len(content)) :]


def remove_bytes(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content))
    return content[:start] + content[start + rng.randrange(1, 40) :]


def insert_bytes(rng: random.Random, content: bytes) -> bytes:
    start = rng.randrange(len(content) + 1)
    return content[:start] + rng.choice([b"\n", b" ", b"{}", b"\n\n", b"\x00", b"0", b"\xef\xbb\xbf"]) + content[start:]


def extend(rng: random.Random, content: bytes) -> bytes:
    return content + rng.choice([b"\n", b"{}\n", b" ", b"\x00", b"null\n", content])


def on_lines(change: Any) -> Any:
    def edit(rng: random.Random, content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        change(rng, lines)
        return b"".join(lines)

    edit.__name__ = change.__name__
    return edit


@on_lines
def delete_line(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines))]


@on_lines
def delete_last_lines(rng: random.Random, lines: list[bytes]) -> None:
    del lines[rng.randrange(len(lines)) :]


@on_lines
def delete_first_lines(rng: random.Random, lines: list[bytes]) -> None:
    del lines[: rng.randrange(1, len(lines) + 1)]


@on_lines
def swap_lines(rng: random.Random, lines: list[bytes]) -> None:
    first, second = rng.sample(range(len(lines)), 2)
    lines[first], lines[second] = lines[second], lines[first]


@on_lines
def repeat_line(rng: random.Random, lines: list[bytes]) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))


@on_lines
def replace_line(rng: random.Random, lines: list[bytes]) -> None:
    lines[rng.randrange(len(lines))] = rng.choice(lines)


@on_lines
def insert_forged_line(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines))
    previous = GENESIS if place == 0 else json.loads(lines[place - 1])["hash"]
    forged = {**json.loads(lines[place]), "index": place}
    del forged["hash"]
    lines.insert(place, chain(previous, forged)[0])


@on_lines
def edit_value_and_rehash_the_line(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines) - 1)
    previous = GENESIS if place == 0 else json.loads(lines[place - 1])["hash"]
    content = json.loads(lines[place])
    del content["hash"]
    content["time"] = "2020-01-01T00:00:00.000000+00:00"
    lines[place] = chain(previous, content)[0]


@on_lines
def edit_value(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines))
    content = json.loads(lines[place])
    name = rng.choice(list(content))
    value = content[name]
    if isinstance(value, int):
        content[name] = value + rng.choice([-1, 1, 1000])
    elif isinstance(value, str):
        content[name] = value + "0" if rng.random() < 0.5 else value[:-1]
    else:
        content[name] = {"values": [1]}
    lines[place] = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


@on_lines
def remove_member(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines))
    content = json.loads(lines[place])
    del content[rng.choice(list(content))]
    lines[place] = json.dumps(content, separators=(",", ":")).encode() + b"\n"


@on_lines
def reformat(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines))
    content = json.loads(lines[place])
    forms = [{}, {"indent": 1}, {"sort_keys": True, "separators": (",", ":")}, {"separators": (", ", ":")}]
    lines[place] = json.dumps(content, **rng.choice(forms)).encode() + b"\n"


@on_lines
def change_line_end(rng: random.Random, lines: list[bytes]) -> None:
    place = rng.randrange(len(lines))
    lines[place] = lines[place][:-1] + rng.choice([b"\r\n", b" \n", b"\r", b"\n\n", b"", b"\x0b"])


def upper_hex(rng: random.Random, content: bytes) -> bytes:
    found = rng.choice(list(re.finditer(rb'"[0-9a-f]{32,64}"', content)))
    return content[: found.start()] + found.group().upper() + content[found.end() :]


def add_space(rng: random.Random, content: bytes) -> bytes:
    found = rng.choice(list(re.finditer(rb"[,:{}]", content)))
    return content[: found.end()] + b" " + content[found.end() :]


def escape_character(rng: random.Random, content: bytes) -> bytes:
    found = rng.choice(list(re.finditer(rb"[a-z]", content)))
    return content[: found.start()] + b"\\u%04x" % content[found.start()] + content[found.end() :]


KINDS = [
    flip_bit,
    set_byte,
    cut_bytes,
    cut_front,
    remove_bytes,
    insert_bytes,
    extend,
    delete_line,
    delete_last_lines,
    delete_first_lines,
    swap_lines,
    repeat_line,
    replace_line,
    insert_forged_line,
    edit_value_and_rehash_the_line,
    edit_value,
    remove_member,
    reformat,
    change_line_end,
    upper_hex,
    add_space,
    escape_character,
]


@pytest.mark.parametrize("edits", [EDITS, pytest.param(20 * EDITS, marks=pytest.mark.slow)])
def test_ten_thousand_edits_are_all_found(finished: Any, edits: int) -> None:
    rng = random.Random(edits)
    originals = [ledger._content for ledger in finished.ledgers()]
    for content in originals:
        Ledger(content, "original").verify()
    tried: Counter[str] = Counter()
    accepted = []
    while tried.total() < edits:
        kind, content = rng.choice(KINDS), rng.choice(originals)
        edited = kind(rng, content)
        if edited == content:
            continue
        tried[kind.__name__] += 1
        try:
            Ledger(edited, "edited").verify()
        except LedgerBroken:
            continue
        accepted.append(kind.__name__)
    assert accepted == []
    assert len(tried) == len(KINDS)
    assert min(tried.values()) > 100


def test_every_bit_of_a_ledger_counts(books: Any) -> None:
    books.open()
    books.writers["bank"].mark("closed", step=0)
    content = bytearray(books.ledgers()[0]._content)
    Ledger(bytes(content), "original").verify()
    for bit in range(8 * len(content)):
        content[bit // 8] ^= 1 << bit % 8
        with pytest.raises(LedgerBroken):
            Ledger(bytes(content), "edited").verify()
        content[bit // 8] ^= 1 << bit % 8


CROSSED = (
    '{"index":0,"time":"t","kind":"sent","peer":"x","message":"m","protection":"PLAIN","step":0,"connection":"c",'
    '"sequence":0,"bytes":1,"payload":"p",'
)


@pytest.mark.parametrize(
    "line",
    [
        '{"index":0,"time":"t","kind":"opened"',
        '{"index":0,"time":"t","kind":"opened","party":5,"digest":"x"',
        '{"index":0,"time":"t","kind":["opened"]',
        '{"index":0,"time":"t"',
        '{"index":0,"kind":"opened","party":"a","digest":"b"',
        '{"index":1,"time":"t","kind":"closed"',
        '{"index":"0","time":"t","kind":"closed"',
        '{"index":0,"time":"t","kind":"sent","peer":"x"',
        '{"index":0,"time":"t","kind":"disconnected","peer":"x","connections":5',
        CROSSED + '"shapes":{"values":5}',
        CROSSED + '"shapes":{"values":"12"}',
        CROSSED + '"shapes":{"values":[[2,3]]}',
        "[1,2",
        "",
        '{"index":0,"time":"t","kind":"closed","deep":' + "[" * 100_000 + "]" * 100_000,
        '{"index":0,"time":"t","kind":"closed","long":' + "9" * 5000,
        '{"index":0,"time":"t","kind":"closed","text":"\udcff"',
    ],
    ids=lambda line: line[:60].encode("ascii", "replace").decode(),
)
def test_a_line_no_ledger_writes_is_refused_even_when_its_hash_is_right(line: str) -> None:
    import hashlib

    body = line.encode(errors="surrogateescape")
    digest = hashlib.sha256(GENESIS.encode() + body).hexdigest().encode()
    with pytest.raises(LedgerBroken):
        Ledger(body + b',"hash":"' + digest + b'"}\n', "forged").verify_chain()
