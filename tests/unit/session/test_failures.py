"""When one party fails, the others stop soon and say which party, at which step and why; and no secret gets out."""

from __future__ import annotations

import errno
import time
from pathlib import Path
from typing import Any

import pytest
from tests.unit.session.toys import Play, helper, lead, method

from colonnade.errors import (
    ConfigError,
    LedgerBroken,
    LedgerUnfinished,
    PeerFailed,
    PeerLost,
    PolicyRefused,
    RoleFailed,
    RunFolderError,
    TrainingFailed,
)
from colonnade.ledger import LedgerWriter, compare
from colonnade.session import Result

SECRET = "salary 98765.4321 of Mrs Example"


def failing(real: Any, party: str, step: int, error: BaseException) -> Any:
    def code(session: Any, holding: Any, config: Any) -> Result:
        if session.party != party:
            return real(session, holding, config)  # type: ignore[no-any-return]
        advance = session.next_step

        def next_step() -> None:
            advance()
            if session.step == step:
                raise error

        session.next_step = next_step
        return real(session, holding, config)  # type: ignore[no-any-return]

    return code


def play_with(parties: tuple[str, ...], failed: str, step: int, error: BaseException, folder: Path) -> Any:
    broken = method(failing(lead, failed, step, error), failing(helper, failed, step, error))
    played = Play(parties, methods=dict.fromkeys(parties, broken), folder=folder)
    began = time.monotonic()
    outcomes = played.run()
    assert time.monotonic() - began < 5
    return played, outcomes


@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telco")], ids=len)
@pytest.mark.parametrize("failed", ["bank", "shop"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_foreseen_error_reaches_every_peer(tmp_path: Path, parties: tuple[str, ...], failed: str, step: int) -> None:
    error = TrainingFailed("The loss is no longer a number. Lower learning_rate.")
    played, outcomes = play_with(parties, failed, step, error, tmp_path)
    assert outcomes.pop(failed) is error
    for party, heard in outcomes.items():
        assert isinstance(heard, PeerFailed), (party, heard)
        assert (heard.party, heard.step, heard.cause) == (failed, step, str(error))
        assert str(heard) == f"'{failed}' stopped at step {step}: {error}"
    for session in played.sessions.values():
        ledger = session.ledger.read()
        with pytest.raises(LedgerUnfinished):
            ledger.verify()
        last = ledger.entries[-1]
        assert (last.kind, last.content["party"], last.content["cause"]) == ("failed", failed, str(error))
    for party in parties[1:]:
        compare(played.sessions["bank"].ledger.read(), played.sessions[party].ledger.read())


@pytest.mark.parametrize("parties", [("bank", "shop"), ("bank", "shop", "telco")], ids=len)
@pytest.mark.parametrize("failed", ["bank", "shop"])
def test_an_unforeseen_error_tells_the_peers_its_kind_and_nothing_of_its_text(
    tmp_path: Path, parties: tuple[str, ...], failed: str
) -> None:
    played, outcomes = play_with(parties, failed, 2, KeyError(SECRET), tmp_path)
    own = outcomes.pop(failed)
    assert isinstance(own, RoleFailed)
    assert f"'{failed}' failed at step 2 with an unforeseen KeyError" in str(own)
    assert SECRET not in str(own)
    for heard in outcomes.values():
        assert isinstance(heard, PeerFailed)
        assert (heard.party, heard.step, heard.cause) == (failed, 2, "an unforeseen KeyError.")
    frames = b"".join(frame for _, _, frame in played.frames)
    ledgers = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    for part in (SECRET, "98765.4321", "Example"):  # a dot: hashes in ledgers hold any short number by chance
        assert part.encode() not in frames
        assert part.encode() not in ledgers
        assert all(part not in str(heard) for heard in outcomes.values())


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (KeyboardInterrupt(SECRET), "its operator interrupted the run."),
        (SystemExit(SECRET), "its operator interrupted the run."),
        (MemoryError(SECRET), "an unforeseen MemoryError."),
    ],
    ids=["interrupt", "exit", "memory"],
)
def test_even_an_interrupt_is_told_to_the_peers(tmp_path: Path, error: BaseException, cause: str) -> None:
    played, outcomes = play_with(("bank", "shop"), "shop", 2, error, tmp_path)
    assert isinstance(outcomes["bank"], PeerFailed)
    assert outcomes["bank"].cause == cause
    assert SECRET.encode() not in b"".join(frame for _, _, frame in played.frames)


