"""Ledgers are read line by line, and a file that changes meanwhile is noticed."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.ledger.conftest import Books, Numbers

from colonnade.errors import LedgerBroken, RunFolderError
from colonnade.ledger import Ledger, LedgerWriter, compare


def write(folder: Path, rounds: int, hidden: int = 0) -> tuple[Path, Path]:
    """Write two ledgers; the last ``hidden`` messages never arrive."""
    paths = {name: folder / name / "ledger.jsonl" for name in ("bank", "shop")}
    books = Books({name: LedgerWriter(path) for name, path in paths.items()})
    books.open()
    content, context = Numbers(np.zeros((2, 3), "<f4")), b"there".ljust(16)
    for number in range(rounds):
        books.cross("bank", "shop", content, context=context, arrives=number < rounds - hidden)
    if not hidden:
        books.close()
    for writer in books.writers.values():
        writer.close()
    return paths["bank"], paths["shop"]


def peak(work: Callable[[], Any]) -> int:
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("hidden", [0, 5])
def test_memory_does_not_grow_with_the_number_of_entries(tmp_path: Path, hidden: int) -> None:
    def work(bank: Path, shop: Path) -> None:
        first, second = Ledger.read(bank), Ledger.read(shop)
        for ledger in (first, second):
            ledger.verify_chain()
            ledger.summary()
            assert sum(1 for _ in ledger.messages()) > 0
        compare(first, second)
        LedgerWriter(bank).close()

    short, long = write(tmp_path / "short", 300, hidden), write(tmp_path / "long", 3000, hidden)
    # The first pass also pays for what the interpreter keeps, such as compiled patterns.
    work(*short)
    little, much = peak(lambda: work(*short)), peak(lambda: work(*long))
    assert long[0].stat().st_size > 1_000_000
    assert much < little + 100_000


def test_a_ledger_is_what_it_was_when_it_was_read(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    with LedgerWriter(path) as writer:
        writer.mark("opened", party="bank", digest="d")
        before = writer.read()
        writer.mark("checkpoint", step=1)
        assert [entry.kind for entry in before.entries] == ["opened"]
        writer.mark("checkpoint", step=2)
        assert len(before.entries) == len(list(before.entries)) == 1
        assert len(writer.read().entries) == 3


@pytest.mark.parametrize("change", ["replaced", "cut", "removed"])
def test_a_file_that_changes_after_it_was_verified_is_noticed(tmp_path: Path, change: str) -> None:
    path, _ = write(tmp_path / "one", 3)
    other, _ = write(tmp_path / "other", 3)
    ledger = Ledger.read(path)
    ledger.verify()
    totals = ledger.summary()
    if change == "replaced":
        path.write_bytes(other.read_bytes())
    elif change == "cut":
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:3]))
    else:
        path.unlink()
    with pytest.raises(RunFolderError if change == "removed" else LedgerBroken):
        list(ledger.entries)
    assert ledger.summary() == totals


def test_entries_can_be_indexed_like_a_tuple(finished: Any) -> None:
    ledger, _ = finished.ledgers()
    whole = tuple(ledger.entries)
    assert len(ledger.entries) == len(whole) > 10
    for index in (0, 1, 7, len(whole) - 1, -1, -2, -len(whole)):
        assert ledger.entries[index] == whole[index]
    for index in (len(whole), -len(whole) - 1):
        with pytest.raises(IndexError):
            ledger.entries[index]
    assert ledger.entries[2:5] == whole[2:5]
    assert tuple(reversed(ledger.entries)) == whole[::-1]
    assert not Ledger(b"", "empty").entries


def test_no_entry_is_handed_out_before_the_whole_chain_was_checked(finished: Any) -> None:
    lines = finished.ledgers()[0]._content.splitlines(keepends=True)
    broken = Ledger(b"".join([*lines[:-1], lines[-2]]), "broken")
    with pytest.raises(LedgerBroken):
        _ = broken.entries
    with pytest.raises(LedgerBroken):
        broken.messages()
