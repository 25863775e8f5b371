"""A peer that lies, replays, reflects, stalls or leaves: every case ends in its named error, and nothing hangs.

The hostile party greets honestly, then speaks to the line directly, past every check of its own channel.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
import torch
from tests.adversary.hostile import any_text
from tests.references import shared_rows
from tests.unit.session import toys
from tests.unit.session.toys import Answer, Ask, Play

from colonnade.errors import (
    Deadlock,
    FrameRefused,
    OutOfStep,
    PeerFailed,
    PeerLost,
    ProtocolError,
    RoleFailed,
    WrongContent,
)
from colonnade.ledger import LedgerWriter, compare
from colonnade.messages import PLAIN, declaration_of, message, seal
from colonnade.methods.splitnn import METHOD, SplitNN
from colonnade.methods.splitnn.messages import CutActivations, CutGradient, CutWidth, HeldOutActivations
from colonnade.session import Channel, Policy, RunPlan, ScriptedLink, Session
from colonnade.session.channel import _GREETING
from colonnade.session.control import Failed, Goodbye, Hello, ResumeFrom
from colonnade.session.handshake import agree_on_resume, greet
from colonnade.training import Verdict


class Hostile:
    """One end of a connected line, with nothing between it and the peer."""

    def __init__(self, session: Session) -> None:
        greet(session)
        agree_on_resume(session)
        (self.channel,) = session.all_channels
        self.link = self.channel._link
        self.context = self.channel._outgoing
        self.sequence = self.channel._sent_count

    def frame(self, content: Any, *, context: bytes | None = None, sequence: int | None = None, step: int = 0) -> bytes:
        return ScriptedLink.frame(
            content,
            context=self.context if context is None else context,
            sequence=self.sequence if sequence is None else sequence,
            step=step,
            declaration=self.channel.declaration(type(content)),
        )

    def say(self, content: Any, **how: Any) -> bytes:
        frame = self.frame(content, **how)
        self.link.send([frame])
        self.sequence += 1
        return frame

    def hear(self) -> bytes:
        return bytes(self.link.receive())

    def answer(self, number: int = 1) -> None:
        for _ in range(number):
            self.hear()
            self.say(Answer(np.zeros(2)))


def against(code: Callable[[Hostile], Any], **how: Any) -> Any:
    """Return what the honest lead ends with when the helper behaves like this."""

    def run(session: Session) -> None:
        try:
            code(Hostile(session))
            while True:
                session.all_channels[0]._link.receive()
        except ProtocolError:
            return

    began = time.monotonic()
    error = Play(code={"shop": run}, **how).run()["bank"]
    assert time.monotonic() - began < 5
    return error


def ends_in(kind: type, match: str, code: Callable[[Hostile], Any], **how: Any) -> None:
    error = against(code, **how)
    assert type(error) is kind, repr(error)
    assert match in str(error), str(error)
    assert str(error).isprintable()
    assert len(str(error)) < 2500


def test_an_honest_script_is_accepted_up_to_its_goodbye() -> None:
    """The scripts below differ from this one in one point each."""

    def code(peer: Hostile) -> None:
        peer.answer(toys.ROUNDS)

    error = against(code)
    assert type(error) is Deadlock
    assert "'bank' for 'shop'" in str(error)


def test_a_wrong_message_is_out_of_step() -> None:
    ends_in(
        OutOfStep, "expected Answer from 'shop' at step 1 but got Goodbye", lambda peer: peer.say(Goodbye(b"", b""))
    )
    ends_in(OutOfStep, "but got ResumeFrom", lambda peer: peer.say(ResumeFrom(3)))


def test_a_second_greeting_is_out_of_step() -> None:
    hello = Hello("0.1.0/1", "shop", "helper", "run", "train", (), bytes(32), bytes(16))
    ends_in(OutOfStep, "but got Hello", lambda peer: peer.say(hello))


def test_a_message_of_the_wrong_role_is_out_of_step() -> None:
    ends_in(OutOfStep, "a message that helper may not send", lambda peer: peer.say(Ask(np.zeros(2))))


def test_an_undeclared_message_is_out_of_step() -> None:
    @message(sender="helper", receiver="lead", protection=PLAIN, step="aside")
    class Aside:
        """A surprise. Reveals: it."""

        values: np.ndarray

    ends_in(OutOfStep, "may not send here", lambda peer: peer.say(Aside(np.zeros(2))))


@pytest.mark.parametrize("shape", [(), (1,), (3,), (2, 1), (1, 2), (0,), (2, 0)])
def test_a_wrong_shape_is_wrong_content(shape: tuple[int, ...]) -> None:
    text = f"at step 1 refused Answer from 'shop'. Its field values has the shape {shape} where (2,) belongs"
    ends_in(WrongContent, text, lambda peer: peer.say(Answer(np.zeros(shape))))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_a_value_that_is_not_finite_is_wrong_content(value: float, dtype: str) -> None:
    ends_in(WrongContent, "not numbers", lambda peer: peer.say(Answer(np.array([0.0, value], dtype))))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_infinities_that_cancel_are_wrong_content(dtype: str) -> None:
    ends_in(WrongContent, "not numbers", lambda peer: peer.say(Answer(np.array([np.inf, -np.inf], dtype))))


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
def test_numbers_whose_sum_is_beyond_all_bounds_are_numbers(dtype: str) -> None:
    """So that it goes on to the second round, where the script has nothing more to say."""
    error = against(lambda peer: peer.say(Answer(np.full(2, np.finfo(dtype).max, dtype))))
    assert not isinstance(error, WrongContent), repr(error)
    assert not isinstance(error, RoleFailed), repr(error)


def test_a_replayed_frame_is_refused() -> None:
    def code(peer: Hostile) -> None:
        peer.hear()
        frame = peer.say(Answer(np.zeros(2)))
        peer.hear()
        peer.link.send([frame])

    ends_in(FrameRefused, "replayed, reordered or lost", code)


def test_frames_out_of_order_are_refused() -> None:
    def code(peer: Hostile) -> None:
        first = peer.frame(Answer(np.zeros(2)))
        second = peer.frame(Answer(np.ones(2)), sequence=peer.sequence + 1)
        peer.link.send([second])
        peer.link.send([first])

    ends_in(FrameRefused, "replayed, reordered or lost", code)


def test_a_frame_left_out_is_refused() -> None:
    ends_in(FrameRefused, "reordered or lost", lambda peer: peer.say(Answer(np.zeros(2)), sequence=peer.sequence + 1))


def test_a_frame_with_a_huge_sequence_number_is_refused() -> None:
    ends_in(FrameRefused, "reordered or lost", lambda peer: peer.say(Answer(np.zeros(2)), sequence=2**64 - 1))


def test_a_frame_of_another_run_is_refused() -> None:
    parties = ("bank", "shop")
    plans = dict.fromkeys(parties, toys.plan(parties, seed=2))
    other = Play(parties, plans=plans)
    other.run()
    foreign = [frame for sender, receiver, frame in other.frames if (sender, receiver) == ("shop", "bank")]
    for frame in foreign[1:]:
        ends_in(FrameRefused, "another run, connection", lambda peer, frame=frame: peer.link.send([frame]))


def test_a_frame_of_an_earlier_incarnation_is_refused() -> None:
    earlier = Play()
    earlier.run()
    old = [frame for sender, receiver, frame in earlier.frames if (sender, receiver) == ("shop", "bank")]
    for frame in old[1:]:
        ends_in(FrameRefused, "another run, connection", lambda peer, frame=frame: peer.link.send([frame]))


def test_a_replayed_greeting_of_an_earlier_incarnation_leads_nowhere() -> None:
    earlier = Play()
    earlier.run()
    old = [frame for sender, receiver, frame in earlier.frames if (sender, receiver) == ("shop", "bank")]

    def run(session: Session) -> None:
        (channel,) = session.all_channels
        for frame in old:
            channel._link.send([frame])
        # Whoever leaves at once may be missed before its frames are read.
        with suppress(ProtocolError):
            while True:
                channel._link.receive()

    error = Play(code={"shop": run}).run()["bank"]
    assert type(error) is FrameRefused


def test_our_own_frame_reflected_is_refused() -> None:
    def code(peer: Hostile) -> None:
        peer.link.send([peer.hear()])

    ends_in(FrameRefused, "another run, connection or direction", code)


def test_our_own_greeting_reflected_is_refused() -> None:
    def run(session: Session) -> None:
        (channel,) = session.all_channels
        channel._link.send([bytes(channel._link.receive())])

    error = Play(code={"shop": run}).run()["bank"]
    assert "expected helper 'shop' but was greeted by lead 'bank'" in str(error)


def test_a_damaged_frame_is_refused() -> None:
    def code(peer: Hostile) -> None:
        frame = bytearray(peer.frame(Answer(np.zeros(2))))
        frame[-1] ^= 1
        peer.link.send([frame])

    ends_in(FrameRefused, "body does not match its digest", code)


@pytest.mark.parametrize("junk", [b"", b"\x00", b"GET / HTTP/1.1\r\n\r\n", bytes(128), b"CLND" + bytes(200)])
def test_bytes_that_are_no_frame_are_refused(junk: bytes) -> None:
    ends_in(FrameRefused, "refused", lambda peer: peer.link.send([junk]))


def test_silence_ends_in_a_loss() -> None:
    def code(session: Session) -> None:
        Hostile(session)
        time.sleep(1.0)

    error = Play(code={"shop": code}, silence_seconds=0.3).run()["bank"]
    assert type(error) is PeerLost
    assert "'shop' has said nothing to 'bank' for 0.3 s" in str(error)


def test_waiting_for_ever_on_both_sides_ends_in_a_deadlock() -> None:
    def code(peer: Hostile) -> None:
        peer.hear()
        peer.hear()

    ends_in(Deadlock, "'bank' for 'shop'", code)


@pytest.mark.parametrize("rounds", [0, 1, 2])
def test_leaving_in_the_middle_ends_in_a_loss(rounds: int) -> None:
    def code(session: Session) -> None:
        Hostile(session).answer(rounds)

    played = Play(code={"shop": code})
    error = played.run()["bank"]
    assert type(error) is PeerLost
    assert "'shop'" in str(error)
    marks = [entry for entry in played.sessions["bank"].ledger.read().entries if entry.kind == "failed"]
    assert len(marks) == 1
    assert marks[0].content["party"] == "bank"


def test_leaving_before_the_greeting_ends_in_a_loss() -> None:
    error = Play(code={"shop": lambda session: None}).run()["bank"]
    assert type(error) is PeerLost


@pytest.mark.parametrize(
    ("party", "step", "cause"),
    [
        ("shop", 3, "x" * 1_000_000),
        ("shop", 3, "\x1b]0;owned\x07\x1b[2J\r\n\x00\u202e\u2028 done"),
        ("\x1b[31m" + "y" * 1_000_000, 3, "fine"),
        ("shop", 2**12000, "fine"),
        ("shop", -1, "fine"),
        ("shop", 3, ""),
        ("bank", 3, "you did it yourself"),
    ],
    ids=["long", "control", "name", "huge step", "negative step", "empty", "blame"],
)
def test_hostile_last_words_are_shown_short_and_harmless(party: str, step: int, cause: str) -> None:
    def run(session: Session) -> None:
        Hostile(session).say(Failed(party, step, cause, True))

    played = Play(code={"shop": run})
    with any_text():
        error = played.run()["bank"]
    assert isinstance(error, PeerFailed | PeerLost | WrongContent)
    is_read = len(party) < 99 and len(cause) < 99 and cause.isprintable() and step == 3
    assert isinstance(error, PeerFailed) is is_read
    assert str(error).isprintable()
    assert len(str(error)) < 2500
    ledger = played.sessions["bank"].ledger.read()
    assert all(len(str(entry.content)) < 4000 for entry in ledger.entries)


def test_hostile_last_words_are_not_passed_on_as_they_came() -> None:
    parties = ("bank", "shop", "telco")

    def run(session: Session) -> None:
        Hostile(session).say(Failed("shop", 2**12000, "\x1b[2J" + "x" * 900_000, False))

    with any_text():
        outcomes = Play(parties, code={"shop": run}).run()
    for name in ("bank", "telco"):
        assert isinstance(outcomes[name], PeerFailed | PeerLost | WrongContent)
        assert str(outcomes[name]).isprintable()
        assert len(str(outcomes[name])) < 2500


def test_last_words_in_the_greetings_context_count_only_right_after_the_greeting() -> None:
    def late(peer: Hostile) -> None:
        peer.answer()
        peer.say(Failed("shop", 1, "late", False), context=_GREETING, sequence=1)

    ends_in(FrameRefused, "another run, connection", late)
    ends_in(
        FrameRefused,
        "another run, connection",
        lambda peer: peer.say(Answer(np.zeros(2)), context=_GREETING, sequence=1),
    )


def test_what_a_hostile_peer_sent_is_not_recorded_unless_it_was_accepted() -> None:
    def run(session: Session) -> None:
        peer = Hostile(session)
        peer.hear()
        peer.say(Ask(np.zeros(2)))

    played = Play(code={"shop": run})
    played.run()
    bank = played.sessions["bank"].ledger.read()
    received = [entry.content["message"] for entry in bank.messages() if entry.kind == "received"]
    assert received == ["Hello", "HeldCheckpoints"]


# --- scripted, without threads ------------------------------------------------------------------------------------


def scripted(frames: list[bytes]) -> tuple[Channel, ScriptedLink]:
    link = ScriptedLink(frames)
    channel = Channel(
        link,
        party="bank",
        role="lead",
        peer="shop",
        peer_role="helper",
        run="run",
        declarations=[declaration_of(Ask), declaration_of(Answer)],
        ledger=LedgerWriter(),
        policy=Policy(),
        step=lambda: 4,
    )
    channel.connect(b"n" * 16, b"m" * 16)
    return channel, link


def test_a_scripted_peer_is_read_in_order_and_then_gone() -> None:
    channel, link = scripted([])
    context = channel._incoming
    answers = [ScriptedLink.frame(Answer(np.full(2, n)), context=context, sequence=n) for n in range(3)]
    link._frames.extend(answers)
    assert [channel.receive(Answer).values[0] for _ in range(3)] == [0, 1, 2]
    with pytest.raises(PeerLost):
        channel.receive(Answer)


def test_a_refused_frame_does_not_move_the_channel_on() -> None:
    channel, link = scripted([])
    good = ScriptedLink.frame(Answer(np.zeros(2)), context=channel._incoming, sequence=0)
    for bad in (good[:-1], good + b"x", ScriptedLink.frame(Answer(np.zeros(2)), context=bytes(16), sequence=0)):
        link._frames.append(bad)
        with pytest.raises(FrameRefused):
            channel.receive(Answer)
    link._frames.append(good)
    channel.receive(Answer)
    assert len(list(channel._ledger.read().messages())) == 1


def test_contexts_depend_on_every_fact_they_bind() -> None:
    def contexts(**changes: Any) -> tuple[bytes, bytes]:
        facts = {"party": "bank", "peer": "shop", "run": "run", **changes}
        nonces = (facts.pop("own", b"n" * 16), facts.pop("theirs", b"m" * 16))
        channel = Channel(
            ScriptedLink([]),
            role="lead",
            peer_role="helper",
            declarations=(),
            ledger=LedgerWriter(),
            policy=Policy(),
            step=lambda: 0,
            **facts,
        )
        channel.connect(*nonces)
        return channel._outgoing, channel._incoming

    seen = [
        contexts(),
        contexts(party="bank2"),
        contexts(peer="shop2"),
        contexts(run="run2"),
        contexts(own=b"o" * 16),
        contexts(theirs=b"o" * 16),
        contexts(party="ban", peer="kshop"),
    ]
    assert len({one for pair in seen for one in pair}) == 2 * len(seen)
    out, back = contexts()
    assert contexts(party="shop", peer="bank", own=b"m" * 16, theirs=b"n" * 16) == (back, out)


def test_last_words_are_found_when_a_send_fails() -> None:
    """The peer left while we were sending; why it left lies unread on the line."""
    channel, link = scripted([])
    link._frames.append(ScriptedLink.frame(Answer(np.zeros(2)), context=channel._incoming, sequence=0))
    words = Failed("shop", 2, "the loss is no longer a number.", False)
    link._frames.append(ScriptedLink.frame(words, context=channel._incoming, sequence=1))

    def gone(parts: Any, body_digest: bytes) -> None:
        raise PeerLost("'shop' has already left the run.")

    link.send = gone  # type: ignore[method-assign]
    with pytest.raises(PeerFailed, match="'shop' stopped at step 2: the loss"):
        channel.send(Ask(np.zeros(2)))


# --- a hostile party in real training -----------------------------------------------------------------------------


def training(hostile: str, code: Callable[[Hostile, int], Any]) -> Any:
    """Return what the honest party of a split network ends with, against a hostile one of two."""
    import threading

    from tests.unit.session.trials import tables

    from colonnade.data import AlignedRows, split_rows
    from colonnade.session import Holding, Participant
    from colonnade.settings import config_to_json
    from colonnade.transport import MemoryHub

    config = SplitNN(epochs=2, minimum_steps=0, batch_size=8, hidden=(4,), cut_width=3)
    roles = {"label_holder": ("bank",), "feature_holder": ("shop",)}
    plan = RunPlan(name="run", method="splitnn", roles=roles, config=config_to_json(config))
    given = tables()
    aligned = {
        name: AlignedRows(np.array(rows), np.empty(0, np.int64), "the reference")
        for name, rows in shared_rows(given, 1).items()
    }
    split = split_rows(48, validation_fraction=8 / 48, test_fraction=8 / 48, seed=1)
    hub = MemoryHub(given, silence_seconds=5)
    honest = "shop" if hostile == "bank" else "bank"
    sessions = {
        name: Session(Participant(name), METHOD, plan, {peer: hub.link(name, peer)})
        for name, peer in ((honest, hostile), (hostile, honest))
    }
    ended: list[BaseException] = []

    def play_honestly() -> None:
        try:
            toys.play_honestly(sessions[honest], Holding(given[honest], aligned[honest], split), config)
        except BaseException as error:
            ended.append(error)
        finally:
            hub.leave(honest)

    def play_falsely() -> None:
        try:
            code(Hostile(sessions[hostile]), len(split.train))
            while True:
                sessions[hostile].all_channels[0]._link.receive()
        except ProtocolError:
            pass
        finally:
            hub.leave(hostile)

    threads = [threading.Thread(target=one, daemon=True) for one in (play_honestly, play_falsely)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(15)
    assert not any(thread.is_alive() for thread in threads), "a party hangs"
    (error,) = ended
    return error


def test_activations_before_the_width_are_out_of_step() -> None:
    error = training("shop", lambda peer, rows: peer.say(CutActivations(torch.zeros(8, 3))))
    assert type(error) is OutOfStep
    assert "expected CutWidth" in str(error)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.uint8, torch.bool])
def test_activations_of_another_type_do_no_harm(dtype: torch.dtype) -> None:
    def code(peer: Hostile, rows: int) -> None:
        peer.say(CutWidth(3))
        peer.say(CutActivations(torch.ones(8, 3).to(dtype)))
        peer.hear()
        peer.say(HeldOutActivations(torch.zeros(8, 3)))

    error = training("shop", code)
    assert isinstance(error, OutOfStep | WrongContent), repr(error)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.int64, torch.bool])
def test_gradients_of_another_type_do_no_harm(dtype: torch.dtype) -> None:
    def code(peer: Hostile, rows: int) -> None:
        peer.hear(), peer.hear()
        peer.say(CutGradient(torch.ones(8, 3).to(dtype)))
        peer.hear()
        peer.say(Verdict(True, True, False))

    error = training("bank", code)
    assert isinstance(error, OutOfStep | WrongContent), repr(error)


def test_a_verdict_in_the_middle_of_an_epoch_is_out_of_step() -> None:
    assert type(training("bank", lambda peer, rows: peer.say(Verdict(True, True, False)))) is OutOfStep


def test_ledgers_of_a_quarrel_still_agree() -> None:
    """The honest side's record is a prefix of what the hostile side honestly recorded sending."""

    def run(session: Session) -> None:
        session.ledger.mark("opened", party="shop", digest=session.plan.digest())
        greet(session)
        agree_on_resume(session)
        channel = session.channel("lead")
        channel.receive(Ask)
        header, parts = seal(declaration_of(Answer), Answer(np.zeros(3)), context=channel._outgoing, sequence=1, step=1)
        session.ledger.message("sent", "bank", declaration_of(Answer), header, {"values": (3,)})
        channel._link.send(parts)

    played = Play(code={"shop": run})
    assert type(played.run()["bank"]) is WrongContent
    compare(played.sessions["bank"].ledger.read(), played.sessions["shop"].ledger.read())