@pytest.mark.parametrize(
    ("error", "returns"),
    [
        (KeyboardInterrupt(), True),
        (OSError(28, "No space left on device"), True),
        (PeerLost("gone"), True),
        (TrainingFailed("no number"), False),
        (ConfigError("wrong"), False),
        (PolicyRefused("no"), False),
        (KeyError(SECRET), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_peers_learn_whether_nothing_needs_to_change_before_the_run_goes_on(
    tmp_path: Path, error: BaseException, returns: bool
) -> None:
    parties = ("bank", "shop", "telco")
    _, outcomes = play_with(parties, "shop", 2, error, tmp_path)
    for party in ("bank", "telco"):
        heard = outcomes[party]
        assert isinstance(heard, PeerFailed), (party, heard)
        assert (heard.party, heard.returns) == ("shop", returns), "also where the lead passes it on"


def test_a_full_disk_is_told_to_the_peers_without_a_path(tmp_path: Path) -> None:
    full = OSError(28, "No space left on device", SECRET)
    _, outcomes = play_with(("bank", "shop"), "shop", 2, full, tmp_path)
    assert isinstance(outcomes["shop"], RunFolderError)
    assert "No space left on device). Free some space" in str(outcomes["shop"])
    assert outcomes["bank"].cause == "it could not write to its run folder."


@pytest.mark.parametrize(("number", "advice"), [(errno.EMFILE, "ulimit -n"), (errno.ENFILE, "on this machine")])
def test_too_many_open_files_are_told_apart_from_a_full_disk(tmp_path: Path, number: int, advice: str) -> None:
    _, outcomes = play_with(("bank", "shop"), "shop", 2, OSError(number, "Too many open files"), tmp_path)
    assert isinstance(outcomes["shop"], RunFolderError)
    assert advice in str(outcomes["shop"])
    assert "space" not in str(outcomes["shop"])


def test_an_error_text_that_is_not_unicode_still_reaches_the_peers(tmp_path: Path) -> None:
    """File names may hold surrogates, and error texts may hold file names."""
    _, outcomes = play_with(("bank", "shop"), "shop", 1, TrainingFailed("bad \udcff \x1b[2J name"), tmp_path)
    assert isinstance(outcomes["bank"], PeerFailed)
    assert outcomes["bank"].cause == r"bad \udcff \x1b[2J name"


def test_a_very_long_error_text_reaches_the_peers_cut(tmp_path: Path) -> None:
    _, outcomes = play_with(("bank", "shop"), "shop", 1, TrainingFailed("x" * 3_000_000), tmp_path)
    assert isinstance(outcomes["bank"], PeerFailed)
    assert outcomes["bank"].cause.startswith("xxx")
    assert len(str(outcomes["bank"])) < 2000


def test_a_ledger_that_cannot_be_written_ends_the_run_with_that_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = LedgerWriter._append
    full = []

    def append(writer: LedgerWriter, text: str) -> None:
        if '"kind":"sent"' in text and '"message":"Answer"' in text:
            full.append(writer)
        if writer in full:
            raise LedgerBroken("The ledger cannot be written (No space left on device), so nothing may be sent.")
        real(writer, text)

    monkeypatch.setattr(LedgerWriter, "_append", append)
    played = Play(folder=tmp_path)
    outcomes = played.run()
    assert isinstance(outcomes["shop"], LedgerBroken)
    assert "No space left" in str(outcomes["shop"])
    # Nothing could be recorded any more, so nothing was sent, not even last words; the peer sees it leave.
    assert not isinstance(outcomes["bank"], Result)
    sent_by_shop = [frame for sender, _, frame in played.frames if sender == "shop"]
    assert len(sent_by_shop) == 2  # Hello and HeldCheckpoints


def test_failing_while_saying_goodbye_ends_everyone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from colonnade.session import Channel

    real = Channel.transcript

    def transcript(channel: Channel) -> tuple[bytes, bytes]:
        if channel.party == "shop":
            raise ZeroDivisionError
        return real(channel)

    monkeypatch.setattr(Channel, "transcript", transcript)
    outcomes = Play(folder=tmp_path).run()
    assert isinstance(outcomes["shop"], RoleFailed)
    assert isinstance(outcomes["bank"], PeerFailed)


@pytest.mark.parametrize("step", [1, 5])
@pytest.mark.parametrize("failed", ["bank", "shop", "telco"])
def test_a_failure_in_real_training_is_told_to_all(
    trial: Any, monkeypatch: pytest.MonkeyPatch, failed: str, step: int
) -> None:
    from colonnade.ledger import Ledger
    from colonnade.session import Session

    real = Session.next_step

    def next_step(session: Session) -> None:
        real(session)
        if (session.party, session.step) == (failed, step):
            raise RuntimeError(SECRET)

    monkeypatch.setattr(Session, "next_step", next_step)
    run = trial(parties=3)
    began = time.monotonic()
    with pytest.raises(RoleFailed, match=f"'{failed}' failed at step {step} with an unforeseen RuntimeError"):
        run.run()
    assert time.monotonic() - began < 10
    for party in ("bank", "shop", "telco"):
        path = run.folder / party / "ledger.jsonl"
        last = Ledger.read(path).entries[-1]
        assert last.kind == "failed"
        assert last.content["party"] == failed
        assert last.content["cause"] == "an unforeseen RuntimeError."
    assert not any(SECRET.encode() in path.read_bytes() for path in run.folder.rglob("*") if path.is_file())


def test_an_interrupt_in_the_middle_of_a_send_leaves_the_peer_waiting_not_refusing(tmp_path: Path) -> None:
    """The torn message has used up its number, so last words after it would look like a frame that was lost."""

    def torn(session: Any, holding: Any, config: Any) -> Result:
        def interrupted(parts: Any, body_digest: bytes) -> None:
            raise KeyboardInterrupt

        session.channel("lead")._link.send = interrupted
        return helper(session, holding, config)

    broken = method(lead, torn)
    played = Play(methods={"bank": broken, "shop": broken}, folder=tmp_path)
    outcomes = played.run()
    assert isinstance(outcomes["shop"], KeyboardInterrupt)
    assert type(outcomes["bank"]) is PeerLost
