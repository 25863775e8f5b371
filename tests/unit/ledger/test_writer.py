from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from colonnade.errors import LedgerBroken, LedgerUnfinished, RunFolderError
from colonnade.ledger import Ledger, LedgerWriter
from colonnade.messages import PLAIN, declaration_of, message
from colonnade.session import Channel, Policy, ScriptedLink


@message(sender="one", receiver="other", protection=PLAIN, step="forward")
class Note:
    """A note. Reveals: it."""

    text: str


def fill(path: Path, closes: bool = False) -> bytes:
    with LedgerWriter(path) as writer:
        writer.mark("opened", party="bank", digest="d")
        writer.mark("checkpoint", step=1)
        writer.mark("checkpoint", step=2)
        if closes:
            writer.mark("closed", step=2)
    return path.read_bytes()


def test_a_file_and_memory_hold_the_same_kind_of_ledger(tmp_path: Path) -> None:
    memory = LedgerWriter()
    with LedgerWriter(tmp_path / "run" / "ledger.jsonl") as file:
        for writer in (memory, file):
            writer.mark("opened", party="bank", digest="d")
            writer.mark("closed", step=0)
        for writer in (memory, file):
            writer.read().verify()
    assert [entry.kind for entry in memory.read().entries] == [entry.kind for entry in file.read().entries]


def test_only_the_owner_may_read_the_file(tmp_path: Path) -> None:
    fill(tmp_path / "ledger.jsonl")
    assert (tmp_path / "ledger.jsonl").stat().st_mode & 0o777 == 0o600


def test_reopening_goes_on_where_the_ledger_ends(tmp_path: Path) -> None:
    before = fill(tmp_path / "ledger.jsonl")
    after = fill(tmp_path / "ledger.jsonl", closes=True)
    assert after.startswith(before)
    ledger = Ledger.read(tmp_path / "ledger.jsonl")
    ledger.verify()
    assert [entry.index for entry in ledger.entries] == list(range(7))


def test_a_torn_last_line_is_dropped_and_the_drop_is_recorded(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    whole = fill(path)
    start = whole.rstrip(b"\n").rfind(b"\n") + 1
    for kept in range(start + 1, len(whole)):
        path.write_bytes(whole[:kept])
        with LedgerWriter(path) as writer:
            writer.mark("closed", step=1)
        ledger = Ledger.read(path)
        ledger.verify()
        assert [entry.kind for entry in ledger.entries] == ["opened", "checkpoint", "recovered", "closed"]
        assert ledger.entries[2].content["dropped_bytes"] == kept - start


def test_a_torn_first_line_leaves_a_fresh_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b'{"index":0,"ti')
    fill(path, closes=True)
    ledger = Ledger.read(path)
    ledger.verify()
    assert ledger.entries[0].kind == "opened"


