from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from colonnade.ledger import GENESIS, Ledger, LedgerWriter
from colonnade.ledger.entries import chain
from colonnade.messages import PLAIN, declaration_of, message, seal
from colonnade.session.control import Goodbye, Hello


@message(sender="one", receiver="other", protection=PLAIN, step="forward")
class Numbers:
    """Some numbers. Reveals: them."""

    values: np.ndarray


DIGEST = hashlib.sha256(b"plan").hexdigest()


class Books:
    """Two parties' ledgers of one made-up run, written with the real writer."""

    def __init__(self, writers: dict[str, LedgerWriter]) -> None:
        self.writers = writers
        self.counts: dict[tuple[str, str, bytes], int] = {}

    def open(self, digest: str = DIGEST) -> None:
        for name, writer in self.writers.items():
            writer.mark("opened", party=name, role="some role", run="run", digest=digest, method="m", stage="train")

    def cross(self, sender: str, receiver: str, content: Any, *, context: bytes, arrives: bool = True) -> None:
        key = (sender, receiver, context)
        sequence = self.counts.get(key, 0)
        self.counts[key] = sequence + 1
        declaration = declaration_of(content)
        header, _ = seal(declaration, content, context=context, sequence=sequence, step=sequence)
        shapes = declaration.shapes(content)
        self.writers[sender].message("sent", receiver, declaration, header, shapes)
        if arrives:
            self.writers[receiver].message("received", sender, declaration, header, shapes)

    def exchange(self, rounds: int, incarnation: int = 0) -> None:
        there, back = (f"there {incarnation}".ljust(16).encode(), f"back {incarnation}".ljust(16).encode())
        for number in range(rounds):
            self.cross("bank", "shop", Numbers(np.full((2, number + 1), number, "<f4")), context=there)
            self.cross("shop", "bank", Numbers(np.full((3,), number, "<f8")), context=back)

    def close(self, incarnation: int = 0) -> None:
        there, back = (f"there {incarnation}".ljust(16).encode(), f"back {incarnation}".ljust(16).encode())
        self.cross("bank", "shop", Goodbye(b"a", b"b"), context=there)
        self.cross("shop", "bank", Goodbye(b"b", b"a"), context=back)
        for name, peer in (("bank", "shop"), ("shop", "bank")):
            self.writers[name].mark("disconnected", peer=peer, connections=[there.hex(), back.hex()])
            self.writers[name].mark("closed", step=3)

    def ledgers(self) -> tuple[Ledger, Ledger]:
        return self.writers["bank"].read(), self.writers["shop"].read()


@pytest.fixture
def books() -> Books:
    return Books({"bank": LedgerWriter(), "shop": LedgerWriter()})


@pytest.fixture
def finished(books: Books) -> Books:
    books.open()
    hello = Hello("1", "bank", "r", "run", "train", (), b"", bytes(16))
    books.cross("bank", "shop", hello, context=b"greeting".ljust(16))
    books.cross("shop", "bank", hello, context=b"greeting".ljust(16))
    books.exchange(4)
    books.close()
    return books


Rewrite = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]


@pytest.fixture
def rewritten() -> Callable[[Ledger, Rewrite], Ledger]:
    """Edit a ledger's entries and recompute the whole chain, as one who owns the file can."""

    def rewrite(ledger: Ledger, edit: Rewrite) -> Ledger:
        contents = edit([json.loads(json.dumps(entry.content)) for entry in ledger.entries])
        previous, lines = GENESIS, []
        for index, content in enumerate(contents):
            line, previous = chain(previous, {**content, "index": index})
            lines.append(line)
        made = Ledger(b"".join(lines), "rewritten")
        made.verify_chain()
        return made

    return rewrite