def test_reopening_a_changed_file_is_refused_and_leaves_it_alone(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    changed = fill(path).replace(b'"step":1', b'"step":3')
    path.write_bytes(changed)
    opened_before = set(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else set()
    with pytest.raises(LedgerBroken, match="does not follow"):
        LedgerWriter(path)
    assert path.read_bytes() == changed
    if opened_before:
        assert len(os.listdir("/proc/self/fd")) == len(opened_before)


def test_a_second_writer_is_refused_before_it_looks_at_a_file_in_motion(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    with LedgerWriter(path):
        path.write_bytes(b"half of something else\n")
        with pytest.raises(RunFolderError, match="Another process"):
            LedgerWriter(path)
        assert path.read_bytes() == b"half of something else\n"


def test_a_writer_that_was_refused_does_not_stand_in_the_way_of_the_next(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    sound = fill(path)
    path.write_bytes(sound.replace(b'"step":1', b'"step":3'))
    for _ in range(2):
        with pytest.raises(LedgerBroken, match="does not follow"):
            LedgerWriter(path)
    path.write_bytes(sound)
    fill(path, closes=True)
    Ledger.read(path).verify()


def test_a_torn_line_longer_than_a_block_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("colonnade.ledger.writer._BLOCK", 7)
    path = tmp_path / "ledger.jsonl"
    sound = fill(path)
    for torn in (b"", b"x", b"x" * 6, b"x" * 7, b"x" * 8, b"x" * 100):
        path.write_bytes(sound + torn)
        fill(path, closes=True)
        marks = [entry.content for entry in Ledger.read(path).entries if entry.kind == "recovered"]
        assert [mark["dropped_bytes"] for mark in marks] == ([len(torn)] if torn else [])


def test_a_ledger_that_was_never_closed_is_unfinished(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    fill(path)
    with pytest.raises(LedgerUnfinished, match="never closed"):
        Ledger.read(path).verify()
    with LedgerWriter(path) as writer:
        writer.mark("failed", cause="x")
    with pytest.raises(LedgerUnfinished):
        Ledger.read(path).verify()


def test_an_empty_ledger_and_one_without_its_front_are_broken() -> None:
    with pytest.raises(LedgerBroken, match="empty"):
        Ledger(b"", "empty").verify()
    writer = LedgerWriter()
    writer.mark("closed")
    with pytest.raises(LedgerBroken, match="opening mark"):
        writer.read().verify()


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"no-such\.jsonl"):
        Ledger.read(tmp_path / "no-such.jsonl")


def test_marks_may_not_pose_as_messages() -> None:
    with pytest.raises(ValueError, match="message"):
        LedgerWriter().mark("sent")


def test_a_closed_writer_records_nothing_more(tmp_path: Path) -> None:
    writer = LedgerWriter(tmp_path / "ledger.jsonl")
    writer.mark("opened", party="bank", digest="d")
    writer.close()
    writer.close()
    with pytest.raises(LedgerBroken, match="closed"):
        writer.mark("late")


def test_threads_writing_at_once_still_make_one_chain(tmp_path: Path) -> None:
    with LedgerWriter(tmp_path / "ledger.jsonl") as writer:
        writer.mark("opened", party="bank", digest="d")
        threads = [threading.Thread(target=lambda: [writer.mark("tick") for _ in range(50)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        writer.mark("closed")
        writer.read().verify()
        assert len(writer.read().entries) == 202


WRITES_UNTIL_KILLED = """
import sys
from pathlib import Path
from colonnade.ledger import LedgerWriter
from colonnade.messages import PLAIN, Header, declaration_of, message

@message(sender="one", receiver="other", protection=PLAIN, step="forward")
class Note:
    '''A note. Reveals: it.'''
    text: str

writer = LedgerWriter(Path(sys.argv[1]))
writer.mark("opened", party="bank", digest="d")
declaration = declaration_of(Note)
number = 0
while True:
    writer.message("sent", "shop", declaration, Header(bytes(16), number, 0, declaration.schema, 3, bytes(32)), {})
    number += 1
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
"""


def test_a_killed_process_leaves_every_line_it_had_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    writing = subprocess.Popen(
        [sys.executable, "-c", WRITES_UNTIL_KILLED, str(path)], stdout=subprocess.PIPE, text=True
    )
    assert writing.stdout is not None
    try:
        for line in writing.stdout:
            if int(line) >= 200:
                break
        writing.send_signal(signal.SIGKILL)
        acknowledged = max(int(line) for line in [line, *writing.stdout.read().split("\n")[:-1]])
    finally:
        writing.kill()
        writing.stdout.close()
        writing.wait()
    with LedgerWriter(path) as writer:
        writer.mark("closed")
    ledger = Ledger.read(path)
    ledger.verify()
    assert len(list(ledger.messages())) >= acknowledged >= 200


def channel_to(ledger: LedgerWriter) -> tuple[Channel, ScriptedLink]:
    link = ScriptedLink([])
    made = Channel(
        link,
        party="bank",
        role="one",
        peer="shop",
        peer_role="other",
        run="run",
        declarations=[declaration_of(Note)],
        ledger=ledger,
        policy=Policy(),
        step=lambda: 0,
    )
    return made, link


def failing(kind: str, real: Any) -> Any:
    def write(file: int, content: bytes) -> int:
        if kind == "full":
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(real(file, content[: len(content) // 2]))

    return write


@pytest.mark.parametrize("kind", ["full", "short"])
def test_nothing_is_sent_when_the_ledger_cannot_be_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ledger.jsonl"
    with LedgerWriter(path) as ledger:
        ledger.mark("opened", party="bank", digest="d")
        channel, link = channel_to(ledger)
        channel.send(Note("first"))
        with monkeypatch.context() as patch:
            patch.setattr("colonnade.ledger.writer.os.write", failing(kind, os.write))
            with pytest.raises(LedgerBroken, match="may be sent"):
                channel.send(Note("second"))
        assert len(link.sent) == 1
        # Once there is room again, the chain goes on unharmed.
        channel.send(Note("third"))
        ledger.mark("closed")
        ledger.read().verify()
    assert len(link.sent) == 2
    assert len(list(Ledger.read(path).messages())) == 2


def test_a_message_is_in_the_ledger_before_it_is_on_the_line() -> None:
    ledger = LedgerWriter()
    channel, link = channel_to(ledger)
    seen = []
    real = link.send
    link.send = lambda parts, _: (seen.append(len(list(ledger.read().messages()))), real(parts))  # type: ignore[method-assign,assignment]
    channel.send(Note("one"))
    channel.send(Note("two"))
    assert seen == [1, 2]


def test_the_summary_adds_up(finished: Any) -> None:
    bank, shop = finished.ledgers()
    totals = {(one.direction, one.message): one for one in bank.summary()}
    sent = totals["sent", "Numbers"]
    assert (sent.count, sent.peer, sent.protection, sent.shapes) == (4, "shop", "PLAIN", {"values": [2, 4]})
    assert sent.bytes == sum(
        e.content["bytes"] for e in bank.messages() if (e.kind, e.content["message"]) == ("sent", "Numbers")
    )
    assert totals["received", "Numbers"].shapes == {"values": [3]}
    assert totals["received", "Numbers"].bytes == 4 * (8 * 3 + 16)
    assert bank.bytes_sent()["PLAIN"] == sum(one.bytes for one in shop.summary() if one.direction == "received")
    assert sum(one.count for one in bank.summary()) == len(list(bank.messages()))


def test_the_ledger_records_the_declared_facts_of_a_message() -> None:
    ledger = LedgerWriter()
    channel, link = channel_to(ledger)
    channel.send(Note("one"))
    (entry,) = ledger.read().messages()
    assert entry.content["message"] == "Note"
    assert entry.content["protection"] == "PLAIN"
    assert entry.content["bytes"] == len(link.sent[0]) - 128
    assert "one" not in str(entry.content["payload"])
    assert entry.content["shapes"] == declaration_of(Note).shapes(Note("x")) == {}
